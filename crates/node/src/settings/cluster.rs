//! Settings of a broker among others: where ledgers and metadata are.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use pharos_bookkeeper::{PlacementOptions, Quorum, Spread};
use pharos_client::TlsOptions;
use pharos_identity::read_key;
use pharos_ledger::Replication;
use pharos_metadata::MetadataLayout;
use pharos_types::Login;
use pharos_zookeeper::{Acl, ConnectOptions, TlsFiles};

use super::load_balancer::LoadBalancerSettings;
use super::{ByteSize, Engine, Limit, Secret, Settings, Value};

/// Where ledgers and metadata are.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSettings {
    /// What keeps ledgers.
    pub engine: Engine,
    /// What keeps metadata.
    pub metadata: MetadataUrl,
    /// Whose names and bytes it has.
    pub metadata_layout: MetadataLayout,
    /// How long others wait for a broker that is not heard of.
    pub session_timeout: Duration,
    /// How long a broker serves on without metadata.
    pub outage_max: Limit<Duration>,
    /// Where bookies register, when that is not below the metadata.
    pub bookkeeper_uri: BookKeeperUri,
    /// Bookies of a new ledger.
    pub ensemble_size: u32,
    /// Copies of an entry.
    pub write_quorum: u32,
    /// Copies that are stored before an entry counts.
    pub ack_quorum: u32,
    /// Over what copies are spread.
    pub spread: Spread,
    /// Racks or regions that have a copy of each entry.
    pub apart_min: u32,
    /// Whether bookies with more room get more.
    pub by_free_disk: bool,
    /// How often bookies sync what is acknowledged before it is synced.
    pub force_interval: Duration,
    /// How often a writer that rests says how far its ledger goes; zero never.
    pub explicit_lac_interval: Duration,
    /// What bookies take in one frame.
    pub max_frame_size: ByteSize,
    /// TLS to bookies.
    pub tls: ServerTls,
    /// Who this broker is to bookies.
    pub login: SaslLogin,
    /// TLS to ZooKeeper.
    pub zookeeper_tls: ServerTls,
    /// Who it is to ZooKeeper.
    pub zookeeper_login: SaslLogin,
    /// Who may do what with nodes that it makes there.
    pub zookeeper_acl: Acl,
    /// To the admin API of other brokers.
    pub broker_tls: ServerTls,
    /// How brokers share bundles.
    pub load_balancer: LoadBalancerSettings,
}

/// How connections to servers of the cluster are encrypted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerTls {
    /// Whether they are.
    pub enabled: bool,
    /// Authorities of the servers.
    pub trust_certs_file: Option<PathBuf>,
    /// What this broker shows.
    pub certificate_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
}

impl ServerTls {
    /// What connections to ZooKeeper need, if they are encrypted.
    pub(crate) fn files(&self) -> Option<TlsFiles> {
        let trust_certs = self.trust_certs_file.clone().filter(|_| self.enabled)?;
        let certificate = self.certificate_file.clone().zip(self.key_file.clone());
        Some(TlsFiles {
            trust_certs,
            certificate,
        })
    }

    /// What connections to bookies or other brokers need, if they are encrypted.
    pub(crate) fn options(&self) -> Option<TlsOptions> {
        self.enabled.then(|| TlsOptions {
            trust_certs_file: self.trust_certs_file.clone(),
            certificate_file: self.certificate_file.clone(),
            key_file: self.key_file.clone(),
            ..TlsOptions::default()
        })
    }

    /// `servers`: how its settings begin.
    fn faults(&self, servers: &str) -> impl Iterator<Item = String> {
        let files = [&self.trust_certs_file, &self.certificate_file, &self.key_file];
        let is_idle = !self.enabled && files.iter().any(|file| file.is_some());
        let idle = format!("the files {servers}.tls_… say nothing unless {servers}.tls is true");
        let is_half = self.certificate_file.is_some() != self.key_file.is_some();
        let half = format!("{servers}.tls_certificate_file and {servers}.tls_key_file belong together");
        let faults = [(is_idle, idle), (is_half, half)].into_iter();
        faults
            .filter(|(is_fault, _)| *is_fault)
            .map(|(_, sentence)| sentence)
    }
}

