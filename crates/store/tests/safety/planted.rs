//! Every planted bug is found, by name.

use esker::IndexKind;
use esker_substrate::planted::Bug;
use esker_testkit::counts::{Counts, assert_passes};
use esker_testkit::planted;

fn is_found(bug: Bug, index: IndexKind) {
    let place = if index == IndexKind::Lsm { " in slices" } else { "" };
    assert_passes(planted::hunt_in(bug, index).map(|finding| {
        println!("{bug:?}{place}: {}", finding.violation);
        let case = format!("{bug:?}{place}: \"{}\"", finding.violation.oracle);
        let mut counts = Counts::new("planted", case);
        counts.add("judged until found", finding.judged);
        counts
    }));
}

/// Tests that each bug of a list is found in a store with indexes of a kind, and that the list is
/// complete.
macro_rules! bugs {
    ($every:ident: $all:ident in $index:ident; $($name:ident: $bug:ident,)*) => {
        $(#[test] fn $name() { is_found(Bug::$bug, IndexKind::$index); })*

        #[test]
        fn $every() {
            assert_eq!([$(Bug::$bug),*], Bug::$all);
        }
    };
}

bugs! {
    every_bug_of_full_devices_has_its_test: OF_FULL_DEVICES in FdTree;
    finds_a_reserve_that_values_take: ReserveTaken,
    finds_values_that_cannot_be_written_out: OwedNotKept,
}

mod in_slices {
    use super::*;

    bugs! {
        every_bug_has_its_test: IN_SLICES in Lsm;
        finds_lost_keys_that_were_not_recorded: GoneNotRecorded,
        finds_a_block_that_stays_among_others: StaysAmongOthers,
        finds_a_block_that_is_not_all_that_is_written: RepeatsAmongOthers,
        finds_blocks_reused_before_the_commit: ReclaimBeforeCommit,
        finds_a_commit_before_its_blocks: CommitBeforeBlocks,
        finds_a_commit_before_its_log: CommitBeforeLog,
        finds_reuse_of_what_snapshots_need: SnapshotBlocksReused,
        finds_what_expired_for_a_snapshot: ExpiredForSnapshots,
        finds_what_expired_and_hid_nothing: ExpiredHideNothing,
        finds_removals_that_were_not_recorded: RemovalsNotRecorded,
        finds_removals_retired_before_a_snapshot_ends: RetiredForSnapshots,
        finds_operands_taken_for_answers: OperandsAnswer,
        finds_operands_joined_under_a_snapshot: MergedForSnapshots,
        finds_a_value_that_is_forgotten: ValueForgotten,
    }
}

bugs! {
    every_bug_of_history_has_its_test: OF_HISTORY in FdTree;
    finds_versions_that_merges_drop: HistoryDropped,
    finds_range_tombstones_retired_without_their_keys: RetiredWithoutKeys,
    finds_batches_of_several_versions: BatchOfVersions,
    finds_replayed_batches_of_several_versions: ReplayedAsVersions,
    finds_a_copy_that_frees_what_it_is_of: SplitFreesInputs,
    finds_a_past_without_its_range_tombstones: PastWithoutRemovals,
}

bugs! {
    every_bug_of_backups_has_its_test: OF_BACKUPS in FdTree;
    finds_a_catalog_before_its_blocks: CatalogBeforeBlocks,
    finds_a_backup_that_is_overwritten: BackupOverwritten,
    finds_a_lost_catalog_that_is_ignored: LostCatalogIgnored,
    finds_blocks_reused_before_they_are_copied: BackupNotPinned,
    finds_a_restored_store_before_its_data: RestoredBeforeData,
    finds_backups_cut_within_blocks: PiecesCutAtUnits,
}

bugs! {
    every_bug_has_its_test: ALL in FdTree;
    finds_a_missing_barrier_before_the_superblock: NoBarrierBeforeSuperblock,
    finds_blocks_reused_before_the_commit: ReclaimBeforeCommit,
    finds_log_records_without_checksums: LogWithoutChecksum,
    finds_a_stale_log_tail: StaleLogTailAccepted,
    finds_acknowledgement_before_sync: AcknowledgedBeforeSync,
    finds_superblocks_without_checksums: SuperblockWithoutChecksum,
    finds_a_missing_folder_sync: NoDirectorySync,
    finds_a_length_that_was_not_synced: LengthNotSynced,
    finds_a_log_cut_before_its_merge: LogTruncatedBeforeMerge,
    finds_reuse_of_what_snapshots_need: SnapshotBlocksReused,
    finds_numbers_used_twice: SequenceReusedAfterRecovery,
    finds_a_segment_removed_early: SegmentUnlinkedEarly,
    finds_an_extent_freed_twice: FreedTwice,
    finds_a_commit_before_its_blocks: CommitBeforeBlocks,
    finds_a_commit_before_its_log: CommitBeforeLog,
    finds_space_reused_before_its_record: ReclaimBeforeRecord,
    finds_kept_blocks_that_are_freed: KeptFreed,
    finds_what_expired_for_a_snapshot: ExpiredForSnapshots,
    finds_what_expired_and_hid_nothing: ExpiredHideNothing,
    finds_removals_that_were_not_recorded: RemovalsNotRecorded,
    finds_removals_retired_before_a_snapshot_ends: RetiredForSnapshots,
    finds_removals_retired_by_half_a_merge: RetiredByHalf,
    finds_a_number_that_was_reset_under_a_range_tombstone: ResetUnderRangeTombstone,
    finds_operands_taken_for_answers: OperandsAnswer,
    finds_operands_joined_under_a_snapshot: MergedForSnapshots,
    finds_blocks_without_checksums: BlockWithoutChecksum,
    finds_a_value_that_is_forgotten: ValueForgotten,
    finds_a_value_freed_early: ValueFreedEarly,
    finds_a_value_that_was_not_synced: ValueNotSynced,
    finds_values_that_were_not_verified: ValueNotVerified,
    finds_logged_values_taken_for_free: ValueNotClaimed,
    finds_values_without_checksums: ValueWithoutChecksum,
    finds_numbers_handed_out_before_they_are_reserved: GenerationsNotReserved,
}
