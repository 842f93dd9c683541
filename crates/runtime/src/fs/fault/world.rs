//! Content of a [`FaultFs`](super::FaultFs), and the effect of each call on it.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::plan::{self, Fault, FaultCounts, FaultOp, Plan};
use crate::random::Random;

/// Size of the unit that a device writes atomically, in bytes.
pub(super) const SECTOR: usize = 512;

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) nodes: BTreeMap<u64, Node>,
    pub(super) node_next: u64,
    /// Names as seen now.
    pub(super) names: BTreeMap<PathBuf, u64>,
    /// Names as a crash leaves them at least.
    pub(super) names_durable: BTreeMap<PathBuf, u64>,
    /// Changes of names since the last directory sync, oldest first.
    pub(super) name_steps: Vec<NameStep>,
    /// Decides what a crash does, as it always did; see `faults`.
    pub(super) random: Random,
    /// Decides everything that a gentle device does not do, so that seeds go on to mean there what they meant.
    pub(super) faults: Random,
    /// True if device and file system do the worst that they may.
    pub(super) hard: bool,
    /// Grows with each crash; handles and locks of an older life are dead.
    pub(super) life: u64,
    pub(super) locks: BTreeMap<PathBuf, u64>,
    /// Changing operations done so far.
    pub(super) steps: u64,
    /// The operation at which the process dies.
    pub(super) die_at: Option<u64>,
    pub(super) dead: bool,
    pub(super) plans: Vec<Plan>,
    pub(super) bytes_max: Option<u64>,
    pub(super) handles_max: Option<usize>,
    /// Files and locks that the running process has open.
    pub(super) handles: usize,
    pub(super) counts: FaultCounts,
    /// Changing operations are told on the standard error output.
    pub(super) tells: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// The page cache.
    pub(super) visible: Vec<u8>,
    /// Bytes that the device holds whatever happens.
    pub(super) durable: Vec<u8>,
    /// Steps since then, oldest first.
    pub(super) steps: Vec<Step>,
    /// Ranges that the device cannot read.
    pub(super) unreadable: Vec<Range<usize>>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Write { at: usize, data: Vec<u8> },
    SetLen(usize),
}

#[derive(Clone, Debug)]
pub(super) enum NameStep {
    Link(PathBuf, u64),
    Rename(PathBuf, PathBuf, u64),
    Unlink(PathBuf),
}

impl NameStep {
    /// The directory whose names it changes. Renames stay in one.
    pub(super) fn dir(&self) -> Option<&Path> {
        let (Self::Link(path, _) | Self::Rename(path, ..) | Self::Unlink(path)) = self;
        path.parent()
    }

    pub(super) fn touches(&self, name: &Path) -> bool {
        match self {
            Self::Link(path, _) | Self::Unlink(path) => path == name,
            Self::Rename(from, to, _) => from == name || to == name,
        }
    }

    pub(super) fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            Self::Link(path, node) => {
                names.insert(path.clone(), *node);
            }
            Self::Rename(from, to, node) => {
                // Its old name may never have become durable: then only the new one is there.
                names.remove(from);
                names.insert(to.clone(), *node);
            }
            Self::Unlink(path) => {
                names.remove(path);
            }
        }
    }
}

impl Step {
    pub(super) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::SetLen(len) => bytes.resize(*len, 0),
            Self::Write { at, data } => {
                let end = at + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                if let Some(room) = bytes.get_mut(*at..end) {
                    room.copy_from_slice(data);
                }
            }
        }
    }

    /// The length that a file has with it at least.
    fn end(&self) -> usize {
        match self {
            Self::SetLen(len) => *len,
            Self::Write { at, data } => at + data.len(),
        }
    }
}

impl Node {
    fn step(&mut self, step: Step) {
        step.apply(&mut self.visible);
        if let Step::Write { at, data } = &step {
            // A sector that is written again can be read again.
            let end = at + data.len();
            self.unreadable.retain(|bad| bad.start < *at || bad.end > end);
        }
        self.steps.push(step);
    }

