//! Bugs on purpose: each must make a suite fail, and the same seeds must pass without it.
//!
//! A suite that cannot fail proves nothing. For every bug of [`Bug`] this names the attempts that
//! should find it, cheapest first; the first that does ends the hunt.

use std::collections::HashSet;

use esker::IndexKind;
use esker_substrate::planted::{Bug, with};

use crate::backups;
use crate::counts::Counts;
use crate::crash::{self, Effort};
use crate::faults;
use crate::flips::{self, stores, stores::Specimen};
use crate::full::emptied;
use crate::scenario::{self, Make};
use crate::violation::{Oracle, Verdict, Violation, without_panic};

/// Crash images that one attempt judges at most.
const IMAGES: u64 = 2_500;
/// Full stores that are emptied, and what fits their devices.
const FULL_TRIALS: u64 = 24;
const FULL_BYTES: u64 = 1500 << 10;

/// One way to look for a bug.
#[derive(Clone, Copy, Debug)]
pub enum Attempt {
    /// Crashes of a trace.
    Crash(Make),
    /// Damage to every byte of some files of a store that was made without the bug.
    /// One byte in this number.
    Flips(fn() -> Verdict<Specimen>, fn(&str) -> bool, usize),
    /// Failing operations of a workload.
    Faults(Make),
    /// A suite of backups.
    Backups(fn(&mut Counts) -> Verdict),
    /// Full stores that are emptied.
    Full,
}

/// The discovery of a bug.
#[derive(Debug)]
pub struct Finding {
    /// The promise that it breaks.
    pub oracle: Oracle,
    /// The violation that was seen.
    pub violation: Violation,
    /// Crash images, runs or flips of the attempt that found it, and of those before.
    pub judged: u64,
}

/// The attempts at finding a bug.
#[must_use]
pub fn attempts(bug: Bug) -> Vec<Attempt> {
    use Attempt::{Backups, Crash, Faults, Flips, Full};
    match bug {
        Bug::NoBarrierBeforeSuperblock => vec![Crash(scenario::manifest_roll)],
        Bug::ReclaimBeforeCommit => vec![Crash(scenario::overwrite), Crash(scenario::mixed)],
        Bug::LogWithoutChecksum => vec![Crash(scenario::load), Crash(scenario::log_recycling)],
        Bug::StaleLogTailAccepted => {
            vec![Crash(scenario::log_recycling), Crash(scenario::closing), Crash(scenario::mixed)]
        }
        Bug::AcknowledgedBeforeSync | Bug::CommitBeforeBlocks => vec![Crash(scenario::load)],
        Bug::SuperblockWithoutChecksum => {
            vec![Flips(stores::clean, |file| file == "superblock", 1)]
        }
        Bug::NoDirectorySync | Bug::LengthNotSynced => {
            vec![Crash(scenario::creation), Crash(scenario::log_recycling)]
        }
        Bug::LogTruncatedBeforeMerge => {
            vec![Crash(scenario::log_recycling), Crash(scenario::load), Crash(scenario::mixed)]
        }
        Bug::SnapshotBlocksReused => vec![Crash(scenario::snapshots), Crash(scenario::mixed)],
        Bug::SequenceReusedAfterRecovery => vec![Crash(scenario::closing), Crash(scenario::mixed)],
        Bug::FreedTwice => vec![Crash(scenario::overwrite), Crash(scenario::mixed)],
        Bug::SegmentUnlinkedEarly => vec![Crash(scenario::log_recycling), Crash(scenario::mixed)],
        Bug::CommitBeforeLog => {
            vec![Crash(scenario::load), Crash(scenario::keyspaces), Faults(scenario::load)]
        }
        Bug::ReclaimBeforeRecord => vec![
            Crash(scenario::overwrite),
            Crash(scenario::mixed),
            Crash(scenario::load),
            Crash(scenario::deletes),
        ],
        Bug::KeptFreed => vec![Crash(scenario::appends)],
        Bug::ExpiredForSnapshots | Bug::ExpiredHideNothing => vec![Crash(scenario::expiry)],
        Bug::RemovalsNotRecorded
        | Bug::RetiredForSnapshots
        | Bug::RetiredByHalf
        | Bug::ResetUnderRangeTombstone => vec![Crash(scenario::ranges)],
        Bug::OperandsAnswer | Bug::MergedForSnapshots => vec![Crash(scenario::operands)],
        Bug::CatalogBeforeBlocks | Bug::BackupOverwritten => {
            vec![Backups(backups::crash::of_backups)]
        }
        Bug::LostCatalogIgnored => vec![Backups(backups::losses::of_files)],
        Bug::BackupNotPinned => vec![Backups(backups::histories)],
        Bug::RestoredBeforeData => vec![Backups(backups::crash::of_restoring)],
        Bug::PiecesCutAtUnits => vec![Backups(backups::compaction::at_every_step)],
        Bug::BlockWithoutChecksum => vec![Flips(stores::compressed, |file| file == "data", 53)],
        Bug::ValueForgotten | Bug::ValueFreedEarly | Bug::ValueNotClaimed => {
            vec![Crash(scenario::blobs)]
        }
        Bug::GenerationsNotReserved => {
            vec![Crash(scenario::blobs), Crash(scenario::blobs_synced)]
        }
        Bug::ValueNotSynced | Bug::ValueNotVerified => vec![Crash(scenario::blobs_synced)],
        Bug::ValueWithoutChecksum => vec![Flips(stores::blobs, |file| file == "data", 53)],
        Bug::GoneNotRecorded => vec![Crash(scenario::slices)],
        Bug::StaysAmongOthers | Bug::RepeatsAmongOthers => vec![Crash(scenario::overwrite)],
        Bug::ReserveTaken | Bug::OwedNotKept => vec![Full],
        // Tests of their own look for these: crashes do not show them, one thread alone cannot meet
        // them, or answers are right, and late.
        Bug::ValueOwnedTwice | Bug::FloorIgnored => Vec::new(),
        Bug::QuarantineIgnored | Bug::NumberBeforeView => Vec::new(),
        Bug::NamesSearchedOneByOne | Bug::MemoryLookedAtEachTime => Vec::new(),
        Bug::ManifestRoomTaken | Bug::ReserveMerged | Bug::FullLevelsNotPacked => Vec::new(),
        Bug::TombstonesNotKept | Bug::ReserveDiscarded | Bug::UnknownNotDiscarded => Vec::new(),
        Bug::WrittenReadOnly | Bug::RemainsAreNew | Bug::RegionNotMadeSmaller => Vec::new(),
        Bug::LastSegmentTaken | Bug::StallOverwritten | Bug::ShortMergeNotRecorded => Vec::new(),
        Bug::HandlesPrintEntries | Bug::RecordsCounted => Vec::new(),
    }
}

