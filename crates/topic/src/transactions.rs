//! Transactions in a topic: which entries readers get, and the entries that say how one ended.
//!
//! A message in a transaction is appended like any other; readers stop in front of the first one whose transaction is open. The end of a
//! transaction is an entry of its own, and counts once it is durable. What is known is noted in the cursor log now and then, so that
//! a load reads only the last part of the log again:
//!
//! ```text
//!   aborted transactions   a note each, when its end is durable
//!   what is open           a note, with the place from which the log is read again; every end before it is in the notes
//! ```
//! A topic that never had a transaction knows nothing, and pays for it with one look at that.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pharos_feed::entry::{EntryCodec, FeedEntry};
use pharos_ledger::Durability;
use pharos_managed_ledger::cursor_log::{CursorLog, Record};
use pharos_managed_ledger::{AppendError, ManagedLedger};
use pharos_requests::error::{PublishError, TopicError, chain};
use pharos_runtime::{clock, spawn_local};
use pharos_transactions::{BufferStats, Standing, TransactionBuffer, keys};
use pharos_types::{Ordinal, TxnEntry, TxnId, TxnOutcome, varint};

use super::{State, Stored, Topic, TopicContext};

/// Entries after which it is noted anew from where a load reads.
const NOTE_EVERY: u64 = 10_000;
/// Entries and bytes of one read of a load.
const READ_MAX: (usize, usize) = (10_000, 4 << 20);
/// Interval between requests to a coordinator that is not loaded yet, and between retries of a failed end.
const ASK_INTERVAL: Duration = Duration::from_millis(200);

/// State of a topic's transactions; `None` if it never had one. Borrowed for one query or change at a time.
#[derive(Default)]
pub(crate) struct TopicTransactions(RefCell<Option<Box<KnownTransactions>>>);

struct KnownTransactions {
    buffer: TransactionBuffer,
    /// Entry from which a load reads, as noted last.
    noted: Ordinal,
    /// Aborted ones that were found in the log alone. They are noted before a load begins to read behind their end.
    unnoted: Vec<(TxnId, Ordinal)>,
    /// Ends that are appended and were not taken.
    ends: BTreeSet<Ordinal>,
    /// Listening shards were told of what is readable up to here.
    told: Ordinal,
}

/// Numbers of a topic's transactions.
#[derive(Debug, Clone, Default)]
pub struct TransactionFigures {
    /// Counts.
    pub stats: BufferStats,
    /// The open ones, with their first entries.
    pub open: Vec<(TxnId, Ordinal)>,
    /// Readers get nothing from here on.
    pub readable_end: Ordinal,
}

impl TopicTransactions {
    /// Transactions restored from the notes and the log.
    ///
    /// # Errors
    /// `Storage`.
    pub(super) async fn replay(
        ledger: &ManagedLedger,
        cursors: &CursorLog,
        codec: &dyn EntryCodec,
    ) -> Result<Self, TopicError> {
        let failed = |error: &dyn std::fmt::Display| TopicError::Storage(error.to_string());
        let Some((_, noted)) = cursors.notes(keys::BUFFER).next() else {
            return Ok(Self::default());
        };
        let (mut buffer, noted) = TransactionBuffer::decode_from(noted).map_err(|error| failed(&error))?;
        for (key, mut end) in cursors.notes(keys::ABORTED) {
            let end = varint::take(&mut end).map_err(|error| failed(&error))?;
            if let Some(txn) = keys::aborted_of(key) {
                buffer.restore_aborted(txn, Ordinal(end));
            }
        }
        let (mut at, end) = (noted.max(ledger.first()), ledger.end());
        let mut unnoted = Vec::new();
        while at < end {
            let (entries_max, bytes_max) = READ_MAX;
            match ledger.read(at, entries_max, bytes_max).await {
                Ok(entries) => {
                    for entry in &entries {
                        if codec.facts(&entry.payload).is_transactional
                            && let Some(said) = codec.transaction(&entry.payload)
                        {
                            buffer.on_entry(entry.ordinal, said);
                            if let TxnEntry::End(txn, TxnOutcome::Aborted) = said {
                                unnoted.push((txn, entry.ordinal));
                            }
                        }
                    }
                    at = entries.last().map_or(end, |last| last.ordinal.next());
                }
                Err(error) if error.is_lasting() => {
                    let name = ledger.name();
                    tracing::error!(topic = name, %at, error = chain(&error), "an entry cannot be read that may end a transaction");
                    at = at.next();
                }
                Err(error) => return Err(failed(&chain(&error))),
            }
        }
        let told = buffer.readable_before().unwrap_or(end).min(end);
        let known = KnownTransactions {
            buffer,
            noted,
            unnoted,
            ends: BTreeSet::new(),
            told,
        };
        Ok(Self(RefCell::new(Some(Box::new(known)))))
    }

