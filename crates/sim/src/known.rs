//! Faults that are known and not mended yet: histories keep away from what shows them, so that others are found.
//!
//! `PHAROS_SIM_KNOWN=1` goes there all the same. An entry leaves with the mend of its fault.

use std::sync::LazyLock;

static GOES_THERE: LazyLock<bool> = LazyLock::new(|| std::env::var_os("PHAROS_SIM_KNOWN").is_some());

/// A deletion of a subscription that a crash interrupts may leave it with a part of its backlog: what it held back is trimmed,
/// and places of broadcast consumers are gone, before its end is durable.
#[must_use]
pub fn half_deleted_subscriptions() -> bool {
    *GOES_THERE
}
