//! Reading everything and comparing it with what it should be.
//!
//! All merges are paused meanwhile, so that none moves extents between the moment the trees are
//! walked and the moment the free map is compared with them. Damage found is collected, never
//! returned as an error: one bad block must not hide another.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::ids::{Generation, KeyspaceId};
use esker_format::ptr::{Extent, UNIT_BYTES};
use esker_index::CheckSink;
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::manifest::ManifestState;
use esker_substrate::space::Space;

use crate::error::Result;
use crate::follow;
use crate::shared::Core;

/// The result of [`Db::check`](crate::Db::check): the amount that was read, and the problems found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// The number of blocks that were read.
    pub blocks: u64,
    /// Bytes of those blocks.
    pub bytes: u64,
    /// The number of puts and tombstones in those blocks, all versions.
    pub entries: u64,
    /// The number of blobs that were read.
    pub values: u64,
    /// The number of operations that were read in the log: those that are not in blocks yet, and
    /// older ones whose part of the log is not freed yet.
    pub log_operations: u64,
    /// Bytes of the log that were read.
    pub log_bytes: u64,
    /// In a store that another process writes: the sequence number as of which it was checked.
    /// Free space was not, then.
    pub followed_at: Option<u64>,
    /// Everything that is wrong, in the order of discovery.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// File name or path.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// A description of what was expected and what was found.
    pub what: String,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Problem {
    pub(crate) fn new(file: impl Into<String>, offset: u64, what: impl Into<String>) -> Self {
        Self { file: file.into(), offset, what: what.into() }
    }
}

/// The number of times that a follower begins again, because the writer has used space again that
/// it was about to read.
const TRIES_MAX: u32 = 10;

/// Checks a store; in a follower as of its number, and again where the writer has gone on.
pub(crate) fn check(shared: &Core) -> Result<CheckReport> {
    if shared.follower.is_none() {
        return Ok(check_once(shared).into_report());
    }
    for _ in 0..TRIES_MAX {
        follow::refresh(shared)?;
        let (followed_at, state) = (shared.snapshots().visible().0, shared.manifest.state());
        let mut checked = check_once(shared);
        checked.report.followed_at = Some(followed_at);
        if checked.is_ok() {
            return Ok(checked.report);
        }
        follow::refresh(shared)?;
        let now = shared.manifest.state();
        checked.leave(&state, &now);
        if !checked.is_ok() {
            return Ok(checked.into_report());
        }
    }
    Err(follow::overtaken(shared))
}

/// What a check found, and where.
struct Checked {
    /// With the problems of the log, the manifest and the space.
    report: CheckReport,
    /// The problems of each keyspace.
    of_keyspaces: BTreeMap<KeyspaceId, Vec<Problem>>,
}

impl Checked {
    fn is_ok(&self) -> bool {
        self.report.is_ok() && self.of_keyspaces.values().all(Vec::is_empty)
    }

    /// Leaves only what is wrong in what has not changed: other problems may be of space that was
    /// used again.
    fn leave(&mut self, then: &Arc<ManifestState>, now: &Arc<ManifestState>) {
        if !Arc::ptr_eq(then, now) {
            self.report.problems.clear();
        }
        self.of_keyspaces.retain(|id, _| then.keyspaces.get(id) == now.keyspaces.get(id));
    }

    fn into_report(self) -> CheckReport {
        let Self { mut report, of_keyspaces } = self;
        report.problems.extend(of_keyspaces.into_values().flatten());
        report
    }
}

fn check_once(shared: &Core) -> Checked {
    // No keyspace comes or goes meanwhile: its space would be in no tree that is checked. What a
    // follower has loaded does not change, and it must be able to catch up.
    let registry = shared.keyspaces.read();
    let mut slots: Vec<_> = registry.values().map(Arc::clone).collect();
    let _registry = shared.follower.is_none().then_some(registry);
    slots.sort_by_key(|slot| slot.id);
    // A keyspace dropped since the list was made has nothing left to check.
    let trees: Vec<_> =
        slots.iter().filter_map(|slot| slot.tree().ok().map(|tree| (slot.id, tree))).collect();
    let trees: Vec<_> = trees.iter().map(|(id, tree)| (*id, tree.pause())).collect();
    let mut problems: Vec<Problem> = Vec::new();
    let log = shared.log.verify_counted();
    let verified = shared.manifest.verify().into_iter().chain(log.problems);
    problems.extend(verified.map(|found| Problem::new(found.file, found.offset, found.what)));
    let mut sink = CheckSink::default();
    let mut of_keyspaces = BTreeMap::new();
    for (id, tree) in &trees {
        tree.check(&mut sink);
        let found = std::mem::take(&mut sink.problems).into_iter();
        let found = found.map(|found| Problem::new(found.file, found.offset, found.what));
        of_keyspaces.insert(*id, found.collect());
    }
    if shared.follower.is_none() {
        let used = trees.iter().flat_map(|(_, tree)| tree.extents());
        problems.extend(unaccounted(used, &shared.env.blocks.space()));
        problems.extend(used_again(sink.generation_max, shared.env.blocks.next_generation()));
    }
    let CheckSink { blocks, bytes, entries, values, .. } = sink;
    let (log_operations, log_bytes) = (log.operations, log.bytes);
    let counts = CheckReport { blocks, bytes, entries, values, ..CheckReport::default() };
    let report = CheckReport { log_operations, log_bytes, problems, ..counts };
    Checked { report, of_keyspaces }
}