    fn with<R>(&self, act: impl FnOnce(&mut KnownTransactions) -> R) -> Option<R> {
        self.0.borrow_mut().as_mut().map(|known| act(known))
    }

    /// True if the topic has had transactions.
    #[inline]
    pub(super) fn are_known(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// True if readers skip an entry: its transaction was aborted.
    pub(super) fn hides(&self, codec: &dyn EntryCodec, entry: &[u8]) -> bool {
        let known = self.0.borrow();
        let Some(known) = &*known else { return false };
        match codec.transaction(entry) {
            Some(TxnEntry::Message(txn)) => known.buffer.is_aborted(txn),
            _ => false,
        }
    }

    /// The first entry of a transaction that is open.
    pub(super) fn open_from(&self) -> Option<Ordinal> {
        self.with(|known| known.buffer.readable_before()).flatten()
    }

    /// Checks that a message may be appended in a transaction.
    pub(super) fn admit(&self, cx: &TopicContext, txn: TxnId) -> Result<(), PublishError> {
        let may = cx.shard.shared.coordinators.may_publish(txn, &cx.name);
        match self.with(|known| known.buffer.is_full()) {
            Some(false) if may => Ok(()),
            Some(true) if may => Err(PublishError::NotAllowed(
                "the topic remembers as many aborted transactions as it may: they go when it is trimmed"
                    .to_owned(),
            )),
            _ => Err(PublishError::NotAllowed(format!(
                "transaction {txn} is not open for this topic: it has ended, or the topic was not added to it"
            ))),
        }
    }

    /// A message was appended in a transaction. Answers with the first entry of one that is open.
    pub(super) fn on_message(&self, txn: TxnId, ordinal: Ordinal) -> Option<Ordinal> {
        let on_message = |known: &mut KnownTransactions| {
            let message = TxnEntry::Message(txn);
            known.buffer.on_entry(ordinal, message);
            known.buffer.readable_before()
        };
        self.with(on_message).flatten()
    }
}

impl State {
    /// Tells listening shards how far they may read. `entries`: those that became durable just now.
    pub(super) fn feed_readable(&mut self, cx: &TopicContext, entries: &[Arc<FeedEntry>]) {
        let end = self.stored.log.readable_end();
        let told = cx.transactions.with(|known| {
            let to = end.max(known.told);
            std::mem::replace(&mut known.told, to)
        });
        let from = told.unwrap_or(end);
        if from >= end {
            return;
        }
        let table = self.stored.log.ledger.table();
        let new = entries.iter().skip_while(|entry| entry.ordinal < from);
        let new: Vec<_> = new.take_while(|entry| entry.ordinal < end).cloned().collect();
        let is_all =
            new.len() as u64 == from.count_to(end) && new.first().is_some_and(|first| first.ordinal == from);
        if is_all && new.iter().all(|entry| !entry.facts.is_transactional) {
            self.attached.links.feed(cx, &table, &new);
        } else {
            // Read back, what was aborted is known as such.
            self.attached.links.readable(cx, &table, end);
        }
        self.stored.note_transactions(cx, NOTE_EVERY);
    }