    /// Recomputes the content as seen without the page cache. The length is that of the inode, which stays in memory.
    pub(super) fn refresh(&mut self) {
        let length = self.visible.len();
        self.visible.clone_from(&self.durable);
        for step in &self.steps {
            step.apply(&mut self.visible);
        }
        self.visible.resize(length, 0);
    }

    /// The pages count as clean, and any part of them never got to the device. Says whether something is lost.
    fn lose_unsynced(&mut self, random: &mut Random) -> bool {
        let steps = std::mem::take(&mut self.steps);
        let whole = random.below(2) == 0;
        for step in &steps {
            match step {
                // The length is in the journal of the file system, which goes on.
                Step::SetLen(_) => step.apply(&mut self.durable),
                Step::Write { .. } if whole => {}
                Step::Write { at, data } => {
                    for (from, to) in sectors(*at, data.len()) {
                        if random.below(2) == 0 {
                            part(*at, data, from, to).apply(&mut self.durable);
                        }
                    }
                }
            }
        }
        self.durable != self.visible
    }
}

/// The parts of a write that are one sector each: from and to, counted from its start.
pub(super) fn sectors(at: usize, bytes: usize) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let mut from = 0;
    while from < bytes {
        let to = (((at + from) / SECTOR + 1) * SECTOR - at).min(bytes);
        parts.push((from, to));
        from = to;
    }
    parts
}

pub(super) fn part(at: usize, data: &[u8], from: usize, to: usize) -> Step {
    Step::Write {
        at: at + from,
        data: data.get(from..to).unwrap_or_default().to_vec(),
    }
}

impl World {
    pub(super) fn new(seed: u64, hard: bool) -> Self {
        Self {
            nodes: BTreeMap::new(),
            node_next: 0,
            names: BTreeMap::new(),
            names_durable: BTreeMap::new(),
            name_steps: Vec::new(),
            random: Random::new(seed),
            faults: Random::new(seed ^ 0x000f_a017),
            hard,
            life: 0,
            locks: BTreeMap::new(),
            steps: 0,
            die_at: None,
            dead: false,
            plans: Vec::new(),
            bytes_max: None,
            handles_max: None,
            handles: 0,
            counts: FaultCounts::default(),
            tells: false,
        }
    }

    /// The next process: the old one's handles and locks die, planned faults and limits are forgotten.
    pub(super) fn next_life(&mut self) {
        self.life += 1;
        self.locks.clear();
        self.handles = 0;
        self.dead = false;
        self.die_at = None;
        self.plans.clear();
        self.bytes_max = None;
        self.handles_max = None;
    }

    pub(super) fn bytes(&self) -> u64 {
        self.names
            .values()
            .filter_map(|id| self.nodes.get(id))
            .map(|node| node.visible.len() as u64)
            .sum()
    }

    pub(super) fn node(&mut self, id: u64) -> io::Result<&mut Node> {
        self.nodes.get_mut(&id).ok_or_else(died)
    }

    pub(super) fn node_at(&mut self, path: &Path) -> Option<&mut Node> {
        let id = *self.names.get(path)?;
        self.nodes.get_mut(&id)
    }

    /// Counts a changing operation; `Err` when the process is dead already. `Ok(true)`: it dies with this one.
    pub(super) fn begin(&mut self) -> io::Result<bool> {
        if self.dead {
            return Err(died());
        }
        let dies = self.die_at == Some(self.steps);
        self.steps += 1;
        self.dead = dies;
        Ok(dies)
    }

    pub(super) fn tell(&self, what: impl FnOnce(&Self) -> String) {
        if self.tells {
            eprintln!("step {}: {}", self.steps, what(self));
        }
    }

    fn path_of(&self, id: u64) -> Option<PathBuf> {
        let named = self.names.iter().find(|(_, node)| **node == id);
        named.map(|(path, _)| path.clone())
    }

    fn name_of(&self, id: u64) -> String {
        let path = self.path_of(id);
        path.map_or_else(|| "a removed file".to_owned(), |path| path.display().to_string())
    }

