//! The load tools that come with the peers, as a second opinion: `pulsar-perf` against Pharos and Pulsar, Kafka's against Kafka.
//!
//! They publish only, and say at their end what they found; what they say is taken as it is.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail, ensure};
use pharos_bench::load::sample_process;

use crate::door::Door;
use crate::outcome::{Distribution, LoadResult};
use crate::peer::{Installed, Process, Running};
use crate::spec::Load;

/// The topic, as the doors name their first one.
const TOPIC: &str = "b0";
/// Packages of the Java runtime that the libraries of pulsar-perf look into.
const OPENS: [&str; 7] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/sun.net",
    "jdk.management/com.sun.management.internal",
];

/// Lets the tool of a peer publish, and takes over what it says.
pub(crate) fn run(
    load: &Load,
    running: &Running,
    installed: &Installed,
    stop: &AtomicBool,
) -> anyhow::Result<LoadResult> {
    let home = running.home();
    let (command, read): (_, fn(&str) -> anyhow::Result<Said>) = match &running.door {
        Door::Pulsar(door) => (pulsar_perf(load, installed, home, &door.url)?, read_pulsar),
        Door::Kafka(address) => (kafka_perf(load, installed, &address.to_string())?, read_kafka),
        Door::Nats(_) | Door::Mqtt(_) => bail!("no tool of this peer is known here"),
    };
    running.door.prepare(load, None)?;
    let before = sample_process(running.pid());
    let log = home.join("tool.log");
    Process::start(&command, home, "tool.log")?.wait(load.limit_s, stop)?;
    let after = sample_process(running.pid());
    let said = read(&fs::read_to_string(&log)?).context("what the tool says cannot be read")?;
    let published = said.messages as u64;
    Ok(LoadResult {
        seconds: said.messages / said.rate.max(1e-9),
        published,
        publish_msg_s: said.rate,
        publish_mb_s: said.rate * load.size as f64 / 1e6,
        publish: Distribution::told(published, said.percentiles),
        broker_cpu_s: after
            .zip(before)
            .map(|(after, before)| after.cpu_seconds - before.cpu_seconds),
        rss_mb: after.map(|sample| sample.rss_bytes as f64 / 1e6),
        ..LoadResult::default()
    })
}

/// Returns the number of messages that a tool sends.
fn messages(load: &Load) -> u64 {
    match load.rate > 0.0 {
        true => (load.rate * load.duration_s) as u64,
        false => load.messages,
    }
}

fn libraries(installed: &Installed, tools: &str) -> anyhow::Result<String> {
    let dir = installed.peers.join(tools);
    ensure!(
        dir.join("version").is_file(),
        "{tools} is not installed in {}",
        installed.peers.display()
    );
    Ok(dir.join("lib/*").to_string_lossy().into_owned())
}

fn pulsar_perf(load: &Load, installed: &Installed, home: &Path, url: &str) -> anyhow::Result<Vec<String>> {
    let settings = home.join("client.conf");
    fs::write(&settings, format!("brokerServiceUrl={url}\n"))?;
    let logging = home.join("tool-log4j2.properties");
    fs::write(
        &logging,
        "rootLogger.level=info\nrootLogger.appenderRef.out.ref=out\nappender.out.type=Console\nappender.out.name=out\n\
         appender.out.layout.type=PatternLayout\nappender.out.layout.pattern=%m%n\n",
    )?;
    // A rate that no broker reaches stands for none.
    let rate = if load.rate > 0.0 {
        load.rate as u64
    } else {
        10_000_000
    };
    let mut command: Vec<String> = ["java", "-Xmx1g", "-XX:MaxDirectMemorySize=1g"]
        .map(str::to_owned)
        .to_vec();
    for package in OPENS {
        command.extend(["--add-opens".to_owned(), format!("{package}=ALL-UNNAMED")]);
    }
    command.extend([
        "-Dio.netty.tryReflectionSetAccessible=true".to_owned(),
        format!("-Dlog4j.configurationFile={}", logging.display()),
        "-cp".to_owned(),
        libraries(installed, "pulsar-tools")?,
        "org.apache.pulsar.testclient.PulsarPerfTestTool".to_owned(),
        settings.to_string_lossy().into_owned(),
        "produce".to_owned(),
    ]);
    for (option, value) in [
        ("-u", url.to_owned()),
        ("-r", rate.to_string()),
        ("-m", messages(load).to_string()),
        ("-s", load.size.to_string()),
        ("-b", load.batch_delay_ms.to_string()),
        ("-bm", load.batch_messages.to_string()),
        ("-bb", load.batch_bytes.to_string()),
    ] {
        command.extend([option.to_owned(), value]);
    }
    command.push(format!("persistent://public/default/{TOPIC}"));
    Ok(command)
}

