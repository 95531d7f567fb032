//! The rollback journal as SQLite sees it: it never reaches the disk.
//!
//! SQLite keeps the old contents of a transaction's pages in a journal, and rolls back from it,
//! also to savepoints. A store with versions needs no journal for atomicity, but the pager reads
//! back what it wrote. A page in the journal is a copy of the page as the transaction found it, and
//! the snapshot that the transaction began from still has that page. So for a page in a long
//! journal only its place is kept, and a huge transaction takes about two hundred bytes of memory
//! per page.
//!
//! Invariant: a read returns what was written.

use std::collections::BTreeMap;

use crate::code::{Code, Result};

/// Journals up to this length are kept as they are written: most transactions are short, and to
/// look at the snapshot costs a read a page.
const SHORT: u64 = 1 << 20;

/// Bytes of a short journal's memory that the next transaction finds there.
const KEPT: usize = 64 << 10;

/// The bytes that a journal begins with until it is finished, and ends with where it names a
/// super-journal.
const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// The end of a journal that names a super-journal: the name's length and sum, and [`MAGIC`].
const TAIL: usize = 16;

/// A journal.
///
/// Invariant: there are `pieces` only where `head` has all of its bytes.
#[derive(Debug, Default)]
pub struct Journal {
    /// The first MiB, as it was written.
    head: Vec<u8>,
    /// The rest, by where it was written, in pieces that do not overlap.
    pieces: BTreeMap<u64, Piece>,
}

/// Bytes that were written in one call.
#[derive(Debug)]
enum Piece {
    /// As they were.
    Bytes(Vec<u8>),
    /// A page of the snapshot, from its first byte.
    Page { offset: u64, len: usize },
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Page { len, .. } => *len as u64,
        }
    }
}

/// The version that the transaction began from.
pub trait Original {
    /// Fills `buf` with the former bytes from `offset` of the database file on.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result;
}

impl Journal {
    /// Bytes to its end.
    #[must_use]
    pub fn size(&self) -> u64 {
        let last = self.pieces.last_key_value();
        last.map_or(self.head.len() as u64, |(at, piece)| at + piece.len())
    }

    /// The super-journal that it names, unless it is finished.
    pub fn super_journal(&self, original: &dyn Original) -> Option<Vec<u8>> {
        let end = self.size().checked_sub(TAIL as u64)?;
        if !self.head.starts_with(&MAGIC) {
            return None;
        }
        let mut tail = [0; TAIL];
        self.read(end, &mut tail, original).ok()?;
        let [a, b, c, d, ..] = tail;
        let len = u32::from_be_bytes([a, b, c, d]);
        let from = end.checked_sub(len.into())?;
        // No path is as long.
        if !tail.ends_with(&MAGIC) || len == 0 || u64::from(len) > SHORT {
            return None;
        }
        let mut name = vec![0; len as usize];
        self.read(from, &mut name, original).ok()?;
        Some(name)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.head.clear();
        self.head.shrink_to(KEPT);
    }

    /// Forgets everything from `len` on; what is lengthened reads as zeros.
    pub fn truncate(&mut self, len: u64, original: &dyn Original) -> Result {
        self.head.resize(memory(len.min(SHORT))?, 0);
        if len <= SHORT {
            self.pieces.clear();
            return Ok(());
        }
        self.split(len, original)?;
        drop(self.pieces.split_off(&len));
        let at = self.size();
        if at < len {
            self.pieces.insert(at, Piece::Bytes(vec![0; memory(len - at)?]));
        }
        Ok(())
    }

    /// Writes `bytes` at `at`.
    pub fn write(&mut self, at: u64, bytes: &[u8], original: &dyn Original) -> Result {
        if self.size() < at {
            self.truncate(at, original)?;
        }
        let room = usize::try_from(SHORT.saturating_sub(at)).unwrap_or(usize::MAX);
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        if !head.is_empty() {
            let from = memory(at)?;
            let over = (self.head.len() - from).min(head.len());
            self.head[from..from + over].copy_from_slice(&head[..over]);
            self.head.extend_from_slice(&head[over..]);
        }
        if rest.is_empty() { Ok(()) } else { self.write_rest(at.max(SHORT), rest, original) }
    }

