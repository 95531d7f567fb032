//! The answers of a damaged store.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker::{Compression, DamagedRange, Db, Entry, Error, Keyspace, Past, Range};

use crate::config::Config;
use crate::image::ImageDevice;
use crate::model::{At, Life, Model};
use crate::recovery::Point;
use crate::verify::{point, text};
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// The effect of the damage. Wrong answers and panics are not classes but broken promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Nothing that can be seen; `check` may name it.
    SameAnswer,
    /// The newest commits are gone, none of which was promised to survive.
    OlderTail,
    /// Some reads answer an error.
    SomeKeysUnreadable,
    /// The store does not open, and says why.
    Refused,
}

/// A class, and how far the damage reached.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The class.
    pub class: Class,
    /// The number of blocks that the unreadable keys and values may fill.
    pub blocks_lost: usize,
}

/// Payload that fits a block, generously: keys are shortened in blocks.
const BLOCK_PAYLOAD_BYTES: usize = 6 << 10;
/// The same of a block that is compressed: it is filled to twice the length before.
const COMPRESSED_PAYLOAD_BYTES: usize = 12 << 10;
/// The bytes of a block that a blob takes, about.
const REFERENCE_BYTES: usize = 24;

impl Class {
    /// All classes.
    pub const ALL: [Self; 4] =
        [Self::SameAnswer, Self::OlderTail, Self::SomeKeysUnreadable, Self::Refused];

    /// The name in counts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameAnswer => "same answer",
            Self::OlderTail => "older unsynced tail",
            Self::SomeKeysUnreadable => "some keys unreadable",
            Self::Refused => "refused",
        }
    }
}

/// The contents of a store before it was damaged.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// The options with which it is opened.
    pub config: &'a Config,
    /// Every version ever written.
    pub model: &'a Model,
    /// The state that it was known to have; `durable` is the least that damage may leave.
    pub point: &'a Point,
}

/// Opens a damaged copy, reads everything and checks it.
///
/// # Errors
/// A wrong answer, an older state, or damage that nothing names.
pub fn look(held: &Held<'_>, device: ImageDevice) -> Verdict<Look> {
    let db = match held.config.builder_at(&(Arc::new(device) as _), held.model.now()).open() {
        Ok(db) => db,
        Err(error) => {
            named(&error)?;
            return Ok(Look { class: Class::Refused, blocks_lost: usize::MAX });
        }
    };
    let seq = db.visible_seq();
    let expected = held.point;
    ensure(seq >= expected.durable, Oracle::NoSilentRollback, || {
        format!("opened at {seq}, {} was durable", expected.durable)
    })?;
    ensure(seq <= expected.visible, Oracle::DamageIsNotData, || {
        format!("opened at {seq}, nothing after {} was ever written", expected.visible)
    })?;
    ensure(held.model.is_boundary(seq), Oracle::CommitsAreWhole, || {
        format!("opened at {seq}, inside a commit")
    })?;
    let names = db.keyspaces();
    let same_names = names.as_ref().is_ok_and(|names| names.iter().eq(expected.alive.keys()));
    ensure(same_names, Oracle::DamageIsNotData, || format!("keyspaces are {names:?}"))?;
    let inline_bytes_max = held.config.inline_bytes_max.unwrap_or(u64::MAX);
    let mut unreadable = Unreadable { inline_bytes_max, ..Unreadable::default() };
    for (name, place) in &expected.alive {
        let Some(life) = held.model.life(name, *place) else { continue };
        match db.open_keyspace(name) {
            Ok(Some(keyspace)) => {
                unreadable.read(&Reads::Now(&keyspace), life, held.model.at(seq))?;
                if held.config.kept_history().is_some() {
                    unreadable.read_past(&keyspace, life, held.model, seq)?;
                }
            }
            other => {
                let detail = format!("keyspace {name}: {other:?}");
                return Err(Violation::new(Oracle::DamageIsNotData, detail));
            }
        }
    }
    let class = match (unreadable.any, seq == expected.visible) {
        (true, _) => Class::SomeKeysUnreadable,
        (false, false) => Class::OlderTail,
        (false, true) => Class::SameAnswer,
    };
    let is_checked = check(&db)?;
    ensure(is_checked || class != Class::SomeKeysUnreadable, Oracle::DamageIsNamed, || {
        "reads fail, and check finds nothing".into()
    })?;
    let block_bytes = match held.config.compression {
        Compression::None => BLOCK_PAYLOAD_BYTES,
        _ => COMPRESSED_PAYLOAD_BYTES,
    };
    Ok(Look { class, blocks_lost: unreadable.payload_bytes.div_ceil(block_bytes) })
}

/// Whether `check` names something; it must name a file and an offset.
fn check(db: &Db) -> Verdict<bool> {
    match db.check() {
        Ok(report) => {
            let nameless = report.problems.iter().find(|problem| problem.file.is_empty());
            ensure(nameless.is_none(), Oracle::DamageIsNamed, || format!("{nameless:?}"))?;
            Ok(!report.is_ok())
        }
        Err(error) => named(&error).map(|()| true),
    }
}

