//! Reading a value as a stream.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use esker_format::data::Value;
use esker_format::value_piece::{PIECE_DATA_BYTES, PIECE_HEADER_BYTES};
use esker_format::value_ref::ValueRef;
use esker_substrate::values::{ReadAhead, Sequel};

use super::{decode, read_piece};
use crate::error::{Error, Result};
use crate::follow;
use crate::read_point::ReadPoint;
use crate::shared::Shared;
use crate::slot::Slot;

/// A seekable reader of a value as it was when the reader was made: [`Read`] and [`Seek`] in the
/// memory of one piece, 64 KiB. Each piece is verified against its checksum before any of it is
/// returned.
///
/// It holds versions as a [`Snapshot`](crate::Snapshot) does, and blocks no other operation: the
/// value may be overwritten, removed and merged while it is read. Errors are of kind
/// [`Other`](io::ErrorKind::Other) and carry an [`esker::Error`](Error).
pub struct ValueReader {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    /// Keeps the value where it is.
    point: ReadPoint,
    place: Place,
    len: u64,
    position: u64,
}

enum Place {
    Here(Vec<u8>),
    Blob {
        value: ValueRef,
        /// The piece read last, if one was, its bytes, and how many of them are data.
        number: Option<u64>,
        piece: Vec<u8>,
        data_bytes: usize,
        ahead: ReadAhead,
        sequel: Sequel,
    },
}

impl Place {
    fn blob(value: ValueRef) -> Self {
        let (ahead, sequel) = (ReadAhead::default(), Sequel::default());
        Self::Blob { value, number: None, piece: Vec::new(), data_bytes: 0, ahead, sequel }
    }
}

impl ValueReader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        slot: Arc<Slot>,
        point: ReadPoint,
        value: Value,
    ) -> Result<Self> {
        let content = match value {
            Value::Inline(value) => {
                let (len, place) = (value.len() as u64, Place::Here(value));
                return Ok(Self { shared, slot, point, place, len, position: 0 });
            }
            Value::Blob(content) => content,
            // The caller has merged an operand on it before it asks for a reader.
            Value::Operand(onto) => onto.content,
        };
        let value = decode(&content)?;
        let (len, place) = (value.bytes, Place::blob(value));
        Ok(Self { shared, slot, point, place, len, position: 0 })
    }

    /// Length of the value, in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the value is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes in memory from the position on, read first if necessary: at least one, except at
    /// the end of the value.
    fn rest(&mut self) -> Result<&[u8]> {
        let position = self.position;
        // Also for what is in memory: a closed store answers nothing.
        let _open = self.shared.enter()?;
        match &mut self.place {
            Place::Here(value) => {
                let from = usize::try_from(position).unwrap_or(usize::MAX);
                Ok(value.get(from..).unwrap_or_default())
            }
            Place::Blob { .. } if position >= self.len => Ok(&[]),
            Place::Blob { value, number, piece, data_bytes, ahead, sequel } => {
                let wanted = position / PIECE_DATA_BYTES;
                if *number != Some(wanted) {
                    let follows =
                        wanted.checked_sub(1).is_some_and(|before| *number == Some(before));
                    if follows {
                        ahead.go_on(&self.shared.env.blocks, value, wanted);
                    } else {
                        *ahead = ReadAhead::default();
                    }
                    *number = None;
                    let read = read_piece(&self.shared, &self.slot, value, (wanted, sequel), piece);
                    let too_old = |error| follow::too_old(&self.shared, self.point.seq(), error);
                    *data_bytes = read.map_err(too_old)?.len();
                    *number = Some(wanted);
                }
                let from = (position % PIECE_DATA_BYTES) as usize;
                let data = PIECE_HEADER_BYTES + from..PIECE_HEADER_BYTES + *data_bytes;
                Ok(piece.get(data).unwrap_or_default())
            }
        }
    }
}

impl Read for ValueReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let rest = self.rest().map_err(io::Error::other)?;
        let len = rest.len().min(buf.len());
        let (source, target) = (rest.get(..len), buf.get_mut(..len));
        if let (Some(source), Some(target)) = (source, target) {
            target.copy_from_slice(source);
        }
        self.position += len as u64;
        Ok(len)
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, offset) = match to {
            SeekFrom::Start(position) => (position, 0),
            SeekFrom::End(offset) => (self.len, offset),
            SeekFrom::Current(offset) => (self.position, offset),
        };
        let position = base.checked_add_signed(offset).ok_or_else(|| {
            let what = Error::invalid("a position in a value is before its beginning");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        self.position = position;
        Ok(position)
    }
}

impl fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value is left out: it does not belong in logs.
        f.debug_struct("ValueReader")
            .field("keyspace", &self.slot.name)
            .field("len", &self.len)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
