//! Compares what a store answers with what the model holds.
//!
//! Two layers of result: the outer one is a broken promise; the inner one an error that the
//! store answered, which is the caller's to judge (a fault was injected, a block was damaged).

use esker::{CheckReport, Db, Entry, History, Keyspace, Snapshot};

use crate::model::{At, Life, Model, Value};
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// The answer of the store, where it was right.
pub type Answered = Verdict<esker::Result<()>>;

/// Compares a keyspace whole with its model, forwards; an error is a broken promise.
///
/// # Errors
/// The first difference, or the store's error.
pub fn content(keyspace: &Keyspace, life: &Life, at: At) -> Verdict {
    let name = keyspace.name();
    let result = match keyspace.iter() {
        Ok(range) => same(range, life.entries(at), Oracle::ContentMatches),
        Err(error) => Ok(Err(error)),
    };
    let answered = result.map_err(|violation| violation.at(format!("{name} at {at:?}")))?;
    answered.map_err(|error| unexpected(&error).at(format!("{name} at {at:?}")))
}

/// Compares a keyspace whole with its model, backwards.
///
/// # Errors
/// The first difference, or the store's error.
pub fn content_backwards(keyspace: &Keyspace, life: &Life, at: At) -> Verdict {
    let range = keyspace.iter().map_err(|error| unexpected(&error))?;
    let answered = same(range.rev(), life.entries(at).rev(), Oracle::ContentMatches)
        .map_err(|violation| violation.at(format!("{} backwards at {at:?}", keyspace.name())))?;
    answered.map_err(|error| unexpected(&error))
}

/// Compares about `count` versions of a keyspace that keeps some history, up to `seq`: at commits,
/// and at numbers within them. Those that it need not keep may be refused.
///
/// # Errors
/// The first difference, or the store's error.
pub fn past(
    keyspace: &Keyspace,
    life: &Life,
    model: &Model,
    (seq, history): (u64, History),
    count: usize,
) -> Verdict {
    let kept_from = match history {
        History::Newest(versions) => seq.saturating_sub(versions - 1),
        _ => 0,
    };
    let Some(first) = life.first_commit() else { return Ok(()) };
    let commits = model.commits_up_to(seq);
    let commits = commits.get(commits.partition_point(|commit| *commit < first)..);
    let commits = commits.unwrap_or_default();
    let step = commits.len().div_ceil(count.max(1)).max(1);
    for commit in commits.iter().step_by(step) {
        for version in [*commit, commit - 1] {
            version_is(keyspace, life, model.at(version), version < first.max(kept_from))
                .map_err(|violation| violation.at(format!("{} at {version}", keyspace.name())))?;
        }
    }
    Ok(())
}

/// Compares one version with the model; it may be one from before the keyspace.
fn version_is(keyspace: &Keyspace, life: &Life, at: At, may_be_earlier: bool) -> Verdict {
    let past = match keyspace.at(at.seq) {
        Err(esker::Error::Invalid { .. }) if may_be_earlier => return Ok(()),
        past => past.map_err(|error| unexpected(&error))?,
    };
    let range = past.iter().map_err(|error| unexpected(&error))?;
    let answered = same(range, life.entries(at), Oracle::SnapshotsStand)?;
    answered.map_err(|error| unexpected(&error))
}

/// Compares a keyspace as a snapshot sees it that was taken at the time `now`.
///
/// # Errors
/// The first difference.
pub fn snapshot(snapshot: &Snapshot, keyspace: &Keyspace, life: &Life, now: u64) -> Answered {
    let at = At { seq: snapshot.seq(), now };
    match snapshot.iter(keyspace) {
        Ok(range) => same(range, life.entries(at), Oracle::SnapshotsStand)
            .map_err(|violation| violation.at(format!("snapshot {at:?} of {}", keyspace.name()))),
        Err(error) => Ok(Err(error)),
    }
}

/// Compares point reads with the model, one by one and together.
///
/// # Errors
/// The first difference.
pub fn points<'a>(
    keyspace: &Keyspace,
    life: &Life,
    at: At,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Answered {
    let keys: Vec<&[u8]> = keys.collect();
    for key in &keys {
        match keyspace.get(key) {
            Ok(found) => point(key, found.as_deref(), life.get(key, at))?,
            Err(error) => return Ok(Err(error)),
        }
    }
    let together = match keyspace.multi_get(&keys) {
        Ok(together) => together,
        Err(error) => return Ok(Err(error)),
    };
    ensure(together.len() == keys.len(), Oracle::ContentMatches, || {
        format!("{} answers to {} keys", together.len(), keys.len())
    })?;
    for (key, found) in keys.iter().zip(&together) {
        point(key, found.as_deref(), life.get(key, at))?;
    }
    Ok(Ok(()))
}

/// Compares one answer with what the model holds.
///
/// # Errors
/// The difference.
pub fn point(key: &[u8], found: Option<&[u8]>, expected: Option<&Value>) -> Verdict {
    ensure(found == expected.map(|value| &**value), Oracle::ContentMatches, || {
        let expected = describe(expected.map(|value| &**value));
        format!("key {}: found {}, expected {expected}", text(key), describe(found))
    })
}

/// Runs `check`; any problem is a broken promise.
///
/// # Errors
/// The problems, or the store's error.
pub fn check(db: &Db) -> Verdict<CheckReport> {
    let report = db.check().map_err(|error| {
        Violation::new(Oracle::CheckIsClean, format!("check itself failed: {error}"))
    })?;
    ensure(report.is_ok(), Oracle::CheckIsClean, || {
        let problems = report.problems.iter().take(5);
        let lines = problems.map(|p| format!("{}@{}: {}", p.file, p.offset, p.what));
        lines.collect::<Vec<_>>().join("; ")
    })?;
    Ok(report)
}

/// Walks two sequences of entries side by side.
pub(crate) fn same<'a>(
    found: impl Iterator<Item = esker::Result<Entry>>,
    expected: impl Iterator<Item = (&'a [u8], &'a Value)>,
    oracle: Oracle,
) -> Answered {
    let mut expected = expected;
    for (at, entry) in found.enumerate() {
        let (key, value) = match entry {
            Ok(entry) => entry,
            Err(error) => return Ok(Err(error)),
        };
        let wanted = expected.next();
        let equal = wanted.is_some_and(|(k, v)| k == key && **v == value[..]);
        ensure(equal, oracle, || {
            let wanted = wanted.map(|(k, v)| format!("{} = {}", text(k), describe(Some(v))));
            let wanted = wanted.unwrap_or_else(|| "the end".into());
            let found = format!("{} = {}", text(&key), describe(Some(&value)));
            format!("entry {at}: found {found}, expected {wanted}")
        })?;
    }
    match expected.next() {
        None => Ok(Ok(())),
        Some((key, _)) => Err(Violation::new(oracle, format!("it ends before key {}", text(key)))),
    }
}

fn unexpected(error: &esker::Error) -> Violation {
    Violation::new(Oracle::ContentMatches, format!("a sound store answered: {error}"))
}

/// A key or value as text, shortened.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let head = bytes.get(..bytes.len().min(24)).unwrap_or_default();
    format!("\"{}\" ({} bytes)", head.escape_ascii(), bytes.len())
}

fn describe(value: Option<&[u8]>) -> String {
    value.map_or_else(|| "nothing".into(), text)
}
