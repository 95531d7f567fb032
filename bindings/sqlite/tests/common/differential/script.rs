//! Random scripts from a seed: several connections take turns, each with its transactions.

use esker_harness::random::Random;
use esker_pages::Allocation;

use super::statements;

/// The names by which every connection knows the databases.
pub const SCHEMAS: [&str; 3] = ["main", "b", "c"];

/// What the main database of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Main {
    Store,
    /// An ordinary file, on both sides.
    Plain,
    Memory,
}

/// What a script is run on.
#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    pub files: usize,
    pub connections: usize,
    pub main: Main,
    /// Whether databases are attached, detached and copied.
    pub has_copies: bool,
    /// Whether each connection's statements run on a thread of their own.
    pub has_threads: bool,
    pub page_sizes: [u32; 3],
    pub auto_vacuums: [&'static str; 3],
    /// Pages of SQLite's cache: what does not fit is written early.
    pub cache_pages: u32,
    pub allocation: Allocation,
    /// Whether the store's thread runs concurrently with the script.
    pub has_thread: bool,
}

/// What one connection does at once.
#[derive(Clone, Debug)]
pub enum Step {
    Run {
        connection: usize,
        sql: String,
    },
    /// Runs a statement while rows of a query are still to be read.
    Beside {
        connection: usize,
        select: String,
        sql: String,
    },
    /// Closes the connection, with whatever transaction is open, and opens it again.
    Reopen {
        connection: usize,
    },
    /// Detaches a database, or attaches it.
    Attach {
        connection: usize,
        schema: &'static str,
        is_to_be: bool,
    },
    /// Backs a database up into a new ordinary file, a number of pages at once.
    BackUp {
        connection: usize,
        schema: &'static str,
        pages: i32,
    },
    /// Puts the backup of an ordinary file with pages of this size in the place of a database.
    Restore {
        connection: usize,
        schema: &'static str,
        page_size: u32,
        rows: u64,
    },
    /// `VACUUM INTO` a new database, which is a store, or an ordinary file.
    VacuumInto {
        connection: usize,
        schema: &'static str,
        is_store: bool,
    },
    /// Compares all that is committed, through another connection.
    Judge,
}

impl Setup {
    pub fn new(seed: u64, files: usize, connections: usize) -> Self {
        let random = Random::new(seed);
        let page_size = || 512 << random.below(if random.below(4) == 0 { 5 } else { 2 });
        let auto_vacuum = || ["none", "full", "full", "incremental"][random.index(4)];
        Self {
            seed,
            files,
            connections,
            main: Main::Store,
            has_copies: false,
            has_threads: false,
            page_sizes: [page_size(), page_size(), page_size()],
            auto_vacuums: [auto_vacuum(), auto_vacuum(), auto_vacuum()],
            cache_pages: [1, 4, 10, 10, 2000][random.index(5)],
            allocation: [Allocation::Slot, Allocation::Segment][random.index(2)],
            has_thread: random.below(8) == 0,
        }
    }

    /// The same with another kind of main database.
    pub fn with_main(mut self, main: Main) -> Self {
        self.main = main;
        self
    }

    /// The same with databases that are attached, detached and copied.
    pub fn with_copies(mut self) -> Self {
        self.has_copies = true;
        self
    }

    /// The same with a thread for each connection.
    pub fn with_threads(mut self) -> Self {
        self.has_threads = true;
        self
    }

    /// The databases that last, and are compared.
    pub fn lasting(&self) -> &'static [&'static str] {
        &SCHEMAS[usize::from(self.main == Main::Memory)..self.files]
    }

    /// The steps of the script.
    pub fn steps(&self) -> Vec<Step> {
        let random = Random::new(self.seed ^ 0x5eed);
        let mut open = vec![Open::default(); self.connections];
        let mut steps = Vec::new();
        for _ in 0..24 + random.below(24) {
            let connection = random.index(self.connections);
            steps.push(self.step(&random, connection, &mut open[connection]));
            if random.below(12) == 0 {
                steps.push(Step::Judge);
            }
        }
        steps
    }

    fn step(&self, random: &Random, connection: usize, open: &mut Open) -> Step {
        if self.has_copies && random.below(6) == 0 {
            return self.copy(random, connection);
        }
        let sql = match random.below(40) {
            0 => {
                *open = Open::default();
                return Step::Reopen { connection };
            }
            1..14 => open.control(random),
            _ => statements::any(random, self),
        };
        if random.below(12) == 0 {
            return Step::Beside { connection, select: statements::select(random, self), sql };
        }
        Step::Run { connection, sql }
    }
}

impl Setup {
    fn copy(&self, random: &Random, connection: usize) -> Step {
        let lasting = self.lasting();
        let schema = lasting[random.index(lasting.len())];
        match random.below(9) {
            0..4 if self.files > 1 => {
                let schema = SCHEMAS[1 + random.index(self.files - 1)];
                Step::Attach { connection, schema, is_to_be: random.below(3) > 0 }
            }
            0..6 => Step::BackUp { connection, schema, pages: [-1, -1, 3][random.index(3)] },
            6..8 => {
                let page_size = 512 << random.below(4);
                Step::Restore { connection, schema, page_size, rows: random.below(60) }
            }
            _ => Step::VacuumInto { connection, schema, is_store: random.below(2) == 0 },
        }
    }
}

/// What a connection has begun, as far as the script knows.
#[derive(Clone, Debug, Default)]
struct Open {
    is_begun: bool,
    savepoints: Vec<char>,
}

impl Open {
    /// Begins or ends a transaction, or a part of one.
    fn control(&mut self, random: &Random) -> String {
        if !self.is_begun && self.savepoints.is_empty() && random.below(6) > 0 {
            self.is_begun = true;
            return ["BEGIN", "BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"][random.index(4)]
                .into();
        }
        match (random.below(10), self.savepoints.is_empty()) {
            (0..4, _) | (4..8, true) => {
                let name = ['p', 'q', 'r'][random.index(3)];
                if random.below(3) > 0 {
                    self.savepoints.push(name);
                    return format!("SAVEPOINT {name}");
                }
                (self.is_begun, self.savepoints) = (false, Vec::new());
                ["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"][random.index(4)].into()
            }
            (4..8, false) => {
                let at = random.index(self.savepoints.len());
                let name = self.savepoints[at];
                if random.below(2) == 0 {
                    return format!("ROLLBACK TO {name}");
                }
                self.savepoints.truncate(at);
                format!("RELEASE {name}")
            }
            _ => {
                (self.is_begun, self.savepoints) = (false, Vec::new());
                ["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"][random.index(4)].into()
            }
        }
    }
}
