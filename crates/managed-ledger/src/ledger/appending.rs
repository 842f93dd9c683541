//! Append state: the current ledger, the entries that wait for it, and the durable end.

use std::collections::VecDeque;
use std::sync::Arc;

use pharos_ledger::{AppendError as Refused, LedgerWriter, NewEntry, StorageFault};
use pharos_types::{EntryId, Ordinal};
use tokio::sync::watch;

use crate::durable::{Active, DurableWatch};
use crate::error::{AppendError, CloseError, fault_of};

/// Bytes that may wait for a handover.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The end of the chain that takes entries.
pub(super) struct Appending {
    /// Takes the appends of the ledger whose tail counts; `None` once terminated.
    writer: Option<Arc<dyn LedgerWriter>>,
    /// Steps 2 and 3 of a rollover.
    handover: Option<Handover>,
    /// Entries that have positions in the last row's ledger but are not queued there: it waits for the one before to be
    /// closed, or the engine is full. Counted in `waiting_bytes` and bounded by [`WAITING_BYTES_MAX`].
    waiting: VecDeque<NewEntry>,
    waiting_bytes: usize,
    /// The ledger whose tail counts, for [`DurableWatch`].
    active: watch::Sender<Active>,
    end: End,
    /// Reason why nothing can be appended any more; the first one is kept.
    failure: Option<Failure>,
}

/// A rollover between the last append to the old ledger and the first to the new one.
struct Handover {
    writer: Arc<dyn LedgerWriter>,
    /// True if the close of the old ledger was handed out.
    is_closing: bool,
}

/// Progress of termination.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Endless,
    /// Others append, to its source; this shows what is durable there.
    Shadow,
    /// Appends are refused; the last ledger is yet to be closed.
    Asked,
    /// Its close was handed out.
    Closing,
    Terminated,
}

#[derive(Clone)]
pub(super) enum Failure {
    Fenced,
    Fault(Arc<StorageFault>),
}

impl Appending {
    /// To an empty ledger that begins at `end`, where everything before is durable; without one: terminated.
    pub(super) fn new(writer: Option<Arc<dyn LedgerWriter>>, end: Ordinal) -> Self {
        let tail = writer.as_ref().map(|writer| writer.tail());
        Self {
            active: watch::Sender::new(Active {
                first: end,
                tail,
                failed: None,
            }),
            end: match writer {
                Some(_) => End::Endless,
                None => End::Terminated,
            },
            writer,
            handover: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            failure: None,
        }
    }

    /// The state of a shadow that shows the entries before `end`.
    pub(super) fn shadow(end: Ordinal) -> Self {
        let mut appending = Self::new(None, end);
        appending.end = End::Shadow;
        appending
    }

    /// The shadow shows what lies before `end`.
    pub(super) fn show(&mut self, end: Ordinal) {
        self.active
            .send_modify(|active| active.first = active.first.max(end));
    }

    /// The source was terminated. Says whether that is new.
    pub(super) fn end_shadow(&mut self) -> bool {
        let is_new = self.end == End::Shadow;
        if is_new {
            self.end = End::Terminated;
        }
        is_new
    }

    pub(super) fn durable_end(&self) -> Ordinal {
        self.active.borrow().state().0
    }

    pub(super) fn durable_watch(&self) -> DurableWatch {
        DurableWatch::new(self.active.subscribe())
    }

    /// True if no entry can ever be appended again.
    pub(super) fn is_terminated(&self) -> bool {
        !matches!(self.end, End::Endless | End::Shadow)
    }