    /// The end of a transaction is durable, at this place.
    fn on_transaction_end(&mut self, cx: &TopicContext, txn: TxnId, outcome: TxnOutcome, at: Ordinal) {
        cx.transactions.with(|known| {
            known.ends.remove(&at);
            known.buffer.on_entry(at, TxnEntry::End(txn, outcome));
        });
        if outcome == TxnOutcome::Aborted {
            self.stored.note_aborted(cx, txn, at);
        }
        self.stored.log.set_open_from(cx.transactions.open_from());
        self.feed_readable(cx, &[]);
        if self.stored.log.is_at_its_end() {
            self.attached.links.terminated(cx);
        }
        self.attached.run_dispatchers(cx, &mut self.stored);
    }
}

impl Stored {
    /// Notes from where a load reads the log again, unless less than so many entries would be saved. Returns whether it did.
    pub(super) fn note_transactions(&mut self, cx: &TopicContext, least: u64) -> bool {
        let durable = self.log.ledger.durable_end();
        let value = cx.transactions.with(|known| {
            let from = known.ends.first().map_or(durable, |end| (*end).min(durable));
            (known.noted.count_to(from) >= least.max(1)).then(|| {
                known.noted = from;
                known.buffer.encode_from(from)
            })
        });
        let Some(value) = value.flatten() else {
            return false;
        };
        self.note_buffer(cx, value);
        let me = cx.me.clone();
        spawn_local(async move {
            if let Some(me) = me.upgrade() {
                me.start_commit();
            }
        });
        true
    }

    fn note_aborted(&mut self, cx: &TopicContext, txn: TxnId, end: Ordinal) {
        let mut value = Vec::new();
        varint::put(&mut value, end.0);
        let key = keys::aborted(txn);
        self.change_cursors(cx, |cursors| cursors.queue(Record::Noted { key, value }));
    }

    fn note_buffer(&mut self, cx: &TopicContext, value: Vec<u8>) {
        let unnoted = cx.transactions.with(|known| std::mem::take(&mut known.unnoted));
        for (txn, end) in unnoted.into_iter().flatten() {
            self.note_aborted(cx, txn, end);
        }
        let key = keys::BUFFER.to_vec();
        self.change_cursors(cx, |cursors| cursors.queue(Record::Noted { key, value }));
    }

    /// Forgets aborted transactions whose messages are trimmed.
    pub(super) fn forget_aborted(&mut self, cx: &TopicContext, first: Ordinal) {
        let gone = cx.transactions.with(|known| known.buffer.trim(first));
        for txn in gone.into_iter().flatten() {
            let prefix = keys::aborted(txn);
            self.change_cursors(cx, |cursors| cursors.queue(Record::NotesRemoved { prefix }));
        }
    }
}

/// A topic, as it takes part in transactions.
pub struct TransactingTopic<'a>(pub &'a Topic);

