//! `scan`: entries in key order, between bounds.

use esker_terminal::exit::Failure;

use super::entries::{self, Selection};
use super::{keyspace, open_to_read};
use crate::args::Scan;
use crate::text::Format;

pub(super) fn run(args: &Scan) -> Result<(), Failure> {
    let bounds = args.bounds.read()?;
    let db = open_to_read(&args.store.path)?;
    let range = args.version.of(&db, keyspace(&db, &args.keyspace.name)?)?.range(bounds)?;
    entries::print(
        range,
        &Selection {
            format: if args.json { Format::Jsonl } else { Format::Tsv },
            reverse: args.reverse,
            limit: args.limit,
            skip_damaged: args.skip_damaged,
        },
    )
}
