//! From a send to its receipt: append at once, answer and feed when durable.

use std::sync::Arc;

use bytes::Bytes;
use pharos_catalog::policy::EffectivePolicies;
use pharos_feed::READ_ENTRIES_MAX;
use pharos_feed::entry::{EntryFacts, FeedEntry};
use pharos_feed::ids::{ConnectionId, ProducerKey, ShardId};
use pharos_ledger::NewEntry;
use pharos_managed_ledger::{AppendError, Appended, DurableError, Forget};
use pharos_mesh::{FeedMessage, Message, ProducerRef, Publish, Receipt};
use pharos_requests::error::{PublishError, chain};
use pharos_runtime::{Nanos, clock, spawn_local};
use pharos_types::{Ordinal, Position};

use super::deduplication::{Judged, NOWHERE, Numbered};
use super::{Publishing, State, Stored, Topic, TopicContext, TopicLog};

/// An entry that is appended but not yet durable.
pub(super) struct Pending {
    ordinal: Ordinal,
    /// Producer that waits for the receipt; `None` for the broker's own entries.
    from: Option<(ConnectionId, ProducerRef)>,
    sequence_id: u64,
    highest_sequence_id: u64,
    position: Position,
    payload: Bytes,
    facts: EntryFacts,
    appended_at: Nanos,
    received_at: Nanos,
    /// Deduplication data of the entry.
    numbered: Option<Numbered>,
}

impl Pending {
    /// Answers an entry that will not become durable.
    pub(super) fn refuse(&self, cx: &TopicContext, error: PublishError) {
        let Some(from) = self.from else { return };
        cx.send_failed(
            from,
            self.sequence_id,
            self.highest_sequence_id,
            self.payload.len(),
            error,
        );
    }
}

impl Publishing {
    /// Appends one entry, or answers why not. Returns false when its producer is gone.
    fn append(
        &mut self,
        cx: &TopicContext,
        log: &mut TopicLog,
        policies: &EffectivePolicies,
        key: ProducerKey,
        entry: Publish,
        now: (Nanos, u64),
    ) -> bool {
        let Some((connection, producer)) = self.note_received(key, &entry, now) else {
            return false;
        };
        if let Some(error) = against_policies(policies, &entry, now.1) {
            cx.refuse_send((connection, producer), &entry, error);
            return !self.close_replicator(cx, key);
        }
        if let Some(txn) = entry.txn
            && let Err(error) = cx.transactions.admit(cx, txn)
        {
            cx.refuse_send((connection, producer), &entry, error);
            return true;
        }
        let numbered = match self.judge(cx, key, &entry) {
            Judged::Accept(numbered) => numbered,
            Judged::Duplicate => {
                self.answer_duplicate(cx, (connection, producer), entry, now.0);
                return true;
            }
            Judged::Undecidable => {
                let reason = "the message was sent before, and is not known to be durable";
                self.producers.close(cx, key);
                let error = PublishError::Storage(reason.to_owned());
                cx.refuse_send((connection, producer), &entry, error);
                return false;
            }
        };
        let stored = NewEntry {
            payload: entry.payload.clone(),
            crc32c: entry.crc32c,
        };
        match log.ledger.append_entry(stored) {
            Ok(appended) => {
                self.note_accepted(&entry, now.1);
                self.dedup.on_pushed(numbered.as_ref());
                if let Some(txn) = entry.txn {
                    log.set_open_from(cx.transactions.on_message(txn, appended.ordinal));
                }
                self.pending.push_back(Pending {
                    ordinal: appended.ordinal,
                    from: Some((connection, producer)),
                    sequence_id: entry.sequence_id,
                    highest_sequence_id: entry.highest_sequence_id,
                    position: appended.position,
                    payload: entry.payload,
                    facts: entry.facts,
                    appended_at: now.0,
                    received_at: entry.received_at,
                    numbered,
                });
            }
            Err(error) => {
                let is_over = matches!(error, AppendError::Terminated);
                // What follows it must not be stored before it comes again: it would be taken for a duplicate then.
                let is_closed = is_over || self.dedup.is_judging() || self.is_replicator(key);
                if is_closed {
                    // Told first: a client that is told of the send alone may wait for its producer for ever.
                    self.producers.close(cx, key);
                }
                cx.refuse_send((connection, producer), &entry, refusal_of(&error));
                if error.is_final() {
                    // No task waits for the durable end and would hear of it.
                    self.fail(cx, &chain(&error), error.kind());
                    return false;
                }
                return !is_closed;
            }
        }
        true
    }

