//! Offloading: closed ledgers get a copy in an object store, and some time later lose the one in the engine.
//!
//! Steps of one ledger, each durable before the next begins (`docs/formats/managed-ledger-info.md` says what a crash between them
//! leaves):
//! 1. the info names the attempt;
//! 2. the objects are written;
//! 3. the info says that they are complete; from now on reads may use them;
//! 4. after the deletion lag, and after a last look whether the objects are there: the info says that the engine's copy goes;
//! 5. the engine deletes it.
//!
//! Whatever is left of other attempts, and of ledgers that were trimmed, is deleted by its id; see [`crate::offload_info`].
//!
//! Owned by the managed ledger. It decides only when asked to ([`OffloadWork::plan`]); its slow steps come out of
//! [`ManagedLedger::take_maintenance`] like all others, one at a time for each topic.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use pharos_ledger::FaultKind;
use pharos_ledger::offload::{LedgerOffloader, OffloadError, OffloadPolicy, OffloadTarget, ReadFirst};
use pharos_ledger::{BoxFuture, LedgerEngine};
use pharos_types::{EntryId, LedgerId, Position};
use tokio::sync::watch;

use super::ManagedLedger;
use super::chain::Chain;
use super::maintain::{MaintenanceDone, MaintenanceError, MaintenanceEvent};
pub(crate) use super::offload_steps::OffloadDone;
use super::offload_steps::{Work, run};
pub(crate) use super::offload_view::{OffloadView, Range, SharedView};
use crate::info::{InfoHandle, ManagedLedgerInfo};
use crate::table::LedgerRow;

/// Pause after a failed step; doubled by each further failure.
const RETRY_MS: u64 = 10_000;
/// The longest pause.
const RETRY_MS_MAX: u64 = 10 * 60_000;

/// Result of the last call of [`OffloadWork::ask`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OffloadStatus {
    /// There was none since the managed ledger was opened.
    #[default]
    NotRun,
    /// The offload is running.
    Running,
    /// All was offloaded; this is the first entry that is not.
    Success(Option<Position>),
    /// The offload ended with this error.
    Failed(String),
}

/// Reason why offloading was not begun.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OffloadAskError {
    /// An earlier call is not done.
    #[error("an offload of this topic is under way")]
    Running,
    /// Its ledgers are those of another managed ledger.
    #[error("a shadow topic has no ledgers of its own")]
    Shadow,
    /// Neither the node nor a policy says where to.
    #[error("no offload driver is set")]
    NoTarget,
    /// Objects cannot go there.
    #[error("cannot offload")]
    Target(#[source] OffloadError),
}

/// Figures of offloading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffloadStats {
    /// Ledgers of the chain that are in an object store.
    pub ledgers: BTreeSet<LedgerId>,
    /// Their payload bytes.
    pub bytes: u64,
    /// The ledger that was offloaded last since the opening.
    pub last_ledger: Option<LedgerId>,
    /// Time of the last success, in milliseconds since 1970; 0 for never.
    pub last_success_ms: u64,
    /// Time of the last failure, in milliseconds since 1970; 0 for never.
    pub last_failure_ms: u64,
}

/// Input of a decision: the chain and its stored info.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) name: &'a Arc<str>,
    pub(super) engine: &'a Arc<dyn LedgerEngine>,
    pub(super) info: &'a Arc<InfoHandle>,
    pub(super) chain: &'a Chain,
    pub(super) now_ms: u64,
}

/// Offloading of a managed ledger, to look at.
pub struct Offloads<'a>(pub(super) &'a ManagedLedger);

impl Offloads<'_> {
    /// Result of the last [`OffloadWork::ask`].
    #[must_use]
    pub fn status(&self) -> OffloadStatus {
        self.0.offload.status.clone()
    }

    /// Figures as of now.
    #[must_use]
    pub fn stats(&self) -> OffloadStats {
        self.0.offload.stats(self.0.chain.rows())
    }

    /// True if an offload step was taken and not given back yet.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.offload.running.is_some()
    }
}

/// Offloading of a managed ledger, by the one who owns it.
pub struct OffloadWork<'a>(&'a mut ManagedLedger);

impl<'a> OffloadWork<'a> {
    /// The offload work of a managed ledger.
    pub fn of(ledger: &'a mut ManagedLedger) -> Self {
        Self(ledger)
    }

    /// Decides what is to be offloaded, deleted or cleaned up by now; [`ManagedLedger::take_maintenance`] has the steps.
    /// Call it when a ledger was closed, after trimming, when the policy changed, and now and then.
    ///
    /// Cost: grows with the ledgers of the chain; next to nothing where nothing is, was or shall be offloaded.
    pub fn plan(self, policy: &OffloadPolicy, now_ms: u64) {
        if self.0.is_shadow() {
            return;
        }
        let (ground, offload) = self.ground(now_ms);
        offload.plan(policy, ground);
    }

