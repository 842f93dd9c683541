//! A topic whose log takes no more writes: every caller that waits is told, reads go on; and when what it lacked may come back, the
//! topic is closed and loaded anew.
//!
//! What the engine says decides. A failed device or a poisoned journal is final: closing the topic would take away its reads and
//! bring nothing back, so it stays as it is until a person restarts the broker, and says so. Everything else (no room, no
//! files, a ledger that another owner took) a new loading may find mended: it recovers the log and goes on behind what is there.
//! When, the shard says (`home::failures`).

use super::{Publishing, TopicContext};
use crate::error::PublishError;

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
            if let Some(me) = cx.me() {
                cx.host.come_back(me, reason);
            }
        } else {
            tracing::error!(topic = %cx.name, reason, "topic accepts no more writes until the broker is restarted");
        }
    }
}
