//! Bars: the conditions that must hold, as data, and whether they do.
//!
//! A bar compares Esker's median of a metric with a number, or with a multiple of a peer's
//! median. A peer that is measured in several settings has, for each bar, its best one: what is
//! compared with RocksDB must hold in both of its leveled settings, and in all four for some bars.
//! Bars that compare time are ratios between systems that alternated in one comparison; counters
//! have absolute bars.
//!
//! A bar on latencies is judged where the peer's longest request of that kind took longer than an
//! idle thread was off in the same runs. Where it did not, neither system had anything to wait for,
//! and a ratio would show the machine's pauses.

use esker::{CompactionPolicy, IndexKind};
use esker_lab_result::{self as result, Bound, Findings, Outcome, Part, Sense, Verdict};
use esker_peers::{Arrangement, Name};

use crate::stores::rows::Row;

/// The limit of a bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A number.
    Number(f64),
    /// A factor times a peer's value of the same metric.
    Times(f64, Name),
    /// The same with RocksDB in whichever setting is best, universal compaction included.
    TimesRocksdb(f64),
    /// The same, or one and a half times the longest gap of the idle control thread if that is
    /// more: a pause that the machine gave an idle thread is no store's fault.
    TimesOrControl(f64, Name),
}

impl Limit {
    /// The peers, or settings of one, of which the best counts.
    fn peers(self) -> Vec<Name> {
        match self {
            Number(_) => Vec::new(),
            Times(_, Rocksdb) | TimesOrControl(_, Rocksdb) => Name::ROCKSDB_LEVELED.to_vec(),
            Times(_, peer) | TimesOrControl(_, peer) => vec![peer],
            TimesRocksdb(_) => Name::ALL.into_iter().filter(|name| name.is_rocksdb()).collect(),
        }
    }
}

/// One bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// The row.
    pub row: Row,
    /// The metric of that row.
    pub metric: &'static str,
    /// The subject of the bar.
    pub what: &'static str,
    /// On which side.
    pub sense: Sense,
    /// Of which limit.
    pub limit: Limit,
}

/// Values closer than this to a peer's, where being its equal is the bar, are a tie.
const TIE: f64 = 0.05;
/// The most that a maximum may be, as a multiple of the control thread's gap.
const CONTROL_FACTOR: f64 = 1.5;
/// The metric of the control thread's gap.
const CONTROL: &str = "control_max_us";

const fn least(row: Row, metric: &'static str, what: &'static str, limit: Limit) -> Bar {
    Bar { row, metric, what, sense: Sense::AtLeast, limit }
}

const fn most(row: Row, metric: &'static str, what: &'static str, limit: Limit) -> Bar {
    Bar { row, metric, what, sense: Sense::AtMost, limit }
}

use Limit::{Number, Times, TimesOrControl, TimesRocksdb};
use Name::{Fjall, Rocksdb};

const WRITTEN: &str = "written_per_byte";
const RESIDENT: &str = "resident_over_allowed";
const RESIDENT_WHAT: &str = "resident over budget + 10 % + 24 MiB";

