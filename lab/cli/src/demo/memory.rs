//! The process's memory, as the system counts it.

use std::fs;

/// Resident memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resident {
    pub(super) now_bytes: u64,
    pub(super) peak_bytes: u64,
}

/// Asks the system; none where it does not say.
pub(super) fn resident() -> Option<Resident> {
    parse(&fs::read_to_string("/proc/self/status").ok()?)
}

fn parse(status: &str) -> Option<Resident> {
    Some(Resident { now_bytes: field(status, "VmRSS:")?, peak_bytes: field(status, "VmHWM:")? })
}

fn field(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_in_kib() {
        let status = "Name:\tesker\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let resident = Resident { now_bytes: 1 << 20, peak_bytes: 2 << 20 };
        assert_eq!(parse(status), Some(resident));
        assert_eq!(parse("Name:\tesker\n"), None);
    }
}
