//! Under which keys transactions are noted in cursor logs; `docs/formats/cursor-log.md` draws them.
//!
//! Numbers are big-endian, so that keys have the order of what they name.

use pharos_types::TxnId;

/// Key of a topic: the start of the next read of its log, and the transactions open there.
pub const BUFFER: &[u8] = b"b";
/// Key prefix of a topic: followed by the id of an aborted transaction.
pub const ABORTED: &[u8] = b"a";
/// Key prefix of a topic: followed by an acknowledgement in a transaction.
pub const PENDING: &[u8] = b"p";
/// Key of a coordinator: ids below the value may have been assigned.
pub const RESERVED: &[u8] = b"n";
/// Key prefix of a coordinator: followed by a transaction that has not ended.
pub const LIVE: &[u8] = b"t";

/// An aborted transaction.
#[must_use]
pub fn aborted(txn: TxnId) -> Vec<u8> {
    [ABORTED, &bytes_of(txn)].concat()
}

/// Id of the aborted transaction of this key.
#[must_use]
pub fn aborted_of(key: &[u8]) -> Option<TxnId> {
    let (txn, rest) = take_txn(key.strip_prefix(ABORTED)?)?;
    rest.is_empty().then_some(txn)
}

/// All that is pending in one subscription.
#[must_use]
pub fn pending_in(subscription: u32) -> Vec<u8> {
    [PENDING, &subscription.to_be_bytes()].concat()
}

/// All of it that is in one transaction.
#[must_use]
pub fn pending_of(subscription: u32, txn: TxnId) -> Vec<u8> {
    [&*pending_in(subscription), &bytes_of(txn)].concat()
}

/// Key of one request with pending acknowledgements.
#[must_use]
pub fn pending(subscription: u32, txn: TxnId, sequence: u64) -> Vec<u8> {
    [&*pending_of(subscription, txn), &sequence.to_be_bytes()].concat()
}

/// Subscription, transaction and request of this key.
#[must_use]
pub fn parse_pending(key: &[u8]) -> Option<(u32, TxnId, u64)> {
    let (subscription, rest) = key.strip_prefix(PENDING)?.split_first_chunk()?;
    let (txn, rest) = take_txn(rest)?;
    let sequence = rest.try_into().ok()?;
    Some((
        u32::from_be_bytes(*subscription),
        txn,
        u64::from_be_bytes(sequence),
    ))
}

/// A coordinator's transaction.
#[must_use]
pub fn live(least: u64) -> Vec<u8> {
    [LIVE, &least.to_be_bytes()].concat()
}

/// Id of the live transaction of this key.
#[must_use]
pub fn live_of(key: &[u8]) -> Option<u64> {
    let least = key.strip_prefix(LIVE)?.try_into().ok()?;
    Some(u64::from_be_bytes(least))
}

fn bytes_of(txn: TxnId) -> Vec<u8> {
    [txn.most.to_be_bytes(), txn.least.to_be_bytes()].concat()
}

fn take_txn(key: &[u8]) -> Option<(TxnId, &[u8])> {
    let (most, rest) = key.split_first_chunk()?;
    let (least, rest) = rest.split_first_chunk()?;
    let (most, least) = (u64::from_be_bytes(*most), u64::from_be_bytes(*least));
    Some((TxnId { most, least }, rest))
}
