//! `flash kv check` and `stats`: what an image holds.

use esker_latree::Stats;
use esker_latree::check::Checked;
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::table::Table;
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use super::Look;
use super::open::{Tree, failed, open_to_read};

pub(super) fn check(args: &Look) -> Result<(), Failure> {
    let mut tree = open_to_read(&args.image)?;
    let checked = tree.check().map_err(|error| failed(&args.image, error))?;
    let Checked { nodes, leaves, fragment_pages, levels } = checked;
    let mut output = Output::new();
    if args.json {
        output.json(&json!({
            "ok": true,
            "nodes": nodes,
            "leaves": leaves,
            "buffer_pages": fragment_pages,
            "levels": levels,
        }))?;
    } else {
        output.line(&format!(
            "ok: {} nodes in {levels} levels, {} pages of buffers",
            HumanCount(nodes),
            HumanCount(fragment_pages)
        ))?;
    }
    output.flush()
}

pub(super) fn stats(args: &Look) -> Result<(), Failure> {
    let tree = open_to_read(&args.image)?;
    let mut output = Output::new();
    if args.json {
        output.json(&as_json(&tree))?;
    } else {
        output.line(&as_table(&tree).to_string())?;
    }
    output.flush()
}

/// The erase counts of the image: least, greatest, and their sum.
fn erases(tree: &Tree) -> (u32, u32, u64) {
    let counts = || tree.chip().erases();
    let sum = counts().map(u64::from).sum();
    (counts().min().unwrap_or(0), counts().max().unwrap_or(0), sum)
}

fn as_json(tree: &Tree) -> Value {
    let (sizes, stats) = (tree.chip().sizes(), tree.stats());
    let (least, greatest, sum) = erases(tree);
    json!({
        "chip": {
            "page_bytes": sizes.page_bytes,
            "pages_per_block": sizes.pages_per_block,
            "blocks": sizes.blocks,
            "erases_least": least,
            "erases_greatest": greatest,
            "erases": sum,
        },
        "tree": {
            "subtree_levels": sizes.subtree_levels,
            "entry_bytes_max": tree.entry_bytes_max(),
            "leaves": stats.leaves,
            "subtrees": stats.subtrees,
            "buffer_pages": stats.buffer_pages,
            "live_pages": stats.live_pages,
            "free_blocks": stats.free_blocks,
        },
    })
}

fn as_table(tree: &Tree) -> Table {
    let sizes = tree.chip().sizes();
    let Stats { leaves, subtrees, buffer_pages, live_pages, free_blocks, .. } = tree.stats();
    let (least, greatest, sum) = erases(tree);
    let pages = u64::from(sizes.blocks) * u64::from(sizes.pages_per_block);
    let bytes = |count: u64| HumanBytes(count).to_string();
    let count = |count: u64| HumanCount(count).to_string();
    let mut table = Table::new(&["chip", ""]);
    for (name, value) in [
        ("capacity", bytes(pages * u64::from(sizes.page_bytes))),
        ("  blocks", count(sizes.blocks.into())),
        ("  pages of a block", count(sizes.pages_per_block.into())),
        ("  bytes of a page", count(sizes.page_bytes.into())),
        ("blocks erased", count(sum)),
        ("  erases of a block", format!("{least}..{greatest}")),
        ("pages in use", count(live_pages)),
        ("  leaves", count(leaves)),
        ("  pages of buffers", count(buffer_pages as u64)),
        ("free blocks", count(free_blocks as u64)),
        ("subtrees", count(subtrees as u64)),
        ("  levels of one", sizes.subtree_levels.to_string()),
        ("greatest key and value, bytes", tree.entry_bytes_max().to_string()),
    ] {
        table.row([name.to_owned(), value]);
    }
    table
}
