//! A place in a topic, as a client names it, and what it is to the topic.

use pharos_topic::{StartAt, TopicHandle};
use pharos_types::{Ordinal, Position};

use crate::error::AdminError;

/// A place in a topic, as a client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the first entry that exists.
    Earliest,
    /// After the last entry.
    Latest,
    /// At an entry, or at a message within its batch.
    At {
        /// The entry.
        position: Position,
        /// Index in the batch; `None` for the whole entry.
        batch_index: Option<u32>,
        /// After that message rather than at it.
        excluded: bool,
    },
}

/// The ordinal at which a place begins.
pub(crate) fn ordinal_of(topic: &TopicHandle, place: Place) -> Ordinal {
    match place {
        Place::Earliest => topic.first(),
        Place::Latest => topic.end(),
        Place::At {
            position,
            excluded: true,
            ..
        } => topic.after(position),
        Place::At { position, .. } => topic.at_or_after(position),
    }
}

/// A place as topics take it, and of a batch that is entered in its middle the indexes that are left.
pub(crate) async fn resolve(topic: &TopicHandle, place: Place) -> Result<(StartAt, Vec<i64>), AdminError> {
    let (position, index, excluded) = match place {
        Place::Earliest => return Ok((StartAt::Earliest, Vec::new())),
        Place::Latest => return Ok((StartAt::Latest, Vec::new())),
        Place::At {
            position,
            batch_index: Some(index),
            excluded,
        } => (position, index, excluded),
        Place::At { .. } => return Ok((topic.start_at(ordinal_of(topic, place)), Vec::new())),
    };
    let ordinal = ordinal_of(
        topic,
        Place::At {
            position,
            batch_index: None,
            excluded: false,
        },
    );
    let entry = topic
        .entry_at(ordinal)
        .await?
        .filter(|entry| entry.position == position);
    let Some(count) = entry.and_then(|entry| entry.facts.batch_size()) else {
        // No batch: the index says nothing.
        let whole = Place::At {
            position,
            batch_index: None,
            excluded,
        };
        return Ok((topic.start_at(ordinal_of(topic, whole)), Vec::new()));
    };
    let first = index.saturating_add(u32::from(excluded));
    if first >= count {
        return Ok((topic.start_at(ordinal.next()), Vec::new()));
    }
    Ok((topic.start_at(ordinal), remaining(first, count)))
}

/// The indexes `first..count` of a batch as bits; empty when that is all of it.
fn remaining(first: u32, count: u32) -> Vec<i64> {
    if first == 0 {
        return Vec::new();
    }
    let mut words = vec![0_i64; count.div_ceil(64) as usize];
    for index in first..count {
        if let Some(word) = words.get_mut((index / 64) as usize) {
            *word |= 1 << (index % 64);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::remaining;

    #[test]
    fn the_rest_of_a_batch_is_what_comes_from_an_index_on() {
        assert!(remaining(0, 10).is_empty());
        assert_eq!(remaining(3, 5), [0b11000]);
        assert_eq!(remaining(65, 67), [0, 0b110]);
    }
}
