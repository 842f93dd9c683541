//! The writer of a ledger: its machine under a lock, stepped by appends and by answers.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use pharos_ledger::{Affinity, AppendError, BoxFuture, LedgerWriter, NewEntry, StorageFault, Tail};
use pharos_runtime::clock::{self, Nanos};
use pharos_types::{EntryId, LedgerId};
use tokio::sync::watch;

use super::meters::Operation;
use super::{Inner, lock};
use crate::bookies::Chooser;
use crate::call::CallError;
use crate::entry::Digester;
use crate::machine::{AddAnswer, AddEffect, Placement, Writer, WriterEffect, WriterError};
use crate::metadata::{LedgerMetadata, State};
use crate::quorum::Quorum;
use crate::wire::{AddRequest, Request, Status};

/// After this time a bookie that must not be exchanged is asked again, and bookies are asked again to sync a ledger that closes.
const RESEND_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Writing {
    ledger: LedgerId,
    digester: Digester,
    inner: Arc<Inner>,
    affinity: Option<Affinity>,
    quorum: Quorum,
    is_deferring: bool,
    /// Bookies are told of what is confirmed whenever nothing is under way that would tell them.
    is_followed: bool,
    machine: Mutex<Machine>,
    tail: watch::Sender<Tail>,
    /// Result of the close, once it has ended.
    end: watch::Sender<Option<Result<(), AppendError>>>,
}

struct Machine {
    writer: Writer,
    /// Payload bytes of the entries that wait and when they came, the oldest first.
    waiting: VecDeque<(usize, Nanos)>,
    confirmed: u64,
    /// This broker has ended it: it recovers or deletes the ledger.
    is_ended_here: bool,
}

/// Writer returned to the caller of `create`.
pub(super) struct Handle(pub(super) Arc<Writing>);

