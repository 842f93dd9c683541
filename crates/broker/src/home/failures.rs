//! Topics whose logs take no writes. When the cause may pass they are closed after a pause, and loaded anew by the next request; one
//! that fails again soon waits longer each time. When another owner took the log they are closed at once.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use pharos_runtime::{clock, spawn_local};
use pharos_topic::{Staying, Topic};
use pharos_types::TopicName;

use super::Home;

/// The first pause before a failed topic is loaded anew; each failure soon after another doubles it.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A topic that held so long, in milliseconds, begins with the first pause again.
const SOON_MS: u64 = 600_000;

/// Recent failures by topic.
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

impl Home {
    /// Closes a topic after a pause; the next request loads it.
    pub(crate) fn come_back(self: &Rc<Self>, topic: Rc<Topic>, reason: &str) {
        let name = topic.name();
        let pause = self.topics.failures.borrow_mut().note(name, clock::wall_ms());
        tracing::warn!(topic = %name, reason, ?pause, "topic accepts no writes for now; it is loaded anew");
        self.unload_after(topic, pause);
    }

    /// Closes a topic whose log another owner took, or whose source is gone.
    pub(crate) fn give_up(self: &Rc<Self>, topic: Rc<Topic>, reason: &str) {
        if self.is_deleting(&topic) {
            // What was on its way when its ledgers went, such as a place of deduplication.
            return tracing::debug!(topic = %topic.name(), reason, "a write met the deletion of its topic");
        }
        tracing::warn!(topic = %topic.name(), reason, "topic is given up");
        self.unload_after(topic, Duration::ZERO);
    }

    /// True if a topic is being deleted: that its log takes no more writes is what was asked for.
    fn is_deleting(&self, topic: &Topic) -> bool {
        self.cx.shared.catalog.deletions().has(topic.name())
    }

    fn unload_after(self: &Rc<Self>, topic: Rc<Topic>, pause: Duration) {
        let home = self.clone();
        spawn_local(async move {
            tokio::time::sleep(pause).await;
            let name = topic.name();
            // Closed or replaced meanwhile: there is nothing left to do.
            let loaded = home.topics.by_name(name);
            let is_loaded = loaded.is_some_and(|loaded| Rc::ptr_eq(&loaded, &topic));
            if is_loaded && !Staying(&topic).is_closing() {
                home.unload(name).await;
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
