//! Files as shared pages, and a device over them: copying an image costs one pointer a page, so
//! that a suite can damage a hundred thousand copies of a store.
//!
//! Invariants:
//! * A page that an [`Image`] shares is never written; writers copy it first.
//! * `touched` of an [`ImageDevice`] marks every byte that was ever read from the image's files
//!   by their names at the start. A byte that is not marked cannot have influenced anything.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use esker_device::{
    Caching, Device, DeviceError, DeviceFile, DeviceLock, Open, Operation, Purpose, Result,
};
use parking_lot::Mutex;

const PAGE_BYTES: usize = 4096;

type Page = Arc<[u8; PAGE_BYTES]>;

/// Which bytes of each file were read, by name.
pub type Touched = BTreeMap<String, Vec<bool>>;

/// One file: pages, the last one padded with zeros.
#[derive(Clone, Debug, Default)]
struct File {
    pages: Vec<Page>,
    len: usize,
}

/// All files of a device at one moment.
#[derive(Clone, Debug, Default)]
pub struct Image {
    files: BTreeMap<String, File>,
}

impl File {
    fn from_bytes(bytes: &[u8]) -> Self {
        let page = |chunk: &[u8]| {
            let mut page = [0; PAGE_BYTES];
            page.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            Arc::new(page)
        };
        Self { pages: bytes.chunks(PAGE_BYTES).map(page).collect(), len: bytes.len() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes
    }

    /// Copies what lies within the file.
    fn read(&self, offset: usize, buf: &mut [u8]) {
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() && at < self.len {
            let page = self.pages.get(at / PAGE_BYTES).map_or(&[][..], |page| &page[..]);
            let from = page.get(at % PAGE_BYTES..).unwrap_or_default();
            let len = from.len().min(rest.len()).min(self.len - at);
            let (head, tail) = rest.split_at_mut(len);
            head.copy_from_slice(from.get(..len).unwrap_or_default());
            rest = tail;
            at += len;
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.grow(offset.saturating_add(bytes.len()));
        let (mut rest, mut at) = (bytes, offset);
        while let Some(page) = self.pages.get_mut(at / PAGE_BYTES).filter(|_| !rest.is_empty()) {
            let room = Arc::make_mut(page).get_mut(at % PAGE_BYTES..).unwrap_or_default();
            let (fits, later) = rest.split_at(room.len().min(rest.len()));
            room.iter_mut().zip(fits).for_each(|(to, from)| *to = *from);
            rest = later;
            at += fits.len();
        }
    }

    fn set(&mut self, at: usize, change: impl FnOnce(u8) -> u8) {
        let page = self.pages.get_mut(at / PAGE_BYTES).map(Arc::make_mut);
        if let Some(byte) = page.and_then(|page| page.get_mut(at % PAGE_BYTES)) {
            *byte = change(*byte);
        }
    }

    fn grow(&mut self, len: usize) {
        self.len = self.len.max(len);
        self.pages.resize_with(self.len.div_ceil(PAGE_BYTES), || Arc::new([0; PAGE_BYTES]));
    }

    fn cut(&mut self, len: usize) {
        if len < self.len {
            let old_len = self.len;
            self.len = len;
            self.pages.truncate(len.div_ceil(PAGE_BYTES));
            let page_end = len.next_multiple_of(PAGE_BYTES).min(old_len);
            (len..page_end).for_each(|at| self.set(at, |_| 0));
        }
    }
}

impl Image {
    /// Reads every file of a device.
    ///
    /// # Errors
    /// The device's error.
    pub fn of(device: &dyn Device) -> Result<Self> {
        let mut files = BTreeMap::new();
        for name in device.list()? {
            let file = device.open(&name, Open::Existing, Caching::Buffered)?;
            let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
            file.read_at(0, &mut bytes, Purpose::Check)?;
            files.insert(name, File::from_bytes(&bytes));
        }
        Ok(Self { files })
    }

    /// An image of these files.
    pub fn from_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let file = |(name, bytes): (String, Vec<u8>)| (name, File::from_bytes(&bytes));
        Self { files: files.into_iter().map(file).collect() }
    }

    /// The files' names and lengths in bytes.
    pub fn files(&self) -> impl Iterator<Item = (&str, usize)> {
        self.files.iter().map(|(name, file)| (name.as_str(), file.len))
    }

    /// A file's bytes; empty where there is no such file.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        self.files.get(name).map(File::bytes).unwrap_or_default()
    }