/// An error of a damaged store must say which file is damaged, or that it is no store.
fn named(error: &Error) -> Verdict {
    let is_named = match error {
        Error::Damaged { file, .. } | Error::TooNew { file, .. } => !file.is_empty(),
        Error::Io(error) => !error.file.is_empty(),
        Error::NotAStore { .. } => true,
        _ => false,
    };
    ensure(is_named, Oracle::DamageIsNamed, || format!("the answer is: {error}"))
}

/// The versions of a keyspace's past that are read.
const VERSIONS: u64 = 5;

/// A keyspace, now or at an earlier version.
enum Reads<'a> {
    Now(&'a Keyspace),
    Past(Past),
}

impl Reads<'_> {
    fn get(&self, key: &[u8]) -> esker::Result<Option<Vec<u8>>> {
        match self {
            Self::Now(keyspace) => keyspace.get(key),
            Self::Past(past) => past.get(key),
        }
    }

    fn iter(&self) -> esker::Result<Range> {
        match self {
            Self::Now(keyspace) => keyspace.iter(),
            Self::Past(past) => past.iter(),
        }
    }
}

/// The entries that could not be read.
#[derive(Debug, Default)]
struct Unreadable {
    any: bool,
    /// Keys and values of entries that neither a scan nor a lookup gave.
    payload_bytes: usize,
    /// Longer values are not in blocks.
    inline_bytes_max: u64,
}

impl Unreadable {
    /// Reads a keyspace by scanning both ways and by key. Every answer must be right, and every key
    /// that is missing from a scan must lie in a range that is said to be damaged.
    fn read(&mut self, keyspace: &Reads<'_>, life: &Life, at: At) -> Verdict {
        let Some(found) = self.scan(keyspace, life, at, Range::next)? else { return Ok(()) };
        self.scan(keyspace, life, at, Range::next_back).map_err(|v| v.at("backwards"))?;
        for (key, value) in life.entries(at) {
            match keyspace.get(key) {
                Ok(answer) => as_data(point(key, answer.as_deref(), Some(value)))?,
                Err(error) => {
                    named(&error)?;
                    self.any = true;
                    if !found.contains(key) {
                        let is_blob = value.len() as u64 > self.inline_bytes_max;
                        let stored = if is_blob { REFERENCE_BYTES } else { value.len() };
                        self.payload_bytes += key.len() + stored;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads some of a keyspace's versions up to number `seq`.
    fn read_past(&mut self, keyspace: &Keyspace, life: &Life, model: &Model, seq: u64) -> Verdict {
        let lost = self.payload_bytes;
        for place in 0..VERSIONS {
            let version = seq * (2 * place + 1) / (2 * VERSIONS);
            match keyspace.at(version) {
                Ok(past) => self
                    .read(&Reads::Past(past), life, model.at(version))
                    .map_err(|violation| violation.at(format!("version {version}")))?,
                // It is before the keyspace.
                Err(Error::Invalid { .. }) => {}
                Err(error) => named(&error)?,
            }
        }
        // The same block may be read for several versions.
        self.payload_bytes = lost;
        Ok(())
    }

    /// The keys that a scan finds; none when it ends with an error.
    fn scan(
        &mut self,
        keyspace: &Reads<'_>,
        life: &Life,
        at: At,
        step: fn(&mut Range) -> Option<esker::Result<Entry>>,
    ) -> Verdict<Option<BTreeSet<Vec<u8>>>> {
        let refused = |this: &mut Self, error: &Error| {
            this.any = true;
            named(error).map(|()| None)
        };
        let mut range = match keyspace.iter() {
            Ok(range) => range.skip_damaged(),
            Err(error) => return refused(self, &error),
        };
        let mut found = BTreeSet::new();
        while let Some(entry) = step(&mut range) {
            match entry {
                Ok((key, value)) => {
                    as_data(point(&key, Some(&value), life.get(&key, at)))?;
                    found.insert(key);
                }
                Err(error) => return refused(self, &error),
            }
        }
        let damaged = range.damaged();
        self.any |= !damaged.is_empty();
        for (key, _) in life.entries(at) {
            let is_right = found.contains(key) || is_in(damaged, key);
            ensure(is_right, Oracle::DamageIsNotData, || {
                let ranges: Vec<String> = damaged.iter().map(shown).collect();
                format!("a scan leaves out key {}, outside the damaged {ranges:?}", text(key))
            })?;
        }
        Ok(Some(found))
    }
}

fn shown(range: &DamagedRange) -> String {
    let to = range.to.as_deref().map_or_else(|| "the end".into(), text);
    format!("{} to {to}", text(&range.from))
}

fn is_in(damaged: &[DamagedRange], key: &[u8]) -> bool {
    let ends_after = |to: &Option<Vec<u8>>| to.as_ref().is_none_or(|to| key < to.as_slice());
    damaged.iter().any(|range| range.from.as_slice() <= key && ends_after(&range.to))
}

/// A difference in a damaged store is damage answered as data.
fn as_data(verdict: Verdict) -> Verdict {
    verdict.map_err(|violation| Violation { oracle: Oracle::DamageIsNotData, ..violation })
}
