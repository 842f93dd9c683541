//! Apache Kafka, one node that is broker and controller.

use std::path::Path;

use super::{Launch, Ports, local, words};
use crate::door::kafka;
use crate::spec::{Durability, Load};

/// Source of its settings.
pub(super) const SOURCE: &str = "\
One node that is broker and controller. Flags of the Java runtime are those of Kafka's documentation on hardware and operation, with a
heap of 2 GB for this size of machine, the rest being its page cache; threads are those of the distribution's
`config/server.properties`. Kafka's durability comes from replication: `log.flush.interval.messages=1`, which is what *synced* needs on
one node, is in its documentation and is not recommended there, so *system* is how Kafka is meant to be run. With `retention_s` segments
are closed and deleted by time, whether they were received or not.
<https://kafka.apache.org/documentation/#java>, <https://kafka.apache.org/documentation/#appvsosflush>";

const JVM: [&str; 9] = [
    "-Xms2g",
    "-Xmx2g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:G1HeapRegionSize=16M",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
];
/// A name for the cluster: sixteen bytes, as Kafka spells them.
const CLUSTER: &str = "cGhhcm9zLWJlbmNoLTAwMQ";

pub(super) fn launch(dir: &Path, load: &Load, home: &Path, ports: Ports) -> Launch {
    let libraries = dir.join("lib/*");
    let settings = home.join("server.properties");
    let (libraries, path) = (libraries.to_string_lossy(), settings.to_string_lossy());
    let mut command = words(&["java"]);
    command.extend(words(&JVM));
    command.extend(words(&["-cp", &libraries, "kafka.Kafka", &path]));
    Launch {
        command,
        settings: Some(("server.properties", text(load, home, ports))),
        before: Some(words(&[
            "java",
            "-cp",
            &libraries,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            CLUSTER,
            "-c",
            &path,
        ])),
    }
}

fn text(load: &Load, home: &Path, ports: Ports) -> String {
    let (main, controller) = (ports.main, ports.other);
    let data = home.join("data");
    let data = data.display();
    let flush = match load.durability {
        Durability::Synced => "log.flush.interval.messages=1\n",
        Durability::System => "",
    };
    let retention = retention(load);
    format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{main},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{main}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
num.network.threads=3
num.io.threads=8
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
auto.create.topics.enable=false
{flush}{retention}"
    )
}

/// Retention settings: older messages are deleted by whole segments, received or not.
fn retention(load: &Load) -> String {
    match u64::from(load.retention_s) * 1000 {
        0 => String::new(),
        kept_ms => format!(
            "log.retention.ms={kept_ms}
log.roll.ms={kept_ms}
log.retention.check.interval.ms={kept_ms}
log.segment.delete.delay.ms=1000
"
        ),
    }
}

pub(super) fn is_ready(ports: Ports) -> bool {
    kafka::is_ready(local(ports.main))
}
