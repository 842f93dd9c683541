//! A file system in memory that can lose, tear, refuse, lie and fill up, driven by a seed.
//!
//! It keeps for every file what is visible (the page cache) and what is durable (the device), with the unsynced steps
//! between the two; the same for names. [`FaultFs::crash`] decides for every unsynced step what became of it.
//!
//! Always true, unless a [`Fault`] was planned: what was synced, file by file and directory by directory, is there after a
//! crash. Nothing else is promised. What goes wrong in detail:
//!
//! - **A failed sync** loses what was not synced, in whole or in part, as Linux does: the pages count as clean from then on.
//!   They are still read until the page cache is dropped ([`FaultFs::drop_caches`], or a crash); a later sync succeeds and
//!   does not bring them back.
//! - **Names** that were not synced survive a crash in any order: of each directory entry the old state or the new one,
//!   whatever became of the others. POSIX promises no more without a sync of the directory; the journals of ext4 and XFS keep
//!   the order, others do not. A rename is atomic (both of its names change, or none), and what happened later to one of its
//!   names does not survive without it: every file system in use keeps that.
//! - **Tears** are at any byte, also inside a sector: devices promise whole sectors, and not all keep it.
//! - **Refused calls**: any call can fail by plan, by the limit of bytes, or by the limit of open files. A write that fails may
//!   have been done up to any byte. A range of a file can be unreadable until it is written again.
//! - **Lies**: writes and syncs that were answered and are not there, and writes that landed elsewhere.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Fs, FsFile, FsLock, OpenHow};

mod crash;
mod handle;
mod plan;
#[cfg(test)]
mod tests;
mod world;

pub use plan::{Fault, FaultCounts, FaultOp, Plan, When};

use handle::Mount;
use world::World;

/// The faulty machine: it lives on over crashes. Clones share the files; a process sees them through [`FaultFs::mount`].
#[derive(Clone, Debug)]
pub struct FaultFs {
    world: Arc<Mutex<World>>,
}

impl FaultFs {
    /// An empty file system; the seed decides what crashes and faults do.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(seed, true)
    }

    /// Returns a file system with a gentler device: names survive in order, sectors are whole but for the last one
    /// written, and data that a failed sync did not sync still waits for the next. Older seeds lead to the same
    /// crashes as before.
    #[must_use]
    pub fn gentle(seed: u64) -> Self {
        Self::with(seed, false)
    }

    fn with(seed: u64, hard: bool) -> Self {
        Self {
            world: Arc::new(Mutex::new(World::new(seed, hard))),
        }
    }

    /// The file system as the process sees it that runs now. Dead after the next crash or restart.
    #[must_use]
    pub fn mount(&self) -> Arc<dyn Fs> {
        let life = self.lock_world().life;
        Arc::new(Mount::new(self.clone(), life))
    }

    /// An independent copy of everything, without open files.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let mut world = self.lock_world().clone();
        world.handles = 0;
        Self {
            world: Arc::new(Mutex::new(world)),
        }
    }

    /// Changing operations (writes, syncs, name changes) done so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.lock_world().steps
    }

    /// The process dies at the `steps`-th changing operation from now (0: the next one): that one may still take
    /// effect, it and every later one fail.
    pub fn die_in(&self, steps: u64) {
        let mut world = self.lock_world();
        world.die_at = Some(world.steps + steps);
    }

    /// True if the process died.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.lock_world().dead
    }

    /// From now on every changing operation is told on the standard error output, for a person who replays a seed.
    pub fn tell_steps(&self) {
        self.lock_world().tells = true;
    }

    /// Plans a fault. Several can be planned; of those for one call the oldest hits. A crash and a restart forget them.
    ///
    /// # Panics
    /// When there is no such thing: only writes and file syncs can be [lost](Fault::Lost), only writes
    /// [misdirected](Fault::Misdirected).
    pub fn plan(&self, plan: Plan) {
        assert!(plan.is_possible(), "not a fault: {plan:?}");
        self.lock_world().plans.push(plan);
    }

    /// Forgets planned faults.
    pub fn forget_plans(&self) {
        self.lock_world().plans.clear();
    }

    /// The `syncs`-th file sync from now (0: the next one) fails. What it was to sync may be lost for ever.
    pub fn fail_sync_in(&self, syncs: u64) {
        self.plan(Plan::next(FaultOp::SyncFile, Fault::Io, syncs));
    }

    /// Sets the maximum size of all files together, in bytes; `None`: no limit. A write that exceeds it is written as
    /// far as it fits.
    pub fn set_bytes_max(&self, bytes: Option<u64>) {
        self.lock_world().bytes_max = bytes;
    }

    /// Returns the size of all files together, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lock_world().bytes()
    }

    /// Sets the maximum number of files that the process may have open; `None`: no limit. Listing and syncing a
    /// directory and taking a lock need a handle for as long as they take, a lock for as long as it is held.
    pub fn set_handles_max(&self, handles: Option<usize>) {
        self.lock_world().handles_max = handles;
    }

    /// Returns the number of files that the process has open, locks included.
    #[must_use]
    pub fn handles(&self) -> usize {
        self.lock_world().handles
    }

    /// Returns the counts of the faults so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.lock_world().counts.clone()
    }

    /// Drops the page cache: from now on is seen what the device has, and what waits to be written to it.
    pub fn drop_caches(&self) {
        let mut world = self.lock_world();
        world.tell(|_| "drop caches".to_owned());
        for node in world.nodes.values_mut() {
            node.refresh();
        }
    }

    /// Reads that touch bytes `from..to` of a file fail from now on, over restarts and crashes, until all of them were
    /// written again or [`FaultFs::heal_ranges`]. `false` when there is no such file.
    pub fn fail_range(&self, path: &Path, from: u64, to: u64) -> bool {
        let mut world = self.lock_world();
        let Some(node) = world.node_at(path) else {
            return false;
        };
        node.unreadable.push(from as usize..to as usize);
        true
    }

    /// Everything can be read again.
    pub fn heal_ranges(&self) {
        for node in self.lock_world().nodes.values_mut() {
            node.unreadable.clear();
        }
    }

    /// Changes one byte at rest, as a bad device would: visible and durable. `false` when there is no such byte.
    pub fn flip(&self, path: &Path, byte_offset: usize, mask: u8) -> bool {
        let mut world = self.lock_world();
        let Some(node) = world.node_at(path) else {
            return false;
        };
        let mut hit = false;
        for bytes in [&mut node.visible, &mut node.durable] {
            if let Some(byte) = bytes.get_mut(byte_offset) {
                *byte ^= mask;
                hit = true;
            }
        }
        hit
    }

    /// The visible bytes of a file.
    #[must_use]
    pub fn bytes_of(&self, path: &Path) -> Option<Vec<u8>> {
        let mut world = self.lock_world();
        world.node_at(path).map(|node| node.visible.clone())
    }

    /// The names there are, sorted, as paths.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.lock_world().names.keys().cloned().collect()
    }

    fn lock_world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
