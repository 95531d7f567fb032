//! Reports of simulations as text.

use esker_flash::nand::{Latencies, Operations};
use esker_flash::placement::Placement;
use esker_flash::report::{Report, causes};
use esker_flash::run::spec::{Input, Spec};
use esker_flash::run::{Pace, WarmUp};
use esker_terminal::table::Table;
use indicatif::{HumanBytes, HumanCount};

use super::sim::Run;
use super::sweep::Axis;

const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

/// The settings of the device's sizes.
const SIZES: [&str; 8] =
    ["preset", "channels", "dies", "planes", "blocks", "pages", "page-size", "capacity"];

/// Everything about one simulation.
pub(super) fn one(report: &Report) -> String {
    let mut text = heading(report, &[]);
    text.push_str("\n\n");
    text.push_str(&operations(report).to_string());
    let factor = |factor: Option<f64>| factor.map_or("none".to_owned(), |f| format!("{f:.3}"));
    text.push_str(&format!("\n\nwrite amplification  {}", factor(report.write_amplification())));
    if report.outcome.host.partial_pages_written > 0 {
        let bytes = factor(report.byte_write_amplification());
        let partial = HumanCount(report.outcome.host.partial_pages_written);
        text.push_str(&format!(
            "\nin bytes             {bytes}, for {partial} pages were written in part"
        ));
    }
    let wear = &report.wear;
    text.push_str(&format!(
        "\nerases of a block    {} to {}, {:.1} on average",
        wear.min, wear.max, wear.mean
    ));
    if let Some(latencies) = &report.outcome.latencies {
        let names = PERCENTILES.map(|(name, _)| name);
        let heading = [&["latency, µs", "requests", "mean"], &names[..], &["max"]].concat();
        let mut table = Table::new(&heading);
        for (kind, of) in latencies.all() {
            if of.count() > 0 {
                table.row(latency_row(kind, of));
            }
        }
        text.push_str(&format!("\n\n{table}"));
        if let Some(rate) = report.requests_per_second() {
            let seconds = report.outcome.simulated_ns as f64 / 1e9;
            text.push_str(&format!(
                "\n\nsimulated time       {seconds:.3} s, {} requests a second",
                HumanCount(rate as u64)
            ));
        }
    }
    text
}

/// The device and what runs on it, but for what a sweep varies.
pub(super) fn heading(report: &Report, axes: &[Axis]) -> String {
    let varies = |names: &[&str]| axes.iter().any(|axis| names.contains(&axis.name.as_str()));
    let mut lines = Vec::new();
    let is_fitted = report.spec.capacity_bytes.filter(|_| report.spec.sizes.blocks.is_none());
    if let Some(bytes) = is_fitted.filter(|_| !varies(&SIZES) && varies(&["op", "placement"])) {
        // The number of blocks follows from what varies.
        lines.push(format!("{}: {} usable", report.spec.preset.name, HumanBytes(bytes)));
    } else if !varies(&SIZES) {
        let usable = match varies(&["op", "ftl", "placement"]) {
            true => String::new(),
            false => format!(
                ", {} usable ({} % over-provisioning)",
                HumanBytes(report.logical_bytes()),
                f64::from(report.spec.op_permille) / 10.0
            ),
        };
        let s = report.geometry.sizes();
        lines.push(format!(
            "{}: {} channels x {} dies x {} planes x {} blocks x {} pages of {} = {}{usable}",
            report.spec.preset.name,
            s.channels,
            s.dies_per_channel,
            s.planes_per_die,
            s.blocks_per_plane,
            s.pages_per_block,
            HumanBytes(u64::from(s.page_size)),
            HumanBytes(report.geometry.bytes()),
        ));
    }
    lines.push(run_line(&report.spec, report, &varies));
    lines.join("\n")
}

fn run_line(spec: &Spec, report: &Report, varies: &dyn Fn(&[&str]) -> bool) -> String {
    let mut parts = Vec::new();
    if !varies(&["ftl"]) {
        parts.push(format!("layer {}", spec.layer.name));
    }
    if !varies(&["gc"]) {
        parts.push(format!("collection {}", spec.policy));
    }
    if !varies(&["placement"]) && spec.placement != Placement::None {
        parts.push(match report.streams {
            1 => format!("placement {} (this layer has one stream)", spec.placement),
            count => format!("placement {} ({count} streams)", spec.placement),
        });
    }
    if !varies(&["workload", "trace"]) {
        parts.push(match &spec.input {
            Input::Trace(source) => source.to_string(),
            Input::Workload(workload) => workload.to_string(),
            Input::Requests => "given requests".to_owned(),
        });
    }
    if axes_leave_requests(varies) {
        parts.push(format!("{} requests", HumanCount(report.outcome.host.requests())));
    }
    if !varies(&["warm-up", "fresh"]) {
        parts.push(match spec.warm_up {
            WarmUp::Fresh => "on an empty device".to_owned(),
            WarmUp::Overwritten(times) => format!("after filling and {times} overwrites"),
        });
    }
    match spec.pace {
        Pace::QueueDepth(depth) if !varies(&["qd"]) => parts.push(format!("queue depth {depth}")),
        Pace::Recorded if !varies(&["timed"]) => parts.push("at its recorded times".to_owned()),
        _ => {}
    }
    parts.join(", ")
}

