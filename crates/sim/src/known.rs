//! Faults that are known and not mended yet: histories keep away from what shows them, so that others are found.
//!
//! `PHAROS_SIM_KNOWN=1` goes there all the same. An entry leaves with the mend of its fault.

use std::sync::LazyLock;

static GOES_THERE: LazyLock<bool> = LazyLock::new(|| std::env::var_os("PHAROS_SIM_KNOWN").is_some());

/// Deleting a topic races with who comes back to it; one that is interrupted leaves the topic without its subscriptions.
#[must_use]
pub fn topic_deletion() -> bool {
    *GOES_THERE
}

/// The epoch of a producer that waited for exclusive access is not stored before it is handed out.
#[must_use]
pub fn waiting_producers() -> bool {
    *GOES_THERE
}

/// A deletion of a subscription that a crash interrupts may leave it with a part of its backlog: what it held back is trimmed,
/// and places of broadcast consumers are gone, before its end is durable.
#[must_use]
pub fn half_deleted_subscriptions() -> bool {
    *GOES_THERE
}