/// Who this broker is to servers of the cluster that ask by SASL.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SaslLogin {
    /// Its name there; empty when it has none.
    pub user: String,
    /// Its password, or where that is.
    pub password: Secret,
}

impl SaslLogin {
    /// With the password as it is now; `None` without a user. `servers`: how its settings begin.
    ///
    /// # Errors
    /// The password cannot be read, or is no text that DIGEST-MD5 takes.
    pub(crate) fn read(&self, servers: &str) -> anyhow::Result<Option<Login>> {
        if self.user.is_empty() {
            return Ok(None);
        }
        let read = || {
            let password = String::from_utf8(read_key(self.password.reveal())?)?;
            let password = password.trim_end_matches(['\r', '\n']);
            ensure!(
                !password.is_empty() && password.is_ascii(),
                "a password is ASCII, and not empty"
            );
            anyhow::Ok(password.to_owned())
        };
        let password = read().with_context(|| format!("{servers}.sasl_password"))?;
        let user = self.user.clone();
        Ok(Some(Login { user, password }))
    }

    fn faults(&self, servers: &str) -> Option<String> {
        if self.user.is_empty() != self.password.is_empty() {
            return Some(format!(
                "{servers}.sasl_user and {servers}.sasl_password belong together"
            ));
        }
        let is_plain = self.user.is_ascii();
        (!is_plain).then(|| format!("{servers}.sasl_user has other letters than ASCII"))
    }
}

/// What a message has beside what `max_message_size` counts, as clients are told.
const BESIDE_A_MESSAGE: u64 = 10 << 10;

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            engine: Engine::Embedded,
            metadata: MetadataUrl::Embedded,
            metadata_layout: MetadataLayout::Pharos,
            session_timeout: Duration::from_secs(6),
            outage_max: Limit::At(Duration::from_secs(300)),
            bookkeeper_uri: BookKeeperUri::default(),
            ensemble_size: 2,
            write_quorum: 2,
            ack_quorum: 2,
            spread: Spread::Bookies,
            apart_min: 0,
            by_free_disk: false,
            force_interval: Duration::from_secs(1),
            explicit_lac_interval: Duration::ZERO,
            max_frame_size: ByteSize(5 << 20),
            tls: ServerTls::default(),
            login: SaslLogin::default(),
            zookeeper_tls: ServerTls::default(),
            zookeeper_login: SaslLogin::default(),
            zookeeper_acl: Acl::Open,
            broker_tls: ServerTls::default(),
            load_balancer: LoadBalancerSettings::default(),
        }
    }
}

/// Settings that say something only where ledgers are in BookKeeper, and whether a key is one of them.
pub(super) fn is_of_a_cluster(key: &str) -> bool {
    key.starts_with("bookkeeper.")
        || key.starts_with("zookeeper.")
        || key.starts_with("load_balancer.")
        || matches!(
            key,
            "metadata_session_timeout" | "metadata_outage_max" | "metadata_layout"
        )
}

/// Whether a key is of the embedded engine.
pub(super) fn is_of_the_embedded_engine(key: &str) -> bool {
    key.starts_with("storage.") && key != "storage.sync"
}

impl ClusterSettings {
    /// How a store gets into ZooKeeper.
    ///
    /// # Errors
    /// The password cannot be read.
    pub(crate) fn zookeeper_options(&self) -> anyhow::Result<ConnectOptions> {
        Ok(ConnectOptions {
            tls: self.zookeeper_tls.files(),
            login: self.zookeeper_login.read("zookeeper")?,
            acl: self.zookeeper_acl,
        })
    }

    /// The sizes of new ledgers.
    pub(crate) fn quorum(&self) -> Result<Quorum, String> {
        let size = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let (ensemble, write, ack) = (self.ensemble_size, self.write_quorum, self.ack_quorum);
        Quorum::new(size(ensemble), size(write), size(ack)).map_err(|error| error.to_string())
    }