    /// Has the closed ledgers before the one of `before` offloaded, whatever the thresholds say. [`Offloads::status`] says what comes
    /// of it.
    ///
    /// # Errors
    /// [`OffloadAskError`]; nothing was begun.
    pub fn ask(self, before: Position, policy: &OffloadPolicy, now_ms: u64) -> Result<(), OffloadAskError> {
        if self.0.is_shadow() {
            return Err(OffloadAskError::Shadow);
        }
        let (ground, offload) = self.ground(now_ms);
        offload.ask(before.ledger, policy, ground)
    }

    /// Calls off what is under way and begins nothing any more; for closing. The step that runs ends soon.
    pub fn stop(self) {
        self.0.offload.stop.send_replace(true);
        self.0.offload.queue.clear();
    }

    /// Offloading, and what it looks at.
    pub(super) fn ground(self, now_ms: u64) -> (Ground<'a>, &'a mut Offloading) {
        let ledger = self.0;
        ledger.now_ms = ledger.now_ms.max(now_ms);
        let ground = Ground {
            name: &ledger.name,
            engine: &ledger.engine,
            info: &ledger.info,
            chain: &ledger.chain,
            now_ms: ledger.now_ms,
        };
        (ground, &mut ledger.offload)
    }
}

/// Offload state of a managed ledger.
pub(super) struct Offloading {
    offloader: Option<Arc<dyn LedgerOffloader>>,
    /// View that readers use; shared with all readers ever given out.
    pub(super) view: SharedView,
    /// True if the info had offload rows when it was last read. Only our own steps add any.
    has_rows: bool,
    /// Steps to do, in order. Rebuilt by each plan.
    queue: VecDeque<Work>,
    /// The step that runs.
    running: Option<Work>,
    /// Ledgers that the info says are deleted and that the engine could not delete yet.
    undeleted: Vec<LedgerId>,
    /// An administrator wants ledgers before this one offloaded, to there.
    asked: Option<(LedgerId, OffloadTarget)>,
    status: OffloadStatus,
    /// Steps that failed last time. They go behind all others, so that one bad object does not block the rest.
    suspects: Vec<Work>,
    /// Failures in a row.
    failures: u32,
    retry_at_ms: u64,
    stats: OffloadStats,
    /// Set to true to call off what runs.
    pub(super) stop: watch::Sender<bool>,
}

impl Offloading {
    pub(super) fn new(offloader: Option<Arc<dyn LedgerOffloader>>, info: &ManagedLedgerInfo) -> Self {
        let view = OffloadView::new(offloader.clone(), info, ReadFirst::default());
        Self {
            offloader,
            view: SharedView::new(view),
            has_rows: !info.offloads.is_empty(),
            queue: VecDeque::new(),
            running: None,
            undeleted: Vec::new(),
            asked: None,
            status: OffloadStatus::NotRun,
            suspects: Vec::new(),
            failures: 0,
            retry_at_ms: 0,
            stats: OffloadStats::default(),
            stop: watch::Sender::new(false),
        }
    }

    /// Decides what is to be done by now.
    fn plan(&mut self, policy: &OffloadPolicy, ground: Ground<'_>) {
        let is_asked = self.asked.is_some() || self.running.is_some();
        if policy.target.is_none() && !self.has_rows && !is_asked {
            self.queue.clear();
            return;
        }
        let info = ground.info.seen();
        self.refresh(&info, ground.chain.rows(), policy.read_first);
        if self.offloader.is_none() || *self.stop.borrow() {
            return;
        }
        let mut queue = VecDeque::new();
        let running = self
            .running
            .as_ref()
            .and_then(Work::object)
            .map(|object| object.id);
        for row in info.offloads.iter().filter(|row| Some(row.id()) != running) {
            if !row.is_complete() || info.is_garbage(row) {
                queue.push_back(Work::Clean(info.object(row)));
            } else if !row.local_deleted && is_lag_over(policy, row.at_ms, ground.now_ms) {
                queue.push_back(Work::DeleteLocal(info.object(row)));
            }
        }
        queue.extend(self.undeleted.iter().copied().map(Work::DeleteAgain));
        if let Some(target) = &policy.target {
            let due = self.due_ledgers(policy, ground);
            queue.extend(
                due.into_iter()
                    .map(|ledger| Work::Offload(ledger, target.clone())),
            );
        }
        let suspects = &mut self.suspects;
        suspects.retain(|work| queue.contains(work));
        let (last, first): (Vec<_>, Vec<_>) = queue.into_iter().partition(|work| suspects.contains(work));
        self.queue = first.into_iter().chain(last).collect();
        self.queue_asked(ground.chain.rows());
    }

