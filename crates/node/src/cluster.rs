//! The stores of a cluster: ledgers on bookies, metadata in ZooKeeper, both shared with other brokers.
//!
//! What only the one user of a store may do is not done here: nothing is deleted because this broker knows no name for it, and no
//! directory of this machine is needed.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use pharos_bookkeeper::BookKeeper;
use pharos_broker_admin::{BookieStore, MetricFamily, MetricKind};
use pharos_catalog::{Carriers, Catalog};
use pharos_cluster::{Balancer, BrokerAddresses, BundleOwnership, Ownership as _, SessionOptions};
use pharos_ledger::LedgerEngine as _;
use pharos_metadata::{Expect, Measured, MetadataLayout, MetadataStore, WriteError};
use pharos_pulsar::Server;
use pharos_zookeeper::ZooKeeper;

use crate::broker::Front;
use crate::cluster_metrics;
use crate::settings::ClusterSettings;
use crate::storage_metrics::family;

/// Path of the ledgers below the metadata, as in Pulsar.
const LEDGERS: &str = "ledgers";

/// Says that the metadata below it is Pharos's. Pulsar's has other values under the same names.
const MARK: &str = "pharos";
const MARK_VALUE: &[u8] = br#"{"format":1}"#;

/// Paths that Pulsar's metadata always has.
const OF_PULSAR: [&str; 3] = ["admin/", "managed-ledgers/", "loadbalance/"];

/// Path of Pulsar's clusters.
const CLUSTERS_OF_PULSAR: &str = "admin/clusters/";

/// Path of broker registrations, of Pulsar and of Pharos.
const REGISTERED: &str = "loadbalance/brokers/";

/// The stores of a cluster.
pub(crate) struct Cluster {
    pub(crate) ledgers: Arc<BookKeeper>,
    pub(crate) metadata: Arc<Measured>,
    /// Metadata store in which bookies register, if that is another part of ZooKeeper.
    of_bookies: Option<Arc<Measured>>,
    /// Bookies that a new ledger takes.
    ensemble: usize,
}

impl Cluster {
    /// Connects to ZooKeeper at `address` and asks it for the bookies.
    ///
    /// # Errors
    /// They cannot be reached, or the metadata is not Pharos's.
    pub(crate) async fn open(settings: &ClusterSettings, address: &str) -> anyhow::Result<Arc<Self>> {
        let cluster = Self::connect(settings, address, true).await?;
        let bookies = cluster.ledgers.bookies();
        if bookies < cluster.ensemble {
            tracing::warn!(
                bookies,
                wanted = cluster.ensemble,
                "too few bookies take writes; no ledger is made until there are enough"
            );
        }
        Ok(Arc::new(cluster))
    }

    /// Connects to inspect the data of Pulsar's own brokers, which may still be running; nothing is changed.
    ///
    /// # Errors
    /// They cannot be reached, or the metadata is not of Pulsar's layout.
    pub(crate) async fn look(settings: &ClusterSettings, address: &str) -> anyhow::Result<Self> {
        Self::connect(settings, address, false).await
    }

