//! Space after a full merge, against the live data: of a store half of which was overwritten, so
//! that there is garbage to get rid of.

use esker_lab_measure::space::occupied_bytes;
use esker_lab_result::Metrics;
use esker_workload::uniform::Overwrite;

use crate::Result;
use crate::stores::rows::Run;

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let entries = run.sizes.entries;
    run.write_all(Overwrite::new(run.task.seed, entries), entries / 2)?;
    let before_bytes = occupied_bytes(&run.task.folder);
    run.store.compact()?;
    run.store.wait_idle()?;
    run.store.persist()?;
    let after_bytes = occupied_bytes(&run.task.folder);
    Ok(summary(before_bytes, after_bytes, run.sizes.live_bytes()))
}

fn summary(before_bytes: u64, after_bytes: u64, live_bytes: u64) -> Metrics {
    let over = |bytes: u64| bytes as f64 / live_bytes.max(1) as f64;
    Metrics::from([
        ("before_over_live".to_owned(), over(before_bytes)),
        ("after_over_live".to_owned(), over(after_bytes)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_a_multiple_of_the_data() {
        let metrics = summary(300, 108, 100);
        assert_eq!((metrics["before_over_live"], metrics["after_over_live"]), (3.0, 1.08));
    }
}
