//! The store in a backup, read through its catalog: the files that a restore would make, on a
//! separate device. They can be read; writes stay in memory and are discarded.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::memory::MemoryDevice;
use esker_device::{
    Caching, Device, DeviceError, DeviceFile, DeviceLock, Open, Operation, Purpose, Result,
};
use esker_format::backup::{Catalog, LogChunk};
use esker_format::ids::SegmentId;
use esker_format::manifest_edit::SegmentRef;
use esker_format::ptr::{SECTOR_BYTES, UNIT_BYTES};
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::log::segment_name;
use esker_substrate::manifest::{KeyspaceState, ManifestState};
use esker_substrate::sync::Mutex;

use super::pieces::UNIT_SECTORS;

/// A part of a file, and its place in the backup. All in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapped {
    pub offset: u64,
    pub bytes: u64,
    pub place: u64,
}

/// A file of the store.
#[derive(Clone, Debug)]
pub(super) struct FileMap {
    pub name: String,
    /// The log segment that it is the file of.
    pub segment: Option<SegmentId>,
    /// Its length in bytes; what is not mapped is zeros.
    pub len: u64,
    /// Ascending.
    pub parts: Vec<Mapped>,
}

/// The files that a backup contains: those of the log, and the data file.
pub(super) fn files(catalog: &Catalog, state: &ManifestState) -> Vec<FileMap> {
    let mut files: Vec<_> =
        state.segments.values().map(|segment| log_file(segment, &catalog.chunks)).collect();
    let extents = state.keyspaces.values().flat_map(KeyspaceState::extents);
    let units = extents.map(|extent| extent.end()).max().unwrap_or(0);
    // The last may be of a value that the log alone refers to.
    let copied = catalog.pieces.last().map_or(0, |piece| piece.end().div_ceil(UNIT_SECTORS));
    let parts = catalog.pieces.iter().map(|piece| Mapped {
        offset: piece.sector * SECTOR_BYTES,
        bytes: piece.sectors * SECTOR_BYTES,
        place: piece.place * SECTOR_BYTES,
    });
    let len = units.max(copied).saturating_mul(UNIT_BYTES);
    files.push(FileMap { name: DATA_FILE.into(), segment: None, len, parts: parts.collect() });
    files
}

/// The parts of a segment among `chunks`, which ascend by segment.
pub(super) fn chunks_of(chunks: &[LogChunk], segment: SegmentId) -> &[LogChunk] {
    let from = chunks.partition_point(|chunk| chunk.segment < segment);
    let until = chunks.partition_point(|chunk| chunk.segment <= segment);
    chunks.get(from..until).unwrap_or_default()
}

fn log_file(segment: &SegmentRef, chunks: &[LogChunk]) -> FileMap {
    let parts = chunks_of(chunks, segment.id).iter().map(|chunk| Mapped {
        offset: chunk.offset,
        bytes: chunk.bytes,
        place: chunk.place * UNIT_BYTES,
    });
    let (name, parts) = (segment_name(segment.file), parts.collect());
    FileMap { name, segment: Some(segment.id), len: segment.bytes, parts }
}

/// The device.
#[derive(Debug)]
pub(super) struct ImageDevice {
    location: String,
    mapped: BTreeMap<String, Arc<MappedFile>>,
    /// Everything else.
    memory: MemoryDevice,
}

#[derive(Debug)]
struct MappedFile {
    map: FileMap,
    blocks: Arc<dyn DeviceFile>,
    state: Mutex<Written>,
}

/// The content that was written, in whole units, and the length of the file.
#[derive(Debug)]
struct Written {
    units: BTreeMap<u64, Vec<u8>>,
    len: u64,
}

impl ImageDevice {
    pub fn new(location: String, blocks: &Arc<dyn DeviceFile>, files: Vec<FileMap>) -> Self {
        let mapped = files.into_iter().map(|map| {
            let state = Mutex::new(Written { units: BTreeMap::new(), len: map.len });
            let file = MappedFile { map: map.clone(), blocks: Arc::clone(blocks), state };
            (map.name, Arc::new(file))
        });
        Self { location, mapped: mapped.collect(), memory: MemoryDevice::new() }
    }
}

