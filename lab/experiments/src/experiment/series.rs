//! The results of an experiment: metrics of each system along one axis.

use std::collections::BTreeMap;

use esker_lab_result::median::medians;
use esker_lab_result::{Findings, Metrics};

/// The least factor over the longest gap of an idle thread from which a worst case says anything
/// about a system: shorter ones may be pauses of the machine.
pub const CONTROL_FACTOR: f64 = 1.5;
/// The metric of that gap.
pub const CONTROL: &str = "control_max_us";
/// The metric of merges that finished. Where there was none, no worst case says anything.
pub const MERGES: &str = "merges";

/// One place on the axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Which system.
    pub system: String,
    /// The place on the axis.
    pub at: f64,
    /// Every run's metrics.
    pub runs: Vec<Metrics>,
    /// Their medians; of worst cases, too: the median of the maxima.
    pub metrics: Metrics,
}

/// All points, in the order in which they were measured first, and what holds of a whole run.
///
/// Invariant: no two points have the same system and place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The points.
    pub points: Vec<Point>,
    /// Per system, where a run covers the whole axis.
    pub totals: BTreeMap<String, Point>,
}

impl Series {
    /// Adds a run.
    pub fn add(&mut self, system: &str, at: f64, run: Metrics) {
        let found = self.points.iter().position(|point| point.system == system && point.at == at);
        match found.and_then(|index| self.points.get_mut(index)) {
            Some(point) => point.add(run),
            None => {
                let mut point = Point { system: system.to_owned(), at, ..Point::default() };
                point.add(run);
                self.points.push(point);
            }
        }
    }

    /// Adds what holds of a whole run.
    pub fn add_total(&mut self, system: &str, run: Metrics) {
        let total = self.totals.entry(system.to_owned()).or_default();
        total.system = system.to_owned();
        total.add(run);
    }

    /// Adds every run to findings, with five digits that count.
    pub fn record(&self, findings: &mut Findings) {
        for total in self.totals.values() {
            total.runs.iter().for_each(|run| findings.add(None, &total.system, None, short(run)));
        }
        for point in &self.points {
            let at = Some(point.at);
            point.runs.iter().for_each(|run| findings.add(None, &point.system, at, short(run)));
        }
    }

    /// The places where `system` was measured, in order.
    #[must_use]
    pub fn places(&self, system: &str) -> Vec<f64> {
        self.along(system).map(|point| point.at).collect()
    }

    /// The points of `system`, in order.
    pub fn along<'a>(&'a self, system: &'a str) -> impl Iterator<Item = &'a Point> {
        self.points.iter().filter(move |point| point.system == system)
    }

    /// A metric of `system` at a place.
    ///
    /// # Errors
    /// When it was not measured.
    pub fn value(&self, system: &str, at: f64, metric: &str) -> Result<f64, String> {
        let point = self.along(system).find(|point| point.at == at);
        let missing = || format!("{metric} of {system} at {at} was not measured");
        point.ok_or_else(missing)?.value(metric)
    }

    /// A metric of the whole runs of `system`.
    ///
    /// # Errors
    /// When it was not measured.
    pub fn total(&self, system: &str, metric: &str) -> Result<f64, String> {
        let missing = || format!("{metric} of {system} was not measured");
        self.totals.get(system).ok_or_else(missing)?.value(metric)
    }
}

/// The runs of whole experiments first, then the points in their order.
impl From<&Findings> for Series {
    fn from(findings: &Findings) -> Self {
        let mut series = Self::default();
        for of in &findings.measured {
            for run in of.runs.iter().cloned() {
                match of.at {
                    Some(at) => series.add(&of.system, at, run),
                    None => series.add_total(&of.system, run),
                }
            }
        }
        series
    }
}

impl Point {
    fn add(&mut self, run: Metrics) {
        self.runs.push(run);
        self.metrics = medians(&self.runs);
    }

    /// Whether a merge finished while this was measured.
    ///
    /// # Errors
    /// When none did.
    pub fn saw_a_merge(&self) -> Result<(), String> {
        if self.value(MERGES)? >= 1.0 {
            return Ok(());
        }
        Err(format!("no merge of {} finished at {}", self.system, self.at))
    }

    /// A worst case, if it is more than an idle thread met in the same runs.
    ///
    /// # Errors
    /// When it is not, or was not measured: then there is no effect that a ratio could show.
    pub fn above_control(&self, metric: &str) -> Result<f64, String> {
        let (value, control) = (self.value(metric)?, self.value(CONTROL)?);
        if value > CONTROL_FACTOR * control {
            return Ok(value);
        }
        let (system, at) = (&self.system, self.at);
        Err(format!("{metric} at {at}: {system} has {value:.0}, no more than an idle thread"))
    }

    /// A worst case of runs that saw a merge, if it is more than an idle thread met.
    ///
    /// # Errors
    /// When no merge finished, and those of [`above_control`](Self::above_control).
    pub fn waits_for_merges(&self, metric: &str) -> Result<f64, String> {
        self.saw_a_merge()?;
        self.above_control(metric)
    }

