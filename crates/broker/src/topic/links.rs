//! The shards that listen to a topic.

use std::sync::Arc;

use pharos_managed_ledger::LedgerTable;

use super::publish::shard_id;
use super::{TopicContext, TopicLog};
use crate::entry::FeedEntry;
use crate::ids::ShardId;
use crate::mesh::FeedMessage;

/// Per shard: how many cursors are handed over to it, and which ledger table it knows.
pub(super) struct Links {
    links: Vec<Link>,
}

/// How a topic stands with one listening shard.
#[derive(Default)]
struct Link {
    /// Cursors handed over to stream consumers there.
    handed_over: u32,
    /// The ledger table that was last sent there.
    table_version: Option<u64>,
}

impl Links {
    /// Of a topic to which none of so many shards listens.
    pub(super) fn new(shards: usize) -> Self {
        Self {
            links: (0..shards).map(|_| Link::default()).collect(),
        }
    }

    /// How many shards there are.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Counts one cursor as handed over to a shard, and tells the shard of the topic when it is the first.
    pub(super) fn hand_over(&mut self, cx: &TopicContext, log: &TopicLog, to: ShardId) {
        let Some(link) = self.links.get_mut(to.index()) else {
            return;
        };
        link.handed_over += 1;
        if link.handed_over == 1 {
            let seed = log.seed(cx);
            link.table_version = Some(seed.table.version());
            cx.send_feed(to, FeedMessage::Open { seed });
        }
    }

    /// One cursor came home from a shard.
    pub(super) fn returned(&mut self, cx: &TopicContext, from: ShardId) {
        let Some(link) = self.links.get_mut(from.index()) else {
            return;
        };
        link.handed_over = link.handed_over.saturating_sub(1);
        if link.handed_over == 0 {
            cx.send_feed(from, FeedMessage::Close);
        }
    }

    /// Tells every listening shard of new entries.
    pub(super) fn feed(&mut self, cx: &TopicContext, table: &LedgerTable, entries: &[Arc<FeedEntry>]) {
        for (index, link) in self.links.iter_mut().enumerate() {
            if link.handed_over == 0 {
                continue;
            }
            let news = (link.table_version != Some(table.version())).then(|| table.clone());
            link.table_version = Some(table.version());
            cx.send_feed(
                shard_id(index),
                FeedMessage::Appended {
                    entries: entries.to_vec(),
                    table: news,
                },
            );
        }
    }

    /// Tells every shard that nothing will be appended any more.
    pub(super) fn terminated(&self, cx: &TopicContext) {
        for index in 0..self.links.len() {
            cx.send_feed(shard_id(index), FeedMessage::Terminated);
        }
    }

    /// The shards that listen.
    pub(super) fn listening(&self) -> Vec<ShardId> {
        let links = self.links.iter().enumerate();
        let handed_over = links.filter(|(_, link)| link.handed_over > 0);
        handed_over.map(|(index, _)| shard_id(index)).collect()
    }
}
