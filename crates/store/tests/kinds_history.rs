//! The tests of `kinds` for keyspaces that keep history, which have no merge operators.

mod common;

mod kinds {
    mod backups;
    mod bad_inputs;
    mod during_merges;
    mod expiry;
    mod generations;
    mod large_values;
    mod limits;
    mod queues;
    mod removals;
    mod snapshots;
    mod stats;
    mod threads;
    mod transactions;
}
