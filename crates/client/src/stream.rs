//! The bytes of a connection, whatever carries them.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::{ClientError, TlsOptions};

/// URL scheme for TLS.
const TLS_SCHEME: &str = "pulsar+ssl://";
/// URL scheme without TLS.
const PLAIN_SCHEME: &str = "pulsar://";

/// The direction from the broker.
pub(crate) type Incoming = Box<dyn AsyncRead + Send + Unpin>;
/// The direction to the broker.
pub(crate) type Outgoing = Box<dyn AsyncWrite + Send + Unpin>;

/// Parsed address of a broker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address<'a> {
    /// `host:port`.
    pub(crate) authority: &'a str,
    /// Without port and brackets.
    pub(crate) host: &'a str,
    pub(crate) is_tls: bool,
}

impl<'a> Address<'a> {
    /// Reads `host:port`, also behind one of the two schemes.
    pub(crate) fn parse(text: &'a str) -> Result<Self, ClientError> {
        let (authority, is_tls) = match text.strip_prefix(TLS_SCHEME) {
            Some(rest) => (rest, true),
            None => (text.strip_prefix(PLAIN_SCHEME).unwrap_or(text), false),
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
        if port.parse::<u16>().is_err() || authority.contains("://") {
            return Err(ClientError::Address(text.to_owned()));
        }
        Ok(Self {
            authority,
            host: host.trim_matches(['[', ']']),
            is_tls,
        })
    }
}

/// Connects there, and shakes hands if that is TLS.
pub(crate) async fn connect(address: &str, tls: &TlsOptions) -> Result<(Incoming, Outgoing), ClientError> {
    let address = Address::parse(address)?;
    let failed = |cause: io::Error| ClientError::Connect {
        address: address.authority.to_owned(),
        cause: Arc::new(cause),
    };
    let stream = TcpStream::connect(address.authority).await.map_err(failed)?;
    // A request must not wait for the answer to the one before it. Without this it is only slower.
    let _ = stream.set_nodelay(true);
    if !address.is_tls {
        return Ok(halves(stream));
    }
    let name = ServerName::try_from(address.host.to_owned())
        .map_err(|_| ClientError::Address(address.authority.to_owned()))?;
    let connector = TlsConnector::from(tls.client_config()?);
    let stream = connector.connect(name, stream).await.map_err(failed)?;
    let (incoming, outgoing) = tokio::io::split(stream);
    Ok((Box::new(incoming), Box::new(outgoing)))
}

/// The two directions of a TCP stream.
pub(crate) fn halves(stream: TcpStream) -> (Incoming, Outgoing) {
    let (incoming, outgoing) = stream.into_split();
    (Box::new(incoming), Box::new(outgoing))
}

/// The two directions of a stream to a broker in this process.
pub(crate) fn halves_inside(stream: UnixStream) -> (Incoming, Outgoing) {
    let (incoming, outgoing) = stream.into_split();
    (Box::new(incoming), Box::new(outgoing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_whether_it_is_tls() {
        let read = |text| Address::parse(text).map(|it| (it.authority, it.host, it.is_tls));
        assert_eq!(read("a:1").unwrap(), ("a:1", "a", false));
        assert_eq!(read("pulsar://a:1/").unwrap(), ("a:1", "a", false));
        assert_eq!(
            read("pulsar+ssl://[::1]:6651").unwrap(),
            ("[::1]:6651", "::1", true)
        );
        for wrong in [
            "",
            "a",
            "a:b",
            "http://a:1",
            "pulsar+ssl://",
            "pulsar://pulsar://a:1",
        ] {
            assert!(matches!(read(wrong), Err(ClientError::Address(_))), "{wrong}");
        }
    }
}
