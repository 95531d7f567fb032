//! `flash sim`: one simulation, or a sweep of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_flash::report::{Report, VERSION};
use esker_flash::run::spec::Spec;
use esker_flash::run::{Phase, Progress};
use esker_flash::simulate::{SimulateError, simulate};
use esker_flash::trace::error::TraceError;
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::progress::{self, Pace};
use esker_terminal::signals::Interrupt;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::sweep::{self, Axis};
use super::{Sim, show};

const BAR: &str = "{prefix}{msg} {human_pos} of {human_len} [{wide_bar}] {eta} left";
const COUNTER: &str = "{prefix}{msg} {human_pos} requests, {elapsed}";
const REDRAW: Duration = Duration::from_millis(100);

pub(super) fn run(args: &Sim) -> Result<(), Failure> {
    let axes = args.sweep.iter().map(|text| sweep::axis(text)).collect::<Result<Vec<Axis>, _>>();
    let axes = axes.map_err(Failure::Input)?;
    let base = base(args)?;
    let points = sweep::points(&axes);
    let mut specs = Vec::new();
    for point in &points {
        let mut spec = base.clone();
        for (name, value) in point {
            set(&mut spec, name, value)?;
        }
        // Of impossible sizes, nothing runs.
        spec.geometry().map_err(|error| Failure::Input(error.to_string()))?;
        specs.push(spec);
    }
    let mut target = Target::of(args.json.as_deref())?;
    let interrupt = Interrupt::install()?;
    let mut runs = Vec::new();
    for (number, (spec, point)) in specs.iter().zip(&points).enumerate() {
        let prefix = match specs.len() {
            1 => String::new(),
            count => format!("{} of {count}: ", number + 1),
        };
        match one(spec, prefix, &interrupt) {
            Err(failure) if axes.is_empty() || matches!(failure, Failure::Interrupted) => {
                return Err(failure);
            }
            done => runs.push(Run { point: point.clone(), done }),
        }
    }
    let json: Vec<Value> = runs.iter().map(Run::to_json).collect();
    let json = json!({ "version": VERSION, "runs": json });
    if let Target::Output = target {
        let mut output = Output::new();
        output.json(&json)?;
        output.flush()?;
    } else {
        target.write(&json)?;
        print(&axes, &runs, args.wall)?;
    }
    all_done(runs)
}

/// A run of a sweep, and what it varies.
pub(super) struct Run<'a> {
    pub(super) point: Vec<(&'a str, &'a str)>,
    pub(super) done: Result<Report, Failure>,
}

impl Run<'_> {
    /// What it varies, as it was typed.
    fn name(&self) -> String {
        let values: Vec<_> =
            self.point.iter().map(|(name, value)| format!("{name}={value}")).collect();
        values.join(" ")
    }

    /// Its report, or what it varies and why there is none.
    fn to_json(&self) -> Value {
        match &self.done {
            Ok(report) => report.to_json(),
            Err(failure) => json!({ "sweep": self.name(), "error": failure.to_string() }),
        }
    }
}

/// Fails if a run of a sweep has no report, with the reason of the first one.
fn all_done(runs: Vec<Run<'_>>) -> Result<(), Failure> {
    let (all, failed) = (runs.len(), runs.iter().filter(|run| run.done.is_err()).count());
    let Some(first) = runs.into_iter().find(|run| run.done.is_err()) else { return Ok(()) };
    let name = first.name();
    match first.done {
        Err(Failure::Input(why)) => Err(Failure::Input(format!(
            "{failed} of {all} runs of the sweep have no report: {name}: {why}"
        ))),
        done => done.map(drop),
    }
}

