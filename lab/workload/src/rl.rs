//! The RL script: the thirteen steps of SQLite's classic speed test, as the papers on flash
//! translation layers run it (Kang et al., X-FTL, SIGMOD 2013).
//!
//! Tables t1, t2 and t3 of (a, b, c): a number, a random one below 100,000, and its text. The
//! steps that write are 1,010 transactions besides the making of tables and indexes; how they are
//! committed is decided by the caller, which may look at the clock.

use rusqlite::{Connection, Result, params};

use crate::random::Random;

/// The work of each step.
pub const STEPS: [&str; 13] = [
    "1000 INSERTs, each a transaction",
    "25000 INSERTs in a transaction",
    "25000 INSERTs into an indexed table",
    "100 SELECTs without an index",
    "100 SELECTs on a string comparison",
    "creating an index, twice",
    "5000 SELECTs with an index",
    "1000 UPDATEs without an index",
    "25000 UPDATEs with an index",
    "INSERTs from a SELECT, both ways",
    "DELETE without an index",
    "DELETE with an index",
    "DROP TABLE, three times",
];

/// The numbers of rows and of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows that are inserted one a transaction, and updates of ranges.
    pub single: i64,
    /// Rows that are inserted in one transaction, and updates by number.
    pub many: i64,
    /// Questions without an index.
    pub scans: i64,
    /// Questions with one.
    pub lookups: i64,
}

impl Sizes {
    /// Those of the script.
    #[must_use]
    pub const fn full() -> Self {
        Self { single: 1_000, many: 25_000, scans: 100, lookups: 5_000 }
    }

    /// A fiftieth, to show that everything runs.
    #[must_use]
    pub const fn small() -> Self {
        Self { single: 20, many: 500, scans: 2, lookups: 100 }
    }
}

/// Commits the transaction that is open.
pub type Commit<'a> = &'a mut dyn FnMut(&Connection) -> Result<()>;

/// The script, at some step.
#[derive(Clone, Debug)]
pub struct Script {
    sizes: Sizes,
    random: Random,
}

impl Script {
    /// The script of a seed.
    #[must_use]
    pub const fn new(seed: u64, sizes: Sizes) -> Self {
        Self { sizes, random: Random::new(seed) }
    }

    /// Makes step `number`, from 0 on and in their order; from 13 on there is nothing to do.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn step(&mut self, number: usize, on: &Connection, commit: Commit<'_>) -> Result<()> {
        let Sizes { single, many, scans, lookups } = self.sizes;
        match number {
            0 => self.insert_singly(on, single, commit),
            1 => {
                table(on, "t2", commit)?;
                whole(on, commit, |on| self.insert(on, "t2", many))
            }
            2 => {
                table(on, "t3", commit)?;
                whole(on, commit, |on| on.execute_batch("CREATE INDEX i3 ON t3(c)"))?;
                whole(on, commit, |on| self.insert(on, "t3", many))
            }
            3 => ask(on, scans, "b >= ?1 AND b < ?1 + 1000", |i| (i * 100).to_string()),
            4 => ask(on, scans, "c LIKE ?1", |i| format!("%{}%", words(i))),
            5 => {
                whole(on, commit, |on| on.execute_batch("CREATE INDEX i2a ON t2(a)"))?;
                whole(on, commit, |on| on.execute_batch("CREATE INDEX i2b ON t2(b)"))
            }
            6 => ask(on, lookups, "b >= ?1 AND b < ?1 + 100", |i| (i * 100).to_string()),
            7 => whole(on, commit, |on| {
                let update = "UPDATE t1 SET b = b * 2 WHERE a >= ?1 * 10 AND a < ?1 * 10 + 10";
                let mut update = on.prepare(update)?;
                (0..single).try_for_each(|i| update.execute([i]).map(drop))
            }),
            8 => whole(on, commit, |on| {
                let mut update = on.prepare("UPDATE t2 SET b = ?2 WHERE a = ?1")?;
                let mut drawn = || self.random.below(100_000) as i64;
                (1..=many).try_for_each(|i| update.execute([i, drawn()]).map(drop))
            }),
            9 => whole(on, commit, |on| {
                on.execute_batch(
                    "INSERT INTO t1 SELECT b, a, c FROM t2; INSERT INTO t2 SELECT b, a, c FROM t1",
                )
            }),
            10 => delete(on, "c LIKE '%fifty%'", commit),
            11 => delete(on, "a > 10 AND a < 20000", commit),
            12 => ["t1", "t2", "t3"].iter().try_for_each(|table| {
                whole(on, commit, |on| on.execute_batch(&format!("DROP TABLE {table}")))
            }),
            _ => Ok(()),
        }
    }

    fn insert_singly(&mut self, on: &Connection, rows: i64, commit: Commit<'_>) -> Result<()> {
        table(on, "t1", commit)?;
        for row in 1..=rows {
            let number = self.random.below(100_000) as i64;
            whole(on, commit, |on| {
                let mut insert = on.prepare_cached("INSERT INTO t1 VALUES (?1, ?2, ?3)")?;
                insert.execute(params![row, number, words(number)]).map(drop)
            })?;
        }
        Ok(())
    }

    fn insert(&mut self, on: &Connection, table: &str, rows: i64) -> Result<()> {
        let mut insert = on.prepare(&format!("INSERT INTO {table} VALUES (?1, ?2, ?3)"))?;
        for row in 1..=rows {
            let number = self.random.below(100_000) as i64;
            insert.execute(params![row, number, words(number)])?;
        }
        Ok(())
    }
}

