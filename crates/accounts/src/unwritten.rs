//! Account of bytes handed out and not yet written to sockets: one for the whole process.
//!
//! Dispatchers' output counts from the moment of dispatch. A window bounds the unwritten bytes of one Shared or
//! Key_Shared consumer, and always admits one entry of any size. Without a common bound, many consumers that do not
//! read would hold any amount.
//!
//! ```text
//!   0 ──────────── half ─────────────── three quarters ────────────── all
//!   │ no effect      │ blocked connections │ dispatchers pause; non-     │ payloads that were set aside
//!   │                │ set their payloads  │ persistent messages are     │ are not read back
//!   │                │ aside               │ dropped                     │
//! ```
//! Messages for stream consumers are queued only as their socket accepts them, and count once the socket is full,
//! until it drains; a connection pays for this once, not per message. Near the limit, whole frames are removed from
//! its queue, and its consumers return to the position before them. Dispatchers do not wait for this part: it counts
//! a message once for each of the connections that share it, and shrinks as soon as it is too large.
//!
//! A payload that was set aside is read from the log again when its socket accepts bytes. A blocked connection
//! therefore keeps no memory that others need, and no other connection waits for it.
//!
//! Invariant: the account is the sum of all [`Held`] that exist, and each of them sits next to the payload that it
//! stands for. Beyond the limit it holds at most one read per shard, plus the reads that dispatchers had under way
//! (those have room in `feed::CatchUpReadBudget`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The account.
#[derive(Debug)]
pub struct Unwritten {
    bytes_max: u64,
    used: AtomicU64,
    /// Bytes queued for stream consumers by connections with full sockets.
    queued: AtomicU64,
    /// Bytes set aside so far.
    set_aside: AtomicU64,
    /// There is room again.
    room: Notify,
}

/// Bytes that a connection with a full socket has queued for stream consumers, until it is dropped.
#[derive(Debug)]
pub struct Queued {
    account: Arc<Unwritten>,
    bytes: u64,
}

/// Bytes of one entry in the account, until it is dropped. Kept with the payload and dropped with it.
#[derive(Debug)]
pub struct Held {
    account: Arc<Unwritten>,
    bytes: u64,
    /// The entry is stored: its payload may be dropped and read again.
    is_stored: bool,
}

impl Unwritten {
    /// An empty account with this limit.
    #[must_use]
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            used: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            set_aside: AtomicU64::new(0),
            room: Notify::new(),
        })
    }

    /// Counts an entry of so many bytes, whatever the limit is. `is_stored`: it can be read again.
    #[must_use]
    pub fn hold(self: &Arc<Self>, bytes: usize, is_stored: bool) -> Held {
        let bytes = bytes as u64;
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Held {
            account: self.clone(),
            bytes,
            is_stored,
        }
    }

    /// Counts what a connection with a full socket has queued for stream consumers, whatever the limit is.
    #[must_use]
    pub fn hold_queued(self: &Arc<Self>, bytes: usize) -> Queued {
        let bytes = bytes as u64;
        self.queued.fetch_add(bytes, Ordering::Relaxed);
        Queued {
            account: self.clone(),
            bytes,
        }
    }

    /// Bytes that dispatchers handed out, that are not written and in memory.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Used bytes, plus the bytes queued for stream consumers.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.used() + self.queued.load(Ordering::Relaxed)
    }

    /// Counts bytes that were taken out of a queue again.
    pub fn took_back(&self, bytes: usize) {
        self.set_aside.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that were set aside so far.
    #[must_use]
    pub fn set_aside_total(&self) -> u64 {
        self.set_aside.load(Ordering::Relaxed)
    }

    /// True if blocked connections should set their payloads aside.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.held() > self.bytes_max / 2
    }

    /// True if a connection with a full socket sets aside its queue for stream consumers at once.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.held() > self.deals_max()
    }

    /// True if dispatchers must pause.
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Bytes that a dispatcher may hand out now.
    pub fn room(&self) -> u64 {
        self.deals_max().saturating_sub(self.used())
    }

    /// Resolves when dispatchers that waited may go on: when there is room for more than a few entries.
    ///
    /// Cancel safety: nothing is lost.
    pub async fn room_to_deal(&self) {
        self.room_below(self.deals_again_below()).await;
    }

    /// Counts so many bytes that will be read again, once there is room.
    ///
    /// Cancel safety: nothing is counted.
    pub async fn room_to_read_again(self: &Arc<Self>, bytes: usize) -> Held {
        self.room_below(self.bytes_max.max(1)).await;
        self.hold(bytes, true)
    }

    fn deals_max(&self) -> u64 {
        (self.bytes_max / 4 * 3).max(1)
    }

    fn deals_again_below(&self) -> u64 {
        (self.bytes_max / 8 * 5).max(1)
    }

    async fn room_below(&self, limit: u64) {
        loop {
            let given = self.room.notified();
            tokio::pin!(given);
            // From here on no word of more room is missed.
            given.as_mut().enable();
            if self.used() < limit {
                return;
            }
            given.await;
        }
    }
}

impl Held {
    /// True if the payload may be dropped and read again; false for a non-persistent message.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// Its payload is dropped, and will be read again.
    pub fn set_aside(self) {
        self.account.set_aside.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.account.queued.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let account = &self.account;
        let before = account.used.fetch_sub(self.bytes, Ordering::Relaxed);
        let after = before - self.bytes;
        let passes = |limit: u64| before >= limit && after < limit;
        if passes(account.deals_again_below()) || passes(account.bytes_max.max(1)) {
            account.room.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_room_goes_on_when_enough_was_written() {
        let account = Unwritten::new(100);
        let small = account.hold(40, true);
        assert!(!account.is_short() && !account.is_full());
        let large = account.hold(1000, true);
        assert!(account.is_short() && account.is_full());
        let mut deal = Box::pin(account.room_to_deal());
        let mut again = Box::pin(account.room_to_read_again(50));
        assert!(futures_done(&mut deal).await.is_none() && futures_done(&mut again).await.is_none());
        drop(large);
        deal.await;
        let reserved = again.await;
        assert_eq!((account.used(), account.room()), (90, 0));
        small.set_aside();
        drop(reserved);
        assert_eq!((account.used(), account.set_aside_total()), (0, 40));
    }

    /// Result of a future that is ready at once.
    async fn futures_done<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        tokio::select! {
            biased;
            done = future => Some(done),
            () = std::future::ready(()) => None,
        }
    }

    #[tokio::test]
    async fn what_is_queued_for_stream_consumers_makes_memory_short_and_stops_no_dispatcher() {
        let account = Unwritten::new(100);
        let queued = account.hold_queued(60);
        assert!(account.is_short() && !account.is_exhausted());
        let more = account.hold_queued(1000);
        assert!(account.is_exhausted() && !account.is_full());
        account.room_to_deal().await;
        drop((queued, more));
        assert!(!account.is_short() && account.held() == 0);
    }

    #[tokio::test]
    async fn without_any_limit_one_entry_at_a_time_goes() {
        let account = Unwritten::new(0);
        account.room_to_deal().await;
        drop(account.room_to_read_again(5).await);
        let held = account.hold(7, false);
        assert!(account.is_full() && !held.is_stored());
        drop(held);
        assert!(!account.is_full());
    }
}
