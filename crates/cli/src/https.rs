//! HTTP client, for `https://` too: TLS with the same trust and certificates as over the Pulsar protocol.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use pharos_client::rustls::pki_types::ServerName;
use pharos_client::rustls::{ClientConfig, ClientConnection, StreamOwned};
use pharos_client::{ClientError, TlsOptions};
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, TcpConnector, Transport,
    TransportAdapter,
};
use ureq::{Agent, Error};

/// Returns an HTTP client, with TLS if requested.
///
/// # Errors
/// The files for TLS cannot be used.
pub(crate) fn agent(
    tls: Option<&TlsOptions>,
    timeout: Duration,
    redirects_max: u32,
) -> Result<Agent, ClientError> {
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(redirects_max)
        .user_agent(concat!("pharos-cli/", env!("CARGO_PKG_VERSION")))
        .build();
    match tls {
        None => Ok(config.into()),
        Some(tls) => with_tls(config, tls),
    }
}

/// Returns an HTTP client that supports TLS, with this trust and this certificate.
///
/// # Errors
/// The files for TLS cannot be used.
pub fn with_tls(config: Config, tls: &TlsOptions) -> Result<Agent, ClientError> {
    let connector = ().chain(TcpConnector::default()).chain(TlsConnector(tls.client_config()?));
    Ok(Agent::with_parts(config, connector, DefaultResolver::default()))
}

/// Puts TLS over a connection where the URL asks for it.
struct TlsConnector(Arc<ClientConfig>);

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConnector")
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else {
            return Ok(None);
        };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::BadUri(format!("no host that a certificate could name: {host}")))?;
        let broken = |error| Error::Io(std::io::Error::other(error));
        let mut connection = ClientConnection::new(self.0.clone(), name).map_err(broken)?;
        let transport: Box<dyn Transport> = Box::new(transport);
        let mut socket = TransportAdapter::new(transport, details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let config = details.config;
        Ok(Some(Either::B(TlsTransport {
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
            stream: StreamOwned::new(connection, socket),
        })))
    }
}

/// A connection with TLS.
pub(crate) struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTransport")
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.get_mut().set_timeout(timeout);
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output)?;
        Ok(self.stream.flush()?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
