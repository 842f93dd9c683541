//! A topic that shows what is published to another one, its source, which any broker may serve.
//!
//! Its log is a [shadow](pharos_managed_ledger::open_shadow): the source's ledgers, read only. One task follows the
//! source, reads each new entry once, and gives it to all listening shards and dispatchers, as if it had become durable here. Cursors,
//! subscriptions and numbers are the topic's own.
//!
//! The bookies are asked, not the source's broker. What they say is confirmed is durable by the source's ack quorum, in its order, and
//! stays so when that broker dies; no broker needs credentials for another one. A metadata-only message from broker to broker, as Pulsar
//! has it, is one hop less and needs both, and the entry is read from bookies afterwards all the same.
//!
//! Always true: nothing is shown before it is durable in the source, nor while the source does not name the topic as its shadow.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use pharos_catalog::Shadows;
use pharos_feed::READ_ENTRIES_MAX;
use pharos_feed::entry::FeedEntry;
use pharos_managed_ledger::{Entry, Shadow, SourceFollower, SourceNews};
use pharos_requests::error::chain;
use pharos_runtime::{clock, spawn_local};
use pharos_types::{Ordinal, SubscriptionName, TopicName};
use tokio::sync::{Notify, oneshot};

use super::seek::Moving;
use super::{State, Topic, TopicContext};

/// Bytes that are read of a source at a time.
const READ_BYTES_MAX: usize = 1 << 20;
/// Pause after a source could not be read.
const PAUSE: Duration = Duration::from_millis(200);

/// Link of a shadow topic to its source. Dropping it ends the task.
pub(super) struct Following {
    source: TopicName,
    /// The source names it as its shadow.
    is_shown: bool,
    nudge: Rc<Notify>,
    _alive: oneshot::Sender<()>,
}

impl Following {
    /// Begins to follow the source of a topic that was just loaded.
    pub(super) fn begin(topic: &Rc<Topic>, source: TopicName) {
        let log = &mut topic.state.borrow_mut().stored.log;
        let Some(follower) = Shadow::of(&mut log.ledger).map(|shadow| shadow.follower()) else {
            return;
        };
        let (alive, gone) = oneshot::channel();
        let nudge = Rc::new(Notify::new());
        let mut following = Self {
            source,
            is_shown: false,
            nudge: nudge.clone(),
            _alive: alive,
        };
        following.on_policies_changed(&topic.cx);
        log.following = Some(following);
        let me = Rc::downgrade(topic);
        spawn_local(async move {
            tokio::select! {
                () = follow(me, follower, nudge) => {}
                // It is told by being dropped.
                _ = gone => {}
            }
        });
    }

    /// The policies of the source may be others.
    pub(super) fn on_policies_changed(&mut self, cx: &TopicContext) {
        self.is_shown = Shadows::of(&cx.shard.shared.catalog).is_shown_by(&cx.name, &self.source);
        self.nudge.notify_one();
    }

    /// True if policies of this topic affect the source, too.
    pub(super) fn is_of(&self, name: &TopicName) -> bool {
        self.source == *name || self.source.base() == *name
    }
}

/// Reads what is durable in the source and not shown yet, and shows it. Says whether there is nothing left to do.
async fn show_source(topic: &Topic) -> bool {
    loop {
        let (reader, from, end) = {
            let state = topic.state.borrow();
            let log = &state.stored.log;
            let is_shown = log.following.as_ref().is_some_and(|following| following.is_shown);
            if state.stored.closing || !is_shown {
                return true;
            }
            (log.ledger.reader(), log.ledger.durable_end(), log.ledger.end())
        };
        if from >= end {
            topic.state.borrow_mut().end_with_source(&topic.cx);
            return true;
        }
        if topic.state.borrow().attached.consumers.is_empty() {
            topic.state.borrow_mut().show(&topic.cx, Vec::new(), end);
            continue;
        }
        match reader.read(from, end, READ_ENTRIES_MAX, READ_BYTES_MAX).await {
            Ok(entries) => {
                let to = entries.last().map_or(end, |last| last.ordinal.next());
                topic.state.borrow_mut().show(&topic.cx, entries, to);
            }
            Err(error) if error.is_lasting() => {
                // Each consumer that comes to it is told, or moved past it, as in any log.
                let state = &mut *topic.state.borrow_mut();
                state.stored.log.note_damage(&topic.cx, from, &error);
                state.show(&topic.cx, Vec::new(), from.next());
            }
            Err(error) => {
                tracing::debug!(topic = %topic.cx.name, error = chain(&error), "the source is read again soon");
                return false;
            }
        }
    }
}

