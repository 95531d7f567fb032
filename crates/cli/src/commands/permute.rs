//! `permute`: an array rearranged from file to file, in bounded memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use esker_permute::device_profile;
use esker_permute::error::Error;
use esker_permute::job::{Job, Report, Request};
use esker_permute::plan::price::Mode;
use esker_permute::units::parse_bytes;
use esker_terminal::exit::{self, Failure};
use esker_terminal::output::Output;
use esker_terminal::progress;
use esker_terminal::signals::Interrupt;
use indicatif::{HumanBytes, ProgressBar};
use serde_json::{Value, json};

pub(crate) const HELP: &str = r#"Rearrange an array larger than memory

PATTERN has the syntax of einops' rearrange: names of axes on both sides, groups in parentheses,
`...` for the remaining axes, and -NAME on the right to flip an axis. NAME=SIZE gives a size that
the pattern does not determine. If a size does not divide its dimension, the last tile is shorter;
the result is then not an array and must be a .raw file, tile after tile.

Files: .npy in C or Fortran order with any type of fixed size; raw items (.raw, .bin) with --shape
and --dtype; folders of Zarr arrays (.zarr), versions 2 and 3, also compressed. The extension of
OUT selects the format. A new Zarr array has the version, compressor and attributes of the input,
and its chunks if no dimension is split or joined, unless --zarr-format, --compressor or --chunks
is given. OUT is complete or does not exist.

Examples:
  esker permute big.npy 'h w -> w h' turned.npy
  esker permute frames.npy 't h w c -> t c h w' planar.npy --memory 1GiB
  esker permute big.npy '(h h2) (w w2) -> h w h2 w2' tiles.npy h2=512 w2=512
  esker permute cube.zarr 'h w -> w h' turned.zarr --chunks 64,1024 --compressor zstd
  esker permute cube.raw 'x y z -> z y -x' out.npy --shape 100,200,300 --dtype float32"#;

const BAR: &str = "{bytes} of {total_bytes} [{wide_bar}] {bytes_per_sec}, {eta} left";

#[derive(Debug, Args)]
pub(crate) struct Permute {
    /// File to read, or folder of a Zarr array
    #[arg(value_name = "IN", required_unless_present = "probe")]
    input: Option<PathBuf>,
    /// Pattern, such as 'h w -> w h'
    #[arg(allow_hyphen_values = true, required_unless_present = "probe")]
    pattern: Option<String>,
    /// New file, or folder of a Zarr array
    #[arg(value_name = "OUT", required_unless_present = "probe")]
    output: Option<PathBuf>,
    /// Sizes of axes
    #[arg(value_name = "NAME=SIZE")]
    sizes: Vec<String>,
    /// Memory for buffers, for example 64MiB or 1GiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: String,
    /// Shape of raw items, for example 100,200
    #[arg(long, value_name = "A,B,C")]
    shape: Option<String>,
    /// Type of raw items, for example float64, >i4 or |V12
    #[arg(long, value_name = "TYPE")]
    dtype: Option<String>,
    /// Chunk shape of the new Zarr array, for example 64,1024
    #[arg(long, value_name = "A,B,C")]
    chunks: Option<String>,
    /// Compressor of the new Zarr array: none, gzip, zlib (version 2), zstd or blosc
    #[arg(long, value_name = "NAME")]
    compressor: Option<String>,
    /// Format version of the new Zarr array: 2 or 3
    #[arg(long, value_name = "VERSION")]
    zarr_format: Option<u8>,
    /// Measure the device of a folder and store the result for later plans
    #[arg(long, value_name = "DIR", exclusive = true)]
    probe: Option<PathBuf>,
    /// Print the plan without running it
    #[arg(long)]
    plan: bool,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Permute) -> Result<(), Failure> {
    if let Some(folder) = &args.probe {
        return super::permute_probe::run(folder);
    }
    let job = Job::new(request(args)?).map_err(failure)?;
    let mut output = Output::new();
    if args.plan {
        if args.json {
            output.json(&plan_json(&job))?;
        } else {
            for line in job.describe() {
                output.line(&line)?;
            }
        }
        return output.flush();
    }
    let interrupt = Interrupt::install()?;
    let total = 2 * job.payload_bytes() * job.passes().len() as u64;
    let bar = if args.json { ProgressBar::hidden() } else { progress::bar(Some(total), BAR) };
    let started = Instant::now();
    let done = job.run(&mut |moved| {
        bar.set_position(moved.min(total));
        !interrupt.requested()
    });
    bar.finish_and_clear();
    let report = done.map_err(failure)?;
    let seconds = started.elapsed().as_secs_f64();
    for warning in &report.warnings {
        exit::warn(&warning.to_string());
    }
    if args.json {
        output.json(&report_json(&job, &report, seconds))?;
    } else {
        output.line(&summary(&job, &report, seconds))?;
    }
    output.flush()
}

