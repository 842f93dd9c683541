//! The connection by which a broker asks the owner of a partition, and what it shows there.

use std::fmt;
use std::io;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use pharos_auth::Principal;
use pharos_cluster::BrokerAddresses;
use pharos_transport::PeerCertificate;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::identify::ORIGINAL_PRINCIPAL;
use crate::redirect::Encrypted;

/// Largest answer of an owner.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// TLS client for requests to other brokers. Cheap to clone.
#[derive(Clone)]
pub struct BrokerClient {
    config: Arc<dyn Fn() -> io::Result<Arc<ClientConfig>> + Send + Sync>,
    shows_certificate: bool,
}

impl BrokerClient {
    /// `config` is read for each connection, so that changed files count; it may block. `shows_certificate`: it has one, by which
    /// owners know this broker as a proxy.
    pub fn new(
        config: impl Fn() -> io::Result<Arc<ClientConfig>> + Send + Sync + 'static,
        shows_certificate: bool,
    ) -> Self {
        let config = Arc::new(config);
        Self {
            config,
            shows_certificate,
        }
    }
}

impl fmt::Debug for BrokerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerClient")
            .field("shows_certificate", &self.shows_certificate)
            .finish_non_exhaustive()
    }
}

/// Credentials of a caller and the headers that present them to owners. Must not be printed.
pub(crate) struct Shown {
    headers: Vec<(HeaderName, HeaderValue)>,
    is_encrypted: bool,
    needs_certificate: bool,
    client: Option<BrokerClient>,
}

impl Shown {
    /// `None`: the caller is known by something that cannot be handed on.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let found = request.extensions();
        let headers = request.headers();
        let authorization = headers.get(header::AUTHORIZATION);
        let original = headers.get(ORIGINAL_PRINCIPAL);
        let certificate = found.get::<Arc<PeerCertificate>>();
        let by_certificate = authorization.is_none() && certificate.is_some_and(|it| it.is_trusted);
        let role = found.get::<Principal>().and_then(Principal::role);
        let mut shown = Self {
            headers: Vec::new(),
            is_encrypted: found.get::<Encrypted>().is_some(),
            needs_certificate: false,
            client: found.get::<Option<BrokerClient>>().cloned().flatten(),
        };
        let mut add = |name: HeaderName, value: &HeaderValue| shown.headers.push((name, value.clone()));
        let named = HeaderName::from_static(ORIGINAL_PRINCIPAL);
        match (authorization, role) {
            (Some(authorization), _) => {
                add(header::AUTHORIZATION, authorization);
                if let Some(original) = original {
                    add(named, original);
                }
            }
            // This broker asks as a proxy does, which a proxy's own client cannot be asked for through.
            (None, Some(role)) if by_certificate => {
                if original.is_some() {
                    return None;
                }
                add(named, &HeaderValue::from_str(role).ok()?);
                shown.needs_certificate = true;
            }
            (None, _) => {}
        }
        Some(shown)
    }

    /// Route to the owner: over TLS if both sides support it, and never over a connection with less protection than
    /// the caller's.
    pub(crate) fn way_to(&self, owner: &BrokerAddresses) -> Option<Way> {
        let encrypted = owner
            .http_url_tls
            .as_deref()
            .and_then(|url| host_of(url, "https://"));
        if let (Some(client), Some(host)) = (&self.client, encrypted)
            && (client.shows_certificate || !self.needs_certificate)
        {
            let (client, host) = (client.clone(), host.to_owned());
            return Some(Way::Tls(client, host));
        }
        if self.is_encrypted || self.needs_certificate {
            return None;
        }
        host_of(&owner.http_url, "http://").map(|host| Way::Plain(host.to_owned()))
    }

    /// Adds it to a request.
    pub(crate) fn put_on(&self, headers: &mut HeaderMap) {
        headers.extend(
            self.headers
                .iter()
                .cloned()
                .map(|(name, value)| (Some(name), value)),
        );
    }
}

fn host_of<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    Some(url.strip_prefix(scheme)?.trim_end_matches('/'))
}

/// Route to an owner, at `host:port`.
pub(crate) enum Way {
    Plain(String),
    Tls(BrokerClient, String),
}

