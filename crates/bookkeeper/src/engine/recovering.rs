//! Recovery of a ledger against real bookies.

use std::sync::Arc;

use pharos_ledger::{OpenError, Sealed, StorageFault};
use pharos_types::{EntryId, LedgerId};

use super::Inner;
use crate::bookies::Chooser;
use crate::call::CallError;
use crate::entry::{Digester, Entry};
use crate::machine::{AddAnswer, MetadataAnswer, Recovery, RecoveryEffect, RecoveryError};
use crate::metadata::{BookieId, LedgerMetadata, State};
use crate::net::Mailbox;
use crate::wire::{AddRequest, ReadRequest, ReadTarget, Request, Response, Status};

/// Event for a recovery.
enum Event {
    Metadata(MetadataAnswer),
    Newest(u32, usize, Result<Option<Entry>, CallError>),
    Read(u32, usize, EntryId, Result<Option<Entry>, CallError>),
    Added(u32, AddAnswer),
}

/// As [`LedgerEngine::recover`](pharos_ledger::LedgerEngine::recover).
pub(super) async fn recover(inner: Arc<Inner>, ledger: LedgerId) -> Result<Sealed, OpenError> {
    let fault = |cause: &dyn std::fmt::Display| {
        OpenError::Fault(StorageFault::transient(format!("recover ledger {ledger}"), cause))
    };
    if let Some(ended) = inner.ended() {
        return Err(OpenError::Fault(ended));
    }
    let found = inner.store.read(ledger).await.map_err(|error| fault(&error))?;
    let (metadata, version) = found.ok_or(OpenError::NoSuchLedger(ledger))?;
    if let Some(writer) = inner.writer_of(ledger) {
        writer.fence();
    }
    let mut effects = Vec::new();
    let recovery = Recovery::begin(ledger, metadata, version, &mut effects);
    match drive(&inner, recovery, effects).await {
        Ok(metadata) => {
            let sealed = sealed(&metadata);
            inner.remember(ledger, Arc::new(*metadata));
            sealed.ok_or_else(|| fault(&"it is not closed"))
        }
        Err(RecoveryError::NoSuchLedger) => Err(OpenError::NoSuchLedger(ledger)),
        Err(error @ RecoveryError::Unauthorized) => Err(OpenError::Fault(StorageFault::new(
            format!("recover ledger {ledger}"),
            error,
        ))),
        Err(error) => Err(fault(&error)),
    }
}

/// Returns the content of a closed ledger.
pub(super) fn sealed(metadata: &LedgerMetadata) -> Option<Sealed> {
    match metadata.state {
        State::Closed { last, length } => Some(Sealed {
            entry_count: last.map_or(0, |last| last.0 + 1),
            bytes: length,
        }),
        State::Open | State::InRecovery => None,
    }
}

async fn drive(
    inner: &Inner,
    mut recovery: Recovery,
    mut effects: Vec<RecoveryEffect>,
) -> Result<Box<LedgerMetadata>, RecoveryError> {
    let events = Arc::new(Mailbox::default());
    let ledger = recovery.ledger();
    let digester = recovery.digester().clone();
    loop {
        for effect in effects.drain(..) {
            match effect {
                RecoveryEffect::Done(result) => return result,
                RecoveryEffect::PutMetadata { metadata, version } => {
                    let answer = inner.put_metadata(ledger, &metadata, version).await;
                    events.put(Event::Metadata(answer));
                }
                RecoveryEffect::Fence {
                    attempt,
                    position,
                    bookie,
                } => {
                    let (events, digester) = (Arc::clone(&events), digester.clone());
                    ask(
                        inner,
                        ledger,
                        &bookie,
                        ReadTarget::Newest,
                        Some(&digester.clone()),
                        move |answer| {
                            events.put(Event::Newest(attempt, position, open(&digester, None, answer)));
                        },
                    );
                }
                RecoveryEffect::Read {
                    attempt,
                    position,
                    bookie,
                    entry,
                    is_fencing,
                } => {
                    let (events, opener) = (Arc::clone(&events), digester.clone());
                    let fence = is_fencing.then_some(&digester);
                    ask(
                        inner,
                        ledger,
                        &bookie,
                        ReadTarget::Entry(entry),
                        fence,
                        move |answer| {
                            let answer = open(&opener, Some(entry), answer);
                            events.put(Event::Read(attempt, position, entry, answer));
                        },
                    );
                }
                RecoveryEffect::Add { attempt, add } => {
                    let request = Request::Add(AddRequest {
                        ledger,
                        entry: add.entry,
                        key: digester.key(),
                        is_recovery: true,
                        is_deferred_sync: false,
                        body: add.body,
                    });
                    let (events, bookie) = (Arc::clone(&events), add.bookie.clone());
                    let (position, entry) = (add.position, add.entry);
                    let reply = move |result: Result<Response, CallError>| {
                        let result = result.map(drop);
                        let answer = AddAnswer {
                            position,
                            bookie,
                            entry,
                            connection: 0,
                            result,
                        };
                        events.put(Event::Added(attempt, answer));
                    };
                    inner.call(&add.bookie, &request, inner.options.add_timeout, Box::new(reply));
                }
            }
        }
        match events.take().await {
            Event::Metadata(answer) => recovery.on_metadata(answer, &mut effects),
            Event::Newest(attempt, position, answer) => {
                recovery.on_newest(attempt, position, answer, &mut effects);
            }
            Event::Read(attempt, position, entry, answer) => {
                recovery.on_read(attempt, position, entry, answer, &mut effects);
            }
            Event::Added(attempt, answer) => {
                let mut placement = Chooser {
                    directory: &inner.directory,
                    quorum: recovery.quorum(),
                    affinity: None,
                };
                recovery.on_add(attempt, &answer, &mut placement, &mut effects);
            }
        }
    }
}

fn ask(
    inner: &Inner,
    ledger: LedgerId,
    bookie: &BookieId,
    target: ReadTarget,
    fence: Option<&Digester>,
    reply: impl FnOnce(Result<Response, CallError>) + Send + 'static,
) {
    let request = Request::Read(ReadRequest {
        ledger,
        target,
        fence: fence.map(Digester::key),
        long_poll: None,
    });
    inner.call(bookie, &request, inner.options.read_timeout, Box::new(reply));
}

/// The entry of an answer, or that the bookie does not have it.
pub(super) fn open(
    digester: &Digester,
    wanted: Option<EntryId>,
    answer: Result<Response, CallError>,
) -> Result<Option<Entry>, CallError> {
    match answer {
        Ok(Response::Read { body: Some(body), .. }) => Ok(Some(digester.open(wanted, &body)?)),
        Ok(_) => Err(CallError::Refused(Status::BadRequest)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}
