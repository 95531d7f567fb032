//! Text that may end up in logs: `{:?}` of everything public, messages of errors, events of
//! `tracing`. One line, and neither keys nor values: they may be secrets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::{Debug, Write as _};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use esker::{Backup, BoxError, Db, DbBuilder, Error, History, Keyspace, KeyspaceOptions};
use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Device, Open, Purpose};
use esker_substrate::planted::{Bug, with};

const KEY: &str = "canarykey";
const VALUE: &str = "canaryvalue";

/// The longest line that says what something is: a path and some numbers.
const LINE_BYTES_MAX: usize = 600;

/// The types of the public interface that hold nothing of a store: figures, choices, and traits.
const HOLD_NOTHING: [&str; 39] = [
    "BackupProgress",
    "BoxError",
    "CheckReport",
    "Compression",
    "Device",
    "DeviceError",
    "Durability",
    "Entry",
    "History",
    "IndexKind",
    "IoStats",
    "KeyspaceStats",
    "Lag",
    "LevelStats",
    "LsmLearnt",
    "LsmLevelStats",
    "LsmRunStats",
    "LsmStats",
    "LsmWrites",
    "MemoryStats",
    "Merge",
    "MergeOperator",
    "CompactionParams",
    "CompactionPolicy",
    "CompactionStats",
    "Compaction",
    "NextStats",
    "PastIndexStats",
    "PinStats",
    "Process",
    "Result",
    "Runtime",
    "Scheme",
    "ShapeStats",
    "SimRuntime",
    "SpaceStats",
    "SystemRuntime",
    "UnknownIndexKind",
    "WaitStats",
];

/// All that was printed, with what it is.
#[derive(Default)]
struct Printed(Vec<(&'static str, String)>);

impl Printed {
    fn debug(&mut self, name: &'static str, thing: &impl Debug) {
        self.0.push((name, format!("{thing:?}")));
    }

    fn error(&mut self, error: &Error) {
        self.debug("Error", error);
        self.0.push(("Error", error.to_string()));
    }

    /// Fails where something of an entry is in the text, in any form in which bytes are printed.
    fn assert_discreet(&self) {
        for (name, text) in &self.0 {
            for secret in [KEY, VALUE] {
                // Any six bytes of it, as text, as numbers, and in hexadecimal.
                for part in secret.as_bytes().windows(6) {
                    let numbers = part.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
                    let hex = part.iter().fold(String::new(), |mut hex, byte| {
                        write!(hex, "{byte:02x}").unwrap();
                        hex
                    });
                    let plain = String::from_utf8_lossy(part).into_owned();
                    for form in [plain, numbers, hex] {
                        assert!(!text.contains(&form), "{name} prints {form}: {text}");
                    }
                }
            }
            assert!(!text.contains('\n'), "{name} prints several lines: {text}");
        }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| *name)
    }
}

/// Keeps all events, with all fields.
#[derive(Clone, Debug, Default)]
struct Recorded(Arc<Mutex<String>>);

impl tracing::field::Visit for Recorded {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
        write!(self.0.lock().unwrap(), "{field}={value:?} ").unwrap();
    }
}