    /// Flips the bits of `mask` in one byte.
    pub fn flip(&mut self, name: &str, offset: usize, mask: u8) {
        if let Some(file) = self.files.get_mut(name) {
            file.set(offset, |byte| byte ^ mask);
        }
    }

    /// Overwrites a range within a file.
    pub fn overwrite(&mut self, name: &str, offset: usize, bytes: &[u8]) {
        if let Some(file) = self.files.get_mut(name) {
            file.write(offset, bytes);
        }
    }

    /// Cuts a file.
    pub fn truncate(&mut self, name: &str, len: usize) {
        if let Some(file) = self.files.get_mut(name) {
            file.cut(len);
        }
    }

    /// Takes over a file of another image, if it is there.
    pub fn copy_file(&mut self, name: &str, from: &Self) {
        if let Some(file) = from.files.get(name) {
            self.files.insert(name.to_owned(), file.clone());
        }
    }

    /// Removes a file.
    pub fn remove(&mut self, name: &str) {
        self.files.remove(name);
    }
}

/// A device that starts as an image and keeps what is written to itself. Syncs do nothing.
#[derive(Clone, Debug)]
pub struct ImageDevice {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    files: BTreeMap<String, Arc<Mutex<File>>>,
    /// The bytes of each file that were read; empty when this was not requested.
    touched: Touched,
    locked: bool,
}

#[derive(Debug)]
struct ImageFile {
    name: String,
    file: Arc<Mutex<File>>,
    state: Arc<Mutex<State>>,
    tracked: bool,
}

struct LockGuard(Arc<Mutex<State>>);

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.0.lock().locked = false;
    }
}

