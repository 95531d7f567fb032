//! Every power cut of a history: in every program and every erase of every step.

use esker_flash::Error;
use esker_flash::ftl::Options;
use esker_flash::nand::Cut;
use esker_harness::counts::Counts;
use esker_harness::violation::{Oracle, Verdict, Violation};

use super::{Flash, Layer, Model, Op, Random, check, unexpected};

/// One crash in this many is where the history goes on.
const GO_ON_ONE_IN: u64 = 40;

/// Runs a history, cuts the power in every operation on flash of every step, and judges every
/// state that is left: it opens, nothing flushed is lost, nothing is there that was not written, a
/// second recovery finds the same, and the layer works on, through another cut.
pub fn explore<L: Layer>(
    flash: Flash,
    options: &Options,
    history: &[Op],
    seed: u64,
    counts: &mut Counts,
) -> Verdict {
    let random = Random::new(seed);
    let mut layer = L::format(flash, options).map_err(|error| unexpected(&error))?;
    let mut model = Model::new(layer.logical_pages());
    for (at, op) in history.iter().enumerate() {
        let step = format!("step {at}, {op:?}");
        let left = cut_everywhere(&layer, &model, *op, options, &random, counts);
        let left = left.map_err(|violation| violation.at(&step))?;
        match left.filter(|_| random.below(GO_ON_ONE_IN) == 0) {
            Some((recovered, found)) => (layer, model) = (recovered, found),
            None => {
                let verdict = model.run(&mut layer, *op).map_err(|error| unexpected(&error));
                verdict.and_then(|verdict| verdict).map_err(|violation| violation.at(&step))?;
            }
        }
        check(&layer).map_err(|violation| violation.at(&step))?;
    }
    model.judge(&mut layer)
}

/// Cuts the power in every operation of a step. Answers one of the recovered layers.
fn cut_everywhere<L: Layer>(
    layer: &L,
    model: &Model,
    op: Op,
    options: &Options,
    random: &Random,
    counts: &mut Counts,
) -> Verdict<Option<(L, Model)>> {
    let (mut left, mut seen) = (None, 0);
    for operations in 0.. {
        for cut in Cut::ALL {
            let (mut dying, mut model) = (layer.clone(), model.clone());
            dying.flash_mut().cut_after(operations, cut);
            match model.run(&mut dying, op) {
                Ok(verdict) => return verdict.map(|()| left),
                Err(Error::PowerCut) => {}
                Err(error) => return Err(unexpected(&error)),
            }
            let place = format!("{cut:?} in operation {operations}");
            let recovered = judge(dying.flash(), &mut model, Some(op), options, random, counts);
            let recovered = recovered.map_err(|violation| violation.at(&place))?;
            seen += 1;
            if random.below(seen) == 0 {
                left = Some((recovered, model));
            }
        }
    }
    Ok(left)
}

/// Recovers the flash that a cut in `op` left, cuts that recovery and the next step too, and judges
/// all that is left.
fn judge<L: Layer>(
    flash: &Flash,
    model: &mut Model,
    op: Option<Op>,
    options: &Options,
    random: &Random,
    counts: &mut Counts,
) -> Verdict<L> {
    let mut flash = flash.clone();
    flash.power_on();
    let opens = |error: Error| Violation::new(Oracle::Opens, error.to_string());
    for operations in 0.. {
        let mut dying = flash.clone();
        dying.cut_after(operations, Cut::ALL[random.index(3)]);
        match L::recover_in_place(&mut dying, options) {
            Err(Error::PowerCut) => dying.power_on(),
            Ok(()) => break,
            Err(error) => return Err(opens(error)),
        }
        let mut again = L::recover(dying, options).map_err(opens)?;
        model.clone().judge_recovered(&mut again, op)?;
        check(&again)?;
        counts.add("cuts of a recovery", 1);
    }
    let mut layer = L::recover(flash, options).map_err(opens)?;
    check(&layer)?;
    model.judge_recovered(&mut layer, op)?;
    let mut again = L::recover(layer.flash().clone(), options).map_err(opens)?;
    let same =
        |violation: Violation| Violation::new(Oracle::OpeningAgainIsTheSame, violation.to_string());
    model.judge(&mut again).map_err(same)?;
    counts.add("judged", 1);
    cut_again(&again, model, options, random, counts)?;
    Ok(layer)
}

/// The recovered layer does a few steps and is cut again.
fn cut_again<L: Layer>(
    layer: &L,
    model: &Model,
    options: &Options,
    random: &Random,
    counts: &mut Counts,
) -> Verdict {
    let (mut layer, mut model) = (layer.clone(), model.clone());
    layer.flash_mut().cut_after(random.below(6), Cut::ALL[random.index(3)]);
    let pages = u64::from(layer.logical_pages());
    for _ in 0..12 {
        let op = match random.below(8) {
            0 => Op::Flush,
            1 => Op::Trim(random.below(pages) as u32),
            _ => Op::Write(random.below(pages) as u32),
        };
        match model.run(&mut layer, op) {
            Ok(verdict) => verdict?,
            Err(Error::PowerCut) => {
                let mut flash = layer.flash().clone();
                flash.power_on();
                let opens = |error: Error| Violation::new(Oracle::Opens, error.to_string());
                let mut layer = L::recover(flash, options).map_err(opens)?;
                check(&layer)?;
                counts.add("judged within them", 1);
                return model.judge_recovered(&mut layer, Some(op));
            }
            Err(error) => return Err(unexpected(&error)),
        }
    }
    Ok(())
}