    /// An entry of the broker's own was appended. It is fed like any other.
    pub(super) fn push_own(&mut self, appended: Appended, payload: Bytes, facts: EntryFacts) {
        let now = clock::now();
        self.pending.push_back(Pending {
            ordinal: appended.ordinal,
            from: None,
            sequence_id: 0,
            highest_sequence_id: 0,
            position: appended.position,
            payload,
            facts,
            appended_at: now,
            received_at: now,
            numbered: None,
        });
    }

    fn is_replicator(&mut self, key: ProducerKey) -> bool {
        let producer = self.producers.get_mut(key);
        producer.is_some_and(|producer| producer.is_replicator())
    }

    /// Closes a replicator's producer after a refused message: later messages must not be stored before that one is
    /// sent again. Returns true if the producer is a replicator's and was closed.
    fn close_replicator(&mut self, cx: &TopicContext, key: ProducerKey) -> bool {
        let is_replicator = self.is_replicator(key);
        if is_replicator {
            self.producers.close(cx, key);
        }
        is_replicator
    }

    /// Answers a send that was stored before, in its turn: after those before it that are not durable yet.
    fn answer_duplicate(
        &mut self,
        cx: &TopicContext,
        (connection, producer): (ConnectionId, ProducerRef),
        entry: Publish,
        now: Nanos,
    ) {
        let Some(last) = self.pending.back() else {
            let receipt = Receipt {
                producer,
                sequence_id: entry.sequence_id,
                highest_sequence_id: entry.highest_sequence_id,
                position: NOWHERE,
                bytes: u32::try_from(entry.payload.len()).unwrap_or(u32::MAX),
            };
            return cx.send(connection.shard, Message::Receipts(vec![(connection, receipt)]));
        };
        self.pending.push_back(Pending {
            ordinal: last.ordinal,
            from: Some((connection, producer)),
            sequence_id: entry.sequence_id,
            highest_sequence_id: entry.highest_sequence_id,
            position: NOWHERE,
            payload: entry.payload,
            facts: entry.facts,
            appended_at: now,
            received_at: entry.received_at,
            numbered: None,
        });
    }

    /// Counts a send with its producer, and says who that is. `None` when the producer
    /// is gone: it was told so, its last sends are dropped and the client sends them again. `now`: on the clock, and in
    /// milliseconds since 1970.
    pub(super) fn note_received(
        &mut self,
        key: ProducerKey,
        entry: &Publish,
        now: (Nanos, u64),
    ) -> Option<(ConnectionId, ProducerRef)> {
        let producer = self.producers.get_mut(key)?;
        producer.counters.messages += u64::from(entry.facts.message_count);
        producer.counters.bytes += entry.payload.len() as u64;
        let who = (producer.connection, producer.known_as());
        let producing_ms = now.1.saturating_sub(entry.facts.publish_time_ms);
        self.stages
            .producing
            .record(producing_ms.saturating_mul(1_000_000));
        self.stages.receive.record(now.0.since(entry.received_at));
        Some(who)
    }

    /// Counts an entry that the topic took.
    pub(super) fn note_accepted(&mut self, entry: &Publish, wall_ms: u64) {
        self.counters.messages_in += u64::from(entry.facts.message_count);
        self.counters.entries_in += 1;
        self.counters.last_publish_ms = wall_ms;
        self.counters.bytes_in += entry.payload.len() as u64;
        self.counters.has_chunks |= entry.facts.is_chunk;
        self.counters.sizes.record(entry.payload.len() as u64);
    }

    /// Makes sure that a task waits for the durable end while anything is pending.
    pub(super) fn watch(&mut self, cx: &TopicContext) {
        if self.watching || self.pending.is_empty() {
            return;
        }
        let Some(me) = cx.me() else { return };
        self.watching = true;
        spawn_local(async move {
            let mut durable = me.state.borrow().stored.log.ledger.durable_watch();
            loop {
                let Some(first) = me.state.borrow_mut().stored.publishing.first_pending() else {
                    return;
                };
                let outcome = durable.reaches(first).await.map(|()| durable.end());
                if !me.state.borrow_mut().on_durable(&me.cx, outcome) {
                    return;
                }
            }
        });
    }