impl tracing::Subscriber for Recorded {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("esker")
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

fn builder(device: &Arc<dyn Device>) -> DbBuilder {
    Db::builder_on(Arc::clone(device)).memory_budget(256 << 10).log_segment_bytes(16 << 10)
}

fn refuse(_: &[u8], _: &[u8], _: &[u8]) -> Result<Vec<u8>, BoxError> {
    Err("no".into())
}

/// A keyspace whose entries are the canaries, in the memtable, in blocks, and outside them.
fn fill(db: &Db) -> Keyspace {
    let options = KeyspaceOptions::default().inline_bytes_max(2048);
    let entries = db.keyspace("entries", options).unwrap();
    for number in 0..2_000 {
        entries.insert(format!("{KEY}{number:05}"), format!("{VALUE}{number:05}")).unwrap();
    }
    entries.insert(KEY, VALUE).unwrap();
    entries.insert(format!("{KEY}-large"), VALUE.repeat(1_000)).unwrap();
    entries
}

fn print_handles(db: &Db, entries: &Keyspace, printed: &mut Printed) {
    printed.debug("Db", db);
    printed.debug("Keyspace", entries);
    printed.debug("Snapshot", &db.snapshot().unwrap());
    printed.debug("Stats", &db.stats().unwrap());
    printed.debug("TransactionStats", &db.stats().unwrap().transactions);
    let mut batch = db.batch();
    batch.insert(entries, KEY, VALUE);
    batch.remove(entries, KEY);
    printed.debug("Batch", &batch);
    let mut range = entries.range(KEY..).unwrap();
    assert!(range.next().is_some());
    printed.debug("Range", &range);
    let mut transaction = db.transaction().unwrap();
    transaction.insert(entries, KEY, VALUE).unwrap();
    assert!(transaction.get(entries, KEY).unwrap().is_some());
    {
        let mut range = transaction.range(entries, KEY..).unwrap();
        assert!(range.next().is_some());
        printed.debug("TransactionRange", &range);
    }
    printed.debug("Transaction", &transaction);
    printed.debug("ValueReader", &entries.reader(format!("{KEY}-large")).unwrap().unwrap());
    let mut writer = entries.writer(KEY).unwrap();
    std::io::Write::write_all(&mut writer, VALUE.as_bytes()).unwrap();
    printed.debug("ValueWriter", &writer);
    let options = KeyspaceOptions::default().history(History::All);
    let versions = db.keyspace("versions", options).unwrap();
    versions.insert(KEY, VALUE).unwrap();
    printed.debug("Past", &versions.at(db.version()).unwrap());
    let mut changes = versions.history(KEY).unwrap();
    printed.debug("Change", &changes.next().unwrap().unwrap());
    printed.debug("Changes", &changes);
    let mut changes = versions.changes(..).unwrap();
    printed.debug("KeyChange", &changes.next().unwrap().unwrap());
    printed.debug("KeyChanges", &changes);
    let oldest = versions.history(KEY).unwrap().last().unwrap().unwrap().version - 1;
    let mut diff = versions.diff(oldest, db.version()).unwrap();
    printed.debug("Difference", &diff.next().unwrap().unwrap());
    printed.debug("Diff", &diff);
    db.pin("a name", db.version()).unwrap();
    printed.debug("NamedVersion", &db.named_versions().unwrap());
}

fn print_errors(db: &Db, entries: &Keyspace, printed: &mut Printed) {
    let operator = KeyspaceOptions::default().merge_operator("refuse", refuse);
    let merged = db.keyspace("merged", operator).unwrap();
    merged.merge(KEY, VALUE).unwrap();
    merged.merge(KEY, VALUE).unwrap();
    printed.error(&merged.get(KEY).unwrap_err());
    printed.error(&entries.insert(KEY.repeat(8_000), VALUE).unwrap_err());
    printed.error(&entries.merge(KEY, VALUE).unwrap_err());
    let mut transaction = db.transaction().unwrap();
    assert!(transaction.get(entries, KEY).unwrap().is_some());
    transaction.insert(entries, KEY, VALUE).unwrap();
    entries.insert(KEY, VALUE).unwrap();
    printed.error(&transaction.commit().unwrap_err());
    printed.error(&Db::builder("/nonexistent/store").create(false).open().unwrap_err());
}

/// Every block of the data file is damaged: what is met, and what `check` says of it.
fn print_damage(device: &Arc<dyn Device>, printed: &mut Printed) {
    let file = device.open("data", Open::Existing, Caching::Buffered).unwrap();
    for at in (100..file.len().unwrap()).step_by(512) {
        file.write_at(at, &[0xa5; 3], Purpose::Check).unwrap();
    }
    let db = builder(device).open().unwrap();
    printed.debug("Problem", &db.check().unwrap().problems);
    let entries = db.open_keyspace("entries").unwrap().unwrap();
    printed.error(&entries.iter().unwrap().find_map(Result::err).unwrap());
    let mut range = entries.range(KEY..).unwrap().skip_damaged();
    range.by_ref().for_each(drop);
    assert!(!range.damaged().is_empty());
    printed.debug("DamagedRange", &range.damaged()[0]);
    if let Err(error) = db.compact() {
        printed.error(&error);
    }
}

#[test]
fn nothing_printed_shows_a_key_or_a_value() {
    let recorded = Recorded::default();
    tracing::subscriber::set_global_default(recorded.clone()).unwrap();
    let (device, copy): (Arc<dyn Device>, Arc<dyn Device>) =
        (Arc::new(MemoryDevice::new()), Arc::new(MemoryDevice::new()));
    let mut printed = Printed::default();
    let db = builder(&device).open().unwrap();
    let entries = fill(&db);
    printed.debug("DbBuilder", &builder(&device));
    printed.debug("KeyspaceOptions", &KeyspaceOptions::default().merge_operator("m", refuse));
    print_handles(&db, &entries, &mut printed);
    print_errors(&db, &entries, &mut printed);
    let report = db.backup_on(Arc::clone(&copy), &mut |_| ControlFlow::Continue(())).unwrap();
    printed.debug("BackupReport", &report);
    printed.debug("Backup", &Backup::open_on(copy).unwrap());
    entries.compact().unwrap();
    drop(entries);
    db.close().unwrap();
    print_damage(&device, &mut printed);
    for (name, text) in &printed.0 {
        let is_list = ["Stats", "Problem"].contains(name);
        assert!(is_list || text.len() <= LINE_BYTES_MAX, "{name} is long: {text}");
    }
    printed.0.push(("tracing", std::mem::take(&mut recorded.0.lock().unwrap())));
    assert!(printed.0.last().unwrap().1.contains("begins"));
    printed.assert_discreet();
    assert_all_are_printed(&printed);
}

/// A suite that cannot fail proves nothing.
#[test]
fn a_handle_that_prints_its_store_is_found() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let db = builder(&device).open().unwrap();
    let entries = fill(&db);
    let snapshot = db.snapshot().unwrap();
    let handles: [(&str, &dyn Debug); 3] =
        [("Db", &db), ("Keyspace", &entries), ("Snapshot", &snapshot)];
    for (name, handle) in handles {
        let is_discreet = || {
            let mut printed = Printed::default();
            printed.debug(name, &handle);
            std::panic::catch_unwind(|| printed.assert_discreet()).is_ok()
        };
        assert!(is_discreet(), "{name}");
        assert!(!with(Bug::HandlesPrintEntries, is_discreet), "{name}");
    }
}

/// Every type that the crate gives to users is printed here, or known to hold nothing.
fn assert_all_are_printed(printed: &Printed) {
    let source = include_str!("../src/lib.rs");
    let exports = source.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    for name in exports.flat_map(|list| list.split([',', '{', '}', ':', ' ', '\n'])) {
        let is_type = name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
        let is_known = printed.names().chain(HOLD_NOTHING).any(|known| known == name);
        assert!(!is_type || is_known, "{name} is neither printed nor known to hold nothing");
    }
}
