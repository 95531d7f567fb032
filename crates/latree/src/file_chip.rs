//! A chip in a file: what `esker flash kv` and programs that test a firmware use.
//!
//! It has the rules of a raw chip: a page is programmed once between two erases of its block, and
//! in ascending order; it is not checked whether a block wears out. The bytes are described in
//! [`crate::image`].
//!
//! V1: the page is written before the count of programmed pages, so that a killed process leaves
//! pages that are whole or erased. V2: after a power failure anything that was not synced may be
//! old, new, or torn in sectors; [`Chip::sync`] is the only order. V3: opened for reading, nothing
//! is written; what the tree programs when it is opened is in memory.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::os::fd::OwnedFd;
use std::path::Path;

use esker_device::file::lock::{Lock, LockFile};
use esker_device::file::{Access, FileDevice};
use esker_device::{Caching, Device, DeviceError, DeviceFile, Open, Operation, Purpose};

use crate::chip::{BlockNo, Chip, Fault, PageNo, Read};
use crate::image::{BLOCK_BYTES, ImageError, ImageSizes, SECTOR_BYTES};
use crate::page::u32_at;

/// The result of opening or creating an image.
pub type ImageResult<T> = Result<T, ImageError>;

/// A chip whose pages are in a file, which is locked as long as this lives.
///
/// Memory: 8 bytes for each block.
#[derive(Debug)]
pub struct FileChip {
    file: Arc<dyn DeviceFile>,
    /// Released last; none where the file is not one of the operating system.
    _lock: Option<LockFile>,
    sizes: ImageSizes,
    blocks: Vec<Block>,
    is_dirty: bool,
    /// Pages programmed since it was opened for reading.
    unwritten: Option<BTreeMap<u32, Vec<u8>>>,
}

/// A block as the table of the image has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    erases: u32,
    programmed: u32,
}

