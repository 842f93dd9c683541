//! A topic whose log takes no more writes: every caller that waits is told, reads go on; and when what it lacked may come back, the
//! topic is closed and loaded anew.
//!
//! What the engine says decides ([`FaultKind`]). A failed device or a poisoned journal is final: closing the topic would take away
//! its reads and bring nothing back, so it stays as it is until a person restarts the broker, and says so. What lacks room or files a
//! new loading may find mended: it recovers the log and goes on behind what is there. When, the shard says (`home::failures`). A topic
//! whose log another owner took is given up at once: what is here is old. It is loaded again only when a client asks for it and the
//! store says that it is this broker's, because loading it takes the log away from its owner.

use pharos_ledger::FaultKind;
use pharos_requests::error::PublishError;

use super::{Publishing, TopicContext};

impl Publishing {
    /// The log takes no more writes: every caller that waits is answered, producers are closed, reads go on. Its `kind` says what
    /// becomes of the topic.
    pub(super) fn fail(&mut self, cx: &TopicContext, reason: &str, kind: FaultKind) {
        if self.fault.is_some() {
            return;
        }
        self.fault = Some(reason.to_owned());
        self.watching = false;
        for pending in std::mem::take(&mut self.pending) {
            pending.refuse(cx, PublishError::Storage(reason.to_owned()));
        }
        self.dedup.on_failed();
        self.draining.clear();
        self.close_all_producers(cx);
        match (kind, cx.me()) {
            (FaultKind::Transient, Some(me)) => cx.host.come_back(me, reason),
            (FaultKind::Fenced, Some(me)) => cx.host.give_up(me, reason),
            // It is being dropped.
            (FaultKind::Transient | FaultKind::Fenced, None) => {}
            (FaultKind::Lasting, _) => {
                tracing::error!(topic = %cx.name, reason, "topic accepts no more writes until the broker is restarted");
            }
        }
    }
}