/// The bars of an FD+tree. They are made for the full scale, as all are.
pub const FDTREE: [Bar; 30] = [
    least(Row::Load, "rate", "entries/s, compactions included", Times(1.0, Rocksdb)),
    most(Row::Load, WRITTEN, "bytes per user byte", Times(0.75, Rocksdb)),
    most(Row::Load, RESIDENT, RESIDENT_WHAT, Number(1.0)),
    least(Row::Lookups, "rate", "lookups/s", Times(1.0, Rocksdb)),
    least(Row::Lookups, "rate", "lookups/s", Times(1.0, Fjall)),
    most(Row::Lookups, "reads_per_lookup", "device reads", Number(1.1)),
    most(Row::Lookups, RESIDENT, RESIDENT_WHAT, Number(1.0)),
    least(Row::Scans, "rate", "scans/s", Times(1.0, Rocksdb)),
    most(Row::Durable, "syncs_per_put_1", "syncs of the log per put", Number(1.01)),
    least(Row::Durable, "rate_1", "puts/s, 1 thread", Times(0.95, Rocksdb)),
    least(Row::Durable, "rate_8", "puts/s, 8 threads", Times(1.0, Rocksdb)),
    least(Row::Merge, "merged_bytes", "user bytes merged", Number(5e8)),
    least(Row::Merge, "put_samples", "writes measured", Number(1e4)),
    most(Row::Merge, "put_p999_us", "writes, p99.9", Times(1.0, Rocksdb)),
    most(Row::Merge, "put_max_us", "writes, longest", TimesOrControl(0.5, Rocksdb)),
    most(Row::Merge, "put_max_us", "writes, longest", TimesOrControl(0.1, Fjall)),
    most(Row::Merge, "put_abandoned", "writes abandoned", Number(0.0)),
    most(Row::Merge, "get_p999_us", "lookups, p99.9", Times(1.0, Rocksdb)),
    most(Row::Merge, "get_abandoned", "lookups abandoned", Number(0.0)),
    most(Row::Merge, RESIDENT, RESIDENT_WHAT, Number(1.0)),
    most(Row::MergeSpace, "added_over_data", "space added over the data", Number(0.15)),
    most(Row::Overwrite, WRITTEN, "bytes per user byte", Times(0.85, Rocksdb)),
    most(Row::Overwrite, "peak_over_live", "peak space over live data", Number(1.65)),
    most(Row::Overwrite, RESIDENT, RESIDENT_WHAT, Number(1.0)),
    most(Row::Mix, WRITTEN, "bytes per user byte", Times(0.8, Rocksdb)),
    most(Row::Mix, RESIDENT, RESIDENT_WHAT, Number(1.0)),
    most(Row::Compact, "after_over_live", "space over live data", Number(1.08)),
    most(Row::Compact, RESIDENT, RESIDENT_WHAT, Number(1.0)),
    most(Row::Reopen, "first_read_seconds", "seconds to the first read", Number(1.0)),
    most(Row::Reopen, RESIDENT, RESIDENT_WHAT, Number(1.0)),
];

const LOADED: &str = "load_written_per_byte";
const OVERWRITTEN: &str = "overwrite_written_per_byte";

/// The bars of an LSM index.
pub const LSM: [Bar; 27] = [
    most(Row::Load, WRITTEN, "bytes per user byte", Times(0.7, Rocksdb)),
    most(Row::Overwrite, WRITTEN, "bytes per user byte", Times(0.75, Rocksdb)),
    most(Row::Mix, WRITTEN, "bytes per user byte", Times(0.75, Rocksdb)),
    most(Row::Values1000, LOADED, "load, bytes per byte", Times(0.6, Rocksdb)),
    most(Row::Values1000, OVERWRITTEN, "overwrite, bytes per byte", Times(0.6, Rocksdb)),
    most(Row::Values4000, LOADED, "load, bytes per byte", Times(0.6, Rocksdb)),
    most(Row::Values4000, OVERWRITTEN, "overwrite, bytes per byte", Times(0.6, Rocksdb)),
    // Written twice by any store with a log: docs/decisions/0051.
    most(Row::Sequential, LOADED, "load, bytes per byte", Times(1.1, Rocksdb)),
    most(Row::Sequential, OVERWRITTEN, "overwrite, bytes per byte", Times(0.6, Rocksdb)),
    most(Row::MovingNormal, LOADED, "load, bytes per byte", Times(0.6, Rocksdb)),
    most(Row::MovingNormal, OVERWRITTEN, "steady, bytes per byte", Times(0.6, Rocksdb)),
    least(Row::Merge, "put_samples", "writes measured", Number(1e4)),
    most(Row::Merge, "put_p999_us", "writes, p99.9", Times(1.0, Rocksdb)),
    most(Row::Merge, "put_max_us", "writes, longest", TimesOrControl(0.5, Rocksdb)),
    most(Row::Merge, "put_abandoned", "writes abandoned", Number(0.0)),
    most(Row::MergeSpace, "added_over_data", "space added over the data", Number(0.1)),
    least(Row::Lookups, "rate", "lookups/s", TimesRocksdb(1.0)),
    least(Row::Scans, "rate", "scans/s", TimesRocksdb(1.0)),
    least(Row::HotScans, "rate", "scans/s beside writes", Times(0.9, Rocksdb)),
    most(Row::Lookups, "reads_per_lookup", "device reads", Number(1.02)),
    most(Row::Lookups, "reads_per_miss", "device reads, absent keys", Number(0.02)),
    most(Row::Overwrite, "peak_over_live", "peak space over live data", Number(1.6)),
    most(Row::Load, RESIDENT, RESIDENT_WHAT, Number(1.0)),
    most(Row::Lookups, RESIDENT, RESIDENT_WHAT, Number(1.0)),
    most(Row::Merge, RESIDENT, RESIDENT_WHAT, Number(1.0)),
    most(Row::Overwrite, RESIDENT, RESIDENT_WHAT, Number(1.0)),
    most(Row::Reopen, "first_read_seconds", "seconds to the first read", Number(1.0)),
];

