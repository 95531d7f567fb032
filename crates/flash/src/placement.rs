//! Placement: which stream a write goes to, so that data that die together share blocks.
//!
//! A store knows what it writes: a log that is removed as a whole soon, sorted runs that the next
//! merge consumes, levels that stay. A device that mixes them in one block copies what stays when
//! it reclaims what died. Multi-stream SSDs (Kang et al., HotStorage 2014) and flexible data
//! placement (NVMe TP4146) take a handle with each write for this reason; here it is a [`Stream`].
//! What garbage collection moves is in a stream of its own, whatever it was written for: FDP names
//! such handles "initially isolated".

use std::fmt;
use std::str::FromStr;

use esker_device::Purpose;

use crate::ftl::Stream;

/// The streams of [`Placement::Purpose`]; the first is that of all other purposes.
const PURPOSES: [Option<Purpose>; 5] =
    [None, Some(Purpose::Log), Some(Purpose::Flush), Some(Purpose::Merge), Some(Purpose::Value)];
/// The most streams that can be asked for; the NVMe standard has up to 128 placement handles.
const STREAMS_MAX: u32 = 128;

/// How streams are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// All writes are in one stream.
    #[default]
    None,
    /// Five streams: the log; sorted runs; merges; large values; everything else, of which a
    /// store has its manifest and superblock. The numbers in a trace are those of [`Purpose`].
    Purpose,
    /// So many streams, from 1 to 128. The numbers in a trace are those of the streams, and those
    /// beyond are in the last one.
    Streams(u32),
}

impl Placement {
    /// The number of streams, at least 1.
    #[must_use]
    pub const fn streams(self) -> u32 {
        match self {
            Self::None => 1,
            Self::Purpose => PURPOSES.len() as u32,
            Self::Streams(0) => 1,
            Self::Streams(count) => count,
        }
    }

    /// The stream of a write whose trace has this number for it.
    #[must_use]
    pub fn of_number(self, number: u8) -> Stream {
        match self {
            Self::None => Stream(0),
            Self::Purpose => {
                let is_it = |of: &Option<Purpose>| of.is_some_and(|of| of as u8 == number);
                Stream(PURPOSES.iter().position(is_it).unwrap_or(0) as u32)
            }
            Self::Streams(_) => Stream(u32::from(number).min(self.streams() - 1)),
        }
    }

    /// The stream of a write for this purpose.
    #[must_use]
    pub fn of_purpose(self, purpose: Purpose) -> Stream {
        self.of_number(purpose as u8)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Purpose => f.write_str("purpose"),
            Self::Streams(count) => write!(f, "streams:{count}"),
        }
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let streams = |count: &str| count.parse().ok().filter(|n| (1..=STREAMS_MAX).contains(n));
        match text {
            "none" => Ok(Self::None),
            "purpose" => Ok(Self::Purpose),
            _ => text.strip_prefix("streams:").and_then(streams).map(Self::Streams).ok_or_else(
                || format!("placement is none, purpose or streams:1 to streams:128, not '{text}'"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_read_back() {
        for placement in [Placement::None, Placement::Purpose, Placement::Streams(128)] {
            assert_eq!(placement.to_string().parse(), Ok(placement));
        }
        for text in ["", "streams", "streams:0", "streams:129", "streams:-1", "level"] {
            let error = text.parse::<Placement>().unwrap_err();
            assert!(error.contains("purpose"), "{error}");
        }
    }

    /// Every number and every purpose has a stream that there is.
    #[test]
    fn data_of_different_lifetimes_are_in_different_streams() {
        use Purpose::{Flush, Log, Manifest, Merge, Recovery, Value};
        let streams =
            [Log, Flush, Merge, Value, Manifest].map(|p| Placement::Purpose.of_purpose(p));
        assert_eq!(streams, [1, 2, 3, 4, 0].map(Stream));
        assert_eq!(Placement::Purpose.of_purpose(Recovery), Stream(0));
        for placement in [Placement::None, Placement::Purpose, Placement::Streams(3)] {
            for number in 0..=u8::MAX {
                assert!(placement.of_number(number).0 < placement.streams());
            }
        }
        assert_eq!(Placement::Streams(3).of_number(200), Stream(2));
        assert_eq!(Placement::Streams(0).of_number(1), Stream(0));
    }
}
