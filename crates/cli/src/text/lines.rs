//! Cuts a stream that arrives in chunks into lines, with a bound on what it remembers.
//!
//! Invariants: `partial` never exceeds `bytes_max`; however the stream is cut into chunks, the
//! lines are the same; a line that is too long is reported once, as soon as it is known, and the
//! rest of it is discarded.

/// A line without its line feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// It passed the bound.
    TooLong,
}

/// The state between two chunks.
#[derive(Debug)]
pub struct LineSplitter {
    bytes_max: usize,
    pub(super) partial: Vec<u8>,
    discarding: bool,
}

impl LineSplitter {
    /// A splitter that refuses lines of more than `bytes_max` bytes, line feed not counted.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self { bytes_max, partial: Vec::new(), discarding: false }
    }

    /// Takes the next chunk of the stream and hands over every line that it completes, in order.
    ///
    /// # Errors
    /// The first that `each` returns; the rest of the chunk is then lost.
    pub fn feed<E>(
        &mut self,
        chunk: &[u8],
        each: &mut impl FnMut(Line<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for piece in chunk.split_inclusive(|&byte| byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(end) => self.complete(end, each)?,
                None => self.keep(piece, each)?,
            }
        }
        Ok(())
    }

    /// Hands over the last line, if the stream did not end with a line feed.
    ///
    /// # Errors
    /// The one that `each` returns.
    pub fn finish<E>(&mut self, each: &mut impl FnMut(Line<'_>) -> Result<(), E>) -> Result<(), E> {
        if self.partial.is_empty() {
            self.discarding = false;
            return Ok(());
        }
        self.complete(b"", each)
    }

    fn complete<E>(
        &mut self,
        end: &[u8],
        each: &mut impl FnMut(Line<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.partial.is_empty() && !self.discarding && end.len() <= self.bytes_max {
            return each(Line::Whole(end));
        }
        self.keep(end, each)?;
        if std::mem::take(&mut self.discarding) {
            return Ok(());
        }
        let line = std::mem::take(&mut self.partial);
        let answer = each(Line::Whole(&line));
        self.partial = line;
        self.partial.clear();
        answer
    }

    fn keep<E>(
        &mut self,
        piece: &[u8],
        each: &mut impl FnMut(Line<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.discarding {
            return Ok(());
        }
        if self.partial.len() + piece.len() > self.bytes_max {
            self.discarding = true;
            self.partial.clear();
            return each(Line::TooLong);
        }
        self.partial.extend_from_slice(piece);
        Ok(())
    }
}
