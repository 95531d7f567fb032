//! The operations on databases: traces of transactions, from a seed.

use esker_harness::random::Random;
use esker_pages::{Allocation, Options};

use super::disk::small;

/// A statement, and whether it breaks a constraint after it has changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub sql: String,
    pub breaks: bool,
}

/// What is done at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Transaction {
        body: Vec<Statement>,
        commits: bool,
    },
    /// `VACUUM` into pages of this size.
    PageSize(u32),
    Pin(u8),
    Unpin(u8),
    /// Whether commits wait for their sync.
    Synchronous(bool),
    /// Has a reader stay on what is there.
    Hold,
    /// Makes the file of the first database shorter.
    Compact,
    /// Closes the databases and opens them.
    Reopen,
}

/// A kind of trace.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
    pub page_size: u32,
    /// Pages of SQLite's cache: what does not fit goes out early.
    pub cache_pages: u32,
    pub rows: u64,
    /// The databases; all but the first are attached.
    pub files: &'static [&'static str],
    pub is_relaxed: bool,
    pub auto_vacuum: &'static str,
    pub options: Options,
    steps: fn(&Random) -> Vec<Step>,
}

impl Case {
    pub fn steps(&self, seed: u64) -> Vec<Step> {
        (self.steps)(&Random::new(seed))
    }

    /// The same with `rows` rows, more than the cache keeps.
    pub fn of_rows(mut self, rows: u64) -> Self {
        (self.rows, self.cache_pages) = (rows, 10);
        self
    }

    /// The same, over stores with this allocation.
    pub fn over(mut self, allocation: Allocation) -> Self {
        self.options.allocation = allocation;
        self.options.spare_percent = 10;
        self
    }
}

const ONE: &[&str] = &["main.db"];
const TWO: &[&str] = &["main.db", "other.db"];
const THREE: &[&str] = &["main.db", "other.db", "third.db"];

/// All kinds.
pub fn cases() -> Vec<Case> {
    let case = Case {
        name: "small transactions",
        page_size: 512,
        cache_pages: 2000,
        rows: 60,
        files: ONE,
        is_relaxed: false,
        auto_vacuum: "none",
        options: small(),
        steps: small_ones,
    };
    let whole = Options { delta_bytes: 0, ..small() };
    vec![
        Case { name: "spilled", page_size: 1024, cache_pages: 10, steps: spilled, ..case.clone() },
        Case { name: "savepoints", cache_pages: 10, steps: savepoints, ..case.clone() },
        Case { name: "vacuum", auto_vacuum: "full", steps: vacuums, ..case.clone() },
        Case { name: "pinned", options: whole, steps: pinned, ..case.clone() },
        Case { name: "relaxed", is_relaxed: true, steps: relaxed, ..case.clone() },
        Case { name: "attached", files: TWO, rows: 20, steps: attached, ..case.clone() },
        Case { name: "attached, cut", auto_vacuum: "full", steps: cut, ..several(&case, TWO) },
        Case { name: "three", auto_vacuum: "incremental", steps: three, ..several(&case, THREE) },
        case,
    ]
}

/// Several files, of which transactions are larger than the cache.
fn several(case: &Case, files: &'static [&'static str]) -> Case {
    Case { files, rows: 20, cache_pages: 10, ..case.clone() }
}

fn sound(sql: String) -> Statement {
    Statement { sql, breaks: false }
}

fn commit(body: Vec<Statement>) -> Step {
    Step::Transaction { body, commits: true }
}

/// Text that no other statement writes.
fn text(random: &Random, len: u64) -> String {
    let letter = char::from(b'a' + random.below(26) as u8);
    format!("printf('%d %.*c', {}, {len}, '{letter}')", random.below(1_000_000))
}

/// A statement that changes a few rows.
fn few(random: &Random) -> Statement {
    let len = 10 + random.below(90);
    let (value, key) = (text(random, len), random.below(100));
    sound(match random.below(6) {
        0..3 => format!("INSERT INTO t(k, v) VALUES ({key}, {value})"),
        3..5 => format!("UPDATE t SET v = {value} WHERE id % 23 = {key} % 23"),
        _ => format!("DELETE FROM t WHERE k = {key}"),
    })
}

/// One that changes many.
fn many(random: &Random) -> Statement {
    let len = 60 + random.below(200);
    let (value, key) = (text(random, len), random.below(4));
    sound(match random.below(4) {
        0..3 => format!("UPDATE t SET v = {value} || id, k = k + 1 WHERE id % 4 <> {key}"),
        _ => format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
             INSERT INTO t(k, v) SELECT i, {value} || i FROM n"
        ),
    })
}

/// One that breaks a constraint with its last row.
fn breaking(random: &Random) -> Statement {
    let first = 1000 + random.below(1_000_000);
    let sql = format!("INSERT INTO u VALUES ({first}), ({first} + 1), (1)");
    Statement { sql, breaks: true }
}

fn some(random: &Random, most: u64, one: fn(&Random) -> Statement) -> Vec<Statement> {
    (0..=random.below(most)).map(|_| one(random)).collect()
}

/// Keeps the table from growing without end.
fn fewer() -> Statement {
    sound("DELETE FROM t WHERE id NOT IN (SELECT id FROM t ORDER BY id DESC LIMIT 60)".to_owned())
}

fn small_ones(random: &Random) -> Vec<Step> {
    let step = |random: &Random| match random.below(12) {
        0..9 => commit(some(random, 3, few)),
        9 => commit(vec![few(random), breaking(random), few(random)]),
        10 => Step::Transaction { body: some(random, 3, few), commits: false },
        _ => Step::Reopen,
    };
    (0..24).map(|_| step(random)).collect()
}

