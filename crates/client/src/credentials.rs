//! What a client shows of itself, and shows anew when the broker asks for it because what it showed has expired.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::ClientError;

/// Where credentials come from. Asked for each connection, and each time that a broker asks for new ones.
pub trait CredentialSource: fmt::Debug + Send + Sync {
    /// What Pulsar calls their kind: `token`, `basic`, `tls`.
    fn method(&self) -> &str;

    /// Those that are good now. May read files and ask others: it is called on a thread that may block.
    ///
    /// # Errors
    /// Why there are none; without secrets.
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

/// The same ones always: what a CONNECT command says.
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
