//! Stores at a path that several processes share.

use std::process::{self, Command, Stdio};
use std::time::Instant;

mod alone_tests;
mod beside_tests;

use super::super::{LockedFile, StoreFile};
use super::*;
use crate::{Durability, Snapshot};

const WORDS_BYTES: usize = 4096;

/// What another process does, in which folder, and which number it has.
const TASK: &str = "ESKER_PAGES_SHARING_TASK";
const FOLDER: &str = "ESKER_PAGES_SHARING_FOLDER";
const NUMBER: &str = "ESKER_PAGES_SHARING_NUMBER";

/// Another process, which is killed when this is dropped.
struct Other(process::Child);

impl Other {
    fn start(folder: &Path, task: &str, number: usize) -> Self {
        let name = "store_file::sharing::tests::child";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--ignored", "--nocapture"]).stdout(Stdio::null());
        command.env(TASK, task).env(FOLDER, folder).env(NUMBER, number.to_string());
        Self(command.spawn().unwrap())
    }

    /// Waits for its end, and says what it answers.
    fn wait(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

#[test]
#[ignore = "the other process of the tests here"]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let number = std::env::var(NUMBER).unwrap().parse().unwrap();
    let path = folder.join("store");
    process::exit(match task.as_str() {
        "count" => count(&folder, number, Durability::Full),
        "count relaxed" => count(&folder, number, Durability::Relaxed),
        "open and close" => open_and_close(&path),
        _ => {
            // As one that is killed: it closes nothing.
            let file = open(&path).unwrap();
            add(&file.store, 1, Durability::Full).unwrap();
            process::exit(0)
        }
    })
}

fn many() -> Options {
    let mut options = Options::new().page_size(512).segment_bytes(16 * 1024);
    options.checkpoint_bytes = 32 * 1024;
    options.processes(Processes::Many)
}

fn open(path: &Path) -> Result<StoreFile> {
    StoreFile::open(path, Missing::Create, many())
}

fn number_in(snapshot: &Snapshot, page: u32) -> u64 {
    let mut bytes = [0; 8];
    if page < snapshot.pages() {
        snapshot.read(page, 0, &mut bytes).unwrap();
    }
    u64::from_le_bytes(bytes)
}

/// Adds one to the numbers in page 0 and in another one, from the newest version, and returns the
/// first.
fn add(store: &PageStore, page: u32, durability: Durability) -> Result<u64> {
    loop {
        let base = store.begin_read()?;
        let mut writer = match store.begin(&base) {
            // Another process has written in the meantime.
            Err(Error::Stale { .. }) => continue,
            writer => writer?,
        };
        let number = number_in(&base, 0) + 1;
        writer.write(0, 0, &number.to_le_bytes())?;
        writer.write(page, 0, &(number_in(&base, page) + 1).to_le_bytes())?;
        // Whole pages, so that slots become free.
        writer.write(page + 100, 0, &[number as u8; 512])?;
        drop(base);
        writer.commit(durability)?;
        return Ok(number);
    }
}

/// The formats in the four superblocks.
fn formats(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    [0, 4096, 8192, 12_288].iter().map(|at| bytes[at + 16]).collect()
}

fn check_alone(path: &Path, number: u64) {
    let file = StoreFile::open(path, Missing::Fail, Options::default()).unwrap();
    assert_eq!(number_in(&file.store.pin(), 0), number);
    assert!(file.store.check().unwrap().accounted);
    file.close().unwrap();
    assert_eq!(formats(path), [1; 4], "older versions refuse it");
}

#[test]
fn openings_take_turns_and_the_last_one_leaves_an_ordinary_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let (one, other) = (open(&path).unwrap(), open(&path).unwrap());
    for turn in 0..40 {
        for (at, file) in [&one, &other].into_iter().enumerate() {
            let number = add(&file.store, 1 + at as u32, Durability::Full).unwrap();
            assert_eq!(number, 2 * turn + at as u64 + 1);
            for file in [&one, &other] {
                assert_eq!(number_in(&file.store.begin_read().unwrap(), 0), number);
            }
        }
    }
    assert!(formats(&path).contains(&3));
    assert!(meeting_path(&path).exists());
    assert!(one.store.check().unwrap().accounted);
    one.store.pin_named("kept").unwrap();
    other.store.unpin_named("kept").unwrap();
    other.store.checkpoint().unwrap();
    one.store.sync().unwrap();
    one.close().unwrap();
    assert!(meeting_path(&path).exists());
    assert_eq!(add(&other.store, 1, Durability::Relaxed).unwrap(), 81);
    other.close().unwrap();
    assert!(!meeting_path(&path).exists());
    assert_eq!(formats(&path), [1; 4]);
    check_alone(&path, 81);
}

