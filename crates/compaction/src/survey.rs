//! Phase 1: where the last message of each key is.

use std::collections::{HashMap, HashSet};

use pharos_types::Ordinal;
use pharos_types::entry::{Chunk, EntryCodec, EntryMessages, KeyedMessage};

use super::{Options, Sieve};

/// Approximate memory of a key besides its bytes, in bytes.
const KEY_COST: usize = 96;
/// Memory of a piece of a chunked message, in bytes.
const PIECE_COST: usize = 16;

/// The keys of a topic take more memory than a run may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the keys of the topic take more than {bytes_max} bytes (topic_compaction.max_keys_size)")]
pub struct TooManyKeys {
    /// Memory limit of the keys, in bytes.
    pub bytes_max: usize,
}

/// Position of the last message of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// In this entry, with this index.
    Message(Ordinal, u32),
    /// In these entries, a piece in each, in order.
    Pieces(Box<[Ordinal]>),
}

/// Phase 1. Entries are shown to it in the order of their ordinals.
pub struct KeySurvey<'a> {
    codec: &'a dyn EntryCodec,
    options: Options,
    last: HashMap<Box<[u8]>, Last>,
    /// Chunked messages of which the last piece did not come yet, by the hash of what tells them apart.
    incomplete: HashMap<u64, Vec<Ordinal>>,
    /// Pieces of complete messages without a key.
    keyless: HashSet<Ordinal>,
    bytes: usize,
}

impl<'a> KeySurvey<'a> {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(codec: &'a dyn EntryCodec, options: Options) -> Self {
        Self {
            codec,
            options,
            last: HashMap::new(),
            incomplete: HashMap::new(),
            keyless: HashSet::new(),
            bytes: 0,
        }
    }

    /// Returns the approximate memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Looks at the next entry.
    ///
    /// # Errors
    /// [`TooManyKeys`]: the run is over.
    pub fn look(&mut self, ordinal: Ordinal, entry: &[u8]) -> Result<(), TooManyKeys> {
        let facts = self.codec.facts(entry);
        if facts.is_marker {
            return Ok(());
        }
        let EntryMessages::Each(messages) = self.codec.messages(entry, self.options.batch_bytes_max) else {
            return Ok(());
        };
        let chunk = facts.is_chunk.then(|| self.codec.chunk(entry)).flatten();
        if let (Some(chunk), Some(message)) = (chunk, messages.first()) {
            self.on_piece(ordinal, chunk, message);
        } else {
            for (index, message) in (0..).zip(messages) {
                self.on_message(message, Last::Message(ordinal, index));
            }
        }
        let bytes_max = self.options.keys_bytes_max;
        match self.bytes > bytes_max {
            true => Err(TooManyKeys { bytes_max }),
            false => Ok(()),
        }
    }

    /// Everything was seen.
    #[must_use]
    pub fn into_sieve(self) -> Sieve<'a> {
        let pieces = self.incomplete.into_values().flatten();
        let kept = pieces.chain(self.keyless).collect();
        Sieve::new(self.codec, self.options, self.last, kept)
    }

    fn on_piece(&mut self, ordinal: Ordinal, chunk: Chunk, message: &KeyedMessage) {
        let pieces = self.incomplete.entry(chunk.uuid_hash).or_default();
        if chunk.index == 0 {
            // A producer that begins again begins another message.
            self.bytes -= PIECE_COST * pieces.len();
            pieces.clear();
        }
        pieces.push(ordinal);
        self.bytes += PIECE_COST;
        if !chunk.is_last() {
            return;
        }
        let pieces = self.incomplete.remove(&chunk.uuid_hash).unwrap_or_default();
        self.bytes -= PIECE_COST * pieces.len();
        let message = KeyedMessage {
            // What is split into pieces has a value.
            is_empty: false,
            ..message.clone()
        };
        match message.key {
            Some(_) => self.on_message(message, Last::Pieces(pieces.into())),
            None if self.options.keep_keyless => {
                self.bytes += PIECE_COST * pieces.len();
                self.keyless.extend(pieces);
            }
            None => {}
        }
    }

    fn on_message(&mut self, message: KeyedMessage, at: Last) {
        let Some(key) = message.key.filter(|_| !message.is_gone) else {
            return;
        };
        if message.is_empty {
            if let Some(old) = self.last.remove(&key) {
                self.bytes -= cost(&key, &old);
            }
            return;
        }
        self.bytes += cost(&key, &at);
        match self.last.get_mut(&key) {
            Some(last) => {
                self.bytes -= cost(&key, last);
                *last = at;
            }
            None => drop(self.last.insert(key, at)),
        }
    }
}

fn cost(key: &[u8], last: &Last) -> usize {
    let pieces = match last {
        Last::Message(..) => 0,
        Last::Pieces(pieces) => pieces.len(),
    };
    KEY_COST + key.len() + PIECE_COST * pieces
}
