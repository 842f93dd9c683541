//! Following a ledger that another process writes: its bookies answer as soon as they know of more.
//!
//! A bookie learns how far a ledger is confirmed from the next entry, or from its writer when that pauses
//! ([`is_followed`](pharos_ledger::CreateOptions::is_followed)). A read with a time-out waits there until then. All bookies of the
//! ensemble are asked, the first that knows more decides: each knows only what an ack quorum has stored. No request fences.

use std::sync::Arc;
use std::time::Duration;

use pharos_ledger::{ReadError, Readable};
use pharos_runtime::{Nanos, clock};
use pharos_types::{EntryId, LedgerId};

use super::reading::look_up;
use super::recovering::sealed;
use super::{Inner, REMEMBERED_MAX, lock};
use crate::call::CallError;
use crate::metadata::LedgerMetadata;
use crate::net::Mailbox;
use crate::wire::{LongPoll, ReadRequest, ReadTarget, Request, Response, Status};

/// Maximum time that bookies wait for new entries.
const POLL: Duration = Duration::from_secs(5);
/// Time after which the metadata of a followed ledger is read again, in nanoseconds: its bookies may have changed.
const KNOWN_NANOS: u64 = 10_000_000_000;
/// Pause before a ledger without entries on any bookie is read again: nothing was written to it yet.
const PAUSE: Duration = Duration::from_millis(50);

/// Metadata of a followed ledger.
#[derive(Clone)]
pub(super) struct Followed {
    pub(super) metadata: Arc<LedgerMetadata>,
    /// Entries before it are confirmed.
    pub(super) end: EntryId,
    /// Time of the read.
    at: Nanos,
}

/// As [`LedgerEngine::follow`](pharos_ledger::LedgerEngine::follow).
pub(super) async fn follow(
    inner: Arc<Inner>,
    ledger: LedgerId,
    beyond: Option<u64>,
) -> Result<Readable, ReadError> {
    let writer = inner.writer_of(ledger);
    if let (Some(writer), Some(beyond)) = (&writer, beyond) {
        writer.passes(beyond).await;
    }
    let known = inner.known_of(ledger).filter(|_| beyond.is_some());
    let metadata = match known {
        Some(known) => {
            if beyond.is_some_and(|beyond| known.end.0 > beyond) {
                return Ok(open(known.end));
            }
            known.metadata
        }
        None => {
            let (metadata, readable) = look(&inner, ledger).await?;
            let is_news = beyond.is_none_or(|beyond| readable.entries > beyond);
            if is_news || readable.is_sealed || writer.is_some() {
                return Ok(readable);
            }
            metadata
        }
    };
    if let Some(beyond) = beyond
        && let Some(end) = poll(&inner, ledger, &metadata, beyond).await
    {
        inner.advance(ledger, end);
        return Ok(open(end));
    }
    // It was closed, its bookies changed, or nothing came.
    Ok(look(&inner, ledger).await?.1)
}

fn open(end: EntryId) -> Readable {
    Readable {
        entries: end.0,
        is_sealed: false,
    }
}

/// Asks the metadata store and the bookies, and remembers what they say.
async fn look(inner: &Arc<Inner>, ledger: LedgerId) -> Result<(Arc<LedgerMetadata>, Readable), ReadError> {
    let (metadata, end) = look_up(inner, ledger).await?;
    if let Some(sealed) = sealed(&metadata) {
        let readable = Readable {
            entries: sealed.entry_count,
            is_sealed: true,
        };
        return Ok((metadata, readable));
    }
    if inner.writer_of(ledger).is_none() {
        inner.note_followed(ledger, &metadata, end);
    }
    Ok((metadata, open(end)))
}

/// Waits until a bookie knows of more than so many entries. `None`: none does, or none can say.
async fn poll(inner: &Inner, ledger: LedgerId, metadata: &LedgerMetadata, beyond: u64) -> Option<EntryId> {
    let last = metadata.last_segment()?;
    let answers = Arc::new(Mailbox::default());
    let request = Request::Read(ReadRequest {
        ledger,
        target: ReadTarget::Newest,
        fence: None,
        long_poll: Some(LongPoll {
            previous_lac: beyond.checked_sub(1).map(EntryId),
            timeout: POLL,
            with_entry: true,
        }),
    });
    for bookie in &last.ensemble {
        let answers = Arc::clone(&answers);
        let reply = move |answer: Result<Response, CallError>| answers.put(answer);
        let timeout = inner.options.read_timeout.saturating_add(POLL);
        inner.call(bookie, &request, timeout, Box::new(reply));
    }
    let mut is_unknown = true;
    for _ in &last.ensemble {
        match answers.take().await {
            Ok(Response::Read {
                max_lac: Some(lac), ..
            }) if lac.0 >= beyond => {
                return Some(EntryId(lac.0 + 1));
            }
            Ok(_) => is_unknown = false,
            // It knows more, and the next entry is on other bookies: the whole look that follows tells how far it goes.
            Err(CallError::Refused(Status::NoEntry)) => return None,
            Err(_) => {}
        }
    }
    if is_unknown {
        tokio::time::sleep(PAUSE).await;
    }
    None
}

impl Inner {
    /// Returns the metadata of a followed ledger, unless it is outdated.
    pub(super) fn known_of(&self, ledger: LedgerId) -> Option<Followed> {
        let now = clock::now();
        let followed = lock(&self.followed).get(&ledger).cloned()?;
        (now.since(followed.at) < KNOWN_NANOS).then_some(followed)
    }

    fn note_followed(&self, ledger: LedgerId, metadata: &Arc<LedgerMetadata>, end: EntryId) {
        let known = Followed {
            metadata: Arc::clone(metadata),
            end,
            at: clock::now(),
        };
        let mut followed = lock(&self.followed);
        if followed.len() >= REMEMBERED_MAX {
            followed.clear();
        }
        followed.insert(ledger, known);
    }

    fn advance(&self, ledger: LedgerId, end: EntryId) {
        if let Some(known) = lock(&self.followed).get_mut(&ledger) {
            known.end = known.end.max(end);
        }
    }
}
