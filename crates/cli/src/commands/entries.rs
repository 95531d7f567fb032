//! Printing the entries of a range, for `scan` and `dump`.

use esker::Range;
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;

use crate::text::Format;

/// The entries of a range that are printed, and their form.
pub(super) struct Selection {
    pub(super) format: Format,
    pub(super) reverse: bool,
    pub(super) limit: Option<u64>,
    pub(super) skip_damaged: bool,
}

/// Prints the entries. What was read before an error is printed too.
///
/// With `skip_damaged`, unreadable parts do not stop the output; they are its error at the end, so
/// that the output is not mistaken for complete.
pub(super) fn print(range: Range, selection: &Selection) -> Result<(), Failure> {
    let mut range = if selection.skip_damaged { range.skip_damaged() } else { range };
    let mut output = Output::new();
    let printed = print_all(&mut range, selection, &mut output);
    output.flush()?;
    printed?;
    match range.damaged() {
        [] => Ok(()),
        [first, others @ ..] => Err(Failure::Damaged(match others.len() {
            0 => format!("left out what cannot be read: {}", first.error),
            more => format!(
                "left out {} parts that cannot be read; the first: {}",
                more + 1,
                first.error
            ),
        })),
    }
}

fn print_all(range: &mut Range, selection: &Selection, output: &mut Output) -> Result<(), Failure> {
    let mut line = Vec::new();
    for _ in 0..selection.limit.unwrap_or(u64::MAX) {
        let next = if selection.reverse { range.next_back() } else { range.next() };
        let Some(entry) = next else { break };
        let (key, value) = entry?;
        line.clear();
        selection.format.encode(&key, &value, &mut line);
        output.bytes(&line)?;
    }
    Ok(())
}