fn request(args: &Permute) -> Result<Request, Failure> {
    let (Some(input), Some(pattern), Some(output)) = (&args.input, &args.pattern, &args.output)
    else {
        return Err(Failure::Input("permute takes IN PATTERN OUT".to_owned()));
    };
    let mut request = Request::new(input, pattern, output);
    if let Some(profile) = device_profile::load() {
        request.mode = Mode::Seconds(profile);
    }
    request.memory = parse_bytes(&args.memory).map_err(failure)?;
    request.dtype.clone_from(&args.dtype);
    request.force = args.force;
    request.compressor.clone_from(&args.compressor);
    request.zarr_format = args.zarr_format;
    let shape = args.shape.as_deref();
    request.shape = shape
        .map(|text| list(text, "--shape takes sizes with commas, such as 100,200"))
        .transpose()?;
    let chunks = args.chunks.as_deref();
    request.chunks = chunks
        .map(|text| list(text, "--chunks takes sizes with commas, such as 64,1024"))
        .transpose()?;
    let mut sizes = BTreeMap::new();
    for text in &args.sizes {
        let wrong = "sizes of axes are given as NAME=SIZE, such as h2=512";
        let Some((name, size)) = text.split_once('=') else {
            return Err(Failure::Input(format!("'{text}': {wrong}")));
        };
        if sizes.insert(name.trim().to_owned(), number(size.trim(), wrong)?).is_some() {
            return Err(Failure::Input(format!("'{name}' has two sizes: give it one")));
        }
    }
    request.sizes = sizes;
    Ok(request)
}

/// Sizes with commas between them.
fn list(text: &str, wrong: &str) -> Result<Vec<u64>, Failure> {
    let sizes = text.split(',').map(str::trim).filter(|size| !size.is_empty());
    sizes.map(|size| number(size, wrong)).collect()
}

fn number(text: &str, wrong: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| Failure::Input(format!("'{text}': {wrong}")))
}

pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::Interrupted => Failure::Interrupted,
        Error::System { what: "open", path, source } => {
            Failure::Input(format!("cannot open {path}: {source}"))
        }
        Error::System { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            Failure::System { what: "write the result", source }
        }
        Error::System { what, path, source } => {
            let text = std::io::Error::new(source.kind(), format!("{path}: {source}"));
            Failure::System { what, source: text }
        }
        other => Failure::Input(other.to_string()),
    }
}

fn summary(job: &Job, report: &Report, seconds: f64) -> String {
    let bytes = job.payload_bytes();
    let passes = match report.passes.len() {
        1 => "1 pass".to_owned(),
        count => format!("{count} passes"),
    };
    let rate = HumanBytes((bytes as f64 / seconds.max(1e-9)) as u64);
    let shape = job.shape().map_or_else(|| "short tiles".to_owned(), |shape| format!("{shape:?}"));
    format!(
        "{} to {shape} in {seconds:.1} s ({rate}/s), {passes}, {} of buffers",
        HumanBytes(bytes),
        HumanBytes(report.peak_buffer_bytes)
    )
}

fn plan_json(job: &Job) -> Value {
    let (figures, record) = job.figures();
    let passes = figures.iter().map(|f| {
        json!({
            "load_bytes": f.load * record,
            "segment_bytes": f.segment * record,
            "segments": f.segments,
            "waste": f.waste,
            "flush_bytes": f.flush * record,
            "flushes": f.flushes,
            "partitions": f.partitions,
        })
    });
    json!({
        "shape": job.shape(),
        "payload_bytes": job.payload_bytes(),
        "record_bytes": record,
        "predicted_seconds": job.price(),
        "memory_that_saves_a_pass": job.memory_that_saves_a_pass(),
        "passes": passes.collect::<Vec<_>>(),
    })
}

fn report_json(job: &Job, report: &Report, seconds: f64) -> Value {
    let passes = report.passes.iter().map(|pass| {
        json!({
            "read_bytes": pass.read_bytes,
            "read_device_bytes": pass.read_device_bytes,
            "reads": pass.reads,
            "written_bytes": pass.written_bytes,
            "writes": pass.writes,
        })
    });
    json!({
        "shape": job.shape(),
        "payload_bytes": job.payload_bytes(),
        "seconds": seconds,
        "peak_buffer_bytes": report.peak_buffer_bytes,
        "passes": passes.collect::<Vec<_>>(),
    })
}
