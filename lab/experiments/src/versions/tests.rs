use esker_peers::versions::{Put, SeeChange, SeeEntry, Versioned, View};
use esker_peers::{Figures, Result as PeerResult};

use super::*;

fn plan(folder: &Path, batch: u64) -> Plan {
    Plan {
        systems: Way::ALL.into_iter().filter(|way| way.is_built()).collect(),
        keys: 4_000,
        overwrites: vec![2],
        batch,
        budget_bytes: 4 << 20,
        limit_bytes: None,
        share: Some(0.4),
        rounds: 1,
        seed: 3,
        folder: folder.to_owned(),
    }
}

#[test]
fn every_system_answers_what_was_written() {
    for batch in [1, 5] {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(folder.path(), batch);
        let mut lines = 0;
        let found = run(&plan, &mut |event| {
            lines += usize::from(matches!(event, Event::Done(_)));
            true
        });
        let found = found.unwrap();
        assert_eq!(found.failures().collect::<Vec<_>>(), Vec::<String>::new());
        assert_eq!(lines, plan.systems.len());
        let part = found.part("2 overwrites");
        for way in &plan.systems {
            let value = |metric| part.median(way.as_str(), metric);
            let all = ["rate", "written_per_byte", "space_per_version_bytes", "load_get_rate"];
            assert!(all.iter().all(|metric| value(metric).unwrap() > 0.0), "{way}");
            assert_eq!(value("at50_scan_rate").is_some(), way.has_history(), "{way}");
            let is_esker = !matches!(way, Way::Rocksdb | Way::Sqlite);
            assert_eq!(value("get_reads").is_some(), is_esker, "{way}");
            let entries = value("entries_per_version").unwrap_or(1.0);
            let least = if way.has_history() && plan.batch == 1 { 1.0 } else { 0.3 };
            assert!(entries >= least, "{way}: {entries}");
            let changes = value("history_changes");
            assert!(changes.is_none_or(|changes| (2.5..3.5).contains(&changes)), "{way}");
        }
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "stores are left");
    }
}

#[test]
fn a_stop_and_too_little_work_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let stopped = run(&plan(folder.path(), 1), &mut |_| false);
    assert!(matches!(stopped, Err(Error::Interrupted)));
    let short = run(&plan(folder.path(), 1_000), &mut |_| true);
    assert!(matches!(short, Err(Error::Input(_))));
    let still = Plan { overwrites: vec![0], ..plan(folder.path(), 1) };
    assert!(matches!(run(&still, &mut |_| true), Err(Error::Input(_))));
}

#[test]
fn answers_that_differ_are_a_failure() {
    let mut found = Findings::default();
    let answers = |sum: f64| Metrics::from([("answers".to_owned(), sum)]);
    for (system, sum) in [("plain", 1.0), ("esker", 1.0), ("sqlite", 2.0)] {
        found.add(Some("p"), system, None, answers(sum));
    }
    compare(&mut found, "p");
    let failures: Vec<_> = found.failures().collect();
    assert_eq!(failures, ["p of sqlite: answers: its answers are not those of plain"]);
}

/// A store that answers from another one, a little wrong.
struct Wrong<'a> {
    of: &'a dyn Versioned,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Reads of the past see the version before.
    Stale,
    /// The history lacks its oldest change.
    Short,
    /// Scans of the past leave out the first entry.
    Skips,
}

struct Skips<'a>(Box<dyn View + 'a>);

impl View for Skips<'_> {
    fn get(&self, key: &[u8]) -> PeerResult<Option<Vec<u8>>> {
        self.0.get(key)
    }

    fn scan(&self, from: &[u8], entries: u64, see: &mut SeeEntry<'_>) -> PeerResult<()> {
        let mut seen = 0;
        self.0.scan(from, entries + 1, &mut |key, value| {
            seen += 1;
            if seen > 1 {
                see(key, value);
            }
        })
    }
}

impl Versioned for Wrong<'_> {
    fn commit(&self, number: u64, puts: &[Put]) -> PeerResult<u64> {
        self.of.commit(number, puts)
    }

    fn now(&self) -> PeerResult<Box<dyn View + '_>> {
        self.of.now()
    }

    fn at(&self, version: u64) -> PeerResult<Box<dyn View + '_>> {
        match self.how {
            How::Stale => self.of.at(version - 1),
            How::Short => self.of.at(version),
            How::Skips => Ok(Box::new(Skips(self.of.at(version)?))),
        }
    }

    fn history(&self, key: &[u8], see: &mut SeeChange<'_>) -> PeerResult<()> {
        let mut changes = Vec::new();
        self.of.history(key, &mut |version, value| {
            changes.push((version, value.map(<[u8]>::to_vec)));
        })?;
        let kept = changes.len() - usize::from(self.how == How::Short);
        changes.iter().take(kept).for_each(|(version, value)| see(*version, value.as_deref()));
        Ok(())
    }

    fn persist(&self) -> PeerResult<()> {
        self.of.persist()
    }

    fn wait_idle(&self) -> PeerResult<std::time::Duration> {
        self.of.wait_idle()
    }

    fn figures(&self) -> PeerResult<Figures> {
        self.of.figures()
    }

    fn close(self: Box<Self>) -> PeerResult<()> {
        Ok(())
    }
}

/// All keys are watched here, so that the version before one that is checked differs.
#[test]
fn wrong_answers_are_found() {
    let work = Workload { keys: 400, overwrites: 3, batch: 1, seed: 3 };
    let folder = tempfile::tempdir().unwrap();
    let store = versions::open(Way::Esker, folder.path(), 4 << 20, None).unwrap();
    let mut tell = |_: Event<'_>| true;
    let mut watch = Watch::new("", &mut tell);
    let loaded = load::load(&work, store.as_ref(), folder.path(), &mut watch).unwrap();
    check::check(&work, Way::Esker, store.as_ref(), &loaded.written).unwrap();
    for how in [How::Stale, How::Short, How::Skips] {
        let wrong = Wrong { of: store.as_ref(), how };
        let found = check::check(&work, Way::Esker, &wrong, &loaded.written);
        assert!(matches!(found, Err(Error::Invalid(_))), "{how:?}");
        let read = reads::read(&work, Way::Esker, &wrong, &loaded.written, &mut watch);
        assert_eq!(read.is_err(), how == How::Short, "{how:?}");
    }
    store.close().unwrap();
}
