//! `pharos bench broadcast`: one topic, N consumers, everything to everyone.
//!
//! The parent looks up the topic, starts the consumer processes ([`worker`]), waits until all are subscribed, publishes
//! from a thread ([`publisher`]), waits until every process says it has everything, and adds up ([`outcome`]).

mod burst;
mod load_consumer;
mod outcome;
mod plan;
mod publisher;
mod tally;
pub(crate) mod worker;

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::access::Access;
use crate::args::{BroadcastArgs, Output};
use crate::clock;
use crate::fleet::{CONNECTIONS_PER_PROCESS, Fleet, Said, shares};
use crate::progress::Progress;
use crate::proto::payload::STAMP_BYTES;
use crate::session::{self, Session};
use crate::target::Target;

use outcome::{Facts, Outcome};
pub(crate) use plan::Mode;
use plan::{Order, ReadyReport, Report, WorkerPlan, WorkerResult};
use publisher::{Published, PublisherPlan};

/// Interval at which the parent checks its processes while it waits.
const LOOK: Duration = Duration::from_millis(100);
/// More connections than this from one address would use up the system's ports.
const CONNECTIONS_PER_ADDRESS: u32 = 20_000;

/// Runs the benchmark; success means that nothing was lost, doubled or out of order.
pub(crate) fn run(args: &BroadcastArgs, stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    validate(args)?;
    let mut progress = Progress::new();
    let target = Target::open(&args.target, stop)?;
    let outcome = measure(args, &target, stop, &mut progress);
    progress.clear();
    if target.is_own() {
        progress.say("stopping the broker");
    }
    drop(target);
    let (outcome, latencies) = outcome?;
    if let Some(path) = &args.hgrm {
        let mut file =
            std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        crate::hgrm::write(&latencies, &mut file)?;
    }
    match args.output {
        Output::Json => crate::output::print(&serde_json::to_string_pretty(&outcome)?)?,
        Output::Text => crate::output::print(&outcome.to_text())?,
    }
    Ok(if outcome.passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn validate(args: &BroadcastArgs) -> anyhow::Result<()> {
    ensure!(
        args.slow_consumers < args.consumers,
        "--slow-consumers must leave at least one consumer"
    );
    ensure!(
        args.connections > 0 && args.messages > 0,
        "--connections and --messages must be positive"
    );
    ensure!(args.rate > 0.0, "--rate must be positive");
    ensure!(args.receiver_queue > 0, "--receiver-queue must be positive");
    ensure!(
        args.size >= STAMP_BYTES as u64,
        "--size must be at least {STAMP_BYTES} bytes"
    );
    Ok(())
}

fn measure(
    args: &BroadcastArgs,
    target: &Target,
    stop: &Arc<AtomicBool>,
    progress: &mut Progress,
) -> anyhow::Result<(Outcome, crate::histogram::Latencies)> {
    let topic = args
        .topic
        .clone()
        .unwrap_or_else(|| format!("bench-{:x}", clock::realtime_ns() / 1_000_000));
    let topic = session::full_topic(&topic);
    let access = &target.access;
    let partitions = Session::open(session::resolve(&target.url)?, access)?.partitions(&topic)?;
    ensure!(
        partitions == 0,
        "{topic} is partitioned; broadcast measures one topic"
    );
    let broker = session::find_broker(&target.url, &topic, access)?;

    let started = target.sample();
    let carriers = args.carriers.iter().map(|url| session::resolve(url));
    let brokers: Vec<std::net::SocketAddr> = [Ok(broker)]
        .into_iter()
        .chain(carriers)
        .collect::<Result<_, _>>()?;
    let plans = plans(args, &brokers, access, &topic);
    let mut run = Run {
        fleet: Fleet::start("__worker", &plans)?,
        plans,
        stop,
        progress,
        delivered: Vec::new(),
    };
    run.delivered = vec![0; run.fleet.len()];
    let ready = run.await_ready()?;
    run.pause(args.settle)?;
    let idle = target.sample();

    let total = args.warmup_messages + args.messages;
    let published = run.publish(PublisherPlan {
        broker,
        access: access.clone(),
        topic: topic.clone(),
        size: args.size as usize,
        total,
        rate: args.rate,
        reconnect: args.reconnect,
        patience_ns: args.drain.as_nanos() as u64,
    })?;
    let results = run.finish(total)?;
    let end = target.sample();
    let stages = target.stages();
    let facts = Facts {
        ready,
        results,
        published,
        started,
        idle,
        end,
        stages,
    };
    Outcome::new(args, topic, facts)
}

/// Returns one plan per process: the measured consumers in equal shares, then a process for the slow ones.
fn plans(
    args: &BroadcastArgs,
    brokers: &[std::net::SocketAddr],
    access: &Access,
    topic: &str,
) -> Vec<WorkerPlan> {
    let slots = brokers.len().max(1);
    let broker_of = |number: usize| (brokers[number % slots], (number % slots) as u32);
    let (broker, _) = broker_of(0);
    let measured = args.consumers - args.slow_consumers;
    let connections = args.connections.min(measured);
    let needed = connections.div_ceil(CONNECTIONS_PER_PROCESS);
    let needed = needed.max(slots as u32);
    let processes = args.processes.unwrap_or(2).max(needed).min(connections);
    let slow_connections = slow_connections(args);
    let all_connections = connections + slow_connections;
    let spread = broker.ip().is_loopback() && all_connections > CONNECTIONS_PER_ADDRESS;
    let all_processes = processes + u32::from(slow_connections > 0);
    let common = WorkerPlan {
        broker,
        slot: (0, slots as u32),
        source: None,
        access: access.clone(),
        topic: topic.to_owned(),
        subscription: args.subscription.clone(),
        mode: args.mode,
        subscription_type: args.subscription_type,
        first_consumer: 0,
        consumers: 0,
        connections: 0,
        connect_parallel: (args.connect_parallel / all_processes).max(1),
        subscribe_in_flight: args.subscribe_in_flight.max(1),
        ack: args.ack,
        receiver_queue: args.receiver_queue,
        warmup_messages: args.warmup_messages,
        messages: args.messages,
        verify_checksum: !args.skip_checksums,
        reconnect: args.reconnect,
        slow: false,
        read_bytes: (args.read_bytes as u32).max(4096),
        rcvbuf: args.rcvbuf as u32,
        ack_group_ms: args.ack_group_ms,
        epoch_ns: clock::monotonic_ns(),
        connect_timeout_ms: args.connect_timeout.as_millis() as u64,
        drain_ms: args.drain.as_millis() as u64,
    };
    let shares = shares(measured, processes)
        .into_iter()
        .zip(self::shares(connections, processes));
    let mut plans: Vec<WorkerPlan> = shares
        .enumerate()
        .map(|(number, ((first, consumers), (_, connections)))| WorkerPlan {
            broker: broker_of(number).0,
            slot: (broker_of(number).1, slots as u32),
            source: spread.then(|| IpAddr::V4(Ipv4Addr::new(127, 0, 1, number as u8 + 1))),
            first_consumer: first,
            consumers,
            connections,
            ..common.clone()
        })
        .collect();
    if slow_connections > 0 {
        plans.push(WorkerPlan {
            source: spread.then_some(IpAddr::V4(Ipv4Addr::new(127, 0, 1, 200))),
            first_consumer: measured,
            consumers: args.slow_consumers,
            connections: slow_connections,
            slow: true,
            ..common
        });
    }
    plans
}

/// Slow consumers share connections as densely as the others do.
fn slow_connections(args: &BroadcastArgs) -> u32 {
    let share = u64::from(args.slow_consumers) * u64::from(args.connections);
    (share.div_ceil(u64::from(args.consumers)) as u32).min(args.slow_consumers)
}

/// The parent's view of a run under way.
struct Run<'a> {
    fleet: Fleet<Report>,
    plans: Vec<WorkerPlan>,
    stop: &'a Arc<AtomicBool>,
    progress: &'a mut Progress,
    delivered: Vec<u64>,
}

impl Run<'_> {
    /// Takes one report if there is one soon; progress is noted, bad news ends the run.
    fn hear(&mut self) -> anyhow::Result<Option<(usize, Report)>> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        match self.fleet.hear(LOOK) {
            None => Ok(None),
            Some((number, Said::Report(Report::Failed { message }))) => {
                bail!("consumer process {number}: {message}")
            }
            Some((number, Said::Report(report))) => {
                if let Report::Progress { delivered, .. } = report {
                    self.delivered[number] = delivered;
                }
                Ok(Some((number, report)))
            }
            // A process of slow consumers is expected to be thrown out.
            Some((number, Said::Gone)) if self.plans[number].slow => Ok(None),
            Some((number, Said::Gone)) => bail!("consumer process {number} ended unexpectedly"),
            Some((number, Said::Garbled(line))) => bail!("consumer process {number} said `{line}`"),
        }
    }

    fn await_ready(&mut self) -> anyhow::Result<Vec<ReadyReport>> {
        let consumers: u64 = self.plans.iter().map(|plan| u64::from(plan.consumers)).sum();
        let mut subscribed = vec![0u64; self.fleet.len()];
        let mut ready: Vec<Option<ReadyReport>> = vec![None; self.fleet.len()];
        while ready.iter().any(Option::is_none) {
            match self.hear()? {
                Some((number, Report::Progress { subscribed: now, .. })) => {
                    subscribed[number] = u64::from(now)
                }
                Some((number, Report::Ready(report))) => {
                    subscribed[number] = u64::from(self.plans[number].consumers);
                    ready[number] = Some(report);
                }
                _ => {}
            }
            self.progress
                .bar("subscribing", subscribed.iter().sum(), consumers);
        }
        Ok(ready.into_iter().flatten().collect())
    }

    /// Lets time pass, but not bad news.
    fn pause(&mut self, length: Duration) -> anyhow::Result<()> {
        let end = clock::monotonic_ns() + length.as_nanos() as u64;
        while clock::monotonic_ns() < end {
            self.hear()?;
        }
        Ok(())
    }

    fn publish(&mut self, plan: PublisherPlan) -> anyhow::Result<Published> {
        let total = plan.total;
        let sent = Arc::new(AtomicU32::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = publisher::spawn(plan, Arc::clone(&sent), Arc::clone(&stop))?;
        while !thread.is_finished() {
            if let Err(error) = self.hear() {
                stop.store(true, Ordering::Relaxed);
                // The consumers' trouble is the news, not the publisher's.
                let _ = join(thread);
                return Err(error);
            }
            self.show(sent.load(Ordering::Relaxed), total);
        }
        join(thread)
    }

    fn show(&mut self, sent: u32, total: u32) {
        let measured = self.plans.iter().filter(|plan| !plan.slow);
        let consumers: u64 = measured.map(|plan| u64::from(plan.consumers)).sum();
        let what = format!("sent {sent}/{total}, delivered");
        self.progress
            .bar(&what, self.delivered.iter().sum(), u64::from(total) * consumers);
    }

    fn finish(&mut self, total: u32) -> anyhow::Result<Vec<WorkerResult>> {
        for number in 0..self.fleet.len() {
            if !self.plans[number].slow {
                self.fleet.tell(number, &Order::Finish { total })?;
            }
        }
        let mut results: Vec<Option<WorkerResult>> = vec![None; self.fleet.len()];
        while results
            .iter()
            .zip(&self.plans)
            .any(|(result, plan)| result.is_none() && !plan.slow)
        {
            if let Some((number, Report::Done(result))) = self.hear()? {
                results[number] = Some(*result);
            }
            self.show(total, total);
        }
        Ok(results.into_iter().flatten().collect())
    }
}

fn join(thread: JoinHandle<anyhow::Result<Published>>) -> anyhow::Result<Published> {
    thread
        .join()
        .map_err(|_| anyhow::anyhow!("the publisher's thread panicked"))?
}
