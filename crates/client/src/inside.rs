//! The way to a broker that is in this process.

use std::fmt;
use std::pin::Pin;

use tokio::net::UnixStream;

use crate::ClientError;

/// Future of a stream to the broker, or of `None` if it is reached over the network.
pub type InsideStream<'a> =
    Pin<Box<dyn Future<Output = Result<Option<UnixStream>, ClientError>> + Send + 'a>>;

/// Knows which address is that of a broker in this process, and the way to it. Asked for each connection.
pub trait Inside: fmt::Debug + Send + Sync {
    /// The way to the broker at `address`, as lookups tell it.
    ///
    /// # Errors
    /// The connection must not be made: why.
    fn open<'a>(&'a self, address: &'a str) -> InsideStream<'a>;
}
