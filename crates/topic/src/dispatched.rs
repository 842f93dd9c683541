//! Driving the dispatcher of a Shared or Key_Shared subscription: feeding it events, reading what it asks for, sending
//! what it deals.

use std::sync::Arc;
use std::time::Duration;

use pharos_dispatch::{self as dispatch, DelayOptions, Dispatcher, EntryRef, Limits, Next};
use pharos_feed::entry::{EntryCodec, FeedEntry};
use pharos_feed::ids::{ConsumerKey, SlotId};
use pharos_feed::{Moment, Sent, retry_delay};
use pharos_managed_ledger::Lookup;
use pharos_managed_ledger::cursor::AckState;
use pharos_mesh::{ConnectionEvent, Dispatched};
use pharos_requests::error::{ReadAgainError, chain};
use pharos_runtime::{clock, millis, spawn_local};
use pharos_types::{Ordinal, Position, SubscriptionName};

use super::reads::LogReads;
use super::subscription::{Body, DispatchedBody};
use super::{Attached, Stored, Topic, TopicContext};

/// Rounds of read and deal before others get their turn.
const ROUNDS_MAX: usize = 8;

/// Entries of a read, by outcome.
#[derive(Default)]
struct Runs {
    /// Rising.
    entries: Vec<Arc<FeedEntry>>,
    /// Entries that no longer exist, or count as such.
    gone: Vec<Ordinal>,
    /// Entries that cannot be read now and are not skipped for good; only of entries in replay.
    aside: Vec<Ordinal>,
}

/// Purpose of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Entries that were not read before.
    New,
    /// Entries that were out and come again: no consumer need wait for one of them to get the others.
    Replay,
}

/// Reason why nothing was read.
enum Failed {
    /// The entry cannot be read any more, which was told once.
    Told,
    /// Temporary failure; a later read may succeed.
    Now(String),
}

impl Stored {
    /// Dispatcher options and limits of this topic.
    pub(super) fn dispatch_options(&self) -> (dispatch::Options, Limits) {
        let delayed = self.policies.delayed_delivery;
        let delay = DelayOptions {
            tick_ms: i64::try_from(millis(delayed.tick)).unwrap_or(1000),
            strict: delayed.strict,
            ..DelayOptions::default()
        };
        let options = dispatch::Options {
            delay: delayed.active.then_some(delay),
            key_shared: self.key_shared,
            ..dispatch::Options::default()
        };
        let limits = Limits {
            unacked_per_consumer_max: self.policies.max_unacked_per_consumer,
            unacked_per_subscription_max: self.policies.max_unacked_per_subscription,
        };
        (options, limits)
    }
}

impl DispatchedBody {
    /// A dispatcher that has just taken over a cursor.
    pub(super) fn new(slot: Option<SlotId>, dispatcher: Dispatcher) -> Self {
        Self {
            slot,
            dispatcher,
            reading: false,
            awaits_room: false,
            read_failures: 0,
            dirty: false,
            flush_set: false,
            alarm_ms: None,
        }
    }

    /// Asks the dispatcher again when sockets have taken some of what was handed out.
    fn await_room(&mut self, cx: &TopicContext, name: &SubscriptionName) {
        self.awaits_room = true;
        let (me, unwritten, name) = (cx.me.clone(), cx.unwritten().clone(), name.clone());
        spawn_local(async move {
            unwritten.room_to_deal().await;
            if let Some(me) = me.upgrade() {
                me.with_attached(|attached, cx, stored| attached.on_room(cx, stored, &name));
            }
        });
    }

    /// Reads runs of entries from the log, once there is room for what that brings, and deals them when they are here.
    fn read(
        &mut self,
        cx: &TopicContext,
        (name, generation): (&SubscriptionName, u64),
        purpose: Purpose,
        wanted: Vec<(Ordinal, usize)>,
        bytes_max: usize,
    ) {
        let Some(me) = cx.me() else { return };
        self.reading = true;
        let name = name.clone();
        spawn_local(async move {
            let Some(room) = me.cx.room_to_read(bytes_max).await else {
                return;
            };
            let outcome = me.reads().read_runs(purpose, &wanted, room.bytes()).await;
            me.with_attached(|attached, cx, stored| {
                attached.on_runs_read(cx, stored, &name, generation, outcome);
            });
            me.cx.host.end_read(room);
        });
    }

