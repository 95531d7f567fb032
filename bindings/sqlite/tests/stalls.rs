//! Waits between connections: a slow operation of one store does not delay another store, and
//! readers never wait.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use esker_device::forked::{Child, Ended};
use esker_device::memory::MemoryDevice;
use esker_device::wrap::{Hook, Step, StepKind, Wrapped};
use esker_device::{Caching, Device, Open};
use esker_pages::Options;
use esker_sqlite::test_mount::{self, Mounted};
use rusqlite::{Connection, OpenFlags};

use common::number;

/// Long enough for any operation that does not wait.
const LONG: Duration = Duration::from_secs(20);

fn open(path: &Path) -> rusqlite::Result<Connection> {
    esker_sqlite::link().unwrap();
    let uri = format!("file:{}?vfs=esker", path.display());
    Connection::open_with_flags(uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI)
}

/// Stops the first write to the device until it is released.
#[derive(Debug)]
struct Stop {
    arrived: Mutex<Option<Sender<()>>>,
    goes_on: Mutex<Receiver<()>>,
}

impl Hook for Stop {
    fn before(&self, step: Step) {
        if step.kind == StepKind::Write
            && let Some(arrived) = self.arrived.lock().unwrap().take()
        {
            arrived.send(()).unwrap();
            let _let_go = self.goes_on.lock().unwrap().recv_timeout(3 * LONG);
        }
    }
}

/// A store that is made slowly, in memory: found in `folder`.
struct Slow {
    arrived: Receiver<()>,
    go_on: Sender<()>,
    path: PathBuf,
    _mounted: Mounted,
}

impl Slow {
    fn mount(folder: &Path) -> Self {
        let (arrived, has_arrived) = channel();
        let (go_on, goes_on) = channel();
        let hook = Stop { arrived: Mutex::new(Some(arrived)), goes_on: Mutex::new(goes_on) };
        let device = Wrapped::around(Arc::new(MemoryDevice::new()), hook);
        let opener = move |name: &str, _| {
            let file = device.open(name, Open::CreateNew, Caching::Buffered);
            Ok((file?, Options::default()))
        };
        let mounted = test_mount::mount(folder, Arc::new(opener));
        let path = folder.join("slow.db");
        Self { arrived: has_arrived, go_on, path, _mounted: mounted }
    }
}

#[test]
fn a_store_that_opens_slowly_stops_no_other() {
    let (slow_folder, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let slow = Slow::mount(slow_folder.path());
    let path = folder.path().join("app.db");
    let mut connection = open(&path).unwrap();
    connection.execute_batch("CREATE TABLE t(n)").unwrap();
    let child_path = folder.path().join("child.db");
    thread::scope(|scope| {
        let opening = scope.spawn(|| open(&slow.path).map(drop));
        slow.arrived.recv_timeout(LONG).unwrap();
        // A transaction, another connection, and another store.
        let (done, is_done) = channel();
        let (connection, path, other) = (&mut connection, &path, folder.path().join("other.db"));
        scope.spawn(move || {
            connection.execute_batch("INSERT INTO t VALUES (1)").unwrap();
            drop(open(path).unwrap());
            drop(open(&other).unwrap());
            done.send(()).unwrap();
        });
        let went_on = is_done.recv_timeout(LONG);
        // And a child that is forked meanwhile opens what it likes.
        let child = Child::run(LONG.as_secs() as u32, || {
            let connection = open(&child_path).unwrap();
            u8::from(connection.execute_batch("CREATE TABLE t(n)").is_err())
        });
        let ended = child.wait();
        slow.go_on.send(()).unwrap();
        opening.join().unwrap().unwrap();
        assert!(went_on.is_ok(), "a transaction waited for a store that is being opened");
        assert_eq!(ended, Ended::Answer(0), "a child hangs in a lock of its parent");
    });
    assert_eq!(number(&connection, "SELECT sum(n) FROM t"), 1);
}

/// The fastest of several: the machine may be busy.
fn fastest(mut measure: impl FnMut() -> Duration) -> Duration {
    (0..10).map(|_| measure()).min().unwrap()
}

#[test]
fn who_was_refused_a_write_reads_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let (mut writer, other) = (open(&path).unwrap(), open(&path).unwrap());
    writer.execute_batch("CREATE TABLE t(n); INSERT INTO t VALUES (1)").unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    let took = fastest(|| {
        thread::scope(|scope| {
            let (begun, has_begun) = channel();
            let (end, ends) = channel::<()>();
            let writer = &mut writer;
            // From another thread, as no connection waits for its own thread.
            scope.spawn(move || {
                writer.execute_batch("BEGIN IMMEDIATE").unwrap();
                begun.send(()).unwrap();
                ends.recv().unwrap();
                writer.execute_batch("COMMIT").unwrap();
            });
            has_begun.recv().unwrap();
            other.execute_batch("BEGIN IMMEDIATE").unwrap_err();
            let asked = Instant::now();
            assert_eq!(number(&other, "SELECT sum(n) FROM t"), 1);
            let took = asked.elapsed();
            end.send(()).unwrap();
            took
        })
    });
    assert!(took < Duration::from_millis(25), "a read took {took:?}");
}