    fn ask(
        &mut self,
        before: LedgerId,
        policy: &OffloadPolicy,
        ground: Ground<'_>,
    ) -> Result<(), OffloadAskError> {
        if self.asked.is_some() {
            return Err(OffloadAskError::Running);
        }
        let (Some(offloader), Some(target)) = (&self.offloader, &policy.target) else {
            return Err(OffloadAskError::NoTarget);
        };
        offloader.check_target(target).map_err(OffloadAskError::Target)?;
        self.asked = Some((before, target.clone()));
        self.status = OffloadStatus::Running;
        (self.failures, self.retry_at_ms) = (0, 0);
        self.plan(policy, ground);
        self.finish_asked(ground.chain.rows());
        Ok(())
    }

    fn stats(&self, chain: &[LedgerRow]) -> OffloadStats {
        let view = self.view.get();
        let rows = chain.iter().filter(|row| view.of(row.id).is_some());
        let mut stats = OffloadStats {
            bytes: 0,
            ledgers: BTreeSet::new(),
            ..self.stats.clone()
        };
        for row in rows {
            stats.bytes += row.bytes;
            stats.ledgers.insert(row.id);
        }
        stats
    }

    /// The next step, when there is one and none is under way.
    pub(super) fn take_step(&mut self, ground: Ground<'_>) -> Option<BoxFuture<'static, MaintenanceDone>> {
        let is_waiting = ground.now_ms < self.retry_at_ms || *self.stop.borrow();
        if self.running.is_some() || is_waiting {
            return None;
        }
        let offloader = self.offloader.clone()?;
        let work = self.queue.pop_front()?;
        self.running = Some(work.clone());
        Some(run(work, offloader, self.stop.subscribe(), ground))
    }

    /// Takes the result of a step. `Failed`: the managed ledger is another owner's now.
    pub(super) fn on_step(&mut self, done: OffloadDone, ground: Ground<'_>) -> MaintenanceEvent {
        self.running = None;
        let read_first = self.view.get().read_first();
        self.refresh(&ground.info.seen(), ground.chain.rows(), read_first);
        match (done.work, done.outcome) {
            (work, Ok(())) => {
                (self.failures, self.retry_at_ms) = (0, 0);
                self.on_success(&work, ground)
            }
            (_, Err(MaintenanceError::Info(error))) if error.kind() == FaultKind::Fenced => {
                MaintenanceEvent::Failed(error.into())
            }
            (work, Err(error)) => self.on_failure(&work, error, ground.now_ms),
        }
    }

    fn on_success(&mut self, work: &Work, ground: Ground<'_>) -> MaintenanceEvent {
        self.suspects.retain(|suspect| suspect != work);
        let event = match work {
            // Trimmed meanwhile; nothing was copied, or what was is cleaned up.
            Work::Offload(ledger, _) if self.view.get().of(*ledger).is_none() => MaintenanceEvent::Nothing,
            Work::Offload(ledger, _) => {
                self.stats.last_ledger = Some(*ledger);
                self.stats.last_success_ms = ground.now_ms;
                MaintenanceEvent::Offloaded(*ledger)
            }
            Work::DeleteAgain(ledger) => {
                self.undeleted.retain(|other| other != ledger);
                MaintenanceEvent::Nothing
            }
            Work::DeleteLocal(_) | Work::Clean(_) => MaintenanceEvent::Nothing,
        };
        if self.queue.is_empty() {
            self.queue_asked(ground.chain.rows());
        }
        self.finish_asked(ground.chain.rows());
        event
    }

    fn on_failure(&mut self, work: &Work, error: MaintenanceError, now_ms: u64) -> MaintenanceEvent {
        if *self.stop.borrow() {
            return MaintenanceEvent::Nothing;
        }
        let pause = RETRY_MS
            .saturating_mul(1 << self.failures.min(6))
            .min(RETRY_MS_MAX);
        self.failures += 1;
        self.retry_at_ms = now_ms + pause;
        if !self.suspects.contains(work) {
            self.suspects.push(work.clone());
        }
        match work {
            Work::Offload(ledger, _) => {
                self.stats.last_failure_ms = now_ms;
                let is_asked = |asked: &(LedgerId, OffloadTarget)| *ledger < asked.0;
                if self.asked.take_if(|asked| is_asked(asked)).is_some() {
                    self.status = OffloadStatus::Failed(chain(&error));
                }
                // The plan of the next tick has it again, after what this attempt left is cleaned up.
                self.queue.retain(|work| !matches!(work, Work::Offload(..)));
            }
            // The info said so already; only the engine must follow.
            Work::DeleteLocal(object) if matches!(error, MaintenanceError::Delete(_)) => {
                self.undeleted.push(object.ledger);
            }
            Work::DeleteLocal(_) | Work::DeleteAgain(_) | Work::Clean(_) => {}
        }
        MaintenanceEvent::Retrying(error)
    }

    /// Ledgers that can be offloaded: closed, not empty, not offloaded, oldest first.
    fn offloadable<'a>(&self, chain: &'a [LedgerRow]) -> impl Iterator<Item = &'a LedgerRow> + use<'a> {
        let view = self.view.get();
        let running = self.running.as_ref().and_then(Work::ledger);
        chain.iter().filter(move |row| {
            let is_closed = row.closed_at_ms.is_some() && row.entries > 0;
            is_closed && Some(row.id) != running && view.of(row.id).is_none()
        })
    }