impl State {
    /// Entries of the source are shown from now on, up to a place.
    fn show(&mut self, cx: &TopicContext, entries: Vec<Entry>, to: Ordinal) {
        let stored = &mut self.stored;
        if let Some(mut shadow) = Shadow::of(&mut stored.log.ledger) {
            shadow.show(&entries, to);
        }
        let now = clock::now();
        let feed_entry = |entry: Entry| {
            Arc::new(FeedEntry {
                ordinal: entry.ordinal,
                position: entry.position,
                facts: cx.codec.facts(&entry.payload),
                payload: entry.payload,
                durable_at: now,
            })
        };
        let entries: Vec<Arc<FeedEntry>> = entries.into_iter().map(feed_entry).collect();
        for entry in &entries {
            let counters = &mut stored.publishing.counters;
            counters.messages_in += u64::from(entry.facts.message_count);
            counters.entries_in += 1;
            counters.bytes_in += entry.payload.len() as u64;
        }
        if !entries.is_empty() {
            let table = stored.log.ledger.table();
            self.attached.links.feed(cx, &table, &entries);
        }
        self.attached.run_dispatchers(cx, stored);
    }

    /// The source may have been terminated: consumers that have had everything are told.
    fn end_with_source(&mut self, cx: &TopicContext) {
        let log = &mut self.stored.log;
        if Shadow::of(&mut log.ledger).is_some_and(|mut shadow| shadow.end_with_source()) {
            let last = log.ledger.last_position();
            log.on_terminated(last);
            self.attached.links.terminated(cx);
        }
    }
}

/// Moves the cursors that stand where the source was trimmed.
fn leave_trimmed(topic: &Topic) {
    let (first, names) = {
        let state = topic.state.borrow();
        let first = state.stored.log.ledger.first();
        if state.stored.cursors.lowest().is_none_or(|lowest| lowest >= first) {
            return;
        }
        let mut names: Vec<SubscriptionName> = state.attached.subscriptions.keys().cloned().collect();
        names.sort_unstable();
        (first, names)
    };
    for name in names {
        if let Err(error) = Moving(topic).skip_to(&name, first) {
            tracing::warn!(topic = %topic.cx.name, subscription = %name, %error, "cannot leave what was trimmed");
        }
    }
}

/// Follows the source for as long as the topic is loaded.
async fn follow(topic: Weak<Topic>, mut follower: SourceFollower, nudge: Rc<Notify>) {
    loop {
        let Some(me) = topic.upgrade() else { return };
        let is_done = show_source(&me).await;
        let at =
            Shadow::of(&mut me.state.borrow_mut().stored.log.ledger).and_then(|shadow| shadow.followed());
        drop(me);
        let news = tokio::select! {
            news = follower.next(at) => news,
            () = nudge.notified() => continue,
            () = tokio::time::sleep(PAUSE), if !is_done => continue,
        };
        let Some(me) = topic.upgrade() else { return };
        match news {
            Ok(SourceNews::Gone) => {
                me.cx
                    .host
                    .give_up(me.clone(), "the topic whose shadow it is was deleted");
                return;
            }
            Ok(news) => {
                if let Some(mut shadow) = Shadow::of(&mut me.state.borrow_mut().stored.log.ledger) {
                    shadow.on_source(news);
                }
                leave_trimmed(&me);
            }
            Err(error) => {
                tracing::warn!(topic = %me.cx.name, error = chain(&error), "cannot look at the source of a shadow topic");
                drop(me);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
