//! The workloads of the LA-tree's paper: synthetic ones, and stand-ins for two traces.
//!
//! LTU is the number of lookups for each update. The slides name the traces and their LTU, and not
//! what is in them: a stand-in has the LTU, and keys as such a source would write them.

use esker_workload::{Random, Request};

/// Sensors of the radar. The leaves in which they write, a page each, must not fit a memory of
/// 128 KiB: 64 of them would, and a cache would take all updates.
const SENSORS: u64 = 4_096;
/// Removals in 100 updates of the synthetic workload.
const REMOVALS_PERCENT: u64 = 33;
/// Customers of a district, and districts of a warehouse, in TPC-C.
const CUSTOMERS: u64 = 3_000;
const DISTRICTS: u64 = 10;
/// TPC-C's constant for customers of NURand, and one of the values that C may have.
const NURAND: (u64, u64) = (1_023, 259);

/// A stream of requests without end, in which lookups follow updates in their share, as evenly as
/// whole requests allow. Memory: 8 bytes for each key that is there.
#[derive(Clone, Debug)]
pub struct Workload {
    random: Random,
    source: Source,
    /// Lookups for each million of updates.
    lookups_ppm: u64,
    /// Millionths of lookups that are due.
    due_ppm: u64,
}

#[derive(Clone, Debug)]
enum Source {
    /// Keys that are there.
    Uniform(Vec<u64>),
    /// When each sensor measures next.
    Radar(Vec<u64>),
    /// Warehouses.
    Customer(u64),
    /// The next order of each district.
    Order(Vec<u64>),
}

impl Workload {
    const fn new(seed: u64, source: Source, ltu: f64) -> Self {
        let lookups_ppm = (ltu * 1e6) as u64;
        Self { random: Random::new(seed), source, lookups_ppm, due_ppm: 0 }
    }

    /// Uniform keys of 64 bits; 33 of 100 updates remove one that is there; half of the lookups
    /// are for keys that are there.
    #[must_use]
    pub const fn synthetic(seed: u64, ltu: f64) -> Self {
        Self::new(seed, Source::Uniform(Vec::new()), ltu)
    }

    /// A stand-in for the radar's traces: 4,096 sensors, each of which enters measurements that
    /// are nearly in the order of time; LTU 0.01 %. Their last leaves have 2 MiB in pages of 512
    /// bytes, 16 times the memory of the paper.
    #[must_use]
    pub fn radar(seed: u64) -> Self {
        Self::new(seed, Source::Radar(vec![16; SENSORS as usize]), 0.000_1)
    }

    /// A stand-in for the index of TPC-C's Customer table: payments change customers, drawn by
    /// NURand; LTU 8 %.
    #[must_use]
    pub fn customer(seed: u64, warehouses: u64) -> Self {
        Self::new(seed, Source::Customer(warehouses.max(1)), 0.08)
    }

    /// A stand-in for the index of TPC-C's Order table: orders with ascending numbers in each
    /// district, lookups among the last twenty of it; LTU 197 %. A district writes in its last
    /// leaf: with 10 for each warehouse, those of 100 warehouses have 500 KiB in pages of 512
    /// bytes. With fewer than 26 they fit 128 KiB, and a cache takes all requests.
    #[must_use]
    pub fn order(seed: u64, warehouses: u64) -> Self {
        let districts = (warehouses.max(1) * DISTRICTS) as usize;
        Self::new(seed, Source::Order(vec![0; districts]), 1.97)
    }

    fn update(&mut self) -> Request {
        let random = &mut self.random;
        match &mut self.source {
            Source::Uniform(keys) => {
                if random.below(100) < REMOVALS_PERCENT && !keys.is_empty() {
                    let at = random.below(keys.len() as u64) as usize;
                    return Request::delete(keys.swap_remove(at));
                }
                let key = random.bits();
                keys.push(key);
                Request::put(key, random.bits())
            }
            Source::Radar(times) => {
                let sensor = random.below(times.len() as u64);
                let time = times.get_mut(sensor as usize).map_or(0, |time| {
                    *time += 1;
                    *time
                });
                // A few measurements late, some of them.
                let late = if random.below(8) == 0 { random.below(8) } else { 0 };
                Request::put(sensor << 40 | (time - late), random.bits())
            }
            Source::Customer(warehouses) => {
                let key = customer(random, *warehouses);
                Request::put(key, random.bits())
            }
            Source::Order(next) => {
                let district = random.below(next.len() as u64);
                let order = next.get_mut(district as usize).map_or(0, |next| {
                    *next += 1;
                    *next - 1
                });
                Request::put(district << 32 | order, random.bits())
            }
        }
    }

    fn lookup(&mut self) -> Request {
        let random = &mut self.random;
        Request::lookup(match &self.source {
            Source::Uniform(keys) if random.below(2) == 0 => {
                let at = random.below(keys.len() as u64) as usize;
                keys.get(at).copied().unwrap_or_default()
            }
            Source::Uniform(_) => random.bits(),
            Source::Radar(times) => {
                let sensor = random.below(times.len() as u64);
                let time = times.get(sensor as usize).copied().unwrap_or_default();
                sensor << 40 | random.below(time)
            }
            Source::Customer(warehouses) => customer(random, *warehouses),
            Source::Order(next) => {
                let district = random.below(next.len() as u64);
                let next = next.get(district as usize).copied().unwrap_or_default();
                district << 32 | next.saturating_sub(1 + random.below(20))
            }
        })
    }
}

fn customer(random: &mut Random, warehouses: u64) -> u64 {
    let district = random.below(warehouses * DISTRICTS);
    let (a, c) = NURAND;
    let customer = ((random.below(a + 1) | random.below(CUSTOMERS)) + c) % CUSTOMERS;
    district << 32 | customer
}

impl Iterator for Workload {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.due_ppm >= 1_000_000 {
            self.due_ppm -= 1_000_000;
            return Some(self.lookup());
        }
        self.due_ppm += self.lookups_ppm;
        Some(self.update())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_workload::Kind;

    #[test]
    fn lookups_and_removals_have_their_shares() {
        let of = |workload: Workload, kind| {
            workload.take(100_000).filter(|request| request.kind == kind).count() as f64 / 1e5
        };
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.01;
        assert!(near(of(Workload::synthetic(1, 0.1), Kind::Lookup), 0.1 / 1.1));
        assert!(near(of(Workload::synthetic(1, 2.0), Kind::Delete), 0.33 / 3.0));
        assert!(near(of(Workload::order(1, 2), Kind::Lookup), 1.97 / 2.97));
        assert!(near(of(Workload::customer(1, 2), Kind::Put), 1.0 / 1.08));
        let lookups = Workload::radar(1).take(100_000).filter(|one| one.kind == Kind::Lookup);
        assert!((8..=10).contains(&lookups.count()));
    }

    #[test]
    fn a_stream_follows_from_its_seed() {
        let first: Vec<_> = Workload::synthetic(5, 0.5).take(1_000).collect();
        assert!(Workload::synthetic(5, 0.5).take(1_000).eq(first.iter().copied()));
        assert!(!Workload::synthetic(6, 0.5).take(1_000).eq(first));
    }
}
