//! Bugs on purpose, of the store. For every bug of [`Bug`] this names the attempts that should find
//! it, cheapest first; the first that does ends the hunt.

use std::collections::HashSet;

use esker::IndexKind;
use esker_harness::planted::{self, Finding};
use esker_substrate::planted::{Bug, with};

use crate::backups::{self, crash::of_backups};
use crate::counts::Counts;
use crate::crash;
use crate::faults;
use crate::flips::{self, stores, stores::Specimen};
use crate::full::emptied;
use crate::scenario::{self, Make, blobs, log_recycling};
use crate::violation::Verdict;

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

/// Crashes of some traces.
fn crashes<const N: usize>(makes: [Make; N]) -> Vec<Attempt> {
    makes.map(Attempt::Crash).into()
}

/// The attempts at finding a bug.
#[must_use]
pub fn attempts(bug: Bug) -> Vec<Attempt> {
    use Attempt::{Backups, Crash, Faults, Flips, Full};
    match bug {
        Bug::HistoryDropped | Bug::RetiredWithoutKeys => crashes([scenario::versions]),
        Bug::BatchOfVersions | Bug::ReplayedAsVersions => crashes([scenario::versions]),
        Bug::NoBarrierBeforeSuperblock => crashes([scenario::manifest_roll]),
        Bug::ReclaimBeforeCommit | Bug::FreedTwice => {
            crashes([scenario::overwrite, scenario::mixed])
        }
        Bug::LogWithoutChecksum => crashes([scenario::load, log_recycling]),
        Bug::StaleLogTailAccepted => crashes([log_recycling, scenario::closing, scenario::mixed]),
        Bug::AcknowledgedBeforeSync | Bug::CommitBeforeBlocks => crashes([scenario::load]),
        Bug::SuperblockWithoutChecksum => {
            vec![Flips(stores::clean, |file| file == "superblock", 1)]
        }
        Bug::NoDirectorySync | Bug::LengthNotSynced => crashes([scenario::creation, log_recycling]),
        Bug::LogTruncatedBeforeMerge => crashes([log_recycling, scenario::load, scenario::mixed]),
        Bug::SnapshotBlocksReused => crashes([scenario::snapshots, scenario::mixed]),
        Bug::SequenceReusedAfterRecovery => crashes([scenario::closing, scenario::mixed]),
        Bug::SegmentUnlinkedEarly => crashes([log_recycling, scenario::mixed]),
        Bug::CommitBeforeLog => {
            vec![Crash(scenario::load), Crash(scenario::keyspaces), Faults(scenario::load)]
        }
        Bug::ReclaimBeforeRecord => {
            crashes([scenario::overwrite, scenario::mixed, scenario::load, scenario::deletes])
        }
        Bug::KeptFreed => crashes([scenario::appends]),
        Bug::ExpiredForSnapshots | Bug::ExpiredHideNothing => crashes([scenario::expiry]),
        Bug::RemovalsNotRecorded
        | Bug::RetiredForSnapshots
        | Bug::RetiredByHalf
        | Bug::ResetUnderRangeTombstone => crashes([scenario::ranges]),
        Bug::OperandsAnswer | Bug::MergedForSnapshots => crashes([scenario::operands]),
        Bug::CatalogBeforeBlocks | Bug::BackupOverwritten => vec![Backups(of_backups)],
        Bug::LostCatalogIgnored => vec![Backups(backups::losses::of_files)],
        Bug::BackupNotPinned => vec![Backups(backups::histories)],
        Bug::RestoredBeforeData => vec![Backups(backups::crash::of_restoring)],
        Bug::PiecesCutAtUnits => vec![Backups(backups::compaction::at_every_step)],
        Bug::BlockWithoutChecksum => vec![Flips(stores::compressed, |file| file == "data", 53)],
        Bug::ValueForgotten | Bug::ValueFreedEarly | Bug::ValueNotClaimed => crashes([blobs]),
        Bug::GenerationsNotReserved => crashes([blobs, scenario::blobs_synced]),
        Bug::ValueNotSynced | Bug::ValueNotVerified => crashes([scenario::blobs_synced]),
        Bug::ValueWithoutChecksum => vec![Flips(stores::blobs, |file| file == "data", 53)],
        Bug::GoneNotRecorded => crashes([scenario::slices]),
        Bug::StaysAmongOthers | Bug::RepeatsAmongOthers => crashes([scenario::overwrite]),
        Bug::SplitFreesInputs | Bug::PastWithoutRemovals => crashes([scenario::splits]),
        Bug::ReserveTaken | Bug::OwedNotKept => vec![Full],
        // Tests of their own find these: crashes or one thread do not, or answers are only late.
        Bug::ValueOwnedTwice | Bug::FloorIgnored | Bug::RecordsCounted => Vec::new(),
        Bug::QuarantineIgnored | Bug::NumberBeforeView | Bug::NamesSearchedOneByOne => Vec::new(),
        Bug::ChangesOfNow | Bug::ManifestRoomTaken | Bug::ReserveMerged => Vec::new(),
        Bug::FullLevelsNotPacked | Bug::TombstonesNotKept | Bug::ReserveDiscarded => Vec::new(),
        Bug::UnknownNotDiscarded | Bug::WrittenReadOnly | Bug::RemainsAreNew => Vec::new(),
        Bug::RegionNotMadeSmaller | Bug::LastSegmentTaken | Bug::StallOverwritten => Vec::new(),
        Bug::ShortMergeNotRecorded | Bug::HandlesPrintEntries | Bug::DroppedTwice => Vec::new(),
        Bug::SplitReadsNewSide | Bug::SplitResetsNumbers | Bug::ErasedStays => Vec::new(),
        Bug::SplitExpiresNow | Bug::DroppedUnderPin | Bug::PastValuesKept => Vec::new(),
        Bug::HeadsCompared | Bug::RankNotRenewed | Bug::JumpsOverNewer => Vec::new(),
        Bug::GapNotClosed | Bug::GapForOlder | Bug::SharedNotCounted => Vec::new(),
        Bug::NamesNotPinned | Bug::MemoryLookedAtEachTime | Bug::SplitReadsTrimmed => Vec::new(),
        Bug::UnitsLeftEmpty | Bug::MissingChunkPassed => Vec::new(),
        // `crates/store/tests/follow.rs` finds these.
        Bug::FollowerSkipsSegment | Bug::FollowerPinIgnored | Bug::AskedNotCompared => Vec::new(),
        Bug::AskedForgotten | Bug::CellNotFound => Vec::new(),
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
    let prepared = |attempt: Attempt| Ok((attempt, attempt.specimen()?));
    let attempts = attempts(bug).into_iter().map(prepared).collect::<Verdict<Vec<_>>>()?;
    let finding = planted::hunt(
        attempts,
        |body| with(bug, body),
        |(attempt, specimen), counts| attempt.run(index, specimen.as_ref(), counts),
    );
    finding.map_err(|violation| violation.at(format!("{bug:?}")))
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
                crash::run_once(&scenario, IMAGES, &mut HashSet::new(), counts)
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