    async fn connect(settings: &ClusterSettings, address: &str, is_to_serve: bool) -> anyhow::Result<Self> {
        let connect = async |address: &str| {
            let options = settings.zookeeper_options()?;
            let store = ZooKeeper::connect(address, settings.session_timeout, options).await?;
            anyhow::Ok(Arc::new(Measured::new(Arc::new(store))))
        };
        let metadata = connect(address).await?;
        match settings.metadata_layout {
            _ if !is_to_serve => check_pulsars(&*metadata, address).await?,
            MetadataLayout::Pharos => take_over(&*metadata, address).await?,
            MetadataLayout::Pulsar => stand_in(&*metadata, address).await?,
        }
        let (of_bookies, root) = match settings.bookkeeper_uri.parts() {
            None => (None, LEDGERS),
            Some((above, root)) => (Some(connect(&above).await?), root),
        };
        let quorum = settings.quorum().map_err(anyhow::Error::msg)?;
        let tls = settings.tls.options().map(|tls| tls.client_config());
        let tls = tls.transpose().context("cannot encrypt connections to bookies")?;
        let frame_bytes_max = usize::try_from(settings.max_frame_size.0).unwrap_or(usize::MAX);
        let options = pharos_bookkeeper::Options {
            quorum,
            placement: settings.placement(),
            force_interval: settings.force_interval,
            explicit_lac_interval: Some(settings.explicit_lac_interval)
                .filter(|interval| !interval.is_zero()),
            entry_bytes_max: pharos_bookkeeper::entry_bytes_max(frame_bytes_max),
            tls,
            login: settings.login.read("bookkeeper")?,
            custom: [("application".to_owned(), application(settings.metadata_layout))].into(),
            ..pharos_bookkeeper::Options::default()
        };
        let ledgers_in: Arc<dyn MetadataStore> = match &of_bookies {
            Some(store) => store.clone(),
            None => metadata.clone(),
        };
        let ledgers = BookKeeper::start(options, ledgers_in, root)
            .await
            .context("cannot ask for bookies")?;
        Ok(Self {
            ledgers: Arc::new(ledgers),
            metadata,
            of_bookies,
            ensemble: quorum.ensemble(),
        })
    }

    /// The bookies, and where it is written down where they stand.
    pub(crate) fn bookies(&self) -> BookieStore {
        let ledgers = self.ledgers.clone();
        BookieStore {
            writable: Box::new(move || ledgers.writable()),
            metadata: self.of_bookies.clone().unwrap_or_else(|| self.metadata.clone()),
            racks_key: pharos_bookkeeper::Options::default().racks_key,
        }
    }

    /// Topic ownership among the brokers of this metadata.
    pub(crate) fn ownership(&self, settings: &ClusterSettings, catalog: &Catalog) -> Arc<BundleOwnership> {
        let bundles = catalog.clone();
        let options = SessionOptions {
            timeout: settings.session_timeout,
            outage_max: settings.outage_max.as_option().copied(),
        };
        let bundle_of = Box::new(move |topic: &_| bundles.bundle_of(topic));
        let ownership = BundleOwnership::new(self.metadata.clone(), options, bundle_of);
        let policies = catalog.clone();
        ownership.restrict(Box::new(move |namespace, brokers| {
            policies.clusters().isolation().candidates(namespace, brokers)
        }));
        let carried = catalog.clone();
        ownership.keep_apart(Box::new(move |bundle| Carriers::of(&carried).apart_from(bundle)));
        Balancer::of(ownership.clone()).set_options(settings.load_balancer.options());
        ownership
    }

    /// Reason why this broker is not ready.
    pub(crate) fn why_not_ready(&self, ownership: &BundleOwnership) -> Option<String> {
        if let Some(outage) = ownership.lapsed_for() {
            return Some(format!("metadata cannot be reached for {} s", outage.as_secs()));
        }
        if !ownership.is_registered() {
            return Some("it is not registered with the other brokers".to_owned());
        }
        let bookies = self.ledgers.bookies();
        (bookies < self.ensemble)
            .then(|| format!("{bookies} bookies take writes, {} are needed", self.ensemble))
    }

