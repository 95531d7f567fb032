//! What the suites of all translation layers share: layers behind one trait, a model, histories.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

pub mod crash;

use esker_flash::ftl::{Dftl, Options, PageMapped, Stream};
use esker_flash::nand::{Bytes, Lpn, Sizes};
use esker_flash::planted::{Bug, with};
use esker_flash::{Error, Ftl, Geometry, NandSim, Result};
use esker_harness::counts::Counts;
use esker_harness::planted::{self, Finding};
pub use esker_harness::random::Random;
use esker_harness::violation::{Oracle, Verdict, Violation};

/// Flash that keeps its pages.
pub type Flash = NandSim<Bytes>;

/// A layer that can be formatted, recovered and cloned.
pub trait Layer: Ftl + Clone {
    const NAME: &'static str;
    const RECOVERY_WRITES: bool;
    fn format(nand: Flash, options: &Options) -> Result<Self>;
    fn recover(nand: Flash, options: &Options) -> Result<Self>;
    /// The same, where a power cut leaves the flash to the caller.
    fn recover_in_place(nand: &mut Flash, options: &Options) -> Result<()>;
    fn flash(&self) -> &Flash;
    fn flash_mut(&mut self) -> &mut Flash;
}

impl Layer for PageMapped<Flash> {
    const NAME: &'static str = "page-mapped";
    const RECOVERY_WRITES: bool = false;

    fn format(nand: Flash, options: &Options) -> Result<Self> {
        Self::format(nand, options)
    }

    fn recover(nand: Flash, options: &Options) -> Result<Self> {
        Self::recover(nand, options)
    }

    fn recover_in_place(nand: &mut Flash, options: &Options) -> Result<()> {
        PageMapped::recover(nand, options).map(drop)
    }

    fn flash(&self) -> &Flash {
        self.nand()
    }

    fn flash_mut(&mut self) -> &mut Flash {
        self.nand_mut()
    }
}

/// A cache for one logical page in ten, so that short histories miss it.
const CACHE_PERMILLE: u32 = 100;

impl Layer for Dftl<Flash> {
    const NAME: &'static str = "DFTL";
    const RECOVERY_WRITES: bool = true;

    fn format(nand: Flash, options: &Options) -> Result<Self> {
        Self::format(nand, options, CACHE_PERMILLE)
    }

    fn recover(nand: Flash, options: &Options) -> Result<Self> {
        Self::recover(nand, options, CACHE_PERMILLE)
    }

    fn recover_in_place(nand: &mut Flash, options: &Options) -> Result<()> {
        Dftl::recover(nand, options, CACHE_PERMILLE).map(drop)
    }

    fn flash(&self) -> &Flash {
        self.nand()
    }

    fn flash_mut(&mut self) -> &mut Flash {
        self.nand_mut()
    }
}

/// Pages of 16 bytes: a logical page and a version, twice.
pub const PAGE: usize = 16;

pub fn sizes(channels: u32, blocks: u32, pages: u32) -> Sizes {
    Sizes {
        channels,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane: blocks,
        pages_per_block: pages,
        page_size: PAGE as u32,
    }
}

pub fn flash(channels: u32, blocks: u32, pages: u32) -> Flash {
    Flash::new(Geometry::new(sizes(channels, blocks, pages)).unwrap())
}

/// A step of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Write(u32),
    Trim(u32),
    Flush,
    Read(u32),
}

/// `steps` random steps on `pages` logical pages, a part of which is hot.
pub fn history(random: &Random, pages: u32, steps: usize) -> Vec<Op> {
    let hot = (pages / 4).max(1);
    let trims = random.below(3) * 8;
    (0..steps)
        .map(|_| {
            let within = if random.percent(60) { hot } else { pages };
            let lpn = random.below(within.into()) as u32;
            match random.below(100) {
                n if n < trims => Op::Trim(lpn),
                n if n < trims + 6 => Op::Flush,
                n if n < trims + 12 => Op::Read(lpn),
                _ => Op::Write(lpn),
            }
        })
        .collect()
}

