//! The figures that are compared.

use anyhow::Context as _;

use crate::outcome::LoadResult;

/// Measured figure.
#[derive(Debug)]
pub(crate) struct Figure {
    /// As workload files spell it.
    pub(crate) name: &'static str,
    /// As the page spells it.
    pub(crate) words: &'static str,
    /// True if more is better.
    pub(crate) more_is_better: bool,
    /// Value of the figure in a run.
    pub(crate) of: fn(&LoadResult) -> Option<f64>,
}

const fn more(name: &'static str, words: &'static str, of: fn(&LoadResult) -> Option<f64>) -> Figure {
    Figure {
        name,
        words,
        more_is_better: true,
        of,
    }
}

const fn less(name: &'static str, words: &'static str, of: fn(&LoadResult) -> Option<f64>) -> Figure {
    Figure {
        name,
        words,
        more_is_better: false,
        of,
    }
}

/// All figures.
pub(crate) const FIGURES: [Figure; 23] = [
    more("publish_msg_s", "published, messages/s", |it| {
        Some(it.publish_msg_s)
    }),
    more("consume_msg_s", "received, messages/s", |it| {
        Some(it.consume_msg_s)
    }),
    more("publish_mb_s", "published, MB/s", |it| Some(it.publish_mb_s)),
    less("publish_p50_ms", "publish p50, ms", |it| it.publish.at(50.0)),
    less("publish_p99_ms", "publish p99, ms", |it| it.publish.at(99.0)),
    less("publish_p999_ms", "publish p99.9, ms", |it| it.publish.at(99.9)),
    less("publish_max_ms", "publish max, ms", |it| it.publish.at(100.0)),
    less("e2e_p50_ms", "end-to-end p50, ms", |it| it.e2e.at(50.0)),
    less("e2e_p99_ms", "end-to-end p99, ms", |it| it.e2e.at(99.0)),
    less("e2e_p999_ms", "end-to-end p99.9, ms", |it| it.e2e.at(99.9)),
    less("e2e_max_ms", "end-to-end max, ms", |it| it.e2e.at(100.0)),
    less("attach_s", "attaching all consumers, s", |it| Some(it.attach_s)),
    more("backlog_mb_s", "backlog read, MB/s", |it| it.backlog_mb_s),
    less(
        "minute_p99_ms",
        "publish p99 of the worst minute, ms",
        LoadResult::worst_minute,
    ),
    less("broker_cpu_us", "broker CPU per message in and out, µs", |it| {
        it.broker_cpu_us()
    }),
    less("client_cpu_us", "load's CPU per message in and out, µs", |it| {
        it.client_cpu_us()
    }),
    less("attach_p99_ms", "until a consumer was attached, p99, ms", |it| {
        it.attach.at(99.0)
    }),
    less("rss_mb", "broker memory at the end, MB", |it| it.rss_mb),
    less("disk_mb", "disk in use at the end, MB", |it| it.disk_mb),
    less("start_s", "start, s", |it| it.start_s),
    less("idle_rss_mb", "memory when idle, MB", |it| it.idle_rss_mb),
    less("idle_cpu_ms_s", "CPU when idle, ms/s", |it| it.idle_cpu_ms_s),
    less("install_mb", "installed, MB", |it| it.install_mb),
];

/// The figure of that name.
pub(crate) fn find(name: &str) -> anyhow::Result<&'static Figure> {
    let found = FIGURES.iter().find(|figure| figure.name == name);
    found.with_context(|| format!("there is no figure `{name}`"))
}
