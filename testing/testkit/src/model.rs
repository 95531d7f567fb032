//! The expected contents of a store: every version of every key, so that the state at any commit
//! can be asked for after the fact.
//!
//! Invariants:
//! * `commits` is strictly increasing; each is the number of a commit's last operation.
//! * Within a key, versions are in ascending order of their commit.
//! * A name's lives do not overlap; only the last one can be alive.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// A value, shared between the model's copies.
pub type Value = Arc<[u8]>;

/// One change of a commit.
#[derive(Clone, PartialEq, Eq)]
pub struct Change {
    /// The keyspace's name.
    pub keyspace: String,
    /// The key.
    pub key: Vec<u8>,
    /// The write to it.
    pub write: Write,
}

impl fmt::Debug for Change {
    /// Names values by their lengths.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/\"{}\"", self.keyspace, self.key.escape_ascii())?;
        match &self.write {
            Write::Put(value) => write!(f, " = {} bytes", value.len()),
            Write::PutFor(value, millis) => {
                write!(f, " = {} bytes for {millis} ms", value.len())
            }
            Write::Append(value) => write!(f, " + {} bytes", value.len()),
            Write::Delete => write!(f, " deleted"),
            Write::DeleteUpTo(None) => write!(f, " and all behind deleted"),
            Write::DeleteUpTo(Some(end)) => {
                write!(f, " deleted up to \"{}\"", end.escape_ascii())
            }
        }
    }
}

/// A write to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A value.
    Put(Value),
    /// A value for this number of milliseconds.
    PutFor(Value, u64),
    /// It is appended to the value.
    Append(Value),
    /// It is deleted.
    Delete,
    /// It and all keys behind it are deleted, up to and without this one; `None`: to the end.
    DeleteUpTo(Option<Vec<u8>>),
}

/// The moment at which a read sees a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The last commit.
    pub seq: u64,
    /// The time, in milliseconds.
    pub now: u64,
}

#[derive(Clone, Debug)]
struct Version {
    commit: u64,
    value: Option<Value>,
    /// When the value expires.
    until: Option<u64>,
    /// The bytes that were appended to a value that expires: they are the value then.
    rest: Option<Value>,
}

/// A keyspace from its creation to its drop.
#[derive(Clone, Debug, Default)]
pub struct Life {
    versions: BTreeMap<Vec<u8>, Vec<Version>>,
}

/// The whole store.
#[derive(Clone, Debug, Default)]
pub struct Model {
    now: u64,
    commits: Vec<u64>,
    lives: BTreeMap<String, Vec<(bool, Life)>>,
}

impl Life {
    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &[u8], at: At) -> Option<&Value> {
        visible(self.versions.get(key)?, at)
    }

    /// All entries, in key order.
    pub fn entries(&self, at: At) -> impl DoubleEndedIterator<Item = (&[u8], &Value)> {
        self.versions
            .iter()
            .filter_map(move |(key, versions)| Some((key.as_slice(), visible(versions, at)?)))
    }

    /// The number of the first commit that wrote to it, if there is one.
    #[must_use]
    pub fn first_commit(&self) -> Option<u64> {
        self.versions.values().filter_map(|versions| Some(versions.first()?.commit)).min()
    }

    /// Every key that was ever written.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.versions.keys().map(Vec::as_slice)
    }

    fn delete_range(&mut self, begin: &[u8], end: Option<&[u8]>, commit: u64) {
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.versions.range_mut::<[u8], _>((Bound::Included(begin), end));
        for (_, versions) in range {
            push(versions, Version { commit, value: None, until: None, rest: None });
        }
    }

    /// The number of keys that were ever written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// Whether nothing was ever written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }
}

/// The last change of a key in a batch wins.
fn push(versions: &mut Vec<Version>, version: Version) {
    versions.retain(|other| other.commit != version.commit);
    versions.push(version);
}

/// The version that appending makes of the newest one.
fn appended(newest: Option<&Version>, operand: &Value, commit: u64) -> Version {
    let onto = |older: Option<&Value>| -> Option<Value> {
        Some(older.map_or_else(|| Arc::clone(operand), |older| [older, &**operand].concat().into()))
    };
    let until = newest.and_then(|newest| newest.until);
    Version {
        commit,
        value: onto(newest.and_then(|newest| newest.value.as_ref())),
        until,
        rest: until.and_then(|_| onto(newest.and_then(|newest| newest.rest.as_ref()))),
    }
}

fn visible(versions: &[Version], at: At) -> Option<&Value> {
    let newer = versions.partition_point(|version| version.commit <= at.seq);
    let newest = versions.get(newer.checked_sub(1)?)?;
    if newest.until.is_none_or(|until| at.now < until) {
        newest.value.as_ref()
    } else {
        newest.rest.as_ref()
    }
}

impl Model {
    /// The time, in milliseconds.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Time passes.
    pub const fn pass(&mut self, millis: u64) {
        self.now = self.now.saturating_add(millis);
    }