impl Writing {
    pub(super) fn new(
        ledger: LedgerId,
        inner: Arc<Inner>,
        digester: Digester,
        writer: Writer,
        affinity: Option<Affinity>,
        is_followed: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            ledger,
            digester,
            inner,
            affinity,
            is_followed,
            quorum: writer.metadata().quorum,
            is_deferring: writer.is_deferring(),
            machine: Mutex::new(Machine {
                writer,
                waiting: VecDeque::new(),
                confirmed: 0,
                is_ended_here: false,
            }),
            tail: watch::channel(Tail::default()).0,
            end: watch::channel(None).0,
        })
    }

    /// Returns the end of the confirmed entries and the metadata, for readers in this process.
    pub(super) fn look(&self) -> (EntryId, LedgerMetadata) {
        let machine = lock(&self.machine);
        (machine.writer.confirmed(), machine.writer.metadata().clone())
    }

    /// The ledger is being recovered or deleted here.
    pub(super) fn fence(self: &Arc<Self>) {
        lock(&self.machine).is_ended_here = true;
        self.step(|writer, _, out| writer.fence(out));
    }

    /// Waits until nothing is pending, or nothing more will be confirmed; then refuses what comes.
    pub(super) async fn finish(&self, fault: &Arc<StorageFault>) {
        let next = lock(&self.machine).writer.next().0;
        let mut tail = self.tail.subscribe();
        // Each add has a time-out, so this ends.
        let _ = tail
            .wait_for(|tail| tail.durable >= next || tail.failed.is_some())
            .await;
        self.tail.send_modify(|tail| {
            tail.failed.get_or_insert_with(|| Arc::clone(fault));
        });
        self.end_with(Err(AppendError::Poisoned(Arc::clone(fault))));
    }

    fn end_with(&self, end: Result<(), AppendError>) {
        self.end.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(end);
            is_first
        });
    }

    fn placement(&self) -> Chooser<'_> {
        Chooser {
            directory: &self.inner.directory,
            quorum: self.quorum,
            affinity: self.affinity.as_ref(),
        }
    }

    fn step<T>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut Writer, &mut dyn Placement, &mut Vec<WriterEffect>) -> T,
    ) -> T {
        let mut machine = lock(&self.machine);
        let mut out = Vec::new();
        let result = step(&mut machine.writer, &mut self.placement(), &mut out);
        for effect in out {
            self.apply(&mut machine, effect);
        }
        if self.is_followed && machine.writer.is_idle() {
            let mut out = Vec::new();
            machine.writer.tell_confirmed(&mut out);
            for effect in out {
                self.apply(&mut machine, effect);
            }
        }
        result
    }

    /// Waits until more than so many entries are confirmed, or no more will be.
    pub(super) async fn passes(&self, beyond: u64) {
        let mut tail = self.tail.subscribe();
        let mut end = self.end.subscribe();
        // Their senders are ours.
        tokio::select! {
            _ = tail.wait_for(|tail| tail.durable > beyond || tail.failed.is_some()) => {}
            _ = end.wait_for(Option::is_some) => {}
        }
    }

    fn apply(self: &Arc<Self>, machine: &mut Machine, effect: WriterEffect) {
        match effect {
            WriterEffect::Add(add) => self.send(add),
            WriterEffect::PutMetadata { metadata, version } => {
                if metadata.state == State::Open {
                    self.inner.meters.ensemble_changes.fetch_add(1, Ordering::Relaxed);
                }
                let writing = Arc::clone(self);
                self.inner.spawn(async move {
                    let put = writing.inner.put_metadata(writing.ledger, &metadata, version);
                    let answer = put.await;
                    writing.step(|writer, placement, out| writer.on_metadata(answer, placement, out));
                });
            }
            WriterEffect::ResendLater { position, bookie } => {
                let writing = Arc::clone(self);
                self.inner.spawn(async move {
                    tokio::time::sleep(RESEND_AFTER).await;
                    writing.step(|writer, _, out| writer.resend(position, &bookie, out));
                });
            }
            WriterEffect::ForceLater => {
                let writing = Arc::clone(self);
                self.inner.spawn(async move {
                    tokio::time::sleep(RESEND_AFTER).await;
                    writing.step(|writer, _, out| writer.force(out));
                });
            }
            WriterEffect::Force {
                number,
                position,
                bookie,
            } => {
                let (writing, ledger) = (Arc::clone(self), self.ledger);
                let asked = bookie.clone();
                let reply = move |answer: Result<_, CallError>| {
                    let result = answer.map(drop);
                    let connection = writing.inner.connection_number(&asked);
                    writing
                        .step(|writer, _, out| writer.on_forced(number, position, connection, result, out));
                };
                let timeout = self.inner.options.add_timeout;
                self.inner
                    .call(&bookie, &Request::Force { ledger }, timeout, Box::new(reply));
            }
            WriterEffect::TellConfirmed { bookie, lac } => {
                let request = Request::WriteLac {
                    ledger: self.ledger,
                    lac,
                    key: self.digester.key(),
                    body: self.digester.pack_lac(lac),
                };
                // A bookie that does not take it costs readers some time, no more.
                let timeout = self.inner.options.add_timeout;
                self.inner.call(&bookie, &request, timeout, Box::new(drop));
            }
            WriterEffect::Confirmed { end } => {
                let count = usize::try_from(end.0.saturating_sub(machine.confirmed)).unwrap_or(usize::MAX);
                machine.confirmed = machine.confirmed.max(end.0);
                let count = count.min(machine.waiting.len());
                self.settle(machine.waiting.drain(..count), true);
                self.tail.send_modify(|tail| tail.durable = end.0);
            }
            WriterEffect::Closed => {
                let metadata = Arc::new(machine.writer.metadata().clone());
                self.inner.remember(self.ledger, metadata);
                self.end_with(Ok(()));
            }
            WriterEffect::Failed(error) => {
                let is_wanted = machine.is_ended_here && machine.waiting.is_empty();
                self.settle(machine.waiting.drain(..), false);
                match is_wanted {
                    true => tracing::debug!(ledger = %self.ledger, %error, "a ledger takes no more entries"),
                    false => tracing::warn!(ledger = %self.ledger, %error, "a ledger takes no more entries"),
                }
                let fault = fault_of(error);
                self.tail.send_modify(|tail| tail.failed = Some(fault));
                self.end_with(Err(self.refusal(error)));
            }
        }
    }

    /// These entries do not wait any more.
    fn settle(&self, entries: impl Iterator<Item = (usize, Nanos)>, is_ok: bool) {
        let mut bytes = 0;
        let began = entries.map(|(size, began)| {
            bytes += size;
            began
        });
        self.inner.meters.record_all(Operation::Add, began, is_ok);
        self.release(bytes);
    }

    fn release(&self, bytes: usize) {
        self.inner.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn send(self: &Arc<Self>, add: AddEffect) {
        let request = Request::Add(AddRequest {
            ledger: self.ledger,
            entry: add.entry,
            key: self.digester.key(),
            is_recovery: false,
            is_deferred_sync: self.is_deferring,
            body: add.body,
        });
        let (writing, bookie) = (Arc::clone(self), add.bookie.clone());
        let (entry, position) = (add.entry, add.position);
        let reply = move |result: Result<_, CallError>| {
            let connection = match writing.is_deferring {
                true => writing.inner.connection_number(&bookie),
                false => 0,
            };
            let answer = AddAnswer {
                position,
                bookie,
                entry,
                connection,
                result: result.map(drop),
            };
            writing.on_add(&answer);
        };
        let timeout = self.inner.options.add_timeout;
        self.inner.call(&add.bookie, &request, timeout, Box::new(reply));
    }

    fn on_add(self: &Arc<Self>, answer: &AddAnswer) {
        match &answer.result {
            Ok(()) | Err(CallError::Refused(Status::Fenced | Status::Unauthorized)) => {}
            Err(error) => {
                tracing::debug!(ledger = %self.ledger, bookie = %answer.bookie, %error, "an entry was not stored");
                self.inner.meters.refused_adds.fetch_add(1, Ordering::Relaxed);
                self.inner
                    .directory
                    .quarantine(&answer.bookie, self.inner.options.quarantine);
            }
        }
        self.step(|writer, placement, out| writer.on_add(answer, placement, out));
    }

    fn refusal(&self, error: WriterError) -> AppendError {
        let ledger = self.ledger;
        match error {
            WriterError::Fenced => AppendError::Fenced { ledger },
            WriterError::Unauthorized => AppendError::Poisoned(fault_of(error)),
            WriterError::NotEnoughBookies => AppendError::GivenUp {
                ledger,
                fault: fault_of(error),
            },
        }
    }

    fn append(self: &Arc<Self>, entry: NewEntry) -> Result<EntryId, AppendError> {
        let ledger = self.ledger;
        let options = &self.inner.options;
        let bytes = entry.payload.len();
        if bytes > options.entry_bytes_max {
            return Err(AppendError::TooLarge {
                bytes,
                bytes_max: options.entry_bytes_max,
            });
        }
        if let Some(fault) = self.inner.ended() {
            return Err(AppendError::Poisoned(fault));
        }
        let pending = self.inner.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        if pending.saturating_add(bytes) > options.pending_bytes_max {
            self.release(bytes);
            return Err(AppendError::Overloaded {
                ledger,
                bytes_max: options.pending_bytes_max,
            });
        }
        let mut machine = lock(&self.machine);
        let mut out = Vec::new();
        let appended = machine
            .writer
            .append(entry.payload, entry.crc32c, &mut self.placement(), &mut out);
        match appended {
            Some(_) => machine.waiting.push_back((bytes, clock::now())),
            None => self.release(bytes),
        }
        for effect in out {
            self.apply(&mut machine, effect);
        }
        appended.ok_or_else(|| match machine.writer.error() {
            Some(error) => self.refusal(error),
            None => AppendError::Closed { ledger },
        })
    }
}

