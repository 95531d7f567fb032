//! ADAPT against the list of all lookups, and against the best that can be done in hindsight.

use esker_harness::random::Random;

use esker_latree::adapt::{Adapt, touched};

/// Costs of a trace: `appended[t]` units arrive before lookup t; scanning costs `scan` a unit,
/// emptying `empty` and `empty_unit` a unit.
struct Trace {
    appended: Vec<u64>,
    scan: u64,
    empty: u64,
    empty_unit: u64,
}

impl Trace {
    fn empty_cost(&self, units: u64) -> u64 {
        if units == 0 { 0 } else { self.empty + self.empty_unit * units }
    }

    /// The cost of ADAPT, whose rule is also evaluated over the list of all lookups.
    fn adaptive(&self) -> u64 {
        let (mut state, mut units, mut cost) = (Adapt::default(), 0, 0);
        let mut history: Vec<(u64, u64)> = Vec::new();
        for appended in &self.appended {
            units += appended;
            let (scan, empty) = (self.scan * units, self.empty_cost(units));
            cost += scan;
            let now = history.len() as u64 + 1;
            let pays = (1..).zip(&history).any(|(at, (s, e))| *s > 0 && (now - at) * s >= *e);
            history.push((scan, empty));
            assert_eq!(state.looked_up(scan, empty), pays, "lookup {now} of {history:?}");
            if pays {
                cost += empty;
                units = 0;
                history.clear();
            }
        }
        cost + self.empty_cost(units)
    }

    /// The least possible cost: the best time of the last emptying before each lookup.
    fn offline(&self) -> u64 {
        let lookups = self.appended.len();
        let mut best = vec![u64::MAX; lookups + 1];
        best[0] = 0;
        for from in 0..lookups {
            let (mut units, mut scans) = (0, 0);
            for to in from..lookups {
                units += self.appended[to];
                scans += self.scan * units;
                best[to + 1] = best[to + 1].min(best[from] + scans + self.empty_cost(units));
            }
        }
        best[lookups]
    }
}

fn random_trace(random: &Random) -> Trace {
    let below = |bound: u64| random.below(bound);
    let (lookups, chance) = (1 + below(40), below(100));
    let largest = [2, 20, 200][below(3) as usize];
    let arrivals = |_| {
        if below(100) < chance { 1 + below(largest) } else { 0 }
    };
    let appended = (0..lookups).map(arrivals).collect();
    Trace {
        appended,
        scan: [1, 2, 5][below(3) as usize],
        empty: [0, 1, 5, 20, 100, 500][below(6) as usize],
        empty_unit: [0, 1, 3, 8][below(4) as usize],
    }
}

#[test]
fn adapt_costs_at_most_twice_the_offline_optimum() {
    let random = Random::new(7);
    for _ in 0..20_000 {
        let trace = random_trace(&random);
        let (online, offline) = (trace.adaptive(), trace.offline());
        assert!(online <= 2 * offline, "{online} against {offline}: {:?}", trace.appended);
    }
}

#[test]
fn renting_skis_comes_close_to_twice_the_optimum() {
    let appended: Vec<u64> = (0..4 * 401).map(|at| u64::from(at % 401 == 0)).collect();
    let trace = Trace { appended, scan: 1, empty: 400, empty_unit: 0 };
    let ratio = trace.adaptive() as f64 / trace.offline() as f64;
    assert!((1.9..=2.0).contains(&ratio), "{ratio}");
}

#[test]
fn the_example_of_the_slides_is_emptied_at_the_fifth_lookup() {
    let mut state = Adapt::default();
    let steps = [(15, 70), (50, 140), (80, 200), (110, 260), (150, 340)];
    let emptied = steps.map(|(scan, empty)| state.looked_up(scan, empty));
    assert_eq!(emptied, [false, false, false, false, true]);
    assert_eq!(state, Adapt::default());
}

#[test]
fn few_operations_touch_as_many_nodes_and_many_touch_all() {
    assert_eq!((touched(0, 9), touched(5, 1), touched(1, 100)), (0, 1, 1));
    assert_eq!((touched(100, 100), touched(100_000, 100)), (63, 100));
}
