//! `flash`: simulated flash devices with a translation layer.
//!
//! Reading order: here (what can be typed), `sim` (the runs), `sweep` (several of them), `show`
//! (their reports as text), `record` (traces of a store's files), `kv` (an ordered map on a chip in
//! a file).

mod kv;
mod record;
mod show;
mod sim;
mod sweep;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use esker_flash::run::spec;
use esker_terminal::exit::Failure;

pub(crate) const HELP: &str = "\
A simulated NAND flash device runs a translation layer under a workload or a recorded trace, and
reports write amplification, wear and latencies: `esker flash sim --help`. What a store does to its
device is recorded as such a trace: `esker flash record --help`. An ordered map for a raw chip, on
the image of one in a file: `esker flash kv --help`.";

pub(crate) const SIM_HELP: &str = "\
Simulate a NAND flash device with a translation layer

The device is a preset, whose geometry options replace: --blocks is the usual way to a smaller
device that behaves the same. Before anything is counted it is filled, and overwritten at random
until garbage collection is in its steady state.

Without --qd and --timed there is no clock, and pages are counted alone: the fastest way to write
amplification. --qd keeps a number of requests outstanding, --timed issues those of a trace at
their recorded times; both report latencies.

The same options give the same report, byte for byte.";

pub(crate) const SIM_EXAMPLES: &str = "\
Traces: msr:web_0.csv.gz (MSR Cambridge), blkparse:FILE (its default text, requests as the driver
got them; blkparse-q and blkparse-c as queued and completed), fio:FILE (write_iolog, versions 2
and 3), mqsim:FILE, esker:FILE (docs/format/trace.md). Any of them may be compressed by gzip.

Workloads: randwrite, seqwrite, randread, mixed:70 (reads of a hundred), zipf:0.99, hotcold:20/80
(80 % of the writes go to 20 % of the device).

Examples:
  esker flash sim --preset femu --workload randwrite --sweep op=7,14,28
  esker flash sim --preset mqsim --blocks 64 --trace msr:web_0.csv.gz --wrap --timed
  esker flash sim --preset tlc --blocks 32 --workload zipf:0.99 --sweep gc=greedy,cost-benefit
  esker flash sim --capacity 300 --trace esker:t --fresh --sweep placement=none,purpose
  esker flash sim --preset jasmine --ftl dftl --workload mixed:70 --qd 32 --json report.json";

#[derive(Debug, Args)]
pub(crate) struct Flash {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What can be done with flash.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Simulate a device under a trace or a workload
    #[command(long_about = SIM_HELP, after_help = SIM_EXAMPLES)]
    Sim(Box<Sim>),
    /// Record what a store does to its device as a trace
    #[command(long_about = record::HELP, after_help = record::EXAMPLES)]
    Record(record::Record),
    /// Create, fill and read an ordered map on a raw flash chip in a file
    #[command(long_about = kv::HELP, after_help = kv::EXAMPLES)]
    Kv(kv::Kv),
}

#[derive(Debug, Args)]
pub(super) struct Sim {
    /// Geometry and timing of the device
    #[arg(long, value_name = "NAME", default_value = "mqsim",
        value_parser = PossibleValuesParser::new(spec::preset_names()))]
    preset: String,
    /// Blocks of a plane, instead of the preset's
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    /// MiB that the host can use, instead of a number of blocks; on fewer dies than the preset's if
    /// they had less than 64 blocks
    #[arg(long, value_name = "MIB", conflicts_with = "blocks")]
    capacity: Option<u32>,
    /// Channels
    #[arg(long, value_name = "N")]
    channels: Option<u32>,
    /// Dies of a channel
    #[arg(long, value_name = "N")]
    dies: Option<u32>,
    /// Planes of a die
    #[arg(long, value_name = "N")]
    planes: Option<u32>,
    /// Pages of a block
    #[arg(long, value_name = "N")]
    pages: Option<u32>,
    /// Bytes of a page
    #[arg(long, value_name = "BYTES")]
    page_size: Option<u32>,
    /// Translation layer
    #[arg(long, value_name = "NAME", default_value = "page",
        value_parser = PossibleValuesParser::new(spec::ftl_names()))]
    ftl: String,
    /// How garbage collection chooses a block: greedy, cost-benefit, d-choices (of 10 at random),
    /// d-choices:D, fifo
    #[arg(long, value_name = "POLICY", default_value = "greedy")]
    gc: String,
    /// Over-provisioning: spare blocks in percent of the usable ones
    #[arg(long, value_name = "PERCENT", default_value = "7")]
    op: String,
    /// Streams of writes with open blocks of their own: none, purpose (what a recorded trace says
    /// that its writes are for), streams:N (its numbers, as they are)
    #[arg(long, value_name = "HOW", default_value = "none")]
    placement: String,
    /// Replay a trace, given as FORMAT:FILE
    #[arg(long, value_name = "FORMAT:FILE", conflicts_with = "workload")]
    trace: Option<String>,
    /// Run a synthetic workload [default: randwrite]
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Requests to run [default: the whole trace; of a workload as many as overwrite the device
    /// once]
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// Pages of a request of a workload
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "trace")]
    request_pages: u32,
    /// Random overwrites of the whole device after it was filled, before anything is counted
    #[arg(long, value_name = "TIMES", default_value = "2")]
    warm_up: String,
    /// Begin with an empty device
    #[arg(long, conflicts_with = "warm_up")]
    fresh: bool,
    /// Requests that are outstanding, with a clock
    #[arg(long, value_name = "DEPTH", conflicts_with = "timed")]
    qd: Option<u32>,
    /// Issue the requests of a trace at their recorded times, with a clock
    #[arg(long)]
    timed: bool,
    /// Let addresses behind the end of the device begin again at its start
    #[arg(long)]
    wrap: bool,
    /// Run once for each value of an option, such as op=7,14,28; may be repeated
    #[arg(long, value_name = "OPTION=A,B,…")]
    sweep: Vec<String>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
    /// Write the reports as JSON to a file, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Also print how fast the simulation ran
    #[arg(long)]
    wall: bool,
}

pub(super) fn run(args: &Flash) -> Result<(), Failure> {
    match &args.command {
        Command::Sim(args) => sim::run(args),
        Command::Record(args) => record::run(args),
        Command::Kv(args) => kv::run(&args.command),
    }
}
