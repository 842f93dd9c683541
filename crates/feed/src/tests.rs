//! Many topics read back at once: within the account, each to its end, whatever some of them do.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pharos_managed_ledger::cursor::AckState;
use pharos_runtime::{Nanos, clock};
use pharos_types::Ordinal;

use super::window::tests::entry;
use super::*;
use crate::ids::ShardId;

/// Requests of feeds, in order.
#[derive(Default)]
struct Host {
    reads: RefCell<VecDeque<(TopicId, Ordinal, usize, usize)>>,
    later: RefCell<Vec<(Ordinal, Duration)>>,
    resumes: RefCell<Vec<(TopicId, ConnectionId)>>,
}

impl FeedHost for Host {
    fn read(&self, topic: TopicId, from: Ordinal, entries_max: usize, bytes_max: usize) {
        let read = (topic, from, entries_max, bytes_max);
        self.reads.borrow_mut().push_back(read);
    }

    fn read_waits(&self) {}

    fn read_room(&self) {}

    fn read_later(&self, _topic: TopicId, from: Ordinal, delay: Duration) {
        self.later.borrow_mut().push((from, delay));
    }

    fn resume_later(&self, topic: TopicId, connection: ConnectionId, _delay: Duration) {
        self.resumes.borrow_mut().push((topic, connection));
    }

    fn wake(&self, _connection: ConnectionId) {}

    fn dirty(&self, _topic: TopicId) {}

    fn end_of_topic(&self, _connection: ConnectionId, _consumer_id: u64) {}
}

/// A socket that takes so many messages at a time.
struct Socket(usize);

impl DeliverySink for Socket {
    fn has_room(&self) -> bool {
        self.0 > 0
    }

    fn begin(&mut self, _entry: &Arc<FeedEntry>, _partition: Option<u32>) {}

    fn message(&mut self, _to: Recipient, _ack_set: &[i64]) {
        self.0 -= 1;
    }
}

const ENTRIES: u64 = 300;
const ENTRY_BYTES: usize = 20_000;
/// Size of one read while there is room, in bytes.
const READ_BYTES: u64 = 2 << 20;

/// A shard with feeds of one cold stream consumer each.
struct Shard {
    host: Rc<Host>,
    backlog: Rc<CatchUpReadBudget>,
    newest: Rc<Newest>,
    rate: Arc<DispatchRateLimiter>,
    feeds: Vec<Rc<Feed>>,
    handles: Vec<ConsumerHandle>,
}

impl Shard {
    fn new(topics: u64, bytes_max: usize) -> Self {
        let mut shard = Self {
            host: Rc::default(),
            backlog: Rc::new(CatchUpReadBudget::new(bytes_max)),
            newest: Rc::new(Newest::new(bytes_max)),
            rate: Arc::default(),
            feeds: Vec::new(),
            handles: Vec::new(),
        };
        for number in 0..topics {
            let topic = TopicId {
                home: ShardId(0),
                number,
            };
            let (feed, handle) = shard.join(topic);
            shard.handles.push(handle);
            shard.feeds.push(feed);
        }
        shard
    }

    /// Another feed, with its consumer.
    fn join(&self, topic: TopicId) -> (Rc<Feed>, ConsumerHandle) {
        let seed = FeedSeed {
            topic,
            name: "persistent://public/default/t".parse().unwrap(),
            tail: Ordinal(ENTRIES),
            table: LedgerTable::default(),
            terminated: false,
        };
        let feed = Feed::new(seed, self.host.clone(), self.backlog.clone(), self.newest.clone());
        let number = topic.number;
        let connection = ConnectionId {
            shard: ShardId(0),
            number,
        };
        let handoff = CursorHandoff {
            slot: None,
            acks: AckState::default(),
            read_from: Ordinal(0),
            durable: false,
            rate: Arc::clone(&self.rate),
            withheld: None,
            activity: Activity::default(),
        };
        let permits = i64::MAX / 2;
        let handle = feed.join(connection, (0, ConsumerKey(number)), handoff, permits, None);
        (feed, handle)
    }

