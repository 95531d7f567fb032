//! The write-ahead log: what the memtable has. Frames follow each other from the start of a file;
//! each has a checksum, its length and the epoch in which it was written. A flush begins a new
//! epoch at the start of the file: what is behind the last frame of an epoch does not count.

use std::sync::Arc;

use crc32c::crc32c;
use esker_device::{DeviceFile, Purpose};
use esker_format::Result as Decoded;
use esker_format::bytes::Reader;

use super::block::{KEY_BYTES_MAX, Record, VALUE_BYTES_MAX};
use super::error::{damaged, device};
use crate::Result;

/// Checksum, length, epoch.
const HEAD_BYTES: usize = 4 + 4 + 8;
/// Bytes that are collected for one write.
const WRITE_BYTES: usize = 64 << 10;
/// Most bytes of a frame.
const FRAME_BYTES_MAX: u64 = 2 * (KEY_BYTES_MAX + VALUE_BYTES_MAX) as u64;

/// An open log.
#[derive(Debug)]
pub struct Log {
    file: Arc<dyn DeviceFile>,
    epoch: u64,
    /// Where the next write goes.
    end: u64,
    pending: Vec<u8>,
    /// Bytes written since it was opened.
    written: u64,
}

impl Log {
    /// Opens a log and reads the records of its epoch, in the order in which they were written.
    ///
    /// # Errors
    /// Those of the device.
    pub fn open(file: Arc<dyn DeviceFile>, epoch: u64) -> Result<(Self, Vec<Record>)> {
        let length = file.len().map_err(device)?;
        let (mut records, mut at) = (Vec::new(), 0u64);
        let mut head = [0; HEAD_BYTES];
        while at + HEAD_BYTES as u64 <= length {
            file.read_at(at, &mut head, Purpose::Recovery).map_err(device)?;
            let mut input = Reader::new(&head);
            let (checksum, bytes) = (input.u32().map_err(damaged)?, input.u32().map_err(damaged)?);
            let (bytes, is_of) = (u64::from(bytes), input.u64().map_err(damaged)? == epoch);
            let end = at + HEAD_BYTES as u64 + bytes;
            if !is_of || bytes > FRAME_BYTES_MAX || end > length {
                break;
            }
            let mut frame = vec![0; HEAD_BYTES - 4 + bytes as usize];
            file.read_at(at + 4, &mut frame, Purpose::Recovery).map_err(device)?;
            if crc32c(&frame) != checksum {
                break;
            }
            let Ok(record) = read(frame.get(HEAD_BYTES - 4..).unwrap_or_default()) else { break };
            records.push(record);
            at = end;
        }
        Ok((Self { file, epoch, end: at, pending: Vec::new(), written: 0 }, records))
    }

    /// Appends a record. It is durable after [`sync`](Self::sync).
    ///
    /// # Errors
    /// Those of the device.
    pub fn append(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let mut frame = self.epoch.to_le_bytes().to_vec();
        frame.push(key.len() as u8);
        frame.push(u8::from(value.is_some()));
        frame.extend_from_slice(key);
        frame.extend_from_slice(value.unwrap_or_default());
        let bytes = (frame.len() - 8) as u32;
        frame.splice(0..0, bytes.to_le_bytes());
        self.pending.extend_from_slice(&crc32c(&frame).to_le_bytes());
        self.pending.extend_from_slice(&frame);
        if self.pending.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.file.write_at(self.end, &self.pending, Purpose::Log).map_err(device)?;
        self.end += self.pending.len() as u64;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Makes everything durable that was appended.
    ///
    /// # Errors
    /// Those of the device.
    pub fn sync(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            self.write()?;
        }
        self.file.sync(Purpose::Log).map_err(device)
    }

    /// Bytes written since it was opened.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Begins an epoch: what was appended is in a table, durably, and so is the epoch's number.
    pub fn restart(&mut self, epoch: u64) {
        (self.epoch, self.end) = (epoch, 0);
        self.pending.clear();
    }
}

fn read(bytes: &[u8]) -> Decoded<Record> {
    let mut input = Reader::new(bytes);
    let (length, has_value) = (input.u8()?, input.u8()?);
    let key = input.take(length.into())?.to_vec();
    let value = bytes.get(input.offset()..).unwrap_or_default();
    Ok((key, (has_value == 1).then(|| value.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_device::memory::MemoryDevice;
    use esker_device::{Caching, Device, Open};

    #[test]
    fn an_epoch_is_read_back_and_the_one_before_is_not() {
        let device = MemoryDevice::new();
        let file = device.open("log", Open::CreateNew, Caching::Buffered).unwrap();
        let (mut log, found) = Log::open(Arc::clone(&file), 1).unwrap();
        assert!(found.is_empty());
        for n in 0..5u8 {
            log.append(&[n], Some(&[n; 20])).unwrap();
        }
        log.append(b"x", None).unwrap();
        log.sync().unwrap();
        let (_, found) = Log::open(Arc::clone(&file), 1).unwrap();
        assert_eq!(found.len(), 6);
        assert_eq!(found[2], (vec![2], Some(vec![2; 20])));
        assert_eq!(found[5], (b"x".to_vec(), None));
        log.restart(2);
        log.append(b"a", Some(b"")).unwrap();
        log.sync().unwrap();
        let (mut again, found) = Log::open(Arc::clone(&file), 2).unwrap();
        assert_eq!(found, [(b"a".to_vec(), Some(vec![]))]);
        again.append(b"b", None).unwrap();
        again.sync().unwrap();
        assert_eq!(Log::open(Arc::clone(&file), 2).unwrap().1.len(), 2);
        // A byte of the second frame is lost.
        file.write_at(20, &[77], Purpose::Log).unwrap();
        assert_eq!(Log::open(file, 2).unwrap().1.len(), 1);
    }
}