    /// For the metrics page.
    pub(crate) fn families(&self, ownership: &BundleOwnership) -> Vec<MetricFamily> {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let mut families = vec![
            family(
                "pharos_cluster_brokers",
                "Brokers that are registered, this one among them.",
                MetricKind::Gauge,
                count(ownership.brokers().map_or(0, |brokers| brokers.len())),
            ),
            family(
                "pharos_cluster_bookies",
                "Bookies that take writes.",
                MetricKind::Gauge,
                count(self.ledgers.bookies()),
            ),
            family(
                "pharos_cluster_metadata_outage_seconds",
                "How long the metadata store has not been reached; 0 while it is.",
                MetricKind::Gauge,
                ownership.lapsed_for().map_or(0, |outage| outage.as_secs().max(1)),
            ),
        ];
        families.extend(cluster_metrics::bookkeeper(&self.ledgers.figures()));
        let stores = [
            Some(("metadata-store", &self.metadata)),
            self.of_bookies.as_ref().map(|store| ("bookkeeper-store", store)),
        ];
        let stores: Vec<_> = stores.into_iter().flatten().collect();
        families.extend(cluster_metrics::metadata(&stores));
        families
    }

    /// Ends what the broker used; nothing is asked of it any more.
    pub(crate) async fn shutdown(&self) {
        self.ledgers.shutdown().await;
        if let Some(store) = &self.of_bookies {
            store.shutdown().await;
        }
        self.metadata.shutdown().await;
    }
}

/// Addresses for clients and other brokers.
pub(crate) fn addresses(front: &Front, server: &Server) -> BrokerAddresses {
    BrokerAddresses {
        native_url: server.service_url.clone(),
        native_url_tls: server.service_url_tls.clone(),
        http_url: format!("http://{}:{}", front.host, front.http.port()),
        http_url_tls: front.https_url(),
        advertised_listeners: server.listeners.clone(),
        ..BrokerAddresses::default()
    }
}

/// Makes sure that the metadata is Pharos's: marks it when there is none, and refuses that of Pulsar's own brokers, which has other
/// values under the same names.
async fn take_over(store: &dyn MetadataStore, address: &str) -> anyhow::Result<()> {
    for _ in 0..2 {
        if let Some(mark) = store.get(MARK).await.context("cannot read the metadata")? {
            if mark.value == MARK_VALUE {
                return Ok(());
            }
            bail!(
                "zk:{address} holds metadata of another release of Pharos: {}",
                String::from_utf8_lossy(&mark.value)
            );
        }
        let mut found = Vec::new();
        for prefix in OF_PULSAR {
            found.extend(store.list(prefix).await.context("cannot read the metadata")?);
        }
        // Another broker may be at it: its mark comes first.
        if found.is_empty() {
            match store
                .put(MARK, Bytes::from_static(MARK_VALUE), Expect::Absent)
                .await
            {
                Ok(_) => return Ok(()),
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(error).context("cannot write the metadata"),
            }
        } else if store
            .get(MARK)
            .await
            .context("cannot read the metadata")?
            .is_none()
        {
            bail!(
                "zk:{address} holds metadata that Pharos did not make, such as {}. Give Pharos a path of its own, metadata = \
                 zk:host:port/path, and say in bookkeeper.metadata_service_uri where the bookies are registered; or, if it is that of \
                 Pulsar's own brokers and they are stopped, let it stand in for them with metadata_layout = pulsar",
                found.first().map_or("", String::as_str)
            );
        }
    }
    bail!("zk:{address} is being set up by another broker; start this one again")
}

/// Application name in ledger metadata: Pulsar's tools look for it.
fn application(layout: MetadataLayout) -> Bytes {
    Bytes::from_static(match layout {
        MetadataLayout::Pharos => b"pharos",
        MetadataLayout::Pulsar => b"pulsar",
    })
}

/// Makes sure that the metadata is of Pulsar's layout, and that none of its own brokers is at it: the two share no bundles.
async fn stand_in(store: &dyn MetadataStore, address: &str) -> anyhow::Result<()> {
    check_pulsars(store, address).await?;
    let brokers = store.scan(REGISTERED).await.context("cannot read the metadata")?;
    let java = brokers.iter().find(|broker| !is_pharos(&broker.value));
    if let Some(java) = java {
        bail!(
            "the broker {} of Pulsar runs on zk:{address}: stop all of Pulsar's own brokers first. One that was killed is registered \
             until its session with ZooKeeper ends",
            java.key.trim_start_matches(REGISTERED)
        );
    }
    Ok(())
}

