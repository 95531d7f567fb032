//! Power cuts: in every program and erase of a history, and in every erase of the recoveries.
//!
//! Each operation of a history is first tried on copies of the device, with the power cut in its
//! first program or erase, then in the second, until it ends without one. From every device that is
//! recovered the history goes on, through another cut; now and then it is the history from then on.

use esker_flash::Error;
use esker_flash::ftl::{mvftl, xftl};
use esker_flash::nand::{Cut, Lpn};
use esker_harness::random::Random;

use crate::budget;
use crate::history::{Ended, Op, Session};
use crate::layer::{Flash, Layer, OPEN, empty, page, read_all};
use crate::model::Model;

/// One device in so many that are recovered is the one that the history goes on with.
const GO_ON_ONE_IN: u64 = 100;

/// Counts of what was judged.
#[derive(Debug, Default)]
pub struct Judged {
    pub cuts: u64,
    pub cuts_in_recovery: u64,
    /// Cuts after a recovery and some operations.
    pub cuts_again: u64,
    /// Operations after recoveries.
    pub operations: u64,
}

/// Histories with cuts.
pub struct Explorer {
    random: Random,
    /// The kinds of cuts that are tried.
    cuts: &'static [Cut],
    /// Operations for which the history goes on after each recovery.
    goes_on: u64,
    pub judged: Judged,
}

impl Explorer {
    pub fn new(seed: u64, cuts: &'static [Cut], goes_on: u64) -> Self {
        Self { random: Random::new(seed), cuts, goes_on, judged: Judged::default() }
    }

    /// A history with a cut at every place.
    pub fn every_cut<L: Layer>(&mut self, operations: u64) -> Result<(), String> {
        let mut session = Session::new(empty::<L>());
        for at in 0..operations {
            let op = session.next_op(&self.random);
            let place = |wrong| format!("{}, operation {at}, {op:?}: {wrong}", L::NAME);
            let recovered = self.cut_in_op(&session, op).map_err(place)?;
            match recovered.filter(|_| self.random.below(GO_ON_ONE_IN) == 0) {
                Some(recovered) => session = recovered,
                None => _ = session.apply(op).map_err(place)?,
            }
        }
        session.compare_all()
    }

    /// Cuts the power at every place of an operation. Answers one of the devices that were
    /// recovered.
    fn cut_in_op<L: Layer>(
        &mut self,
        session: &Session<L>,
        op: Op,
    ) -> Result<Option<Session<L>>, String> {
        if matches!(op, Op::Read(..) | Op::Abort(_) | Op::End(_)) {
            return Ok(None);
        }
        let mut left = None;
        let cuts = self.cuts;
        for after in 0.. {
            let mut erases = 0;
            for cut in cuts {
                // Of a program, nothing else is left than by the cut before.
                if *cut == Cut::Partial && erases == 0 {
                    continue;
                }
                let mut trial = session.clone();
                trial.layer.flash().cut_after(after, *cut);
                if trial.apply(op)? != Ended::Cut {
                    return Ok(left);
                }
                erases = trial.layer.flash().blocks_to_erase();
                let place = |wrong| format!("{cut:?} cut {after}: {wrong}");
                let recovered = self.judge_cut(trial, op, *cut).map_err(place)?;
                self.judged.cuts += 1;
                if left.is_none() || self.random.below(4) == 0 {
                    left = Some(recovered);
                }
            }
        }
        Ok(left)
    }

    /// Judges what a cut in `op` left.
    fn judge_cut<L: Layer>(
        &mut self,
        cut_session: Session<L>,
        op: Op,
        cut: Cut,
    ) -> Result<Session<L>, String> {
        let allowed = cut_session.allowed(op);
        let recovered = self.judge(cut_session.layer.into_flash(), &allowed, cut)?;
        self.go_on(recovered.clone())?;
        Ok(recovered)
    }

    /// Recovers a device after a cut, with further cuts in the recovery, and compares.
    fn judge<L: Layer>(
        &mut self,
        mut flash: Flash,
        allowed: &[Model],
        cut: Cut,
    ) -> Result<Session<L>, String> {
        flash.power_on();
        for after in 0.. {
            let mut left = flash.clone();
            left.cut_after(after, cut);
            match L::try_recovery(&mut left) {
                Ok(()) => break,
                Err(Error::PowerCut) => self.judged.cuts_in_recovery += 1,
                Err(error) => return Err(format!("recovery: {error}")),
            }
            // What an interrupted recovery leaves is recovered as well.
            left.power_on();
            let layer = L::recover_small(left).map_err(|error| format!("again: {error}"))?;
            explained(layer, allowed)?;
        }
        let layer = L::recover_small(flash).map_err(|error| format!("recovery: {error}"))?;
        let Session { layer, model, .. } = explained(layer, allowed)?;
        // Recovered again, it is the same.
        let layer = L::recover_small(layer.into_flash()).map_err(|error| error.to_string())?;
        explained(layer, &[model]).map_err(|wrong| format!("a second recovery: {wrong}"))
    }

