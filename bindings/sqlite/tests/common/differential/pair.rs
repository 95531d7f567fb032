//! SQLite over the VFS and a plain SQLite next to each other.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Device, Open};
use esker_pages::{Missing, Options};
use esker_sqlite::open_stores::Access;
use esker_sqlite::test_mount::{self, Mounted};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Rows, ffi};

use super::script::{Main, SCHEMAS, Setup, Step};
use super::statements::tables;

const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE
    .union(OpenFlags::SQLITE_OPEN_CREATE)
    .union(OpenFlags::SQLITE_OPEN_URI)
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// What differs, as the two sides said it.
pub type Judged = Result<(), String>;

/// One of the two.
struct Side {
    vfs: &'static str,
    folder: PathBuf,
    connections: Vec<Option<Connection>>,
    /// How many copies were made.
    copies: usize,
}

/// Both, on files of their own.
pub struct Pair {
    setup: Setup,
    ours: Side,
    plain: Side,
    /// How many copies SQLite's backup API made.
    pub copied: u64,
    _mounted: Mounted,
    _folder: tempfile::TempDir,
}

/// A folder in memory, where there is one: nothing here fails by a crash.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn options(setup: &Setup) -> Options {
    let mut options = Options::new().page_size(512).segment_bytes(16 * 1024);
    options.spill_bytes = 24 * 512;
    options.checkpoint_bytes = 24 * 1024;
    options.relaxed_interval = setup.has_thread.then_some(Duration::from_millis(1));
    options.allocation = setup.allocation;
    options
}

/// Has stores in memory found in a folder.
fn mount(folder: &Path, options: Options) -> Mounted {
    let device = MemoryDevice::new();
    let open = move |name: &str, access: Access| {
        let is_there = device.list()?.iter().any(|there| there == name);
        let is_new = !is_there && access == Access::Write(Missing::Create);
        let how = if is_new { Open::CreateNew } else { Open::Existing };
        Ok((device.open(name, how, Caching::Buffered)?, options.clone()))
    };
    test_mount::mount(folder, Arc::new(open))
}

impl Side {
    fn new(vfs: &'static str, folder: &Path, setup: &Setup) -> Self {
        let mut side = Self { vfs, folder: folder.join(vfs), connections: Vec::new(), copies: 0 };
        std::fs::create_dir(&side.folder).unwrap();
        side.connections.resize_with(setup.connections, || None);
        side
    }

    fn uri(&self, schema: &str) -> String {
        self.uri_by(schema, self.vfs)
    }

    fn uri_by(&self, name: &str, vfs: &str) -> String {
        format!("file:{}/{name}.db?vfs={vfs}", self.folder.display())
    }

    fn main(&self, setup: &Setup) -> String {
        match setup.main {
            Main::Store => self.uri("main"),
            Main::Plain => self.uri_by("main", "unix"),
            Main::Memory => ":memory:".to_owned(),
        }
    }