    fn next(&self, topic: usize) -> Ordinal {
        self.handles[topic].with(|consumer| consumer.next).unwrap()
    }

    /// Answers the read that was asked for first.
    fn answer_one(&self) -> bool {
        self.answer(0)
    }

    /// Answers the read at this place of those that wait.
    fn answer(&self, index: usize) -> bool {
        let Some((topic, from, entries_max, bytes_max)) = self.host.reads.borrow_mut().remove(index) else {
            return false;
        };
        let mut bytes = 0;
        let fits = |_: &u64| {
            bytes += ENTRY_BYTES;
            bytes <= bytes_max || bytes == ENTRY_BYTES
        };
        let entries = (from.0..ENTRIES)
            .take(entries_max)
            .take_while(fits)
            .map(|at| entry(at, ENTRY_BYTES))
            .collect();
        self.feeds[topic.number as usize].on_read(from, from, entries);
        true
    }

    /// As the shard does when there may be room.
    fn grant(&self) {
        while let Some(read) = self.backlog.take_waiting() {
            let Waiting::Feed(topic, place) = read else {
                panic!("only feeds wait here");
            };
            if !self.feeds[topic.number as usize].begin_read(place, true) {
                return;
            }
        }
    }

    /// Serves these topics until they are at their end.
    fn serve(&self, topics: std::ops::Range<usize>, bytes_max: usize) {
        for _ in 0..1_000_000 {
            for topic in topics.clone() {
                self.handles[topic].group().fill(&mut Socket(3));
                assert!(self.backlog.used() <= bytes_max, "{} bytes", self.backlog.used());
            }
            let is_answered = self.answer_one();
            self.grant();
            if !is_answered && self.host.reads.borrow().is_empty() {
                if topics.clone().all(|topic| self.next(topic) == Ordinal(ENTRIES)) {
                    return;
                }
                // None of it was used for a while.
                let since = Nanos(clock::now().0 + 1);
                self.feeds.iter().for_each(|feed| feed.drop_unused(since));
                self.grant();
            }
        }
        panic!("not all came to their end");
    }
}

#[test]
fn a_hundred_cold_consumers_stay_within_the_account() {
    let bytes_max = 8 << 20;
    let shard = Shard::new(100, bytes_max);
    // What entries weigh besides their bytes was not foreseen; here that is less than an entry for each read.
    let slack = 100 * ENTRY_BYTES;
    shard.serve(0..100, bytes_max + slack);
    assert!(shard.backlog.peak() > bytes_max / 2 && shard.backlog.peak() <= bytes_max + slack);
    shard.feeds.iter().for_each(|feed| feed.drop_passed());
    assert_eq!((shard.backlog.used(), shard.backlog.holders().len()), (0, 0));
}

#[test]
fn who_takes_nothing_does_not_hold_up_others() {
    let bytes_max = 4 << 20;
    let shard = Shard::new(60, bytes_max);
    // The first fifty ask, get their pages and never take any of it.
    for topic in 0..50 {
        shard.handles[topic].group().fill(&mut Socket(1));
    }
    shard.serve(50..60, bytes_max + 100 * ENTRY_BYTES);
    // What they hold goes with them.
    let Shard {
        backlog,
        feeds,
        handles,
        ..
    } = shard;
    handles.into_iter().for_each(|handle| drop(handle.leave()));
    drop(feeds);
    assert_eq!((backlog.used(), backlog.holders().len()), (0, 0));
}

