//! SQLite over the VFS as the subject of crashes and faults.

use std::sync::Arc;

use esker_device::sim::{Effect, Failure, OpKind, SimDevice};
use esker_harness::counts::Counts;
use esker_harness::crash::{Again, Crash, Promise, Subject, limited};
use esker_harness::faults::{Case as Fault, Effects, Ending, Failing, Left};
use esker_harness::violation::{Oracle, Verdict, ensure, without_panic};
use tempfile::TempDir;

use super::disk::{PRESENCE, SuperJournals, ensure_no_panics, super_journals};
use super::judge::{Judge, before, left_by};
use super::session::{Base, Ended, Point, Reached, Session, is_of_the_device};
use super::steps::{Case, Step};

/// What a run leaves besides its disk.
#[derive(Debug)]
pub struct Model {
    states: Arc<Vec<Reached>>,
    /// The super-journals, as the marks number them.
    history: Vec<SuperJournals>,
    folder: Arc<TempDir>,
    ended: Option<Ended>,
}

/// Runs what judges a case. A panic in it or below SQLite is a violation.
pub fn judged(case: &Case, seed: u64, run: impl FnOnce() -> Verdict) -> Verdict {
    let verdict = without_panic(run);
    let verdict = ensure_no_panics().and(verdict);
    verdict.map_err(|violation| violation.at(format!("{}, seed {seed}", case.name)))
}

impl Subject for Session {
    type Case = Case;
    type Op = Step;
    type Point = Point;
    type Base = Base;
    type Model = Model;
    type Error = rusqlite::Error;

    const OWN_MARKS: u64 = PRESENCE;

    fn open(case: &Case, disk: &Arc<SimDevice>, base: &Base) -> rusqlite::Result<Self> {
        let mut session = Self::start(case, SimDevice::clone(disk), base);
        session.connection()?;
        Ok(session)
    }

    fn known(base: &Base) -> Point {
        base.point.clone()
    }

    fn apply(&mut self, step: &Step) -> Verdict<rusqlite::Result<()>> {
        Ok(Self::apply(self, step))
    }

    fn observe(&self) -> Point {
        self.point.clone()
    }

    fn is_more(_: &Point, _: &Point) -> bool {
        true
    }

    fn finish(&mut self) -> Verdict {
        self.judge_live();
        Ok(())
    }

    fn into_model(mut self) -> Model {
        // Nothing depends on how that ends.
        drop(Self::close(&mut self));
        let Self { disk, states, folder, ended, .. } = self;
        let history = disk.history.lock().unwrap().clone();
        Model { states: Arc::new(states), history, folder, ended }
    }

    fn check(
        crash: &Crash<'_, Self>,
        disk: &Arc<SimDevice>,
        counts: &mut Counts,
    ) -> Verdict<Vec<Option<Base>>> {
        let Crash { case, model, promise, state, is_again } = crash;
        let Model { states, history, folder, .. } = model;
        let judge = Judge { case, states, folder: folder.path(), promise, number: state.digest };
        let image = disk.image();
        let variants = left_by(history, state).into_iter().map(|journals| {
            counts.add("with a super-journal", (!journals.is_empty() && !is_again).into());
            let judging = || Ok(judge.judge(&image, &journals));
            let point = without_panic(judging).map_err(|violation| violation.at(before(state)))?;
            let (states, folder) = (Arc::clone(states), Arc::clone(folder));
            Ok(Some(Base { states, point, journals, folder }))
        });
        variants.collect()
    }

    fn again(case: &Case, seed: u64) -> Again<Self> {
        let ops = case.steps(seed).into_iter().take(3).collect();
        Again { case: case.clone(), ops, options: limited(seed, 8) }
    }
}

/// Whether the device answers as before once the operation has failed.
fn passes(fault: Fault) -> bool {
    !fault.is_sticky && !fault.drops() && fault.effect != Effect::PowerOff
}

impl Failing for Session {
    const KINDS: &'static [OpKind] = &[OpKind::Read, OpKind::Write, OpKind::Sync, OpKind::Open];
    const EFFECTS: Effects = Effects {
        power_off: true,
        on_write: &[(Effect::ShortWrite { bytes: 700, failure: Failure::Io }, false)],
        on_read: &[],
    };
    const ERRORS_MAX: u64 = 3;
    const ENDINGS: &'static [Ending] = &[Ending::Killed, Ending::PowerCut, Ending::PowerCutSome];

    fn may_answer(error: &rusqlite::Error, _: Fault) -> Verdict {
        ensure(is_of_the_device(error), Oracle::ErrorsSurface, || format!("{error:?}"))
    }

    /// What a sync has dropped, or only pretends to have, no opening can find out.
    fn leaves_out(step: &Step, fault: Fault) -> bool {
        *step == Step::Reopen && matches!(fault.effect, Effect::FailSync(_))
    }

    fn after_error(&mut self, _: &Step, fault: Fault) -> Verdict<bool> {
        if passes(fault) {
            self.judge_live();
        }
        Ok(true)
    }

    fn is_poisoned(&self) -> bool {
        false
    }

    fn look(&mut self, fault: Fault, errors: u64) -> Verdict {
        let journals = super_journals(self.folder.path());
        self.ended = Some(Ended { point: self.point.clone(), journals });
        if errors > 0 && !fault.drops() && fault.effect != Effect::PowerOff {
            self.judge_live();
        }
        Ok(())
    }

    fn close(&mut self) -> rusqlite::Result<()> {
        Self::close(self)
    }

    fn crashes(case: &Case) -> u64 {
        match case.files.len() {
            _ if case.is_relaxed => 0,
            1 => 2,
            _ => 6,
        }
    }

    fn judge_left(left: &Left<'_, Self>, disk: &Arc<SimDevice>) -> Verdict {
        ensure_no_panics()?;
        let Left { case, fault, ending, base, run } = left;
        let (states, point, journals) = match run {
            None => (&base.states, &base.point, &base.journals),
            Some((model, end)) => {
                let ended = model.ended.as_ref().unwrap();
                // A look at the end may have decided what was in doubt, on the disk, too.
                let point = if ending.is_power_cut() { &ended.point } else { *end };
                (&model.states, point, &ended.journals)
            }
        };
        let promise = &Promise { now: point, next: point, is_whole: false };
        let number = fault.nth + *ending as u64;
        let judge = Judge { case, states, folder: base.folder.path(), promise, number };
        judge.judge(&disk.image(), journals);
        Ok(())
    }
}
