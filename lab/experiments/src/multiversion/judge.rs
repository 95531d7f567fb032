//! What the predictions have in common: ratios between systems, guarded against nothing.

use crate::experiment::Series;

/// Whether a shape shows; if not, what is off.
pub type Judged = Result<(), String>;

/// A metric that must have counted something.
///
/// # Errors
/// When it was not measured, or is nothing.
pub fn counted(series: &Series, system: &str, at: f64, metric: &str) -> Result<f64, String> {
    let value = series.value(system, at, metric)?;
    if value > 0.0 { Ok(value) } else { Err(format!("{metric} of {system} at {at} is nothing")) }
}

/// A metric of one system over that of another, at a place.
///
/// # Errors
/// When one of them was not measured, or is nothing.
pub fn ratio(series: &Series, [of, than]: [&str; 2], at: f64, metric: &str) -> Result<f64, String> {
    Ok(counted(series, of, at, metric)? / counted(series, than, at, metric)?)
}

/// Whether that is within bounds.
///
/// # Errors
/// The difference, in a line.
pub fn is_within(
    series: &Series,
    [of, than]: [&str; 2],
    at: f64,
    metric: &str,
    [least, most]: [f64; 2],
) -> Judged {
    let found = ratio(series, [of, than], at, metric)?;
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(format!("at {at}: {metric} of {of} is {found:.3} of {than}, not {least} to {most}"))
}

/// The places of a system, the least first; two at least.
///
/// # Errors
/// When there are fewer.
pub fn places(series: &Series, system: &str) -> Result<Vec<f64>, String> {
    let mut places = series.places(system);
    places.sort_by(f64::total_cmp);
    if places.len() < 2 {
        return Err(format!("{system} was measured at fewer than two places"));
    }
    Ok(places)
}

/// The last two places of a system.
///
/// # Errors
/// When there are fewer.
pub fn last_two(series: &Series, system: &str) -> Result<[f64; 2], String> {
    match places(series, system)?.as_slice() {
        [.., before, last] => Ok([*before, *last]),
        _ => Err(format!("{system} was measured at fewer than two places")),
    }
}

/// A prediction that must fail for a control: otherwise it says nothing of anything.
///
/// # Errors
/// When it shows.
pub fn fails(control: &str, judged: Judged) -> Judged {
    match judged {
        Err(why) if !why.contains("measured") && !why.contains("nothing") => Ok(()),
        Err(why) => Err(why),
        Ok(()) => Err(format!("it shows for {control}, too")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiment::metric;
    use esker_lab_result::Metrics;

    /// A series from rows: system, place, and a value of each metric.
    pub(crate) fn rows(metrics: &[&str], rows: &[(&str, f64, &[f64])]) -> Series {
        let mut series = Series::default();
        for (system, at, values) in rows {
            let mut run = Metrics::new();
            metrics.iter().zip(*values).for_each(|(name, value)| metric(&mut run, name, *value));
            series.add(system, *at, run);
        }
        series
    }

    #[test]
    fn ratios_are_judged_by_their_bounds() {
        let rows = rows(&["w"], &[("a", 1.0, &[2.0]), ("b", 1.0, &[4.0]), ("a", 0.5, &[0.0])]);
        assert_eq!(is_within(&rows, ["a", "b"], 1.0, "w", [0.4, 0.6]), Ok(()));
        let off = is_within(&rows, ["a", "b"], 1.0, "w", [0.6, 1.0]);
        assert!(off.clone().unwrap_err().contains("0.500"));
        assert_eq!(fails("a", off), Ok(()));
        assert!(fails("a", Ok(())).is_err());
        let missing = is_within(&rows, ["a", "c"], 1.0, "w", [0.6, 1.0]);
        assert!(fails("a", missing).is_err());
        assert!(fails("a", counted(&rows, "a", 0.5, "w").map(drop)).is_err());
        assert_eq!(last_two(&rows, "a"), Ok([0.5, 1.0]));
        assert!(last_two(&rows, "b").is_err());
    }
}
