//! Accepting connections and serving them until it is time to stop.
//!
//! Owned by one task; connections are its children. Always true: at most [`CONNECTIONS_MAX`] connections are open, and
//! none waits longer than [`HEADER_TIMEOUT`] for a request, so a silent client holds nothing for ever.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use pharos_runtime::ShutdownToken;

const CONNECTIONS_MAX: usize = 1024;
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest request line and headers.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Serves `router` on `listener` until `stop`; then closes idle connections, lets running requests finish and returns.
///
/// Cancel safety: dropping the future closes every connection at once.
pub async fn serve(listener: TcpListener, router: Router, stop: ShutdownToken) {
    let mut connections = JoinSet::new();
    let mut stopping = stop.clone();
    loop {
        tokio::select! {
            biased;
            () = stopping.triggered() => break,
            Some(ended) = connections.join_next() => report(ended),
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(connection(stream, peer, router.clone(), stop.clone()));
                }
                Err(error) => accept_failed(&error).await,
            },
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router, mut stop: ShutdownToken) {
    // Answers are small and written at once; waiting to fill a packet only adds latency.
    let _ = stream.set_nodelay(true);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop.triggered() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "admin connection ended");
    }
}

/// Running out of descriptors is the usual cause; trying again at once would spin.
async fn accept_failed(error: &io::Error) {
    tracing::warn!(%error, "cannot accept an admin connection");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "an admin request panicked");
    }
}