    /// A metric's median.
    ///
    /// # Errors
    /// When it was not measured.
    pub fn value(&self, metric: &str) -> Result<f64, String> {
        let found = self.metrics.get(metric).copied();
        found.ok_or_else(|| format!("{metric} of {} at {} was not measured", self.system, self.at))
    }
}

/// Whether a worst case of one system is at most `share` of another's. A worst case that is no
/// more than what an idle thread met is excused; the other's must be more than that, or there is
/// nothing to see.
///
/// # Errors
/// The difference, in a line.
pub fn worst_is_at_most(share: f64, of: &Point, than: &Point, metric: &str) -> Result<(), String> {
    of.saw_a_merge()?;
    let (ours, theirs) = (of.value(metric)?, than.waits_for_merges(metric)?);
    let excuse = CONTROL_FACTOR * of.value(CONTROL)?;
    let place = format!("{metric} at {}", of.at);
    let (system, other) = (&of.system, &than.system);
    if ours <= (share * theirs).max(excuse) {
        return Ok(());
    }
    let found = ours / theirs;
    Err(format!("{place}: {system} has {ours:.0}, {found:.2} of {other}, and not {share:.2}"))
}

fn short(run: &Metrics) -> Metrics {
    let finite = run.iter().filter(|(_, value)| value.is_finite());
    finite.map(|(name, value)| (name.clone(), rounded(*value))).collect()
}

/// Five digits that count: more would be noise.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(4 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_digits_stay() {
        let found = [123_456.7, 0.001_234_567, 0.0].map(rounded);
        assert_eq!(found, [123_460.0, 0.001_234_6, 0.0]);
        let run = Metrics::from([("ratio".to_owned(), f64::INFINITY), ("rate".to_owned(), 1.0)]);
        assert_eq!(short(&run), Metrics::from([("rate".to_owned(), 1.0)]));
    }

    #[test]
    fn a_series_is_read_from_its_findings() {
        let mut series = Series::default();
        for (worst, at) in [(1.0, 0.0), (9.0, 0.5), (2.0, 0.5)] {
            series.add("FC", at, Metrics::from([("max_us".to_owned(), worst)]));
            series.add_total("FC", Metrics::from([("all".to_owned(), 10.0 * worst)]));
        }
        let mut findings = Findings::default();
        series.record(&mut findings);
        assert_eq!(findings.measured.len(), 3);
        assert_eq!(Series::from(&findings), series);
    }

    fn point(system: &str, worst: f64, control: f64) -> Point {
        let mut series = Series::default();
        let metrics = [("max_us", worst), (CONTROL, control), (MERGES, 1.0)];
        let named = metrics.map(|(name, value)| (name.to_owned(), value));
        series.add(system, 0.5, Metrics::from(named));
        series.points.remove(0)
    }

    #[test]
    fn a_point_has_the_medians_of_its_runs() {
        let mut series = Series::default();
        for worst in [1.0, 9.0, 2.0] {
            series.add("FC", 0.0, Metrics::from([("max_us".to_owned(), worst)]));
            series.add_total("FC", Metrics::from([("all".to_owned(), 10.0 * worst)]));
        }
        series.add("DS", 0.0, Metrics::new());
        assert_eq!(series.value("FC", 0.0, "max_us"), Ok(2.0));
        assert_eq!(series.total("FC", "all"), Ok(20.0));
        assert_eq!((series.points.len(), series.places("FC")), (2, vec![0.0]));
        assert!(series.value("DS", 0.0, "max_us").is_err());
        assert!(series.value("FC", 1.0, "max_us").is_err());
    }

    #[test]
    fn a_worst_case_is_excused_by_the_machine_and_needs_something_to_compare_with() {
        let judge = |ours: f64, theirs: f64, control: f64| {
            let (ours, theirs) = (point("FC", ours, control), point("XM", theirs, control));
            worst_is_at_most(0.25, &ours, &theirs, "max_us")
        };
        assert!(judge(25.0, 100.0, 1.0).is_ok());
        assert!(judge(26.0, 100.0, 1.0).unwrap_err().contains("0.26 of XM"));
        assert!(judge(30.0, 100.0, 20.0).is_ok());
        assert!(judge(1.0, 30.0, 20.0).unwrap_err().contains("idle"));
        let slow = point("XM", 16.0, 10.0);
        assert_eq!(slow.above_control("max_us"), Ok(16.0));
        assert!(point("XM", 15.0, 10.0).above_control("max_us").is_err());
        assert!(slow.above_control("min_us").is_err());
        let mut idle = point("FC", 1.0, 1.0);
        assert!(idle.waits_for_merges("max_us").is_err());
        idle.metrics.insert(MERGES.to_owned(), 0.0);
        let found = worst_is_at_most(0.25, &idle, &point("XM", 100.0, 1.0), "max_us");
        assert!(found.unwrap_err().contains("no merge of FC"));
    }
}
