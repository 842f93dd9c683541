//! Runs against a model: a map of the last message of each key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::memory::MemoryEngine;
use pharos_managed_ledger::{CompactedLedgers, Entry, ManagedLedger, OpenMode, ReadError};
use pharos_metadata::{Memory, MetadataLayout};
use pharos_types::Ordinal;
use pharos_types::entry::EntryMessages;
use pharos_wire::message::{BatchBuilder, BatchIter, PulsarEntries, encode_entry, peek, split};
use pharos_wire::proto::{CompressionType, EncryptionKeys, MessageMetadata, SingleMessageMetadata};
use proptest::prelude::*;

use super::*;
use pharos_types::entry::EntryCodec as _;

/// Message: a key of few, or none, and whether it has a value.
#[derive(Clone, Debug)]
struct Sent {
    key: Option<u8>,
    has_value: bool,
}

#[derive(Clone, Debug)]
enum Publish {
    Single(Sent),
    Batch(Vec<Sent>, bool),
    Encrypted,
    /// A chunked message of so many pieces; the last one may be missing.
    Chunked(u8, u32, bool),
}

fn metadata() -> MessageMetadata {
    MessageMetadata {
        producer_name: "p".to_owned(),
        publish_time: 1,
        ..MessageMetadata::default()
    }
}

fn key(key: u8) -> String {
    format!("k{key}")
}

/// The entries of a publish, each value unlike all others.
fn encode(publish: &Publish, number: &mut u64) -> Vec<Bytes> {
    let uuid = format!("u{number}");
    let mut value = |has_value: bool| {
        *number += 1;
        match has_value {
            true => format!("value {number}").into_bytes(),
            false => Vec::new(),
        }
    };
    match publish {
        Publish::Single(sent) => {
            let metadata = MessageMetadata {
                partition_key: sent.key.map(key),
                ..metadata()
            };
            vec![encode_entry(&metadata, &value(sent.has_value))]
        }
        Publish::Batch(all, is_compressed) => {
            let mut batch = BatchBuilder::new();
            for sent in all {
                let metadata = SingleMessageMetadata {
                    partition_key: sent.key.map(key),
                    ..SingleMessageMetadata::default()
                };
                batch.push(metadata, &value(sent.has_value));
            }
            let kind = match is_compressed {
                true => CompressionType::Lz4,
                false => CompressionType::None,
            };
            let metadata = MessageMetadata {
                num_messages_in_batch: Some(batch.num_messages()),
                compression: Some(kind as i32),
                uncompressed_size: Some(batch.payload_bytes() as u32),
                ..metadata()
            };
            let payload = pharos_wire::compression::compress(&batch.take(), kind).unwrap();
            vec![encode_entry(&metadata, &payload)]
        }
        Publish::Encrypted => {
            let metadata = MessageMetadata {
                num_messages_in_batch: Some(3),
                encryption_keys: vec![EncryptionKeys::default()],
                ..metadata()
            };
            vec![encode_entry(&metadata, &value(true))]
        }
        Publish::Chunked(of, pieces, is_complete) => {
            let sent = pieces - u32::from(!is_complete);
            let piece = |index: u32| MessageMetadata {
                partition_key: Some(key(*of)),
                uuid: Some(uuid.clone()),
                chunk_id: Some(index as i32),
                num_chunks_from_msg: Some(*pieces as i32),
                ..metadata()
            };
            let pieces = (0..sent).map(piece).collect::<Vec<_>>();
            pieces
                .into_iter()
                .map(|metadata| encode_entry(&metadata, &value(true)))
                .collect()
        }
    }
}

/// The values of an entry's messages by index, `None` where one is gone; `None` when it cannot be taken apart.
fn values(entry: &Bytes) -> Vec<Option<Bytes>> {
    let parts = split(entry).unwrap();
    assert!(parts.verify_checksum());
    let facts = peek(&parts.metadata).unwrap();
    if facts.num_messages_in_batch.is_none() || facts.is_encrypted {
        return vec![Some(parts.payload)];
    }
    let payload = pharos_wire::compression::decompress(
        &parts.payload,
        facts.compression,
        facts.uncompressed_bytes as usize,
        1 << 20,
    )
    .unwrap();
    let members = BatchIter::new(payload.into(), facts.num_messages()).map(Result::unwrap);
    members
        .map(|member| (!member.metadata.compacted_out.unwrap_or(false)).then_some(member.payload))
        .collect()
}