    /// Writes `bytes` past the head. Where the four bytes before are a page number and `bytes` are
    /// that page as `original` has it, only the place of the page is kept.
    fn write_rest(&mut self, at: u64, bytes: &[u8], original: &dyn Original) -> Result {
        let end = at + bytes.len() as u64;
        self.split(at, original)?;
        self.split(end, original)?;
        let inside: Vec<u64> = self.pieces.range(at..end).map(|(at, _)| *at).collect();
        for at in inside {
            self.pieces.remove(&at);
        }
        let piece = self.page_before(at, bytes, original);
        self.pieces.insert(at, piece.unwrap_or_else(|| Piece::Bytes(bytes.to_vec())));
        Ok(())
    }

    /// The page that equals `bytes`, if the four bytes before are its number.
    fn page_before(&self, at: u64, bytes: &[u8], original: &dyn Original) -> Option<Piece> {
        let is_page = (512..=65_536).contains(&bytes.len()) && bytes.len().is_power_of_two();
        let Piece::Bytes(number) = self.pieces.get(&at.checked_sub(4).filter(|_| is_page)?)? else {
            return None;
        };
        let number = u32::from_be_bytes(number.as_slice().try_into().ok()?);
        let offset = u64::from(number.checked_sub(1)?) * bytes.len() as u64;
        let mut was = vec![0; bytes.len()];
        original.read(offset, &mut was).ok()?;
        (was == bytes).then_some(Piece::Page { offset, len: bytes.len() })
    }

    /// Cuts the piece that reaches over `at`, if there is one, in two.
    fn split(&mut self, at: u64, original: &dyn Original) -> Result {
        let Some((start, piece)) = self.pieces.range(..at).next_back() else { return Ok(()) };
        let start = *start;
        if start + piece.len() <= at {
            return Ok(());
        }
        let mut head = bytes(piece, original)?;
        let tail = head.split_off(memory(at - start)?);
        self.pieces.insert(start, Piece::Bytes(head));
        self.pieces.insert(at, Piece::Bytes(tail));
        Ok(())
    }

    /// Fills `buf` from `at`; [`Code::SHORT_READ`] where the journal ends earlier, and zeros
    /// there.
    pub fn read(&self, at: u64, buf: &mut [u8], original: &dyn Original) -> Result {
        let end = at + buf.len() as u64;
        let index = |place: u64, base: u64| usize::try_from(place - base).unwrap_or(usize::MAX);
        let head = self.head.get(index(at, 0)..).unwrap_or_default();
        let known = head.len().min(buf.len());
        buf[..known].copy_from_slice(&head[..known]);
        buf[known..].fill(0);
        let first = self.pieces.range(..=at).next_back().map_or(at, |(start, _)| *start);
        for (start, piece) in self.pieces.range(first..end) {
            let stop = start + piece.len();
            let (from, upto) = ((*start).max(at), stop.min(end));
            if from >= upto {
                continue;
            }
            let target = &mut buf[index(from, at)..index(upto, at)];
            match piece {
                Piece::Bytes(bytes) => {
                    target.copy_from_slice(&bytes[index(from, *start)..index(upto, *start)]);
                }
                Piece::Page { offset, .. } => original.read(offset + (from - start), target)?,
            }
        }
        if end > self.size() { Err(Code::SHORT_READ) } else { Ok(()) }
    }
}

/// A length that memory can hold.
fn memory(len: u64) -> Result<usize> {
    usize::try_from(len).map_err(|_| Code::IOERR_NOMEM)
}

