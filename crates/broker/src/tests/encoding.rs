//! A broker whose entries are of another encoding than Pulsar's: it knows of an entry what its codec says and nothing else.

use pharos_feed::entry::EntryCodec;
use pharos_types::entry::{Chunk, EntryFacts, EntryMessages, Sequence};
use pharos_types::hash::murmur3_32;
use pharos_types::{TxnEntry, TxnId, TxnOutcome};

use super::*;

/// Entries are text: `key count rest`.
struct Text;

impl EntryCodec for Text {
    fn facts(&self, entry: &[u8]) -> EntryFacts {
        let count = words(entry).1.parse::<u32>().unwrap();
        EntryFacts {
            message_count: count,
            is_batch: count > 1,
            ..EntryFacts::PLAIN
        }
    }

    fn key_hash(&self, entry: &[u8]) -> u32 {
        murmur3_32(words(entry).0.as_bytes())
    }

    fn chunk(&self, _: &[u8]) -> Option<Chunk> {
        None
    }

    fn sequence<'e>(&self, _: &'e [u8]) -> Option<Sequence<'e>> {
        None
    }

    fn messages(&self, _: &[u8], _: usize) -> EntryMessages {
        EntryMessages::Whole
    }

    fn retain(&self, _: &[u8], _: &[bool], _: usize) -> Option<Vec<u8>> {
        None
    }

    fn transaction(&self, _: &[u8]) -> Option<TxnEntry> {
        None
    }

    fn encode_txn_end(&self, _: TxnId, _: TxnOutcome, _: u64) -> Vec<u8> {
        b"key 1 end".to_vec()
    }

    fn encode_own(&self, producer: &str, _: u64, payload: &[u8]) -> Vec<u8> {
        [producer.as_bytes(), b" 1 ", payload].concat()
    }
}

fn words(entry: &[u8]) -> (&str, &str) {
    let text = std::str::from_utf8(entry).unwrap();
    let mut words = text.split(' ');
    (words.next().unwrap(), words.next().unwrap())
}

async fn bench() -> Bench {
    Bench::of_encoding(
        Arc::new(MemoryEngine::new()),
        Arc::new(Memory::new()),
        |_| (),
        &Text,
    )
    .await
}

#[tokio::test]
async fn a_broker_knows_of_entries_what_its_codec_says() {
    let bench = bench().await;
    let name = topic("persistent://public/default/text");
    bench.create_topic(&name).await;
    let texts: Vec<String> = (0..40)
        .map(|number| format!("key-{} 1 {number}", number % 8))
        .collect();
    let entries: Vec<Bytes> = texts.into_iter().map(Bytes::from).collect();
    // Read back from the log: only the codec has said what is in these entries.
    bench.publish_entries(bench.away(&name), &name, entries).await;
    let mut numbers = Vec::new();
    for consumer in ["a", "b"] {
        let wish = Wish {
            subscription: "s",
            name: consumer,
            kind: SubscriptionType::KeyShared,
        };
        numbers.push(bench.consume(bench.away(&name), &name, wish).await);
    }
    let batch = Bytes::from_static(b"key-9 5 batch");
    bench.publish_entries(bench.home(&name), &name, vec![batch]).await;
    let mut keys: Vec<Vec<String>> = Vec::new();
    let mut count = 0;
    for _ in 0..5_000 {
        let figures = bench.figures(&name).await;
        if figures.subscriptions[0].dispatch.unwrap().unacked == 45 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for number in numbers {
        let got = bench
            .with_client(bench.away(&name), number, |client| async move {
                let got = client.got.borrow();
                got.iter()
                    .map(|entry| words(&entry.payload).0.to_owned())
                    .collect::<Vec<_>>()
            })
            .await;
        count += got.len();
        keys.push(got);
    }
    assert_eq!(count, 41);
    assert!(keys[0].iter().all(|key| !keys[1].contains(key)), "{keys:?}");
    let last = bench.at_home(&name, |topic| async move { topic.last_message().await.unwrap() });
    assert_eq!(last.await.batch_size, Some(5));
}

#[tokio::test]
async fn the_health_check_sends_a_message_of_the_brokers_encoding() {
    let bench = bench().await;
    let name = topic("persistent://public/default/health");
    bench.create_topic(&name).await;
    let round = bench.at_home(&name, |topic| async move {
        topic.round_trip("key", "beat", Duration::from_secs(10)).await
    });
    round.await.unwrap();
    assert_eq!(
        bench.figures(&name).await.counters.entries_in,
        0,
        "no client published it"
    );
}