impl FileChip {
    /// Creates an image of a chip that was never programmed, durably. The file takes space on its
    /// file system as pages are programmed.
    ///
    /// # Errors
    /// [`ImageError::Exists`], [`ImageError::Sizes`]; [`ImageError::Device`], after which an
    /// incomplete file may be left.
    pub fn create(path: &Path, sizes: ImageSizes) -> ImageResult<Self> {
        sizes.check()?;
        let (device, name) = place(path)?;
        let file = match device.open(name, Open::CreateNew, Caching::Buffered) {
            Err(error) if error.source.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(ImageError::Exists { file: shown(path) });
            }
            opened => opened?,
        };
        let lock = locked(path, Access::Write)?;
        let chip = Self::format(file, sizes)?;
        device.sync_dir()?;
        Ok(Self { _lock: Some(lock), ..chip })
    }

    /// Opens an image. No other opening may have it.
    ///
    /// # Errors
    /// [`ImageError::NotAnImage`], [`ImageError::Newer`], [`ImageError::Length`],
    /// [`ImageError::Damaged`], [`ImageError::Locked`], [`ImageError::Device`].
    pub fn open(path: &Path) -> ImageResult<Self> {
        Self::open_for(path, Access::Write)
    }

    /// Opens an image for reading, together with others that only read. Nothing is written: what
    /// is programmed is in memory, and lost with this value.
    ///
    /// # Errors
    /// As [`FileChip::open`].
    pub fn open_read_only(path: &Path) -> ImageResult<Self> {
        Self::open_for(path, Access::Read)
    }

    fn open_for(path: &Path, access: Access) -> ImageResult<Self> {
        let lock = locked(path, access)?;
        let (device, name) = place(path)?;
        let file = device.open_same(name, &lock, access)?;
        let chip = Self::load(file, &shown(path), access)?;
        Ok(Self { _lock: Some(lock), ..chip })
    }

    /// Makes an image of an empty file of a device, without a lock. The name of the file is durable
    /// when its folder is synced.
    ///
    /// # Errors
    /// [`ImageError::Sizes`], [`ImageError::Device`].
    pub fn format(file: Arc<dyn DeviceFile>, sizes: ImageSizes) -> ImageResult<Self> {
        sizes.check()?;
        file.truncate(0)?;
        // A hole from the start to the last byte.
        file.write_at(sizes.file_bytes() - 1, &[0], Purpose::Manifest)?;
        file.sync(Purpose::Manifest)?;
        file.write_at(0, &sizes.header(), Purpose::Manifest)?;
        file.sync(Purpose::Manifest)?;
        let blocks = alloc::vec![Block { erases: 0, programmed: 0 }; sizes.blocks as usize];
        Ok(Self { file, _lock: None, sizes, blocks, is_dirty: false, unwritten: None })
    }

    /// Opens the image in a file of a device, without a lock. `name` is that of the file in errors.
    ///
    /// # Errors
    /// As [`FileChip::open`], without [`ImageError::Locked`].
    pub fn load(file: Arc<dyn DeviceFile>, name: &str, access: Access) -> ImageResult<Self> {
        let len = file.len()?;
        let mut header = alloc::vec![0; SECTOR_BYTES.min(len) as usize];
        file.read_at(0, &mut header, Purpose::Recovery)?;
        let sizes = ImageSizes::read(&header, name, len)?;
        // The file is as long as the sizes say, so the table is not longer than the file.
        let mut table = alloc::vec![0; sizes.blocks as usize * BLOCK_BYTES];
        file.read_at(SECTOR_BYTES, &mut table, Purpose::Recovery)?;
        let blocks: Vec<Block> = table.chunks_exact(BLOCK_BYTES).map(Block::read).collect();
        let wrong = blocks.iter().position(|block| block.programmed > sizes.pages_per_block);
        if let Some(wrong) = wrong {
            return Err(ImageError::Damaged {
                file: name.to_string(),
                offset: SECTOR_BYTES + (wrong * BLOCK_BYTES) as u64,
                what: "more pages are programmed than the block has",
            });
        }
        let unwritten = (access == Access::Read).then(BTreeMap::new);
        Ok(Self { file, _lock: None, sizes, blocks, is_dirty: false, unwritten })
    }

    /// The sizes with which it was created.
    #[must_use]
    pub const fn sizes(&self) -> ImageSizes {
        self.sizes
    }

    /// How often each block was erased.
    pub fn erases(&self) -> impl Iterator<Item = u32> {
        self.blocks.iter().map(|block| block.erases)
    }

    /// The block of a page, the page's index there, and what is known of the block.
    fn find(&self, page: PageNo) -> Result<(BlockNo, u32, Block), Fault> {
        let in_block = self.sizes.pages_per_block;
        let block = BlockNo(page.0 / in_block);
        Ok((block, page.0 % in_block, self.block(block)?))
    }

    fn block(&self, block: BlockNo) -> Result<Block, Fault> {
        let outside = || Fault::Other(format!("the chip has no block {}", block.0));
        self.blocks.get(block.0 as usize).copied().ok_or_else(outside)
    }

    fn offset(&self, page: PageNo) -> u64 {
        self.sizes.pages_at() + u64::from(page.0) * u64::from(self.sizes.page_bytes)
    }

    fn check_len(&self, bytes: usize) -> Result<(), Fault> {
        let expected = self.sizes.page_bytes;
        if bytes == expected as usize {
            return Ok(());
        }
        Err(Fault::Other(format!("{bytes} bytes for a page of {expected}")))
    }

    fn set_block(&mut self, at: BlockNo, block: Block) -> Result<(), Fault> {
        if self.unwritten.is_none() {
            let offset = SECTOR_BYTES + u64::from(at.0) * BLOCK_BYTES as u64;
            self.file.write_at(offset, &block.bytes(), Purpose::Manifest).map_err(fault)?;
            self.is_dirty = true;
        }
        if let Some(place) = self.blocks.get_mut(at.0 as usize) {
            *place = block;
        }
        Ok(())
    }
}

impl Block {
    fn read(bytes: &[u8]) -> Self {
        let number = |at| u32_at(bytes, at).unwrap_or(0);
        Self { erases: number(0), programmed: number(4) }
    }

