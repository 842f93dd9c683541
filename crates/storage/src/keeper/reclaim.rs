//! Removing dead segments, or putting their files aside to be written again.

use std::io;
use std::sync::Arc;

use super::Keeper;
use crate::segments::{Segment, SegmentFile, Segments, side_file_name};
use crate::shared::Shared;
use crate::stats::bump;

impl Keeper {
    /// Removes one dead segment; `true` when there was one.
    pub(super) fn remove_one_dead(&mut self) -> bool {
        let Some((file, file_bytes)) = self.find_dead() else {
            return false;
        };
        let full = file_bytes >= self.shared.options.segment_bytes;
        // Two handles: the list's and ours. A reader's third one would see the file change under it.
        let unread = Arc::strong_count(&file) <= 2;
        let keep = full && unread && self.spares.len() < self.shared.options.spare_segments;
        let done = if keep {
            self.put_aside(&file, file_bytes)
        } else {
            remove_files(&self.shared, &file)
        };
        if let Err(error) = done {
            tracing::warn!(%error, path = %file.path.display(), "cannot remove a dead segment");
            // Not removed for certain, so its records still count; a later start tries again.
            if let Some(segment) = self.shared.segments().by_id.get_mut(&file.id) {
                segment.stuck = true;
            }
            return true;
        }
        self.shared.segments().on_removed(file.id);
        bump(&self.shared.counters.segments_removed, 1);
        true
    }

    fn find_dead(&self) -> Option<(Arc<SegmentFile>, u64)> {
        let unrecovered = || {
            let ledgers = self.shared.ledgers.all();
            ledgers.iter().any(|ledger| ledger.lock().end_unknown.is_some())
        };
        let found = |segments: &Segments, damaged: bool| {
            let dead = segments.by_id.iter().find(|(id, s)| {
                s.is_dead() && !s.stuck && (damaged || !has_unknown_damage(s)) && may_go(segments, **id)
            });
            dead.map(|(_, s)| (Arc::clone(&s.file), s.file_bytes))
        };
        let undamaged = found(&self.shared.segments(), false);
        // The rare damaged one needs a look at all ledgers, which must not happen under the segments' lock.
        undamaged.or_else(|| {
            let damaged = found(&self.shared.segments(), true);
            damaged.filter(|_| !unrecovered())
        })
    }

    fn put_aside(&mut self, file: &SegmentFile, file_bytes: u64) -> io::Result<()> {
        let shared = &self.shared;
        let spare = shared.dir.join(format!("{:08x}.spare", file.id));
        shared.fs.rename(&file.path, &spare)?;
        shared.fs.sync_dir(&shared.dir)?;
        remove_side_file(shared, file.id);
        self.spares.push_back((spare, file_bytes));
        Ok(())
    }
}

fn has_unknown_damage(segment: &Segment) -> bool {
    segment.damages.iter().any(|damage| !damage.known)
}

/// Rules 2 and 3 of the module's list.
pub(crate) fn may_go(segments: &Segments, id: u32) -> bool {
    let carried_on = segments
        .by_id
        .range(id + 1..)
        .any(|(_, later)| later.header_durable);
    let before = segments.by_id.range(..id).next_back();
    carried_on && before.is_none_or(|(_, before)| before.indexed)
}

/// Removes a segment's file for good, then its side file.
pub(crate) fn remove_files(shared: &Shared, file: &SegmentFile) -> io::Result<()> {
    shared.fs.remove(&file.path)?;
    shared.fs.sync_dir(&shared.dir)?;
    remove_side_file(shared, file.id);
    Ok(())
}

fn remove_side_file(shared: &Shared, segment: u32) {
    // A side file without a segment is ignored, and removed by the next start.
    let _ = shared.fs.remove(&shared.dir.join(side_file_name(segment)));
}