fn bytes(piece: &Piece, original: &dyn Original) -> Result<Vec<u8>> {
    match piece {
        Piece::Bytes(bytes) => Ok(bytes.clone()),
        Piece::Page { offset, len } => {
            let mut bytes = vec![0; *len];
            original.read(*offset, &mut bytes)?;
            Ok(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Database(Vec<u8>);

    impl Original for Database {
        fn read(&self, offset: u64, buf: &mut [u8]) -> Result {
            let at = offset as usize;
            let Some(bytes) = self.0.get(at..at + buf.len()) else { return Err(Code::IOERR_READ) };
            buf.copy_from_slice(bytes);
            Ok(())
        }
    }

    fn database() -> Database {
        Database((0..8 * 512_u32).map(|at| (at * 7 / 3) as u8).collect())
    }

    #[test]
    fn pages_of_the_snapshot_are_not_kept_in_long_journals() {
        let (mut journal, database) = (Journal::default(), database());
        for (at, is_kept) in [(512, true), (SHORT, false)] {
            journal.write(at, &3_u32.to_be_bytes(), &database).unwrap();
            journal.write(at + 4, &database.0[1024..1536], &database).unwrap();
            journal.write(at + 516, &[1, 2, 3, 4], &database).unwrap();
            let piece = journal.pieces.get(&(at + 4));
            assert_eq!(matches!(piece, Some(Piece::Page { offset: 1024, .. })), !is_kept);
            let mut read = [0; 520];
            journal.read(at, &mut read, &database).unwrap();
            assert_eq!(&read[4..516], &database.0[1024..1536]);
            assert_eq!(&read[516..], &[1, 2, 3, 4]);
        }
        // Another page under that number is kept as it is.
        journal.write(SHORT + 4, &[9; 512], &database).unwrap();
        assert!(matches!(journal.pieces[&(SHORT + 4)], Piece::Bytes(_)));
    }

    #[test]
    fn a_journal_names_a_super_journal_until_it_is_finished() {
        for at in [512, SHORT + 3] {
            let (mut journal, database) = (Journal::default(), database());
            let name = b"/tmp/app.db-mj1234569AB";
            journal.write(0, &MAGIC, &database).unwrap();
            journal.write(at, name, &database).unwrap();
            assert_eq!(journal.super_journal(&database), None);
            let at = at + name.len() as u64;
            journal.write(at, &(name.len() as u32).to_be_bytes(), &database).unwrap();
            journal.write(at + 4, &[0; 4], &database).unwrap();
            assert_eq!(journal.super_journal(&database), None);
            journal.write(at + 8, &MAGIC, &database).unwrap();
            assert_eq!(journal.super_journal(&database).as_deref(), Some(name.as_slice()));
            // Longer than the journal.
            let mut wild = [0; 4];
            journal.read(at, &mut wild, &database).unwrap();
            journal.write(at, &[255; 4], &database).unwrap();
            assert_eq!(journal.super_journal(&database), None);
            journal.write(at, &wild, &database).unwrap();
            journal.write(0, &[0; 28], &database).unwrap();
            assert_eq!(journal.super_journal(&database), None);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Page(u64, u32),
        Bytes(u64, Vec<u8>),
        Truncate(u64),
        Read(u64, usize),
    }

    fn place() -> impl Strategy<Value = u64> {
        SHORT - 3000..SHORT + 6000
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (place(), 1..9_u32).prop_map(|(at, page)| Step::Page(at, page)),
            (place(), prop::collection::vec(any::<u8>(), 1..700))
                .prop_map(|(at, bytes)| Step::Bytes(at, bytes)),
            place().prop_map(Step::Truncate),
            (place(), 0..2000_usize).prop_map(|(at, len)| Step::Read(at, len)),
        ]
    }

    proptest! {
        #[test]
        fn a_journal_is_a_file(steps in prop::collection::vec(step(), 1..60)) {
            let (mut journal, database) = (Journal::default(), database());
            let mut model: Vec<u8> = Vec::new();
            let write = |model: &mut Vec<u8>, at: u64, bytes: &[u8]| {
                let end = at as usize + bytes.len();
                model.resize(model.len().max(end), 0);
                model[at as usize..end].copy_from_slice(bytes);
            };
            for step in steps {
                match step {
                    Step::Page(at, number) => {
                        let from = (number as usize - 1) * 512;
                        let page = database.0[from..from + 512].to_vec();
                        for (at, bytes) in [(at, number.to_be_bytes().to_vec()), (at + 4, page)] {
                            journal.write(at, &bytes, &database).unwrap();
                            write(&mut model, at, &bytes);
                        }
                    }
                    Step::Bytes(at, bytes) => {
                        journal.write(at, &bytes, &database).unwrap();
                        write(&mut model, at, &bytes);
                    }
                    Step::Truncate(len) => {
                        journal.truncate(len, &database).unwrap();
                        model.resize(len as usize, 0);
                    }
                    Step::Read(at, len) => {
                        let mut read = vec![1; len];
                        let outcome = journal.read(at, &mut read, &database);
                        let have = model.len().saturating_sub(at as usize).min(len);
                        let mut wanted = vec![0; len];
                        let from = model.len().min(at as usize);
                        wanted[..have].copy_from_slice(&model[from..from + have]);
                        prop_assert_eq!(read, wanted);
                        prop_assert_eq!(outcome.is_ok(), at as usize + len <= model.len());
                    }
                }
                prop_assert_eq!(journal.size(), model.len() as u64);
            }
        }
    }
}