    /// A connection to all files.
    fn connect(&self, setup: &Setup) -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(self.main(setup), FLAGS)?;
        if setup.main == Main::Memory {
            connection.execute_batch(&tables("main"))?;
        }
        connection.busy_timeout(Duration::ZERO)?;
        for schema in &SCHEMAS[1..setup.files] {
            connection.execute_batch(&format!("ATTACH '{}' AS {schema}", self.uri(schema)))?;
        }
        connection.execute_batch("PRAGMA temp_store = memory; PRAGMA foreign_keys = on")?;
        for schema in &SCHEMAS[..setup.files] {
            let pages = setup.cache_pages;
            connection.execute_batch(&format!("PRAGMA {schema}.cache_size = {pages}"))?;
        }
        Ok(connection)
    }

    /// Makes the files. Where there are several connections, the plain side lets readers go on
    /// concurrently with a writer by its log.
    fn prepare(&self, setup: &Setup) {
        let connection = self.connect(setup).unwrap();
        for (at, schema) in SCHEMAS[..setup.files].iter().enumerate() {
            if !setup.lasting().contains(schema) {
                continue;
            }
            let (size, vacuum) = (setup.page_sizes[at], setup.auto_vacuums[at]);
            let mode = if setup.connections > 1 { "wal" } else { "delete" };
            connection
                .execute_batch(&format!(
                    "PRAGMA {schema}.page_size = {size}; PRAGMA {schema}.auto_vacuum = {vacuum};
                     PRAGMA {schema}.journal_mode = {mode}; {}",
                    tables(schema)
                ))
                .unwrap();
        }
    }

    fn connection(&mut self, at: usize, setup: &Setup) -> &mut Connection {
        if self.connections[at].is_none() {
            self.connections[at] = Some(self.connect(setup).unwrap());
        }
        self.connections[at].as_mut().unwrap()
    }

    /// A new ordinary file.
    fn copy(&mut self) -> Connection {
        self.copies += 1;
        let uri = self.uri_by(&format!("copy{}", self.copies), "unix");
        Connection::open_with_flags(uri, FLAGS).unwrap()
    }

    /// Does one step, by a thread of its own where that is wanted.
    fn step(&mut self, step: &Step, setup: &Setup) -> String {
        if !setup.has_threads {
            return self.apply(step, setup);
        }
        thread::scope(|scope| scope.spawn(|| self.apply(step, setup)).join().unwrap())
    }

    /// Does one step; what came of it.
    fn apply(&mut self, step: &Step, setup: &Setup) -> String {
        match step {
            Step::Run { connection, sql } => {
                let connection = self.connection(*connection, setup);
                let said = run(connection, sql);
                said + &counters(connection)
            }
            Step::Beside { connection, select, sql } => {
                let connection = self.connection(*connection, setup);
                let said = run_while_reading(connection, select, sql);
                said + &counters(connection)
            }
            Step::Attach { connection, schema, is_to_be } => {
                let sql = match is_to_be {
                    true => format!("ATTACH '{}' AS {schema}", self.uri(schema)),
                    false => format!("DETACH {schema}"),
                };
                run(self.connection(*connection, setup), &sql)
            }
            Step::BackUp { connection, schema, pages } => {
                let mut copy = self.copy();
                let from = self.connection(*connection, setup);
                let said = back_up(from, schema, &mut copy, "main", *pages);
                said + &dump_of(&copy, &["main"])
            }
            Step::Restore { connection, schema, page_size, rows } => {
                let copy = self.copy();
                let more = "INSERT INTO t(k, v) SELECT k, v FROM t LIMIT";
                let make = format!("PRAGMA page_size = {page_size}; {}", tables("main"));
                copy.execute_batch(&format!("{make}; {more} {rows}")).unwrap();
                let to = self.connection(*connection, setup);
                // Where a copy is refused halfway SQLite says nothing of what is there.
                let said = back_up(&copy, "main", to, schema, -1);
                said + &dump_of(to, &[schema])
            }
            Step::VacuumInto { connection, schema, is_store } => {
                self.copies += 1;
                let vfs = if *is_store { self.vfs } else { "unix" };
                let uri = self.uri_by(&format!("copy{}", self.copies), vfs);
                let connection = self.connection(*connection, setup);
                let said = run(connection, &format!("VACUUM {schema} INTO '{uri}'"));
                match Connection::open_with_flags(uri, FLAGS & !OpenFlags::SQLITE_OPEN_CREATE) {
                    Ok(copy) => said + &dump_of(&copy, &["main"]),
                    Err(_) => said + "no copy",
                }
            }
            Step::Reopen { connection } => {
                self.connections[*connection] = None;
                String::new()
            }
            Step::Judge => dump(&self.connect(setup).unwrap(), setup),
        }
    }
}

/// Copies a database into another: what is said of each step.
fn back_up(from: &Connection, of: &str, to: &mut Connection, into: &str, pages: i32) -> String {
    let backup = match Backup::new_with_names(from, of, to, into) {
        Ok(backup) => backup,
        Err(error) => return failed(&error),
    };
    for _ in 0..1000 {
        match backup.step(pages) {
            Ok(StepResult::More) => {}
            Ok(said) => return format!("{said:?}\n"),
            Err(error) => return failed(&error),
        }
    }
    "no end\n".to_owned()
}

fn failed(error: &rusqlite::Error) -> String {
    let code = error.sqlite_error().map(|error| error.extended_code);
    format!("error {code:?}\n")
}

fn is_busy(said: &str) -> bool {
    said.contains(&format!("error {:?}\n", Some(ffi::SQLITE_BUSY)))
}

/// Reads up to `most` rows. Says whether there may be more.
fn read(rows: &mut Rows<'_>, columns: usize, most: usize, said: &mut String) -> bool {
    for _ in 0..most {
        match rows.next() {
            Ok(None) => return false,
            Err(error) => {
                said.push_str(&failed(&error));
                return false;
            }
            Ok(Some(row)) => {
                for column in 0..columns {
                    match row.get_ref(column).unwrap() {
                        ValueRef::Text(text) => said.push_str(&String::from_utf8_lossy(text)),
                        value => write!(said, "{value:?}").unwrap(),
                    }
                    said.push('|');
                }
                said.push('\n');
            }
        }
    }
    true
}

/// Runs a statement: its rows, or the code of the error.
fn run(connection: &Connection, sql: &str) -> String {
    let mut said = String::new();
    match connection.prepare(sql) {
        Ok(mut statement) => {
            let columns = statement.column_count();
            read(&mut statement.raw_query(), columns, usize::MAX, &mut said);
        }
        Err(error) => said.push_str(&failed(&error)),
    }
    said
}

/// Runs a statement while another one has rows to give.
fn run_while_reading(connection: &Connection, select: &str, sql: &str) -> String {
    let mut said = String::new();
    let mut statement = match connection.prepare(select) {
        Ok(statement) => statement,
        Err(error) => return failed(&error),
    };
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    let has_more = read(&mut rows, columns, 2, &mut said);
    said.push_str(&run(connection, sql));
    if has_more {
        read(&mut rows, columns, usize::MAX, &mut said);
    }
    said
}

