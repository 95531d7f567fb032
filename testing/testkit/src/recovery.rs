//! Judges a store that was opened after a crash: may it look like that?
//!
//! The contents that may be there are bounded by two [`Point`]s of the run that crashed: the last
//! one it passed, and the next one that it was on its way to.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::{Db, History};
use esker_device::Device;

use crate::config::Config;
use crate::counts::budget;
use crate::model::{Change, Model};
use crate::readonly;
use crate::session::Doubt;
use crate::verify;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// The state of a store that is known at a moment between two operations.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// Everything up to this number was promised to survive a power cut.
    pub durable: u64,
    /// The last commit.
    pub visible: u64,
    /// The keyspaces, each with the place of its life in the model.
    pub alive: BTreeMap<String, usize>,
    /// Whether the store's creation was acknowledged.
    pub exists: bool,
}

/// The contents that may be there.
#[derive(Clone, Copy, Debug)]
pub struct Expectation<'a> {
    /// Every version ever written.
    pub model: &'a Model,
    /// The last point that was passed.
    pub now: &'a Point,
    /// The next one, where an operation was under way.
    pub next: Option<&'a Point>,
    /// The change that a failed operation may have made beyond the model.
    pub doubt: Option<&'a Doubt>,
}

/// The contents that are there.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The last commit that is there.
    pub seq: u64,
    /// The keyspaces that are there.
    pub alive: BTreeMap<String, usize>,
    /// The contents, with no history behind them.
    pub model: Model,
    /// Whether the store was there before it was opened.
    pub existed: bool,
}

/// The extent of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Everything once, forwards.
    Once,
    /// Backwards and by key as well, and again after closing and opening.
    Thorough,
}

/// Opens the store on `device`, judges what is there, and closes it.
///
/// # Errors
/// The first broken promise.
pub fn judge(
    config: &Config,
    device: &Arc<dyn Device>,
    expectation: &Expectation<'_>,
    depth: Depth,
) -> Verdict<Recovered> {
    let opens = |error: esker::Error| Violation::new(Oracle::Opens, error.to_string());
    let existed = expectation.now.exists;
    // First, because what is opened for writing is changed. With the least budget of the looks that
    // are thorough alone.
    let reads = depth == Depth::Thorough || budget() > 1;
    let read = if reads { readonly::judge(config, device, expectation, depth)? } else { None };
    let db = config
        .builder_at(device, expectation.model.now())
        .create(!existed)
        .open()
        .map_err(opens)?;
    let mut recovered = examine(&db, expectation, depth)?;
    recovered.existed = existed;
    ensure(read.is_none_or(|seq| seq == recovered.seq), Oracle::ContentMatches, || {
        format!("read-only at {read:?}, and {} else", recovered.seq)
    })?;
    verify::check(&db)?;
    if depth == Depth::Once {
        return Ok(recovered);
    }
    db.close().map_err(|error| Violation::new(Oracle::WorksOn, format!("close: {error}")))?;
    let db = config.builder_at(device, recovered.model.now()).open();
    let db = db.map_err(|error| opens(error).at("after closing"))?;
    let again = Point {
        durable: recovered.seq,
        visible: recovered.seq,
        alive: recovered.model.alive(),
        exists: true,
    };
    let model = &recovered.model;
    let same = Expectation { model, now: &again, next: None, doubt: None };
    examine(&db, &same, Depth::Once)
        .map_err(|violation| Violation { oracle: Oracle::OpeningAgainIsTheSame, ..violation })?;
    verify::check(&db)?;
    Ok(recovered)
}

/// The history that a keyspace keeps.
fn kept_history(db: &Db, name: &str) -> Option<History> {
    let stats = db.stats().ok()?;
    stats.keyspaces.iter().find(|keyspace| keyspace.name == name)?.history
}

