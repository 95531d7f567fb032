//! Statements: changes, large and small, some of which break a constraint with their last row;
//! schemas that change; pragmas; queries.

use esker_harness::random::Random;

use super::script::{Main, SCHEMAS, Setup};

/// The tables of one database.
pub fn tables(schema: &str) -> String {
    format!(
        "CREATE TABLE {schema}.t(id INTEGER PRIMARY KEY, k INTEGER CHECK(k < 900), v TEXT);
         CREATE INDEX {schema}.t_k ON t(k);
         CREATE TABLE {schema}.u(x UNIQUE NOT NULL, y);
         CREATE TABLE {schema}.p(id INTEGER PRIMARY KEY, name TEXT);
         CREATE TABLE {schema}.q(id INTEGER PRIMARY KEY,
             p REFERENCES p(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
         CREATE TABLE {schema}.l(what, n);
         CREATE TRIGGER {schema}.t_gone AFTER DELETE ON t WHEN old.k % 3 = 0
             BEGIN INSERT INTO l VALUES ('gone', old.id); END;
         CREATE TRIGGER {schema}.u_new BEFORE INSERT ON u WHEN new.x % 37 = 36
             BEGIN SELECT RAISE(FAIL, 'no such number'); END;
         CREATE TRIGGER {schema}.u_more BEFORE UPDATE ON u WHEN new.x % 53 = 52
             BEGIN SELECT RAISE(ROLLBACK, 'no more'); END;
         INSERT INTO {schema}.u VALUES (1, 'one'), (40, 'forty');
         INSERT INTO {schema}.p VALUES (1, 'a'), (2, 'b'), (3, 'c');
         INSERT INTO {schema}.q(p) VALUES (1), (1), (2);
         INSERT INTO {schema}.t(k, v) SELECT value, printf('%.*c', 60, 'v') FROM
             (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n
              WHERE value < 30) SELECT value FROM n)"
    )
}

/// Any statement.
pub fn any(random: &Random, setup: &Setup) -> String {
    let schema = SCHEMAS[random.index(setup.files)];
    match random.below(24) {
        0..5 => few(random, schema),
        5..8 => many(random, schema),
        8..11 => breaking(random, schema),
        11..13 => less(random, schema),
        13..16 => across(random, setup),
        16..18 => of_the_schema(random, schema),
        18..22 => pragma(random, setup, schema),
        _ => select(random, setup),
    }
}

fn text(random: &Random, most: u64) -> String {
    let letter = char::from(b'a' + random.below(26) as u8);
    format!("printf('%d %.*c', {}, {}, '{letter}')", random.below(1000), 1 + random.below(most))
}

/// Numbers from `first` on.
fn numbers(first: u64, count: u64) -> String {
    let last = first + count;
    format!(
        "(WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})
          SELECT i FROM n)"
    )
}

fn few(random: &Random, schema: &str) -> String {
    let (key, value) = (random.below(100), text(random, 300));
    match random.below(6) {
        0..3 => format!("INSERT INTO {schema}.t(k, v) VALUES ({key}, {value})"),
        3 => format!("UPDATE {schema}.t SET v = {value} WHERE id % 7 = {key} % 7"),
        4 => format!("INSERT INTO {schema}.l VALUES ('few', {key}) RETURNING n"),
        _ => format!("DELETE FROM {schema}.t WHERE k = {key}"),
    }
}

fn many(random: &Random, schema: &str) -> String {
    let (key, value, rows) = (random.below(5), text(random, 400), numbers(1, random.below(90)));
    match random.below(5) {
        0..3 => format!("INSERT INTO {schema}.t(k, v) SELECT i, {value} || i FROM {rows}"),
        3 => format!("UPDATE {schema}.t SET v = {value} || id, k = k + 1 WHERE id % 5 <> {key}"),
        _ => format!("INSERT INTO {schema}.l SELECT {value}, i FROM {rows}"),
    }
}

/// What breaks a constraint, mostly after it has changed something.
fn breaking(random: &Random, schema: &str) -> String {
    let or = ["", "OR ABORT", "OR FAIL", "OR ROLLBACK", "OR IGNORE", "OR REPLACE"];
    let (or, first) = (or[random.index(or.len())], 100 + random.below(1000));
    let (value, rows) = (text(random, 500), numbers(first, random.below(60)));
    match random.below(8) {
        0..3 => format!(
            "INSERT {or} INTO {schema}.u SELECT i, {value} FROM {rows}
             UNION ALL SELECT 1, 'again'"
        ),
        3 => format!("UPDATE {or} {schema}.u SET x = x + {}", 1 + random.below(40)),
        4 => format!("UPDATE {or} {schema}.t SET k = k + 890, v = {value}"),
        5 => format!("INSERT {or} INTO {schema}.u VALUES (NULL, {value})"),
        6 => format!("INSERT INTO {schema}.q(p) VALUES ({})", random.below(12)),
        _ => format!("INSERT {or} INTO {schema}.p VALUES ({}, {value})", random.below(6)),
    }
}

