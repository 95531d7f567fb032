//! `flash record`: what a store does to its device, as a trace.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use esker::{Db, IndexKind, KeyspaceOptions, SimRuntime};
use esker_flash::ssd::{RecordOptions, Recorded, RecordingDevice};
use esker_flash::trace::{OpKind, TraceOp, TraceWriter};
use esker_flash::workload::{Generator, Random, Workload};
use esker_pages::PageStore;
use esker_terminal::exit::Failure;
use esker_terminal::kind::index_kind;
use esker_terminal::output::Output;
use esker_terminal::progress::{self, Pace};
use esker_terminal::signals::Interrupt;
use esker_terminal::table::Table;
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde_json::{Map, Value, json};

pub(crate) const HELP: &str = "\
Record what a store does to its device as a trace

A new store is loaded and then runs a workload of `esker flash sim`, on a device that records every
read, write, trim and flush, with the purpose of the bytes. Files are laid out as on a file system
that is not full. The store's data stay in memory, or in --dir.

kv is the key-value store: a request reads or writes an entry. pages is the page store under
SQLite: a request changes bytes of a page, and eight requests are a durable transaction.

Compaction runs in the thread that writes and the trace has no times, so that the same options give
the same trace, byte for byte. --timed lets it run in the background, and records real times.";

pub(crate) const EXAMPLES: &str = "\
Examples:
  esker flash record --out lsm.trace --index lsm --entries 1000000 --workload zipf:0.99
  esker flash record --out pages.trace --store pages --entries 20000 --ops 200000
  esker flash sim --capacity 300 --trace esker:lsm.trace --fresh --sweep placement=none,purpose";

const BAR: &str = "{msg} {human_pos} of {human_len} [{wide_bar}] {eta} left";
const REDRAW: Duration = Duration::from_millis(100);
/// Bytes of a segment of the log, where a quarter of the memory is not less.
const LOG_SEGMENT_BYTES_MAX: u64 = 4 << 20;
/// Requests of a transaction of the page store.
const TRANSACTION: u64 = 8;
/// Requests between two looks whether to go on.
const LOOK_EVERY: u64 = 256;

#[derive(Debug, Args)]
pub(crate) struct Record {
    /// File of the trace, which is replaced
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The store that is recorded
    #[arg(long, value_enum, default_value = "kv")]
    store: Kind,
    /// Index kind of the key-value store [default: fdtree]
    #[arg(long, value_name = "KIND", value_parser = index_kind())]
    index: Option<IndexKind>,
    /// Entries, or pages, that are loaded first
    #[arg(long, value_name = "N", default_value = "100000",
          value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    entries: u64,
    /// What comes then: randwrite, seqwrite, randread, mixed:70, zipf:0.99, hotcold:20/80
    #[arg(long, value_name = "NAME", default_value = "randwrite")]
    workload: String,
    /// Requests of the workload [default: four for each entry]
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// Bytes of a value, or of a change to a page
    #[arg(long, value_name = "BYTES", default_value = "100",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    value_bytes: u32,
    /// Memory budget of the key-value store; segments of its log have a quarter, at most 4 MiB
    #[arg(long, value_name = "MIB", default_value = "4",
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    memory: u32,
    /// Bytes of a page of the device
    #[arg(long, value_name = "BYTES", default_value = "4096",
          value_parser = PossibleValuesParser::new(["512", "4096", "8192", "16384", "65536"]))]
    page_size: String,
    /// Run compaction in the background, and record real times
    #[arg(long)]
    timed: bool,
    /// Empty folder for the store's files, instead of memory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Seed of the workload and the values
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
    /// Print what was recorded as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The key-value store
    Kv,
    /// The page store under SQLite
    Pages,
}

