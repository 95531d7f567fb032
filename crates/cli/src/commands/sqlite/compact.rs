//! A store's file made as short as what lives in it.

use std::ops::ControlFlow;

use esker_pages::Compacted;
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::progress;
use esker_terminal::signals::Interrupt;
use indicatif::HumanBytes;
use serde_json::{Map, Value};

use super::look::numbers;
use super::{Look, open};

const BAR: &str = "{pos} of {len} pages moved [{wide_bar}] {per_sec}, {eta} left";

pub(super) fn compact(args: &Look) -> Result<(), Failure> {
    let file = open(&args.store)?;
    let interrupt = Interrupt::install()?;
    let bar = progress::bar(None, BAR);
    let mut going = |moved: u64, left: u64| {
        bar.set_length(moved + left);
        bar.set_position(moved);
        if interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let compacted = file.store.compact(&mut going)?;
    bar.finish_and_clear();
    let used_bytes = file.store.stats().used_bytes;
    file.close()?;
    interrupt.check()?;
    say(args, &compacted, used_bytes)
}

fn say(args: &Look, compacted: &Compacted, used_bytes: u64) -> Result<(), Failure> {
    let mut output = Output::new();
    if args.json {
        let mut object = Map::from_iter(numbers(compacted.fields()));
        object.insert("used_bytes".to_owned(), used_bytes.into());
        output.json(&Value::from(object))?;
    } else {
        let Compacted { before_bytes, after_bytes, .. } = *compacted;
        let [before, after, used] = [before_bytes, after_bytes, used_bytes].map(HumanBytes);
        output.line(&format!("compacted from {before} to {after}, {used} of them in use"))?;
    }
    output.flush()
}