/// Returns the expected remainder: entries by ordinal, with the indexes that stay in each.
fn model(log: &[Bytes], keep_keyless: bool) -> BTreeMap<u64, BTreeSet<usize>> {
    let mut last: BTreeMap<Box<[u8]>, Vec<(u64, usize)>> = BTreeMap::new();
    let mut always = Vec::new();
    let mut open: BTreeMap<u64, Vec<(u64, usize)>> = BTreeMap::new();
    for (ordinal, entry) in (0..).zip(log) {
        let EntryMessages::Each(messages) = PulsarEntries.messages(entry, 1 << 20) else {
            always.push((ordinal, 0));
            always.push((ordinal, 1));
            always.push((ordinal, 2));
            continue;
        };
        if let Some(chunk) = PulsarEntries.chunk(entry) {
            let pieces = open.entry(chunk.uuid_hash).or_default();
            pieces.push((ordinal, 0));
            if chunk.is_last() {
                let pieces = open.remove(&chunk.uuid_hash).unwrap();
                last.insert(messages[0].key.clone().unwrap(), pieces);
            }
            continue;
        }
        for (index, message) in messages.into_iter().enumerate() {
            match message.key {
                Some(key) if message.is_empty => drop(last.remove(&key)),
                Some(key) => drop(last.insert(key, vec![(ordinal, index)])),
                None if keep_keyless => always.push((ordinal, index)),
                None => {}
            }
        }
    }
    let mut left: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    let all = last
        .into_values()
        .chain(open.into_values())
        .flatten()
        .chain(always);
    for (ordinal, index) in all {
        left.entry(ordinal).or_default().insert(index);
    }
    left
}

struct TheLog(ManagedLedger);

impl ReadLog for TheLog {
    async fn read(&self, from: Ordinal, _: Ordinal, bytes_max: usize) -> Result<Vec<Entry>, ReadError> {
        self.0.read(from, 3, bytes_max).await
    }

    fn skips(&self, _: &ReadError) -> bool {
        false
    }
}

/// A log whose reads leave one entry out, and say nothing of it.
struct Without<'a>(&'a TheLog, u64);

impl ReadLog for Without<'_> {
    async fn read(&self, from: Ordinal, to: Ordinal, bytes_max: usize) -> Result<Vec<Entry>, ReadError> {
        let mut entries = self.0.read(from, to, bytes_max).await?;
        entries.retain(|entry| entry.ordinal != Ordinal(self.1));
        Ok(entries)
    }

    fn skips(&self, error: &ReadError) -> bool {
        self.0.skips(error)
    }
}

async fn compact(log: &TheLog, options: Options) -> Result<Outcome, RunError> {
    let mut writer = CompactedLedgers::of(&log.0).begin().await?;
    let horizon = log.0.durable_end();
    let task = CompactionRun {
        view: CompactedLedgers::of(&log.0).view(),
        log,
        from: log.0.first(),
        horizon,
        codec: &PulsarEntries,
        options,
    };
    match run(&task, &mut writer, || async {}).await {
        Ok(outcome) => {
            writer.finish(horizon, 7).await?;
            Ok(outcome)
        }
        Err(error) => {
            writer.abandon().await;
            Err(error)
        }
    }
}

async fn open() -> TheLog {
    open_in(MetadataLayout::Pharos).await
}

async fn open_in(layout: MetadataLayout) -> TheLog {
    let (engine, metadata) = (Arc::new(MemoryEngine::new()), Arc::new(Memory::new()));
    let options = pharos_managed_ledger::Options {
        layout,
        ..Default::default()
    };
    let log = ManagedLedger::open("a/b/persistent/t", engine, metadata, options, OpenMode::Create, 0);
    TheLog(log.await.unwrap())
}

async fn publish(log: &mut TheLog, all: &[Bytes]) {
    let mut last = None;
    for entry in all {
        last = Some(log.0.append(entry.clone()).unwrap().ordinal);
    }
    if let Some(last) = last {
        log.0.durable_watch().reaches(last).await.unwrap();
    }
}

/// Everything of the compacted ledger, by ordinal: the indexes that are left.
async fn left(log: &TheLog, original: &[Bytes]) -> BTreeMap<u64, BTreeSet<usize>> {
    let Some(view) = CompactedLedgers::of(&log.0).view() else {
        return BTreeMap::new();
    };
    let mut left = BTreeMap::new();
    let mut next = 0;
    let mut before = None;
    while let Some(entry) = view.read(next, 1, 1).await.unwrap().pop() {
        assert!(before < Some(entry.ordinal));
        before = Some(entry.ordinal);
        assert_eq!(log.0.position_of(entry.ordinal), Some(entry.position));
        assert_eq!(view.index_of(entry.ordinal).await.unwrap(), next);
        assert_eq!(view.place_of(entry.position).await.unwrap(), entry.ordinal);
        let was = &original[usize::try_from(entry.ordinal.0).unwrap()];
        let mut stays: BTreeSet<usize> = BTreeSet::new();
        for (index, (value, was)) in values(&entry.payload).into_iter().zip(values(was)).enumerate() {
            if value.is_some() {
                assert_eq!(value, was, "what is left is what was sent");
                stays.insert(index);
            }
        }
        if PulsarEntries.messages(was, 1 << 20) == EntryMessages::Whole {
            stays = BTreeSet::from([0, 1, 2]);
        }
        let last = last_index(&PulsarEntries, &entry.payload, Options::default());
        assert_eq!(entry.last_index.or(last), last);
        if let Some(last) = last {
            assert_eq!(stays.last().copied(), Some(last as usize));
        }
        left.insert(entry.ordinal.0, stays);
        next += 1;
    }
    assert_eq!(next, view.entries());
    left
}

