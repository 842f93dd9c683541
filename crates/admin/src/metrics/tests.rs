use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;

use pharos_admin_api::{BroadcastSummary, SubscriptionStats, TopicStats};
use pharos_broker_admin::{MetricFamily, Stage, TopicMetrics};
use pharos_runtime::Histogram;
use pharos_topic::EntrySizes;

use super::*;

fn durations() -> Histogram {
    let mut histogram = Histogram::default();
    histogram.record(2_000_000);
    histogram
}

fn sizes() -> EntrySizes {
    let mut sizes = EntrySizes::default();
    for bytes in [1, 128, 129, 1 << 20, (1 << 20) + 1] {
        sizes.record(bytes);
    }
    sizes
}

fn snapshot() -> MetricsSnapshot {
    let topic = |name: &str| {
        let subscription = SubscriptionStats {
            msg_backlog: 7,
            consumer_count: 3,
            pharos_broadcast: Some(BroadcastSummary {
                consumers_connected: 3,
                ..Default::default()
            }),
            ..Default::default()
        };
        TopicMetrics {
            topic: name.parse().unwrap(),
            stats: TopicStats {
                msg_in_counter: 5,
                publisher_count: 2,
                subscriptions: BTreeMap::from([("quote\"d".to_owned(), subscription)]),
                ..Default::default()
            },
            stages: vec![(Stage::Persistence, durations())],
            storage_write_latency: durations(),
            entry_sizes: sizes(),
        }
    };
    MetricsSnapshot {
        topics: vec![topic("a"), topic("b")],
        stages: vec![(Stage::Broadcasting, durations())],
        families: vec![MetricFamily {
            name: "pharos_journal_syncs_total",
            help: "Syncs.",
            kind: MetricKind::Counter,
            samples: vec![MetricSample::Value {
                labels: vec![("journal", "0".into())],
                value: 9.0,
            }],
        }],
        ..Default::default()
    }
}

fn text(cluster: &str, single_topics: bool, snapshot: &MetricsSnapshot) -> String {
    written(render(Page::default(), cluster, single_topics, snapshot))
}

fn written(page: Page) -> String {
    String::from_utf8(page.into_bytes().unwrap().to_vec()).unwrap()
}

/// The format wants each family once, its samples right below its head.
fn check_format(page: &str) {
    let mut seen = HashSet::new();
    let mut current = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            current = rest.split(' ').next().unwrap();
            assert!(seen.insert(current), "{current} appears twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let base = name
                .strip_suffix("_sum")
                .or_else(|| name.strip_suffix("_count"))
                .or_else(|| name.strip_suffix("_bucket"))
                .unwrap_or(name);
            assert!(name == current || base == current, "{name} under {current}");
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        }
    }
}

#[test]
fn the_page_keeps_to_the_format_and_shows_topics() {
    let page = text("c", true, &snapshot());
    check_format(&page);
    for line in [
        r#"pulsar_in_messages_total{cluster="c",namespace="public/default",topic="persistent://public/default/a"} 5"#,
        r#"pulsar_subscription_back_log{cluster="c",namespace="public/default",topic="persistent://public/default/b",subscription="quote\"d"} 7"#,
        r#"pulsar_broker_producers_count{cluster="c"} 4"#,
        r#"pulsar_topics_count{cluster="c",namespace="public/default"} 2"#,
        r#"pharos_stage_seconds_count{cluster="c",stage="broadcasting"} 1"#,
        r#"pharos_stage_seconds_bucket{cluster="c",stage="broadcasting",le="0.001"} 0"#,
        r#"pharos_stage_seconds_bucket{cluster="c",stage="broadcasting",le="0.002"} 1"#,
        r#"pharos_stage_seconds_bucket{cluster="c",stage="broadcasting",le="10"} 1"#,
        r#"pharos_stage_seconds_bucket{cluster="c",stage="broadcasting",le="+Inf"} 1"#,
        r#"pharos_journal_syncs_total{cluster="c",journal="0"} 9"#,
    ] {
        assert!(
            page.lines().any(|found| found == line),
            "{line} is missing in\n{page}"
        );
    }
    let of_a = r#"{cluster="c",namespace="public/default",topic="persistent://public/default/a"}"#;
    for (name, value) in [
        ("pulsar_storage_write_latency_le_1", 0),
        ("pulsar_storage_write_latency_le_5", 1),
        ("pulsar_storage_write_latency_le_10", 0),
        ("pulsar_storage_write_latency_overflow", 0),
        ("pulsar_storage_write_latency_sum", 2000),
        ("pulsar_storage_write_latency_count", 1),
        ("pulsar_entry_size_le_128", 2),
        ("pulsar_entry_size_le_512", 1),
        ("pulsar_entry_size_le_1_kb", 0),
        ("pulsar_entry_size_le_1_mb", 1),
        ("pulsar_entry_size_le_overflow", 1),
        ("pulsar_entry_size_sum", 2 * (1 << 20) + 259),
        ("pulsar_entry_size_count", 5),
    ] {
        let line = format!("{name}{of_a} {value}");
        assert!(page.lines().any(|found| found == line), "{line} is missing");
    }
    assert!(page.contains("pharos_broadcast_consumers_connected"));
    assert!(page.contains("process_resident_memory_bytes"));
}