/// Looks for a planted bug, then makes sure that what found it passes without the bug.
///
/// # Errors
/// When nothing found it, or when the finding attempt fails without it.
pub fn hunt(bug: Bug) -> Verdict<Finding> {
    hunt_in(bug, IndexKind::FdTree)
}

/// The same where keyspaces have such an index.
///
/// # Errors
/// Those of [`hunt`].
pub fn hunt_in(bug: Bug, index: IndexKind) -> Verdict<Finding> {
    let mut judged = 0;
    for attempt in attempts(bug) {
        let mut counts = Counts::new("planted", format!("{bug:?}"));
        let specimen = attempt.specimen()?;
        let verdict =
            with(bug, || without_panic(|| attempt.run(index, specimen.as_ref(), &mut counts)));
        judged += counts.get("judged") + counts.get("judged within them");
        let violation = match verdict {
            Ok(()) => continue,
            Err(violation) if violation.oracle == Oracle::Harness => return Err(violation),
            Err(violation) => violation,
        };
        attempt.run(index, specimen.as_ref(), &mut counts).map_err(|v| v.at("without any bug"))?;
        return Ok(Finding { oracle: violation.oracle, violation, judged });
    }
    let detail = format!("{bug:?} was not found, {judged} states judged");
    Err(Violation::new(Oracle::Harness, detail))
}

impl Attempt {
    fn specimen(self) -> Verdict<Option<Specimen>> {
        match self {
            Self::Flips(make, ..) => make().map(Some),
            Self::Crash(_) | Self::Faults(_) | Self::Backups(_) | Self::Full => Ok(None),
        }
    }

    fn run(self, index: IndexKind, specimen: Option<&Specimen>, counts: &mut Counts) -> Verdict {
        let scenario_of = |make: Make| {
            let mut scenario = make(0);
            scenario.config.index = index;
            scenario
        };
        match self {
            Self::Crash(make) => {
                let scenario = scenario_of(make);
                let effort = Effort { images: IMAGES, nested: true };
                crash::run_once(&scenario, effort, &mut HashSet::new(), counts)
            }
            Self::Faults(make) => faults::run(&scenario_of(make)).map(drop),
            Self::Backups(suite) => suite(counts),
            Self::Full => (0..FULL_TRIALS).try_for_each(|seed| {
                counts.add("judged", 1);
                emptied::Trial::random(index, FULL_BYTES, seed).run(counts)
            }),
            Self::Flips(_, wanted, stride) => match specimen {
                Some(store) => flips::bytes_of(store, wanted, stride).map(drop),
                None => Ok(()),
            },
        }
    }
}
