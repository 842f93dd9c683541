//! The key that decides which consumer of a Key_Shared subscription gets a message.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::facts::{MessageFacts, peek};

/// The key of a message that has none and whose metadata cannot be read.
pub const NONE_KEY: &[u8] = b"NONE_KEY";

/// Accepts what Pulsar's decoder does: padding may be missing.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The sticky key from the bytes of a `MessageMetadata`.
///
/// The ordering key; else the partition key, decoded when it is base64; else `<producer name>-<sequence id>`; else
/// [`NONE_KEY`], also for metadata that cannot be read: such a message must still go to a consumer. Hash it with
/// [`crate::hash::key_slot`] or [`crate::hash::ring_slot`].
pub fn sticky_key(metadata: &[u8]) -> Cow<'_, [u8]> {
    match peek(metadata) {
        Ok(facts) => facts.sticky_key(),
        Err(_) => Cow::Borrowed(NONE_KEY),
    }
}

impl<'a> MessageFacts<'a> {
    /// The key that routes the message in a Key_Shared subscription; see [`sticky_key`].
    pub fn sticky_key(&self) -> Cow<'a, [u8]> {
        if let Some(key) = self.ordering_key {
            return Cow::Borrowed(key);
        }
        match self.partition_key {
            Some(key) if self.partition_key_b64_encoded => match BASE64.decode(key) {
                Ok(key) => Cow::Owned(key),
                Err(_) => Cow::Borrowed(NONE_KEY),
            },
            Some(key) => Cow::Borrowed(key),
            None => Cow::Owned(format!("{}-{}", self.producer_name, self.sequence_id).into_bytes()),
        }
    }
}
