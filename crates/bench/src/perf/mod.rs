//! `pharos bench produce`, `consume` and `e2e`: throughput and latency of ordinary topics.
//!
//! Load threads ([`publish`], [`receive`]; in the Pulsar protocol [`producer`], [`consumer`]) count and tell once a second; the parent ([`load_threads`]) prints, adds up and decides
//! when to stop. Latency is taken from when a message was due ([`pacing`]), so a stalled broker cannot hide its stall.
//! `pharos bench scenario` uses the same threads and sums.

pub(crate) mod batch;
pub(crate) mod consumer;
pub(crate) mod html;
pub(crate) mod link;
pub(crate) mod load_threads;
mod order;
mod pacing;
pub(crate) mod producer;
pub(crate) mod publish;
pub(crate) mod receive;
pub(crate) mod slice;
pub(crate) mod summary;
mod workload;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;

use crate::args::{ConsumeArgs, E2eArgs, LoadArgs, Output, ProduceArgs, PublishArgs, ReceiveArgs};
use crate::clock;
use crate::target::Target;

use load_threads::{LoadThreads, Look, Watch};
use slice::Side;
use summary::Summary;
use workload::Workload;

/// `pharos bench produce`.
pub(crate) fn produce(args: &ProduceArgs, stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    run(&args.load, Some(&args.publish), None, stop)
}

/// `pharos bench consume`.
pub(crate) fn consume(args: &ConsumeArgs, stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    run(&args.load, None, Some(&args.receive), stop)
}

/// `pharos bench e2e`.
pub(crate) fn e2e(args: &E2eArgs, stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    run(&args.load, Some(&args.publish), Some(&args.receive), stop)
}

fn run(
    load: &LoadArgs,
    publish: Option<&PublishArgs>,
    receive: Option<&ReceiveArgs>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let target = Target::open(&load.target, stop)?;
    let workload = Workload::new(load, publish, receive, &target)?;
    let summary = measure(load, &workload, &target, stop);
    drop(target);
    let summary = summary?;
    write_files(load, &summary)?;
    match load.output {
        Output::Json => crate::output::print(&serde_json::to_string_pretty(&summary.to_json())?)?,
        Output::Text => crate::output::print(&summary.to_text())?,
    }
    let failed = summary.lost > 0 || summary.out_of_order > 0 || summary.damaged > 0;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn write_files(load: &LoadArgs, summary: &Summary) -> anyhow::Result<()> {
    let create = |path: &std::path::Path| {
        std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &load.hgrm {
        if summary.publish.messages > 0 {
            crate::hgrm::write(&summary.publish.latencies, &mut create(path)?)?;
        }
        if summary.receive.messages > 0 {
            let mut name = path.clone().into_os_string();
            name.push(".e2e");
            crate::hgrm::write(&summary.receive.latencies, &mut create(name.as_ref())?)?;
        }
    }
    if let Some(path) = &load.html {
        std::io::Write::write_all(&mut create(path)?, html::page(summary).as_bytes())?;
    }
    Ok(())
}

fn measure(
    load: &LoadArgs,
    workload: &Workload,
    target: &Target,
    stop: &AtomicBool,
) -> anyhow::Result<Summary> {
    let mut threads = LoadThreads::new(stop, workload.subscriptions as f64);
    // Consumers first, so that they are there when the first message is.
    for plan in &workload.receivers {
        threads.receive(Side::Receive, plan.clone())?;
    }
    threads.await_ready()?;
    for plan in &workload.publishers {
        threads.publish(plan.clone())?;
    }
    threads.await_ready()?;
    threads.begin();
    let warmup = Watch {
        what: "warming up, s",
        length: load.warmup,
        lines: Some(load.interval),
        rows: None,
        look: &Look::default,
    };
    threads.watch(warmup, |_| false)?;
    let mut summary = Summary {
        title: workload.title.clone(),
        workload: workload.facts.clone(),
        ..Summary::default()
    };
    threads.next_part();
    let before = (target.sample(), clock::process_cpu_ns());
    let measured = Watch {
        what: "measuring, s",
        length: load.duration,
        lines: Some(load.interval),
        rows: Some(&mut summary.rows),
        look: &Look::default,
    };
    summary.seconds = threads.watch(measured, |_| false)?;
    let after = (target.sample(), clock::process_cpu_ns());
    threads.next_part();
    summary.take_samples(before, after);
    threads.end_publishing()?;
    let expected = threads.sent.values().sum::<u64>() * workload.subscriptions;
    if workload.is_e2e() {
        threads.drain(Side::Receive, expected)?;
    }
    threads.finish()?;
    summary.take_counts(&threads.part(1));
    if workload.is_e2e() {
        summary.lost = expected.saturating_sub(threads.all().unique(Side::Receive));
    }
    let received = threads.all().of(Side::Receive);
    summary.out_of_order =
        received.out_of_order + received.duplicates + u64::try_from(received.gaps).unwrap_or(0);
    summary.damaged = received.damaged;
    Ok(summary)
}
