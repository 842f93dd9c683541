//! Credentials that a client presents, and presents anew when the broker asks for it because they have expired.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::ClientError;

/// Source of credentials. Asked for each connection, and each time that a broker asks for new ones.
pub trait CredentialSource: fmt::Debug + Send + Sync {
    /// Authentication method, as Pulsar names it: `token`, `basic`, `tls`.
    fn method(&self) -> &str;

    /// Returns the currently valid credentials. May read files and send requests: it is called on a thread that may
    /// block.
    ///
    /// # Errors
    /// Reason why there are none; without secrets.
    fn current(&self) -> Result<Bytes, String>;
}

/// Asks a source, on a thread that may block.
///
/// # Errors
/// `Credentials`: there are none.
pub(crate) async fn current(source: &Arc<dyn CredentialSource>) -> Result<Bytes, ClientError> {
    let source = source.clone();
    let asked = tokio::task::spawn_blocking(move || source.current()).await;
    let found = asked.unwrap_or_else(|error| Err(error.to_string()));
    found.map_err(ClientError::Credentials)
}

/// Fixed credentials: those of a CONNECT command.
pub(crate) struct Fixed {
    pub(crate) method: String,
    pub(crate) data: Bytes,
}

impl fmt::Debug for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fixed({})", self.method)
    }
}

impl CredentialSource for Fixed {
    fn method(&self) -> &str {
        &self.method
    }

    fn current(&self) -> Result<Bytes, String> {
        Ok(self.data.clone())
    }
}
