//! `pharos serve`: start everything, say so, wait for the word, stop everything.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;

use pharos_runtime::Shutdown;

use crate::broker::{RunningBroker, start_broker};
use crate::settings::{Effective, Settings};
use crate::signals::StopSignals;
use crate::{limits, logging};

/// Threads of the runtime for admin and metadata work. Data has threads of its own.
const HTTP_THREADS: usize = 2;

/// Runs a node until it is told to stop.
pub(crate) fn serve(effective: &Effective) -> anyhow::Result<()> {
    let settings = &effective.settings;
    logging::init(settings.log_format, &settings.log_level);
    let open_files = limits::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(HTTP_THREADS)
        .thread_name("http")
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), data_dir = %settings.data_dir.display(), open_files, "starting");
    runtime.block_on(run(settings))
}

async fn run(settings: &Settings) -> anyhow::Result<()> {
    let mut signals = StopSignals::install().context("cannot wait for signals")?;
    let listener = TcpListener::bind(settings.http_listen).await.with_context(|| {
        format!(
            "cannot listen on {} for HTTP; choose another http_listen",
            settings.http_listen
        )
    })?;
    let http_address = listener.local_addr()?;
    let broker = tokio::select! {
        broker = start_broker(settings) => broker?,
        signal = signals.next() => {
            tracing::info!(signal, "stopped while starting");
            return Ok(());
        }
    };
    let shutdown = Shutdown::default();
    let advertised = advertised_host(settings, broker.pulsar_address);
    tracing::info!(pulsar = %broker.pulsar_address, http = %http_address, advertised, "ready");
    announce(broker.pulsar_address, http_address)?;

    let signal = signals.next().await;
    tracing::info!(signal, "stopping; a second signal ends the process at once");
    tokio::select! {
        biased;
        _ = signals.next() => {
            tracing::warn!("second signal; exiting at once");
            std::process::exit(130);
        }
        stopped = stop(broker, shutdown, settings.shutdown_timeout) => stopped,
    }
}

/// Stops from the outside in: the HTTP door first, since what it would change is about to close.
async fn stop(broker: RunningBroker, shutdown: Shutdown, timeout: Duration) -> anyhow::Result<()> {
    let steps = async {
        shutdown.trigger();
        broker.stop().await;
    };
    tokio::time::timeout(timeout, steps)
        .await
        .context("not everything stopped in time; see shutdown_timeout")?;
    tracing::info!("stopped");
    Ok(())
}

/// One line per door on standard output, for people and for scripts that wait for it; the rest goes to the log.
fn announce(pulsar: SocketAddr, http: SocketAddr) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "clients: pulsar://{pulsar}")?;
    writeln!(out, "admin: http://{http}")?;
    out.flush()?;
    if pulsar.ip().is_loopback() && http.ip().is_loopback() {
        tracing::info!(
            "listening on loopback only; set pulsar_listen and http_listen to take clients from other machines"
        );
    } else {
        tracing::warn!(
            "listening beyond this machine without authentication; anyone who can connect may do anything"
        );
    }
    Ok(())
}

/// The host told to clients.
pub(crate) fn advertised_host(settings: &Settings, listening: SocketAddr) -> String {
    if !settings.advertised_address.is_empty() {
        return settings.advertised_address.clone();
    }
    match listening.ip() {
        ip if ip.is_unspecified() => {
            let name = rustix::system::uname();
            name.nodename().to_string_lossy().into_owned()
        }
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    }
}