/// The bars of either kind: ahead of RocksDB in each of its settings.
pub const BOTH: [Bar; 28] = [
    least(Row::LongScans, "rate", "scans of 10,000/s", TimesRocksdb(1.0)),
    least(Row::Lookups, "miss_rate", "lookups/s, absent keys", TimesRocksdb(1.0)),
    least(Row::Ycsb, "a_rate", "YCSB A, requests/s", TimesRocksdb(1.0)),
    least(Row::Ycsb, "b_rate", "YCSB B, requests/s", TimesRocksdb(1.0)),
    least(Row::Ycsb, "c_rate", "YCSB C, requests/s", TimesRocksdb(1.0)),
    least(Row::Ycsb, "d_rate", "YCSB D, requests/s", TimesRocksdb(1.0)),
    least(Row::Ycsb, "e_rate", "YCSB E, requests/s", TimesRocksdb(1.0)),
    least(Row::Ycsb, "f_rate", "YCSB F, requests/s", TimesRocksdb(1.0)),
    least(Row::Ycsb1000, "a_rate", "YCSB 1,000 B, A, requests/s", TimesRocksdb(1.0)),
    least(Row::Ycsb1000, "b_rate", "YCSB 1,000 B, B, requests/s", TimesRocksdb(1.0)),
    least(Row::Ycsb1000, "c_rate", "YCSB 1,000 B, C, requests/s", TimesRocksdb(1.0)),
    least(Row::Ycsb1000, "d_rate", "YCSB 1,000 B, D, requests/s", TimesRocksdb(1.0)),
    least(Row::Ycsb1000, "e_rate", "YCSB 1,000 B, E, requests/s", TimesRocksdb(1.0)),
    least(Row::Ycsb1000, "f_rate", "YCSB 1,000 B, F, requests/s", TimesRocksdb(1.0)),
    least(Row::Writers, "rate_8", "puts/s, 8 threads", TimesRocksdb(1.2)),
    most(Row::OpenLoop, "put_p999_us", "80,000 puts/s, p99.9", TimesRocksdb(1.0)),
    most(Row::OpenLoop, "get_p999_us", "lookups beside them, p99.9", TimesRocksdb(1.0)),
    most(Row::Removals, "remove_p50_us", "removals of a range, p50", Number(15.0)),
    most(Row::Removals, "remove_p999_us", "removals of a range, p99.9", Number(1000.0)),
    most(Row::Removals, "apart_p50_us", "removals of 3,000 ranges, p50", Number(15.0)),
    most(Row::Removals, "apart_p999_us", "removals of 3,000 ranges, p99.9", Number(1000.0)),
    most(Row::Removals, "first_max_us", "the first entry after one, longest", Number(1000.0)),
    most(Row::Removals, "queue_first_p99_us", "the first of a queue, p99", Number(50.0)),
    least(Row::Values1000, "get_rate", "lookups/s", TimesRocksdb(1.0)),
    least(Row::Values1000, "long_scan_rate", "scans of 10,000/s", TimesRocksdb(1.0)),
    most(Row::Values1000, "settled_over_live", "space at rest", Number(1.15)),
    least(Row::Values4000, "get_rate", "lookups/s", TimesRocksdb(1.0)),
    most(Row::Values4000, "settled_over_live", "space at rest", Number(1.15)),
];

