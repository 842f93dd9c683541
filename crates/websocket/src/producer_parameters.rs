//! Parameters of a producer.

use std::time::Duration;

use pharos_types::hash::{java_string_hash, murmur3_32};
use pharos_wire::proto::CompressionType;

use crate::UpgradeRefusal;
use crate::partitions::{KeyHash, Routing};
use crate::query::Query;

/// Messages without a receipt, unless the caller says less.
const PENDING_MAX: usize = 1000;
/// Default time limit for a receipt.
const SEND_MAX: Duration = Duration::from_secs(30);
/// Never, as far as a session is concerned.
const NEVER: Duration = Duration::from_secs(365 * 86_400);
/// Default time that a message waits for others of its batch.
const BATCH_DELAY: Duration = Duration::from_millis(1);

/// Parameters of a producer.
#[derive(Clone, Debug)]
pub(crate) struct ProducerParameters {
    pub(crate) send_max: Duration,
    pub(crate) name: Option<String>,
    /// Texts that may be unanswered.
    pub(crate) pending_max: usize,
    /// The number before that of the first message.
    pub(crate) initial_sequence_id: Option<u64>,
    pub(crate) compression: CompressionType,
    pub(crate) routing: Routing,
    /// `None`: each message goes alone.
    pub(crate) batching: Option<Batching>,
}

/// Batching of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batching {
    pub(crate) messages_max: usize,
    /// Maximum time that a message waits for others.
    pub(crate) delay: Duration,
}

impl ProducerParameters {
    /// # Errors
    /// [`UpgradeRefusal`]: one of them is not possible.
    pub(crate) fn read(query: &mut Query) -> Result<Self, UpgradeRefusal> {
        let send_max = query.millis("sendTimeoutMillis")?.unwrap_or(SEND_MAX);
        let pending_max = query.value::<usize>("maxPendingMessages")?.unwrap_or(PENDING_MAX);
        let batching = batching(query)?;
        let compressions = [
            ("NONE", CompressionType::None),
            ("LZ4", CompressionType::Lz4),
            ("ZLIB", CompressionType::Zlib),
            ("ZSTD", CompressionType::Zstd),
            ("SNAPPY", CompressionType::Snappy),
        ];
        let hashes: [(&str, KeyHash); 2] = [
            ("JavaStringHash", java_string_hash),
            ("Murmur3_32Hash", |key| murmur3_32(key.as_bytes())),
        ];
        let modes = [("RoundRobinPartition", false), ("SinglePartition", true)];
        Ok(Self {
            send_max: if send_max.is_zero() {
                NEVER
            } else {
                send_max.min(NEVER)
            },
            name: query.text("producerName").filter(|name| !name.is_empty()),
            pending_max: pending_max.clamp(1, PENDING_MAX),
            initial_sequence_id: query.value("initialSequenceId")?,
            batching,
            compression: query
                .choice("compressionType", &compressions)?
                .unwrap_or(CompressionType::None),
            routing: Routing {
                to_one: query.choice("messageRoutingMode", &modes)?.unwrap_or(false),
                by_batch: batching.is_some(),
                hash: query
                    .choice("hashingScheme", &hashes)?
                    .unwrap_or(java_string_hash),
            },
        })
    }
}

fn batching(query: &mut Query) -> Result<Option<Batching>, UpgradeRefusal> {
    let is_enabled = query.value::<bool>("batchingEnabled")?.unwrap_or(false);
    let messages_max = query.value::<usize>("batchingMaxMessages")?;
    let delay = query.millis("batchingMaxPublishDelay")?;
    if !is_enabled && (messages_max.is_some() || delay.is_some()) {
        let reason = "batchingMaxMessages and batchingMaxPublishDelay need batchingEnabled=true";
        return Err(UpgradeRefusal::bad_request(reason));
    }
    Ok(is_enabled.then(|| Batching {
        // As in Pulsar, 0 is no limit of its own.
        messages_max: messages_max.filter(|count| *count > 0).unwrap_or(PENDING_MAX),
        delay: delay.unwrap_or(BATCH_DELAY).min(NEVER),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_made_for_who_asks_for_them() {
        let read = |query: &str| {
            let read = ProducerParameters::read(&mut Query::parse(query).unwrap());
            read.map(|parameters| parameters.batching)
                .map_err(|refusal| refusal.status.as_u16())
        };
        let batching = |messages_max, ms| {
            let delay = Duration::from_millis(ms);
            Ok(Some(Batching { messages_max, delay }))
        };
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("batchingEnabled=false"), Ok(None));
        assert_eq!(read("batchingEnabled=true"), batching(1000, 1));
        assert_eq!(
            read("batchingEnabled=true&batchingMaxMessages=7&batchingMaxPublishDelay=20"),
            batching(7, 20)
        );
        assert_eq!(read("batchingMaxMessages=7"), Err(400));
        assert_eq!(read("batchingEnabled=false&batchingMaxPublishDelay=7"), Err(400));
        assert_eq!(read("batchingEnabled=yes"), Err(400));
    }
}