/// The content of a version of a logical page.
pub fn content(lpn: u32, version: u32) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    for (at, value) in (0..).step_by(4).zip([lpn, version, !lpn, !version]) {
        page[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    page
}

/// The version that a logical page has, 0 where it is not mapped.
pub fn version_of<L: Ftl>(layer: &mut L, lpn: u32) -> Verdict<u32> {
    let wrong = |detail: String| Violation::new(Oracle::ContentMatches, detail);
    let mut page = [0xff; PAGE];
    let is_mapped = layer.read(Lpn(lpn), &mut page).map_err(|e| wrong(format!("{lpn}: {e}")))?;
    let version = u32::from_le_bytes(page[4..8].try_into().unwrap());
    if page != if is_mapped { content(lpn, version) } else { [0; PAGE] } {
        return Err(wrong(format!("page {lpn} (mapped: {is_mapped}) reads as {page:?}")));
    }
    Ok(version)
}

/// What a host may find in each logical page.
#[derive(Clone, Debug)]
pub struct Model {
    pages: Vec<State>,
    /// The version of the last write.
    version: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The version that reads answer, 0 if none.
    now: u32,
    /// The version before a trim that was not flushed.
    before_trim: Option<u32>,
}

impl Model {
    pub fn new(pages: u32) -> Self {
        Self { pages: vec![State::default(); pages as usize], version: 0 }
    }

    /// Does a step on a layer. The error is the layer's.
    pub fn run<L: Ftl>(&mut self, layer: &mut L, op: Op) -> Result<Verdict> {
        match op {
            Op::Write(lpn) => {
                self.version += 1;
                // Layers without so many streams have it in their last one.
                let stream = Stream(lpn % 4);
                layer.write_in_stream(Lpn(lpn), &content(lpn, self.version), stream)?;
                self.pages[lpn as usize] = State { now: self.version, before_trim: None };
            }
            Op::Trim(lpn) => {
                layer.trim(Lpn(lpn))?;
                let state = &mut self.pages[lpn as usize];
                if state.now != 0 {
                    state.before_trim = Some(state.now);
                }
                state.now = 0;
            }
            Op::Flush => {
                layer.flush()?;
                self.pages.iter_mut().for_each(|state| state.before_trim = None);
            }
            Op::Read(lpn) => {
                // A read can write, and meet a power cut.
                layer.read(Lpn(lpn), &mut [0; PAGE])?;
                return Ok(self.judge_page(layer, lpn));
            }
        }
        Ok(Ok(()))
    }

    fn judge_page<L: Ftl>(&self, layer: &mut L, lpn: u32) -> Verdict {
        let (found, expected) = (version_of(layer, lpn)?, self.pages[lpn as usize].now);
        if found == expected {
            return Ok(());
        }
        let detail = format!("page {lpn} has version {found}, written was {expected}");
        Err(Violation::new(Oracle::ContentMatches, detail))
    }

    /// Every page reads as it was written.
    pub fn judge<L: Ftl>(&self, layer: &mut L) -> Verdict {
        (0..self.pages.len() as u32).try_for_each(|lpn| self.judge_page(layer, lpn))
    }

    /// After a power cut in `op`: every page reads as before it, or as after it. What is found is
    /// what later reads must answer.
    pub fn judge_recovered<L: Ftl>(&mut self, layer: &mut L, op: Option<Op>) -> Verdict {
        for lpn in 0..self.pages.len() as u32 {
            let found = version_of(layer, lpn)?;
            let state = &mut self.pages[lpn as usize];
            let is_allowed = found == state.now
                || Some(found) == state.before_trim
                || (op == Some(Op::Write(lpn)) && found == self.version)
                || (op == Some(Op::Trim(lpn)) && found == 0);
            if !is_allowed {
                let detail = format!("page {lpn} has version {found} and should have {state:?}");
                return Err(Violation::new(Oracle::AcknowledgedIsThere, detail));
            }
            *state = State { now: found, before_trim: None };
        }
        Ok(())
    }
}

/// The layer's own check, as a verdict.
pub fn check<L: Ftl>(layer: &L) -> Verdict {
    layer.check().map_err(|error| Violation::new(Oracle::CheckIsClean, error.to_string()))
}

/// Fails the test with what a run found broken.
#[track_caller]
pub fn passes(seed: u64, verdict: Verdict) {
    verdict.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
}

/// An error that a layer may not answer.
pub fn unexpected(error: &Error) -> Violation {
    Violation::new(Oracle::WorksOn, error.to_string())
}

/// Looks for a planted bug, which an attempt must find, and records how soon.
pub fn hunt<T>(
    suite: &'static str,
    bug: Bug,
    attempts: impl IntoIterator<Item = T>,
    attempt: impl FnMut(&T, &mut Counts) -> Verdict,
) -> Finding {
    let found = planted::hunt(attempts, |body| with(bug, body), attempt);
    let found = found.unwrap_or_else(|violation| panic!("{bug:?}: {violation}"));
    let mut counts = Counts::new(suite, format!("planted {bug:?}"));
    counts.add("histories until found", found.attempts);
    counts.add("judged until found", found.judged);
    counts.record().unwrap();
    found
}
