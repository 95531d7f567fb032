//! The pages of an operation, whose trace has bytes.

use crate::trace::{OpKind, TraceOp};

/// How a host's addresses lie on a device.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    page_bytes: u64,
    pages: u64,
    wraps: bool,
}

/// The pages of one operation, in the host's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    first: u64,
    /// How many; at most the whole device.
    pub count: u64,
    /// Whether only a part of the first and of the last page is meant.
    starts_inside: bool,
    ends_inside: bool,
    modulus: u64,
}

/// An operation behind the end of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an operation reaches to byte {end}, and the device has {device_bytes}: make the device larger \
     (blocks), or wrap addresses around (wrap)"
)]
pub struct Beyond {
    end: u64,
    device_bytes: u64,
}

impl Layout {
    /// A device of `pages` logical pages of `page_bytes` bytes; both are taken as at least 1. With
    /// `wraps`, addresses behind the end begin again at the start.
    #[must_use]
    pub fn new(page_bytes: u32, pages: u32, wraps: bool) -> Self {
        Self { page_bytes: u64::from(page_bytes.max(1)), pages: u64::from(pages.max(1)), wraps }
    }

    /// Bytes of the device.
    #[must_use]
    pub const fn device_bytes(&self) -> u64 {
        self.page_bytes.saturating_mul(self.pages)
    }

    /// The pages of an operation. A trim has the pages that lie wholly in its range, any other
    /// operation all that it touches.
    ///
    /// # Errors
    /// [`Beyond`] where the range ends behind the device, unless addresses wrap.
    pub fn pages(&self, op: &TraceOp) -> Result<Pages, Beyond> {
        let end = op.offset.saturating_add(op.length);
        if end > self.device_bytes() && !self.wraps {
            return Err(Beyond { end, device_bytes: self.device_bytes() });
        }
        let (first, starts_inside) =
            (op.offset / self.page_bytes, !op.offset.is_multiple_of(self.page_bytes));
        let (last, ends_inside) = (end / self.page_bytes, !end.is_multiple_of(self.page_bytes));
        let (first, end_page) = match op.kind {
            OpKind::Flush => (0, 0),
            OpKind::Trim => (first + u64::from(starts_inside), last),
            _ if op.length == 0 => (first, first),
            OpKind::Read | OpKind::Write => (first, last + u64::from(ends_inside)),
        };
        let count = end_page.saturating_sub(first).min(self.pages);
        Ok(Pages { first, count, starts_inside, ends_inside, modulus: self.pages })
    }
}

impl Pages {
    /// The numbers of the pages on the device, and whether only a part of each is meant.
    pub fn iter(&self) -> impl Iterator<Item = (u32, bool)> {
        (0..self.count).map(|index| self.page(index))
    }

    const fn page(&self, index: u64) -> (u32, bool) {
        let page = self.first.wrapping_add(index);
        // Addresses that wrap are rare, and a division is not cheap.
        let page = if page >= self.modulus { page % self.modulus } else { page };
        let is_partial =
            index == 0 && self.starts_inside || index + 1 == self.count && self.ends_inside;
        (page as u32, is_partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(kind: OpKind, offset: u64, length: u64) -> Vec<(u32, bool)> {
        let layout = Layout::new(4096, 10, false);
        let op = TraceOp { at_ns: 0, offset, length, kind, stream: 0 };
        let pages = layout.pages(&op).unwrap();
        pages.iter().collect()
    }

    #[test]
    fn writes_touch_every_page_of_their_range() {
        assert_eq!(pages(OpKind::Write, 0, 8192), [(0, false), (1, false)]);
        assert_eq!(pages(OpKind::Write, 100, 8192), [(0, true), (1, false), (2, true)]);
        assert_eq!(pages(OpKind::Write, 4096, 512), [(1, true)]);
        assert_eq!(pages(OpKind::Read, 4096, 0), []);
        assert_eq!(pages(OpKind::Read, 36_864, 4096), [(9, false)]);
        assert_eq!(pages(OpKind::Flush, 0, 0), []);
    }

    #[test]
    fn trims_have_whole_pages() {
        assert_eq!(pages(OpKind::Trim, 0, 8192), [(0, false), (1, false)]);
        let inner: Vec<_> = pages(OpKind::Trim, 100, 8192).into_iter().map(|(p, _)| p).collect();
        assert_eq!(inner, [1]);
        assert_eq!(pages(OpKind::Trim, 100, 200), []);
    }

    #[test]
    fn what_lies_behind_the_end_is_refused_or_wraps() {
        let op = TraceOp { at_ns: 0, offset: 36_864, length: 8192, kind: OpKind::Write, stream: 0 };
        let error = Layout::new(4096, 10, false).pages(&op).unwrap_err().to_string();
        assert!(error.contains("45056") && error.contains("40960"), "{error}");
        let wrapped = Layout::new(4096, 10, true);
        let found = wrapped.pages(&op).unwrap();
        assert_eq!((found.count, found.page(0).0, found.page(1).0), (2, 9, 0));
        // However long: every page once.
        let long = TraceOp { offset: 0, length: u64::MAX, kind: OpKind::Trim, ..op };
        assert_eq!(wrapped.pages(&long).unwrap().count, 10);
        let far = TraceOp { offset: u64::MAX - 10, length: 10, ..op };
        assert!(wrapped.pages(&far).unwrap().page(0).0 < 10);
    }
}
