//! Seeded changes of inputs.

use crate::random::Random;

/// Numbers on which decoders trip.
const INTERESTING: [u64; 10] =
    [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX];

/// One of the inputs with one to six changes, as `seed` says.
#[must_use]
pub fn mutated(inputs: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let random = Random::new(seed);
    let mut bytes = random.pick(inputs).cloned().unwrap_or_default();
    for _ in 0..random.within(&(1..=6)) {
        change(&mut bytes, inputs, &random);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, inputs: &[Vec<u8>], random: &Random) {
    let at = random.index(bytes.len() + 1);
    match random.below(8) {
        0 | 1 => set(bytes, at, |byte| byte ^ 1 << random.below(8)),
        2 => set(bytes, at, |_| random.bits() as u8),
        3 => {
            let number = random.pick(&INTERESTING).copied().unwrap_or(0).to_le_bytes();
            let len = 1 << random.below(4);
            for (offset, byte) in number.iter().take(len).enumerate() {
                set(bytes, at + offset, |_| *byte);
            }
        }
        4 => {
            let more = random.bytes(random.within(&(1..=9)));
            bytes.splice(at..at, more);
        }
        5 => {
            let end = (at + random.within(&(1..=16))).min(bytes.len());
            bytes.drain(at.min(end)..end);
        }
        6 => bytes.truncate(at),
        _ => {
            let other = random.pick(inputs).map(Vec::as_slice).unwrap_or_default();
            let from = random.index(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(other.get(from..).unwrap_or_default());
        }
    }
}

fn set(bytes: &mut [u8], at: usize, change: impl FnOnce(u8) -> u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = change(*byte);
    }
}