#[test]
fn one_consumer_finds_the_next_pages_on_their_way() {
    let shard = Shard::new(1, 64 << 20);
    let asked_for = || -> Vec<u64> {
        let reads = shard.host.reads.borrow();
        reads.iter().map(|(_, from, ..)| from.0).collect()
    };
    shard.handles[0].group().fill(&mut Socket(1));
    assert_eq!(asked_for(), [0]);
    assert!(shard.answer_one());
    // The two pages after it are asked for before a consumer is there, and a further one as soon as the first of them is entered.
    let (page, ahead) = (READ_BYTES / 20_160, READ_BYTES / 8 * 7 / 20_160);
    assert_eq!(asked_for(), [page, page + ahead]);
    // They may come in any order.
    assert!(shard.answer(1));
    shard.handles[0].group().fill(&mut Socket(page as usize));
    assert!(shard.answer_one());
    assert!(asked_for().is_empty());
    shard.handles[0].group().fill(&mut Socket(ahead as usize + 1));
    assert_eq!(shard.next(0), Ordinal(page + ahead + 1));
    // Behind that is the tail.
    assert_eq!(asked_for(), [page + 2 * ahead]);
    shard.serve(0..1, 64 << 20);
}

#[test]
fn what_a_page_could_not_hold_is_asked_for() {
    let shard = Shard::new(1, 64 << 20);
    shard.handles[0].group().fill(&mut Socket(1));
    assert!(shard.answer_one());
    // The first of two pages ahead brings less than was hoped.
    let ahead = {
        let mut reads = shard.host.reads.borrow_mut();
        let (.., entries_max, bytes_max) = &mut reads[0];
        *bytes_max = 10 * ENTRY_BYTES;
        *entries_max
    };
    let page = (READ_BYTES / 20_160) as usize;
    assert!(shard.answer_one() && shard.answer_one());
    shard.handles[0].group().fill(&mut Socket(page + 20));
    assert_eq!(shard.next(0), Ordinal(page as u64 + 10));
    // No more than the gap.
    let (_, from, entries_max, _) = shard.host.reads.borrow()[0];
    assert_eq!((from.0 as usize, entries_max), (page + 10, ahead - 10));
    shard.serve(0..1, 64 << 20);
}

#[test]
fn a_failed_read_is_tried_again_more_and_more_seldom() {
    let shard = Shard::new(1, 1 << 20);
    let feed = &shard.feeds[0];
    shard.handles[0].group().fill(&mut Socket(1));
    for _ in 0..3 {
        assert!(shard.host.reads.borrow_mut().pop_front().is_some());
        feed.on_read_failed(Ordinal(0));
        assert_eq!(shard.backlog.used(), 0);
        assert!(feed.begin_read(Ordinal(0), false));
    }
    let pauses: Vec<_> = shard
        .host
        .later
        .borrow()
        .iter()
        .map(|(_, pause)| pause.as_millis())
        .collect();
    assert_eq!(pauses, [100, 200, 400]);
    assert!(shard.answer_one());
    shard.serve(0..1, 2 << 20);
}

#[test]
fn a_feed_whose_consumers_left_with_unreported_progress_is_gone_with_what_it_had() {
    let shard = Shard::new(1, 64 << 20);
    for at in ENTRIES..ENTRIES + 10 {
        shard.feeds[0].on_appended(vec![entry(at, ENTRY_BYTES)]);
    }
    assert!(shard.newest.used() > 10 * ENTRY_BYTES);
    let Shard {
        newest,
        mut feeds,
        mut handles,
        ..
    } = shard;
    let (feed, handle) = (feeds.remove(0), handles.remove(0));
    handle.skip_to(Ordinal(ENTRIES));
    assert_eq!(feed.dirty.borrow().len(), 1);
    // Its topic's home closes the feed before the progress is reported.
    let handoff = handle.leave().unwrap();
    assert_eq!(handoff.acks.acked_to(), Ordinal(ENTRIES));
    drop(feed);
    assert_eq!(newest.used(), 0);
}