    /// Where copies are, unless a namespace says otherwise; `None`: on this machine.
    pub(crate) fn replication(&self) -> Option<Replication> {
        let quorum = self.quorum().ok().filter(|_| self.engine == Engine::BookKeeper)?;
        Some(Replication {
            ensemble: quorum.ensemble(),
            write_quorum: quorum.write(),
            ack_quorum: quorum.ack(),
        })
    }

    /// How bookies are chosen.
    pub(crate) fn placement(&self) -> PlacementOptions {
        PlacementOptions {
            spread: self.spread,
            apart_min: usize::try_from(self.apart_min).unwrap_or(usize::MAX),
            by_free_disk: self.by_free_disk,
        }
    }

    /// Where the metadata of ledgers is in ZooKeeper.
    pub(crate) fn ledgers_root_path(&self) -> String {
        let (above, root) = match (&self.metadata, self.bookkeeper_uri.parts()) {
            (_, Some((above, root))) => (above, root),
            (MetadataUrl::ZooKeeper(address), None) => (address.clone(), "ledgers"),
            (MetadataUrl::Embedded, None) => (String::new(), "ledgers"),
        };
        match above.split_once('/') {
            Some((_, path)) => format!("/{path}/{root}"),
            None => format!("/{root}"),
        }
    }

    /// A sentence per fault.
    pub(super) fn faults(&self, settings: &Settings) -> Vec<String> {
        let mut faults = Vec::new();
        match (self.engine, &self.metadata) {
            (Engine::Embedded, MetadataUrl::Embedded) | (Engine::BookKeeper, MetadataUrl::ZooKeeper(_)) => {}
            (Engine::Embedded, MetadataUrl::ZooKeeper(_)) => faults.push(
                "metadata is in ZooKeeper and engine = embedded keeps ledgers on this machine, where other brokers do not reach them: \
                 set engine = bookkeeper"
                    .to_owned(),
            ),
            (Engine::BookKeeper, MetadataUrl::Embedded) => {
                faults.push("engine = bookkeeper needs metadata = zk:host:port/path".to_owned());
            }
        }
        if self.metadata_layout == MetadataLayout::Pulsar && !settings.offload.driver.is_empty() {
            faults.push(
                "offload.driver cannot be set with metadata_layout = pulsar: Pulsar's brokers do not read what Pharos offloads"
                    .to_owned(),
            );
        }
        if self.session_timeout < Duration::from_secs(1) {
            faults.push("metadata_session_timeout must be at least 1s".to_owned());
        }
        faults.extend(
            self.quorum()
                .err()
                .map(|reason| format!("bookkeeper.ensemble_size: {reason}")),
        );
        if self.force_interval.is_zero() {
            faults.push("bookkeeper.deferred_sync_interval must not be 0".to_owned());
        }
        if self.apart_min > 1 && self.spread == Spread::Bookies {
            faults.push(
                "bookkeeper.min_racks_per_write_quorum needs bookkeeper.placement = racks or regions"
                    .to_owned(),
            );
        }
        let (message, frame) = (settings.protocol.max_message_size, self.max_frame_size);
        if self.engine == Engine::BookKeeper && message.0.saturating_add(BESIDE_A_MESSAGE) > frame.0 {
            faults.push(format!(
                "max_message_size ({}) and 10KiB beside a message are more than bookies take in one frame, {}: lower it, or raise \
                 nettyMaxFrameSizeBytes of every bookie and say so in bookkeeper.max_frame_size",
                message.show(),
                frame.show()
            ));
        }
        faults.extend(self.tls.faults("bookkeeper"));
        faults.extend(self.login.faults("bookkeeper"));
        faults.extend(self.zookeeper_login.faults("zookeeper"));
        if self.zookeeper_acl == Acl::Creator && self.zookeeper_login.user.is_empty() {
            faults.push(
                "zookeeper.acl = creator needs zookeeper.sasl_user: no broker could read its own nodes otherwise"
                    .to_owned(),
            );
        }
        faults.extend(self.zookeeper_tls.faults("zookeeper"));
        faults.extend(self.broker_tls.faults("broker_client"));
        if self.zookeeper_tls.enabled && self.zookeeper_tls.trust_certs_file.is_none() {
            faults.push("zookeeper.tls needs zookeeper.tls_trust_certs_file".to_owned());
        }
        faults
    }
}

