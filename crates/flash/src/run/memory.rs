//! Whether the machine has the memory that a simulation takes: asked before anything is allocated.

use std::fs;

use crate::nand::Geometry;

/// What does not grow with the device.
const FIXED_BYTES: u64 = 64 << 10;

/// A bound of the memory that a layer and its flash take without pages' contents, in bytes: both
/// directions of a map, what is kept of blocks (64 bytes with their places in lists), the lists of
/// blocks by valid pages of each die, `cached` entries of a cache, and what does not grow with the
/// device: buffers, diffs and tables of transactions.
pub(super) fn needed_bytes(geometry: &Geometry, cached: u64) -> u64 {
    let pages = 8 * u64::from(geometry.pages());
    let blocks = 64 * u64::from(geometry.blocks());
    let lists = 24 * (u64::from(geometry.pages_per_block()) + 1) + 128;
    let dies = u64::from(geometry.dies()).saturating_mul(lists);
    (FIXED_BYTES + pages + blocks).saturating_add(dies).saturating_add(40 * cached)
}

/// The memory that this process may still take, in bytes: what the machine has available, and what
/// is left of a control group's limit and of the limit of the address space. None where the system
/// does not say.
pub(super) fn available_bytes() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let machine = kib_of(&read("/proc/meminfo"), "MemAvailable:");
    let group = |limit: &str, used: &str| {
        let number = |path: &str| read(path).trim().parse::<u64>().ok();
        Some(number(limit)?.saturating_sub(number(used)?))
    };
    let second = group("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
    let first = group(
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    );
    let used = kib_of(&read("/proc/self/status"), "VmSize:").unwrap_or(0);
    let space = address_space(&read("/proc/self/limits")).map(|limit| limit.saturating_sub(used));
    [machine, second, first, space].into_iter().flatten().min()
}

/// A field of the kernel's text in units of KiB, in bytes.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit of the address space; none if it has none.
fn address_space(limits: &str) -> Option<u64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::Options;
    use crate::nand::{PRESETS, Timing};
    use crate::run::registry::{Build, LAYERS};

    #[test]
    fn the_kernels_text_is_read() {
        let meminfo = "MemTotal:       8000 kB\nMemAvailable:   1234 kB\n";
        assert_eq!(kib_of(meminfo, "MemAvailable:"), Some(1234 << 10));
        assert_eq!(kib_of("", "MemAvailable:"), None);
        let limits = "Max cpu time    unlimited   unlimited   seconds\n\
                      Max address space         409600000  unlimited            bytes\n";
        assert_eq!(address_space(limits), Some(409_600_000));
        assert_eq!(address_space("Max address space   unlimited  unlimited  bytes"), None);
    }

    #[test]
    fn what_is_needed_bounds_what_every_layer_takes() {
        for preset in PRESETS {
            let geometry = preset.geometry(Some(preset.sizes.blocks_per_plane.min(256))).unwrap();
            let timing: Option<Timing> = Some(preset.timing);
            let options = Options { spare_permille: 280, ..Options::default() };
            let build = Build { geometry, timing, options };
            for layer in &LAYERS {
                let Ok(made) = layer.format(&build) else { continue };
                let (taken, needed) = (made.ram_bytes(), layer.needed_bytes(&build));
                let name = (preset.name, layer.name);
                let is_bounded = taken <= needed && needed < 2 * taken + FIXED_BYTES;
                assert!(is_bounded, "{name:?}: {taken} of {needed}");
            }
        }
    }
}