/// Makes sure that the metadata is of Pulsar's layout.
async fn check_pulsars(store: &dyn MetadataStore, address: &str) -> anyhow::Result<()> {
    if store
        .get(MARK)
        .await
        .context("cannot read the metadata")?
        .is_some()
    {
        bail!(
            "zk:{address} holds metadata of Pharos's own layout, and nothing of Pulsar's brokers: metadata_layout = pharos goes on with it"
        );
    }
    let clusters = store.list(CLUSTERS_OF_PULSAR).await;
    if clusters.context("cannot read the metadata")?.is_empty() {
        bail!(
            "zk:{address} holds no metadata of Pulsar: there is no cluster below {CLUSTERS_OF_PULSAR}. metadata_layout = pulsar goes on \
             with what Pulsar's own brokers left; say where that is, metadata = zk:host:port/path"
        );
    }
    Ok(())
}

/// True if a broker's registration is of Pharos: a load report that says so, or, before the first one, nothing but
/// addresses.
fn is_pharos(registration: &[u8]) -> bool {
    let Ok(registration) = serde_json::from_slice::<serde_json::Value>(registration) else {
        return false;
    };
    match registration.get("brokerVersionString") {
        Some(version) => version
            .as_str()
            .is_some_and(|version| version.starts_with("pharos-")),
        None => registration.get("loadReportType").is_none(),
    }
}

#[cfg(test)]
mod tests {
    use pharos_metadata::Memory;

    use super::*;

    #[tokio::test]
    async fn metadata_that_pharos_did_not_make_is_left_alone() {
        let store = Memory::new();
        store
            .put("admin/clusters/pc", Bytes::from_static(b"{}"), Expect::Absent)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let refused = take_over(&store, "a:1").await;
        assert!(refused.is_err_and(|error| error.to_string().contains("admin/clusters/pc")));
        assert!(store.get(MARK).await.is_ok_and(|mark| mark.is_none()));
    }

    #[tokio::test]
    async fn metadata_is_marked_once_and_known_again() {
        let store = Memory::new();
        for _ in 0..2 {
            assert!(take_over(&store, "a:1").await.is_ok());
            let facts = store
                .put("admin/clusters/c", Bytes::from_static(b"{}"), Expect::Any)
                .await;
            assert!(facts.is_ok());
        }
        let newer = store
            .put(MARK, Bytes::from_static(b"{\"format\":2}"), Expect::Any)
            .await;
        assert!(newer.is_ok());
        assert!(take_over(&store, "a:1").await.is_err());
    }

    #[tokio::test]
    async fn nothing_is_taken_from_brokers_of_pulsar_that_run() {
        let store = Memory::new();
        let refusal = async || match stand_in(&store, "a:1").await {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        assert!(refusal().await.contains("no metadata of Pulsar"));
        let put = async |key: &str, value: &'static str| {
            let put = store.put(key, Bytes::from(value), Expect::Any).await;
            assert!(put.is_ok());
        };
        put("admin/clusters/pc", "{}").await;
        assert_eq!(refusal().await, "");
        put("loadbalance/brokers/a:8080", r#"{"nativeUrl":"pulsar://a:6650"}"#).await;
        put(
            "loadbalance/brokers/b:8080",
            r#"{"brokerVersionString":"pharos-0.1.0","loadReportType":"LocalBrokerData"}"#,
        )
        .await;
        assert_eq!(refusal().await, "");
        put(
            "loadbalance/brokers/c:8080",
            r#"{"brokerVersionString":"4.2.4","loadReportType":"LocalBrokerData"}"#,
        )
        .await;
        assert!(refusal().await.contains("c:8080"));
        put(MARK, r#"{"format":1}"#).await;
        assert!(refusal().await.contains("metadata_layout = pharos"));
    }
}
