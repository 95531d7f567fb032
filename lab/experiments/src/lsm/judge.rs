//! Common parts of the predictions about policies.

use super::phases::{OCCUPANCY, WRITES};
use super::policy::{Contender, Keys, name};
use crate::experiment::Series;

/// Whether a shape shows; if not, what is off.
pub type Judged = Result<(), String>;

/// The bounds of the ratio of a policy that writes less than another: closer ones are a tie.
pub const LESS: [f64; 2] = [0.0, 0.99];

/// A metric that must have counted something: where nothing was written, every share of nothing is
/// within bounds.
///
/// # Errors
/// When it was not measured, or is nothing.
pub fn counted(series: &Series, system: &str, at: f64, metric: &str) -> Result<f64, String> {
    let value = series.value(system, at, metric)?;
    if value > 0.0 { Ok(value) } else { Err(format!("{metric} of {system} at {at} is {value}")) }
}

/// The writes of a policy at a place, over those of another one.
///
/// # Errors
/// When one of them was not measured, or wrote nothing.
pub fn ratio(
    series: &Series,
    keys: Keys,
    at: f64,
    of: Contender,
    than: Contender,
) -> Result<f64, String> {
    let writes = |contender| counted(series, name(keys, contender), at, WRITES);
    Ok(writes(of)? / writes(than)?)
}

/// Whether that is within bounds.
///
/// # Errors
/// The difference, in a line.
pub fn is_within(
    series: &Series,
    keys: Keys,
    at: f64,
    [of, than]: [Contender; 2],
    [least, most]: [f64; 2],
) -> Judged {
    let found = ratio(series, keys, at, of, than)?;
    if (least..=most).contains(&found) {
        return Ok(());
    }
    let (of, than) = (name(keys, of), name(keys, than));
    Err(format!("at {at} {of} writes {found:.3} of what {than} does, not {least} to {most}"))
}

/// The places where a policy was measured, in order.
///
/// # Errors
/// When there is none.
pub fn places(series: &Series, keys: Keys, contender: Contender) -> Result<Vec<f64>, String> {
    let mut places = series.places(name(keys, contender));
    places.sort_by(f64::total_cmp);
    if places.is_empty() {
        return Err(format!("{} was not measured", name(keys, contender)));
    }
    Ok(places)
}

/// The first and the last of these places.
///
/// # Errors
/// When there is one at most.
pub fn ends(places: &[f64]) -> Result<[f64; 2], String> {
    match places {
        [first, .., last] => Ok([*first, *last]),
        _ => Err("it takes two places".to_owned()),
    }
}

/// The occupancy of the last level from which on one policy writes more than another, between the
/// two places where the difference changes its sign for the first time.
///
/// # Errors
/// When there is no such place.
pub fn crossover(
    series: &Series,
    keys: Keys,
    places: &[f64],
    [of, than]: [Contender; 2],
) -> Result<f64, String> {
    let mut before: Option<(f64, f64)> = None;
    for at in places {
        let excess = ratio(series, keys, *at, of, than)? - 1.0;
        let occupancy = series.value(name(keys, than), *at, OCCUPANCY)?;
        match before {
            Some((left, under)) if excess > 0.0 && under <= 0.0 => {
                return Ok(left + (occupancy - left) * -under / (excess - under));
            }
            _ => before = Some((occupancy, excess)),
        }
    }
    Err(format!("{} never becomes dearer than {}", name(keys, of), name(keys, than)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiment::metric;
    use crate::lsm::policy::{PARTIAL, TEST};

    /// Adds what a policy wrote at a place.
    pub(crate) fn wrote(
        series: &mut Series,
        keys: Keys,
        contender: Contender,
        at: f64,
        metrics: &[(&str, f64)],
    ) {
        let mut run = esker_lab_result::Metrics::new();
        metrics.iter().for_each(|(name, value)| metric(&mut run, name, *value));
        series.add(name(keys, contender), at, run);
    }

    fn two(test: [f64; 3]) -> Series {
        let mut series = Series::default();
        for (at, writes) in [1.0, 2.0, 3.0].into_iter().zip(test) {
            let occupancy = (OCCUPANCY, at / 4.0);
            wrote(&mut series, Keys::Uniform, PARTIAL, at, &[(WRITES, 100.0), occupancy]);
            wrote(&mut series, Keys::Uniform, TEST, at, &[(WRITES, writes), occupancy]);
        }
        series
    }

    /// By hand: 10 % less at 0.5 and 10 % more at 0.75 cross in the middle.
    #[test]
    fn a_crossover_lies_between_two_places() {
        let places = [1.0, 2.0, 3.0];
        let cross = |test| crossover(&two(test), Keys::Uniform, &places, [TEST, PARTIAL]);
        assert!((cross([80.0, 90.0, 110.0]).unwrap() - 0.625).abs() < 1e-9);
        assert!(cross([80.0, 90.0, 99.0]).unwrap_err().contains("never"));
        assert!(cross([110.0, 120.0, 130.0]).is_err());
    }

    #[test]
    fn ratios_are_judged_by_their_bounds() {
        let series = two([80.0, 90.0, 110.0]);
        let within = |bounds| is_within(&series, Keys::Uniform, 1.0, [TEST, PARTIAL], bounds);
        assert_eq!(within([0.7, 0.8]), Ok(()));
        assert!(within([0.81, 1.0]).unwrap_err().contains("0.800"));
        assert!(ratio(&series, Keys::Normal, 1.0, TEST, PARTIAL).is_err());
        let nothing = two([0.0, 90.0, 110.0]);
        assert!(ratio(&nothing, Keys::Uniform, 1.0, TEST, PARTIAL).unwrap_err().contains("is 0"));
        assert!(places(&series, Keys::Normal, TEST).is_err());
        assert_eq!(ends(&[1.0, 2.0, 3.0]), Ok([1.0, 3.0]));
        assert!(ends(&[1.0]).is_err());
    }
}
