//! `keyspaces`: their names, sorted.

use esker_terminal::exit::Failure;
use esker_terminal::output::Output;

use super::open_to_read;
use crate::args::Keyspaces;

pub(super) fn run(args: &Keyspaces) -> Result<(), Failure> {
    let names = open_to_read(&args.store.path)?.keyspaces()?;
    let mut output = Output::new();
    if args.json {
        output.json(&names.into())?;
    } else {
        for name in &names {
            output.line(name)?;
        }
    }
    output.flush()
}
