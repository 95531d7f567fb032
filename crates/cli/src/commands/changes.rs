//! `changes` and `diff`: what happened in a keyspace with history between two versions.

use std::ops::Bound;

use clap::Args;
use esker::{Db, Diff as Differences, Difference, KeyChange, KeyChanges};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use serde_json::{Map, Value};

use super::bounds::Bounds;
use super::version::Point;
use super::{history, keyspace, open_to_read, time};
use crate::args::{Space, Store};
use crate::text;

/// The description of `changes`.
pub(crate) const CHANGES_HELP: &str = r#"Print the changes that versions made, by key

Those after version V1 and up to V2, by key, the newest change of a key first. Without V1, all
changes that are kept; without V2, those up to the newest version. V1 and V2 are numbers, or names
that `pin` has given.

One line per change: key, TAB, version, TAB, time, TAB, and `put`, TAB, value, or `removed`. Keys
and values have the escapes of `scan`.
With --json, JSON lines: {"k":"…","version":…,"time":"…","v":"…"}, with "k64" or "v64" in base64
for bytes that are not UTF-8, and "removed":true in the place of a value."#;

/// The description of `diff`.
pub(crate) const DIFF_HELP: &str = r#"Print the keys whose values differ between two versions

In key order, from version V1 to V2, which is the newest one if it is not given. V1 and V2 are
numbers, or names that `pin` has given.

One line per key: key, TAB, and `added`, TAB, the value in V2; `removed`, TAB, the value in V1; or
`changed`, TAB, the value in V1, TAB, the value in V2. Keys and values have the escapes of `scan`.
With --json, JSON lines: {"k":"…","before":"…","after":"…"}, with "k64", "before64" or "after64" in
base64 for bytes that are not UTF-8. A key without a value in V1 has no "before", one without a
value in V2 no "after"."#;

/// The arguments of `changes`.
#[derive(Debug, Args)]
pub(crate) struct Changes {
    #[command(flatten)]
    store: Store,
    /// Only changes after this version [default: the oldest that can be read]
    #[arg(value_name = "V1")]
    since: Option<Point>,
    /// Only changes up to this version [default: the newest]
    #[arg(value_name = "V2")]
    until: Option<Point>,
    #[command(flatten)]
    form: Form,
}

/// The arguments of `diff`.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    store: Store,
    /// The first version
    #[arg(value_name = "V1")]
    before: Point,
    /// The second version [default: the newest]
    #[arg(value_name = "V2")]
    after: Option<Point>,
    #[command(flatten)]
    form: Form,
}

/// What both print, and how.
#[derive(Debug, Args)]
struct Form {
    #[command(flatten)]
    bounds: Bounds,
    /// Print at most this many lines
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    keyspace: Space,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

/// Prints the changes of versions.
pub(super) fn changes(args: &Changes) -> Result<(), Failure> {
    let bounds = args.form.bounds.read()?;
    let db = open_to_read(&args.store.path)?;
    let keyspace = keyspace(&db, &args.form.keyspace.name)?;
    let number = |point: &Option<Point>| point.as_ref().map(|point| point.number(&db)).transpose();
    let (since, until) = (number(&args.since)?, number(&args.until)?);
    let versions = (
        since.map_or(Bound::Unbounded, Bound::Excluded),
        until.map_or(Bound::Unbounded, Bound::Included),
    );
    let changes: KeyChanges = keyspace.changes(versions)?.range(bounds);
    let mut times = Times { db: &db, last: None };
    print(&args.form, changes, |change: KeyChange, output| {
        let made = (change.version, times.of(change.version)?);
        if args.form.json {
            let mut object = Map::new();
            text::insert_json(&mut object, ("k", "k64"), &change.key);
            history::insert(&mut object, made, change.value.as_deref());
            return output.json(&object.into());
        }
        let mut line = Vec::new();
        text::escape(&change.key, &mut line);
        line.push(b'\t');
        history::append(&mut line, made, change.value.as_deref());
        output.bytes(&line)
    })
}

/// Prints the differences between two versions.
pub(super) fn diff(args: &Diff) -> Result<(), Failure> {
    let bounds = args.form.bounds.read()?;
    let db = open_to_read(&args.store.path)?;
    let keyspace = keyspace(&db, &args.form.keyspace.name)?;
    let before = args.before.number(&db)?;
    let after = match &args.after {
        Some(after) => after.number(&db)?,
        None => db.version(),
    };
    let differences: Differences = keyspace.diff(before, after)?.range(bounds);
    print(&args.form, differences, |difference, output| match args.form.json {
        true => output.json(&as_json(&difference)),
        false => output.bytes(&as_line(&difference)),
    })
}

/// Prints the items with `each`. What was read before an error is printed too.
fn print<T>(
    form: &Form,
    items: impl Iterator<Item = esker::Result<T>>,
    each: impl FnMut(T, &mut Output) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut output = Output::new();
    let printed = print_all(form, items, each, &mut output);
    output.flush()?;
    printed
}

fn print_all<T>(
    form: &Form,
    mut items: impl Iterator<Item = esker::Result<T>>,
    mut each: impl FnMut(T, &mut Output) -> Result<(), Failure>,
    output: &mut Output,
) -> Result<(), Failure> {
    for _ in 0..form.limit.unwrap_or(u64::MAX) {
        let Some(item) = items.next().transpose()? else { break };
        each(item, output)?;
    }
    Ok(())
}

/// The times of versions. A commit has often changed many keys.
struct Times<'a> {
    db: &'a Db,
    last: Option<(u64, Option<String>)>,
}

impl Times<'_> {
    fn of(&mut self, version: u64) -> Result<Option<String>, Failure> {
        if let Some((last, time)) = &self.last
            && *last == version
        {
            return Ok(time.clone());
        }
        let time = self.db.time_of(version)?.map(time::text);
        self.last = Some((version, time.clone()));
        Ok(time)
    }
}

fn as_json(difference: &Difference) -> Value {
    let mut object = Map::new();
    text::insert_json(&mut object, ("k", "k64"), &difference.key);
    if let Some(before) = &difference.before {
        text::insert_json(&mut object, ("before", "before64"), before);
    }
    if let Some(after) = &difference.after {
        text::insert_json(&mut object, ("after", "after64"), after);
    }
    object.into()
}

fn as_line(difference: &Difference) -> Vec<u8> {
    let (before, after) = (difference.before.as_deref(), difference.after.as_deref());
    let what = match (before, after) {
        (None, _) => "added",
        (_, None) => "removed",
        _ => "changed",
    };
    let mut line = Vec::new();
    text::escape(&difference.key, &mut line);
    line.push(b'\t');
    line.extend_from_slice(what.as_bytes());
    for value in [before, after].into_iter().flatten() {
        line.push(b'\t');
        text::escape(value, &mut line);
    }
    line.push(b'\n');
    line
}
