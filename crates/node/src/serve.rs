//! `pharos serve`: start everything, say so, wait for the word, stop everything.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use pharos_admin::{Admin, AdminOptions, BrokerClient, router};
use pharos_runtime::{Awake, Shutdown};
use pharos_transport::{Listener, Quota};
use pharos_websocket::WebSocketDoor;
use rustix::fs::Mode;
use tokio::task::JoinSet;

use crate::broker::{Front, RunningBroker, start_broker};
use crate::files::Files;
use crate::settings::table::SETTINGS;
use crate::settings::{Effective, Settings};
use crate::signals::StopSignals;
use crate::tls::Entrances;
use crate::{limits, logging};

/// Threads of the runtime for admin and metadata work. Data has threads of its own.
const HTTP_THREADS: usize = 2;

/// Time for running admin requests to finish when the node stops.
const HTTP_GRACE: Duration = Duration::from_secs(2);

/// Runs a node until it is told to stop.
pub(crate) fn serve(effective: &Effective) -> anyhow::Result<()> {
    let settings = &effective.settings;
    logging::init(settings.log_format, &settings.log_level);
    keep_to_the_owner(&settings.data_dir);
    let open_files = limits::raise_open_files();
    // Held until the end.
    let _awake = keep_awake(settings.keep_cpus_awake)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(HTTP_THREADS)
        .thread_name("pharos-http")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        data_dir = %settings.data_dir.display(),
        open_files,
        "starting"
    );
    let outcome = runtime.block_on(run(effective, Files::new(open_files)));
    // What did not stop in time must not keep the process alive.
    runtime.shutdown_background();
    outcome
}

/// Makes files created from now on readable by their owner alone: directories get mode 0700, files 0600. Existing
/// files keep their modes.
fn keep_to_the_owner(data_dir: &Path) {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let found = std::fs::metadata(data_dir).map(|found| found.permissions().mode());
    if found.is_ok_and(|mode| mode & 0o077 != 0) {
        tracing::warn!(data_dir = %data_dir.display(), "the data directory is open to other users of this machine; chmod 700 it");
    }
}

fn keep_awake(is_wanted: bool) -> anyhow::Result<Option<Awake>> {
    is_wanted.then(Awake::ask).transpose().context(
        "keep_cpus_awake: cannot ask the system through /dev/cpu_dma_latency, which mostly needs root",
    )
}

async fn run(effective: &Effective, files: Files) -> anyhow::Result<()> {
    let settings = &effective.settings;
    let mut signals = StopSignals::install().context("cannot wait for signals")?;
    let host = advertised_host(settings);
    let entrances = Entrances::open(settings, &host)?;
    let listeners = http_listeners(settings, &entrances)?;
    let mut addresses = listeners.iter().map(Listener::local_address);
    let front = Front {
        host,
        http: addresses.next().unwrap_or(settings.http_listen),
        http_tls: addresses.next(),
        entrances,
    };
    let broker = tokio::select! {
        broker = start_broker(settings, &front, files) => broker?,
        signal = signals.next() => {
            tracing::info!(signal, "stopped while starting");
            return Ok(());
        }
    };
    let shutdown = Shutdown::default();
    let mut http = JoinSet::new();
    let web_socket = crate::web_socket::open(settings, &broker, files, shutdown.token());
    let (web_socket, sessions) = web_socket.unzip();
    if let Some(sessions) = sessions {
        http.spawn(sessions.run());
    }
    let router = router(admin(effective, &broker, &front, web_socket)?);
    let acceptors: std::io::Result<Vec<_>> = listeners.into_iter().map(Listener::start).collect();
    http.spawn(pharos_admin::serve(
        acceptors.context("cannot accept HTTP connections")?,
        router,
        files.http_max(),
        shutdown.token(),
    ));
    // Ends with the process.
    let mut upkeep = JoinSet::new();
    upkeep.spawn(front.entrances.clone().keep_fresh());
    upkeep.spawn(crate::identity::keep_revoked_fresh(broker.authentication.clone()));
    upkeep.spawn(crate::memory::give_back_when_quiet());
    announce(settings, &broker, &front)?;

    let signal = signals.next().await;
    tracing::info!(signal, "stopping; a second signal ends the process at once");
    tokio::select! {
        biased;
        _ = signals.next_on_purpose() => {
            tracing::warn!("second signal; exiting at once");
            std::process::exit(130);
        }
        stopped = stop(broker, http, &shutdown, settings.shutdown_timeout) => stopped,
    }
}

/// Listeners of the HTTP server: plain, then over TLS if enabled.
fn http_listeners(settings: &Settings, entrances: &Entrances) -> anyhow::Result<Vec<Listener>> {
    let bind = |address: SocketAddr, setting: &str| {
        Listener::bind(address)
            .with_context(|| format!("cannot listen on {address} for HTTP; choose another {setting}"))
    };
    let mut plain = bind(settings.http_listen, "http_listen")?;
    if let Some(entrance) = &entrances.http {
        plain = plain.through(entrance.clone());
    }
    let mut listeners = vec![plain];
    if let Some((address, entrance)) = &entrances.http_tls {
        listeners.push(bind(*address, "http_listen_tls")?.through(entrance.clone()));
    }
    let addresses = Quota::new(settings.limits.per_address());
    let counted = listeners
        .into_iter()
        .map(|listener| listener.counted(addresses.clone()));
    Ok(counted.collect())
}

