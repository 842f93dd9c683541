//! Work of a journal when nothing is queued, and its end.

use std::sync::Arc;
use std::time::Duration;

use pharos_ledger::StorageFault;
use pharos_runtime::Nanos;
use pharos_runtime::fs::AlignedBuf;

use super::{Journal, Step};
use crate::shared::BUFFERS_KEPT;

/// A buffer up to this size is kept while idle, in bytes.
const IDLE_BUF_BYTES: usize = 64 << 10;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Journal {
    /// True if async appends have waited for their sync long enough.
    pub(super) fn is_sync_due(&self, now: Nanos) -> bool {
        let interval = nanos(self.shared.options.sync_interval);
        self.dirty_since.is_some_and(|since| now.since(since) >= interval)
    }

    /// Late syncs, the mark that the last group was synced, and giving memory back.
    pub(super) fn on_idle(&mut self, now: Nanos) -> Result<Step, Arc<StorageFault>> {
        let idle = now.since(self.worked_at);
        let mut waits = Vec::new();
        if let Some(since) = self.dirty_since {
            let interval = nanos(self.shared.options.sync_interval);
            waits.push(interval.saturating_sub(now.since(since)).max(1));
        }
        if self.marked < self.synced
            && self.dirty_since.is_none()
            && self.room() >= 2 * self.shared.block_bytes()
        {
            let after = nanos(self.shared.options.idle_mark_after);
            if idle >= after {
                // Without a sync of its own: it is only a hint for a start that finds the group before it damaged. It does
                // not count as synced, so a lost mark is never taken for damage.
                self.write_group(&mut [])?;
                self.publish(Vec::new(), true, now);
            } else {
                waits.push(after - idle);
            }
        }
        if self.buf.capacity() > IDLE_BUF_BYTES {
            let kept = nanos(BUFFERS_KEPT);
            if idle >= kept {
                self.buf = AlignedBuf::default();
            } else {
                waits.push(kept - idle);
            }
        }
        Ok(Step::Idle(waits.into_iter().min().map(Duration::from_nanos)))
    }

    /// Everything queued before the stop is written: sync, say so, and let the flusher finish.
    pub(super) fn on_stop(&mut self, now: Nanos) -> Result<Step, Arc<StorageFault>> {
        if self.active.is_some() {
            if self.dirty_since.is_some() || self.synced < self.sequence {
                self.sync()?;
            }
            if self.room() >= self.shared.block_bytes() {
                self.write_group(&mut [])?;
            }
            self.sync()?;
            self.publish(Vec::new(), true, now);
            self.close_active();
        }
        self.pending.clear();
        self.shared.on_journal_stopped(self.number);
        Ok(Step::Stopped)
    }
}
