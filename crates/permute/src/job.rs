//! The whole of it: from paths and a pattern to a plan, and from the plan to a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::budget::Budget;
use crate::coalesce::coalesce;
use crate::error::{Error, Result, input, unusable};
use crate::exec::{self, Counters, Payload};
use crate::file::{BLOCK, File, Sink, Source};
use crate::npy::{self, Header};
use crate::pass::Pass;
use crate::pattern::Pattern;
use crate::plan::passes::plan;
use crate::plan::price::{Figures, Mode, Profile, Terms};
use crate::resolve::{Resolved, resolve};
use crate::target::{Target, check_free, check_space};

/// How much memory is used unless something else is asked for, in bytes.
pub const MEMORY_DEFAULT: u64 = 256 << 20;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The file to read.
    pub input: PathBuf,
    /// The pattern.
    pub pattern: String,
    /// The file to make.
    pub output: PathBuf,
    /// Sizes of axes by name.
    pub sizes: BTreeMap<String, u64>,
    /// Bytes of memory for buffers.
    pub memory: u64,
    /// The shape of raw input.
    pub shape: Option<Vec<u64>>,
    /// The type of the items of raw input.
    pub dtype: Option<String>,
    /// Where the items of raw input begin, in bytes; then they need not reach to the end of the
    /// file.
    pub offset: Option<u64>,
    /// Whether the first dimension of raw input varies fastest.
    pub is_fortran: bool,
    /// Whether an existing output is replaced.
    pub force: bool,
    /// What the planner minimises.
    pub mode: Mode,
}

impl Request {
    /// A request with the usual memory and device.
    pub fn new(
        input: impl Into<PathBuf>,
        pattern: impl Into<String>,
        output: impl Into<PathBuf>,
    ) -> Self {
        Self {
            input: input.into(),
            pattern: pattern.into(),
            output: output.into(),
            sizes: BTreeMap::new(),
            memory: MEMORY_DEFAULT,
            shape: None,
            dtype: None,
            offset: None,
            is_fortran: false,
            force: false,
            mode: Mode::Seconds(Profile::NVME),
        }
    }
}

/// A request that was found good, with its plan. Nothing has been written.
#[derive(Debug)]
pub struct Job {
    request: Request,
    file: File,
    /// Where the items of the input begin, in bytes.
    start: u64,
    /// What comes before the items of the output.
    header: Vec<u8>,
    /// The input and the result.
    from: Header,
    shape: Option<Vec<u64>>,
    budget: Budget,
    terms: Terms,
    passes: Vec<Pass>,
    seconds: f64,
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Report {
    /// The counters of each pass.
    pub passes: Vec<Counters>,
    /// Bytes of the largest set of buffers that was held at once.
    pub peak_buffer_bytes: u64,
}

impl Job {
    /// Looks at the files and plans.
    pub fn new(request: Request) -> Result<Self> {
        let pattern = Pattern::parse(&request.pattern)?;
        for path in [&request.input, &request.output] {
            if path.as_os_str() == "-" {
                return input(
                    "standard input and output cannot be read in any order; give names of files",
                );
            }
        }
        let file = File::open(&request.input)?;
        let (from, start) = describe_input(&request, &file)?;
        check_length(&request, &file, &from, start)?;
        check_free(&request.output, request.force, file.identity()?)?;
        let Resolved { task, shape, .. } =
            resolve(&pattern, &from.shape, from.is_fortran, &request.sizes)?;
        let header = describe_output(&request.output, &from, shape.as_ref())?;
        let (task, record) = match task {
            Some(task) => {
                let (task, record) = coalesce(&task, from.item_bytes);
                (Some(task), record)
            }
            None => (None, from.item_bytes),
        };
        let record = usize::try_from(record).unwrap_or(usize::MAX);
        let budget = Budget::new(request.memory, record)?;
        let terms = terms(&budget, request.mode);
        let (passes, seconds) = task.as_ref().map_or((Vec::new(), 0.0), |task| plan(task, &terms));
        if task.is_some() && passes.is_empty() {
            return input("too little memory for one record at a time");
        }
        Ok(Self { request, file, start, header, from, shape, budget, terms, passes, seconds })
    }

    /// The shape of the result; `None` where it has short tiles.
    #[must_use]
    pub fn shape(&self) -> Option<&[u64]> {
        self.shape.as_deref()
    }

    /// The type of the items, as `.npy` files write it.
    #[must_use]
    pub fn descr(&self) -> &str {
        &self.from.descr
    }

    /// The passes.
    #[must_use]
    pub fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// Bytes of the items, which are read and written once by every pass.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.from.shape.iter().product::<u64>() * self.from.item_bytes
    }

    /// The figures of each pass, in records, and the bytes of a record.
    #[must_use]
    pub fn figures(&self) -> (Vec<Figures>, u64) {
        (self.passes.iter().map(Figures::of).collect(), self.terms.record)
    }

    /// What the planner expects, in the unit of its mode.
    #[must_use]
    pub const fn price(&self) -> f64 {
        self.seconds
    }

