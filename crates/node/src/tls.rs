//! Connection layers of each listener: TLS, PROXY headers, or none. Built from the settings, and kept up to date.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use pharos_broker_admin::{MetricFamily, MetricKind};
use pharos_transport::{
    ClientCertificates, Entrance, EntranceOptions, ProxyProtocol, Tls, TlsError, TlsOptions,
};

use crate::self_signed;
use crate::settings::{Settings, TlsSettings};
use crate::storage_metrics::family;

/// Ports that clients try first.
const PULSAR_TLS_PORT: u16 = 6651;
const HTTP_TLS_PORT: u16 = 8443;

/// The ways into all listeners.
#[derive(Clone, Debug)]
pub(crate) struct Entrances {
    /// The Pulsar protocol; `None`: connections go through nothing.
    pub(crate) pulsar: Option<Arc<Entrance>>,
    /// The Pulsar protocol over TLS.
    pub(crate) pulsar_tls: Option<(SocketAddr, Arc<Entrance>)>,
    /// The admin API.
    pub(crate) http: Option<Arc<Entrance>>,
    /// The admin API over TLS.
    pub(crate) http_tls: Option<(SocketAddr, Arc<Entrance>)>,
    /// The certificate that was made here, for clients to trust.
    pub(crate) self_signed: Option<PathBuf>,
    tls: Option<Arc<Tls>>,
    reload_interval: Duration,
}

impl Entrances {
    /// Reads the certificates; makes one where that is asked for. `host`: what clients call this machine.
    ///
    /// # Errors
    /// A file cannot be read or made, or they do not go together.
    pub(crate) fn open(settings: &Settings, host: &str) -> anyhow::Result<Self> {
        let own = &settings.tls;
        let makes_its_own = own.self_signed && own.certificate_file.is_none();
        let made = makes_its_own
            .then(|| self_signed::make(&settings.data_dir, host))
            .transpose()
            .context("cannot make a certificate")?;
        let named = own.certificate_file.clone().zip(own.key_file.clone());
        let files = made.clone().or(named).filter(|_| own.is_spoken());
        let tls = files
            .map(|(certificate, key)| Tls::load(options(own, certificate, key)))
            .transpose()
            .context("cannot speak TLS")?;
        let plain = |proxy| (proxy != ProxyProtocol::Off).then(|| entrance(own, None, proxy));
        let (pulsar, http) = (own.proxy_protocol, own.http_proxy_protocol);
        let default =
            |address: SocketAddr, port| own.self_signed.then(|| SocketAddr::new(address.ip(), port));
        let pulsar_tls = own
            .pulsar_listen
            .or_else(|| default(settings.pulsar_listen, PULSAR_TLS_PORT));
        let http_tls = own
            .http_listen
            .or_else(|| default(settings.http_listen, HTTP_TLS_PORT));
        let encrypted = |address: Option<SocketAddr>, proxy| {
            let (address, tls) = address.zip(tls.clone())?;
            Some((address, entrance(own, Some(tls), proxy)))
        };
        Ok(Self {
            pulsar: plain(pulsar),
            pulsar_tls: encrypted(pulsar_tls, pulsar),
            http: plain(http),
            http_tls: encrypted(http_tls, http),
            self_signed: made.map(|(certificate, _)| certificate),
            tls,
            reload_interval: own.cert_refresh_check_duration,
        })
    }

    /// Connection layers of the Pulsar protocol at a further address.
    ///
    /// # Errors
    /// TLS is required, and there is no certificate.
    pub(crate) fn of_door(&self, is_tls: bool) -> anyhow::Result<Option<Arc<Entrance>>> {
        if !is_tls {
            return Ok(self.pulsar.clone());
        }
        let (_, entrance) = self
            .pulsar_tls
            .as_ref()
            .context("bind_addresses has a pulsar+ssl address, which needs pulsar_listen_tls")?;
        Ok(Some(entrance.clone()))
    }

    /// Reads the certificates again from time to time, for ever.
    ///
    /// Cancel safety: what is in force stays in force.
    pub(crate) async fn keep_fresh(self) {
        let Some(tls) = self.tls.filter(|_| !self.reload_interval.is_zero()) else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(self.reload_interval).await;
            let reading = tls.clone();
            let read = tokio::task::spawn_blocking(move || reading.reload()).await;
            match read.unwrap_or_else(|error| Err(TlsError::Unusable(error.to_string()))) {
                Ok(false) => {}
                Ok(true) => tracing::info!(
                    expires_at = tls.expires_at(),
                    "changed certificates are in force for new connections"
                ),
                Err(error) => {
                    tracing::warn!(%error, "changed certificates cannot be used; the former ones stay in force");
                }
            }
        }
    }

    /// For the metrics page.
    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        let of = |entrance: &Option<Arc<Entrance>>| entrance.as_ref().map_or(0, |it| it.failed_count());
        let of_tls = |listener: &Option<(SocketAddr, Arc<Entrance>)>| {
            listener
                .as_ref()
                .map_or(0, |(_, entrance)| entrance.failed_count())
        };
        let pulsar = of(&self.pulsar) + of_tls(&self.pulsar_tls);
        let http = of(&self.http) + of_tls(&self.http_tls);
        let mut families = vec![family(
            "pharos_entrance_failures_total",
            "Connections that ended before their first byte: no TLS handshake, no certificate that is trusted, no PROXY header, or too slow.",
            MetricKind::Counter,
            pulsar + http,
        )];
        if let Some(tls) = &self.tls {
            families.push(family(
                "pharos_tls_certificate_expires_at_seconds",
                "When the certificate in force expires, in seconds since 1970.",
                MetricKind::Gauge,
                u64::try_from(tls.expires_at()).unwrap_or(0),
            ));
            families.push(family(
                "pharos_tls_certificate_reloads_total",
                "How often changed certificates came into force.",
                MetricKind::Counter,
                tls.reload_count(),
            ));
        }
        families
    }
}

fn options(settings: &TlsSettings, certificate_file: PathBuf, key_file: PathBuf) -> TlsOptions {
    let trusts = settings.trust_certs_file.is_some();
    TlsOptions {
        certificate_file,
        key_file,
        trust_certs_file: settings.trust_certs_file.clone(),
        clients: match settings {
            it if it.require_trusted_client_cert_on_connect => ClientCertificates::Required,
            it if it.allow_insecure_connection => ClientCertificates::Untrusted,
            _ if trusts => ClientCertificates::Asked,
            _ => ClientCertificates::NotAsked,
        },
        versions: settings.protocols.0.clone(),
        cipher_suites: settings.ciphers.0.clone(),
    }
}

fn entrance(settings: &TlsSettings, tls: Option<Arc<Tls>>, proxy_protocol: ProxyProtocol) -> Arc<Entrance> {
    Entrance::new(EntranceOptions {
        tls,
        proxy_protocol,
        handshake_time_max: settings.handshake_timeout,
        handshakes_max: settings.max_handshakes as usize,
        handshakes_per_address_max: settings.max_handshakes_per_address as usize,
    })
}