/// Judges an open store.
///
/// # Errors
/// The first broken promise.
pub fn examine(db: &Db, expectation: &Expectation<'_>, depth: Depth) -> Verdict<Recovered> {
    let seq = db.visible_seq();
    let doubted;
    let model = match expectation.doubt {
        Some(Doubt::Commit(changes)) if seq > expectation.model.last_commit() => {
            doubted = with_commit(expectation.model, seq, changes);
            &doubted
        }
        _ => expectation.model,
    };
    position(seq, model, expectation)?;
    let alive = keyspaces(db, expectation)?;
    let mut recovered = model.recovered(seq, &alive);
    for name in alive.keys() {
        let Some((_, life)) = recovered.living(name) else { continue };
        let found = db.open_keyspace(name);
        let Ok(Some(keyspace)) = found else {
            let detail = format!("{name} is listed and cannot be opened: {found:?}");
            return Err(Violation::new(Oracle::KeyspacesExist, detail));
        };
        verify::content(&keyspace, life, model.at(seq))?;
        if let Some(history) = kept_history(db, name) {
            let count = if depth == Depth::Thorough { 4 } else { 2 };
            verify::past(&keyspace, life, model, (seq, history), count)?;
        }
        if depth == Depth::Thorough {
            verify::content_backwards(&keyspace, life, model.at(seq))?;
            let step = (life.len() / 16).max(1);
            let points = verify::points(&keyspace, life, model.at(seq), life.keys().step_by(step))?;
            points.map_err(|error| {
                Violation::new(Oracle::ContentMatches, format!("a point read answered {error}"))
            })?;
        }
    }
    if let Some(Doubt::Create(name)) = expectation.doubt
        && db.open_keyspace(name).is_ok_and(|found| found.is_some())
    {
        recovered.create(name);
    }
    Ok(Recovered { seq, alive, model: recovered, existed: true })
}

fn with_commit(model: &Model, seq: u64, changes: &[Change]) -> Model {
    let mut model = model.clone();
    model.commit(seq, changes);
    model
}

/// Checks the number of the last commit that is there.
fn position(seq: u64, model: &Model, expectation: &Expectation<'_>) -> Verdict {
    let Expectation { now, next, doubt, .. } = expectation;
    ensure(seq >= now.durable, Oracle::AcknowledgedIsThere, || {
        format!("recovered to {seq}, {} was acknowledged as durable", now.durable)
    })?;
    let ceiling = match doubt {
        Some(Doubt::Commit(_)) => model.last_commit(),
        _ => next.map_or(now.visible, |next| next.visible.max(now.visible)),
    };
    ensure(seq <= ceiling, Oracle::NothingFromNowhere, || {
        format!("recovered to {seq}, nothing after {ceiling} was ever committed")
    })?;
    ensure(model.is_boundary(seq), Oracle::CommitsAreWhole, || {
        let end = model.next_commit(seq).unwrap_or(0);
        format!("recovered to {seq}, inside the commit that ends at {end}")
    })
}

/// Checks which keyspaces are there.
fn keyspaces(db: &Db, expectation: &Expectation<'_>) -> Verdict<BTreeMap<String, usize>> {
    let Expectation { now, next, doubt, .. } = expectation;
    let found = db.keyspaces().map_err(|error| {
        Violation::new(Oracle::KeyspacesExist, format!("they cannot be listed: {error}"))
    })?;
    let mut candidates = vec![now.alive.clone()];
    candidates.extend(next.map(|next| next.alive.clone()));
    match doubt {
        Some(Doubt::Create(name)) => {
            let mut alive = now.alive.clone();
            // A life that the model does not know is empty.
            alive.insert(name.clone(), usize::MAX);
            candidates.push(alive);
        }
        Some(Doubt::Drop(name)) => {
            let mut alive = now.alive.clone();
            alive.remove(name);
            candidates.push(alive);
        }
        _ => {}
    }
    let fits = |alive: &BTreeMap<String, usize>| alive.keys().eq(&found);
    candidates.iter().find(|alive| fits(alive)).cloned().ok_or_else(|| {
        let expected: Vec<_> =
            candidates.iter().map(|alive| alive.keys().collect::<Vec<_>>()).collect();
        let detail = format!("found {found:?}, expected one of {expected:?}");
        Violation::new(Oracle::KeyspacesExist, detail)
    })
}
