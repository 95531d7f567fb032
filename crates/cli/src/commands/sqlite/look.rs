//! What a store holds.

use esker_flash::{Error, Stats, Version};
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use super::{Look, open};
use crate::exit::Failure;
use crate::output::Output;

pub(super) fn check(args: &Look) -> Result<(), Failure> {
    let checked = open(&args.store).and_then(|file| Ok(file.store.check()?));
    let mut output = Output::new();
    match checked {
        Ok(report) => {
            if args.json {
                output.json(&json!({ "ok": true, "report": format!("{report:?}") }))?;
            } else {
                output.line(&format!("ok: {report:?}"))?;
            }
            output.flush()
        }
        Err(Failure::Pages(Error::Corrupt { file, offset, what })) => {
            if args.json {
                let problem = json!({ "file": file, "offset": offset, "what": what });
                output.json(&json!({ "ok": false, "problems": [problem] }))?;
            }
            output.flush()?;
            Err(Failure::Damaged(format!("{file}@{offset}: {what}")))
        }
        Err(failure) => Err(failure),
    }
}

pub(super) fn stats(args: &Look) -> Result<(), Failure> {
    let file = open(&args.store)?;
    let (stats, versions) = (file.store.stats(), file.store.versions());
    let mut output = Output::new();
    if args.json {
        output.json(&as_json(&stats, &versions))?;
    } else {
        for (name, value) in lines(&stats, &versions) {
            output.line(&format!("{name:<24}{value}"))?;
        }
    }
    output.flush()
}

fn lines(stats: &Stats, versions: &[Version]) -> Vec<(&'static str, String)> {
    let newest = versions.last();
    let database = newest.map_or(0, |newest| u64::from(newest.pages) * u64::from(newest.page_size));
    let pages = newest.map_or_else(String::new, |newest| {
        format!("{} of {} bytes", HumanCount(u64::from(newest.pages)), newest.page_size)
    });
    vec![
        ("file", HumanBytes(stats.file_bytes).to_string()),
        ("in use", HumanBytes(stats.used_bytes).to_string()),
        ("database", HumanBytes(database).to_string()),
        ("pages", pages),
        ("version", newest.map_or_else(String::new, |newest| newest.version.to_string())),
        ("versions kept", stats.versions.to_string()),
        ("pages only older need", HumanCount(stats.held_pages).to_string()),
        ("pages nobody needs", HumanCount(stats.dead_pages).to_string()),
    ]
}

fn as_json(stats: &Stats, versions: &[Version]) -> Value {
    let newest = versions.last();
    json!({
        "file_bytes": stats.file_bytes,
        "used_bytes": stats.used_bytes,
        "page_bytes": newest.map(|newest| newest.page_size),
        "pages": newest.map(|newest| newest.pages),
        "version": newest.map(|newest| newest.version),
        "versions": stats.versions,
        "live_pages": stats.live_pages,
        "held_pages": stats.held_pages,
        "dead_pages": stats.dead_pages,
        "delta_bytes": stats.delta_bytes,
        "log_bytes": stats.log_bytes,
    })
}

pub(super) fn versions(args: &Look) -> Result<(), Failure> {
    let file = open(&args.store)?;
    let versions = file.store.versions();
    let mut output = Output::new();
    if args.json {
        output.json(&versions.iter().map(version_json).collect())?;
    } else {
        for version in &versions {
            output.line(&version_line(version))?;
        }
    }
    output.flush()
}

fn version_json(version: &Version) -> Value {
    json!({
        "version": version.version,
        "names": version.names,
        "pages": version.pages,
        "page_bytes": version.page_size,
        "held_pages": version.held_pages,
    })
}

fn version_line(version: &Version) -> String {
    let Version { version: number, names, pages, held_pages, .. } = version;
    let names = names.join(" ");
    format!("{number}\t{pages} pages\t{held_pages} only here\t{names}")
}

pub(super) fn compact(args: &Look) -> Result<(), Failure> {
    let file = open(&args.store)?;
    file.store.checkpoint()?;
    let stats = file.store.stats();
    let mut output = Output::new();
    if args.json {
        output.json(&as_json(&stats, &file.store.versions()))?;
    } else {
        let (used, all) = (HumanBytes(stats.used_bytes), HumanBytes(stats.file_bytes));
        output.line(&format!("{used} of {all} in use"))?;
    }
    output.flush()
}
