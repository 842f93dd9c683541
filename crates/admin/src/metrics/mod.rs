//! The metrics page, in the Prometheus text format 0.0.4.
//!
//! Names are Pulsar's where there is such a thing, so that stock dashboards work; what only Pharos has is
//! called `pharos_…`. Every broker sample carries `cluster`. Topics can be left out
//! ([`AdminOptions::topic_metrics`](crate::AdminOptions)), which keeps the page small on brokers with very many; their
//! sums per namespace are shown instead.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use pharos_admin_api::TopicStats;
use pharos_admin_api::routes::brokers as routes;
use pharos_broker_admin::{MetricKind, MetricSample, MetricsSnapshot};
use pharos_runtime::run_blocking;

use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::partitions::add_topic;
use crate::state::Admin;

mod broker;
mod classes;
mod monitoring;
mod page;
mod process;
mod topic;
mod web_socket;

use page::Page;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::METRICS, show),
        on(&routes::METRICS_DIRECTORY, show),
        on(&routes::MONITORING_METRICS, monitoring),
    ]
}

/// Numbers by namespace, as JSON.
async fn monitoring(State(admin): State<Admin>) -> ApiResult<Json<Vec<BTreeMap<String, Value>>>> {
    let snapshot = admin.brokers.metrics().await?;
    Ok(Json(monitoring::of_namespaces(&snapshot)))
}

async fn show(State(admin): State<Admin>, headers: HeaderMap) -> ApiResult<Response> {
    // With very many topics a page is long and takes a while: one at a time, and beside what others ask.
    let turn = admin.metrics_turn.clone().acquire_owned().await;
    let snapshot = admin.brokers.metrics().await?;
    let is_compressed = takes_gzip(&headers);
    let rendered = run_blocking(move || {
        let page = match is_compressed {
            true => Page::compressed(),
            false => Page::default(),
        };
        let (cluster, single_topics) = (&admin.options.cluster_name, admin.options.topic_metrics);
        let mut page = render(page, cluster, single_topics, &snapshot);
        if let Some(door) = &admin.options.web_socket {
            web_socket::write(&mut page, cluster, &door.counts());
        }
        let bytes = page.into_bytes();
        drop(turn);
        bytes
    });
    let failed = || ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be written");
    let bytes = rendered.await.and_then(Result::ok).ok_or_else(failed)?;
    let content_type = (CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    let vary = (VARY, "accept-encoding");
    Ok(match is_compressed {
        true => ([content_type, vary, (CONTENT_ENCODING, "gzip")], bytes).into_response(),
        false => ([content_type, vary], bytes).into_response(),
    })
}

/// True if the client accepts gzip: it names it, and not with a weight of zero.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let named = headers.get_all(ACCEPT_ENCODING).iter();
    named
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
            let weight = parts.find_map(|part| part.strip_prefix("q="));
            is_gzip
                && weight.is_none_or(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight > 0.0))
        })
}

fn render(mut page: Page, cluster: &str, single_topics: bool, snapshot: &MetricsSnapshot) -> Page {
    let namespaces = by_namespace(snapshot);
    if single_topics {
        let topics: Vec<topic::Row<'_>> = snapshot
            .topics
            .iter()
            .map(|metrics| topic::Row {
                labels: vec![
                    ("cluster", cluster.to_owned()),
                    ("namespace", metrics.topic.namespace().to_string()),
                    ("topic", metrics.topic.to_string()),
                ],
                stats: &metrics.stats,
            })
            .collect();
        topic::write(&mut page, &topics, topic::Grouping::BySubscription);
        topic::write_stages(&mut page, cluster, &snapshot.topics);
        classes::write(&mut page, cluster, &snapshot.topics);
    } else {
        let sums: Vec<topic::Row<'_>> = namespaces
            .iter()
            .map(|(namespace, (_, stats))| topic::Row {
                labels: vec![("cluster", cluster.to_owned()), ("namespace", namespace.clone())],
                stats,
            })
            .collect();
        topic::write(&mut page, &sums, topic::Grouping::Together);
    }
    let counts: Vec<_> = namespaces
        .iter()
        .map(|(name, (count, _))| (name.as_str(), *count))
        .collect();
    broker::write(&mut page, cluster, &counts, snapshot);
    for family in &snapshot.families {
        write_family(&mut page, cluster, family);
    }
    process::write(&mut page);
    page
}

/// Loaded topics per namespace, and the sum of their numbers, with what others had counted before they were unloaded. Lists of
/// clients are dropped; only numbers are shown.
fn by_namespace(snapshot: &MetricsSnapshot) -> BTreeMap<String, (usize, TopicStats)> {
    let mut sums: BTreeMap<String, (usize, TopicStats)> = BTreeMap::new();
    for (namespace, past) in &snapshot.past {
        let (_, sum) = sums.entry(namespace.to_string()).or_default();
        sum.msg_in_counter = past.messages_in;
        sum.bytes_in_counter = past.bytes_in;
        sum.msg_out_counter = past.messages_out;
        sum.bytes_out_counter = past.bytes_out;
        sum.publish_rate_limited_times = past.throttled;
        sum.backlog_quota_evictions = past.evictions;
    }
    for metrics in &snapshot.topics {
        let (count, sum) = sums.entry(metrics.topic.namespace().to_string()).or_default();
        *count += 1;
        let sum_publishers = std::mem::take(&mut sum.publishers);
        add_topic(sum, &metrics.stats);
        sum.publishers = sum_publishers;
        for subscription in sum.subscriptions.values_mut() {
            subscription.consumers.clear();
        }
    }
    sums
}

fn write_family(page: &mut Page, cluster: &str, family: &pharos_broker_admin::MetricFamily) {
    let kind = match family.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram | MetricKind::MillisecondHistogram => "histogram",
        MetricKind::Summary => "summary",
    };
    page.family(family.name, family.help, kind);
    for sample in &family.samples {
        let with_cluster = |labels: &[(&'static str, String)]| {
            let mut all = vec![("cluster", cluster.to_owned())];
            all.extend(labels.iter().cloned());
            all
        };
        match sample {
            MetricSample::Value { labels, value } => page.sample(family.name, &with_cluster(labels), *value),
            MetricSample::Durations { labels, histogram } => {
                let (name, labels) = (family.name, with_cluster(labels));
                match family.kind {
                    MetricKind::Summary => page.summary(name, &labels, histogram, 1000.0),
                    MetricKind::MillisecondHistogram => page.millisecond_histogram(name, &labels, histogram),
                    _ => page.histogram(name, &labels, histogram),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
