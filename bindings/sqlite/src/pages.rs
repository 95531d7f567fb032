//! Ranges of a database's bytes, and the pages of the store that contain them.

use esker_pages::{Snapshot, Writer};

use crate::code::{Code, Result};

/// A source of pages.
pub trait Pages {
    fn pages(&self) -> u32;
    fn page_size(&self) -> u32;
    fn page(&self, page: u32, offset: u32, buf: &mut [u8]) -> esker_pages::Result<()>;
}

/// Both name their methods alike.
macro_rules! have_pages {
    ($($holder:ty),+) => {$(
        impl Pages for $holder {
            fn pages(&self) -> u32 {
                self.pages()
            }

            fn page_size(&self) -> u32 {
                self.page_size()
            }

            fn page(&self, page: u32, offset: u32, buf: &mut [u8]) -> esker_pages::Result<()> {
                self.read(page, offset, buf)
            }
        }
    )+};
}

have_pages!(Snapshot, Writer);

pub fn read_pages(pages: &impl Pages, offset: u64, buf: &mut [u8]) -> Result {
    let mut is_short = false;
    for part in parts(pages.page_size(), offset, buf.len()) {
        let target = &mut buf[part.from..part.from + part.len];
        if part.number >= u64::from(pages.pages()) {
            target.fill(0);
            is_short = true;
            continue;
        }
        pages.page(part.page()?, part.offset, target).map_err(|error| Code::of_read(&error))?;
    }
    if is_short { Err(Code::SHORT_READ) } else { Ok(()) }
}

/// The part of a range that is within one page.
pub struct Part {
    pub number: u64,
    /// The offset in the page.
    pub offset: u32,
    /// The offset in the range.
    pub from: usize,
    pub len: usize,
}

impl Part {
    /// Its number.
    pub fn page(&self) -> Result<u32> {
        u32::try_from(self.number).map_err(|_| Code::IOERR_WRITE)
    }
}

/// Cuts a range of the database into parts of pages: SQLite's pages are the store's, but for
/// those of a database whose page size was changed later.
pub fn parts(page_size: u32, offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let size = u64::from(page_size.max(1));
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = offset + from as u64;
        let inside = at % size;
        let rest = usize::try_from(size - inside).unwrap_or(usize::MAX);
        let taken = rest.min(len - from);
        let offset = u32::try_from(inside).unwrap_or(0);
        let part = Part { number: at / size, offset, from, len: taken };
        from += taken;
        (taken > 0).then_some(part)
    })
}

#[must_use]
pub fn is_page_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && (512..=65_536).contains(&bytes)
}