/// Where metadata is: `embedded`, or `zk:host:port,host:port/path`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MetadataUrl {
    /// In `data_dir`.
    #[default]
    Embedded,
    /// In ZooKeeper: the servers, and the path below which everything is.
    ZooKeeper(String),
}

impl std::fmt::Display for MetadataUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.show())
    }
}

impl Value for MetadataUrl {
    const KIND: &'static str = "embedded or zk:host:port/path";

    fn parse(text: &str) -> Result<Self, String> {
        if text == "embedded" {
            return Ok(Self::Embedded);
        }
        let wrong = || format!("'{text}' is neither embedded nor zk:host:port,host:port/path");
        let address = text.strip_prefix("zk:").ok_or_else(wrong)?;
        if is_address(address) {
            Ok(Self::ZooKeeper(address.trim_end_matches('/').to_owned()))
        } else {
            Err(wrong())
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Embedded => "embedded".to_owned(),
            Self::ZooKeeper(address) => format!("zk:{address}"),
        }
    }
}

/// Where bookies register, as BookKeeper writes it: `zk+hierarchical://host:port;host:port/ledgers`. Empty: `ledgers` below the metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BookKeeperUri(String);

impl BookKeeperUri {
    /// The ZooKeeper to ask, with the path above the ledgers, and the name of the ledgers' node; `None` when it is empty.
    pub(crate) fn parts(&self) -> Option<(String, &str)> {
        let rest = self.0.split_once("://")?.1;
        let (above, root) = rest.rsplit_once('/')?;
        Some((above.replace(';', ","), root))
    }
}

impl Value for BookKeeperUri {
    const KIND: &'static str = "zk+hierarchical://host:port/path or empty";

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        // The layouts differ in where a ledger's metadata is: the one that Pulsar uses is the one that is read here.
        let schemes = ["zk+hierarchical://", "zk://", "zk+null://"];
        let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
        let fits = rest.is_some_and(|rest| {
            let rest = rest.replace(';', ",");
            rest.contains('/') && !rest.ends_with('/') && is_address(&rest)
        });
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "'{text}' is not like zk+hierarchical://host:port;host:port/ledgers"
            ))
        }
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// `host:port,host:port` and perhaps `/path`.
fn is_address(text: &str) -> bool {
    let (servers, path) = text.split_once('/').unwrap_or((text, ""));
    let is_server = |server: &str| {
        server
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
    };
    let path = path.trim_end_matches('/');
    let is_path = path.is_empty()
        || path
            .split('/')
            .all(|name| !name.is_empty() && name != "." && name != "..");
    servers.split(',').all(is_server) && is_path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_metadata_is_can_be_said_and_is_said_back() {
        for text in [
            "embedded",
            "zk:a:2181",
            "zk:a:2181,b:2182/pulsar/x",
            "zk:[::1]:2181/p",
        ] {
            assert_eq!(
                MetadataUrl::parse(text).map(|url| url.show()),
                Ok(text.to_owned())
            );
        }
        for text in [
            "",
            "zk:",
            "zk:a",
            "zk:a:0",
            "a:2181",
            "zk:a:2181//x",
            "zk:a:2181,/x",
            "rocksdb:///x",
        ] {
            assert!(MetadataUrl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bookies_may_be_registered_elsewhere() {
        let uri = BookKeeperUri::parse("zk+hierarchical://a:1;b:2/deep/ledgers");
        assert_eq!(
            uri.unwrap_or_default().parts(),
            Some(("a:1,b:2/deep".to_owned(), "ledgers"))
        );
        let uri = BookKeeperUri::parse("zk://a:1/ledgers");
        assert_eq!(
            uri.unwrap_or_default().parts(),
            Some(("a:1".to_owned(), "ledgers"))
        );
        assert_eq!(BookKeeperUri::default().parts(), None);
        for text in [
            "zk+flat://a:1/ledgers",
            "zk+hierarchical://a:1",
            "zk://a:1/",
            "a:1/ledgers",
        ] {
            assert!(BookKeeperUri::parse(text).is_err(), "{text}");
        }
    }
}