pub(super) fn run(args: &Record) -> Result<(), Failure> {
    let workload: Workload = args.workload.parse().map_err(input)?;
    if args.index.is_some() && args.store == Kind::Pages {
        return Err(Failure::Input("--index is for the key-value store: --store kv".to_owned()));
    }
    if let Some(dir) = &args.dir
        && std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
    {
        let what = "is not empty: give an empty folder, or one that does not exist";
        return Err(Failure::Input(format!("{} {what}", dir.display())));
    }
    let interrupt = Interrupt::install()?;
    let device = device(args)?;
    let mut job = Job::new(args, workload, interrupt);
    let done = match args.store {
        Kind::Kv => kv(args, &mut job, Arc::clone(&device)),
        Kind::Pages => pages(args, &mut job, &device),
    };
    job.bar.finish_and_clear();
    done?;
    let recorded = device.finish().map_err(|error| Failure::System {
        what: "record",
        source: std::io::Error::other(error.to_string()),
    })?;
    print(args, &job, &recorded)
}

fn input(error: impl std::fmt::Display) -> Failure {
    Failure::Input(error.to_string())
}

fn device(args: &Record) -> Result<Arc<RecordingDevice>, Failure> {
    let writer = TraceWriter::create(&args.out).map_err(|error| Failure::System {
        what: "record",
        source: std::io::Error::other(error.to_string()),
    })?;
    let page_bytes = args.page_size.parse().map_err(input)?;
    let options = RecordOptions { page_bytes, is_timed: args.timed, ..RecordOptions::default() };
    let device = match &args.dir {
        None => RecordingDevice::in_memory(writer, options),
        Some(dir) => RecordingDevice::in_folder(dir, writer, options),
    };
    Ok(Arc::new(device.map_err(input)?))
}

/// Loads a key-value store, and runs the workload.
fn kv(args: &Record, job: &mut Job, device: Arc<RecordingDevice>) -> Result<(), Failure> {
    let memory_bytes = u64::from(args.memory) << 20;
    let segment_bytes = (memory_bytes / 4).min(LOG_SEGMENT_BYTES_MAX);
    let mut builder =
        Db::builder_on(device).memory_budget(memory_bytes).log_segment_bytes(segment_bytes);
    if !args.timed {
        builder = builder.runtime(Arc::new(SimRuntime::new(args.seed))).inline_merges(0);
    }
    let db = builder.open()?;
    let options = KeyspaceOptions::default().index(args.index.unwrap_or_default());
    let keyspace = db.keyspace("default", options)?;
    let mut value = vec![0; args.value_bytes as usize];
    while let Some(op) = job.next()? {
        let key = format!("user{:012}", op.offset);
        if op.kind == OpKind::Read {
            keyspace.get(key)?;
        } else {
            job.fill(&mut value);
            keyspace.insert(key, &value)?;
        }
    }
    Ok(db.close()?)
}

/// Loads a page store, and runs the workload in transactions.
fn pages(args: &Record, job: &mut Job, device: &RecordingDevice) -> Result<(), Failure> {
    let file = device.create("pages").map_err(esker::Error::from)?;
    let mut options = esker_pages::Options::default();
    if !args.timed {
        options.relaxed_interval = None;
    }
    let page_size = options.page_size;
    let store = PageStore::open(file, options)?;
    let mut bytes = vec![0; (args.value_bytes).min(page_size) as usize];
    loop {
        let base = store.pin();
        let mut writer = store.begin(&base)?;
        let mut requests = 0;
        while requests < TRANSACTION
            && let Some(op) = job.next()?
        {
            requests += 1;
            let page = u32::try_from(op.offset).map_err(input)?;
            let last = u64::from(page_size - bytes.len() as u32);
            let offset = job.random.below(last + 1) as u32;
            if op.kind == OpKind::Read {
                writer.read(page, offset, &mut bytes)?;
            } else {
                job.fill(&mut bytes);
                writer.write(page, offset, &bytes)?;
            }
        }
        writer.commit(esker_pages::Durability::Full)?;
        if requests < TRANSACTION {
            break;
        }
    }
    Ok(store.close()?)
}