    /// The first entry that is not durable; without one the task that watches ends.
    fn first_pending(&mut self) -> Option<Ordinal> {
        let first = self.pending.front().map(|pending| pending.ordinal);
        self.watching = first.is_some();
        first
    }

    /// Answered is what was durable. Returns whether to go on waiting.
    fn go_on(&mut self) -> bool {
        self.watching = !self.pending.is_empty();
        if !self.watching {
            self.draining.clear();
        }
        self.watching
    }

    /// Sends the receipts of what became durable and returns it as entries to feed.
    fn answer_durable(&mut self, cx: &TopicContext, end: Ordinal, shards: usize) -> Vec<Arc<FeedEntry>> {
        let now = clock::now();
        let mut receipts: Vec<Vec<(ConnectionId, Receipt)>> = (0..shards).map(|_| Vec::new()).collect();
        let mut entries = Vec::new();
        while self.pending.front().is_some_and(|pending| pending.ordinal < end) {
            let Some(pending) = self.pending.pop_front() else {
                break;
            };
            self.stages.persistence.record(now.since(pending.appended_at));
            if pending.from.is_some() {
                self.stages.publish.record(now.since(pending.received_at));
            }
            if let Some((connection, producer)) = pending.from
                && let Some(list) = receipts.get_mut(connection.shard.index())
            {
                let receipt = Receipt {
                    producer,
                    sequence_id: pending.sequence_id,
                    highest_sequence_id: pending.highest_sequence_id,
                    position: pending.position,
                    bytes: u32::try_from(pending.payload.len()).unwrap_or(u32::MAX),
                };
                list.push((connection, receipt));
            }
            if pending.position == NOWHERE {
                continue;
            }
            self.dedup.on_persisted(pending.numbered.as_ref());
            entries.push(Arc::new(FeedEntry {
                ordinal: pending.ordinal,
                position: pending.position,
                payload: pending.payload,
                facts: pending.facts,
                durable_at: now,
            }));
        }
        self.dedup.on_durable(end, entries.len());
        for (index, list) in receipts.into_iter().enumerate() {
            if !list.is_empty() {
                cx.send(shard_id(index), Message::Receipts(list));
            }
        }
        entries
    }
}

impl Stored {
    /// Appends entries of one producer; see [`State::append_all`].
    fn append_all(&mut self, cx: &TopicContext, from: ConnectionId, key: ProducerKey, entries: Vec<Publish>) {
        let Self {
            log,
            publishing,
            policies,
            ..
        } = self;
        let now = (clock::now(), clock::wall_ms());
        let mut goes_on = publishing.producers.get_mut(key).is_some();
        let mut entries = entries.into_iter();
        while goes_on {
            let Some(entry) = entries.next() else { break };
            goes_on = publishing.append(cx, log, policies, key, entry, now);
        }
        if !entries.as_slice().is_empty() {
            cx.send_dropped(from, entries.as_slice());
        }
    }
}

impl State {
    /// Appends entries of one producer. Sends for a producer that is gone are dropped: it was told so, and the client
    /// sends them again. The caller maintains and watches afterwards.
    pub(super) fn append_all(
        &mut self,
        cx: &TopicContext,
        from: ConnectionId,
        key: ProducerKey,
        entries: Vec<Publish>,
    ) {
        if cx.is_non_persistent() && self.stored.publishing.producers.get_mut(key).is_some() {
            return self.pass_on(cx, key, entries);
        }
        self.stored.append_all(cx, from, key, entries);
    }