#[test]
fn who_shares_and_who_does_not_keep_each_other_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut impatient = many();
    impatient.busy_timeout = Duration::from_millis(20);
    let share = || StoreFile::open(&path, Missing::Create, impatient.clone());
    let alone = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
    assert!(matches!(share(), Err(Error::Locked { .. })));
    alone.close().unwrap();
    let reader = StoreFile::open_read_only(&path, Options::default()).unwrap();
    assert!(matches!(share(), Err(Error::Locked { .. })));
    let another = StoreFile::open_read_only(&path, impatient.clone()).unwrap();
    assert!(matches!(share(), Err(Error::Locked { .. })));
    another.close().unwrap();
    reader.close().unwrap();
    let shared = share().unwrap();
    add(&shared.store, 1, Durability::Full).unwrap();
    for _ in 0..2 {
        let alone = StoreFile::open(&path, Missing::Fail, Options::default());
        assert!(matches!(alone, Err(Error::Locked { .. })));
        let reader = StoreFile::open_read_only(&path, Options::default()).unwrap_err();
        assert!(reader.to_string().contains("share"), "{reader}");
    }
    let reader = StoreFile::open_read_only(&path, impatient.clone()).unwrap();
    assert!(reader.store.is_read_only() && !shared.store.is_read_only());
    add(&shared.store, 1, Durability::Full).unwrap();
    let snapshot = reader.store.begin_read().unwrap();
    assert_eq!(number_in(&snapshot, 0), 2);
    let refused = reader.store.begin(&snapshot).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
    drop(snapshot);
    shared.close().unwrap();
    assert!(meeting_path(&path).exists());
    let next = share().unwrap();
    add(&next.store, 1, Durability::Full).unwrap();
    next.close().unwrap();
    // The last one may not write.
    reader.close().unwrap();
    assert!(!meeting_path(&path).exists());
    check_alone(&path, 3);
}

/// Who reads came first, and keeps no process from sharing the store; nothing is written for it.
#[test]
fn who_reads_first_sees_what_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let read = || StoreFile::open_read_only(&path, many()).unwrap();
    let first = open(&path).unwrap();
    add(&first.store, 1, Durability::Full).unwrap();
    first.close().unwrap();
    for round in 0..2 {
        if round == 1 {
            assert_eq!(Other::start(folder.path(), "die", 0).wait(), Some(0));
        }
        let before = fs::read(&path).unwrap();
        let (early, staying) = (read(), read());
        let held = staying.store.begin_read().unwrap();
        let base = number_in(&held, 0);
        assert!(meeting_path(&path).exists() && fs::read(&path).unwrap() == before);
        let writer = open(&path).unwrap();
        for n in 1..=40 {
            assert_eq!(add(&writer.store, 1, Durability::Full).unwrap(), base + n);
            for reader in [&early, &staying] {
                assert_eq!(number_in(&reader.store.begin_read().unwrap(), 0), base + n);
            }
            assert_eq!(number_in(&held, 0), base);
            if n % 7 == 0 {
                writer.store.checkpoint().unwrap();
            }
        }
        writer.close().unwrap();
        assert_eq!(number_in(&early.store.begin_read().unwrap(), 0), base + 40);
        drop(held);
        // One that reads begins to write.
        early.make_writable(&path).unwrap();
        assert_eq!(add(&early.store, 2, Durability::Full).unwrap(), base + 41);
        assert_eq!(number_in(&staying.store.begin_read().unwrap(), 0), base + 41);
        staying.close().unwrap();
        early.close().unwrap();
        assert!(!meeting_path(&path).exists());
        check_alone(&path, base + 41);
    }
}