fn sent() -> impl Strategy<Value = Sent> {
    (prop::option::weighted(0.9, 0..5_u8), prop::bool::weighted(0.8))
        .prop_map(|(key, has_value)| Sent { key, has_value })
}

fn publishes() -> impl Strategy<Value = Vec<Publish>> {
    let one = prop_oneof![
        6 => sent().prop_map(Publish::Single),
        4 => (prop::collection::vec(sent(), 1..5), any::<bool>()).prop_map(|(all, is)| Publish::Batch(all, is)),
        1 => Just(Publish::Encrypted),
        1 => (0..5_u8, 2..4_u32, prop::bool::weighted(0.8)).prop_map(|(of, pieces, is)| Publish::Chunked(of, pieces, is)),
    ];
    prop::collection::vec(one, 0..20)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.unwrap().block_on(work)
}

#[test]
fn a_run_that_misses_an_entry_leaves_nothing() {
    block_on(async {
        let mut log = open().await;
        let keyed = Publish::Single(Sent {
            key: Some(1),
            has_value: true,
        });
        let entries: Vec<Bytes> = (0..5)
            .flat_map(|mut number| encode(&keyed, &mut number))
            .collect();
        publish(&mut log, &entries).await;
        for missing in 0..5 {
            let mut writer = CompactedLedgers::of(&log.0).begin().await.unwrap();
            let task = CompactionRun {
                view: None,
                log: &Without(&log, missing),
                from: Ordinal(0),
                horizon: log.0.durable_end(),
                codec: &PulsarEntries,
                options: Options::default(),
            };
            let outcome = run(&task, &mut writer, || async {}).await;
            assert!(
                matches!(outcome, Err(RunError::Missing(_))),
                "{missing}: {outcome:?}"
            );
            writer.abandon().await;
        }
        assert!(CompactedLedgers::of(&log.0).view().is_none());
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// However often and wherever runs are made, what is left is what one look at everything says.
    #[test]
    fn runs_leave_the_last_message_of_each_key(
        rounds in prop::collection::vec(publishes(), 1..4),
        keep_keyless in any::<bool>(),
        is_pulsar_s in any::<bool>(),
    ) {
        block_on(async {
            let options = Options { keep_keyless, ..Options::default() };
            let layout = if is_pulsar_s { MetadataLayout::Pulsar } else { MetadataLayout::Pharos };
            let mut log = open_in(layout).await;
            let (mut all, mut number) = (Vec::new(), 0);
            for round in &rounds {
                let news: Vec<Bytes> = round.iter().flat_map(|one| encode(one, &mut number)).collect();
                publish(&mut log, &news).await;
                all.extend(news);
                compact(&log, options).await.unwrap();
                assert_eq!(left(&log, &all).await, model(&all, keep_keyless));
            }
        });
    }
}

fn single(of: u8, has_value: bool) -> Publish {
    Publish::Single(Sent {
        key: Some(of),
        has_value,
    })
}

#[test]
fn a_topic_with_too_many_keys_is_left_as_it_is_and_the_refusal_names_the_setting() {
    block_on(async {
        let mut log = open().await;
        let mut number = 0;
        let some: Vec<Bytes> = (0..3)
            .flat_map(|of| encode(&single(of, true), &mut number))
            .collect();
        publish(&mut log, &some).await;
        compact(&log, Options::default()).await.unwrap();
        let before = left(&log, &some).await;
        let options = Options {
            keys_bytes_max: 250,
            ..Options::default()
        };
        let error = compact(&log, options).await.unwrap_err();
        assert!(
            error.to_string().contains("topic_compaction.max_keys_size"),
            "{error}"
        );
        assert_eq!(left(&log, &some).await, before);
        // Deleted keys take no room.
        let mut survey = KeySurvey::new(&PulsarEntries, Options::default());
        for (ordinal, publish) in (0..).zip([single(1, true), single(1, false)]) {
            let entry = encode(&publish, &mut number).remove(0);
            survey.look(Ordinal(ordinal), &entry).unwrap();
        }
        assert_eq!(survey.bytes(), 0);
    });
}

#[test]
fn what_went_is_counted_and_a_view_from_which_all_went_is_one() {
    block_on(async {
        let mut log = open().await;
        let mut number = 0;
        let all: Vec<Bytes> = [single(1, true), single(1, true), single(1, false)]
            .iter()
            .flat_map(|one| encode(one, &mut number))
            .collect();
        publish(&mut log, &all).await;
        let outcome = compact(&log, Options::default()).await.unwrap();
        assert_eq!((outcome.removed, outcome.bytes_written), (3, 0));
        let view = CompactedLedgers::of(&log.0).view().unwrap();
        assert_eq!((view.entries(), view.horizon()), (0, Ordinal(3)));
        assert_eq!(view.last().await.unwrap(), None);
        assert_eq!(view.index_of(Ordinal(0)).await.unwrap(), 0);
        CompactedLedgers::of(&log.0).forget().await.unwrap();
        assert!(CompactedLedgers::of(&log.0).view().is_none());
    });
}
