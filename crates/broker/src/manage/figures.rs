//! The numbers of a shard. Cheap to gather: counters and histograms, nothing is read from storage.

use std::rc::Rc;

use pharos_feed::ids::TopicId;
use pharos_feed::{Feed, FeedStages};
use pharos_topic::{Past, StreamConsumerFigures, TopicFigures, TopicHandle, Wanted};

use crate::shard::{Counts, Shard};

/// Topics, and feeds, that are asked before others on the shard get their turn.
const ASKED_PER_TURN: usize = 16;

/// Figures of one shard.
#[derive(Clone, Debug)]
pub struct ShardFigures {
    /// Connections that came, and of these such as left.
    pub connections: (u64, u64),
    /// Connections that live here.
    pub living: u64,
    /// Topics whose home it is, with neither producers nor consumers one by one.
    pub topics: Vec<TopicFigures>,
    /// Feeds: where stream consumers here get their topics from, whatever shard is these topics' home.
    pub feeds: Vec<FeedFigures>,
    /// Stages of feeds that are gone.
    pub past: FeedStages,
    /// Counters of topics that are not loaded any more.
    pub unloaded: Past,
    /// Connections, lookups and loads.
    pub counts: Counts,
    /// Bytes held or reserved of what was read back for consumers that are behind.
    pub backlog_bytes: u64,
    /// Bytes of the newest entries at hand.
    pub newest_bytes: u64,
    /// Reads for consumers that are behind that wait for room.
    pub backlog_waiting: u64,
}

/// Figures of one feed.
#[derive(Clone, Debug)]
pub struct FeedFigures {
    /// Its topic.
    pub topic: TopicId,
    /// Its stream consumers.
    pub stream_consumers: Vec<StreamConsumerFigures>,
    /// Latency of entries from durable to the stream consumers, and back.
    pub stages: FeedStages,
}

/// Asks all topics and feeds of a shard, a few at a time: messages must not wait until ten thousand were asked.
pub(super) async fn of_shard(shard: Rc<Shard>) -> ShardFigures {
    let mut topics = Vec::new();
    // In one moment with the list of those that are loaded: what is unloaded meanwhile must be counted once.
    let unloaded = {
        let mut past = shard.home.topics.past.borrow_mut();
        past.keep(|namespace| shard.shared.catalog.namespaces().has(namespace));
        past.clone()
    };
    for some in shard.home.topics.all().chunks(ASKED_PER_TURN) {
        topics.extend(
            some.iter()
                .map(|topic| TopicHandle::new(topic.clone()).figures(Wanted::default())),
        );
        tokio::task::yield_now().await;
    }
    // In one moment: the stages of a feed that goes meanwhile must not be counted in both.
    let (past, all) = (shard.feeds.past_stages(), shard.feeds.all());
    let mut feeds = Vec::new();
    for some in all.chunks(ASKED_PER_TURN) {
        feeds.extend(some.iter().map(|feed| FeedFigures {
            topic: feed.topic.itself(),
            stream_consumers: stream_consumers(feed, false),
            stages: feed.stages(),
        }));
        tokio::task::yield_now().await;
    }
    ShardFigures {
        connections: shard.connections.counts(),
        living: shard.connections.living(),
        topics,
        feeds,
        past,
        unloaded,
        counts: shard.tally().counts(),
        backlog_bytes: shard.feeds.budget().used() as u64,
        newest_bytes: shard.feeds.newest().used() as u64,
        backlog_waiting: shard.feeds.budget().waiting() as u64,
    }
}

pub(super) fn stream_consumers(feed: &Feed, with_ranges: bool) -> Vec<StreamConsumerFigures> {
    let (mut found, tail) = (Vec::new(), feed.tail());
    feed.for_each_consumer(|_, consumer| {
        found.push(StreamConsumerFigures::of(consumer, tail, with_ranges));
    });
    found
}