/// The settings that all runs of a sweep share.
fn base(args: &Sim) -> Result<Spec, Failure> {
    let mut spec = Spec::default();
    let number = |value: Option<u32>| value.map(|value| value.to_string());
    let flag = |value: bool| Some(value.to_string());
    let settings = [
        ("preset", Some(args.preset.clone())),
        ("channels", number(args.channels)),
        ("dies", number(args.dies)),
        ("planes", number(args.planes)),
        ("blocks", number(args.blocks)),
        ("pages", number(args.pages)),
        ("page-size", number(args.page_size)),
        ("capacity", number(args.capacity)),
        ("ftl", Some(args.ftl.clone())),
        ("gc", Some(args.gc.clone())),
        ("op", Some(args.op.clone())),
        ("placement", Some(args.placement.clone())),
        ("workload", args.workload.clone()),
        ("trace", args.trace.clone()),
        ("ops", args.ops.map(|count| count.to_string())),
        ("request-pages", number(Some(args.request_pages))),
        ("qd", number(args.qd)),
        ("timed", flag(args.timed)),
        ("warm-up", Some(args.warm_up.clone())),
        ("fresh", flag(args.fresh)),
        ("wrap", flag(args.wrap)),
        ("seed", Some(args.seed.to_string())),
    ];
    for (name, value) in &settings {
        if let Some(value) = value {
            set(&mut spec, name, value)?;
        }
    }
    Ok(spec)
}

fn set(spec: &mut Spec, name: &str, value: &str) -> Result<(), Failure> {
    spec.set(name, value).map_err(|error| Failure::Input(error.to_string()))
}

fn one(spec: &Spec, prefix: String, interrupt: &Interrupt) -> Result<Report, Failure> {
    let bar = progress::bar(None, COUNTER).with_prefix(prefix);
    let mut pace = Pace::new(REDRAW);
    let mut phase = None;
    let done = simulate(spec, &mut |at| {
        if phase != Some(at.phase) || pace.due() {
            draw(&bar, &at, phase != Some(at.phase));
            phase = Some(at.phase);
        }
        !interrupt.requested()
    });
    bar.finish_and_clear();
    done.map_err(failure)
}

fn draw(bar: &ProgressBar, at: &Progress, is_new: bool) {
    if is_new {
        let template = if at.total.is_some() { BAR } else { COUNTER };
        if let Ok(style) = indicatif::ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if let Some(total) = at.total {
            bar.set_length(total);
        }
        bar.reset_elapsed();
        bar.set_message(match at.phase {
            Phase::Fill => "filling, page",
            Phase::WarmUp => "warming up, page",
            Phase::Measured => "request",
        });
    }
    bar.set_position(at.done);
}

fn failure(error: SimulateError) -> Failure {
    match error {
        SimulateError::Interrupted => Failure::Interrupted,
        SimulateError::Trace(TraceError::Read { path, line, source }) => {
            let name = match line {
                0 => path.display().to_string(),
                _ => format!("{} after line {line}", path.display()),
            };
            Failure::Read { name, source }
        }
        other => Failure::Input(other.to_string()),
    }
}

fn print(axes: &[Axis], runs: &[Run<'_>], wall: bool) -> Result<(), Failure> {
    let mut output = Output::new();
    let reports: Vec<&Report> = runs.iter().filter_map(|run| run.done.as_ref().ok()).collect();
    match (axes, &reports[..]) {
        ([], [report]) => output.line(&show::one(report))?,
        ([..], [first, ..]) => {
            output.line(&show::heading(first, axes))?;
            output.line("")?;
            output.line(&show::table(axes, runs))?;
        }
        _ => {}
    }
    for run in runs {
        if let Err(failure) = &run.done {
            output.line(&format!("{}: no report: {failure}", run.name()))?;
        }
    }
    if wall {
        for report in reports {
            output.line(&show::wall(report))?;
        }
    }
    output.flush()
}

/// Where the JSON goes. A file is opened before anything runs, and replaced at the end.
enum Target {
    Nowhere,
    Output,
    File { path: PathBuf, file: File },
}

impl Target {
    fn of(path: Option<&Path>) -> Result<Self, Failure> {
        match path {
            None => Ok(Self::Nowhere),
            Some(path) if path == Path::new("-") => Ok(Self::Output),
            Some(path) => {
                let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
                let file = opened.map_err(|source| refused(path, &source))?;
                Ok(Self::File { path: path.to_owned(), file })
            }
        }
    }

    fn write(&mut self, json: &Value) -> Result<(), Failure> {
        let Self::File { path, file } = self else { return Ok(()) };
        let text = format!("{json:#}\n");
        let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(|source| refused(path, &source))
    }
}

fn refused(path: &Path, source: &io::Error) -> Failure {
    let source = io::Error::new(source.kind(), format!("{}: {source}", path.display()));
    Failure::System { what: "write the report", source }
}
