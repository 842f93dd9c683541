//! Two clusters, a broker each, of which one or both replicate to the other.

use std::path::Path;

use pharos_client::{ConsumerOptions, Message, earliest};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Node, receive, soon, until};

/// Cursors are stored soon.
const SOON: [&str; 2] = ["--cursor-flush-interval", "100ms"];
/// Everything is kept, so that everything can be looked at.
const KEPT: [&str; 4] = [
    "--ledger-default-retention-time",
    "1h",
    "--ledger-default-retention-size",
    "1GiB",
];

/// A cluster of one broker, which can be killed and comes back at the same address.
pub(crate) struct Cluster {
    pub(crate) name: &'static str,
    dir: TempDir,
    settings: Vec<String>,
    listen: Option<String>,
    node: Option<Node>,
}

impl Cluster {
    pub(crate) fn start(name: &'static str, settings: &[&str]) -> Self {
        let mut cluster = Self {
            name,
            dir: tempfile::tempdir().unwrap(),
            settings: settings.iter().map(|&text| text.to_owned()).collect(),
            listen: None,
            node: None,
        };
        cluster.come_back();
        cluster
    }

    pub(crate) fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    pub(crate) fn node_mut(&mut self) -> &mut Node {
        self.node.as_mut().unwrap()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn kill(&mut self) {
        self.node.take().unwrap().kill();
    }

    pub(crate) fn stop(&mut self) {
        assert!(self.node.take().unwrap().stop().success());
    }

    /// Starts its broker, at its address.
    pub(crate) fn come_back(&mut self) {
        let mut settings = vec!["--cluster-name", self.name];
        if let Some(listen) = &self.listen {
            settings.extend(["--pulsar-listen", listen]);
        }
        for defaults in [&SOON[..], &KEPT] {
            if !self.settings.iter().any(|setting| setting == defaults[0]) {
                settings.extend(defaults);
            }
        }
        settings.extend(self.settings.iter().map(String::as_str));
        let node = Node::start(self.dir.path(), &settings);
        self.listen = Some(node.pulsar.trim_start_matches("pulsar://").to_owned());
        self.node = Some(node);
    }

    /// Makes another cluster known, by its address.
    pub(crate) fn knows(&self, other: &Self) {
        let data = json!({"brokerServiceUrl": other.node().pulsar});
        self.knows_as(other.name, &data);
    }

    pub(crate) fn knows_as(&self, other: &str, data: &Value) {
        let node = self.node();
        node.order("PUT", &format!("/admin/v2/clusters/{other}"), &data.to_string());
        let tenant = json!({"adminRoles": [], "allowedClusters": [self.name, other]});
        node.order("POST", "/admin/v2/tenants/public", &tenant.to_string());
    }

    /// Says on which clusters public/default is.
    pub(crate) fn is_on(&self, clusters: &[&str]) {
        let path = "/admin/v2/namespaces/public/default/replication";
        self.node().order("POST", path, &json!(clusters).to_string());
    }

    /// Stats of the replication to another cluster.
    pub(crate) fn replication(&self, topic: &str, remote: &str) -> Value {
        self.node().stats(topic)["replication"][remote].clone()
    }

    /// Everything of a topic is at another cluster.
    pub(crate) async fn has_sent_all(&self, topic: &str, remote: &str) {
        until("an end of the backlog", || {
            let stats = self.replication(topic, remote);
            (stats["connected"] == true && stats["replicationBacklog"] == 0).then_some(())
        })
        .await;
    }

    /// A replicator is connected.
    pub(crate) async fn is_connected(&self, topic: &str, remote: &str) {
        until("a connection", || {
            (self.replication(topic, remote)["connected"] == true).then_some(())
        })
        .await;
    }

    /// The log of a topic.
    pub(crate) async fn log(&self, topic: &str) -> Vec<Message> {
        let client = self.node().client().await;
        let options = ConsumerOptions::exclusive("reads it all").non_durable(earliest());
        let mut reader = soon("a reader", client.subscribe(topic, options)).await.unwrap();
        let last = reader.last_message_id().await.unwrap().last_message_id;
        let mut all = Vec::new();
        if last.entry_id == u64::MAX {
            return all;
        }
        loop {
            let message = receive(&mut reader).await;
            let id = &message.id;
            let at_end = (id.ledger_id, id.entry_id) == (last.ledger_id, last.entry_id)
                && id.batch_index.unwrap_or(-1) == last.batch_index.unwrap_or(-1);
            all.push(message);
            if at_end {
                return all;
            }
        }
    }
}

/// The texts of messages.
pub(crate) fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(Message::text).collect()
}
