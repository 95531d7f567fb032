//! Bytes of a database that was closed are damaged, its sectors are lost, its file is cut: SQLite
//! over the VFS answers the rows that were there, or an error. Nothing panics, and nothing hangs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/simulated/mod.rs"]
mod simulated;

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_device::{Caching, Device, Open};
use esker_harness::counts::{Counts, assert_passes, budget};
use esker_harness::flips::{self, Judge, Sampling};
use esker_harness::image::{Image, ImageDevice};
use esker_harness::planted;
use esker_harness::violation::{Oracle, Verdict, Violation, ensure};
use esker_pages::Allocation;
use esker_pages::planted::{Bug, with};
use esker_sqlite::test_mount::{self, Mounted};
use rusqlite::{Connection, Error, OpenFlags, ffi};
use tempfile::TempDir;

use simulated::disk::{self, Disk};
use simulated::oracle::{rows, run};
use simulated::session::{connect, prepared};
use simulated::steps::{Case, Step, cases};

const SECTOR_BYTES: usize = 512;
/// Lengths to which the file is cut at budget 1, about.
const LENGTHS: u64 = 150;
/// Nothing takes longer, on however slow a machine.
const AT_MOST: Duration = Duration::from_secs(30);
/// What SQLite may say of a damaged database.
const OF_DAMAGE: [i32; 4] =
    [ffi::SQLITE_CORRUPT, ffi::SQLITE_IOERR, ffi::SQLITE_CANTOPEN, ffi::SQLITE_NOTADB];

/// What is read: the database, and its version with a name.
const ASKED: [Option<&str>; 2] = [None, Some("before")];

/// A database that was closed, with a version that has a name.
struct Specimen {
    case: Case,
    folder: TempDir,
    image: Image,
    /// The rows of each of [`ASKED`].
    held: [String; 2],
}

impl Specimen {
    fn make(allocation: Allocation) -> Self {
        let case = cases().into_iter().find(|case| case.name == "savepoints").unwrap();
        let case = case.over(allocation);
        let folder = disk::folder();
        let image = prepared(&case, folder.path());
        let disk = Disk::of_image(&image, folder.path(), &case.options);
        let connection = connect(&disk, &case).unwrap();
        let before = rows(&connection, &case).unwrap();
        connection.query_row("PRAGMA esker_pin = before", [], |_| Ok(())).unwrap();
        for step in case.steps(1) {
            let Step::Transaction { body, commits: true } = step else { continue };
            connection.execute_batch("BEGIN").unwrap();
            body.iter().for_each(|statement| run(&connection, statement).unwrap());
            connection.execute_batch("COMMIT").unwrap();
        }
        let held = [rows(&connection, &case).unwrap(), before];
        connection.close().unwrap();
        let image = Image::from_files(disk.device.files());
        drop(disk);
        assert_ne!(held[0], held[1]);
        Self { case, folder, image, held }
    }

    /// Has SQLite find what is on a device.
    fn mount(&self, device: &ImageDevice) -> Mounted {
        let (device, options) = (device.clone(), self.case.options.clone());
        let open = move |name: &str, _| {
            Ok((device.open(name, Open::Existing, Caching::Buffered)?, options.clone()))
        };
        test_mount::mount(self.folder.path(), Arc::new(open))
    }

    fn open(&self, version: Option<&str>) -> rusqlite::Result<Connection> {
        let uri = disk::uri(&self.folder.path().join(self.case.files[0]), version);
        Connection::open_with_flags(uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI)
    }