    /// The cursor is persisted within the flush interval, if it changed.
    pub(super) fn flush_soon(&mut self, cx: &TopicContext, name: &SubscriptionName) {
        if !self.dirty || self.flush_set {
            return;
        }
        self.flush_set = true;
        let Some(me) = cx.me() else { return };
        let (name, interval) = (name.clone(), cx.options().cursor_flush_interval);
        spawn_local(async move {
            tokio::time::sleep(interval).await;
            me.flush_dispatched(&name);
        });
    }

    /// Takes the acknowledgement state to persist, if it changed.
    fn take_changed(&mut self) -> Option<(SlotId, AckState)> {
        self.flush_set = false;
        let slot = self.slot.filter(|_| self.dirty);
        self.dirty = false;
        Some((slot?, self.dispatcher.acks().clone()))
    }

    /// Asks the dispatcher again at a time, in milliseconds since 1970.
    fn set_alarm(&mut self, cx: &TopicContext, name: &SubscriptionName, at_ms: i64) {
        if self.alarm_ms.is_some_and(|set| set <= at_ms && set > now_ms()) {
            return;
        }
        self.alarm_ms = Some(at_ms);
        let Some(me) = cx.me() else { return };
        let name = name.clone();
        let wait = u64::try_from(at_ms - now_ms()).unwrap_or(0).max(1);
        spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            me.with_attached(|attached, cx, stored| attached.run_dispatcher(cx, stored, &name));
        });
    }
}

impl Attached {
    /// Dispatcher of a subscription, if its current type has one.
    pub(super) fn dispatched(&mut self, name: &SubscriptionName) -> Option<&mut DispatchedBody> {
        match &mut self.subscriptions.get_mut(name)?.body {
            Body::Dispatched(body) => Some(body),
            Body::Stream(_) | Body::Broadcast(_) => None,
        }
    }

    /// Something became durable: every dispatcher may have work.
    pub(super) fn run_dispatchers(&mut self, cx: &TopicContext, stored: &mut Stored) {
        for name in self.subscriptions.dispatched() {
            self.run_dispatcher(cx, stored, &name);
        }
    }

    /// Reads and deals until the dispatcher wants nothing that is at hand.
    pub(super) fn run_dispatcher(&mut self, cx: &TopicContext, stored: &mut Stored, name: &SubscriptionName) {
        for _ in 0..ROUNDS_MAX {
            if !self.run_round(cx, stored, name) {
                return;
            }
        }
        run_again(cx, name.clone());
    }

    /// Runs one round. Returns true if another may follow at once.
    fn run_round(&mut self, cx: &TopicContext, stored: &mut Stored, name: &SubscriptionName) -> bool {
        let end = stored.log.readable_end();
        let Some(subscription) = self.subscriptions.get_mut(name) else {
            return false;
        };
        let generation = subscription.generation;
        let Body::Dispatched(body) = &mut subscription.body else {
            return false;
        };
        if body.reading || body.awaits_room {
            return false;
        }
        let room = cx.unwritten().room();
        if room == 0 {
            body.await_room(cx, name);
            return false;
        }
        let rate = &subscription.rate;
        if let Some(wait) = rate.wait(clock::now()) {
            let wait_ms = i64::try_from(millis(wait)).unwrap_or(i64::MAX);
            body.set_alarm(cx, name, now_ms().saturating_add(wait_ms));
            return false;
        }
        let (messages_max, room) = match rate.is_off() {
            true => (usize::MAX, room),
            false => {
                let (messages, bytes) = rate.left();
                (usize::try_from(messages).unwrap_or(usize::MAX), bytes.min(room))
            }
        };
        let first = stored.log.ledger.first();
        match body.dispatcher.next(now_ms(), end) {
            Next::Idle => false,
            Next::WaitUntil(at_ms) => {
                body.set_alarm(cx, name, at_ms);
                false
            }
            Next::Read {
                from,
                entries_max,
                bytes_max,
            } => {
                let bytes_max = usize::try_from(bytes_max.min(room)).unwrap_or(usize::MAX);
                let entries_max = (entries_max as usize).min(messages_max);
                let from = from.max(first);
                if let Some(entries) = stored.log.cached(from, entries_max, bytes_max) {
                    let entries: Vec<_> = entries.into_iter().map(|entry| cx.feed_entry(entry)).collect();
                    self.deal(cx, name, &entries, &[]);
                    return true;
                }
                let wanted = vec![(from, entries_max)];
                body.read(cx, (name, generation), Purpose::New, wanted, bytes_max);
                false
            }
            Next::Replay {
                mut ordinals,
                bytes_max,
            } => {
                ordinals.truncate(messages_max);
                let bytes_max = usize::try_from(bytes_max.min(room)).unwrap_or(usize::MAX);
                let wanted = runs(&ordinals);
                // A single run is often what was just sent and comes back unacknowledged: it may still be at hand.
                if let [(from, count)] = *wanted
                    && from >= first
                    && let Some(entries) = stored.log.cached(from, count, bytes_max)
                {
                    let entries: Vec<_> = entries.into_iter().map(|entry| cx.feed_entry(entry)).collect();
                    self.deal(cx, name, &entries, &[]);
                    return true;
                }
                body.read(cx, (name, generation), Purpose::Replay, wanted, bytes_max);
                false
            }
        }
    }

