//! What the tree needs of a flash chip: the trait [`Chip`].
//!
//! It is smaller than a simulator's interface on purpose: a driver for a microcontroller has no
//! spare areas, causes or counters. All that the tree must find again is in the pages themselves.
//!
//! C1: a page is programmed once between two erases of its block, and the pages of a block in
//! ascending order. C2: a page whose program was interrupted reads as [`Read::Unreadable`] or as
//! bytes that are wrong; a block whose erase was interrupted reads as anything. C3: what was
//! programmed and erased before a [`Chip::sync`] is durable when that answers; a chip without a
//! cache needs no sync.

use alloc::string::String;

/// A page, by its number in the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNo(pub u32);

/// A block, by its number in the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNo(pub u32);

/// What a page was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The buffer has its bytes.
    Data,
    /// It was not programmed since its block was erased.
    Erased,
    /// Its bytes cannot be corrected.
    Unreadable,
}

/// Why a chip did not do what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The block failed a program or an erase. Its other pages stay readable. It is retired.
    Worn,
    /// Anything else, in one line: the power is off, the bus does not answer.
    Other(String),
}

/// The times of a page, in nanoseconds with its transfer. Their ratio decides when buffers are
/// emptied; a wrong one costs time and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Reading a page.
    pub read_ns: u64,
    /// Programming a page.
    pub program_ns: u64,
}

/// A raw flash chip.
///
/// A driver says what its pages and blocks are, and reads, programs and erases them:
/// ```
/// use esker_latree::{BlockNo, Chip, Fault, LaTree, Options, PageNo, Read};
///
/// /// 64 blocks of 16 pages of 256 bytes. Here they are in memory; a driver has its bus here.
/// struct Flash(Vec<[u8; 256]>);
///
/// impl Flash {
///     fn page(&mut self, page: PageNo) -> Result<&mut [u8; 256], Fault> {
///         let outside = || Fault::Other(format!("no page {}", page.0));
///         self.0.get_mut(page.0 as usize).ok_or_else(outside)
///     }
/// }
///
/// impl Chip for Flash {
///     fn page_bytes(&self) -> usize {
///         256
///     }
///
///     fn pages_per_block(&self) -> u32 {
///         16
///     }
///
///     fn blocks(&self) -> u32 {
///         64
///     }
///
///     fn read(&mut self, page: PageNo, data: &mut [u8]) -> Result<Read, Fault> {
///         data.copy_from_slice(self.page(page)?);
///         // No page of the tree has only bytes of 0xFF.
///         let is_erased = data.iter().all(|byte| *byte == 0xFF);
///         Ok(if is_erased { Read::Erased } else { Read::Data })
///     }
///
///     fn program(&mut self, page: PageNo, data: &[u8]) -> Result<(), Fault> {
///         self.page(page)?.copy_from_slice(data);
///         Ok(())
///     }
///
///     fn erase(&mut self, block: BlockNo) -> Result<(), Fault> {
///         for page in block.0 * 16..(block.0 + 1) * 16 {
///             self.page(PageNo(page))?.fill(0xFF);
///         }
///         Ok(())
///     }
/// }
///
/// let options = Options { memory_bytes: 24 << 10, ..Options::default() };
/// let mut tree = LaTree::create(Flash(vec![[0xFF; 256]; 64 * 16]), options.clone())?;
/// tree.put(b"boot count", b"1")?;
/// tree.sync()?;
/// let mut tree = LaTree::open(tree.into_chip(), options)?;
/// assert_eq!(tree.get(b"boot count")?.as_deref(), Some(&b"1"[..]));
/// # Ok::<(), esker_latree::Error>(())
/// ```
pub trait Chip {
    /// The size of a page in bytes: 256 to 32,768.
    fn page_bytes(&self) -> usize;

    /// Pages in a block: 2 to 4,096.
    fn pages_per_block(&self) -> u32;

    /// Blocks of the chip.
    fn blocks(&self) -> u32;

    /// How long operations take.
    fn costs(&self) -> Costs {
        Costs { read_ns: 50_600, program_ns: 225_600 }
    }

    /// Reads a page into `data`, which is one page long.
    ///
    /// # Errors
    /// [`Fault::Other`] when the chip cannot be read at all.
    fn read(&mut self, page: PageNo, data: &mut [u8]) -> Result<Read, Fault>;

    /// Programs the next page of a block. `data` is one page long.
    ///
    /// # Errors
    /// [`Fault::Worn`] when the block must be retired.
    fn program(&mut self, page: PageNo, data: &[u8]) -> Result<(), Fault>;

    /// Erases a block.
    ///
    /// # Errors
    /// [`Fault::Worn`] when the block must be retired.
    fn erase(&mut self, block: BlockNo) -> Result<(), Fault>;

    /// Makes everything before durable, and before everything after. A chip that has finished a
    /// program or an erase when it answers has nothing to do here.
    ///
    /// # Errors
    /// [`Fault::Other`]; then it is not known what is durable.
    fn sync(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

impl<C: Chip> Chip for &mut C {
    fn page_bytes(&self) -> usize {
        (**self).page_bytes()
    }

    fn pages_per_block(&self) -> u32 {
        (**self).pages_per_block()
    }

    fn blocks(&self) -> u32 {
        (**self).blocks()
    }

    fn costs(&self) -> Costs {
        (**self).costs()
    }

    fn read(&mut self, page: PageNo, data: &mut [u8]) -> Result<Read, Fault> {
        (**self).read(page, data)
    }

    fn program(&mut self, page: PageNo, data: &[u8]) -> Result<(), Fault> {
        (**self).program(page, data)
    }

    fn erase(&mut self, block: BlockNo) -> Result<(), Fault> {
        (**self).erase(block)
    }

    fn sync(&mut self) -> Result<(), Fault> {
        (**self).sync()
    }
}