impl Way {
    /// Sends one request, and reads its answer.
    ///
    /// Cancel safety: dropped, the owner may have done it or not.
    pub(crate) async fn send(self, mut request: Request) -> io::Result<(StatusCode, Bytes)> {
        let host = match &self {
            Self::Plain(host) | Self::Tls(_, host) => host,
        };
        let value = HeaderValue::from_str(host).map_err(io::Error::other)?;
        request.headers_mut().insert(header::HOST, value);
        let stream = TcpStream::connect(host).await?;
        match self {
            Self::Plain(_) => exchange(stream, request).await,
            Self::Tls(client, host) => {
                let reading = client.config.clone();
                let config = tokio::task::spawn_blocking(move || reading()).await;
                let connector = TlsConnector::from(config.map_err(io::Error::other)??);
                let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
                let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(name).map_err(io::Error::other)?;
                exchange(connector.connect(name, stream).await?, request).await
            }
        }
    }
}

async fn exchange<S>(stream: S, request: Request) -> io::Result<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let answering = async {
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        let body = to_bytes(Body::new(answer.into_body()), ANSWER_BYTES_MAX).await;
        Ok((status, body.map_err(io::Error::other)?))
    };
    // The connection has to be polled as long as the answer is read; the reader sees its end.
    let carrying = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = answering => answer,
        () = carrying => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(encrypted: bool) -> BrokerAddresses {
        BrokerAddresses {
            http_url: "http://other:8080".to_owned(),
            http_url_tls: encrypted.then(|| "https://other:8443".to_owned()),
            ..BrokerAddresses::default()
        }
    }

    fn client(shows_certificate: bool) -> BrokerClient {
        BrokerClient::new(|| Err(io::ErrorKind::Unsupported.into()), shows_certificate)
    }

    /// The scheme over which the owner is asked.
    fn way(request: &Request, encrypted: bool) -> Option<&'static str> {
        match Shown::of(request)?.way_to(&owner(encrypted))? {
            Way::Plain(host) => (host == "other:8080").then_some("http"),
            Way::Tls(_, host) => (host == "other:8443").then_some("https"),
        }
    }

    #[test]
    fn what_came_over_tls_goes_over_tls_or_nowhere() {
        let mut request = Request::new(Body::empty());
        assert_eq!(way(&request, true), Some("http"));
        request.extensions_mut().insert(Encrypted);
        assert_eq!(way(&request, true), None);
        request.extensions_mut().insert(Some(client(false)));
        assert_eq!((way(&request, true), way(&request, false)), (Some("https"), None));
        request.extensions_mut().remove::<Encrypted>();
        assert_eq!(
            (way(&request, true), way(&request, false)),
            (Some("https"), Some("http"))
        );
    }

    #[test]
    fn one_known_by_a_certificate_is_asked_for_as_a_proxy_does() {
        let mut request = Request::new(Body::empty());
        let certificate = PeerCertificate {
            common_name: Some("ann".into()),
            is_trusted: true,
            ..PeerCertificate::default()
        };
        let who = Principal::anonymous("/a").with_role("ann".into());
        request.extensions_mut().insert(Arc::new(certificate));
        request.extensions_mut().insert(who);
        request.extensions_mut().insert(Encrypted);
        request.extensions_mut().insert(Some(client(false)));
        assert_eq!(way(&request, true), None, "this broker shows none");
        request.extensions_mut().insert(Some(client(true)));
        assert_eq!((way(&request, true), way(&request, false)), (Some("https"), None));
        let mut headers = HeaderMap::new();
        Shown::of(&request).unwrap().put_on(&mut headers);
        assert_eq!(headers.get(ORIGINAL_PRINCIPAL).unwrap(), "ann");
        let insert = |request: &mut Request, name, value| {
            request
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        };
        insert(&mut request, HeaderName::from_static(ORIGINAL_PRINCIPAL), "bob");
        assert!(Shown::of(&request).is_none(), "a proxy behind a proxy");
        insert(&mut request, header::AUTHORIZATION, "Bearer x");
        let mut headers = HeaderMap::new();
        Shown::of(&request).unwrap().put_on(&mut headers);
        assert_eq!(headers.get(ORIGINAL_PRINCIPAL).unwrap(), "bob");
        assert_eq!(headers.get(header::AUTHORIZATION).unwrap(), "Bearer x");
    }
}