    /// There is room to deal again.
    fn on_room(&mut self, cx: &TopicContext, stored: &mut Stored, name: &SubscriptionName) {
        if let Some(body) = self.dispatched(name) {
            body.awaits_room = false;
            self.run_dispatcher(cx, stored, name);
        }
    }

    /// A read for a subscription is over.
    fn on_runs_read(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        name: &SubscriptionName,
        generation: u64,
        outcome: Result<Runs, Failed>,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(name) else {
            return;
        };
        if subscription.generation != generation {
            return; // It became something else meanwhile; that one reads for itself.
        }
        let Body::Dispatched(body) = &mut subscription.body else {
            return;
        };
        body.reading = false;
        match outcome {
            Ok(runs) => {
                body.read_failures = 0;
                body.dispatcher.set_aside(&runs.aside);
                self.deal(cx, name, &runs.entries, &runs.gone);
                // What found no consumer is not kept while the next read waits for room.
                drop(runs);
                self.run_dispatcher(cx, stored, name);
            }
            Err(failed) => {
                if let Failed::Now(error) = failed {
                    tracing::error!(topic = %cx.name, subscription = %name, error, "cannot read for a subscription");
                }
                body.dispatcher.read_failed();
                body.read_failures = body.read_failures.saturating_add(1);
                let delay = retry_delay(body.read_failures).as_millis();
                let at_ms = now_ms().saturating_add(i64::try_from(delay).unwrap_or(i64::MAX));
                body.set_alarm(cx, name, at_ms);
            }
        }
    }

    /// Gives entries to the dispatcher and sends what it deals.
    fn deal(
        &mut self,
        cx: &TopicContext,
        name: &SubscriptionName,
        entries: &[Arc<FeedEntry>],
        gone: &[Ordinal],
    ) {
        let Some(subscription) = self.subscriptions.get_mut(name) else {
            return;
        };
        let by_key = subscription.kind == Some(super::SubscriptionType::KeyShared);
        let Body::Dispatched(body) = &mut subscription.body else {
            return;
        };
        let refs: Vec<EntryRef> = entries
            .iter()
            .map(|entry| entry_ref(cx.codec, entry, by_key))
            .collect();
        let mut deliveries = Vec::new();
        if !gone.is_empty() {
            body.dirty |= body.dispatcher.gone(gone).changed;
        }
        body.dirty |= body
            .dispatcher
            .on_entries(now_ms(), &refs, &mut deliveries)
            .changed;
        body.flush_soon(cx, name);
        let now = Moment::at(clock::now());
        let mut runs: Vec<(ConsumerKey, Vec<Dispatched>)> = Vec::new();
        for delivery in deliveries {
            let key = ConsumerKey(delivery.consumer.0);
            let Some(entry) = entries.get(delivery.entry_index as usize) else {
                continue;
            };
            let Some(consumer) = self.consumers.get_mut(&key) else {
                continue;
            };
            let sent = Sent {
                messages: u64::from(entry.facts.message_count),
                bytes: entry.payload.len() as u64,
            };
            subscription.rate.take(sent.messages, sent.bytes);
            consumer.activity.note_sent(sent, now);
            subscription.activity.note_sent(sent, now);
            self.sent.add(sent);
            let item = Dispatched {
                consumer_id: consumer.consumer_id,
                key,
                entry: entry.clone(),
                held: cx.unwritten().hold(entry.payload.len(), true),
                partition: cx.name.partition(),
                redelivery_count: delivery.redelivery_count,
                ack_set: delivery.ack_set.unwrap_or_default(),
            };
            match runs.last_mut() {
                Some((last, items)) if *last == key => items.push(item),
                _ => runs.push((key, vec![item])),
            }
        }
        for (key, items) in runs {
            if let Some(consumer) = self.consumers.get(&key) {
                cx.tell_connection(consumer.connection, ConnectionEvent::Dispatched(items));
            }
        }
    }

