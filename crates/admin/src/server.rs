//! Accepting connections and serving them until it is time to stop.
//!
//! Owned by one task; connections are its children. Always true: about [`CONNECTIONS_MAX`] connections are open at most, none
//! waits longer than [`HEADER_TIMEOUT`] for a request, and a newcomer gets in at once whatever silent or slow clients hold
//! ([`Connections`]). One that becomes a WebSocket is no longer among them.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::task::JoinSet;

use pharos_auth::{Door, Principal};
use pharos_runtime::{ShutdownToken, clock};
use pharos_transport::{Acceptor, Incoming};

use crate::connections::{Connections, Place};
use crate::origin::CameFrom;
use crate::redirect::Encrypted;

/// A request's extension: where it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAt(pub(crate) SocketAddr);

/// Connections that are open and not about to close, where files allow it.
pub const CONNECTIONS_MAX: usize = 1024;
/// Grace period for a connection that should close to finish its response.
const LEAVE_GRACE: Duration = Duration::from_secs(1);
/// Answer to a client whose address has too many connections.
const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest request line and headers.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Serves `router` to those who connect to any of `acceptors` until `stop`, at most `connections_max` connections at once and an eighth more that are about
/// to close; then closes idle connections, lets running requests finish and returns.
///
/// Cancel safety: dropping the future closes every connection at once.
pub async fn serve(acceptors: Vec<Acceptor>, router: Router, connections_max: usize, stop: ShutdownToken) {
    let mut connections = JoinSet::new();
    let open = Connections::default();
    let mut stopping = stop.clone();
    let leaving_max = connections_max.div_ceil(8);
    loop {
        tokio::select! {
            biased;
            () = stopping.triggered() => break,
            Some(ended) = connections.join_next() => report(ended),
            incoming = accept(&acceptors), if connections.len() < connections_max + leaving_max => {
                let peer = incoming.address();
                let mut incoming = incoming;
                if let Err(error) = incoming.count() {
                    tracing::debug!(%peer, %error, "an admin connection is refused: its address has enough");
                    incoming.dismiss(TOO_MANY);
                    continue;
                }
                match open.enter(connections_max, leaving_max, peer.ip(), clock::now()) {
                    Some(place) => {
                        connections.spawn(connection(incoming, place, router.clone(), stop.clone()));
                    }
                    None => {
                        tracing::debug!(%peer, "an admin connection found no room: all others are busy");
                    }
                }
            }
        }
    }
    drop(acceptors);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

/// The next connection of whichever has one.
///
/// Cancel safety: no connection is lost.
async fn accept(acceptors: &[Acceptor]) -> Incoming {
    let mut accepting: Vec<_> = acceptors
        .iter()
        .map(|acceptor| Box::pin(acceptor.accept()))
        .collect();
    poll_fn(|context| {
        let mut polled = accepting
            .iter_mut()
            .map(|accepting| accepting.as_mut().poll(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

async fn connection(incoming: Incoming, place: Place, router: Router, mut stop: ShutdownToken) {
    let peer = incoming.address();
    // A peer that takes long to shake hands makes room as a silent one does.
    let established = tokio::select! {
        established = incoming.establish() => established,
        () = stop.triggered() => return,
        () = place.asked_to_leave() => return tracing::debug!(%peer, "an admin connection that shakes hands is closed to make room"),
    };
    let stream = match established {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%peer, %error, "cannot take an admin connection in"),
    };
    let peer = stream.peer_address();
    let certificate = stream.peer_certificate().cloned();
    let is_encrypted = stream.is_encrypted();
    let router = TowerToHyperService::new(router);
    let requests = place.requests();
    let who = Principal::anonymous(format!("/{peer}")).by(Door::Http);
    let came_from = CameFrom(peer.ip());
    let peer_address = PeerAt(peer);
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let (parts, body) = request.into_parts();
        let (busy, body) = requests.begin(body);
        let mut request = hyper::Request::from_parts(parts, body);
        request.extensions_mut().insert(who.clone());
        if is_encrypted {
            request.extensions_mut().insert(Encrypted);
        }
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        request.extensions_mut().insert(came_from);
        request.extensions_mut().insert(peer_address);
        let answered = router.call(request);
        async move {
            let answer = answered.await;
            drop(busy);
            answer
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut served = pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop.triggered() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
        () = place.asked_to_leave() => {
            tracing::debug!(%peer, "an admin connection is closed to make room");
            if place.is_cut() {
                return;
            }
            served.as_mut().graceful_shutdown();
            tokio::select! {
                ended = served.as_mut() => ended,
                () = tokio::time::sleep(LEAVE_GRACE) => return,
                // Others that go need its place.
                () = place.asked_to_leave() => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "admin connection ended");
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "an admin request panicked");
    }
}