/// What a connection counts, and whether a transaction is open.
fn counters(connection: &Connection) -> String {
    let counted = run(connection, "SELECT changes(), total_changes(), last_insert_rowid()");
    format!("{counted}{}", connection.is_autocommit())
}

/// All that the databases hold.
fn dump(connection: &Connection, setup: &Setup) -> String {
    dump_of(connection, setup.lasting())
}

fn dump_of(connection: &Connection, schemas: &[&str]) -> String {
    let mut all = String::new();
    for schema in schemas {
        let tables = format!(
            "SELECT name FROM {schema}.sqlite_schema WHERE type = 'table' AND sql NOT NULL"
        );
        let tables = run(connection, &tables);
        let rows = tables.lines().map(|name| {
            let name = name.trim_end_matches('|');
            format!("SELECT rowid, * FROM {schema}.{name}")
        });
        let asked = ["page_count", "freelist_count", "page_size", "auto_vacuum", "user_version"];
        let asked = asked.into_iter().chain(["integrity_check", "foreign_key_check"]);
        let asked = asked.map(|name| format!("PRAGMA {schema}.{name}"));
        let schema = format!("SELECT * FROM {schema}.sqlite_schema");
        for sql in rows.chain(asked).chain([schema]) {
            write!(all, "{sql}\n{}", run(connection, &sql)).unwrap();
        }
    }
    all
}

/// The first line that differs, with what was asked before.
fn difference(what: &str, ours: &str, plain: &str) -> Judged {
    if ours == plain {
        return Ok(());
    }
    let lines = || ours.lines().chain(["(end)"]).zip(plain.lines().chain(["(end)"]));
    let at = lines().position(|(ours, plain)| ours != plain).unwrap_or(0);
    let asked = ours.lines().take(at).filter(|line| line.contains(' ')).last().unwrap_or("");
    let (ours, plain) = lines().nth(at).unwrap_or_default();
    Err(format!("{what}\n  after  {asked:.200}\n  ours   {ours:.200}\n  plain  {plain:.200}"))
}

impl Pair {
    pub fn new(setup: &Setup) -> Self {
        esker_sqlite::link().unwrap();
        let folder = folder();
        let ours = Side::new("esker", folder.path(), setup);
        let plain = Side::new("unix", folder.path(), setup);
        let mounted = mount(&ours.folder, options(setup));
        ours.prepare(setup);
        plain.prepare(setup);
        Self { setup: setup.clone(), ours, plain, copied: 0, _mounted: mounted, _folder: folder }
    }

    /// Does one step on both sides and compares what they say.
    pub fn apply(&mut self, step: &Step) -> Judged {
        let is_idle =
            |side: &Side| side.connections.iter().flatten().all(Connection::is_autocommit);
        // With a journal no connection reads while another one writes.
        let is_alone = self.setup.connections == 1 && !is_idle(&self.plain);
        // And none where a lock may be kept.
        if matches!(step, Step::Judge) && (is_alone || self.setup.main != Main::Store) {
            return Ok(());
        }
        let mut ours = self.ours.step(step, &self.setup);
        let plain = self.plain.step(step, &self.setup);
        self.copied += u64::from(plain.starts_with("Done"));
        // A turn to write is kept for a while for a connection that was refused before.
        for _ in 0..3 {
            if is_busy(&ours) && !is_busy(&plain) {
                thread::sleep(Duration::from_millis(6));
                ours = self.ours.step(step, &self.setup);
            }
        }
        difference(&format!("{step:?}"), &ours, &plain)
    }

    /// Closes everything, and compares what is there when it is opened again; and nothing else is.
    pub fn finish(&mut self) -> Judged {
        for side in [&mut self.ours, &mut self.plain] {
            side.connections.clear();
        }
        let [ours, plain] = [&self.ours, &self.plain].map(|side| {
            let connection = side.connect(&self.setup).unwrap();
            dump(&connection, &self.setup)
        });
        difference("closed and opened", &ours, &plain)?;
        let connection = self.ours.connect(&self.setup).unwrap();
        let is_store = |schema: &&&str| **schema != "main" || self.setup.main == Main::Store;
        for schema in self.setup.lasting().iter().filter(is_store) {
            let said = run(&connection, &format!("PRAGMA {schema}.esker_check"));
            if !said.contains("\"accounted\": true") {
                return Err(format!("{schema}: {said}"));
            }
        }
        drop(connection);
        let is_plain = |name: &str| {
            name.starts_with("copy")
                || name.starts_with("main.db") && self.setup.main == Main::Plain
        };
        let left = std::fs::read_dir(&self.ours.folder).unwrap().flatten();
        let left: Vec<_> = left
            .filter(|entry| entry.file_name().to_str().is_none_or(|name| !is_plain(name)))
            .collect();
        if left.is_empty() { Ok(()) } else { Err(format!("left in the folder: {left:?}")) }
    }
}