    /// True if there is a ledger that takes entries.
    pub(super) fn has_writer(&self) -> bool {
        self.writer.is_some()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// True if a rollover is between its steps 2 and 3.
    pub(super) fn is_turning(&self) -> bool {
        self.handover.is_some()
    }

    /// True if every entry with a position was queued in its ledger.
    pub(super) fn is_all_queued(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Checks that appends are accepted, apart from size and space.
    pub(super) fn check_writable(&self) -> Result<(), AppendError> {
        match &self.failure {
            Some(Failure::Fenced) => return Err(AppendError::Fenced),
            Some(Failure::Fault(fault)) => return Err(AppendError::Failed(fault.clone())),
            None => {}
        }
        match self.end {
            End::Endless => Ok(()),
            End::Shadow => Err(AppendError::Shadow),
            End::Asked | End::Closing | End::Terminated => Err(AppendError::Terminated),
        }
    }

    /// Hands the entry to the engine, or lets it wait behind those that wait. `expected`: its place in the last ledger.
    pub(super) fn queue(&mut self, entry: NewEntry, expected: Option<EntryId>) -> Result<(), AppendError> {
        self.flush_waiting();
        self.check_writable()?;
        if self.handover.is_some() || !self.waiting.is_empty() {
            let bytes = entry.payload.len();
            if self.waiting_bytes + bytes > WAITING_BYTES_MAX {
                return Err(AppendError::Overloaded);
            }
            self.waiting_bytes += bytes;
            self.waiting.push_back(entry);
            return Ok(());
        }
        let writer = self.writer.as_ref().ok_or(AppendError::Terminated)?;
        let entry = writer
            .append_entry(entry)
            .map_err(|error| self.on_refused(&error))?;
        assert_eq!(Some(entry), expected, "the engine's entry ids are dense");
        Ok(())
    }

    /// Queues what waits, as far as the engine takes it. Those entries have positions, so a refusal that is not for the
    /// moment is final.
    pub(super) fn flush_waiting(&mut self) {
        while self.handover.is_none()
            && self.failure.is_none()
            && let (Some(writer), Some(entry)) = (&self.writer, self.waiting.front())
        {
            let bytes = entry.payload.len();
            match writer.append_entry(entry.clone()) {
                Ok(_) => {
                    self.waiting.pop_front();
                    self.waiting_bytes -= bytes;
                }
                Err(Refused::Overloaded { .. } | Refused::NoSpace { .. }) => return,
                Err(error) => {
                    self.on_refused(&error);
                    self.fail(Failure::Fault(fault_of("append to the next ledger", &error)));
                }
            }
        }
    }

    /// Takes note of the engine's refusal.
    fn on_refused(&mut self, error: &Refused) -> AppendError {
        match error {
            Refused::NoSpace { .. } => return AppendError::NoSpace,
            Refused::Overloaded { .. } => return AppendError::Overloaded,
            Refused::TooLarge { bytes, bytes_max } => {
                return AppendError::BadSize {
                    bytes: *bytes,
                    bytes_max: *bytes_max,
                };
            }
            // No other closes our ledger: a closed one was recovered by another owner.
            Refused::Fenced { .. } | Refused::Closed { .. } => self.fail(Failure::Fenced),
            Refused::Poisoned(fault) | Refused::GivenUp { fault, .. } => {
                self.fail(Failure::Fault(fault.clone()));
            }
        }
        match &self.failure {
            Some(Failure::Fault(fault)) => AppendError::Failed(fault.clone()),
            _ => AppendError::Fenced,
        }
    }

    /// Nothing more can be appended; watchers are told after what is durable.
    pub(super) fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() {
            let fault = match &failure {
                Failure::Fenced => StorageFault::fenced("managed ledger", "another owner took over"),
                Failure::Fault(fault) => Arc::clone(fault),
            };
            self.failure = Some(failure);
            self.active.send_modify(|active| active.failed = Some(fault));
        }
    }

    // ---- rollover ----------------------------------------------------------------------------------------------

    /// Step 2: entries belong to this ledger from now on, and wait until the one before is closed.
    pub(super) fn turn_to(&mut self, writer: Arc<dyn LedgerWriter>) {
        self.handover = Some(Handover {
            writer,
            is_closing: false,
        });
    }

    /// The ledger whose close is due, once.
    pub(super) fn take_full(&mut self) -> Option<Arc<dyn LedgerWriter>> {
        let handover = self.handover.as_mut().filter(|handover| !handover.is_closing)?;
        handover.is_closing = true;
        self.writer.clone()
    }

    /// Step 3: the ledger before is closed, so all of it is durable. Says whether one followed it.
    pub(super) fn on_closed(&mut self) -> bool {
        let Some(handover) = self.handover.take() else {
            return false;
        };
        self.writer = Some(handover.writer);
        true
    }

    /// From now on it is the tail of the ledger that begins at `first` that counts, and what waited follows.
    pub(super) fn go_on_from(&mut self, first: Ordinal) {
        let tail = self.writer.as_ref().map(|writer| writer.tail());
        self.active
            .send_modify(|active| (active.first, active.tail) = (first, tail));
        self.flush_waiting();
    }

    /// A ledger that cannot be closed, for whatever reason, has an end that only recovery can tell.
    pub(super) fn on_not_closed(&mut self, error: &Refused) {
        self.on_refused(error);
        self.fail(Failure::Fault(fault_of("close ledger", error)));
    }

    // ---- the end -----------------------------------------------------------------------------------------------

    /// Refuses appends from now on.
    pub(super) fn ask_end(&mut self) {
        if self.end == End::Endless {
            self.end = End::Asked;
        }
    }

    /// The last ledger, whose close is due for good: the end was asked for, and no rollover is under way.
    pub(super) fn take_last(&mut self) -> Option<Arc<dyn LedgerWriter>> {
        let is_quiet = self.handover.is_none() && self.waiting.is_empty();
        if self.end != End::Asked || !is_quiet {
            return None;
        }
        let writer = self.writer.clone()?;
        self.end = End::Closing;
        Some(writer)
    }

    /// The end could not be made durable; it is tried again.
    pub(super) fn on_not_ended(&mut self) {
        self.end = End::Asked;
    }

    /// Records that the termination is durable, and everything before `end` with it.
    pub(super) fn on_ended(&mut self, end: Ordinal) {
        self.end = End::Terminated;
        self.writer = None;
        self.active
            .send_modify(|active| (active.first, active.tail) = (end, None));
    }

    /// Makes everything durable that was appended. Says whether there was a ledger to close.
    pub(super) async fn close(&mut self) -> Result<bool, CloseError> {
        let Some(mut writer) = self.writer.take() else {
            return Ok(false);
        };
        if let Some(handover) = self.handover.take() {
            writer.close().await?;
            writer = handover.writer;
        }
        for entry in std::mem::take(&mut self.waiting) {
            writer.append_entry(entry)?;
        }
        writer.close().await?;
        Ok(true)
    }
}