    /// The history goes on from a recovered device, through another cut or to a restart. Now and
    /// then it is a transaction of several pages of log, whose restart is the last.
    fn go_on<L: Layer>(&mut self, mut session: Session<L>) -> Result<(), String> {
        if self.random.below(4) == 0 {
            return works_on(session);
        }
        let cut = self.cuts[self.random.index(self.cuts.len())];
        session.layer.flash().cut_after(self.random.below(2 * self.goes_on + 6), cut);
        let mut allowed = None;
        for _ in 0..self.goes_on {
            let op = session.next_op(&self.random);
            let place = |wrong| format!("going on with {op:?}: {wrong}");
            self.judged.operations += 1;
            if session.apply(op).map_err(place)? == Ended::Cut {
                self.judged.cuts_again += 1;
                allowed = Some(session.allowed(op));
                break;
            }
        }
        let allowed = allowed.unwrap_or_else(|| vec![session.model.clone()]);
        let mut flash = session.layer.into_flash();
        flash.power_on();
        let layer = L::recover_small(flash).map_err(|error| format!("later: {error}"))?;
        explained(layer, &allowed).map(drop)
    }
}

impl<L: Layer> Session<L> {
    /// The models of which one must explain what is found after a cut in `op`: the operation was
    /// not done, or it was. A flush that was interrupted, or a commit that a transaction made of
    /// plain writes before itself, may have done a part of its work, which the first model allows.
    fn allowed(&self, op: Op) -> Vec<Model> {
        let before = self.model.clone();
        if !matches!(op, Op::Write(_) | Op::Trim(_) | Op::Commit(_)) {
            return vec![before];
        }
        let mut done = self.clone();
        // The value that the operation would have written is the last one.
        done.on_model(op, before.last_value());
        vec![before, done.model]
    }
}

/// A recovered device holds what one of the models allows, and its history goes on from there.
fn explained<L: Layer>(mut layer: L, allowed: &[Model]) -> Result<Session<L>, String> {
    layer.check().map_err(|error| error.to_string())?;
    let found = read_all(&mut layer)?;
    let mut wrong = String::new();
    for model in allowed {
        match model.allows(&found) {
            Err(page) => wrong = page,
            Ok(()) => {
                let mut model = model.clone();
                model.restarted(found);
                return Ok(Session { layer, model, open: [None; OPEN] });
            }
        }
    }
    Err(format!("after the recovery {wrong}"))
}

/// The device works on: a transaction of several pages of log, a plain write, and a restart.
fn works_on<L: Layer>(Session { mut layer, mut model, .. }: Session<L>) -> Result<(), String> {
    let mut step = || -> esker_flash::Result<()> {
        let tx = layer.begin()?;
        model.begin(0);
        for lpn in (0..60).step_by(6) {
            let value = model.fresh() + (1 << 24);
            layer.write_in(tx, Lpn(lpn), &page(lpn, value))?;
            model.write_in(0, lpn, value);
        }
        layer.commit(tx)?;
        model.commit(0);
        let value = model.fresh() + (1 << 24);
        layer.write(Lpn(3), &page(3, value))?;
        model.write(3, value);
        layer.check()
    };
    step().map_err(|error| format!("working on: {error}"))?;
    let mut layer = L::recover_small(layer.into_flash()).map_err(|error| error.to_string())?;
    model.allows(&read_all(&mut layer)?).map_err(|wrong| format!("after working on, {wrong}"))
}

/// A history of 20,000 operations.
fn survives<L: Layer>() {
    let operations = (20_000 * budget()).min(100_000);
    let mut explorer = Explorer::new(1, &Cut::ALL, 8);
    explorer.every_cut::<L>(operations).unwrap();
    let judged = explorer.judged;
    eprintln!("{}: {judged:?}", L::NAME);
    assert!(judged.cuts > operations, "{judged:?}");
    assert!(judged.cuts_in_recovery > operations / 4, "{judged:?}");
    assert!(judged.cuts_again > operations / 4, "{judged:?}");
}

#[test]
fn mvftl_survives_a_cut_after_every_program_and_in_every_erase() {
    survives::<mvftl::MvFtl<Flash>>();
}

#[test]
fn xftl_survives_a_cut_after_every_program_and_in_every_erase() {
    survives::<xftl::XFtl<Flash>>();
}

/// Short histories that go on, after every cut, for as long as they would have been.
fn go_on_to_the_end<L: Layer>() {
    const OPERATIONS: u64 = 250;
    for seed in 0..2 * budget() {
        let mut explorer = Explorer::new(seed, &[Cut::Torn], OPERATIONS);
        explorer
            .every_cut::<L>(OPERATIONS)
            .map_err(|wrong| format!("seed {seed}: {wrong}"))
            .unwrap();
        let judged = explorer.judged;
        eprintln!("{}: {judged:?}", L::NAME);
        assert!(judged.operations > 50 * OPERATIONS, "{judged:?}");
    }
}

#[test]
fn histories_of_mvftl_go_on_after_every_cut() {
    go_on_to_the_end::<mvftl::MvFtl<Flash>>();
}

#[test]
fn histories_of_xftl_go_on_after_every_cut() {
    go_on_to_the_end::<xftl::XFtl<Flash>>();
}
