//! A topic whose log takes no more writes: every caller that waits is told, reads go on; and when what it lacked may come back, the
//! topic is closed and loaded anew.
//!
//! What the engine says decides. A failed device or a poisoned journal is final: closing the topic would take away its reads and
//! bring nothing back, so it stays as it is until a person restarts the broker, and says so. Everything else (no room, no
//! files, a ledger that another owner took) a new loading may find mended: it recovers the log and goes on behind what is there.
//! A topic that fails again soon waits longer each time.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use pharos_runtime::{clock, spawn_local};
use pharos_types::TopicName;

use super::{Publishing, TopicContext};
use crate::error::PublishError;

/// The first pause before a failed topic is loaded anew; each failure soon after another doubles it.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A topic that held so long, in milliseconds, begins with the first pause again.
const SOON_MS: u64 = 600_000;

/// How often topics failed lately.
#[derive(Default)]
pub(crate) struct Failures {
    by_name: HashMap<TopicName, Failure>,
}

struct Failure {
    count: u32,
    at_ms: u64,
}

impl Failures {
    /// Notes a failure. Returns how long to wait.
    fn note(&mut self, name: &TopicName, now_ms: u64) -> Duration {
        self.by_name
            .retain(|_, failure| now_ms.saturating_sub(failure.at_ms) < SOON_MS);
        let failure = self.by_name.entry(name.clone()).or_insert(Failure {
            count: 0,
            at_ms: now_ms,
        });
        let pause = PAUSE_MIN.saturating_mul(1 << failure.count.min(10));
        failure.count += 1;
        failure.at_ms = now_ms;
        pause.min(PAUSE_MAX)
    }
}

impl Publishing {
    /// The log takes no more writes: every caller that waits is answered, producers are closed, reads go on. `passes`: the
    /// cause may pass, so the topic comes back by itself.
    pub(super) fn fail(&mut self, cx: &TopicContext, reason: &str, passes: bool) {
        if self.fault.is_some() {
            return;
        }
        self.fault = Some(reason.to_owned());
        self.watching = false;
        for pending in std::mem::take(&mut self.pending) {
            pending.refuse(cx, PublishError::Storage(reason.to_owned()));
        }
        self.draining.clear();
        self.close_all_producers(cx);
        if passes {
            cx.come_back(reason);
        } else {
            tracing::error!(topic = %cx.name, reason, "topic accepts no more writes until the broker is restarted");
        }
    }
}

impl TopicContext {
    /// Closes the topic after a pause; the next request loads it.
    pub(super) fn come_back(&self, reason: &str) {
        let (Some(shard), Some(me)) = (self.shard(), self.me()) else {
            return;
        };
        let pause = shard
            .topics
            .failures
            .borrow_mut()
            .note(&self.name, clock::wall_ms());
        tracing::warn!(topic = %self.name, reason, ?pause, "topic accepts no writes for now; it is loaded anew");
        spawn_local(async move {
            tokio::time::sleep(pause).await;
            // Closed or replaced meanwhile: there is nothing left to do.
            let is_loaded = shard
                .topics
                .by_name(&me.cx.name)
                .is_some_and(|loaded| Rc::ptr_eq(&loaded, &me));
            if is_loaded && !me.state.borrow().stored.closing {
                shard.unload(&me.cx.name).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_again_soon_waits_longer() {
        let mut failures = Failures::default();
        let name: TopicName = "t".parse().unwrap_or_else(|_| unreachable!());
        let first = failures.note(&name, 0);
        assert_eq!(failures.note(&name, 1_000), first * 2);
        assert_eq!(failures.note(&name, 2_000), first * 4);
        for at_ms in 3_000..3_020 {
            assert!(failures.note(&name, at_ms) <= PAUSE_MAX);
        }
        assert_eq!(failures.note(&name, 3_020 + SOON_MS), first);
        assert_eq!(failures.by_name.len(), 1);
    }
}