    /// Ledgers that the thresholds select for offloading, oldest first.
    fn due_ledgers(&self, policy: &OffloadPolicy, ground: Ground<'_>) -> Vec<LedgerId> {
        let mut newer_bytes = 0u64;
        let mut due = BTreeSet::new();
        for row in ground.chain.rows().iter().rev() {
            let Some(closed_at_ms) = row.closed_at_ms else {
                continue;
            };
            newer_bytes = newer_bytes.saturating_add(row.bytes);
            let age_ms = ground.now_ms.saturating_sub(closed_at_ms);
            let is_over_size = policy.bytes_kept.is_some_and(|kept| newer_bytes > kept);
            let is_old = policy.age_ms_max.is_some_and(|age_ms_max| age_ms >= age_ms_max);
            if is_over_size || is_old {
                due.insert(row.id);
            }
        }
        let ids = self.offloadable(ground.chain.rows()).map(|row| row.id);
        ids.filter(|ledger| due.contains(ledger)).collect()
    }

    /// Queues what an administrator asked for and thresholds did not.
    fn queue_asked(&mut self, chain: &[LedgerRow]) {
        let Some((before, target)) = self.asked.clone() else {
            return;
        };
        let queued: BTreeSet<LedgerId> = self.queue.iter().filter_map(Work::ledger).collect();
        let wanted = self
            .offloadable(chain)
            .map(|row| row.id)
            .filter(|ledger| *ledger < before);
        let more: Vec<_> = wanted.filter(|ledger| !queued.contains(ledger)).collect();
        let more = more
            .into_iter()
            .map(|ledger| Work::Offload(ledger, target.clone()));
        self.queue.extend(more);
    }

    /// Notes success once nothing of what was asked for is left.
    fn finish_asked(&mut self, chain: &[LedgerRow]) {
        let Some((before, _)) = &self.asked else {
            return;
        };
        let running = self.running.as_ref().and_then(Work::ledger);
        let is_left = running.is_some_and(|ledger| ledger < *before)
            || self.offloadable(chain).any(|row| row.id < *before);
        if is_left {
            return;
        }
        let view = self.view.get();
        let first = chain.iter().find(|row| view.of(row.id).is_none());
        self.asked = None;
        self.status = OffloadStatus::Success(first.map(|row| Position {
            ledger: row.id,
            entry: EntryId(0),
        }));
    }

    /// Tells readers what is where. A ledger that was trimmed is nowhere, although its objects may still be there.
    /// Shows the copies that a shadow's source has.
    pub(super) fn show(&mut self, source: &ManagedLedgerInfo, chain: &[LedgerRow]) {
        if self.has_rows || !source.offloads.is_empty() {
            let read_first = self.view.get().read_first();
            self.refresh(source, chain, read_first);
        }
    }

    fn refresh(&mut self, info: &ManagedLedgerInfo, chain: &[LedgerRow], read_first: ReadFirst) {
        self.has_rows = !info.offloads.is_empty();
        let mut view = OffloadView::new(self.offloader.clone(), info, read_first);
        let chain: BTreeSet<LedgerId> = chain.iter().map(|row| row.id).collect();
        view.retain(|ledger| chain.contains(&ledger));
        self.view.set(view);
    }
}

/// An error with its causes, for people.
fn chain(error: &MaintenanceError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn is_lag_over(policy: &OffloadPolicy, completed_ms: u64, now_ms: u64) -> bool {
    let elapsed_ms = now_ms.saturating_sub(completed_ms);
    policy.deletion_lag_ms.is_some_and(|lag_ms| elapsed_ms >= lag_ms)
}
