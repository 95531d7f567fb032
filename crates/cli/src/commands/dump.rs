//! `dump`: every entry of a keyspace, as of one moment.

use esker_terminal::exit::Failure;

use super::entries::{self, Selection};
use super::{keyspace, open_to_read};
use crate::args::Dump;
use crate::text::Format;

pub(super) fn run(args: &Dump) -> Result<(), Failure> {
    let db = open_to_read(&args.store.path)?;
    let range = keyspace(&db, &args.keyspace.name)?.iter()?;
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
