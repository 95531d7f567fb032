//! An ordered map for a raw flash chip and 128 KiB of memory: the lazy-adaptive tree (LA-tree).
//!
//! A B+tree on flash writes a page for every update. The LA-tree (Agrawal, Ganesan, Sitaraman,
//! Diao, Singh, PVLDB 2(1), 2009) puts buffers on flash in front of its subtrees, and empties each
//! when the lookups that had to scan it would by now have paid for that.
//!
//! Reading order: [`error`], [`chip`] (the trait [`Chip`]) and its adapters: `simulated` (to
//! `esker-flash`), [`image`] and [`file_chip`] (to files), `nor` (to `embedded-storage`); `page`
//! (bytes), `space` (blocks), `flash` (pages, their cache), [`options`] (how memory is divided);
//! `part`, `filter`, `buffer`, `table` (what waits in front of subtrees), [`adapt`] (when it is
//! emptied); [`tree`] (state, descents, operations), `scan`, `gather` (reading buffers), `nodes`
//! (writing nodes), `empty`, `pool`, `gc`; `checkpoint`, `open` (what survives a cut of the power);
//! [`range`], [`check`], [`stats`], [`planted`].
//!
//! Without its default feature `std` the crate needs `alloc` alone; `simulated`, `image` and
//! `file_chip` are left out. Feature `embedded-storage` adds `nor`.
//!
//! Not built: descriptors of cold buffers on flash (the buffers are emptied instead), transactions
//! over several keys.

#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod adapt;
mod buffer;
pub mod check;
mod checkpoint;
pub mod chip;
mod empty;
pub mod error;
#[cfg(feature = "std")]
pub mod file_chip;
mod filter;
mod flash;
mod gather;
mod gc;
#[cfg(feature = "std")]
pub mod image;
mod nodes;
#[cfg(feature = "embedded-storage")]
pub mod nor;
mod open;
pub mod options;
mod page;
mod part;
pub mod planted;
mod pool;
pub mod range;
mod scan;
#[cfg(feature = "std")]
mod simulated;
mod space;
pub mod stats;
mod table;
pub mod tree;

pub use chip::{BlockNo, Chip, Costs, Fault, PageNo, Read};
pub use error::{Error, Result};
#[cfg(feature = "std")]
pub use file_chip::FileChip;
pub use flash::Counts;
pub use gather::Direction;
#[cfg(feature = "std")]
pub use image::{ImageError, ImageSizes};
#[cfg(feature = "embedded-storage")]
pub use nor::{NorChip, NorRegion};
pub use options::{Buffering, Options, Scan};
#[cfg(feature = "std")]
pub use simulated::Simulated;
pub use stats::Stats;
pub use tree::LaTree;
