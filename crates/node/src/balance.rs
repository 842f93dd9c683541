//! Load of this broker: reports to other brokers, bundles unloaded when it is overloaded, and bundles split.

use std::time::Duration;

use pharos_broker_admin::Resources;
use pharos_broker_admin::{MetricFamily, MetricKind};
use pharos_cluster::{Balancer, BrokerAddresses, LoadReport, ResourceUsage};
use pharos_runtime::clock;
use rustix::time::{ClockId, clock_gettime};

use crate::settings::LoadBalancerSettings;
use crate::storage_metrics::family;

/// Looks at the load again and again, tells others of it, cuts bundles and gives them away. Never ends.
pub(crate) async fn run(
    balancer: Balancer,
    admin: Resources,
    addresses: BrokerAddresses,
    settings: LoadBalancerSettings,
) {
    let mut cpu = Cpu::default();
    let (mut shed_at, mut split_at) = (clock::now(), clock::now());
    let is_due = |last: clock::Nanos, interval| Duration::from_nanos(clock::now().since(last)) >= interval;
    loop {
        tokio::time::sleep(settings.report_min_interval.max(Duration::from_millis(100))).await;
        let Ok(report) = report(&balancer, &admin, &addresses, cpu.look()).await else {
            // It is stopping.
            return;
        };
        balancer.tell(report, settings.report_max_interval).await;
        if !settings.enabled {
            continue;
        }
        if settings.auto_split_enabled && is_due(split_at, settings.split_interval) {
            split_at = clock::now();
            if admin
                .brokers
                .split_busy(&balancer, &settings.split())
                .await
                .is_err()
            {
                return;
            }
        }
        if settings.shedding_enabled && is_due(shed_at, settings.shedding_interval) {
            shed_at = clock::now();
            shed(&balancer, &admin, settings.shedding_grace_period).await;
        }
    }
}

/// Gives away what this broker has too much of.
async fn shed(balancer: &Balancer, admin: &Resources, grace: Duration) {
    let mut count = 0;
    for (bundle, to) in balancer.to_shed(grace) {
        match admin.brokers.hand_over(bundle.clone(), to.clone()).await {
            Ok(()) => {
                count += 1;
                tracing::info!(bundle, to, "a bundle goes to a broker with less load");
            }
            Err(error) => tracing::info!(bundle, to, %error, "a bundle stays"),
        }
    }
    balancer.note_shed(count);
}

/// Sends the load report of this broker. `Err`: it is stopping.
async fn report(
    balancer: &Balancer,
    admin: &Resources,
    addresses: &BrokerAddresses,
    cpu: ResourceUsage,
) -> Result<LoadReport, pharos_broker_admin::AdminError> {
    let mut report = LoadReport::idle(addresses);
    report.set_bundles(admin.brokers.bundle_loads().await?);
    report.bundles = balancer.bundles();
    report.num_bundles = u64::try_from(report.bundles.len()).unwrap_or(u64::MAX);
    report.cpu = cpu;
    report.memory = memory();
    report.last_update = clock::wall_ms();
    Ok(report)
}

/// Processor time of the process between two looks.
#[derive(Default)]
struct Cpu {
    before: Option<(clock::Nanos, u128)>,
}

impl Cpu {
    /// In percent of one processor, since the last look; of all that this process may use.
    fn look(&mut self) -> ResourceUsage {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let took = u128::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
            + u128::try_from(time.tv_nsec).unwrap_or(0);
        let now = clock::now();
        let before = self.before.replace((now, took));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let usage = before.map_or(0.0, |(at, was)| {
            let passed = now.since(at).max(1) as f64;
            took.saturating_sub(was) as f64 / passed * 100.0
        });
        ResourceUsage {
            usage,
            limit: processors as f64 * 100.0,
        }
    }
}

/// Resident memory, of the machine's, in MiB.
fn memory() -> ResourceUsage {
    const MIB: f64 = 1024.0 * 1024.0;
    let page = rustix::param::page_size() as f64;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    let info = rustix::system::sysinfo();
    ResourceUsage {
        usage: pages.unwrap_or(0.0) * page / MIB,
        limit: info.totalram as f64 * f64::from(info.mem_unit) / MIB,
    }
}

/// For the metrics page, under the names that dashboards of Pulsar know.
pub(crate) fn families(balancer: &Balancer) -> Vec<MetricFamily> {
    let report = balancer.own_report().unwrap_or_default();
    let percent = |usage: ResourceUsage| usage.percent().round().max(0.0) as u64;
    let gauge = |name, help, value| family(name, help, MetricKind::Gauge, value);
    vec![
        gauge(
            "pulsar_lb_cpu_usage",
            "Processors in use, percent.",
            percent(report.cpu),
        ),
        gauge(
            "pulsar_lb_memory_usage",
            "Memory in use, percent of the machine's.",
            percent(report.memory),
        ),
        gauge(
            "pulsar_lb_bandwidth_in_usage",
            "What clients publish, Kbit a second.",
            report.bandwidth_in.usage.round() as u64,
        ),
        gauge(
            "pulsar_lb_bandwidth_out_usage",
            "What clients are sent, Kbit a second.",
            report.bandwidth_out.usage.round() as u64,
        ),
        family(
            "pulsar_lb_unload_bundle_total",
            "Bundles that this broker gave to others because it was busier.",
            MetricKind::Counter,
            balancer.shed_count(),
        ),
        family(
            "pulsar_lb_unload_broker_total",
            "Times that this broker gave bundles to others because it was busier.",
            MetricKind::Counter,
            balancer.shed_round_count(),
        ),
        family(
            "pulsar_lb_bundles_split_total",
            "Bundles that this broker cut because they carried too much.",
            MetricKind::Counter,
            balancer.split_count(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_process_uses_is_seen() {
        let mut cpu = Cpu::default();
        assert_eq!(cpu.look().usage, 0.0);
        let mut sum = 0_u64;
        let used = loop {
            sum = (0..100_000_u64).fold(sum, |sum, number| sum.wrapping_mul(31).wrapping_add(number));
            let used = cpu.look();
            if used.usage > 0.0 {
                break used;
            }
        };
        assert!(used.limit >= 100.0, "{used:?} {sum}");
        let memory = memory();
        assert!(memory.usage > 1.0 && memory.usage < memory.limit, "{memory:?}");
    }
}
