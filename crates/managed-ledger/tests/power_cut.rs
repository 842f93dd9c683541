//! Topics of every durability over power cuts and kills: they open again with the subscriptions that were answered.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::Durability;
use pharos_managed_ledger::cursor_log::{CursorLogOptions, Record, Slot, SubscriptionId};
use pharos_managed_ledger::{AckState, CursorLog, ManagedLedger, OpenMode, Options};
use pharos_metadata::Memory;
use pharos_runtime::fs::FaultFs;
use pharos_storage::IoMode;
use pharos_storage::manual::Manual;
use pharos_types::Ordinal;

const NAME: &str = "public/default/persistent/t";

/// A machine whose metadata is synced and whose ledgers are on a disk that loses what is not.
struct Machine {
    fs: FaultFs,
    metadata: Arc<Memory>,
    durability: Durability,
}

/// A topic in one life of the process.
struct Topic {
    store: Manual,
    ledger: ManagedLedger,
    cursors: CursorLog,
}

impl Machine {
    fn open(&self) -> Topic {
        let options = pharos_storage::Options {
            block_bytes: 512,
            io: IoMode::Buffered,
            segment_bytes_first: 64 << 10,
            segment_bytes: 64 << 10,
            entry_bytes_max: 8 << 10,
            group_bytes_max: 16 << 10,
            spare_segments: 0,
            ..pharos_storage::Options::default()
        };
        let mut store = Manual::open(self.fs.mount(), Path::new("/store"), options).unwrap();
        let (engine, metadata) = (Arc::clone(&store.storage), Arc::clone(&self.metadata));
        let options = Options {
            durability: self.durability,
            ..Options::default()
        };
        let open = ManagedLedger::open(NAME, engine, metadata, options, OpenMode::Create, 0);
        let ledger = store.run(open).unwrap();
        let cursors = CursorLog::open(&ledger, CursorLogOptions::default(), 0);
        let cursors = store.run(cursors).unwrap();
        Topic {
            store,
            ledger,
            cursors,
        }
    }
}

impl Topic {
    /// Makes what is queued durable, as the cursor log says it is.
    fn commit(&mut self) {
        let ticket = self.cursors.commit();
        while let Some(step) = self.cursors.take_maintenance(0) {
            let done = self.store.run(step);
            self.cursors.on_maintenance(done, 0);
        }
        self.store.run(ticket.durable()).unwrap();
    }

    fn subscribe(&mut self, number: u32) {
        let subscription = SubscriptionId(number);
        let created = Record::SubscriptionCreated {
            subscription,
            name: format!("s{number}"),
            kind: 0,
            properties: Default::default(),
            facts: Vec::new(),
        };
        self.cursors.queue(created).unwrap();
        let created = Record::CursorCreated {
            slot: Slot(number),
            subscription,
            consumer: String::new(),
            facts: Vec::new(),
            acks: AckState::new(Ordinal(0)),
        };
        self.cursors.queue(created).unwrap();
        self.commit();
    }
}

fn topics_open_again(crash: impl Fn(&FaultFs)) {
    for durability in [Durability::Sync, Durability::Async, Durability::Bypass] {
        for seed in 0..40 {
            let machine = Machine {
                fs: FaultFs::new(seed),
                metadata: Arc::default(),
                durability,
            };
            let mut topic = machine.open();
            for number in 0..4 {
                assert_eq!(
                    topic.cursors.subscriptions().len(),
                    number as usize,
                    "{durability:?}, seed {seed}"
                );
                topic.subscribe(number);
                for _ in 0..10 {
                    topic.ledger.append(Bytes::from("entry")).unwrap();
                }
                drop(topic);
                crash(&machine.fs);
                topic = machine.open();
            }
        }
    }
}

#[test]
fn a_topic_of_any_durability_opens_again_after_a_power_cut() {
    topics_open_again(FaultFs::crash);
}

#[test]
fn a_topic_of_any_durability_opens_again_after_a_kill() {
    topics_open_again(FaultFs::restart);
}
