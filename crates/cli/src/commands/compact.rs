//! `compact`: a full merge, and free space given back.

use std::time::Instant;

use esker::Db;
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use indicatif::HumanBytes;
use serde_json::json;

use super::{keyspace, open};
use crate::args::Compact;

pub(super) fn run(args: &Compact) -> Result<(), Failure> {
    let db = open(&args.store.path)?;
    let started = Instant::now();
    let before_bytes = allocated_bytes(&db)?;
    match &args.keyspace {
        Some(name) => keyspace(&db, name)?.compact()?,
        None => db.compact()?,
    }
    let after_bytes = allocated_bytes(&db)?;
    let seconds = started.elapsed().as_secs_f64();
    db.close()?;

    let mut output = Output::new();
    if args.json {
        output.json(&json!({
            "allocated_bytes_before": before_bytes,
            "allocated_bytes": after_bytes,
            "seconds": seconds,
        }))?;
    } else {
        output.line(&format!(
            "compacted from {} to {} in {seconds:.1} s",
            HumanBytes(before_bytes),
            HumanBytes(after_bytes)
        ))?;
    }
    output.flush()
}

fn allocated_bytes(db: &Db) -> Result<u64, Failure> {
    Ok(db.stats()?.space.allocated_bytes)
}