/// Whether all runs of a sweep have as many requests.
fn axes_leave_requests(varies: &dyn Fn(&[&str]) -> bool) -> bool {
    !varies(&SIZES) && !varies(&["op", "ftl", "workload", "trace", "ops", "request-pages"])
}

/// A line for each run of a sweep that has a report.
pub(super) fn table(axes: &[Axis], runs: &[Run<'_>]) -> String {
    let reports = || runs.iter().filter_map(|run| Some((&run.point, run.done.as_ref().ok()?)));
    let is_timed = reports().any(|(_, report)| report.outcome.latencies.is_some());
    let mut heading: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
    heading.extend(["write amp.", "host pages", "programs", "erases", "wear"]);
    if is_timed {
        heading.extend(["read p50 µs", "read p99.9", "write p50", "write p99.9", "requests/s"]);
    }
    let mut table = Table::new(&heading);
    for (point, report) in reports() {
        let total = report.outcome.nand.total();
        let mut row: Vec<String> = point.iter().map(|(_, value)| (*value).to_owned()).collect();
        row.extend([
            report.write_amplification().map_or("-".to_owned(), |factor| format!("{factor:.3}")),
            HumanCount(report.outcome.host.pages_written).to_string(),
            HumanCount(total.programs).to_string(),
            HumanCount(total.erases).to_string(),
            format!("{}..{}", report.wear.min, report.wear.max),
        ]);
        if let Some(latencies) = &report.outcome.latencies {
            for of in [&latencies.read, &latencies.write] {
                row.extend([percentile(of, 50.0), percentile(of, 99.9)]);
            }
            let rate = report.requests_per_second();
            row.push(rate.map_or("-".to_owned(), |rate| HumanCount(rate as u64).to_string()));
        }
        table.row(row);
    }
    table.to_string()
}

/// How fast the simulation ran.
pub(super) fn wall(report: &Report) -> String {
    let pages = u64::from(report.logical_pages) as f64;
    let before = match report.spec.warm_up {
        WarmUp::Fresh => 0.0,
        WarmUp::Overwritten(times) => pages * (1.0 + times),
    };
    let all = before + report.outcome.host.pages_written as f64;
    let seconds = report.wall.as_secs_f64();
    format!(
        "simulated in {seconds:.2} s: {:.2} million pages of the host written a second, {} of \
         memory",
        all / seconds.max(1e-9) / 1e6,
        HumanBytes(report.ram_bytes)
    )
}

fn operations(report: &Report) -> Table {
    let names: Vec<&str> = causes().map(|cause| cause.name()).collect();
    let mut table = Table::new(&[&["flash pages"], &names[..], &["total"]].concat());
    let counters = &report.outcome.nand;
    let mut row = |name: &str, count: fn(&Operations) -> u64| {
        let of = causes().map(|cause| count(&counters.of(cause)));
        let all = of.chain([count(&counters.total())]);
        let cells = all.map(|count| HumanCount(count).to_string());
        table.row([name.to_owned()].into_iter().chain(cells));
    };
    row("read", |of| of.reads);
    row("programmed", |of| of.programs);
    row("blocks erased", |of| of.erases);
    table
}

fn latency_row(kind: &str, of: &Latencies) -> Vec<String> {
    let mut row = vec![kind.to_owned(), HumanCount(of.count()).to_string()];
    row.push(format!("{:.0}", of.mean_ns() / 1e3));
    row.extend(PERCENTILES.map(|(_, percent)| percentile(of, percent)));
    row.push(micros(of.max_ns()));
    row
}

fn percentile(of: &Latencies, percent: f64) -> String {
    if of.count() == 0 { "-".to_owned() } else { micros(of.percentile_ns(percent)) }
}

fn micros(ns: u64) -> String {
    HumanCount((ns + 500) / 1000).to_string()
}