fn spilled(random: &Random) -> Vec<Step> {
    let step = |random: &Random| match random.below(6) {
        0 => commit(some(random, 3, few)),
        1 => Step::Transaction { body: some(random, 2, many), commits: false },
        _ => {
            let mut body = some(random, 2, many);
            body.push(fewer());
            commit(body)
        }
    };
    (0..8).map(|_| step(random)).collect()
}

fn savepoints(random: &Random) -> Vec<Step> {
    let step = |random: &Random| {
        let mut body = some(random, 2, few);
        body.push(sound("SAVEPOINT a".to_owned()));
        let one = if random.below(2) == 0 { few } else { many };
        body.extend(some(random, 2, one));
        body.push(breaking(random));
        body.push(sound("SAVEPOINT b".to_owned()));
        body.extend(some(random, 2, few));
        let end = ["RELEASE b", "ROLLBACK TO b", "ROLLBACK TO a", "RELEASE a"];
        body.push(sound(end[random.below(4) as usize].to_owned()));
        body.push(few(random));
        body.push(fewer());
        Step::Transaction { body, commits: random.below(5) > 0 }
    };
    (0..10).map(|_| step(random)).collect()
}

fn vacuums(random: &Random) -> Vec<Step> {
    let step = |random: &Random| match random.below(10) {
        0..3 => commit(some(random, 3, few)),
        3 => commit(vec![many(random), fewer()]),
        4 => commit(vec![sound("DELETE FROM t WHERE id % 2 = 0".to_owned())]),
        5 => Step::Reopen,
        6..8 => Step::Compact,
        _ => Step::PageSize(512 << random.below(4)),
    };
    (0..14).map(|_| step(random)).collect()
}

fn pinned(random: &Random) -> Vec<Step> {
    let step = |random: &Random| match random.below(13) {
        0..7 => commit(vec![many(random), fewer()]),
        7..9 => commit(some(random, 3, few)),
        9 => Step::Unpin(random.below(2) as u8),
        10 => Step::Reopen,
        11 => Step::Compact,
        _ => Step::Pin(random.below(2) as u8),
    };
    let mut steps = vec![commit(vec![few(random)]), Step::Pin(0)];
    steps.extend((0..16).map(|_| step(random)));
    steps
}

fn relaxed(random: &Random) -> Vec<Step> {
    let step = |random: &Random| match random.below(15) {
        0..9 => commit(some(random, 3, few)),
        9 => commit(vec![many(random), fewer()]),
        13 => Step::Compact,
        10 => Step::Synchronous(true),
        11 => Step::Synchronous(false),
        12 => Step::Transaction { body: some(random, 3, few), commits: false },
        _ => Step::Reopen,
    };
    (0..30).map(|_| step(random)).collect()
}

/// The same in another file.
fn within(schema: &str, statement: Statement) -> Statement {
    let sql = ["INTO ", "UPDATE ", "FROM "].iter().fold(statement.sql, |sql, word| {
        let sql = sql.replace(&format!("{word}t"), &format!("{word}{schema}.t"));
        sql.replace(&format!("{word}u"), &format!("{word}{schema}.u"))
    });
    Statement { sql, ..statement }
}

/// What makes a file longer than its database is when the transaction is committed: rows are
/// removed that were there, or are dropped again after they were written early.
fn shrinking(random: &Random, schema: &str) -> Vec<Statement> {
    let control = |sql: &str| sound(sql.to_owned());
    let mut body = vec![within(schema, few(random))];
    match random.below(5) {
        0 => body.push(within(schema, breaking(random))),
        1 => {
            body.push(control("SAVEPOINT a"));
            body.extend(some(random, 2, many).into_iter().map(|one| within(schema, one)));
            body.push(control(["ROLLBACK TO a", "RELEASE a"][random.below(2) as usize]));
            body.push(within(schema, fewer()));
        }
        2 => body.push(sound(format!("DELETE FROM {schema}.t WHERE id % 3 <> 0"))),
        3 => {
            let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
                WHERE i < 60) SELECT 5000 + i % 59 FROM n";
            let sql = format!("INSERT INTO {schema}.u {rows}");
            body.push(Statement { sql, breaks: true });
        }
        _ => body.push(within(schema, many(random))),
    }
    if random.below(3) == 0 {
        body.push(sound(format!("PRAGMA {schema}.incremental_vacuum")));
    }
    body
}

fn in_all(random: &Random, schemas: &[&str]) -> Vec<Step> {
    let step = |random: &Random| {
        let left_out = random.below(4 * schemas.len() as u64) as usize;
        let parts = schemas.iter().enumerate().filter(|(at, _)| *at != left_out);
        let body = parts.flat_map(|(_, schema)| shrinking(random, schema)).collect();
        Step::Transaction { body, commits: random.below(8) > 0 }
    };
    (0..10).map(|_| step(random)).collect()
}

fn cut(random: &Random) -> Vec<Step> {
    in_all(random, &["main", "b"])
}

fn three(random: &Random) -> Vec<Step> {
    in_all(random, &["main", "b", "c"])
}

fn attached(random: &Random) -> Vec<Step> {
    let other = |random: &Random| within("b", few(random));
    let step = |random: &Random| {
        let body = match random.below(10) {
            0 => vec![few(random)],
            1 => vec![other(random)],
            2 => vec![few(random), other(random), breaking(random), many(random), fewer()],
            _ => vec![few(random), other(random)],
        };
        Step::Transaction { body, commits: random.below(8) > 0 }
    };
    (0..14).map(|_| step(random)).collect()
}