fn admin(
    effective: &Effective,
    broker: &RunningBroker,
    front: &Front,
    web_socket: Option<WebSocketDoor>,
) -> anyhow::Result<Admin> {
    let settings = &effective.settings;
    let options = AdminOptions {
        access: broker.access.clone(),
        authentication: broker.authentication.clone(),
        request_rates: settings.limits.of_http(),
        broker_client: broker_client(settings)?,
        allowed_hosts: allowed_hosts(settings, &front.host),
        cluster_name: settings.cluster_name.clone(),
        broker_url: broker.pulsar.service_url.clone(),
        broker_url_tls: broker.pulsar.service_url_tls.clone(),
        listeners: broker.pulsar.listeners.clone(),
        http_url: format!("http://{}:{}", front.host, front.http.port()),
        http_url_tls: front.https_url(),
        message_bytes_max: u32::try_from(settings.protocol.max_message_size.0).unwrap_or(u32::MAX),
        settings: SETTINGS
            .iter()
            .map(|row| (row.key.to_owned(), (row.get)(settings)))
            .collect(),
        metadata_store_url: settings.cluster.metadata.to_string(),
        ledgers_root_path: settings.cluster.ledgers_root_path(),
        topic_metrics: settings.metrics.topics,
        force_delete_namespace: settings.topics.force_delete_namespace_allowed,
        force_delete_tenant: settings.topics.force_delete_tenant_allowed,
        transactions: broker.transactions.clone(),
        web_socket,
        web_socket_origins: settings.web_socket.allowed_origins.0.to_vec(),
        bundle_division: settings.cluster.load_balancer.split_algorithm.0,
    };
    Ok(Admin::new(broker.admin.clone(), options))
}

/// Client for requests to other brokers over TLS.
fn broker_client(settings: &Settings) -> anyhow::Result<Option<BrokerClient>> {
    let Some(options) = settings.cluster.broker_tls.options() else {
        return Ok(None);
    };
    options.client_config().context("broker_client.tls")?;
    let shows_certificate = options.certificate_file.is_some();
    let config = move || options.client_config().map_err(std::io::Error::other);
    Ok(Some(BrokerClient::new(config, shows_certificate)))
}

/// Names by which this machine may be asked over loopback.
fn allowed_hosts(settings: &Settings, host: &str) -> Vec<String> {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let named = settings.http_allowed_hosts.0.iter().cloned();
    named.chain([machine, host.to_owned()]).collect()
}

/// Stops from the outside in: the HTTP server first, since what it would ask is about to close.
async fn stop(
    broker: RunningBroker,
    mut http: JoinSet<()>,
    shutdown: &Shutdown,
    timeout: Duration,
) -> anyhow::Result<()> {
    let steps = async {
        shutdown.trigger();
        let finishing = async { while http.join_next().await.is_some() {} };
        if tokio::time::timeout(HTTP_GRACE, finishing).await.is_err() {
            tracing::warn!("HTTP requests and WebSockets that did not finish are given up");
        }
        drop(http);
        broker.stop().await;
    };
    tokio::time::timeout(timeout, steps)
        .await
        .context("not everything stopped in time; see shutdown_timeout")?;
    tracing::info!("stopped");
    Ok(())
}

/// Prints one line per listener on standard output, for people and for scripts that wait for it; the rest goes to the
/// log.
fn announce(settings: &Settings, broker: &RunningBroker, front: &Front) -> anyhow::Result<()> {
    let is_asked = broker.authentication.is_on();
    let (pulsar, http) = (broker.pulsar.local_address, front.http);
    tracing::info!(%pulsar, %http, advertised = broker.pulsar.service_url, "ready");
    let mut out = std::io::stdout().lock();
    writeln!(out, "clients: pulsar://{pulsar}")?;
    writeln!(out, "admin: http://{http}")?;
    if let Some(address) = broker.pulsar.local_address_tls {
        writeln!(out, "clients over TLS: pulsar+ssl://{address}")?;
    }
    if let Some(address) = front.http_tls {
        writeln!(out, "admin over TLS: https://{address}")?;
    }
    if let Some(certificate) = &front.entrances.self_signed {
        writeln!(
            out,
            "certificate to trust: {} (--tls-trust-certs)",
            certificate.display()
        )?;
    }
    out.flush()?;
    // Over TLS that asks for certificates the clients are known.
    let asks = settings.tls.require_trusted_client_cert_on_connect;
    let tls = [broker.pulsar.local_address_tls, front.http_tls]
        .into_iter()
        .flatten();
    let mut open = [pulsar, http].into_iter().chain(tls.filter(|_| !asks));
    if open.all(|address| address.ip().is_loopback()) {
        tracing::info!(
            "listening on loopback only; set pulsar_listen and http_listen to take clients from other machines"
        );
    } else if !is_asked {
        tracing::warn!(
            "listening beyond this machine without authentication; anyone who can connect may do anything"
        );
    }
    Ok(())
}

/// The host told to clients. A listener on all addresses says nothing about how it is reached, so clients are sent to
/// this machine, as Pulsar's standalone does; `advertised_address` sends them elsewhere.
fn advertised_host(settings: &Settings) -> String {
    if !settings.advertised_address.is_empty() {
        return settings.advertised_address.clone();
    }
    match settings.pulsar_listen.ip() {
        ip if ip.is_unspecified() => {
            tracing::warn!(
                "clients are sent to 127.0.0.1; set advertised_address to take them from other machines"
            );
            "127.0.0.1".to_owned()
        }
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    }
}