/// Blocks and values are known by their generations, so that none may be handed out twice.
fn used_again(found: Generation, next: Generation) -> Option<Problem> {
    let what = format!(
        "generation {found} is in use, and {next} is the next one to be handed out: dump the store \
         and load it into a new one"
    );
    (found >= next).then(|| Problem::new(DATA_FILE, 0, what))
}

/// Every unit of the data file must be in exactly one tree's extent, in quarantine or free.
fn unaccounted(used: impl Iterator<Item = Extent>, space: &Space) -> Vec<Problem> {
    let mut runs: Vec<(Extent, &str)> = used.map(|extent| (extent, "used")).collect();
    runs.extend(space.uncommitted().map(|extent| (extent, "a value's")));
    runs.extend(space.retired().map(|extent| (extent, "retired")));
    runs.extend(space.free_runs().map(|extent| (extent, "free")));
    runs.sort_unstable();
    let problem = |start: u64, end: u64, what: &str| {
        let bytes = end.saturating_sub(start).saturating_mul(UNIT_BYTES);
        let what = format!("{bytes} bytes {what}");
        Problem::new(DATA_FILE, start.saturating_mul(UNIT_BYTES), what)
    };
    let mut problems = Vec::new();
    let mut next = 0;
    for (extent, kind) in runs {
        if extent.start > next {
            problems.push(problem(next, extent.start, "are neither used nor free"));
        }
        if extent.start < next {
            let end = extent.end().min(next);
            problems.push(problem(
                extent.start,
                end,
                &format!("are claimed twice, once as {kind}"),
            ));
        }
        next = next.max(extent.end());
    }
    if next < space.end() {
        problems.push(problem(next, space.end(), "are neither used nor free"));
    }
    if next > space.end() {
        problems.push(problem(space.end(), next, "are used past the end of the file"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, units: u64) -> Extent {
        Extent { start, units }
    }

    fn found(file_units: u64, free_map_of: &[Extent], used: &[Extent]) -> Vec<(u64, String)> {
        let space = Space::of(file_units, free_map_of.iter().copied()).unwrap();
        let problems = unaccounted(used.iter().copied(), &space);
        problems.into_iter().map(|problem| (problem.offset / UNIT_BYTES, problem.what)).collect()
    }

    #[test]
    fn trees_and_free_runs_that_partition_the_file_are_fine() {
        let used = [extent(4, 2), extent(0, 3)];
        assert_eq!(found(10, &used, &used), []);
        assert_eq!(found(0, &[], &[]), []);
    }

    #[test]
    fn a_generation_that_would_come_again_is_named() {
        assert_eq!(used_again(Generation(7), Generation(8)), None);
        assert!(used_again(Generation(8), Generation(8)).is_some());
    }

    #[test]
    fn lost_shared_and_impossible_units_are_named() {
        let used = [extent(0, 3), extent(4, 2)];
        let lost = found(10, &used, &used[..1]);
        assert_eq!(lost, [(4, "8192 bytes are neither used nor free".into())]);
        let shared = found(10, &used[..1], &used);
        assert_eq!(shared, [(4, "8192 bytes are claimed twice, once as used".into())]);
        let twice = found(6, &used, &[used[0], used[0], used[1]]);
        assert_eq!(twice, [(0, "12288 bytes are claimed twice, once as used".into())]);
        let beyond = found(6, &[extent(0, 6)], &[extent(0, 6), extent(6, 1)]);
        assert_eq!(beyond, [(6, "4096 bytes are used past the end of the file".into())]);
    }
}
