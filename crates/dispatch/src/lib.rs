//! Dispatch for the subscription kinds that must choose *one* consumer for each message: Shared, Key_Shared, and the
//! choice of the active consumer of a Failover subscription.
//!
//! Plain state machines: no I/O, no async, no clock. They live on the topic's home shard; the topic feeds them events and
//! does what they ask. Time comes in as milliseconds since 1970.
//!
//! ```text
//!            add_consumer · flow · written · ack · redeliver · remove_consumer · …
//!                                   │  after every one of them, and after an append:
//!                                   ▼
//!                   ┌──────► next(now, tail_end) ──► Idle           wait for the next event
//!                   │               │            ──► WaitUntil(t)   … or until the clock says t
//!                   │               ▼
//!                   │        Read / Replay: the topic reads entries (cache, else storage)
//!                   │               │
//!                   │               ▼
//!                   └── on_entries(now, entries) ──► Delivery, Delivery, …   the topic sends them
//! ```
//!
//! Where a message can be; one place at a time:
//! ```text
//!               deliver                 ack
//!     unread ──────────► pending at C ───────► acknowledged ([`AckState`], survives)
//!      │ │                │      ▲
//!      │ │ not now        │      │ deliver, lowest ordinal first
//!      │ └─────────────┐  │ redeliver, C leaves
//!      │ deliver_at    ▼  ▼      │
//!      └──► delayed ──► replay ──┘
//! ```
//! Besides, from anywhere: *withheld*, while a transaction has acknowledged it; then acknowledged, or in replay again.
//!
//! Always true:
//! - a message is acknowledged, pending at exactly one consumer, in replay, delayed, withheld, or unread; never two of them;
//! - only [`AckState`] outlives this object; everything else is rebuilt by reading from `acked_to` again;
//! - permits count messages, not entries; a consumer has at most `window_bytes` (and one entry) handed out but not written;
//! - Key_Shared: of one key hash, unacknowledged messages are pending at one consumer only, and messages of the hash are
//!   first delivered in the order of their ordinals.
//!
//! Sources: PulsarApi.proto; `docs/protocols/pulsar.md` on consumers, acknowledgement and Key_Shared.

#![forbid(unsafe_code)]

mod acknowledge;
mod chunks;
mod consumers;
mod core;
mod delayed;
mod failover;
mod key_shared;
mod largest_batch;
mod ordinal_map;
mod pending;
mod ranked;
mod reads;
mod replay;
mod round_robin;
mod selector;
mod stats;
#[cfg(test)]
mod tests;
mod types;
mod withheld;

pub use core::Dispatcher;
pub use failover::FailoverCandidates;
pub use largest_batch::LargestBatch;
pub use selector::HashRanges;
pub use stats::{ConsumerStats, DispatchStats};
pub use types::{
    Acked, AddConsumerError, ConsumerKey, ConsumerSpec, Dealt, DelayOptions, Delivery, EntryRef, HashRange,
    KeySharedMode, KeySharedOptions, KeySharedSpec, Limits, Next, Options,
};

pub use pharos_managed_ledger::cursor::{AckOutcome, AckState};
pub use pharos_types::entry::Chunk;