fn kafka_perf(load: &Load, installed: &Installed, address: &str) -> anyhow::Result<Vec<String>> {
    let rate = if load.rate > 0.0 { load.rate as i64 } else { -1 };
    let mut command: Vec<String> = ["java", "-Xmx1g", "-cp"].map(str::to_owned).to_vec();
    command.extend([
        libraries(installed, "kafka-tools")?,
        "org.apache.kafka.tools.ProducerPerformance".to_owned(),
        "--topic".to_owned(),
        TOPIC.to_owned(),
        "--throughput".to_owned(),
        rate.to_string(),
        "--num-records".to_owned(),
        messages(load).to_string(),
        "--record-size".to_owned(),
        load.size.to_string(),
        "--producer-props".to_owned(),
        format!("bootstrap.servers={address}"),
        "acks=all".to_owned(),
        format!("linger.ms={}", load.batch_delay_ms.ceil()),
        format!("batch.size={}", load.batch_bytes),
    ]);
    Ok(command)
}

/// Final result that a tool prints.
#[derive(Debug, PartialEq)]
struct Said {
    messages: f64,
    /// Messages a second.
    rate: f64,
    /// Percentile and milliseconds.
    percentiles: Vec<(f64, f64)>,
}

/// `Aggregated throughput stats --- 200000 records sent --- 19999.1 msg/s --- …` and
/// `Aggregated latency stats --- Latency: mean: 2.6 ms - med: 2.3 - 95pct: 4.2 - … - Max: 10.8`.
fn read_pulsar(text: &str) -> anyhow::Result<Said> {
    let last = |what: &str| text.lines().rev().find(|line| line.contains(what));
    let throughput = last("Aggregated throughput stats").context("it says no throughput")?;
    let latency = last("Aggregated latency stats").context("it says no latency")?;
    let behind = |word: &str| number(latency.split(word).nth(1)?.split_whitespace().next()?);
    let all = [
        (50.0, "med:"),
        (95.0, " 95pct:"),
        (99.0, " 99pct:"),
        (99.9, " 99.9pct:"),
        (99.99, " 99.99pct:"),
        (100.0, "Max:"),
    ];
    Ok(Said {
        messages: before(throughput, "records sent").context("no messages")?,
        rate: before(throughput, "msg/s").context("no rate")?,
        percentiles: all
            .into_iter()
            .filter_map(|(percentile, word)| Some((percentile, behind(word)?)))
            .collect(),
    })
}

/// `200000 records sent, 19998.3 records/sec (19.53 MB/sec), 1.62 ms avg latency, 250.00 ms max latency, 1 ms 50th, …, 180 ms 99.9th.`
fn read_kafka(text: &str) -> anyhow::Result<Said> {
    let line = text.lines().rev().find(|line| line.contains("ms 99.9th"));
    let line = line.context("it says no percentiles")?;
    let all = [
        (50.0, "ms 50th"),
        (95.0, "ms 95th"),
        (99.0, "ms 99th"),
        (99.9, "ms 99.9th"),
        (100.0, "ms max latency"),
    ];
    Ok(Said {
        messages: before(line, "records sent").context("no messages")?,
        rate: before(line, "records/sec").context("no rate")?,
        percentiles: all
            .into_iter()
            .filter_map(|(percentile, word)| Some((percentile, before(line, word)?)))
            .collect(),
    })
}

/// The number before a word.
fn before(line: &str, word: &str) -> Option<f64> {
    number(line.split(word).next()?.split_whitespace().next_back()?)
}

fn number(word: &str) -> Option<f64> {
    word.trim_end_matches([',', '.']).replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pulsar_perf_says_is_read() {
        let text = "x\nAggregated throughput stats --- 60000 records sent --- 9998.412 msg/s --- 78.113 Mbit/s \n\
                    Aggregated latency stats --- Latency: mean:   2.640 ms - med:   2.317 - 95pct:   4.200 - 99pct:  11.500 - \
                    99.9pct:  20.000 - 99.99pct:  21.000 - 99.999pct:  22.000 - Max:  23.000\n";
        let said = read_pulsar(text).expect("reads");
        assert_eq!((said.messages, said.rate), (60000.0, 9998.412));
        let wanted = [
            (50.0, 2.317),
            (95.0, 4.2),
            (99.0, 11.5),
            (99.9, 20.0),
            (99.99, 21.0),
            (100.0, 23.0),
        ];
        assert_eq!(said.percentiles, wanted);
        assert!(read_pulsar("").is_err());
    }

    #[test]
    fn what_kafka_says_is_read() {
        let text = "99 records sent, 9.0 records/sec (0.1 MB/sec), 1.0 ms avg latency, 2.0 ms max latency.\n\
                    200000 records sent, 19998.3 records/sec (19.53 MB/sec), 1.62 ms avg latency, 250.00 ms max latency, 1 ms 50th, \
                    4 ms 95th, 30 ms 99th, 180 ms 99.9th.\n";
        let said = read_kafka(text).expect("reads");
        assert_eq!((said.messages, said.rate), (200_000.0, 19998.3));
        let wanted = [
            (50.0, 1.0),
            (95.0, 4.0),
            (99.0, 30.0),
            (99.9, 180.0),
            (100.0, 250.0),
        ];
        assert_eq!(said.percentiles, wanted);
        assert!(read_kafka("0 records sent").is_err());
    }
}