/// The bars of bytes written by the thesis's policy Mixed, with γ 10.
const MIXED: [Bar; 3] = [
    most(Row::Load, WRITTEN, "bytes per user byte", Times(0.8, Rocksdb)),
    most(Row::Overwrite, WRITTEN, "bytes per user byte", Times(0.9, Rocksdb)),
    most(Row::Mix, WRITTEN, "bytes per user byte", Times(0.85, Rocksdb)),
];

/// The bars of keyspaces that are arranged so. Of bytes written the default policy has its own,
/// Mixed others, and no other policy any.
fn of(arrangement: Arrangement) -> Vec<Bar> {
    let written: &[Bar] = match (arrangement.index, arrangement.policy) {
        (IndexKind::Lsm, CompactionPolicy::Pull) => return [&LSM[..], &BOTH].concat(),
        (IndexKind::Lsm, CompactionPolicy::Mixed) => &MIXED,
        (IndexKind::Lsm, _) => &[],
        _ => return [&FDTREE[..], &BOTH].concat(),
    };
    let others = LSM.iter().filter(|bar| !bar.metric.ends_with(WRITTEN));
    written.iter().chain(others).copied().collect()
}

/// Judges every bar of the rows that were measured, of keyspaces that are arranged so.
#[must_use]
pub fn judge(found: &Findings, arrangement: Arrangement) -> Vec<Verdict> {
    let bars = of(arrangement);
    let of_rows = bars.iter().filter(|bar| found.part(bar.row.as_str()).is_there());
    of_rows.map(|bar| judge_one(bar, found.part(bar.row.as_str()))).collect()
}

fn judge_one(bar: &Bar, row: Part<'_>) -> Verdict {
    let ours = Name::Esker.as_str();
    let value = row.median(ours, bar.metric);
    let of = |peers: &[Name]| {
        let (setting, value) = best(bar, row, peers)?;
        Some(value).filter(|_| is_above_control(bar, row, setting))
    };
    let peers = bar.limit.peers();
    let (limit, equality) = match bar.limit {
        Number(limit) => (Some(limit), false),
        Times(factor, _) | TimesRocksdb(factor) => {
            (of(&peers).map(|value| value * factor), factor == 1.0)
        }
        TimesOrControl(factor, _) => {
            let control = row.median(ours, CONTROL).unwrap_or(0.0);
            let limit = of(&peers).map(|value| (value * factor).max(control * CONTROL_FACTOR));
            (limit, false)
        }
    };
    let outcome = match (value, limit) {
        (Some(value), Some(limit)) => outcome(bar.sense, value, limit, equality),
        _ => Outcome::Unknown,
    };
    let times = match bar.limit {
        Number(_) => None,
        Times(factor, _) | TimesRocksdb(factor) => Some((factor, false)),
        TimesOrControl(factor, _) => Some((factor, true)),
    };
    let times = times.zip(peers.first()).map(|((factor, or_control), first)| result::Times {
        factor,
        system: best(bar, row, &peers).map_or(*first, |(setting, _)| setting).as_str().to_owned(),
        or_control,
    });
    Verdict {
        part: Some(bar.row.as_str().to_owned()),
        name: bar.what.to_owned(),
        claim: None,
        metric: Some(bar.metric.to_owned()),
        value,
        bound: Some(Bound { sense: bar.sense, limit, times }),
        outcome,
        why: None,
    }
}

/// The peer, of several, whose median is hardest to reach, and that median.
fn best(bar: &Bar, row: Part<'_>, peers: &[Name]) -> Option<(Name, f64)> {
    let median = |of: &Name| Some((*of, row.median(of.as_str(), bar.metric)?));
    let measured = peers.iter().filter_map(median);
    match bar.sense {
        Sense::AtLeast => measured.max_by(|one, other| one.1.total_cmp(&other.1)),
        Sense::AtMost => measured.min_by(|one, other| one.1.total_cmp(&other.1)),
    }
}

