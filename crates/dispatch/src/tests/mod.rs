//! The dispatcher as its topic drives it.

mod checks;
mod key_shared;
mod model;
mod properties;
mod rules;

use std::sync::Arc;

use pharos_types::Ordinal;
use pharos_types::entry::Chunk;
use pharos_types::hash::murmur3_32;

use super::types::*;
use super::{AckState, Dispatcher};

/// A consumer with room for everything.
fn spec(name: &str) -> ConsumerSpec {
    ConsumerSpec {
        name: Arc::from(name),
        priority_level: 0,
        key_shared: None,
        window_bytes: 1 << 30,
    }
}

/// An ordinary message of 100 bytes.
fn message(ordinal: u64) -> EntryRef {
    EntryRef {
        ordinal: Ordinal(ordinal),
        message_count: 1,
        bytes: 100,
        key_hash: 0,
        deliver_at: None,
        chunk: None,
        is_marker: false,
    }
}

fn keyed(ordinal: u64, key: &str) -> EntryRef {
    EntryRef {
        key_hash: murmur3_32(key.as_bytes()),
        ..message(ordinal)
    }
}

fn batch(ordinal: u64, message_count: u32) -> EntryRef {
    EntryRef {
        message_count,
        ..message(ordinal)
    }
}

fn shared() -> Dispatcher {
    Dispatcher::shared(AckState::default(), Options::default(), Limits::default())
}

fn key_shared() -> Dispatcher {
    Dispatcher::key_shared(AckState::default(), Options::default(), Limits::default())
}

/// Consumers `1..=count` with `permits` each, named `c1`, `c2`, …
fn join(dispatcher: &mut Dispatcher, count: u64, permits: u32) {
    for key in 1..=count {
        dispatcher
            .add_consumer(ConsumerKey(key), spec(&format!("c{key}")))
            .unwrap();
        if permits > 0 {
            dispatcher.flow(ConsumerKey(key), permits);
        }
    }
}

/// Reads and deals until there is nothing to do; returns (consumer, ordinal, redelivery count) as sent.
fn drive(dispatcher: &mut Dispatcher, now_ms: i64, log: &[EntryRef]) -> Vec<(u64, u64, u32)> {
    let mut out = Vec::new();
    let tail_end = Ordinal(log.len() as u64);
    for round in 0.. {
        assert!(round < 10_000, "it asks without end");
        let entries: Vec<EntryRef> = match dispatcher.next(now_ms, tail_end) {
            Next::Read {
                from, entries_max, ..
            } => log[from.0 as usize..]
                .iter()
                .take(entries_max as usize)
                .copied()
                .collect(),
            Next::Replay { ordinals, .. } => ordinals.iter().map(|at| log[at.0 as usize]).collect(),
            Next::WaitUntil(_) | Next::Idle => break,
        };
        dispatcher.on_entries(now_ms, &entries, &mut out);
    }
    out.iter()
        .map(|delivery| (delivery.consumer.0, delivery.ordinal.0, delivery.redelivery_count))
        .collect()
}

/// The ordinals a consumer got, in the order sent.
fn got(deliveries: &[(u64, u64, u32)], consumer: u64) -> Vec<u64> {
    let own = deliveries.iter().filter(|delivery| delivery.0 == consumer);
    own.map(|delivery| delivery.1).collect()
}