/// The load and the workload, with their progress.
struct Job {
    entries: u64,
    /// Entries between two that are loaded one after the other; it has no common divisor with
    /// their number, so that all are loaded, in no order of keys.
    stride: u64,
    requests: Generator,
    done: u64,
    total: u64,
    random: Random,
    bar: ProgressBar,
    pace: Pace,
    interrupt: Interrupt,
}

impl Job {
    fn new(args: &Record, workload: Workload, interrupt: Interrupt) -> Self {
        let entries = args.entries;
        let ops = args.ops.unwrap_or(entries.saturating_mul(4));
        let total = entries.saturating_add(ops);
        let bar = progress::bar(Some(total), BAR);
        bar.set_message("recording, request");
        Self {
            entries,
            stride: stride(entries),
            requests: Generator::new(workload, entries, 1, args.seed),
            done: 0,
            total,
            // Other numbers than those of the workload.
            random: Random::new(!args.seed),
            bar,
            pace: Pace::new(REDRAW),
            interrupt,
        }
    }

    /// The next request, whose offset is the number of an entry.
    fn next(&mut self) -> Result<Option<TraceOp>, Failure> {
        if self.done.is_multiple_of(LOOK_EVERY) {
            if self.interrupt.requested() {
                return Err(Failure::Interrupted);
            }
            if self.pace.due() {
                self.bar.set_position(self.done);
            }
        }
        if self.done == self.total {
            return Ok(None);
        }
        let op = match self.done {
            at if at < self.entries => {
                let offset = (u128::from(at) * u128::from(self.stride)) % u128::from(self.entries);
                let (kind, offset) = (OpKind::Write, offset as u64);
                Some(TraceOp { at_ns: 0, offset, length: 1, kind, stream: 0 })
            }
            _ => self.requests.next(),
        };
        self.done += 1;
        Ok(op)
    }

    /// Bytes that cannot be compressed.
    fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let random = self.random.bits().to_le_bytes();
            part.iter_mut().zip(random).for_each(|(byte, random)| *byte = random);
        }
    }
}

/// A number near 0.6 of `entries` without a common divisor.
fn stride(entries: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let first = (entries / 5 * 3).max(1);
    (first..).find(|stride| divisor(*stride, entries) == 1).unwrap_or(1)
}

fn print(args: &Record, job: &Job, recorded: &Recorded) -> Result<(), Failure> {
    let mut output = Output::new();
    let written: Vec<_> = recorded.written().filter(|(_, bytes)| *bytes > 0).collect();
    if args.json {
        let written: Map<String, Value> =
            written.iter().map(|(name, bytes)| ((*name).to_owned(), json!(bytes))).collect();
        output.json(&json!({
            "trace": args.out.to_string_lossy(),
            "requests": job.total,
            "operations": recorded.operations,
            "bytes_written": written,
            "bytes_read": recorded.bytes_read,
            "bytes_trimmed": recorded.bytes_trimmed,
            "flushes": recorded.flushes,
            "end_bytes": recorded.end_bytes,
        }))?;
        return output.flush();
    }
    let (requests, operations) = (HumanCount(job.total), HumanCount(recorded.operations));
    output.line(&format!(
        "recorded {operations} operations of {requests} requests in {}\n",
        args.out.display()
    ))?;
    let mut table = Table::new(&["purpose", "bytes written"]);
    for (name, bytes) in &written {
        table.row([(*name).to_owned(), HumanCount(*bytes).to_string()]);
    }
    output.line(&table.to_string())?;
    let mib = recorded.end_bytes.div_ceil(1 << 20);
    output.line(&format!(
        "\n{} read, {} trimmed, {} flushes; a replay needs --capacity {mib} or more",
        HumanBytes(recorded.bytes_read),
        HumanBytes(recorded.bytes_trimmed),
        HumanCount(recorded.flushes),
    ))?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_loaded_once() {
        for entries in [1, 2, 3, 5, 6, 100, 210, 1_024] {
            let mut loaded: Vec<_> =
                (0..entries).map(|at| at * stride(entries) % entries).collect();
            loaded.sort_unstable();
            assert_eq!(loaded, (0..entries).collect::<Vec<_>>());
        }
    }
}
