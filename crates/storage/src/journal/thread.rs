//! The thread that runs a journal.

use std::time::Duration;

use pharos_runtime::clock;

use super::{Journal, Step};
use crate::stats::bump;

/// How much nicer than others the journal is treated, on the system's scale. Everybody waits for it.
const PRIORITY: i32 = -10;

/// How often a journal without a segment or room looks after its late syncs.
const RETRY: Duration = Duration::from_millis(200);

/// Runs until the store stops or is poisoned.
pub(crate) fn run(mut journal: Journal) {
    // Needs a right that a plain user lacks; without it the journal is an ordinary thread.
    if let Err(errno) = rustix::process::setpriority_process(None, PRIORITY) {
        tracing::debug!(%errno, "journal thread keeps its ordinary priority");
    }
    let shared = std::sync::Arc::clone(&journal.shared);
    let queue = &shared.journals[journal.number].queue;
    let linger = shared.options.linger;
    let group_bytes_max = shared.options.group_bytes_max;
    let mut last_group = clock::now();
    loop {
        match journal.step(clock::now()) {
            Step::Stopped => break,
            Step::Worked => last_group = clock::now(),
            Step::Idle(timeout) => {
                let nothing = queue.wait(timeout);
                let busy = u128::from(clock::now().since(last_group)) < linger.as_nanos();
                if !nothing && busy {
                    queue.linger(linger, group_bytes_max);
                }
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