    /// Queues the cursor of a dispatched subscription for the log if it changed. Returns whether it did: it is to be committed.
    pub(super) fn flush_dispatched(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        name: &SubscriptionName,
    ) -> bool {
        let Some((slot, acks)) = self.dispatched(name).and_then(DispatchedBody::take_changed) else {
            return false;
        };
        stored.change_cursors(cx, |cursors| cursors.moved(slot, &acks));
        stored.trim_soon(cx);
        true
    }

    fn with_dispatcher(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        key: ConsumerKey,
        change: impl FnOnce(&mut Dispatcher, dispatch::ConsumerKey),
    ) {
        if cx.is_non_persistent() {
            return self.with_sharing(key, change);
        }
        let Some(consumer) = self.consumers.get(&key) else {
            return;
        };
        let name = consumer.subscription.clone();
        if let Some(body) = self.dispatched(&name) {
            change(&mut body.dispatcher, dispatch::ConsumerKey(key.0));
            self.run_dispatcher(cx, stored, &name);
        }
    }

    pub(super) fn on_flow(&mut self, cx: &TopicContext, stored: &mut Stored, key: ConsumerKey, permits: u32) {
        if let Some(consumer) = self.consumers.get_mut(&key) {
            consumer.flow_at_ms = clock::wall_ms();
        }
        self.with_dispatcher(cx, stored, key, |dispatcher, key| dispatcher.flow(key, permits));
    }

    pub(super) fn on_written(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        key: ConsumerKey,
        bytes: u64,
    ) {
        self.with_dispatcher(cx, stored, key, |dispatcher, key| dispatcher.written(key, bytes));
    }

    pub(super) fn on_redeliver(
        &mut self,
        cx: &TopicContext,
        stored: &mut Stored,
        key: ConsumerKey,
        positions: Option<&[Position]>,
    ) {
        let ordinals = positions.map(|positions| {
            let (table, end) = (stored.log.ledger.table(), stored.log.ledger.durable_end());
            let exact = |position: &Position| match table.ordinal_of(*position, end) {
                Lookup::Exact(ordinal) => Some(ordinal),
                _ => None,
            };
            positions.iter().filter_map(exact).collect::<Vec<_>>()
        });
        let mut messages = 0;
        self.with_dispatcher(cx, stored, key, |dispatcher, key| {
            messages = dispatcher.redeliver(key, ordinals.as_deref());
        });
        let Some(consumer) = self.consumers.get_mut(&key) else {
            return;
        };
        consumer.activity.redelivered += messages;
        if let Some(subscription) = self.subscriptions.get_mut(&consumer.subscription) {
            subscription.activity.redelivered += messages;
        }
    }
}

fn run_again(cx: &TopicContext, name: SubscriptionName) {
    let Some(me) = cx.me() else { return };
    spawn_local(async move {
        tokio::task::yield_now().await;
        me.with_attached(|attached, cx, stored| attached.run_dispatcher(cx, stored, &name));
    });
}

