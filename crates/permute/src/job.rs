//! The whole operation: from paths and a pattern to a plan, and from the plan to a file.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::endpoints::{self, Holder, Input, Output, Wanted};
use crate::error::{Error, Result, input};
use crate::exec::{self, Counters, Files, Payload};
use crate::file::{Sink, Source};
use crate::layout::Layout;
use crate::message::Message;
use crate::pass::Pass;
use crate::pattern::Pattern;
use crate::plan::price::{Figures, Mode, Profile};
use crate::resolve::{Resolved, resolve};
use crate::steps::{Setting, Step, steps};
use crate::target::{Target, behind_links, check_space};
use crate::zarr;
use crate::zarr::folder::FolderTarget;

/// The default memory limit, in bytes.
pub const MEMORY_DEFAULT: u64 = 256 << 20;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The file to read, or the folder of a Zarr array.
    pub input: PathBuf,
    /// The pattern.
    pub pattern: String,
    /// The file to make, or the folder of a Zarr array.
    pub output: PathBuf,
    /// Sizes of axes by name.
    pub sizes: BTreeMap<String, u64>,
    /// Bytes of memory for buffers.
    pub memory: u64,
    /// The shape of raw input.
    pub shape: Option<Vec<u64>>,
    /// The type of the items of raw input.
    pub dtype: Option<String>,
    /// The offset of the first item of raw input, in bytes; then the items need not reach to the
    /// end of the file.
    pub offset: Option<u64>,
    /// Whether the first dimension of raw input varies fastest.
    pub is_fortran: bool,
    /// The sizes of the chunks of a Zarr array that is made.
    pub chunks: Option<Vec<u64>>,
    /// Its version, 2 or 3.
    pub zarr_format: Option<u8>,
    /// Its compressor: `none`, `gzip`, `zlib`, `zstd` or `blosc`.
    pub compressor: Option<String>,
    /// Whether an existing output is replaced.
    pub force: bool,
    /// The quantity that the planner minimises.
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
            chunks: None,
            zarr_format: None,
            compressor: None,
            force: false,
            mode: Mode::Seconds(Profile::NVME),
        }
    }
}

/// A validated request with its plan. Nothing has been written.
#[derive(Debug)]
pub struct Job {
    request: Request,
    input: Input,
    output: Output,
    /// The path of the result: the given name, or its target if it is a link.
    place: PathBuf,
    shape: Option<Vec<u64>>,
    /// A message that says which tiles are short.
    short: Option<String>,
    /// `None` for an array without items.
    layout: Option<Layout>,
    steps: Vec<Step>,
}

/// The result of a job.
#[derive(Clone, Debug)]
pub struct Report {
    /// The counters of each pass.
    pub passes: Vec<Counters>,
    /// Bytes of the largest set of buffers that was held at the same time.
    pub peak_buffer_bytes: u64,
    /// Secondary steps that failed; the result is complete.
    pub warnings: Vec<Message>,
}