/// Before any process writes, one that reads may become the first.
#[test]
fn who_reads_first_may_begin_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    open(&path).unwrap().close().unwrap();
    let [one, other] = [(); 2].map(|()| StoreFile::open_read_only(&path, many()).unwrap());
    let held = other.store.begin_read().unwrap();
    one.make_writable(&path).unwrap();
    assert_eq!(add(&one.store, 1, Durability::Full).unwrap(), 1);
    assert_eq!(number_in(&other.store.begin_read().unwrap(), 0), 1);
    assert_eq!(held.pages(), 0);
    drop(held);
    one.close().unwrap();
    other.close().unwrap();
    // The last one may not write, so the store says still that it is shared.
    assert!(formats(&path).contains(&3));
    check_alone(&path, 1);
}

#[test]
fn a_transaction_waits_for_its_turn_and_not_for_longer_than_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let (one, mut impatient) = (open(&path).unwrap(), many());
    impatient.busy_timeout = Duration::from_millis(30);
    let other = StoreFile::open(&path, Missing::Fail, impatient).unwrap();
    let mut writer = one.store.begin(&one.store.pin()).unwrap();
    writer.write(0, 0, &[7; 8]).unwrap();
    let asked = Instant::now();
    assert!(matches!(other.store.begin(&other.store.pin()), Err(Error::Busy)));
    assert!(matches!(other.store.checkpoint(), Err(Error::Busy)));
    assert!((Duration::from_millis(60)..Duration::from_secs(10)).contains(&asked.elapsed()));
    // A transaction of the same process is told at once, as where there is one process.
    assert!(matches!(one.store.begin(&one.store.pin()), Err(Error::Busy)));
    writer.commit(Durability::Relaxed).unwrap();
    let add_one = || add(&other.store, 1, Durability::Full);
    // On a slow disk the other makes its commit durable for longer than this one waits.
    let is_late = || asked.elapsed() > Duration::from_secs(20);
    while matches!(add_one(), Err(Error::Busy)) && !is_late() {}
    assert_eq!(number_in(&one.store.begin_read().unwrap(), 1), 1);
    other.close().unwrap();
    one.close().unwrap();
}

#[test]
fn what_a_dead_process_or_anyone_left_in_the_meeting_file_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    for (round, damage) in [None, Some(0), Some(0x5a)].into_iter().enumerate() {
        assert_eq!(Other::start(folder.path(), "die", 0).wait(), Some(0));
        assert!(meeting_path(&path).exists() && formats(&path).contains(&3));
        if let Some(byte) = damage {
            fs::write(meeting_path(&path), vec![byte; MEETING_BYTES]).unwrap();
        }
        let (file, other) = (open(&path).unwrap(), open(&path).unwrap());
        assert_eq!(number_in(&other.store.pin(), 0), 2 * round as u64 + 1);
        add(&other.store, 2, Durability::Full).unwrap();
        assert_eq!(number_in(&file.store.pin(), 0), 2 * round as u64 + 2);
        drop((file, other));
        check_alone(&path, 2 * round as u64 + 2);
    }
    assert_eq!(Other::start(folder.path(), "die", 0).wait(), Some(0));
    // One that does not share the store recovers it as after any crash.
    let reader = StoreFile::open_read_only(&path, Options::default()).unwrap();
    assert_eq!(number_in(&reader.store.pin(), 0), 7);
    drop(reader);
    check_alone(&path, 7);
}

