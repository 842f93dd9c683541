//! Phase 2: what is left of each entry.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use pharos_types::Ordinal;
use pharos_types::entry::{EntryCodec, EntryMessages, KeyedMessage};

use super::Options;
use super::survey::Last;

/// Remainder of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// As it was, or a batch with fewer messages.
    pub payload: Bytes,
    /// The index of the last message that is left in a batch; `None` of an entry that is no batch.
    pub last_index: Option<u32>,
}

/// Phase 2, made by a [`KeySurvey`](super::KeySurvey). It is shown the entries that the survey was shown, in the same order.
pub struct Sieve<'a> {
    codec: &'a dyn EntryCodec,
    options: Options,
    last: HashMap<Box<[u8]>, Last>,
    /// Entries that stay whatever their key is.
    kept: HashSet<Ordinal>,
    removed: u64,
}

/// The index of the last message that is left in a batch that went through; `None` of an entry that is no batch.
#[must_use]
pub fn last_index(codec: &dyn EntryCodec, entry: &[u8], options: Options) -> Option<u32> {
    let size = codec.facts(entry).batch_size()?;
    let last = match codec.messages(entry, options.batch_bytes_max) {
        EntryMessages::Each(messages) => messages.iter().rposition(|message| !message.is_gone),
        EntryMessages::Whole => None,
    };
    let last = last.and_then(|last| u32::try_from(last).ok());
    Some(last.unwrap_or_else(|| size.saturating_sub(1)))
}

impl<'a> Sieve<'a> {
    pub(super) fn new(
        codec: &'a dyn EntryCodec,
        options: Options,
        last: HashMap<Box<[u8]>, Last>,
        kept: HashSet<Ordinal>,
    ) -> Self {
        Self {
            codec,
            options,
            last,
            kept,
            removed: 0,
        }
    }

    /// Messages that went so far.
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// Returns the remainder of the next entry; `None` if nothing remains.
    pub fn pass(&mut self, ordinal: Ordinal, entry: &Bytes) -> Option<Survivor> {
        let facts = self.codec.facts(entry);
        if facts.is_marker {
            return None;
        }
        let whole = |size: Option<u32>| Survivor {
            payload: entry.clone(),
            last_index: size.map(|size| size.saturating_sub(1)),
        };
        let bytes_max = self.options.batch_bytes_max;
        let EntryMessages::Each(messages) = self.codec.messages(entry, bytes_max) else {
            return Some(whole(facts.batch_size()));
        };
        let keep: Vec<bool> = (0..)
            .zip(&messages)
            .map(|(index, message)| self.stays(ordinal, index, message, facts.is_chunk))
            .collect();
        let went = keep
            .iter()
            .zip(&messages)
            .filter(|(stays, it)| !**stays && !it.is_gone);
        let went = went.count() as u64;
        let last = keep.iter().rposition(|stays| *stays);
        let Some(last) = last else {
            self.removed += went;
            return None;
        };
        let last_index = facts.is_batch.then(|| u32::try_from(last).unwrap_or(u32::MAX));
        let payload = match went {
            0 => entry.clone(),
            _ => match self.codec.retain(entry, &keep, bytes_max) {
                Some(rewritten) => rewritten.into(),
                // It could be read and cannot be put together: nothing of it goes.
                None => return Some(whole(facts.batch_size())),
            },
        };
        self.removed += went;
        Some(Survivor { payload, last_index })
    }

    fn stays(&self, ordinal: Ordinal, index: u32, message: &KeyedMessage, is_piece: bool) -> bool {
        if message.is_gone {
            return false;
        }
        if is_piece && self.kept.contains(&ordinal) {
            return true;
        }
        let Some(key) = &message.key else {
            return self.options.keep_keyless && !is_piece;
        };
        match self.last.get(key) {
            Some(Last::Message(at, of)) => !is_piece && (*at, *of) == (ordinal, index),
            Some(Last::Pieces(pieces)) => is_piece && pieces.binary_search(&ordinal).is_ok(),
            None => false,
        }
    }
}
