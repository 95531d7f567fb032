//! A reader that stays costs at most what changed since it came, once, however much is written.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded")]

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use common::{number, open, text};

const PAGE: u64 = 4096;
const ROWS: u64 = 100_000;
const SAMPLES: u64 = 100;
/// Rows of 200 bytes and what SQLite adds to each, in a page.
const ROWS_PER_PAGE: u64 = 19;

/// As many updates as the budget asks for; a million from a budget of 50 on.
fn updates() -> u64 {
    let budget = std::env::var("ESKER_TEST_BUDGET").ok().and_then(|n| n.parse().ok());
    (20_000 * budget.unwrap_or(1_u64)).min(1_000_000)
}

#[test]
fn the_file_holds_what_is_live_and_what_changed_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let writer = open(&path).unwrap();
    writer.execute_batch("PRAGMA synchronous = NORMAL; CREATE TABLE t(n, text)").unwrap();
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                INSERT INTO t SELECT 0, hex(randomblob(97)) FROM n";
    writer.execute(fill, [ROWS as i64]).unwrap();
    let reader = open(&path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(number(&reader, "SELECT sum(n) FROM t"), 0);

    let mut update = writer.prepare("UPDATE t SET n = n + 1 WHERE rowid = ?1").unwrap();
    let mut changed = BTreeSet::new();
    let (updates, mut row, mut worst) = (updates(), 1_u64, 0.0_f64);
    for done in 1..=updates {
        // A generator whose low bits are not used.
        row = row.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let rowid = (row >> 33) % ROWS + 1;
        changed.insert(rowid / ROWS_PER_PAGE);
        assert_eq!(update.execute([rowid as i64]).unwrap(), 1);
        if done % (updates / SAMPLES) == 0 {
            let live = number(&writer, "PRAGMA page_count") as u64 * PAGE;
            let bound = 2 * live + (changed.len() as u64 + 1) * PAGE + (16 << 20);
            let allocated = std::fs::metadata(&path).unwrap().blocks() * 512;
            assert!(allocated <= bound, "{allocated} bytes after {done} updates, not {bound}");
            worst = worst.max(allocated as f64 / live as f64);
        }
    }
    println!("{updates} updates: the file took at most {worst:.2} times what is live");
    // Its snapshot has not moved.
    assert_eq!(number(&reader, "SELECT sum(n) FROM t"), 0);
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(number(&reader, "SELECT sum(n) FROM t"), updates as i64);
    assert_eq!(text(&writer, "PRAGMA integrity_check"), "ok");
}