#[test]
fn a_subscription_that_got_what_it_may_goes_on_when_it_is_resumed() {
    let shard = Shard::new(2, 64 << 20);
    shard.rate.set(pharos_runtime::Rate {
        messages: 0,
        // The twentieth leaves a debt, so that no time is enough for another.
        bytes: 20 * ENTRY_BYTES as u64 - ENTRY_BYTES as u64 / 2,
        period: Duration::from_secs(86_400),
    });
    let fill = |topic: usize| {
        shard.handles[topic].group().fill(&mut Socket(15));
        while shard.answer_one() {}
        shard.handles[topic].group().fill(&mut Socket(15))
    };
    assert_eq!(fill(0), Filled::Full);
    assert_eq!(fill(1), Filled::Drained);
    // Both are of one subscription here: together they got what it may have, and one of them waits.
    assert_eq!(shard.next(0).0 + shard.next(1).0, 20);
    assert_eq!(shard.host.resumes.borrow().len(), 1);
    // More permits are no reason to send more.
    assert!(shard.handles[1].flow(10));
    assert_eq!(shard.handles[1].group().fill(&mut Socket(15)), Filled::Drained);
    assert_eq!(shard.next(1).0, 5);
    assert_eq!(shard.host.resumes.borrow().len(), 1);
    shard.rate.set(pharos_runtime::Rate::default());
    let (topic, connection) = shard.host.resumes.borrow_mut().remove(0);
    shard.feeds[topic.number as usize].resume(connection);
    assert_eq!(shard.handles[1].group().fill(&mut Socket(15)), Filled::Full);
    assert_eq!(shard.next(1).0, 20);
}

#[test]
fn what_a_transaction_gives_back_is_read_again_from_where_the_consumer_stands() {
    let shard = Shard::new(1, 64 << 20);
    shard.handles[0].skip_to(Ordinal(200));
    shard.serve(0..1, 64 << 20);
    let group = shard.handles[0].group();
    // Everything up to some entry was acknowledged in it.
    shard.feeds[0].release(group.connection, ConsumerKey(0), None, Some(Ordinal(0)));
    assert_eq!(shard.next(0), Ordinal(200));
    shard.serve(0..1, 64 << 20);
}

#[test]
fn a_marker_that_is_passed_is_told_like_any_acknowledgement() {
    let shard = Shard::new(1, 64 << 20);
    let (feed, group) = (&shard.feeds[0], shard.handles[0].group());
    group.with(0, |consumer| consumer.slot = Some(SlotId(3)));
    shard.handles[0].skip_to(Ordinal(ENTRIES));
    assert_eq!(feed.take_progress().moved.len(), 1);
    let mut marker = entry(ENTRIES, 10);
    Arc::get_mut(&mut marker).unwrap().facts.is_marker = true;
    feed.on_appended(vec![marker]);
    assert_eq!(group.fill(&mut Socket(1)), Filled::Drained);
    let moved = feed.take_progress().moved;
    let moved: Vec<_> = moved
        .iter()
        .map(|(slot, acks)| (*slot, acks.acked_to()))
        .collect();
    assert_eq!(moved, [(SlotId(3), Ordinal(ENTRIES + 1))]);
    // Once is enough.
    group.rewind(0, Ordinal(ENTRIES), None);
    assert_eq!(group.fill(&mut Socket(1)), Filled::Drained);
    assert!(feed.take_progress().moved.is_empty());
}

#[test]
fn what_a_compacted_view_has_no_more_is_told_like_any_acknowledgement() {
    let shard = Shard::new(0, 64 << 20);
    let topic = TopicId {
        home: ShardId(0),
        number: 0,
    };
    let (feed, handle) = shard.join(topic.compacted());
    let group = handle.group();
    group.with(0, |consumer| consumer.slot = Some(SlotId(3)));
    let told = || -> Vec<_> {
        let moved = feed.take_progress().moved;
        moved.iter().map(|(_, acks)| acks.acked_to().0).collect()
    };
    assert_eq!(group.fill(&mut Socket(1)), Filled::Drained);
    // Compaction kept one entry in the middle, and nothing after it.
    feed.on_read(Ordinal(0), Ordinal(0), vec![entry(100, 10)]);
    assert_eq!(group.fill(&mut Socket(1)), Filled::Full);
    assert_eq!(told(), [100]);
    assert_eq!(group.fill(&mut Socket(1)), Filled::Drained);
    feed.on_read(Ordinal(101), Ordinal(ENTRIES), Vec::new());
    assert_eq!(told(), [100]);
    assert_eq!(
        handle.with(|consumer| consumer.acks.is_acked(Ordinal(ENTRIES - 1))),
        Some(true)
    );
}
