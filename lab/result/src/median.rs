//! Many runs as one number each: medians, metric by metric.

use std::collections::BTreeMap;

use crate::Metrics;

/// The median; the mean of the middle two of an even number. `None` of nothing.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied()?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = values.get(middle.checked_sub(1)?).copied()?;
    Some(f64::midpoint(lower, upper))
}

/// The median of every metric over the runs that have it.
#[must_use]
pub fn medians(runs: &[Metrics]) -> Metrics {
    let mut values: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
    for (name, value) in runs.iter().flatten() {
        values.entry(name).or_default().push(*value);
    }
    let of_all = values.into_iter();
    of_all.filter_map(|(name, values)| Some((name.clone(), median(values)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![9.0, 1.0]), Some(5.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![f64::NAN, 4.0]), Some(4.0));
    }

    #[test]
    fn metrics_are_summed_up_by_name() {
        let run = |a: f64| Metrics::from([("a".to_owned(), a)]);
        let mut last = run(7.0);
        last.insert("b".to_owned(), 1.0);
        let found = medians(&[run(1.0), run(2.0), last]);
        assert_eq!(found, Metrics::from([("a".to_owned(), 2.0), ("b".to_owned(), 1.0)]));
    }
}