impl LogReads<'_> {
    /// The entries of several runs, as far as they fit into `bytes_max`, and those that no longer exist or cannot be read.
    async fn read_runs(
        &self,
        purpose: Purpose,
        wanted: &[(Ordinal, usize)],
        bytes_max: usize,
    ) -> Result<Runs, Failed> {
        let mut runs = Runs::default();
        let mut bytes = 0;
        for (from, count) in wanted {
            if bytes >= bytes_max && !runs.entries.is_empty() {
                break;
            }
            let first = self.state.borrow().stored.log.ledger.first();
            let start = (*from).max(first);
            let end = from.plus(*count as u64);
            // What lies before the first ledger that is left was trimmed: acknowledged by all other subscriptions.
            runs.gone.extend((from.0..start.0.min(end.0)).map(Ordinal));
            if start >= end {
                continue;
            }
            let count = usize::try_from(start.count_to(end)).unwrap_or(usize::MAX);
            let read = self
                .state
                .borrow()
                .stored
                .log
                .read(start, count, bytes_max - bytes.min(bytes_max));
            let found = match read.await {
                Ok(found) => found,
                Err(error) if error.is_lasting() => {
                    self.state
                        .borrow_mut()
                        .stored
                        .log
                        .note_damage(self.cx, start, &error);
                    // What follows it in its run is asked for again.
                    match purpose {
                        _ if self.cx.skips(&error) => {
                            self.cx.count_skip();
                            runs.gone.push(start);
                        }
                        Purpose::Replay => runs.aside.push(start),
                        Purpose::New => return Err(Failed::Told),
                    }
                    continue;
                }
                Err(error) => return Err(Failed::Now(chain(&error))),
            };
            bytes += found.iter().map(|entry| entry.payload.len()).sum::<usize>();
            runs.entries.extend(
                found
                    .into_iter()
                    .filter(|entry| entry.ordinal < end)
                    .map(|entry| self.cx.feed_entry(entry)),
            );
        }
        Ok(runs)
    }
}

impl Topic {
    /// Persists the cursor of a dispatched subscription if it changed.
    pub(super) fn flush_dispatched(&self, name: &SubscriptionName) {
        if self.with_attached(|attached, cx, stored| attached.flush_dispatched(cx, stored, name)) {
            self.start_commit();
        }
    }

    /// Entries that were dealt before, rising, and those of them that no longer exist; once there is room for what that brings.
    /// Brings the first of them whatever its size, and maybe not all.
    pub async fn read_again(
        &self,
        ordinals: &[Ordinal],
        bytes_max: usize,
    ) -> Result<(Vec<Arc<FeedEntry>>, Vec<Ordinal>), ReadAgainError> {
        let room = self.cx.room_to_read(bytes_max).await;
        let room = room.ok_or(ReadAgainError::Closed)?;
        // One that was lost meanwhile ends this: what its consumer had comes again, around that one.
        let outcome = self
            .reads()
            .read_runs(Purpose::New, &runs(ordinals), room.bytes())
            .await;
        self.cx.host.end_read(room);
        match outcome {
            Ok(read) => Ok((read.entries, read.gone)),
            Err(Failed::Told) => Err(ReadAgainError::Closed),
            Err(Failed::Now(error)) => Err(ReadAgainError::Failed(error)),
        }
    }
}

/// Facts of an entry that the dispatcher needs. The key hash is computed only if keys matter.
pub(super) fn entry_ref(codec: &dyn EntryCodec, entry: &FeedEntry, by_key: bool) -> EntryRef {
    let key_hash = if by_key { codec.key_hash(&entry.payload) } else { 0 };
    let chunk = if entry.facts.is_chunk {
        codec.chunk(&entry.payload)
    } else {
        None
    };
    EntryRef {
        ordinal: entry.ordinal,
        message_count: entry.facts.message_count,
        bytes: u32::try_from(entry.payload.len()).unwrap_or(u32::MAX),
        key_hash,
        deliver_at: entry.facts.deliver_at_ms,
        chunk,
        is_marker: entry.facts.is_marker,
    }
}

/// Rising ordinals as runs of neighbours.
fn runs(ordinals: &[Ordinal]) -> Vec<(Ordinal, usize)> {
    ordinals
        .chunk_by(|a, b| a.next() == *b)
        .filter_map(|run| run.first().map(|first| (*first, run.len())))
        .collect()
}

fn now_ms() -> i64 {
    i64::try_from(clock::wall_ms()).unwrap_or(i64::MAX)
}
