//! Sequence numbers of one name, and the rule for names that are forgotten.

use std::collections::HashMap;

use pharos_types::Ordinal;

use crate::Verdict;

/// The numbers of one name. Compared with their sign, as Pulsar does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// Given to the log; no lower than persisted, except while a producer begins anew.
    pub(crate) pushed: Option<i64>,
    /// Durable.
    pub(crate) persisted: Option<i64>,
    /// Time at which it was first seen without a producer.
    gone_since_ms: Option<u64>,
}

impl Numbers {
    pub(crate) fn check(&self, sequence_id: i64) -> Verdict {
        match (self.pushed, self.persisted) {
            (Some(pushed), _) if sequence_id > pushed => Verdict::Accept,
            (None, _) => Verdict::Accept,
            (Some(_), Some(persisted)) if sequence_id <= persisted => Verdict::Duplicate,
            (Some(_), _) => Verdict::Undecidable,
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.pushed == self.persisted
    }

    /// Adds a replayed number before those noted meanwhile. A producer that started over meanwhile has lower numbers:
    /// the earlier number says nothing of them.
    pub(crate) fn put_before(&mut self, last: i64) {
        match self.pushed {
            None => (self.pushed, self.persisted) = (Some(last), Some(last)),
            Some(pushed) if self.persisted.is_none() && last <= pushed => self.persisted = Some(last),
            Some(_) => {}
        }
    }

    /// True if it has not been gone for too long; notes when it went.
    pub(crate) fn is_kept(&mut self, now_ms: u64, gone_ms_max: u64, is_attached: bool) -> bool {
        if is_attached {
            self.gone_since_ms = None;
            return true;
        }
        let since = *self.gone_since_ms.get_or_insert(now_ms);
        !self.is_settled() || gone_ms_max == 0 || now_ms.saturating_sub(since) <= gone_ms_max
    }
}

/// Returns the size of a name in a snapshot, in bytes: itself, its length, its number.
pub(crate) fn cost(name: &str) -> usize {
    name.len() + 12
}

/// Forgets at least so many names and bytes, the longest gone first; those of attached producers stay.
pub(crate) fn forget_longest_gone(
    names: &mut HashMap<Box<str>, Numbers>,
    mut count: usize,
    mut bytes: usize,
) {
    let gone = names.iter().filter(|(_, numbers)| numbers.is_settled());
    let mut gone: Vec<(u64, Box<str>)> = gone
        .filter_map(|(name, numbers)| Some((numbers.gone_since_ms?, name.clone())))
        .collect();
    gone.sort_unstable();
    for (_, name) in gone {
        if count == 0 && bytes == 0 {
            return;
        }
        names.remove(&name);
        count = count.saturating_sub(1);
        bytes = bytes.saturating_sub(cost(&name));
    }
}

/// Keeps a replay's names within bounds: once there are twice as many as are kept, those that were read first go.
pub(crate) fn keep_latest(names: &mut HashMap<Box<str>, (i64, Ordinal)>, names_max: usize) {
    if names.len() <= names_max.saturating_mul(2) {
        return;
    }
    let mut places: Vec<Ordinal> = names.values().map(|(_, at)| *at).collect();
    let (_, least, _) = places.select_nth_unstable(names.len() - names_max.max(1));
    let least = *least;
    names.retain(|_, (_, at)| *at >= least);
}
