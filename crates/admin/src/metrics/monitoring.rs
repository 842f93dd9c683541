//! Answer of `pulsar-admin broker-stats monitoring-metrics`: numbers of each namespace with loaded topics, under
//! Pulsar's names.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use pharos_broker_admin::MetricsSnapshot;

/// Sums over the loaded topics of a namespace.
#[derive(Default)]
struct Sums {
    rate_in: f64,
    throughput_in: f64,
    rate_out: f64,
    throughput_out: f64,
    storage_bytes: u64,
    producers: u64,
    subscriptions: u64,
    consumers: u64,
    backlog: u64,
}

/// A list of `{metrics, dimensions}`, one for each namespace.
pub(super) fn of_namespaces(snapshot: &MetricsSnapshot) -> Vec<BTreeMap<String, Value>> {
    let mut namespaces: BTreeMap<String, Sums> = BTreeMap::new();
    for metrics in &snapshot.topics {
        let sums = namespaces
            .entry(metrics.topic.namespace().to_string())
            .or_default();
        let stats = &metrics.stats;
        sums.rate_in += stats.msg_rate_in;
        sums.throughput_in += stats.msg_throughput_in;
        sums.rate_out += stats.msg_rate_out;
        sums.throughput_out += stats.msg_throughput_out;
        sums.storage_bytes += stats.storage_size;
        sums.producers += stats.publisher_count;
        sums.subscriptions += stats.subscriptions.len() as u64;
        for subscription in stats.subscriptions.values() {
            sums.consumers += subscription.consumer_count;
            sums.backlog += subscription.msg_backlog;
        }
    }
    namespaces
        .iter()
        .map(|(namespace, sums)| {
            BTreeMap::from([
                ("metrics".to_owned(), sums.as_json()),
                ("dimensions".to_owned(), json!({ "namespace": namespace })),
            ])
        })
        .collect()
}

impl Sums {
    fn as_json(&self) -> Value {
        json!({
            "brk_in_rate": self.rate_in,
            "brk_in_tp_rate": self.throughput_in,
            "brk_out_rate": self.rate_out,
            "brk_out_tp_rate": self.throughput_out,
            "brk_storage_size": self.storage_bytes,
            "brk_no_of_producers": self.producers,
            "brk_no_of_subscriptions": self.subscriptions,
            "brk_no_of_consumers": self.consumers,
            "brk_msg_backlog": self.backlog,
        })
    }
}