    fn bytes(self) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        let (erases, programmed) = bytes.split_at_mut(4);
        erases.copy_from_slice(&self.erases.to_le_bytes());
        programmed.copy_from_slice(&self.programmed.to_le_bytes());
        bytes
    }
}

impl Chip for FileChip {
    fn page_bytes(&self) -> usize {
        self.sizes.page_bytes as usize
    }

    fn pages_per_block(&self) -> u32 {
        self.sizes.pages_per_block
    }

    fn blocks(&self) -> u32 {
        self.sizes.blocks
    }

    fn read(&mut self, page: PageNo, data: &mut [u8]) -> Result<Read, Fault> {
        self.check_len(data.len())?;
        let (_, index, block) = self.find(page)?;
        if index >= block.programmed {
            return Ok(Read::Erased);
        }
        let unwritten = self.unwritten.as_ref().and_then(|pages| pages.get(&page.0));
        match unwritten {
            Some(bytes) => data.copy_from_slice(bytes),
            None => self.file.read_at(self.offset(page), data, Purpose::User).map_err(fault)?,
        }
        Ok(Read::Data)
    }

    fn program(&mut self, page: PageNo, data: &[u8]) -> Result<(), Fault> {
        self.check_len(data.len())?;
        let (at, index, block) = self.find(page)?;
        if index != block.programmed {
            let why = if index < block.programmed {
                "it was programmed since its block was erased".to_string()
            } else {
                format!("page {index} of its block comes after page {}", block.programmed)
            };
            return Err(Fault::Other(format!("page {} of the image: {why}", page.0)));
        }
        let offset = self.offset(page);
        match &mut self.unwritten {
            Some(pages) => drop(pages.insert(page.0, data.to_vec())),
            None => self.file.write_at(offset, data, Purpose::User).map_err(fault)?,
        }
        self.set_block(at, Block { programmed: index + 1, ..block })
    }

    fn erase(&mut self, block: BlockNo) -> Result<(), Fault> {
        let erases = self.block(block)?.erases.saturating_add(1);
        if let Some(pages) = &mut self.unwritten {
            let first = block.0 * self.sizes.pages_per_block;
            pages.retain(|page, _| !(first..first + self.sizes.pages_per_block).contains(page));
        }
        self.set_block(block, Block { erases, programmed: 0 })
    }

    fn sync(&mut self) -> Result<(), Fault> {
        if self.is_dirty {
            self.file.sync(Purpose::User).map_err(fault)?;
            self.is_dirty = false;
        }
        Ok(())
    }
}

fn fault(error: DeviceError) -> Fault {
    Fault::Other(error.to_string())
}

/// The folder of a file, and its name there.
fn place(path: &Path) -> ImageResult<(FileDevice, &str)> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        let why = std::io::Error::other("this is not the name of a file");
        return Err(failed(path, why).into());
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok((FileDevice::open(folder.unwrap_or_else(|| Path::new(".")))?, name))
}

fn failed(path: &Path, source: std::io::Error) -> DeviceError {
    DeviceError::new(Operation::Open, shown(path), 0, source)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Locks the file at `path`: alone, or with others that read.
fn locked(path: &Path, access: Access) -> ImageResult<LockFile> {
    let open = || {
        let write = access == Access::Write;
        let opened = std::fs::OpenOptions::new().read(true).write(write).open(path);
        opened.map(OwnedFd::from).map_err(|source| failed(path, source))
    };
    // Opening a pipe would wait until a process writes into it.
    if !std::fs::metadata(path).map_err(|source| failed(path, source))?.is_file() {
        return Err(ImageError::NotAnImage { file: shown(path) });
    }
    let lock = LockFile::open(open)?;
    let kind = match access {
        Access::Read => Lock::Shared,
        Access::Write => Lock::Exclusive,
    };
    let is_locked = lock
        .try_lock(kind)
        .map_err(|errno| DeviceError::new(Operation::Lock, shown(path), 0, errno))?;
    if is_locked { Ok(lock) } else { Err(ImageError::Locked { file: shown(path) }) }
}
