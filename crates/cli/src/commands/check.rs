//! `check`: everything of a store or of a backup is read and compared with what it should be.

use std::path::Path;

use esker::{Backup, CheckReport, Error};
use esker_terminal::exit::{Failure, one_line};
use esker_terminal::output::Output;
use indicatif::{HumanBytes, HumanCount};
use serde_json::json;

use super::open_to_read;
use crate::args::Check;

/// A problem as it is printed.
struct Finding {
    file: String,
    offset: u64,
    what: String,
}

pub(super) fn run(args: &Check) -> Result<(), Failure> {
    let (report, findings) = match check(&args.path) {
        Ok(report) => {
            let findings = findings(&report);
            (report, findings)
        }
        // A store too damaged to open, or to check to the end, has at least that to show.
        Err(Failure::Store(Error::Damaged { file, offset, what })) => {
            (CheckReport::default(), vec![Finding { file, offset, what }])
        }
        Err(failure) => return Err(failure),
    };
    let mut output = Output::new();
    if args.json {
        output.json(&as_json(&report, &findings))?;
    } else {
        for Finding { file, offset, what } in &findings {
            output.line(&one_line(&format!("{file}@{offset}: {what}")))?;
        }
        if findings.is_empty() {
            output.line(&format!(
                "ok: {} entries in {} blocks ({}), {} operations in the log ({})",
                HumanCount(report.entries),
                HumanCount(report.blocks),
                HumanBytes(report.bytes),
                HumanCount(report.log_operations),
                HumanBytes(report.log_bytes)
            ))?;
            if let Some(number) = report.followed_at {
                output.line(&format!(
                    "as of operation {}: another process writes the store, and its free space was \
                     not checked",
                    HumanCount(number)
                ))?;
            }
        }
    }
    output.flush()?;
    match findings.len() {
        0 => Ok(()),
        1 => Err(Failure::Damaged("1 problem found".to_owned())),
        count => Err(Failure::Damaged(format!("{count} problems found"))),
    }
}

fn check(path: &Path) -> Result<CheckReport, Failure> {
    if Backup::exists(path)? {
        return Ok(Backup::open(path)?.check()?);
    }
    Ok(open_to_read(path)?.check()?)
}

fn findings(report: &CheckReport) -> Vec<Finding> {
    let problems = report.problems.iter();
    problems
        .map(|problem| Finding {
            file: problem.file.clone(),
            offset: problem.offset,
            what: problem.what.clone(),
        })
        .collect()
}

fn as_json(report: &CheckReport, findings: &[Finding]) -> serde_json::Value {
    let problems = findings.iter().map(
        |Finding { file, offset, what }| json!({ "file": file, "offset": offset, "what": what }),
    );
    json!({
        "ok": findings.is_empty(),
        "entries": report.entries,
        "blocks": report.blocks,
        "bytes": report.bytes,
        "log_operations": report.log_operations,
        "log_bytes": report.log_bytes,
        "followed_at": report.followed_at,
        "problems": problems.collect::<Vec<_>>(),
    })
}
