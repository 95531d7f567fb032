//! Named points at which tests make a merge or flush fail.

/// Before the last blocks of a merge are written.
pub const MERGE_FINISH: &str = "merge.finish";
/// Before the blocks of a merge or flush are made durable.
pub const MERGE_SYNC: &str = "merge.sync";
/// Before the record of a merge or flush is written.
pub const MERGE_COMMIT: &str = "merge.commit";
/// Before the last blocks of a flush are written.
pub const FLUSH_FINISH: &str = "flush.finish";

/// All of them.
pub const POINTS: [&str; 4] = [MERGE_FINISH, MERGE_SYNC, MERGE_COMMIT, FLUSH_FINISH];
