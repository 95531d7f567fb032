//! The kernel's counters for this process, the same for every store.

use std::fs;
use std::path::Path;

/// Bytes that a process has caused to be read from and written to devices. A page of the page
/// cache counts when it becomes dirty, a direct write when it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceBytes {
    /// `read_bytes`.
    pub read: u64,
    /// `write_bytes`.
    pub written: u64,
}

impl DeviceBytes {
    /// Those of this process so far; `None` where the kernel does not count them.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::of("self")
    }

    /// Those of another process so far.
    #[must_use]
    pub fn of(process: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(Path::new("/proc").join(process).join("io")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let read = field(text, "read_bytes:")?;
        Some(Self { read, written: field(text, "write_bytes:")? })
    }

    /// The bytes that were added since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
        }
    }
}

/// The most memory that this process has had resident (VmHWM), in bytes.
#[must_use]
pub fn resident_peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    field(&status, "VmHWM:").map(|kibibytes| kibibytes.saturating_mul(1024))
}

/// The number in the line that begins with `name`.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// One line about the machine: processor, cores, memory, kernel.
#[must_use]
pub fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory_gib = field(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0) >> 20;
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{model}, {cores} cores, {memory_gib} GiB, Linux {}", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_text_is_read() {
        let text = "rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 7\n";
        let bytes = DeviceBytes::parse(text).unwrap();
        assert_eq!(bytes, DeviceBytes { read: 4096, written: 8192 });
        let before = DeviceBytes { read: 96, written: 9000 };
        assert_eq!(bytes.since(before), DeviceBytes { read: 4000, written: 0 });
        assert_eq!(DeviceBytes::parse("read_bytes: x\n"), None);
        assert_eq!(field("VmHWM:\t  12 kB\n", "VmHWM:"), Some(12));
    }

    #[test]
    fn this_process_has_memory_and_a_machine() {
        assert!(resident_peak_bytes().unwrap() > 1 << 20);
        assert!(!machine().contains('\n'));
    }
}