#[test]
fn a_store_whose_pages_move_cannot_be_shared_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let options = Options::new().allocation(Allocation::Segment);
    StoreFile::open(&path, Missing::Create, options).unwrap().close().unwrap();
    let before = fs::read(&path).unwrap();
    assert!(matches!(open(&path), Err(Error::InvalidArgument(_))));
    assert!(!meeting_path(&path).exists());
    assert!(fs::read(&path).unwrap() == before, "something was written");
    StoreFile::open(&path, Missing::Fail, Options::default()).unwrap().close().unwrap();
}

#[test]
fn what_is_held_after_the_file_is_closed_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let file = open(&path).unwrap();
    add(&file.store, 1, Durability::Full).unwrap();
    let held = file.store.pin();
    file.close().unwrap();
    assert!(meeting_path(&path).exists());
    assert_eq!(number_in(&held, 0), 1);
    drop(held);
    let locked = LockedFile::to_share(&path, Access::Write, Missing::Fail, Duration::ZERO);
    locked.unwrap().open(many()).unwrap().close().unwrap();
    check_alone(&path, 1);
}

fn open_and_close(path: &Path) -> i32 {
    for _ in 0..40 {
        let begun = Instant::now();
        let file = open(path).unwrap();
        if begun.elapsed() > 2 * MOMENT {
            return 1;
        }
        add(&file.store, 1, Durability::Relaxed).unwrap();
        file.close().unwrap();
    }
    0
}

/// One process closes the store while another opens it, again and again: none waits long.
#[test]
fn who_opens_does_not_wait_for_who_closes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    open(&path).unwrap().close().unwrap();
    let other = Other::start(folder.path(), "open and close", 0);
    for _ in 0..40 {
        let file = open(&path).unwrap();
        add(&file.store, 2, Durability::Relaxed).unwrap();
        file.close().unwrap();
    }
    assert_eq!(other.wait(), Some(0));
    assert!(!meeting_path(&path).exists());
    check_alone(&path, 80);
}

/// What the processes of a test tell each other: how often each has added one, and that it is over.
struct Said(SharedFile);

const OVER: usize = 500;

impl Said {
    fn open(folder: &Path) -> Self {
        Self(SharedFile::open(&folder.join("said"), WORDS_BYTES).unwrap())
    }

    fn of(&self, at: usize) -> u64 {
        self.0.load(at)
    }

    fn sum(&self) -> u64 {
        (0..OVER).map(|at| self.of(at)).sum()
    }

    fn add(&self, at: usize) {
        self.0.store(at, self.of(at) + 1);
    }

    fn is_over(&self) -> bool {
        self.0.load(OVER) != 0
    }

    fn end(&self) {
        self.0.store(OVER, 1);
    }
}

/// Whether it can be tried again.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Busy | Error::Locked { .. })
}

/// Counts until it is over or killed. Each fault has an answer of its own.
fn count(folder: &Path, at: usize, durability: Durability) -> i32 {
    let (path, said) = (folder.join("store"), Said::open(folder));
    let begun = Instant::now();
    let file = loop {
        match open(&path) {
            Ok(file) => break file,
            Err(error) if is_passing(&error) && begun.elapsed() < Duration::from_secs(20) => {}
            Err(error) => {
                eprintln!("{at} cannot open: {error}");
                return 2;
            }
        }
    };
    while !said.is_over() {
        if begun.elapsed() > Duration::from_secs(60) {
            return 5;
        }
        let least = said.sum();
        let outcome = file.store.begin_read().and_then(|read| {
            let number = number_in(&read, 0);
            if number < least {
                eprintln!("{at}: {number} is before {least}");
            }
            let is_new = number >= least;
            drop(read);
            add(&file.store, 1 + at as u32, durability).map(|_| is_new)
        });
        match outcome {
            Ok(true) => said.add(at),
            Ok(false) => return 3,
            Err(error) if is_passing(&error) => eprintln!("{at} waits: {error}"),
            Err(error) => {
                eprintln!("{at} cannot add: {error}");
                return 4;
            }
        }
    }
    i32::from(file.close().is_err())
}