#[test]
fn topics_can_be_left_out() {
    let page = text("c", false, &snapshot());
    check_format(&page);
    assert!(!page.contains("topic=\""), "{page}");
    assert!(
        page.lines()
            .any(|line| line == r#"pulsar_in_messages_total{cluster="c",namespace="public/default"} 10"#)
    );
}

#[test]
fn monitoring_metrics_are_sums_over_a_namespace() {
    let found = serde_json::to_value(monitoring::of_namespaces(&snapshot())).unwrap();
    let [namespace] = found.as_array().unwrap().as_slice() else {
        panic!("one namespace: {found}");
    };
    assert_eq!(
        namespace["dimensions"],
        serde_json::json!({"namespace": "public/default"})
    );
    let metrics = &namespace["metrics"];
    for (name, value) in [
        ("brk_no_of_producers", 4),
        ("brk_no_of_subscriptions", 2),
        ("brk_no_of_consumers", 6),
        ("brk_msg_backlog", 14),
    ] {
        assert_eq!(metrics[name], value, "{name}");
    }
}

#[test]
fn durations_are_in_the_unit_that_the_family_says() {
    let family = |name, kind| MetricFamily {
        name,
        help: "Durations.",
        kind,
        samples: vec![MetricSample::Durations {
            labels: vec![("success", "true".into())],
            histogram: durations(),
        }],
    };
    let mut page = Page::default();
    for (name, kind) in [
        ("s", MetricKind::Histogram),
        ("ms", MetricKind::MillisecondHistogram),
        ("sum", MetricKind::Summary),
    ] {
        write_family(&mut page, "c", &family(name, kind));
    }
    let text = written(page);
    let labels = r#"{cluster="c",success="true""#;
    for line in [
        format!("s_sum{labels}}} 0.002"),
        format!("s_bucket{labels},le=\"0.001\"}} 0"),
        format!("ms_sum{labels}}} 2"),
        format!("ms_bucket{labels},le=\"1\"}} 0"),
        format!("ms_bucket{labels},le=\"3\"}} 1"),
        format!("sum_sum{labels}}} 2"),
        format!("sum_count{labels}}} 1"),
        "# TYPE ms histogram".to_owned(),
        "# TYPE sum summary".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[test]
fn a_compressed_page_says_the_same() {
    let mut many = snapshot();
    let one = many.topics[0].clone();
    // More than is compressed at a time.
    many.topics = (0..100)
        .map(|number| TopicMetrics {
            topic: format!("t-{number}").parse().unwrap(),
            ..one.clone()
        })
        .collect();
    let is_steady = |line: &&str| !line.starts_with("process_");
    let plain = text("c", true, &many);
    let packed = render(Page::compressed(), "c", true, &many).into_bytes().unwrap();
    assert!(
        packed.len() * 10 < plain.len(),
        "{} of {}",
        packed.len(),
        plain.len()
    );
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_string(&mut unpacked)
        .unwrap();
    assert!(
        unpacked
            .lines()
            .filter(is_steady)
            .eq(plain.lines().filter(is_steady))
    );
}

#[test]
fn only_who_asks_for_it_gets_a_compressed_page() {
    for (said, takes) in [
        (None, false),
        (Some("gzip"), true),
        (Some("deflate, GZIP;q=0.5"), true),
        (Some("zstd,gzip;q=1.0"), true),
        (Some("gzip;q=0"), false),
        (Some("gzip; q=x"), false),
        (Some("identity, x-gzipped"), false),
        (Some("*"), false),
    ] {
        let headers = said.map(|said| (ACCEPT_ENCODING, said.parse().unwrap()));
        assert_eq!(takes_gzip(&headers.into_iter().collect()), takes, "{said:?}");
    }
}