    /// The durable end moved, or never will again. Returns whether to go on waiting.
    fn on_durable(&mut self, cx: &TopicContext, outcome: Result<Ordinal, DurableError>) -> bool {
        let end = match outcome {
            Ok(end) => end,
            Err(error) => {
                self.stored.publishing.fail(cx, &chain(&error), error.kind());
                return false;
            }
        };
        let shards = self.attached.links.len();
        let entries = self.stored.publishing.answer_durable(cx, end, shards);
        if cx.transactions.are_known() {
            self.feed_readable(cx, &entries);
        } else if !entries.is_empty() {
            let table = self.stored.log.ledger.table();
            self.attached.links.feed(cx, &table, &entries);
        }
        if self.stored.replication.is_on() && !entries.is_empty() {
            self.hear_clusters(cx, &entries);
        }
        self.stored.store_sequence_ids_if_due(cx);
        self.stored.log.maintain(cx);
        self.attached.run_dispatchers(cx, &mut self.stored);
        let is_read = self.stored.log.is_followed() || self.stored.replication.is_on();
        if self.attached.consumers.is_empty() && !is_read {
            self.stored.log.ledger.forget(Forget::Durable);
        }
        self.stored.publishing.go_on()
    }
}

impl Topic {
    /// A feed needs entries: from the cache at once, else from the log.
    pub(super) fn on_read(&self, shard: ShardId, from: Ordinal, entries_max: usize, bytes_max: usize) {
        let Some(me) = self.cx.me() else { return };
        let entries_max = READ_ENTRIES_MAX.min(entries_max);
        let read = self.state.borrow().stored.log.read(from, entries_max, bytes_max);
        spawn_local(async move {
            let answer = match read.await {
                Ok(found) => {
                    let entries: Vec<_> = found.into_iter().map(|entry| me.cx.feed_entry(entry)).collect();
                    let state = me.state.borrow();
                    let resume = entries.first().map_or_else(
                        || state.stored.log.ledger.first().max(from),
                        |entry| entry.ordinal,
                    );
                    FeedMessage::ReadDone {
                        from,
                        resume,
                        entries,
                        table: state.stored.log.ledger.table(),
                    }
                }
                Err(error) if error.is_lasting() => {
                    // The same; it is told once, however often it is tried.
                    let mut state = me.state.borrow_mut();
                    let log = &mut state.stored.log;
                    log.note_damage(&me.cx, from, &error);
                    match log.stand_in(&me.cx, from, &error) {
                        Some(marker) => FeedMessage::ReadDone {
                            from,
                            resume: from,
                            entries: vec![marker],
                            table: log.ledger.table(),
                        },
                        None => FeedMessage::ReadFailed { from },
                    }
                }
                Err(error) => {
                    // Stream consumers at this place wait and try again; all others go on.
                    tracing::error!(topic = %me.cx.name, %from, error = chain(&error), "cannot read for stream consumers");
                    FeedMessage::ReadFailed { from }
                }
            };
            me.cx.send_feed(me.cx.id, shard, answer);
        });
    }
}

/// Error that a producer receives for an entry that the log refused.
fn refusal_of(error: &AppendError) -> PublishError {
    match error {
        AppendError::Terminated => PublishError::Terminated,
        AppendError::NoSpace => PublishError::NoSpace,
        other => PublishError::Storage(chain(other)),
    }
}

/// Refusal of an entry by the topic's policies, if any.
pub(super) fn against_policies(
    policies: &EffectivePolicies,
    entry: &Publish,
    now_ms: u64,
) -> Option<PublishError> {
    // Pieces of a larger message are small by themselves.
    if policies
        .max_entry_bytes
        .is_some_and(|most| entry.payload.len() as u64 > u64::from(most))
    {
        return Some(PublishError::NotAllowed("Exceed maximum message size".to_owned()));
    }
    if policies.encryption_required && !entry.facts.is_encrypted && !entry.facts.is_marker {
        return Some(PublishError::NotEncrypted);
    }
    let (most, deliver_at) = (
        policies.delayed_delivery.delay_ms_max?,
        entry.facts.deliver_at_ms?,
    );
    let delay_ms = u64::try_from(deliver_at).unwrap_or(0).saturating_sub(now_ms);
    (delay_ms > most).then(|| {
        let text = format!("Exceeds max allowed delivery delay of {most} milliseconds");
        PublishError::NotAllowed(text)
    })
}

/// A shard's id from its index in the per-shard tables.
pub(super) fn shard_id(index: usize) -> ShardId {
    ShardId(u16::try_from(index).unwrap_or(u16::MAX))
}