    /// The planned fault for this call.
    fn fault(&mut self, op: FaultOp, path: Option<&Path>) -> Option<Fault> {
        let fault = plan::hit(&mut self.plans, &mut self.faults, op, path)?;
        *self.counts.hits.entry((op, fault)).or_default() += 1;
        self.tell(|_| format!("{op:?} meets {fault:?}: {path:?}"));
        Some(fault)
    }

    fn file_fault(&mut self, op: FaultOp, id: u64) -> Option<Fault> {
        if self.plans.is_empty() {
            return None;
        }
        let path = self.path_of(id);
        self.fault(op, path.as_deref())
    }

    /// A call that does nothing when it fails.
    pub(super) fn refuse(&mut self, op: FaultOp, path: &Path) -> io::Result<()> {
        let error = self.fault(op, Some(path)).and_then(Fault::error);
        error.map_or(Ok(()), Err)
    }

    /// A call that needs a file handle, if only for as long as it takes.
    pub(super) fn need_handle(&mut self) -> io::Result<()> {
        if self.handles_max.is_some_and(|max| self.handles >= max) {
            self.counts.refused_handles += 1;
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(())
    }

    pub(super) fn name_step(&mut self, op: FaultOp, path: &Path, step: NameStep) -> io::Result<()> {
        self.tell(|_| format!("{step:?}"));
        let dies = self.begin()?;
        self.refuse(op, path)?;
        step.apply(&mut self.names);
        self.name_steps.push(step);
        if dies { Err(died()) } else { Ok(()) }
    }

    pub(super) fn set_len(&mut self, op: FaultOp, id: u64, length: usize) -> io::Result<()> {
        self.tell(|world| format!("set {} to {length} bytes", world.name_of(id)));
        let dies = self.begin()?;
        if let Some(error) = self.file_fault(op, id).and_then(Fault::error) {
            return Err(error);
        }
        let step = Step::SetLen(length);
        if self.room_for(id)? < step.end() {
            return Err(self.is_full());
        }
        self.node(id)?.step(step);
        if dies { Err(died()) } else { Ok(()) }
    }

    /// `direct`: past the page cache, which then never shows what the device does not have.
    pub(super) fn write(&mut self, id: u64, at: usize, buf: &[u8], direct: bool) -> io::Result<()> {
        self.tell(|world| format!("write {} bytes at {at} of {}", buf.len(), world.name_of(id)));
        let dies = self.begin()?;
        let fault = self.file_fault(FaultOp::Write, id);
        let step = part(at, buf, 0, buf.len());
        let room = self.room_for(id)?;
        match fault {
            None if room < step.end() => {
                let fits = if self.hard { room.saturating_sub(at) } else { 0 };
                self.write_part(id, at, buf, fits)?;
                return Err(self.is_full());
            }
            None => self.node(id)?.step(step),
            Some(Fault::Lost) => self.lose_write(id, &step, direct)?,
            Some(Fault::Misdirected) => self.misdirect_write(id, at, buf, direct)?,
            Some(fault) => {
                let fits = room.saturating_sub(at).min(buf.len());
                let done = self.faults.below(fits + 1);
                self.write_part(id, at, buf, done)?;
                return fault.error().map_or(Ok(()), Err);
            }
        }
        if dies { Err(died()) } else { Ok(()) }
    }

    fn write_part(&mut self, id: u64, at: usize, buf: &[u8], done: usize) -> io::Result<()> {
        if done > 0 {
            self.counts.partial_writes += 1;
            self.node(id)?.step(part(at, buf, 0, done));
        }
        Ok(())
    }

    fn lose_write(&mut self, id: u64, step: &Step, direct: bool) -> io::Result<()> {
        let node = self.node(id)?;
        if direct {
            let length = node.visible.len().max(step.end());
            node.step(Step::SetLen(length));
        } else {
            step.apply(&mut node.visible);
        }
        Ok(())
    }

    /// To another sector that the device has, of this file or of another one; nowhere when there is none.
    fn misdirect_write(&mut self, id: u64, at: usize, buf: &[u8], direct: bool) -> io::Result<()> {
        self.lose_write(id, &part(at, buf, 0, buf.len()), direct)?;
        let fits = |node: &Node| node.durable.len() >= SECTOR;
        let named = self
            .names
            .values()
            .filter(|id| self.nodes.get(id).is_some_and(fits));
        let victims: Vec<u64> = named.copied().collect();
        let Some(victim) = victims.get(self.faults.below(victims.len())).copied() else {
            return Ok(());
        };
        let own = victim == id;
        let sectors = self.node(victim)?.durable.len() / SECTOR;
        let mut to = self.faults.below(sectors) * SECTOR;
        if own && to == at {
            to = (to + SECTOR) % (sectors * SECTOR);
        }
        self.tell(|world| format!("it goes to {to} of {}", world.name_of(victim)));
        let node = self.node(victim)?;
        let count = buf.len().min(node.durable.len() - to);
        part(to, buf, 0, count).apply(&mut node.durable);
        if direct {
            node.refresh();
        }
        Ok(())
    }

    /// The length that a file can have.
    fn room_for(&mut self, id: u64) -> io::Result<usize> {
        let Some(max) = self.bytes_max else {
            return Ok(usize::MAX);
        };
        let free = max.saturating_sub(self.bytes()) as usize;
        let length = self.node(id)?.visible.len();
        Ok(length + free)
    }

    fn is_full(&mut self) -> io::Error {
        self.counts.refused_bytes += 1;
        rustix::io::Errno::NOSPC.into()
    }

    pub(super) fn read(&mut self, id: u64, buf: &mut [u8], at: usize) -> io::Result<usize> {
        if let Some(error) = self.file_fault(FaultOp::Read, id).and_then(Fault::error) {
            return Err(error);
        }
        let node = self.node(id)?;
        let rest = node.visible.get(at..).unwrap_or_default();
        let count = rest.len().min(buf.len());
        let bad = |bad: &Range<usize>| bad.start < at + count && at < bad.end;
        if node.unreadable.iter().any(bad) {
            self.counts.refused_reads += 1;
            return Err(rustix::io::Errno::IO.into());
        }
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    pub(super) fn sync(&mut self, id: u64) -> io::Result<()> {
        self.tell(|world| format!("sync {}", world.name_of(id)));
        if self.begin()? {
            return Err(died());
        }
        let fault = self.file_fault(FaultOp::SyncFile, id);
        match fault {
            None => {
                let node = self.node(id)?;
                for step in std::mem::take(&mut node.steps) {
                    step.apply(&mut node.durable);
                }
            }
            Some(Fault::Lost) => {
                let node = self.node(id)?;
                node.steps.retain(|step| matches!(step, Step::SetLen(_)));
                for step in std::mem::take(&mut node.steps) {
                    step.apply(&mut node.durable);
                }
            }
            // Nothing was tried.
            Some(Fault::TooManyFiles) => {}
            Some(_) if self.hard => {
                let mut random = self.faults.clone();
                let lost = self.node(id)?.lose_unsynced(&mut random);
                self.faults = random;
                self.counts.lossy_syncs += u64::from(lost);
            }
            Some(_) => {}
        }
        fault.and_then(Fault::error).map_or(Ok(()), Err)
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.need_handle()?;
        self.tell(|_| format!("sync directory {}", dir.display()));
        if self.begin()? {
            return Err(died());
        }
        // What it was to make durable waits on: it may survive a crash or not.
        self.refuse(FaultOp::SyncDir, dir)?;
        let steps = std::mem::take(&mut self.name_steps);
        let (here, elsewhere): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.dir() == Some(dir));
        self.name_steps = elsewhere;
        for step in here {
            step.apply(&mut self.names_durable);
        }
        Ok(())
    }
}

pub(super) fn died() -> io::Error {
    io::Error::other("the process is dead")
}