/// Four processes add to one number, and are killed at any moment: what was said to be there is
/// there, once.
#[test]
fn processes_that_are_killed_lose_no_commit_and_repeat_none() {
    let folder = tempfile::tempdir().unwrap();
    let (path, said) = (folder.path().join("store"), Said::open(folder.path()));
    let start = |at: usize| {
        let task = if at == 0 { "count relaxed" } else { "count" };
        Other::start(folder.path(), task, at)
    };
    let mut children: Vec<_> = (0..4).map(|at| Some(start(at))).collect();
    let mut kills = [0; 4];
    let begun = Instant::now();
    for turn in 0.. {
        std::thread::sleep(Duration::from_micros(5000 + turn * 7919 % 60_000));
        if begun.elapsed() > Duration::from_secs(4) {
            break;
        }
        let at = (turn * 5 + turn / 7) as usize % 4;
        drop(children[at].take());
        children[at] = Some(start(at));
        kills[at] += 1;
    }
    said.end();
    for child in children.into_iter().flatten() {
        assert_eq!(child.wait(), Some(0));
    }
    assert!(!meeting_path(&path).exists());
    let file = StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
    let found = file.store.pin();
    let each: Vec<u64> = (0..4).map(|at| number_in(&found, 1 + at)).collect();
    println!("{each:?} commits, {kills:?} kills");
    assert_eq!(number_in(&found, 0), each.iter().sum::<u64>());
    for (at, (found, kills)) in each.iter().zip(kills).enumerate() {
        let said = said.of(at);
        assert!((said..=said + kills).contains(found), "{at}: {found} of {said}");
    }
    assert!(kills.iter().sum::<u64>() > 20 && each.iter().sum::<u64>() > 30);
    drop(found);
    assert!(file.store.check().unwrap().accounted);
    file.close().unwrap();
    assert_eq!(formats(&path), [1; 4]);
}

/// Processes that write are killed while one that does nothing has the store open: who comes next
/// opens it, at once.
#[test]
fn who_comes_after_a_kill_opens_the_store_beside_an_idle_process() {
    let folder = tempfile::tempdir().unwrap();
    let (path, said) = (folder.path().join("store"), Said::open(folder.path()));
    let idle = open(&path).unwrap();
    for round in 0..30_u64 {
        let before = said.sum();
        let child = Other::start(folder.path(), "count", 1);
        while said.sum() == before {
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(Duration::from_micros(round * 7919 % 20_000));
        drop(child);
        let next = open(&path).unwrap();
        assert!(number_in(&next.store.begin_read().unwrap(), 0) >= said.sum());
        next.close().unwrap();
    }
    idle.close().unwrap();
}

/// Of processes that all write for as long as they can, each has its turn.
#[test]
fn each_of_several_processes_has_its_turn() {
    let folder = tempfile::tempdir().unwrap();
    let said = Said::open(folder.path());
    let children: Vec<_> = (0..3).map(|at| Other::start(folder.path(), "count", at)).collect();
    while (0..3).any(|at| said.of(at) == 0) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let before: Vec<_> = (0..3).map(|at| said.of(at)).collect();
    let begun = Instant::now();
    let sum = said.sum();
    while said.sum() < sum + 600 && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let after: Vec<_> = (0..3).map(|at| said.of(at)).collect();
    said.end();
    for child in children {
        assert_eq!(child.wait(), Some(0));
    }
    let each: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    println!("{each:?} commits in {:?}", begun.elapsed());
    let most = each.iter().copied().max().unwrap_or_default();
    assert!(most > 10 && each.iter().all(|count| count * 8 > most), "{each:?}");
}
