//! How busy this broker is, told to the others; and what it gives to them when it is busier.

use std::collections::BTreeMap;
use std::time::Duration;

use pharos_broker_admin::Resources;
use pharos_broker_admin::{MetricFamily, MetricKind};
use pharos_cluster::{Balancer, BrokerAddresses, BundleLoad, LoadReport, ResourceUsage};
use pharos_runtime::clock;
use rustix::time::{ClockId, clock_gettime};

use crate::settings::LoadBalancerSettings;
use crate::storage_metrics::family;

/// Looks at the load again and again, tells others of it, and gives bundles away. Never ends.
pub(crate) async fn run(
    balancer: Balancer,
    admin: Resources,
    addresses: BrokerAddresses,
    settings: LoadBalancerSettings,
) {
    let mut cpu = Cpu::default();
    let mut shed_at = clock::now();
    loop {
        tokio::time::sleep(settings.report_min_interval.max(Duration::from_millis(100))).await;
        let Ok(report) = report(&balancer, &admin, &addresses, cpu.look()).await else {
            // It is stopping.
            return;
        };
        balancer.tell(report, settings.report_max_interval).await;
        let is_due = Duration::from_nanos(clock::now().since(shed_at)) >= settings.shedding_interval;
        if !is_due || !settings.enabled || !settings.shedding_enabled {
            continue;
        }
        shed_at = clock::now();
        for (bundle, to) in balancer.to_shed(settings.shedding_grace_period) {
            match admin.brokers.hand_over(bundle.clone(), to.clone()).await {
                Ok(()) => {
                    balancer.note_shed();
                    tracing::info!(bundle, to, "a bundle goes to a broker with less load");
                }
                Err(error) => tracing::info!(bundle, to, %error, "a bundle stays"),
            }
        }
    }
}

/// What this broker says of itself. `Err`: it is stopping.
async fn report(
    balancer: &Balancer,
    admin: &Resources,
    addresses: &BrokerAddresses,
    cpu: ResourceUsage,
) -> Result<LoadReport, pharos_broker_admin::AdminError> {
    let snapshot = admin.brokers.metrics().await?;
    let mut bundles: BTreeMap<String, BundleLoad> = BTreeMap::new();
    for topic in &snapshot.topics {
        let Some(bundle) = admin.catalog.bundle_of(&topic.topic) else {
            continue;
        };
        let stats = &topic.stats;
        let load = BundleLoad {
            msg_rate_in: stats.msg_rate_in,
            msg_throughput_in: stats.msg_throughput_in,
            msg_rate_out: stats.msg_rate_out,
            msg_throughput_out: stats.msg_throughput_out,
            consumer_count: stats.subscriptions.values().map(|it| it.consumer_count).sum(),
            producer_count: stats.publisher_count,
            topics: 1,
            cache_size: 0,
        };
        let name = format!("{}/{bundle}", topic.topic.namespace());
        bundles.entry(name).or_default().add(&load);
    }
    let mut report = LoadReport::idle(addresses);
    report.set_bundles(bundles);
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
