//! The shards that listen to a topic: to itself, or to its compacted view, which are as two topics to them.

use std::sync::Arc;

use pharos_feed::entry::FeedEntry;
use pharos_feed::ids::{ShardId, TopicId};
use pharos_managed_ledger::LedgerTable;
use pharos_mesh::FeedMessage;
use pharos_types::Ordinal;

use super::publish::shard_id;
use super::{TopicContext, TopicLog};

/// Per shard: how many cursors are handed over to it, and which ledger table it knows.
pub(super) struct Links {
    links: Vec<[Link; 2]>,
}

/// State of a topic's link to one listening shard.
#[derive(Default)]
struct Link {
    /// Cursors handed over to stream consumers there.
    handed_over: u32,
    /// The ledger table that was last sent there.
    table_version: Option<u64>,
}

impl Link {
    /// The table, if the shard does not have it.
    fn news(&mut self, table: &LedgerTable) -> Option<LedgerTable> {
        let is_new = self.table_version.replace(table.version()) != Some(table.version());
        is_new.then(|| table.clone())
    }
}

impl Links {
    /// Links of a topic to this number of shards, none of which listens.
    pub(super) fn new(shards: usize) -> Self {
        Self {
            links: (0..shards).map(|_| Default::default()).collect(),
        }
    }

    /// Number of shards.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Counts one cursor as handed over to a shard, and tells the shard of the topic when it is the first.
    pub(super) fn hand_over(&mut self, cx: &TopicContext, log: &TopicLog, to: ShardId, feed: TopicId) {
        let Some(link) = self.link(to, feed) else {
            return;
        };
        link.handed_over += 1;
        if link.handed_over == 1 {
            let seed = log.seed(cx, feed);
            link.table_version = Some(seed.table.version());
            cx.send_feed(feed, to, FeedMessage::Open { seed });
        }
    }

    /// Records that one cursor was returned by a shard.
    pub(super) fn returned(&mut self, cx: &TopicContext, from: ShardId, feed: TopicId) {
        let Some(link) = self.link(from, feed) else {
            return;
        };
        link.handed_over = link.handed_over.saturating_sub(1);
        if link.handed_over == 0 {
            cx.send_feed(feed, from, FeedMessage::Close);
        }
    }

    /// Tells every listening shard of new entries.
    pub(super) fn feed(&mut self, cx: &TopicContext, table: &LedgerTable, entries: &[Arc<FeedEntry>]) {
        for (index, views) in self.links.iter_mut().enumerate() {
            for (link, is_compacted) in views.iter_mut().zip([false, true]) {
                if link.handed_over == 0 {
                    continue;
                }
                let news = link.news(table);
                cx.send_feed(
                    cx.feed_of(is_compacted),
                    shard_id(index),
                    FeedMessage::Appended {
                        entries: entries.to_vec(),
                        table: news,
                    },
                );
            }
        }
    }

    /// Tells every listening shard that it may read on.
    pub(super) fn readable(&mut self, cx: &TopicContext, table: &LedgerTable, end: Ordinal) {
        for (index, views) in self.links.iter_mut().enumerate() {
            for (link, is_compacted) in views.iter_mut().zip([false, true]) {
                if link.handed_over > 0 {
                    let feed = cx.feed_of(is_compacted);
                    let table = link.news(table);
                    cx.send_feed(feed, shard_id(index), FeedMessage::Readable { end, table });
                }
            }
        }
    }

    /// Tells every shard that nothing will be appended any more.
    pub(super) fn terminated(&self, cx: &TopicContext) {
        for index in 0..self.links.len() {
            for feed in [false, true].map(|is_compacted| cx.feed_of(is_compacted)) {
                cx.send_feed(feed, shard_id(index), FeedMessage::Terminated);
            }
        }
    }

    /// Tells those that listen to the compacted view that there is a new one.
    pub(super) fn compacted(&self, cx: &TopicContext) {
        for (shard, feed) in self.listening(cx) {
            if feed.is_compacted() {
                cx.send_feed(feed, shard, FeedMessage::Compacted);
            }
        }
    }

    /// The shards that listen, and to what.
    pub(super) fn listening(&self, cx: &TopicContext) -> Vec<(ShardId, TopicId)> {
        let mut listening = Vec::new();
        for (index, views) in self.links.iter().enumerate() {
            for (link, is_compacted) in views.iter().zip([false, true]) {
                if link.handed_over > 0 {
                    listening.push((shard_id(index), cx.feed_of(is_compacted)));
                }
            }
        }
        listening
    }

    fn link(&mut self, shard: ShardId, feed: TopicId) -> Option<&mut Link> {
        let [of_log, of_view] = self.links.get_mut(shard.index())?;
        Some(if feed.is_compacted() { of_view } else { of_log })
    }
}
