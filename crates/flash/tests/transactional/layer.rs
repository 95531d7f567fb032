//! Both layers at sizes at which short histories meet collections, compactions, dumps of the map
//! and checkpoints.

use esker_flash::ftl::{Policy, TxId, mvftl, xftl};
use esker_flash::nand::{Bytes, Geometry, NandSim, Sizes};
use esker_flash::{Error, Transactional};

pub type Flash = NandSim<Bytes>;

pub const PAGE: usize = 64;

/// Logical pages of the small device.
pub const LOGICAL: u32 = 120;

/// Transactions that are open at a time.
pub const OPEN: usize = 4;

/// What a transaction of the layer sees of later commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Nothing.
    Snapshot,
    /// Everything.
    None,
}

/// A layer with transactions.
pub trait Layer: Transactional + Clone {
    const NAME: &'static str;
    const ISOLATION: Isolation;
    /// Blocks of each of two dies: so few that pages which are needed are collected.
    const BLOCKS: u32;

    fn format_small(flash: Flash) -> Result<Self, Error>;
    fn recover_small(flash: Flash) -> Result<Self, Error>;
    /// A recovery of which the flash is kept, however it ends.
    fn try_recovery(flash: &mut Flash) -> Result<(), Error>;
    fn flash(&mut self) -> &mut Flash;
    fn into_flash(self) -> Flash;
}

/// Two dies of so many blocks of 16 pages of 64 bytes.
pub fn small(blocks_per_plane: u32) -> Geometry {
    let sizes = Sizes {
        channels: 2,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane,
        pages_per_block: 16,
        page_size: PAGE as u32,
    };
    Geometry::new(sizes).unwrap()
}

impl Layer for mvftl::MvFtl<Flash> {
    const NAME: &'static str = "MV-FTL";
    const ISOLATION: Isolation = Isolation::Snapshot;
    const BLOCKS: u32 = 13;

    fn format_small(flash: Flash) -> Result<Self, Error> {
        Self::format(flash, mv_options())
    }

    fn recover_small(flash: Flash) -> Result<Self, Error> {
        Self::recover(flash, mv_options())
    }

    fn try_recovery(flash: &mut Flash) -> Result<(), Error> {
        mvftl::MvFtl::recover(flash, mv_options()).map(drop)
    }

    fn flash(&mut self) -> &mut Flash {
        self.nand_mut()
    }

    fn into_flash(self) -> Flash {
        self.into_nand()
    }
}

/// Wear levelling acts often, so that short histories meet it.
const COLLECTION: mvftl::Collection =
    mvftl::Collection { policy: Policy::Greedy, wear_spread: 2, seed: 0 };

pub fn mv_options() -> mvftl::Options {
    let collection = COLLECTION;
    mvftl::Options { logical_pages: LOGICAL, diff_bytes: 1600, whole_dumps: true, collection }
}

impl Layer for xftl::XFtl<Flash> {
    const NAME: &'static str = "X-FTL";
    const ISOLATION: Isolation = Isolation::None;
    const BLOCKS: u32 = 10;

    fn format_small(flash: Flash) -> Result<Self, Error> {
        Self::format(flash, x_options())
    }

    fn recover_small(flash: Flash) -> Result<Self, Error> {
        Self::recover(flash, x_options())
    }

    fn try_recovery(flash: &mut Flash) -> Result<(), Error> {
        xftl::XFtl::recover(flash, x_options()).map(drop)
    }

    fn flash(&mut self) -> &mut Flash {
        self.nand_mut()
    }

    fn into_flash(self) -> Flash {
        self.into_nand()
    }
}

pub fn x_options() -> xftl::Options {
    let collection = COLLECTION;
    xftl::Options { logical_pages: LOGICAL, table_entries: 24, collection }
}

/// An empty device.
pub fn empty<L: Layer>() -> L {
    L::format_small(Flash::new(small(L::BLOCKS))).unwrap()
}

/// A page that holds a value; each value is written once.
pub fn page(lpn: u32, value: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(value + ((at as u64) << 48) + (u64::from(lpn) << 32)).to_le_bytes());
    }
    bytes
}

/// The value of a page: 0 if it is not mapped.
pub fn value(lpn: u32, is_mapped: bool, bytes: &[u8; PAGE]) -> Result<u64, String> {
    if !is_mapped {
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        return if is_zero { Ok(0) } else { Err(format!("page {lpn} is not mapped nor zeros")) };
    }
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    let value = u64::from_le_bytes(word) & 0xffff_ffff;
    if *bytes == page(lpn, value) { Ok(value) } else { Err(format!("page {lpn} is not whole")) }
}

/// Reads a page outside of transactions or in one.
pub fn read<L: Layer>(layer: &mut L, tx: Option<TxId>, lpn: u32) -> Result<u64, String> {
    let mut bytes = [0xa5; PAGE];
    let at = esker_flash::nand::Lpn(lpn);
    let is_mapped = match tx {
        Some(tx) => layer.read_in(tx, at, &mut bytes),
        None => layer.read(at, &mut bytes),
    };
    value(lpn, is_mapped.map_err(|error| format!("page {lpn}: {error}"))?, &bytes)
}

/// Reads all pages.
pub fn read_all<L: Layer>(layer: &mut L) -> Result<Vec<u64>, String> {
    (0..LOGICAL).map(|lpn| read(layer, None, lpn)).collect()
}