/// Whether a peer's longest request was longer than the idle thread's longest gap; true of metrics
/// that are no latencies of puts or gets.
fn is_above_control(bar: &Bar, row: Part<'_>, peer: Name) -> bool {
    let longest = match bar.metric {
        metric if !metric.ends_with("_us") => return true,
        metric if metric.starts_with("put_") => "put_max_us",
        metric if metric.starts_with("get_") => "get_max_us",
        _ => return true,
    };
    let median = |metric| row.median(peer.as_str(), metric);
    let (longest, control) = (median(longest), median(CONTROL));
    longest.zip(control).is_some_and(|(longest, control)| longest > CONTROL_FACTOR * control)
}

fn outcome(sense: Sense, value: f64, limit: f64, equality: bool) -> Outcome {
    let eased = match sense {
        Sense::AtLeast => limit * (1.0 - TIE),
        Sense::AtMost => limit * (1.0 + TIE),
    };
    if sense.keeps(value, limit) {
        Outcome::Met
    } else if equality && sense.keeps(value, eased) {
        Outcome::Tie
    } else {
        Outcome::Missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_lab_result::Metrics;

    fn add(report: &mut Findings, row: Row, system: Name, run: Metrics) {
        report.add(Some(row.as_str()), system.as_str(), None, run);
    }

    fn report(values: &[(Row, Name, &str, f64)]) -> Findings {
        let mut report = Findings::default();
        for (row, system, metric, value) in values {
            add(&mut report, *row, *system, Metrics::from([((*metric).to_owned(), *value)]));
        }
        report
    }

    fn verdict_of(row: Row, metric: &str, limit: Limit, report: &Findings) -> Verdict {
        let is_it = |bar: &&Bar| (bar.row, bar.metric, bar.limit) == (row, metric, limit);
        judge_one(FDTREE.iter().find(is_it).unwrap(), report.part(row.as_str()))
    }

    #[test]
    fn a_ratio_is_judged_against_the_peer() {
        let with = |ours: f64| {
            let values =
                [(Row::Load, Name::Esker, "rate", ours), (Row::Load, Rocksdb, "rate", 100.0)];
            verdict_of(Row::Load, "rate", Times(1.0, Rocksdb), &report(&values)).outcome
        };
        assert_eq!(with(100.0), Outcome::Met);
        assert_eq!(with(96.0), Outcome::Tie);
        assert_eq!(with(94.0), Outcome::Missed);
        let alone = report(&[(Row::Load, Name::Esker, "rate", 5.0)]);
        let judged = verdict_of(Row::Load, "rate", Times(1.0, Rocksdb), &alone);
        assert_eq!((judged.outcome, judged.value), (Outcome::Unknown, Some(5.0)));
    }

    /// On both sides of a bar, whichever setting it is; universal compaction has no bars.
    #[test]
    fn a_ratio_is_judged_against_the_best_setting() {
        let peers = [Rocksdb, Name::RocksdbEighths, Name::RocksdbUniversal];
        let judged = |metric, limit, ours: f64, theirs: [f64; 3]| {
            let values = [(Name::Esker, ours)].into_iter().chain(peers.into_iter().zip(theirs));
            let values = values.map(|(of, value)| (Row::Load, of, metric, value));
            let judged = verdict_of(Row::Load, metric, limit, &report(&values.collect::<Vec<_>>()));
            let times = judged.bound.unwrap().times.unwrap();
            (judged.outcome, times.system)
        };
        for (theirs, best) in
            [([90.0, 110.0, 500.0], "rocksdb-eighths"), ([110.0, 90.0, 500.0], "rocksdb")]
        {
            let found = judged("rate", Times(1.0, Rocksdb), 100.0, theirs);
            assert_eq!(found, (Outcome::Missed, best.to_owned()));
        }
        for (theirs, best) in [([8.0, 10.0, 1.0], "rocksdb"), ([10.0, 8.0, 1.0], "rocksdb-eighths")]
        {
            let found = judged(WRITTEN, Times(0.75, Rocksdb), 7.0, theirs);
            assert_eq!(found, (Outcome::Missed, best.to_owned()));
        }
    }

    #[test]
    fn a_bar_of_all_settings_is_that_of_the_best() {
        let values = [(Name::Esker, 100.0), (Rocksdb, 90.0), (Name::RocksdbUniversal, 120.0)];
        let values = values.map(|(of, value)| (Row::LongScans, of, "rate", value));
        let bar = BOTH.iter().find(|bar| bar.row == Row::LongScans).unwrap();
        let judged = judge_one(bar, report(&values).part(Row::LongScans.as_str()));
        let times = judged.bound.unwrap().times.unwrap();
        assert_eq!((judged.outcome, &*times.system), (Outcome::Missed, "rocksdb-universal"));
    }

    #[test]
    fn a_share_of_a_peer_knows_no_ties() {
        let values = [(Row::Load, Name::Esker, WRITTEN, 7.6), (Row::Load, Rocksdb, WRITTEN, 10.0)];
        let judged = verdict_of(Row::Load, WRITTEN, Times(0.75, Rocksdb), &report(&values));
        assert_eq!((judged.outcome, judged.bound.unwrap().limit), (Outcome::Missed, Some(7.5)));
    }

    #[test]
    fn a_maximum_is_excused_by_the_machine_only() {
        let with = |control: f64| {
            let peer = [("put_max_us", 1000.0), (CONTROL, 10.0)];
            let mut report = report(&[]);
            let peer = peer.map(|(name, value)| (name.to_owned(), value));
            add(&mut report, Row::Merge, Rocksdb, Metrics::from(peer));
            let ours = [("put_max_us".to_owned(), 800.0), (CONTROL.to_owned(), control)];
            add(&mut report, Row::Merge, Name::Esker, Metrics::from(ours));
            verdict_of(Row::Merge, "put_max_us", TimesOrControl(0.5, Rocksdb), &report).outcome
        };
        assert_eq!(with(100.0), Outcome::Missed);
        assert_eq!(with(534.0), Outcome::Met);
    }

    /// Two systems that made no thread wait are not compared by the machine's pauses.
    #[test]
    fn latencies_are_judged_where_the_peers_are_more_than_an_idle_threads() {
        let verdict = |metric: &str, limit, longest: f64| {
            let of = |values: [f64; 3]| {
                let names = ["put_max_us", "put_p999_us", CONTROL];
                Metrics::from_iter(names.map(ToOwned::to_owned).into_iter().zip(values))
            };
            let mut report = Findings::default();
            add(&mut report, Row::Merge, Name::Esker, of([5.0, 5.0, 10.0]));
            add(&mut report, Row::Merge, Rocksdb, of([longest, 100.0, 10.0]));
            verdict_of(Row::Merge, metric, limit, &report).outcome
        };
        let longest = TimesOrControl(0.5, Rocksdb);
        assert_eq!(verdict("put_max_us", longest, 16.0), Outcome::Met);
        assert_eq!(verdict("put_max_us", longest, 15.0), Outcome::Unknown);
        assert_eq!(verdict("put_p999_us", Times(1.0, Rocksdb), 16.0), Outcome::Met);
        assert_eq!(verdict("put_p999_us", Times(1.0, Rocksdb), 15.0), Outcome::Unknown);
    }

    /// Another kind of index, other bars.
    #[test]
    fn an_lsm_index_has_bars_of_its_own() {
        let of = |index, policy| {
            let values =
                [(Row::Load, Name::Esker, WRITTEN, 7.3), (Row::Load, Rocksdb, WRITTEN, 10.0)];
            let judged = judge(&report(&values), Arrangement { index, policy });
            let written = |judged: &&Verdict| judged.metric.as_deref() == Some(WRITTEN);
            judged.iter().find(written).map(|judged| judged.outcome)
        };
        assert_eq!(of(IndexKind::FdTree, CompactionPolicy::Pull), Some(Outcome::Met));
        assert_eq!(of(IndexKind::Lsm, CompactionPolicy::Pull), Some(Outcome::Missed));
        assert_eq!(of(IndexKind::Lsm, CompactionPolicy::Mixed), Some(Outcome::Met));
        assert_eq!(of(IndexKind::Lsm, CompactionPolicy::Full), None);
    }

    #[test]
    fn rows_that_did_not_run_have_no_verdict() {
        assert!(judge(&Findings::default(), Arrangement::default()).is_empty());
    }
}