/// The files between which a step moves the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Input,
    Scratch(usize),
    Target,
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
        let from = endpoints::look(&request)?;
        let header = &from.header;
        let resolved = resolve(&pattern, &header.shape, header.is_fortran, &request.sizes)?;
        let layout = Layout::of(&resolved);
        let Resolved { shape, short, .. } = resolved;
        let place = behind_links(&request.output)?;
        let words = short.as_deref().unwrap_or_default();
        let wanted = Wanted { layout: layout.as_ref(), shape: shape.as_deref().ok_or(words) };
        let output = endpoints::decide(&request, &from, wanted, &place)?;
        let memory = request.memory;
        let steps = Vec::new();
        let mut job = Self { request, input: from, output, place, shape, short, layout, steps };
        job.steps = job.steps_in(memory)?;
        Ok(job)
    }

    /// The steps with this many bytes of memory.
    fn steps_in(&self, memory: u64) -> Result<Vec<Step>> {
        let Some(layout) = &self.layout else { return Ok(Vec::new()) };
        let header = &self.input.header;
        let shapes = (header.shape.as_slice(), self.shape.as_deref());
        let setting = Setting { item: header.item_bytes, memory, mode: self.request.mode };
        steps(layout, shapes, (self.input.end(), self.output.end()), setting)
    }

    /// About the least memory with which there would be fewer passes, in whole MiB; `None` where
    /// there is one pass, or where no memory saves one. Plans some twenty times.
    #[must_use]
    pub fn memory_that_saves_a_pass(&self) -> Option<u64> {
        const MIB: u64 = 1 << 20;
        let passes = self.steps.len();
        let saves = |mib: u64| {
            self.steps_in(mib.saturating_mul(MIB)).is_ok_and(|steps| steps.len() < passes)
        };
        // With room for two loads of everything there is one pass, unless chunks forbid it.
        let most = (4 * (self.payload_bytes() / MIB + 16)).max(1);
        let mut less = self.request.memory / MIB;
        let mut enough = (2 * less).max(1);
        if passes < 2 {
            return None;
        }
        while !saves(enough) {
            if enough > most {
                return None;
            }
            (less, enough) = (enough, 2 * enough);
        }
        // To a sixteenth: a plan is no more exact.
        while enough - less > (enough / 16).max(1) {
            let middle = less + (enough - less) / 2;
            if saves(middle) { enough = middle } else { less = middle }
        }
        Some(enough * MIB)
    }

    /// The shape of the result; `None` where it has short tiles.
    #[must_use]
    pub fn shape(&self) -> Option<&[u64]> {
        self.shape.as_deref()
    }

    /// A message that says which sizes do not divide their dimension, where the result has short
    /// tiles.
    #[must_use]
    pub fn short_tiles(&self) -> Option<&str> {
        self.short.as_deref()
    }

    /// The type of the items, as `.npy` files write it.
    #[must_use]
    pub fn descr(&self) -> &str {
        &self.input.header.descr
    }

    /// Whether the result is a folder of chunks.
    #[must_use]
    pub const fn is_zarr(&self) -> bool {
        matches!(self.output, Output::Zarr(_))
    }

    /// The passes.
    #[must_use]
    pub fn passes(&self) -> Vec<&Pass> {
        self.steps.iter().map(|step| &step.pass).collect()
    }

    /// Bytes of the items, which are read and written once by every pass.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.input.header.shape.iter().product::<u64>() * self.input.header.item_bytes
    }

    /// The figures of each pass, in items, and the bytes of an item.
    #[must_use]
    pub fn figures(&self) -> (Vec<Figures>, u64) {
        let item = self.input.header.item_bytes;
        let figures = self.steps.iter().map(|step| {
            let items = step.budget.record as u64 / item;
            let figures = Figures::of(&step.pass);
            Figures {
                records: figures.records * items,
                load: figures.load * items,
                segment: figures.segment * items,
                flush: figures.flush * items,
                partition: figures.partition * items,
                ..figures
            }
        });
        (figures.collect(), item)
    }

    /// The cost that the planner predicts, in the unit of its mode.
    #[must_use]
    pub fn price(&self) -> f64 {
        self.steps.iter().map(|step| step.price).sum()
    }

    /// Writes the result, complete and durable or not at all. `go_on` receives the number of bytes
    /// read and written so far, and returns whether to continue.
    pub fn run(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<Report> {
        let (path, force) = (&self.place, self.request.force);
        match &self.output {
            Output::Flat { header } => {
                let target = Target::create(path, self.room(path)?)?;
                let report = self.fill(&target, header, go_on)?;
                target.commit(path, force)?;
                Ok(report)
            }
            Output::Zarr(array) => {
                self.room(path)?;
                let target = FolderTarget::create(path)?;
                let sink = zarr::sink(target.path(), array);
                let write = Payload { file: sink.as_ref(), start: 0 };
                let mut report = self.run_steps(&self.places(), None, write, go_on)?;
                self.ask(go_on)?;
                target.commit(array, path, force)?;
                report.warnings = zarr::groups::announce(path, array);
                Ok(report)
            }
        }
    }

    /// Writes the result to a file without a name, which is deleted when it is closed; returns that
    /// file too. It is on the file system on which the result would be.
    pub fn run_unnamed(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(Report, OwnedFd)> {
        let Output::Flat { header } = &self.output else {
            return input("a Zarr array is a folder, which needs a name");
        };
        let target = Target::scratch(&self.place, self.room(&self.place)?)?;
        let report = self.fill(&target, header, go_on)?;
        Ok((report, target.into_descriptor()?))
    }

    /// Bytes of the result as far as they are known; refuses what there is no space for.
    fn room(&self, path: &Path) -> Result<u64> {
        let payload = self.payload_bytes();
        let scratch = scratch_count(&self.places()) as u64 * payload;
        let bytes = self.output.bytes(payload);
        check_space(path, bytes.saturating_add(scratch))?;
        Ok(bytes)
    }

    /// Writes header and items to a file.
    fn fill(
        &self,
        target: &Target,
        header: &[u8],
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Report> {
        let (file, start) = (target.file(), header.len() as u64);
        let read = Some(Payload { file: file as &dyn Source, start });
        let write = Payload { file: file as &dyn Sink, start };
        let report = self.run_steps(&self.places(), read, write, go_on)?;
        if !header.is_empty() {
            file.write_part(0, header)?;
        }
        self.ask(go_on)?;
        Ok(report)
    }

    /// Between which files the steps go.
    fn places(&self) -> Vec<(Place, Place)> {
        let in_place: Vec<bool> = self.steps.iter().map(|step| step.pass.is_in_place()).collect();
        places(&in_place, !self.is_zarr())
    }

    /// The last question, when all is written and nothing has its name.
    fn ask(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        if go_on(2 * self.payload_bytes() * self.steps.len() as u64) {
            Ok(())
        } else {
            Err(Error::Interrupted)
        }
    }

    /// Carries out the steps. `read` is the target as a source, if it can be one.
    fn run_steps(
        &self,
        places: &[(Place, Place)],
        read: Option<Payload<&dyn Source>>,
        write: Payload<&dyn Sink>,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Report> {
        let bytes = self.payload_bytes();
        let scratch: Result<Vec<Target>> =
            (0..scratch_count(places)).map(|_| Target::scratch(&self.place, bytes)).collect();
        let scratch = scratch?;
        let chunks = match &self.input.holder {
            Holder::Zarr(array) => Some(zarr::source(&self.request.input, array)),
            Holder::Flat { .. } => None,
        };
        let input = match (&self.input.holder, &chunks) {
            (_, Some(chunks)) => Payload { file: chunks.as_ref(), start: 0 },
            (Holder::Flat { file, start }, None) => {
                Payload { file: file as &dyn Source, start: *start }
            }
            (Holder::Zarr(_), None) => return Err(Error::Internal("chunks without a source")),
        };
        let missing = Error::Internal("a step without a file");
        let mut report = Report { passes: Vec::new(), peak_buffer_bytes: 0, warnings: Vec::new() };
        let mut before = 0;
        for (step, (from, to)) in self.steps.iter().zip(places) {
            let file_of = |index: &usize| scratch.get(*index).map(Target::file);
            let source = match from {
                Place::Input => Some(input),
                Place::Target => read,
                Place::Scratch(index) => {
                    file_of(index).map(|file| Payload { file: file as &dyn Source, start: 0 })
                }
            };
            let sink = match to {
                Place::Input => None,
                Place::Target => Some(write),
                Place::Scratch(index) => {
                    file_of(index).map(|file| Payload { file: file as &dyn Sink, start: 0 })
                }
            };
            let (Some(source), Some(sink)) = (source, sink) else { return Err(missing) };
            let mut told = |moved| go_on(before + moved);
            let files = Files { source, sink, is_in_place: from == to };
            let counters = exec::run(&step.pass, step.budget, files, &mut told)?;
            before += counters.read_bytes + counters.written_bytes;
            report.peak_buffer_bytes = report.peak_buffer_bytes.max(counters.peak_buffer_bytes);
            report.passes.push(counters);
        }
        Ok(report)
    }
}

/// The files that each step reads and writes. The last one writes the result; the others write
/// alternating scratch files, of which the result is one if it can be read (`is_readable`). A step
/// that may write to the file that it reads does, if that is no input.
fn places(in_place: &[bool], is_readable: bool) -> Vec<(Place, Place)> {
    let mut places = Vec::with_capacity(in_place.len());
    let mut to = Place::Target;
    for (number, may_stay) in in_place.iter().enumerate().rev() {
        let is_kept = *may_stay && (is_readable || to != Place::Target);
        let from = match (number, to) {
            (0, _) => Place::Input,
            _ if is_kept => to,
            (_, Place::Scratch(0)) if is_readable => Place::Target,
            (_, Place::Scratch(0)) => Place::Scratch(1),
            _ => Place::Scratch(0),
        };
        places.push((from, to));
        to = from;
    }
    places.reverse();
    places
}

fn scratch_count(places: &[(Place, Place)]) -> usize {
    let scratch = places.iter().filter_map(|(_, to)| match to {
        Place::Scratch(index) => Some(index + 1),
        Place::Input | Place::Target => None,
    });
    scratch.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_are_enough_and_only_steps_that_may_write_what_they_read() {
        for is_readable in [true, false] {
            for (count, set) in
                (0..6).flat_map(|count| (0..1_u32 << count).map(move |s| (count, s)))
            {
                let in_place: Vec<bool> = (0..count).map(|step| set >> step & 1 == 1).collect();
                let places = places(&in_place, is_readable);
                assert_eq!(places.len(), count);
                let mut from = Place::Input;
                for ((source, to), may_stay) in places.iter().zip(&in_place) {
                    assert_eq!(*source, from);
                    assert!(source != to || *may_stay);
                    assert_ne!(*to, Place::Input);
                    from = *to;
                }
                assert!(count == 0 || from == Place::Target);
                let between = if is_readable { 1 } else { 2 };
                let turns = in_place.iter().skip(1).filter(|may_stay| !**may_stay).count();
                let first = usize::from(!is_readable && count > 1);
                assert!(scratch_count(&places) <= between.min(turns + first));
                let reads_target = places.iter().any(|(from, _)| *from == Place::Target);
                assert!(is_readable || !reads_target);
            }
        }
    }
}
