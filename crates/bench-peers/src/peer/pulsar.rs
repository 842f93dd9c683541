//! Apache Pulsar as `bin/pulsar standalone` runs it: broker, bookie and metadata in one process.

use std::path::Path;

use pharos_bench::load::http_get;

use super::{Launch, Ports, words};
use crate::spec::{Durability, Load};

/// Source of its settings.
pub(super) const SOURCE: &str = "\
Broker, bookie and metadata in one process, as `bin/pulsar standalone` runs them. Heap, direct memory and garbage collector are those of
the distribution's `conf/pulsar_env.sh` with both heap bounds equal; the settings file has what `conf/standalone.conf` of the
distribution says of storage and of one node on loopback, and everything that is not named has the default that is compiled in.
`journalSyncData=true` is the default of a bookie, and what its documentation calls durable; `false` stands in `conf/standalone.conf`:
the bookie acknowledges what the operating system has. With `retention_s` ledgers are closed after 1 GiB or as many minutes,
the bookie looks that often for what may be deleted, and half as often rewrites entry logs that are nearly dead (each has a few entries of a
ledger that lives, of a cursor, so none goes without that, and the default is once an hour). WebSocket, functions and stream storage are not started.
<https://pulsar.apache.org/docs/reference-configuration/>,
<https://bookkeeper.apache.org/docs/reference/config/>";

const MEMORY: [&str; 3] = ["-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g"];
/// Options that the start script adds.
const JVM: [&str; 8] = [
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=10",
    "-XX:+PerfDisableSharedMem",
    "-XX:+AlwaysPreTouch",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dpulsar.allocator.exit_on_oom=true",
    "-Djava.net.preferIPv4Stack=true",
];
/// Packages of the Java runtime that its libraries look into.
const OPENS: [&str; 10] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
];

pub(super) fn launch(dir: &Path, load: &Load, home: &Path, ports: Ports) -> Launch {
    let mut command = words(&["java", "-server"]);
    command.extend(words(&MEMORY));
    command.extend(words(&JVM));
    for package in OPENS {
        command.extend(["--add-opens".to_owned(), format!("{package}=ALL-UNNAMED")]);
    }
    command.extend(words(&[
        "-cp",
        &dir.join("lib/*").to_string_lossy(),
        "org.apache.pulsar.PulsarStandaloneStarter",
        "--config",
        &home.join("standalone.conf").to_string_lossy(),
        "--no-functions-worker",
        "--no-stream-storage",
        "--bookkeeper-dir",
        &home.join("bookkeeper").to_string_lossy(),
        "--metadata-dir",
        &home.join("metadata").to_string_lossy(),
        "--bookkeeper-port",
        &ports.third.to_string(),
        "-a",
        "127.0.0.1",
    ]));
    Launch {
        command,
        settings: Some(("standalone.conf", settings(load, ports))),
        before: None,
    }
}

fn settings(load: &Load, ports: Ports) -> String {
    let retention = retention(load);
    let synced = load.durability == Durability::Synced;
    let (main, http, bookie) = (ports.main, ports.other, ports.third);
    format!(
        "clusterName=standalone
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
brokerServicePort={main}
webServicePort={http}
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
allowAutoTopicCreation=true
allowAutoTopicCreationType=non-partitioned
defaultNumberOfNamespaceBundles=4
loadBalancerEnabled=false
backlogQuotaDefaultLimitGB=-1
webSocketServiceEnabled=false
bookiePort={bookie}
allowLoopback=true
listeningInterface=lo
advertiseAddress=127.0.0.1
journalSyncData={synced}
journalMaxGroupWaitMSec=1
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
dbStorage_readAheadCacheBatchSize=1000
flushInterval=60000
httpServerEnabled=false
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
{retention}"
    )
}

/// Interval of the bookie's garbage collection and, with a retention, of the ledger rollover; the units are minutes.
fn retention(load: &Load) -> String {
    match load.retention_s {
        0 => "gcWaitTime=300000\n".to_owned(),
        kept => format!(
            "gcWaitTime={}
minorCompactionInterval={}
defaultRetentionTimeInMinutes={}
defaultRetentionSizeInMB=-1
managedLedgerMinLedgerRolloverTimeMinutes=0
managedLedgerMaxLedgerRolloverTimeMinutes={}
managedLedgerMaxSizePerLedgerMbytes=1024
",
            u64::from(kept) * 1000,
            u64::from(kept) * 2,
            kept / 60,
            kept.div_ceil(60),
        ),
    }
}

/// The namespace is made at the end of its start.
pub(super) fn is_ready(ports: Ports) -> bool {
    let base = format!("http://127.0.0.1:{}", ports.other);
    http_get(&base, "/admin/v2/brokers/ready").is_ok()
        && http_get(&base, "/admin/v2/namespaces/public/default").is_ok()
}
