//! Versioned key-value with watches, for small shared facts: topic infos, policies, schemas, ownership.
//!
//! Keys are paths such as `managed-ledgers/public/default/persistent/notices`; values are small byte strings. Every
//! put gives the key a new [`Version`], and a writer may insist on the version it has seen ([`Expect`]), which is how
//! two owners of one fact find out about each other. Nothing here is for the message path.
//!
//! The laws (checked by the conformance suite on every backend):
//! 1. A write that returned `Ok` is durable and seen by every later read.
//! 2. A write whose expectation does not hold changes nothing and says what is there.
//! 3. While a key exists its version is different after every put, and rises.
//! 4. A write that failed with `NoSpace` changed nothing; one that failed otherwise may take effect until the next start.
//! 5. A watch reports the changes of one key in their order, after they are durable, or says `Lagged`.
//! 6. An ephemeral key ([`Session::put`]) is there as long as the session that made it and not a moment longer: when the session
//!    ends, first its keys go, then watches tell of it, then its holder is told. No restart brings one back.
//! 7. A session that is renewed in time does not end by itself; one that is not ends, whether its holder lives or not.
//! 8. A number of a sequence is given out once, also when many ask at the same time and over restarts.
//!
//! ```
//! use bytes::Bytes;
//! use pharos_metadata::{Expect, Memory, MetadataStore, WriteError};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = Memory::new();
//! let version = store.put("policies/public", Bytes::from("a"), Expect::Absent).await.unwrap();
//! store.put("policies/public", Bytes::from("b"), Expect::Version(version)).await.unwrap();
//! let late = store.put("policies/public", Bytes::from("c"), Expect::Version(version)).await;
//! assert!(matches!(late, Err(WriteError::Conflict { .. })));
//! # });
//! ```

#![forbid(unsafe_code)]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

#[cfg(feature = "test-util")]
pub mod conformance;
mod embedded;
mod error;
pub mod key;
mod layout;
mod measured;
mod memory;
mod sequence;
mod session;
mod watch;

#[cfg(feature = "test-util")]
pub use embedded::fuzzing;
pub use embedded::{Beside, Embedded, Flaw, Look, Manual, MatchesLedgers, Options, Part, decode};
pub use error::{Fault, Mismatch, OpenError, ReadError, SessionError, SessionWriteError, WriteError};
pub use key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use layout::MetadataLayout;
pub use measured::{Measured, StoreOperation};
pub use memory::Memory;
pub use session::{Session, SessionEnd, SessionId};
pub use watch::{Event, Translate, Watch, Watchers};

/// A future that backends hand out through `dyn` traits.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Version of a value, given by its put. Opaque; callers may only compare for equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// Condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Anything or nothing.
    Any,
    /// No such key.
    Absent,
    /// The value of exactly this version.
    Version(Version),
}

impl Expect {
    /// True if a key with this `current` version may be written.
    #[must_use]
    pub fn holds(self, current: Option<Version>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => current.is_none(),
            Self::Version(version) => current == Some(version),
        }
    }
}

/// A value and the version to insist on when changing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The bytes that were put.
    pub value: Bytes,
    /// Version of the value.
    pub version: Version,
}

/// Key with its value, as returned by [`MetadataStore::scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The whole key.
    pub key: String,
    /// Its value.
    pub value: Bytes,
    /// Version of the value.
    pub version: Version,
}

/// A store of small facts.
///
/// Keys: `/`-separated non-empty UTF-8 segments, together at most [`KEY_BYTES_MAX`] bytes. Prefixes are plain string
/// prefixes; end one with `/` to mean "below this path".
///
/// Cancel safety, all methods: nothing happens before the first poll; a write that was polled may happen or not when its
/// future is dropped.
pub trait MetadataStore: Send + Sync {
    /// The value of `key`, or `None`.
    ///
    /// # Errors
    /// [`ReadError`].
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, ReadError>>;

    /// Puts `value` (at most [`VALUE_BYTES_MAX`] bytes) when `expect` holds; durable when the future resolves. Returns the
    /// new version. Waits while the backend's queue is full. A key that a session made stays the session's.
    ///
    /// # Errors
    /// [`WriteError::Conflict`]: read again and decide. [`WriteError::NoSpace`]: nothing was written; deletes and smaller values
    /// still have room. [`WriteError::Fault`]: whether it was written is unknown.
    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>>;

    /// Deletes `key` when `expect` holds; durable when the future resolves. Returns whether it was there.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>>;

    /// A number that was never given out for the sequence `key`, higher than all that were; the first is 0. Numbers may be left
    /// out. What is stored below or at `key` is the backend's business: nothing else uses it.
    ///
    /// # Errors
    /// As for [`put`](Self::put); a number may be lost then, and is not given out again.
    fn sequence(&self, key: &str) -> BoxFuture<'_, Result<u64, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { sequence::next(self, &key).await })
    }

    /// The keys that begin with `prefix`, in byte order. An empty prefix means all.
    ///
    /// # Errors
    /// [`ReadError`].
    fn list(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<String>, ReadError>>;

    /// The keys that begin with `prefix` with their values, in byte order, as of one moment.
    ///
    /// # Errors
    /// [`ReadError`].
    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Item>, ReadError>>;

    /// Changes from now on of keys that begin with `prefix`. Watch first, then scan, so that none is missed.
    fn watch(&self, prefix: &str) -> Watch;

    /// True if other processes, or other users of this one, may write to it. A value read is then only as recent as
    /// its watch.
    fn has_other_writers(&self) -> bool {
        true
    }

    /// Opens a session: who holds it may have keys that go when it ends. It ends when it was not renewed for `timeout`, when it is
    /// closed, or with the store. A remote backend may grant another time ([`Session::timeout`]).
    ///
    /// # Errors
    /// [`SessionError::Fault`]: the backend failed or was shut down.
    fn open_session(&self, timeout: Duration) -> BoxFuture<'_, Result<Arc<dyn Session>, SessionError>>;

    /// Reason why no later write will succeed, or `None` while one may. A write that failed for lack of space, or for
    /// another cause that may go away, is not such a reason.
    fn fault(&self) -> Option<Arc<Fault>> {
        None
    }

    /// Finishes what is queued and stops; watches end. Later calls fail with `Fault`.
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}