/// One transaction.
fn whole(
    on: &Connection,
    commit: Commit<'_>,
    body: impl FnOnce(&Connection) -> Result<()>,
) -> Result<()> {
    on.execute_batch("BEGIN")?;
    body(on)?;
    commit(on)
}

fn table(on: &Connection, name: &str, commit: Commit<'_>) -> Result<()> {
    let sql = format!("CREATE TABLE {name}(a INTEGER, b INTEGER, c VARCHAR(100))");
    whole(on, commit, |on| on.execute_batch(&sql))
}

fn delete(on: &Connection, which: &str, commit: Commit<'_>) -> Result<()> {
    whole(on, commit, |on| on.execute_batch(&format!("DELETE FROM t2 WHERE {which}")))
}

/// Asks `count` times for rows of t2.
fn ask(on: &Connection, count: i64, which: &str, of: impl Fn(i64) -> String) -> Result<()> {
    let sql = format!("SELECT count(*), avg(b) FROM t2 WHERE {which}");
    let mut query = on.prepare(&sql)?;
    for i in 0..count {
        query.query_row([of(i)], |row| row.get::<_, i64>(0))?;
    }
    Ok(())
}

/// A number below a million, spelled out in English.
#[must_use]
pub fn words(number: i64) -> String {
    const ONES: [&str; 20] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 10] =
        ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
    let number = number.unsigned_abs() % 1_000_000;
    let with_rest = |head: String, rest: u64| match rest {
        0 => head,
        rest => format!("{head} {}", words(rest as i64)),
    };
    match number {
        0..20 => ONES[number as usize].to_owned(),
        20..100 => with_rest(TENS[number as usize / 10].to_owned(), number % 10),
        100..1_000 => with_rest(format!("{} hundred", words(number as i64 / 100)), number % 100),
        _ => with_rest(format!("{} thousand", words(number as i64 / 1_000)), number % 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelled() {
        assert_eq!(words(0), "zero");
        assert_eq!(words(13), "thirteen");
        assert_eq!(words(50), "fifty");
        assert_eq!(words(99_999), "ninety nine thousand nine hundred ninety nine");
        assert_eq!(words(70_014), "seventy thousand fourteen");
    }

    #[test]
    fn the_script_is_1010_transactions_and_leaves_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        let sizes = Sizes { single: 1_000, ..Sizes::small() };
        let mut script = Script::new(5, sizes);
        let mut commits = 0;
        let mut left = Vec::new();
        for number in 0..=STEPS.len() {
            let mut commit = |on: &Connection| {
                commits += 1;
                on.execute_batch("COMMIT")
            };
            script.step(number, &connection, &mut commit).unwrap();
            let schema = "SELECT count(*) FROM sqlite_schema";
            left.push(connection.query_row(schema, [], |row| row.get::<_, i64>(0)).unwrap());
            if number == 9 {
                let count = "SELECT (SELECT count(*) FROM t1) * 10000 + count(*) FROM t2";
                let rows: i64 = connection.query_row(count, [], |row| row.get(0)).unwrap();
                assert_eq!(rows, 15_002_000);
            }
        }
        // Three tables and three indexes are made in transactions of their own.
        assert_eq!(commits, 1_010 + 6);
        assert_eq!(left, [1, 2, 4, 4, 4, 6, 6, 6, 6, 6, 6, 6, 0, 0]);
    }
}