/// Tells bookies now and then how far the ledger is confirmed, until its writer has gone or ended.
pub(super) async fn tell_confirmed(writing: Weak<Writing>, interval: Duration) {
    again_and_again(writing, interval, Writer::tell_confirmed).await;
}

/// Has bookies sync the ledger now and then, until its writer has gone or ended.
pub(super) async fn force(writing: Weak<Writing>, interval: Duration) {
    again_and_again(writing, interval, Writer::force).await;
}

async fn again_and_again(
    writing: Weak<Writing>,
    interval: Duration,
    step: impl Fn(&mut Writer, &mut Vec<WriterEffect>),
) {
    loop {
        tokio::time::sleep(interval).await;
        match writing.upgrade() {
            Some(writing) if writing.end.borrow().is_none() => {
                writing.step(|writer, _, out| step(writer, out))
            }
            _ => return,
        }
    }
}

fn fault_of(error: WriterError) -> Arc<StorageFault> {
    let what = "append to a ledger";
    match error {
        WriterError::Fenced => StorageFault::fenced(what, error),
        WriterError::Unauthorized => StorageFault::new(what, error),
        WriterError::NotEnoughBookies => StorageFault::transient(what, error),
    }
}

impl LedgerWriter for Handle {
    fn id(&self) -> LedgerId {
        self.0.ledger
    }

    fn append_entry(&self, entry: NewEntry) -> Result<EntryId, AppendError> {
        self.0.append(entry)
    }

    fn tail(&self) -> watch::Receiver<Tail> {
        self.0.tail.subscribe()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), AppendError>> {
        async {
            self.0.step(|writer, _, out| writer.close(out));
            let mut end = self.0.end.subscribe();
            let ended = end.wait_for(Option::is_some).await;
            let ledger = self.0.ledger;
            let ended = ended.ok().and_then(|end| (*end).clone());
            ended.unwrap_or(Err(AppendError::Fenced { ledger }))
        }
        .boxed()
    }
}