impl TransactingTopic<'_> {
    /// Checks that the topic can have transactions; the error is the reason why not.
    pub(crate) fn check_transactions(&self) -> Result<(), String> {
        if self.0.cx.is_non_persistent() {
            return Err("transactions are not supported on non-persistent topics".to_owned());
        }
        let state = self.0.state.borrow();
        let log = &state.stored.log;
        if log.ledger.is_shadow() || log.is_followed() {
            return Err("a topic that is or has a shadow takes no transactions".to_owned());
        }
        match log.ledger.durability() {
            Durability::Sync => Ok(()),
            _ => {
                Err("a topic whose policies make it less durable than sync takes no transactions".to_owned())
            }
        }
    }

    /// True if the topic has had messages in transactions, or was to have.
    pub(crate) fn had_transactions(&self) -> bool {
        self.0.cx.transactions.are_known()
    }

    /// From now on it takes messages in transactions; durable when this returns.
    ///
    /// # Errors
    /// The storage's reason, or that the topic is closing.
    pub(crate) async fn begin_transactions(&self) -> Result<(), String> {
        {
            let mut state = self.0.state.borrow_mut();
            if state.stored.closing {
                return Err("topic is closing".to_owned());
            }
            if !self.0.cx.transactions.are_known() {
                let end = state.stored.log.ledger.durable_end();
                let known = KnownTransactions {
                    buffer: TransactionBuffer::default(),
                    noted: end,
                    unnoted: Vec::new(),
                    ends: BTreeSet::new(),
                    told: end,
                };
                let value = known.buffer.encode_from(end);
                *self.0.cx.transactions.0.borrow_mut() = Some(Box::new(known));
                state.stored.note_buffer(&self.0.cx, value);
            }
        }
        self.0.commit_cursors().await
    }

    /// A transaction ends here; durable when this returns. One that has no message here, or none any more, has ended.
    ///
    /// # Errors
    /// The storage's reason; to be tried again.
    pub(crate) async fn end_transaction(&self, txn: TxnId, outcome: TxnOutcome) -> Result<(), String> {
        let is_open = self.0.cx.transactions.with(|known| known.buffer.is_open(txn));
        if is_open != Some(true) {
            return Ok(());
        }
        let end = self.0.cx.codec.encode_txn_end(txn, outcome, clock::wall_ms());
        let appended = {
            let mut state = self.0.state.borrow_mut();
            if let Some(fault) = &state.stored.publishing.fault {
                return Err(fault.clone());
            }
            let appended = state.stored.log.ledger.append(end.into());
            state.stored.log.maintain(&self.0.cx);
            appended.map(|appended| (appended.ordinal, state.stored.log.ledger.durable_watch()))
        };
        let (at, mut durable) = match appended {
            Ok(appended) => appended,
            Err(AppendError::Terminated) => return self.end_in_terminated(txn, outcome).await,
            Err(error) => return Err(chain(&error)),
        };
        self.0.cx.transactions.with(|known| known.ends.insert(at));
        durable.reaches(at).await.map_err(|error| chain(&error))?;
        self.0
            .state
            .borrow_mut()
            .on_transaction_end(&self.0.cx, txn, outcome, at);
        Ok(())
    }

    /// A terminated log takes no entry: the notes alone say how the transaction ended.
    async fn end_in_terminated(&self, txn: TxnId, outcome: TxnOutcome) -> Result<(), String> {
        {
            let mut state = self.0.state.borrow_mut();
            let end = state.stored.log.ledger.durable_end();
            if end < state.stored.log.ledger.end() {
                return Err("the topic's last messages are not durable yet".to_owned());
            }
            state.on_transaction_end(&self.0.cx, txn, outcome, end);
            let value = self.0.cx.transactions.with(|known| known.buffer.encode_from(end));
            state.stored.note_buffer(&self.0.cx, value.unwrap_or_default());
        }
        self.0.commit_cursors().await
    }

    async fn abort_orphan(&self, txn: TxnId) -> Result<(), String> {
        tracing::warn!(topic = %self.0.cx.name, %txn, "aborting a transaction that its coordinator does not know");
        self.end_transaction(txn, TxnOutcome::Aborted).await?;
        let names = self.0.state.borrow().attached.subscriptions_of(txn);
        for name in names {
            self.end_acks(&name, txn, TxnOutcome::Aborted).await?;
        }
        Ok(())
    }

    /// Numbers of its transactions.
    pub(crate) fn transaction_figures(&self) -> TransactionFigures {
        let readable_end = self.0.state.borrow().stored.log.readable_end();
        let figures = self.0.cx.transactions.with(|known| {
            let buffer = &known.buffer;
            let open = buffer.open().into_iter();
            TransactionFigures {
                stats: buffer.stats(),
                open: open
                    .filter_map(|txn| Some((txn, buffer.first_of(txn)?)))
                    .collect(),
                readable_end,
            }
        });
        figures.unwrap_or(TransactionFigures {
            readable_end,
            ..TransactionFigures::default()
        })
    }
}

/// Ends what no coordinator will end: a transaction that is over everywhere else was not committed here, or it would have ended.
pub(super) fn end_orphans(topic: &Rc<Topic>) {
    let open = topic.cx.transactions.with(|known| known.buffer.open());
    let mut open: BTreeSet<TxnId> = open.into_iter().flatten().collect();
    open.extend(topic.state.borrow().attached.pending_transactions());
    if open.is_empty() {
        return;
    }
    let me = Rc::downgrade(topic);
    spawn_local(async move {
        for txn in open {
            while let Some(topic) = me.upgrade() {
                match topic.cx.shard.shared.coordinators.standing(txn) {
                    Standing::Live => break,
                    Standing::Over => match TransactingTopic(&topic).abort_orphan(txn).await {
                        Ok(()) => break,
                        Err(error) => {
                            tracing::warn!(topic = %topic.cx.name, %txn, error, "a transaction is aborted later");
                        }
                    },
                    Standing::Unknown => {}
                }
                drop(topic);
                tokio::time::sleep(ASK_INTERVAL).await;
            }
        }
    });
}
