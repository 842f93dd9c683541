//! The thread that runs a journal.

use std::num::NonZeroU64;
use std::time::Duration;

use pharos_runtime::clock;

use super::{Journal, Step};
use crate::stats::bump;

/// Scheduling priority (nice value) of the journal, above that of other threads. All publishers wait for it.
const PRIORITY: i32 = -10;

/// Interval at which a journal without a segment or room checks its late syncs.
const RETRY: Duration = Duration::from_millis(200);

/// Maximum delay of the system's wake-up from a pause, in nanoseconds; its default of 50 us would be a good part of a
/// pause.
const TIMER_SLACK_NANOS: u64 = 1_000;

/// Runs until the store stops or is poisoned.
pub(crate) fn run(mut journal: Journal) {
    // Needs a right that a plain user lacks; without it the journal is an ordinary thread.
    if let Err(errno) = rustix::process::setpriority_process(None, PRIORITY) {
        tracing::debug!(%errno, "journal thread keeps its ordinary priority");
    }
    if let Err(errno) = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NANOS)) {
        tracing::debug!(%errno, "journal thread keeps its ordinary timer slack");
    }
    let shared = std::sync::Arc::clone(&journal.shared);
    let queue = &shared.journals[journal.number].queue;
    let group_bytes_max = shared.options.group_bytes_max;
    loop {
        let pause = journal.pause(clock::now());
        if !pause.is_zero() {
            queue.linger(pause, group_bytes_max);
        }
        match journal.step(clock::now()) {
            Step::Stopped => break,
            Step::Worked => {}
            Step::Idle(timeout) => {
                queue.wait(timeout);
            }
            Step::NoSegment => {
                queue.wait_for_ring(RETRY);
            }
            Step::NoRoom => {
                let begin = clock::now();
                queue.wait_for_ring(RETRY);
                bump(&shared.counters.throttled_nanos, clock::now().since(begin));
            }
        }
    }
}
