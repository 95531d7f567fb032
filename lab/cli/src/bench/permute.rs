//! `bench permute`: rearranging arrays, compared with copies and with common alternatives.

use std::path::PathBuf;

use clap::Args;
use esker_experiments::permute::cases::{self, Case};
use esker_experiments::permute::rearrange::{self, PASSES, Plan, System, floor, seconds};
use esker_lab_result::{Findings, Outcome};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::signals::Interrupt;

use super::{folder, keep};
use crate::measuring::{failure, known};

/// What can be typed after `bench permute`.
#[derive(Debug, Args)]
pub(crate) struct Permute {
    /// Only these cases, separated by commas: a1, a4, b1, b2, c, d
    #[arg(long, value_name = "CASES", value_delimiter = ',', value_parser = case)]
    case: Vec<Case>,
    /// These systems, separated by commas: dd, copy, esker, tiled, sort, lru
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = system,
          default_value = "dd,copy,esker,tiled")]
    systems: Vec<System>,
    /// Number of rounds in which the systems alternate
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Folder of the arrays, removed at the end; needs 10 GB [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write all measurements to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Small arrays: a test that everything runs
    #[arg(long, hide = true)]
    tiny: bool,
}

fn case(name: &str) -> Result<Case, String> {
    known(Case::parse(name), "cases", cases::ALL.iter().map(|case| case.name))
}

fn system(name: &str) -> Result<System, String> {
    known(System::parse(name), "systems", System::ALL.into_iter().map(System::as_str))
}

pub(super) fn run(args: &Permute) -> Result<(), Failure> {
    let interrupt = Interrupt::install()?;
    let place = folder(args.dir.as_deref())?;
    let cases = if args.case.is_empty() { cases::ALL.to_vec() } else { args.case.clone() };
    let shrink = |case: Case| if args.tiny { case.shrunk() } else { case };
    let plan = Plan {
        cases: cases.into_iter().map(shrink).collect(),
        systems: args.systems.clone(),
        rounds: args.repeat,
        folder: place.path().to_owned(),
    };
    let found = rearrange::run(&plan, &mut |line| {
        eprintln!("esker: {line}");
        !interrupt.requested()
    });
    let mut found = found.map_err(failure)?;
    keep(args.json.as_deref(), &mut found)?;
    let mut output = Output::new();
    output.line(&heading(&args.systems))?;
    for case in &plan.cases {
        output.line(&line(&found, case, &args.systems))?;
    }
    output.flush()
}

fn heading(systems: &[System]) -> String {
    let names = systems.iter().map(|system| format!("{:>8}", format!("{} s", system.as_str())));
    let names: String = names.collect();
    format!("case  memory MiB  passes{names}   x dd  x copy  must")
}

fn line(found: &Findings, case: &Case, systems: &[System]) -> String {
    let part = found.part(case.name);
    let number = |value: Option<f64>, width: usize| {
        value.map_or_else(|| format!("{:>width$}", "-"), |value| format!("{value:>width$.2}"))
    };
    let columns: String = systems.iter().map(|system| number(seconds(part, *system), 8)).collect();
    let to = |other: Option<f64>| Some(seconds(part, System::Esker)? / other?);
    let verdict = found.verdicts.iter().find(|verdict| verdict.part.as_deref() == Some(case.name));
    let outcome = verdict.map_or(Outcome::Unknown, |verdict| verdict.outcome);
    format!(
        "{:<6}{:>10}{:>8}{columns}{}{}{:>6}  {}",
        case.name,
        case.memory_bytes() >> 20,
        part.median(System::Esker.as_str(), PASSES).unwrap_or(0.0),
        number(to(seconds(part, System::Dd)), 7),
        number(to(floor(part)), 8),
        case.must,
        outcome.as_str(),
    )
}
