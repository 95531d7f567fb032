//! Power cuts: in every program and erase of a history, and in every erase of the recoveries.
//!
//! Each operation of a history is first tried on copies of the device, with the power cut in its
//! first program or erase, then in the second, until it ends without one.

use esker_flash::Error;
use esker_flash::ftl::{mvftl, xftl};
use esker_flash::nand::{Cut, Lpn};
use esker_harness::random::Random;

use crate::budget;
use crate::history::{Ended, Op, Session};
use crate::layer::{Flash, Layer, empty, page, read_all};
use crate::model::Model;

/// Counts of what was judged.
#[derive(Debug, Default)]
pub struct Judged {
    pub cuts: u64,
    pub cuts_in_recovery: u64,
}

/// A history with a cut at every place. `cuts` are the kinds of cuts that are tried.
pub fn every_cut<L: Layer>(seed: u64, operations: u64, cuts: &[Cut]) -> Result<Judged, String> {
    let random = Random::new(seed);
    let mut session = Session::new(empty::<L>());
    let mut judged = Judged::default();
    for at in 0..operations {
        let op = session.next_op(&random);
        for cut in cuts {
            cut_in_op(&session, op, *cut, &mut judged)
                .map_err(|wrong| format!("{}, seed {seed}, operation {at}: {wrong}", L::NAME))?;
        }
        session.apply(op)?;
    }
    Ok(judged)
}

fn cut_in_op<L: Layer>(
    session: &Session<L>,
    op: Op,
    cut: Cut,
    judged: &mut Judged,
) -> Result<(), String> {
    if matches!(op, Op::Read(..) | Op::Abort(_) | Op::End(_)) {
        return Ok(());
    }
    for after in 0.. {
        let mut trial = session.clone();
        trial.layer.flash().cut_after(after, cut);
        let value = trial.model.clone().fresh();
        if trial.apply(op)? != Ended::Cut {
            return Ok(());
        }
        let place = |wrong| format!("{cut:?} cut {after} of {op:?}: {wrong}");
        let mut done = session.clone();
        done.on_model(op, value);
        let allowed = allowed(op, &trial.model, done.model);
        judge::<L>(trial.layer.into_flash(), &allowed, cut, judged).map_err(place)?;
        judged.cuts += 1;
    }
    Ok(())
}

/// The models of which one must explain what is found: the operation was not done, or it was. A
/// flush that was interrupted, or a commit that a transaction made of plain writes before itself,
/// may have done a part of its work, which the first model allows.
fn allowed(op: Op, before: &Model, after: Model) -> Vec<Model> {
    match op {
        Op::Write(_) | Op::Trim(_) | Op::Commit(_) => vec![before.clone(), after],
        _ => vec![before.clone()],
    }
}

/// Recovers a device after a cut, with further cuts in the recovery, and compares.
fn judge<L: Layer>(
    mut flash: Flash,
    allowed: &[Model],
    cut: Cut,
    judged: &mut Judged,
) -> Result<(), String> {
    flash.power_on();
    for after in 0.. {
        let mut left = flash.clone();
        left.cut_after(after, cut);
        match L::try_recovery(&mut left) {
            Ok(()) => break,
            Err(Error::PowerCut) => judged.cuts_in_recovery += 1,
            Err(error) => return Err(format!("recovery: {error}")),
        }
        // What an interrupted recovery leaves is recovered as well.
        left.power_on();
        let layer = L::recover_small(left).map_err(|error| format!("again: {error}"))?;
        compare::<L>(layer, allowed)?;
    }
    let layer = L::recover_small(flash).map_err(|error| format!("recovery: {error}"))?;
    compare::<L>(layer, allowed)
}

fn compare<L: Layer>(mut layer: L, allowed: &[Model]) -> Result<(), String> {
    layer.check().map_err(|error| error.to_string())?;
    let found = read_all(&mut layer)?;
    let mut wrong = String::new();
    let Some(model) = allowed.iter().find(|model| match model.allows(&found) {
        Ok(()) => true,
        Err(page) => {
            wrong = page;
            false
        }
    }) else {
        return Err(format!("after the recovery {wrong}"));
    };
    let mut model = model.clone();
    model.restarted(found.clone());
    // Recovered again, it is the same.
    let mut layer = L::recover_small(layer.into_flash()).map_err(|error| error.to_string())?;
    if read_all(&mut layer)? != found {
        return Err("a second recovery finds something else".to_owned());
    }
    works_on(layer, model)
}

/// The device works on: a transaction of several pages of log, a plain write, and a restart.
fn works_on<L: Layer>(mut layer: L, mut model: Model) -> Result<(), String> {
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

fn operations() -> u64 {
    (500 * budget()).min(20_000)
}

fn survives<L: Layer>() {
    let judged = every_cut::<L>(1, operations(), &Cut::ALL).unwrap();
    eprintln!("{}: {judged:?}", L::NAME);
    assert!(judged.cuts > operations(), "{judged:?}");
    assert!(judged.cuts_in_recovery > operations() / 4, "{judged:?}");
}

#[test]
fn mvftl_survives_a_cut_after_every_program_and_in_every_erase() {
    survives::<mvftl::MvFtl<Flash>>();
}

#[test]
fn xftl_survives_a_cut_after_every_program_and_in_every_erase() {
    survives::<xftl::XFtl<Flash>>();
}
