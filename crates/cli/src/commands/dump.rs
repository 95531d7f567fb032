//! `dump`: every entry of a keyspace, as of one moment.

use std::ops::Bound;

use esker_terminal::exit::Failure;

use super::entries::{self, Selection};
use super::{keyspace, open_to_read};
use crate::args::Dump;
use crate::text::Format;

pub(super) fn run(args: &Dump) -> Result<(), Failure> {
    let db = open_to_read(&args.store.path)?;
    let all = (Bound::Unbounded, Bound::Unbounded);
    let range = args.version.of(&db, keyspace(&db, &args.keyspace.name)?)?.range(all)?;
    entries::print(
        range,
        &Selection {
            format: if args.json { Format::Jsonl } else { args.format.into() },
            reverse: false,
            limit: None,
            skip_damaged: args.skip_damaged,
        },
    )
}