    /// Writes the result, complete and durable or not at all. `go_on` is told how many bytes were
    /// read and written so far, and says whether to go on.
    pub fn run(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<Report> {
        let header = self.header.len() as u64;
        let bytes = self.payload_bytes();
        let count = self.passes.len();
        let scratch_bytes = if count > 1 { bytes } else { 0 };
        check_space(&self.request.output, header + bytes + scratch_bytes)?;
        let target = Target::create(&self.request.output, header + bytes)?;
        let scratch = match scratch_bytes {
            0 => None,
            bytes => Some(Target::create(&self.request.output, bytes)?),
        };
        let mut report = Report { passes: Vec::new(), peak_buffer_bytes: 0 };
        let mut before = 0;
        for (number, pass) in (1..).zip(&self.passes) {
            // The last pass writes the result, the one before it the scratch file, and so on.
            let is_target = (count - number).is_multiple_of(2);
            let (written, read) = match &scratch {
                Some(scratch) if !is_target => ((scratch.file(), 0), (target.file(), header)),
                Some(scratch) => ((target.file(), header), (scratch.file(), 0)),
                None => ((target.file(), header), (&self.file, self.start)),
            };
            let (file, start) = if number == 1 { (&self.file, self.start) } else { read };
            let source = Payload { file: file as &dyn Source, start };
            let sink = Payload { file: written.0 as &dyn Sink, start: written.1 };
            let mut told = |moved| go_on(before + moved);
            let counters = exec::run(pass, self.budget, source, sink, &mut told)?;
            before += counters.read_bytes + counters.written_bytes;
            report.peak_buffer_bytes = report.peak_buffer_bytes.max(counters.peak_buffer_bytes);
            report.passes.push(counters);
        }
        if !self.header.is_empty() {
            target.file().write_part(0, &self.header)?;
        }
        if !go_on(2 * bytes * self.passes.len() as u64) {
            return Err(Error::Interrupted);
        }
        target.commit(&self.request.output, self.request.force)?;
        Ok(report)
    }
}

fn terms(budget: &Budget, mode: Mode) -> Terms {
    let record = budget.record as u64;
    let block = BLOCK as u64;
    Terms {
        block: (block / record).max(1),
        memory: budget.load.saturating_sub(4 * block) / 2 / record,
        record,
        request: budget.unit as u64,
        // A header shifts the records.
        is_aligned: false,
        mode,
    }
}

/// What the input holds, and where its items begin.
fn describe_input(request: &Request, file: &File) -> Result<(Header, u64)> {
    match (&request.shape, &request.dtype) {
        (Some(shape), Some(dtype)) => {
            let item_bytes = npy::item_bytes(dtype)?;
            let descr = npy::descr_of(dtype);
            let (shape, is_fortran) = (shape.clone(), request.is_fortran);
            Ok((Header { descr, item_bytes, is_fortran, shape }, request.offset.unwrap_or(0)))
        }
        (None, None) => {
            let mut head = esker_device::AlignedBuf::zeroed(npy::HEADER_MAX);
            let read = file.read(0, &mut head)?;
            Header::parse(&head[..read]).map_err(|error| match error {
                Error::File(text) | Error::Input(text) => {
                    Error::File(format!("{}: {text}", request.input.display()))
                }
                other => other,
            })
        }
        (Some(_), None) => input("--shape needs --dtype"),
        (None, Some(_)) => input("--dtype needs --shape"),
    }
}

/// Whether the file is as long as its shape says.
fn check_length(request: &Request, file: &File, from: &Header, start: u64) -> Result<()> {
    let items = from.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    let bytes = items.and_then(|items| items.checked_mul(from.item_bytes));
    let end =
        bytes.and_then(|bytes| bytes.checked_add(start)).filter(|end| *end <= i64::MAX as u64);
    let Some(end) = end else {
        return input(format!("the shape {:?} is larger than any file", from.shape));
    };
    let (path, len) = (request.input.display(), file.len());
    if len < end {
        return unusable(format!(
            "{path} is too short: the shape {:?} of {} bytes each needs {end} bytes, it has {len}",
            from.shape, from.item_bytes
        ));
    }
    if request.dtype.is_some() && request.offset.is_none() && len > end {
        return unusable(format!(
            "{path} has {len} bytes and the shape {:?} of {} bytes each is {end}: check --shape \
             and --dtype",
            from.shape, from.item_bytes
        ));
    }
    Ok(())
}

/// The header of the output.
fn describe_output(path: &Path, from: &Header, shape: Option<&Vec<u64>>) -> Result<Vec<u8>> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match (extension, shape) {
        ("npy", Some(shape)) => {
            let Header { descr, item_bytes, .. } = from.clone();
            Ok(Header { descr, item_bytes, is_fortran: false, shape: shape.clone() }.encode())
        }
        ("npy", None) => input(
            "the tiles do not divide the array, which .npy cannot describe; write to a name that \
             ends in .raw: tile after tile, the last ones short",
        ),
        ("raw" | "bin", _) => Ok(Vec::new()),
        _ => unusable(format!(
            "{}: the name says the format: end it in .npy, .raw or .bin",
            path.display()
        )),
    }
}