fn less(random: &Random, schema: &str) -> String {
    match random.below(6) {
        0 => format!("DELETE FROM {schema}.t"),
        1 => format!("DELETE FROM {schema}.p WHERE id % 3 = {}", random.below(3)),
        2 => format!("DELETE FROM {schema}.u WHERE x > 40"),
        3 => format!("DELETE FROM {schema}.l"),
        _ => format!("DELETE FROM {schema}.t WHERE id % 4 <> {}", random.below(4)),
    }
}

/// From one database into another, where there are several.
fn across(random: &Random, setup: &Setup) -> String {
    let from = SCHEMAS[random.index(setup.files)];
    let to = SCHEMAS[random.index(setup.files)];
    let key = random.below(3);
    match random.below(4) {
        0..2 => format!("INSERT INTO {to}.t(k, v) SELECT k, v FROM {from}.t WHERE id % 3 = {key}"),
        2 => format!("DELETE FROM {to}.t WHERE k IN (SELECT k FROM {from}.t WHERE id % 2 = 0)"),
        _ => format!("INSERT OR IGNORE INTO {to}.u SELECT id, v FROM {from}.t"),
    }
}

fn of_the_schema(random: &Random, schema: &str) -> String {
    let n = random.below(3);
    match random.below(10) {
        0 => format!("CREATE TABLE {schema}.x{n}(a, b)"),
        1 => format!("CREATE TABLE {schema}.x{n} AS SELECT * FROM {schema}.t"),
        2..4 => format!("DROP TABLE {schema}.x{n}"),
        4 => format!("CREATE INDEX {schema}.i{n} ON t(v, k)"),
        5 => format!("DROP INDEX {schema}.i{n}"),
        6 => format!("ALTER TABLE {schema}.l ADD COLUMN c{n} DEFAULT {n}"),
        7 => format!("CREATE TEMP TABLE x{n} AS SELECT * FROM {schema}.u"),
        8 => format!("REINDEX {schema}.t_k"),
        _ => format!("ANALYZE {schema}"),
    }
}

fn pragma(random: &Random, setup: &Setup, schema: &str) -> String {
    let n = random.below(40);
    let one_of = |values: &[&str]| values[random.index(values.len())].to_owned();
    // Without the name of a database; over a store as `main` these are answered and not obeyed.
    if setup.main != Main::Store && random.below(4) == 0 {
        return match random.below(2) {
            0 => format!("PRAGMA locking_mode = {}", one_of(&["exclusive", "exclusive", "normal"])),
            _ => {
                let modes = ["delete", "truncate", "persist", "memory"];
                format!("PRAGMA journal_mode = {}", one_of(&modes))
            }
        };
    }
    match random.below(22) {
        0..4 => format!("PRAGMA {schema}.incremental_vacuum({n})"),
        4..7 => format!("VACUUM {schema}"),
        7..9 => {
            format!("PRAGMA {schema}.cache_size = {}", one_of(&["1", "3", "10", "-30", "2000"]))
        }
        9 => format!("PRAGMA {schema}.cache_spill = {}", one_of(&["on", "off", "2"])),
        10..12 => {
            let level = one_of(&["off", "normal", "full", "extra", "1", "2"]);
            format!("PRAGMA {schema}.synchronous = {level}")
        }
        12 => format!("PRAGMA {schema}.synchronous"),
        13 if setup.connections == 1 => {
            let mode = one_of(&["delete", "truncate", "persist", "memory"]);
            format!("PRAGMA {schema}.journal_mode = {mode}")
        }
        14 => format!("PRAGMA {schema}.journal_size_limit = {}", one_of(&["-1", "0", "4000"])),
        15 => format!("PRAGMA {schema}.secure_delete = {}", one_of(&["on", "off", "fast"])),
        16 => {
            let mode = one_of(&["none", "full", "incremental"]);
            format!("PRAGMA {schema}.auto_vacuum = {mode}")
        }
        17 if setup.connections == 1 => format!("PRAGMA {schema}.page_size = {}", 512 << (n % 5)),
        18 => format!("PRAGMA {schema}.user_version = {n}"),
        19 => format!("PRAGMA foreign_keys = {}", one_of(&["on", "on", "off"])),
        20 => format!("PRAGMA {schema}.max_page_count = {}", 20 + 8 * n),
        _ => format!("PRAGMA {}", one_of(&["freelist_count", "page_count", "foreign_key_check"])),
    }
}

pub fn select(random: &Random, setup: &Setup) -> String {
    let schema = SCHEMAS[random.index(setup.files)];
    let other = SCHEMAS[random.index(setup.files)];
    match random.below(6) {
        0 => format!("SELECT count(*), sum(k), sum(length(v)), max(id) FROM {schema}.t"),
        1 => format!("SELECT id, k, v FROM {schema}.t ORDER BY k DESC, id LIMIT 7"),
        2 => format!("SELECT x, y FROM {schema}.u"),
        3 => format!("SELECT q.id, name FROM {schema}.q LEFT JOIN {schema}.p ON p = p.id"),
        4 => format!("SELECT a.id, b.id FROM {schema}.t a JOIN {other}.t b USING (k) LIMIT 20"),
        _ => format!("SELECT type, name, sql FROM {schema}.sqlite_schema"),
    }
}
