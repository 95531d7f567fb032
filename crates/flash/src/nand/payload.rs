//! What a simulator keeps of pages: their bytes and spare areas, or nothing.

use std::sync::Arc;

use super::{Ppn, Spare};

/// Pages' contents. `page` is always one of the device; the rules of flash are checked before.
pub trait Payload {
    /// Whether anything is kept.
    const KEEPS: bool;

    /// For a device of `pages` pages of `page_size` bytes, all erased.
    fn of_size(pages: u32, page_size: u32) -> Self;

    /// Keeps what was programmed.
    fn store(&mut self, page: Ppn, data: &[u8], spare: Spare);

    /// Copies the page into `data`, which is one page long or empty, and answers its spare area;
    /// none if nothing is kept.
    fn load(&self, page: Ppn, data: &mut [u8]) -> Option<Spare>;

    /// Copies a page to another, and answers its spare area.
    fn copy(&mut self, from: Ppn, to: Ppn) -> Option<Spare>;

    /// Forgets a page.
    fn forget(&mut self, page: Ppn);
}

/// Keeps nothing.
impl Payload for () {
    const KEEPS: bool = false;

    fn of_size(_pages: u32, _page_size: u32) -> Self {}

    fn store(&mut self, _page: Ppn, _data: &[u8], _spare: Spare) {}

    fn load(&self, _page: Ppn, _data: &mut [u8]) -> Option<Spare> {
        None
    }

    fn copy(&mut self, _from: Ppn, _to: Ppn) -> Option<Spare> {
        None
    }

    fn forget(&mut self, _page: Ppn) {}
}

/// Keeps bytes and spare areas of programmed pages: 8 bytes of memory for each erased page, and for
/// each programmed one its size and about 60 bytes. Copies of a device share the pages that were
/// programmed before.
#[derive(Clone, Debug)]
pub struct Bytes {
    pages: Vec<Option<Arc<Page>>>,
}

#[derive(Debug)]
struct Page {
    spare: Spare,
    data: Box<[u8]>,
}

impl Payload for Bytes {
    const KEEPS: bool = true;

    fn of_size(pages: u32, _page_size: u32) -> Self {
        Self { pages: vec![None; pages as usize] }
    }

    fn store(&mut self, page: Ppn, data: &[u8], spare: Spare) {
        if let Some(place) = self.pages.get_mut(page.0 as usize) {
            *place = Some(Arc::new(Page { spare, data: data.into() }));
        }
    }

    fn load(&self, page: Ppn, data: &mut [u8]) -> Option<Spare> {
        let found = self.pages.get(page.0 as usize)?.as_ref()?;
        if data.len() == found.data.len() {
            data.copy_from_slice(&found.data);
        }
        Some(found.spare)
    }

    fn copy(&mut self, from: Ppn, to: Ppn) -> Option<Spare> {
        let page = self.pages.get(from.0 as usize)?.clone()?;
        let spare = page.spare;
        *self.pages.get_mut(to.0 as usize)? = Some(page);
        Some(spare)
    }

    fn forget(&mut self, page: Ppn) {
        if let Some(place) = self.pages.get_mut(page.0 as usize) {
            *place = None;
        }
    }
}
