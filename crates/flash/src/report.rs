//! What a simulation says: one structure, and its JSON.
//!
//! The JSON depends on the settings alone, byte for byte: how long the simulation took is not in
//! it.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::ftl::{Ftl, Wear};
use crate::nand::{Cause, Counters, Geometry, Latencies, Operations};
use crate::run::spec::{Input, Spec};
use crate::run::{Outcome, Pace, WarmUp};

/// The version of the JSON. It grows when a field changes its meaning or goes away.
pub const VERSION: u32 = 1;

/// The percentiles of a latency, and their names in JSON.
pub const PERCENTILES: [(&str, f64); 6] = [
    ("p50", 50.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99_9", 99.9),
    ("p99_99", 99.99),
];

/// A finished simulation.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its settings.
    pub spec: Spec,
    /// The sizes of the device.
    pub geometry: Geometry,
    /// Logical pages.
    pub logical_pages: u32,
    /// Streams of the layer, each with an open block in each die.
    pub streams: u32,
    /// What was counted, without the warm-up.
    pub outcome: Outcome,
    /// The erase counts of all blocks, of the warm-up too.
    pub wear: Wear,
    /// The memory of the layer and the simulator, in bytes.
    pub ram_bytes: u64,
    /// How long the simulation took, its warm-up included.
    pub wall: Duration,
}

impl Report {
    pub(crate) fn new(
        spec: &Spec,
        layer: &(impl Ftl + ?Sized),
        outcome: Outcome,
        wall: Duration,
    ) -> Self {
        Self {
            spec: spec.clone(),
            geometry: *layer.geometry(),
            logical_pages: layer.logical_pages(),
            streams: layer.streams(),
            outcome,
            wear: layer.wear(),
            ram_bytes: layer.ram_bytes(),
            wall,
        }
    }

    /// Pages programmed for each page that the host wrote; none where it wrote none.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.outcome.nand.total().programs, self.outcome.host.pages_written)
    }

    /// Bytes programmed for each byte that the host wrote, which counts partial pages as what they
    /// are; none where it wrote none.
    #[must_use]
    pub fn byte_write_amplification(&self) -> Option<f64> {
        let programmed = self.outcome.nand.total().programs as f64;
        let bytes = programmed * f64::from(self.geometry.page_size());
        let written = self.outcome.host.bytes_written;
        (written > 0).then(|| bytes / written as f64)
    }

    /// The bytes that the host can use.
    #[must_use]
    pub fn logical_bytes(&self) -> u64 {
        u64::from(self.logical_pages) * u64::from(self.geometry.page_size())
    }

    /// Requests a second of simulated time; none without a clock.
    #[must_use]
    pub fn requests_per_second(&self) -> Option<f64> {
        let ns = self.outcome.simulated_ns;
        (ns > 0).then(|| self.outcome.host.requests() as f64 * 1e9 / ns as f64)
    }

    /// The report as JSON. Fields that do not apply are null.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "device": self.device_json(),
            "run": self.run_json(),
            "host": self.host_json(),
            "nand": nand_json(&self.outcome.nand),
            "write_amplification": self.write_amplification(),
            "byte_write_amplification": self.byte_write_amplification(),
            "wear": {
                "erases_min": self.wear.min,
                "erases_mean": self.wear.mean,
                "erases_max": self.wear.max,
                "spread": self.wear.spread,
                "endurance": self.spec.preset.timing.endurance,
            },
            "latency_ns": self.outcome.latencies.as_ref().map(|latencies| {
                latencies.all().into_iter().map(|(name, of)| (name.to_owned(), latency_json(of)))
                    .collect::<Map<_, _>>()
            }),
            "simulated_ns": self.outcome.latencies.is_some().then_some(self.outcome.simulated_ns),
            "requests_per_second": self.requests_per_second(),
            "ram_bytes": self.ram_bytes,
        })
    }

    fn device_json(&self) -> Value {
        let sizes = self.geometry.sizes();
        json!({
            "preset": self.spec.preset.name,
            "channels": sizes.channels,
            "dies_per_channel": sizes.dies_per_channel,
            "planes_per_die": sizes.planes_per_die,
            "blocks_per_plane": sizes.blocks_per_plane,
            "pages_per_block": sizes.pages_per_block,
            "page_bytes": sizes.page_size,
            "bytes": self.geometry.bytes(),
            "logical_pages": self.logical_pages,
            "logical_bytes": self.logical_bytes(),
        })
    }

    fn run_json(&self) -> Value {
        let spec = &self.spec;
        let (trace, workload) = match &spec.input {
            Input::Trace(source) => (Some(source.to_string()), None),
            Input::Workload(workload) => (None, Some(workload.to_string())),
            Input::Requests => (None, None),
        };
        json!({
            "ftl": spec.layer.name,
            "gc": spec.policy.to_string(),
            "op_percent": f64::from(spec.op_permille) / 10.0,
            "placement": spec.placement.to_string(),
            "streams": self.streams,
            "trace": trace,
            "request_pages": workload.is_some().then_some(spec.request_pages),
            "workload": workload,
            "warm_up_overwrites": match spec.warm_up {
                WarmUp::Fresh => None,
                WarmUp::Overwritten(times) => Some(times),
            },
            "queue_depth": match spec.pace {
                Pace::QueueDepth(depth) => Some(depth),
                _ => None,
            },
            "timed": spec.pace == Pace::Recorded,
            "wrap": spec.wraps,
            "seed": spec.seed,
        })
    }

    fn host_json(&self) -> Value {
        let host = &self.outcome.host;
        json!({
            "requests": host.requests(),
            "read_requests": host.read_requests,
            "write_requests": host.write_requests,
            "trim_requests": host.trim_requests,
            "flushes": host.flushes,
            "bytes_read": host.bytes_read,
            "bytes_written": host.bytes_written,
            "bytes_trimmed": host.bytes_trimmed,
            "pages_read": host.pages_read,
            "pages_written": host.pages_written,
            "pages_trimmed": host.pages_trimmed,
            "unmapped_pages_read": host.unmapped_pages_read,
            "partial_pages_written": host.partial_pages_written,
        })
    }
}

/// The causes of operations that a report shows; a simulation has no recovery.
pub fn causes() -> impl Iterator<Item = Cause> {
    Cause::ALL.into_iter().filter(|cause| *cause != Cause::Recovery)
}

fn nand_json(counters: &Counters) -> Value {
    let by = |count: fn(&Operations) -> u64| {
        let causes = causes().map(|cause| (cause.name(), count(&counters.of(cause))));
        let all = causes.chain([("total", count(&counters.total()))]);
        all.map(|(name, count)| (name.to_owned(), json!(count))).collect::<Map<_, _>>()
    };
    json!({
        "reads": by(|of| of.reads),
        "programs": by(|of| of.programs),
        "erases": by(|of| of.erases),
    })
}

fn latency_json(latencies: &Latencies) -> Value {
    if latencies.count() == 0 {
        return Value::Null;
    }
    let mut fields = Map::new();
    fields.insert("count".to_owned(), json!(latencies.count()));
    fields.insert("mean".to_owned(), json!(latencies.mean_ns()));
    for (name, percent) in PERCENTILES {
        fields.insert(name.to_owned(), json!(latencies.percentile_ns(percent)));
    }
    fields.insert("max".to_owned(), json!(latencies.max_ns()));
    Value::Object(fields)
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