impl Device for ImageDevice {
    fn open(&self, name: &str, open: Open, caching: Caching) -> Result<Arc<dyn DeviceFile>> {
        match self.mapped.get(name) {
            Some(file) if open == Open::Existing => Ok(Arc::clone(file) as _),
            _ => self.memory.open(name, open, caching),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut names = self.memory.list()?;
        names.extend(self.mapped.keys().cloned());
        Ok(names)
    }

    fn remove(&self, name: &str) -> Result<()> {
        if self.mapped.contains_key(name) {
            // It is forgotten with all the rest.
            return Ok(());
        }
        self.memory.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.memory.rename(from, to)
    }

    fn sync_dir(&self) -> Result<()> {
        self.memory.sync_dir()
    }

    fn try_lock(&self) -> Result<Option<DeviceLock>> {
        self.memory.try_lock()
    }

    fn location(&self) -> String {
        self.location.clone()
    }
}

impl MappedFile {
    /// Fills `buf` with what the backup contains.
    fn read_backup(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        buf.fill(0);
        let end = offset.saturating_add(buf.len() as u64);
        let parts = &self.map.parts;
        let first = parts.partition_point(|part| part.offset + part.bytes <= offset);
        for part in parts.iter().skip(first).take_while(|part| part.offset < end) {
            let (from, until) = (part.offset.max(offset), (part.offset + part.bytes).min(end));
            let range = (from - offset) as usize..(until - offset) as usize;
            let place = part.place + (from - part.offset);
            if let Some(buf) = buf.get_mut(range) {
                self.blocks.read_at(place, buf, purpose)?;
            }
        }
        Ok(())
    }

    /// Written data of a range replaces the backup's data.
    fn lay_over(&self, offset: u64, buf: &mut [u8]) {
        let state = self.state.lock();
        let end = offset.saturating_add(buf.len() as u64);
        let units = offset / UNIT_BYTES..end.div_ceil(UNIT_BYTES);
        for (unit, bytes) in state.units.range(units) {
            let start = unit * UNIT_BYTES;
            let (from, until) = (start.max(offset), (start + UNIT_BYTES).min(end));
            let source = bytes.get((from - start) as usize..(until - start) as usize);
            let target = buf.get_mut((from - offset) as usize..(until - offset) as usize);
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
        }
    }
}

impl DeviceFile for MappedFile {
    fn name(&self) -> &str {
        &self.map.name
    }

    fn len(&self) -> Result<u64> {
        Ok(self.state.lock().len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        if offset.saturating_add(buf.len() as u64) > self.len()? {
            let kind = std::io::ErrorKind::UnexpectedEof;
            return Err(DeviceError::new(Operation::Read, &self.map.name, offset, kind));
        }
        self.read_backup(offset, buf, purpose)?;
        self.lay_over(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> Result<()> {
        let end = offset.saturating_add(buf.len() as u64);
        for unit in offset / UNIT_BYTES..end.div_ceil(UNIT_BYTES) {
            let start = unit * UNIT_BYTES;
            let mut bytes = vec![0; UNIT_BYTES as usize];
            self.read_backup(start, &mut bytes, purpose)?;
            self.lay_over(start, &mut bytes);
            let (from, until) = (start.max(offset), (start + UNIT_BYTES).min(end));
            let target = bytes.get_mut((from - start) as usize..(until - start) as usize);
            let source = buf.get((from - offset) as usize..(until - offset) as usize);
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
            self.state.lock().units.insert(unit, bytes);
        }
        let mut state = self.state.lock();
        state.len = state.len.max(end);
        Ok(())
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn preallocate(&self, len: u64, _purpose: Purpose) -> Result<()> {
        let mut state = self.state.lock();
        state.len = state.len.max(len);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        self.preallocate(offset.saturating_add(len), purpose)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        // The space behind it is not the store's: it is written before it is read again.
        self.state.lock().len = len;
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
}