    /// The moment that a read of commit `seq` sees now.
    #[must_use]
    pub const fn at(&self, seq: u64) -> At {
        At { seq, now: self.now }
    }

    /// The moment that a read sees now.
    #[must_use]
    pub fn last(&self) -> At {
        self.at(self.last_commit())
    }

    /// A keyspace is created; nothing happens when it is alive.
    pub fn create(&mut self, name: &str) {
        let lives = self.lives.entry(name.to_owned()).or_default();
        if !matches!(lives.last(), Some((true, _))) {
            lives.push((true, Life::default()));
        }
    }

    /// A keyspace is dropped, with everything in it.
    pub fn drop_keyspace(&mut self, name: &str) {
        if let Some((alive, _)) = self.lives.get_mut(name).and_then(|lives| lives.last_mut()) {
            *alive = false;
        }
    }

    /// The changes of one commit become visible as of `seq`. Changes of keyspaces that are not
    /// alive are ignored.
    pub fn commit<'a>(&mut self, seq: u64, changes: impl IntoIterator<Item = &'a Change>) {
        self.commits.push(seq);
        for change in changes {
            let last = self.lives.get_mut(&change.keyspace).and_then(|lives| lives.last_mut());
            let Some((true, life)) = last else { continue };
            if let Write::DeleteUpTo(end) = &change.write {
                life.delete_range(&change.key, end.as_deref(), seq);
                continue;
            }
            let versions = life.versions.entry(change.key.clone()).or_default();
            let (value, until) = match &change.write {
                Write::Put(value) => (Some(value.clone()), None),
                Write::PutFor(value, millis) => (Some(value.clone()), Some(self.now + millis)),
                Write::Delete | Write::DeleteUpTo(_) => (None, None),
                Write::Append(operand) => {
                    let appended = appended(versions.last(), operand, seq);
                    push(versions, appended);
                    continue;
                }
            };
            push(versions, Version { commit: seq, value, until, rest: None });
        }
    }

    /// Notes that the merged value of many operands is written behind the commit of the last of
    /// them, up to `seq`, and changes nothing.
    pub fn fold_operands(&mut self, seq: u64, changes: &[Change]) {
        if changes.iter().any(|change| matches!(change.write, Write::Append(_))) {
            self.commits.extend(self.last_commit() + 1..=seq);
        }
    }

    /// The numbers of the commits up to `seq`.
    #[must_use]
    pub fn commits_up_to(&self, seq: u64) -> &[u64] {
        let count = self.commits.partition_point(|commit| *commit <= seq);
        self.commits.get(..count).unwrap_or_default()
    }

    /// Whether a crash may leave the store at `seq`: nothing, or the end of a commit.
    #[must_use]
    pub fn is_boundary(&self, seq: u64) -> bool {
        seq == 0 || self.commits.binary_search(&seq).is_ok()
    }

    /// The number of the last commit, 0 before the first.
    #[must_use]
    pub fn last_commit(&self) -> u64 {
        self.commits.last().copied().unwrap_or(0)
    }

    /// The first commit after `seq`.
    #[must_use]
    pub fn next_commit(&self, seq: u64) -> Option<u64> {
        self.commits.get(self.commits.partition_point(|commit| *commit <= seq)).copied()
    }

    /// The names of the keyspaces that are alive, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let alive = |lives: &[(bool, Life)]| matches!(lives.last(), Some((true, _)));
        self.lives.iter().filter(|(_, lives)| alive(lives)).map(|(name, _)| name.clone()).collect()
    }

    /// The `life`-th life of a keyspace, counted from 0.
    #[must_use]
    pub fn life(&self, name: &str, life: usize) -> Option<&Life> {
        self.lives.get(name)?.get(life).map(|(_, life)| life)
    }

    /// The life that is alive now, and its place.
    #[must_use]
    pub fn living(&self, name: &str) -> Option<(usize, &Life)> {
        let lives = self.lives.get(name)?;
        match lives.last()? {
            (true, life) => Some((lives.len().saturating_sub(1), life)),
            (false, _) => None,
        }
    }

    /// The keyspaces alive now, by the place of their life.
    #[must_use]
    pub fn alive(&self) -> BTreeMap<String, usize> {
        let places = self.lives.keys().map(|name| (name, self.living(name)));
        places.filter_map(|(name, life)| Some((name.clone(), life?.0))).collect()
    }

    /// The state that a crash left: the keyspaces of `alive` at commit `seq`, and no history after
    /// it.
    #[must_use]
    pub fn recovered(&self, seq: u64, alive: &BTreeMap<String, usize>) -> Self {
        let mut lives = BTreeMap::new();
        for (name, place) in alive {
            let Some(life) = self.life(name, *place) else { continue };
            let mut life = life.clone();
            life.versions.retain(|_, versions| {
                versions.retain(|version| version.commit <= seq);
                !versions.is_empty()
            });
            lives.insert(name.clone(), vec![(true, life)]);
        }
        let commits = self.commits.iter().copied().filter(|commit| *commit <= seq).collect();
        Self { now: self.now, commits, lives }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, value: Option<&str>) -> Change {
        let write = value.map_or(Write::Delete, |value| Write::Put(value.as_bytes().into()));
        Change { keyspace: "a".into(), key: key.into(), write }
    }

    fn at(model: &Model, seq: u64) -> Vec<(&[u8], &[u8])> {
        let (_, life) = model.living("a").unwrap();
        life.entries(model.at(seq)).map(|(key, value)| (key, &**value)).collect()
    }

    #[test]
    fn every_commit_can_be_asked_for_afterwards() {
        let mut model = Model::default();
        model.create("a");
        model.commit(2, &[change("x", Some("1")), change("y", Some("1"))]);
        model.commit(3, &[change("x", None)]);
        model.commit(5, &[change("x", Some("2")), change("x", Some("3"))]);
        assert_eq!(at(&model, 0), []);
        assert_eq!(at(&model, 2), [(&b"x"[..], &b"1"[..]), (b"y", b"1")]);
        assert_eq!(at(&model, 4), [(&b"y"[..], &b"1"[..])]);
        assert_eq!(at(&model, 9), [(&b"x"[..], &b"3"[..]), (b"y", b"1")]);
        assert!(model.is_boundary(3) && !model.is_boundary(4));
        assert_eq!(model.next_commit(3), Some(5));
    }

    #[test]
    fn a_dropped_keyspace_comes_back_empty() {
        let mut model = Model::default();
        model.create("a");
        model.commit(1, &[change("x", Some("1"))]);
        model.drop_keyspace("a");
        assert!(model.living("a").is_none() && model.names().is_empty());
        model.create("a");
        assert_eq!(at(&model, 1), []);
        assert_eq!(model.life("a", 0).unwrap().get(b"x", model.at(1)).unwrap()[..], *b"1");
    }

    #[test]
    fn a_value_ends_with_its_time_and_hides_what_was_before() {
        let mut model = Model::default();
        model.create("a");
        model.commit(1, &[change("x", Some("old"))]);
        let write = Write::PutFor(b"new"[..].into(), 10);
        model.commit(2, &[Change { write, ..change("x", None) }]);
        model.pass(9);
        assert_eq!(at(&model, 2), [(&b"x"[..], &b"new"[..])]);
        model.pass(1);
        assert_eq!(at(&model, 2), []);
        assert_eq!(at(&model, 1), [(&b"x"[..], &b"old"[..])]);
    }

    #[test]
    fn what_is_appended_outlasts_what_expires() {
        let mut model = Model::default();
        model.create("a");
        let append = |text: &str| Change {
            write: Write::Append(text.as_bytes().into()),
            ..change("x", None)
        };
        model.commit(1, &[append("1"), append("2")]);
        let write = Write::PutFor(b"new"[..].into(), 10);
        model.commit(2, &[Change { write, ..change("x", None) }, append("3")]);
        model.commit(3, &[append("4")]);
        assert_eq!(at(&model, 1), [(&b"x"[..], &b"12"[..])]);
        assert_eq!(at(&model, 2), [(&b"x"[..], &b"new3"[..])]);
        assert_eq!(at(&model, 3), [(&b"x"[..], &b"new34"[..])]);
        model.pass(10);
        assert_eq!(at(&model, 3), [(&b"x"[..], &b"34"[..])]);
        model.commit(4, &[append("5")]);
        assert_eq!(at(&model, 4), [(&b"x"[..], &b"345"[..])]);
    }

    #[test]
    fn a_range_that_is_deleted_leaves_what_comes_after() {
        let mut model = Model::default();
        model.create("a");
        model.commit(2, &[change("x", Some("1")), change("y", Some("1"))]);
        let range = Change { write: Write::DeleteUpTo(Some(b"y".into())), ..change("w", None) };
        model.commit(4, &[range.clone(), change("x", Some("2"))]);
        assert_eq!(at(&model, 4), [(&b"x"[..], &b"2"[..]), (b"y", b"1")]);
        model.commit(6, &[change("x", Some("3")), range]);
        assert_eq!(at(&model, 6), [(&b"y"[..], &b"1"[..])]);
        assert_eq!(at(&model, 5), [(&b"x"[..], &b"2"[..]), (b"y", b"1")]);
    }

    #[test]
    fn recovery_forgets_what_came_after() {
        let mut model = Model::default();
        model.create("a");
        model.commit(1, &[change("x", Some("1"))]);
        model.commit(2, &[change("x", Some("2"))]);
        let recovered = model.recovered(1, &model.alive());
        assert_eq!(at(&recovered, 9), [(&b"x"[..], &b"1"[..])]);
        assert_eq!(recovered.last_commit(), 1);
    }
}
