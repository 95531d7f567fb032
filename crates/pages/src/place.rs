//! Places in the file, and sizes of slots.

/// Bytes of the unit in which places in the file are counted.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// The number of sizes of slots: 512 bytes to 64 KiB.
pub(crate) const CLASSES: usize = 8;

/// A place in the file, in units of 512 bytes. The superblocks are at 0, so 0 also means "nowhere".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sector(pub(crate) u32);

impl Sector {
    pub(crate) const NONE: Self = Self(0);

    /// The place at this many bytes from the start of the file.
    pub(crate) fn at(offset: u64) -> Self {
        Self(u32::try_from(offset / SECTOR_BYTES).unwrap_or(0))
    }

    /// In bytes from the start of the file.
    pub(crate) fn offset(self) -> u64 {
        u64::from(self.0) * SECTOR_BYTES
    }
}

/// A size of slots: 512 bytes times two to the power of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Class(pub(crate) u8);

impl Class {
    /// The smallest class whose slots hold `bytes`; `None` above 64 KiB.
    pub(crate) fn holding(bytes: usize) -> Option<Self> {
        let sectors = (bytes as u64).div_ceil(SECTOR_BYTES).max(1).next_power_of_two();
        let class = u8::try_from(sectors.trailing_zeros()).ok()?;
        (usize::from(class) < CLASSES).then_some(Self(class))
    }

    pub(crate) fn bytes(self) -> u64 {
        SECTOR_BYTES << self.0
    }

    /// In units of 512 bytes.
    pub(crate) fn sectors(self) -> u32 {
        1 << self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_say() {
        let sizes: Vec<_> =
            [0, 1, 512, 513, 4096, 4097, 65536].map(|n| Class::holding(n).unwrap().bytes()).into();
        assert_eq!(sizes, [512, 512, 512, 1024, 4096, 8192, 65536]);
        assert_eq!(Class::holding(65537), None);
    }
}