    /// Asks for everything. Every answer must be right or an error, of which each is handed on.
    fn ask(&self, device: &ImageDevice, mut failed: impl FnMut(Error) -> Verdict) -> Verdict {
        let started = Instant::now();
        let _mounted = self.mount(device);
        let mut are_read = true;
        for (version, held) in ASKED.into_iter().zip(&self.held) {
            match self.open(version).and_then(|connection| rows(&connection, &self.case)) {
                Ok(rows) => ensure(rows == *held, Oracle::DamageIsNotData, || {
                    format!("of version {version:?} other rows are read:\n{rows}")
                })?,
                Err(error) => {
                    are_read &= version.is_some();
                    failed(error)?;
                }
            }
        }
        match self.open(None).and_then(|connection| check(&connection)) {
            Ok(said) => ensure(are_read || said != ["ok"], Oracle::DamageIsNamed, || {
                "rows cannot be read, and the check finds nothing".into()
            })?,
            Err(error) => failed(error)?,
        }
        disk::ensure_no_panics()?;
        let taken = started.elapsed();
        ensure(taken < AT_MOST, Oracle::WorkIsBounded, || format!("it takes {taken:?}"))
    }

    /// Judges damages, and counts which of them were noticed.
    fn judge<T>(
        &self,
        counts: &mut Counts,
        damages: impl FnOnce(&mut Judge<'_>) -> Verdict<T>,
    ) -> Verdict<T> {
        damages(&mut |damage| {
            // Of a file without a byte a database may be made.
            if damage.image.files().all(|(_, len)| len == 0) {
                return Ok(());
            }
            let mut errors = 0;
            self.ask(&ImageDevice::new(damage.image), |error| {
                errors += 1;
                is_of_damage(&error)
            })?;
            counts.add("judged", 1);
            counts.add("noticed", (errors > 0).into());
            Ok(())
        })
    }
}

/// What SQLite's own check says.
fn check(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut check = connection.prepare("PRAGMA integrity_check")?;
    let said = check.query_map([], |row| row.get(0))?;
    said.collect()
}

fn is_of_damage(error: &Error) -> Verdict {
    let code = error.sqlite_error().map(|error| error.extended_code & 0xff);
    let is_right = code.is_some_and(|code| OF_DAMAGE.contains(&code));
    ensure(is_right, Oracle::DamageIsNamed, || format!("the answer is: {error:?}"))
}

fn every_kind(allocation: Allocation) -> Verdict<Counts> {
    let mut counts = Counts::new("sqlite-flips", format!("{allocation:?}"));
    let specimen = Specimen::make(allocation);
    let device = ImageDevice::tracking(&specimen.image);
    let unsound = |error: Error| Err(Violation::new(Oracle::Harness, error.to_string()));
    specimen.ask(&device, unsound)?;
    let touched = device.touched();
    let (image, sampling) = (&specimen.image, Sampling::one_in(1));
    let taken =
        specimen.judge(&mut counts, |judge| flips::bytes(image, &touched, sampling, judge))?;
    taken.add_to(&mut counts);
    specimen.judge(&mut counts, |judge| {
        flips::units(image, None, SECTOR_BYTES, judge)?;
        flips::cuts(image, lengths_max(), judge)?;
        flips::heads(image, lengths_max(), judge)
    })?;
    Ok(counts)
}

fn lengths_max() -> usize {
    usize::try_from(LENGTHS * budget()).unwrap_or(usize::MAX)
}

#[test]
fn damage_to_a_database_in_slots_is_an_error_or_nothing() {
    assert_passes(every_kind(Allocation::Slot));
}

#[test]
fn damage_to_a_database_in_segments_is_an_error_or_nothing() {
    assert_passes(every_kind(Allocation::Segment));
}

#[test]
fn a_head_that_is_enough_is_found() {
    let specimen = Specimen::make(Allocation::Slot);
    let heads = |_: &(), counts: &mut Counts| {
        specimen.judge(counts, |judge| flips::heads(&specimen.image, lengths_max(), judge))?;
        Ok(())
    };
    let found = planted::hunt([()], |body| with(Bug::HeadIsEnough, body), heads);
    let found = found.unwrap();
    println!("{}", found.violation);
    let mut counts = Counts::new("sqlite-planted", "HeadIsEnough");
    counts.add("judged until found", found.judged);
    counts.record().unwrap();
}