impl ImageDevice {
    /// A device that starts as `image`.
    #[must_use]
    pub fn new(image: &Image) -> Self {
        let file =
            |(name, file): (&String, &File)| (name.clone(), Arc::new(Mutex::new(file.clone())));
        let files = image.files.iter().map(file).collect();
        let state = State { files, touched: Touched::new(), locked: false };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The same, remembering which bytes are read.
    #[must_use]
    pub fn tracking(image: &Image) -> Self {
        let device = Self::new(image);
        let blank = |(name, file): (&String, &File)| (name.clone(), vec![false; file.len]);
        device.state.lock().touched = image.files.iter().map(blank).collect();
        device
    }

    /// What was read since the start.
    #[must_use]
    pub fn touched(&self) -> Touched {
        self.state.lock().touched.clone()
    }

    /// Everything as it is now.
    #[must_use]
    pub fn image(&self) -> Image {
        let state = self.state.lock();
        let file = |(name, file): (&String, &Arc<Mutex<File>>)| (name.clone(), file.lock().clone());
        Image { files: state.files.iter().map(file).collect() }
    }
}

fn error(operation: Operation, name: &str, offset: u64, kind: io::ErrorKind) -> DeviceError {
    DeviceError { operation, file: format!("image/{name}"), offset, source: kind.into() }
}

impl Device for ImageDevice {
    fn open(&self, name: &str, open: Open, _caching: Caching) -> Result<Arc<dyn DeviceFile>> {
        let mut state = self.state.lock();
        let file = match (state.files.get(name), open) {
            (Some(file), Open::Existing) => Arc::clone(file),
            (None, Open::CreateNew) => {
                let file = Arc::new(Mutex::new(File::default()));
                state.files.insert(name.to_owned(), Arc::clone(&file));
                file
            }
            (Some(_), Open::CreateNew) => {
                return Err(error(Operation::Open, name, 0, io::ErrorKind::AlreadyExists));
            }
            (None, Open::Existing) => {
                return Err(error(Operation::Open, name, 0, io::ErrorKind::NotFound));
            }
        };
        let tracked = state.touched.contains_key(name);
        Ok(Arc::new(ImageFile { name: name.into(), file, state: Arc::clone(&self.state), tracked }))
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.state.lock().files.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let removed = self.state.lock().files.remove(name);
        let missing = || error(Operation::Directory, name, 0, io::ErrorKind::NotFound);
        removed.map(drop).ok_or_else(missing)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut state = self.state.lock();
        let file = state.files.remove(from);
        let file =
            file.ok_or_else(|| error(Operation::Directory, from, 0, io::ErrorKind::NotFound))?;
        state.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_dir(&self) -> Result<()> {
        Ok(())
    }

    fn try_lock(&self) -> Result<Option<DeviceLock>> {
        if std::mem::replace(&mut self.state.lock().locked, true) {
            return Ok(None);
        }
        Ok(Some(Box::new(LockGuard(Arc::clone(&self.state)))))
    }

    fn location(&self) -> String {
        "image".into()
    }
}

impl ImageFile {
    /// The range as memory offsets, or the error that it does not fit a file.
    fn range(&self, operation: Operation, offset: u64, len: usize) -> Result<(usize, usize)> {
        let start = usize::try_from(offset).ok().filter(|start| *start < 1 << 32);
        let end = start.and_then(|start| start.checked_add(len)).filter(|end| *end < 1 << 32);
        let full = || error(operation, &self.name, offset, io::ErrorKind::StorageFull);
        start.zip(end).ok_or_else(full)
    }
}

impl DeviceFile for ImageFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.lock().len as u64)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], _purpose: Purpose) -> Result<()> {
        let file = self.file.lock();
        let past_end = || error(Operation::Read, &self.name, offset, io::ErrorKind::UnexpectedEof);
        let start = usize::try_from(offset).map_err(|_| past_end())?;
        let end = start.checked_add(buf.len()).filter(|end| *end <= file.len);
        let end = end.ok_or_else(past_end)?;
        file.read(start, buf);
        if self.tracked
            && let Some(touched) = self.state.lock().touched.get_mut(&self.name)
        {
            let until = end.min(touched.len());
            touched.iter_mut().take(until).skip(start).for_each(|byte| *byte = true);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], _purpose: Purpose) -> Result<()> {
        let (start, _) = self.range(Operation::Write, offset, buf.len())?;
        self.file.lock().write(start, buf);
        Ok(())
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn preallocate(&self, len: u64, _purpose: Purpose) -> Result<()> {
        let (len, _) = self.range(Operation::Resize, len, 0)?;
        self.file.lock().grow(len);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        self.preallocate(offset.saturating_add(len), purpose)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.file.lock().cut(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        let bytes: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        Image::from_files([("a".to_owned(), bytes)])
    }

    #[test]
    fn a_copy_is_changed_without_its_original() {
        let original = image();
        let mut copy = original.clone();
        copy.flip("a", 5000, 0x80);
        copy.truncate("a", 9000);
        assert_eq!(original.bytes("a")[5000] ^ 0x80, copy.bytes("a")[5000]);
        assert_eq!((original.bytes("a").len(), copy.bytes("a").len()), (10_000, 9000));
        let device = ImageDevice::new(&original);
        let file = device.open("a", Open::Existing, Caching::Buffered).unwrap();
        file.write_at(4090, &[7; 10], Purpose::User).unwrap();
        assert_eq!(device.image().bytes("a")[4090..4100], [7; 10]);
        assert_eq!(original.bytes("a")[4090], 4090u32 as u8);
    }

    #[test]
    fn growing_after_a_cut_shows_zeros() {
        let mut image = image();
        image.truncate("a", 100);
        let device = ImageDevice::new(&image);
        let file = device.open("a", Open::Existing, Caching::Buffered).unwrap();
        file.preallocate(200, Purpose::User).unwrap();
        let mut buf = [1; 100];
        file.read_at(100, &mut buf, Purpose::User).unwrap();
        assert_eq!(buf, [0; 100]);
        assert!(file.read_at(150, &mut [0; 51], Purpose::User).is_err());
    }

    #[test]
    fn reads_are_tracked_byte_by_byte() {
        let device = ImageDevice::tracking(&image());
        let file = device.open("a", Open::Existing, Caching::Buffered).unwrap();
        file.read_at(4000, &mut [0; 200], Purpose::User).unwrap();
        let touched = device.touched();
        let marked = touched["a"].iter().enumerate().filter(|(_, read)| **read);
        let marked: Vec<usize> = marked.map(|(at, _)| at).collect();
        assert_eq!(marked, (4000..4200).collect::<Vec<_>>());
    }
}
