//! A file system in memory that can lose, tear, refuse and fill up, driven by a seed.
//!
//! It keeps for every file what is visible and what is durable, with the unsynced steps between the two; the same
//! for names. [`FaultFs::crash`] decides for every unsynced step what became of it.
//!
//! Always true: what was synced, file by file and directory by directory, is there after a crash. Nothing else is
//! promised.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DIRECT_ALIGN, Fs, FsFile, FsLock, OpenHow};

/// The faulty machine: it lives on over crashes. Clones share the files; a process sees them through [`FaultFs::mount`].
#[derive(Clone, Debug)]
pub struct FaultFs {
    pub(super) world: Arc<Mutex<World>>,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) nodes: BTreeMap<u64, Node>,
    pub(super) node_next: u64,
    /// Names as seen now.
    pub(super) names: BTreeMap<PathBuf, u64>,
    /// Names as a crash leaves them at least.
    pub(super) names_durable: BTreeMap<PathBuf, u64>,
    /// What happened to names since the last directory sync, oldest first.
    pub(super) name_steps: Vec<NameStep>,
    pub(super) random: Random,
    /// Grows with each crash; handles and locks of an older life are dead.
    pub(super) life: u64,
    pub(super) locks: BTreeMap<PathBuf, u64>,
    /// Changing operations done so far.
    steps: u64,
    /// The operation at which the process dies.
    die_at: Option<u64>,
    pub(super) dead: bool,
    /// The sync, counted from now, that fails; later ones then succeed, as they would on a real system.
    fail_sync_in: Option<u64>,
    bytes_max: Option<u64>,
    /// The process has all the files open that it may have.
    is_out_of_files: bool,
    /// Changing operations are told on the standard error output.
    tells: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) visible: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Write { at: usize, data: Vec<u8> },
    SetLen(usize),
}

#[derive(Clone, Debug)]
pub(super) enum NameStep {
    Link(PathBuf, u64),
    Rename(PathBuf, PathBuf),
    Unlink(PathBuf),
}

impl NameStep {
    /// Whether it changes names in this directory. Renames stay in one.
    fn is_in(&self, dir: &Path) -> bool {
        let (Self::Link(path, _) | Self::Rename(path, _) | Self::Unlink(path)) = self;
        path.parent() == Some(dir)
    }
}

/// A small generator (splitmix64); good enough to pick faults.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..end`; 0 when `end` is 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % (end as u64).max(1)) as usize
    }
}

pub(super) fn apply(bytes: &mut Vec<u8>, step: &Step) {
    match step {
        Step::SetLen(len) => bytes.resize(*len, 0),
        Step::Write { at, data } => {
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

pub(super) fn apply_name(names: &mut BTreeMap<PathBuf, u64>, step: &NameStep) {
    match step {
        NameStep::Link(path, node) => {
            names.insert(path.clone(), *node);
        }
        NameStep::Rename(from, to) => {
            if let Some(node) = names.remove(from) {
                names.insert(to.clone(), node);
            }
        }
        NameStep::Unlink(path) => {
            names.remove(path);
        }
    }
}

impl FaultFs {
    /// An empty file system; the seed decides what crashes do.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            world: Arc::new(Mutex::new(World {
                nodes: BTreeMap::new(),
                node_next: 0,
                names: BTreeMap::new(),
                names_durable: BTreeMap::new(),
                name_steps: Vec::new(),
                random: Random(seed),
                life: 0,
                locks: BTreeMap::new(),
                steps: 0,
                die_at: None,
                dead: false,
                fail_sync_in: None,
                bytes_max: None,
                is_out_of_files: false,
                tells: false,
            })),
        }
    }

    /// The file system as the process sees it that runs now. Dead after the next crash or restart.
    #[must_use]
    pub fn mount(&self) -> Arc<dyn Fs> {
        let life = self.lock_world().life;
        Arc::new(Mount {
            fs: self.clone(),
            life,
        })
    }

    /// An independent copy of everything.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self {
            world: Arc::new(Mutex::new(self.lock_world().clone())),
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

    /// Whether the process died.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.lock_world().dead
    }

    /// From now on every changing operation is told on the standard error output, for a person who replays a seed.
    pub fn tell_steps(&self) {
        self.lock_world().tells = true;
    }

    /// The `syncs`-th file sync from now (0: the next one) fails.
    pub fn fail_sync_in(&self, syncs: u64) {
        self.lock_world().fail_sync_in = Some(syncs);
    }

    /// How many bytes all files together may have; `None`: any number.
    pub fn set_bytes_max(&self, bytes: Option<u64>) {
        self.lock_world().bytes_max = bytes;
    }

    /// From now on, or no longer, the process has as many files open as it may have: no file is opened, and no directory, which
    /// syncing one takes.
    pub fn set_out_of_files(&self, is_out_of_files: bool) {
        self.lock_world().is_out_of_files = is_out_of_files;
    }

    /// How many bytes all files together have.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lock_world().bytes()
    }

    /// Changes one byte at rest, as a bad device would: visible and durable. `false` when there is no such byte.
    pub fn flip(&self, path: &Path, byte_offset: usize, mask: u8) -> bool {
        let mut world = self.lock_world();
        let Some(node) = world
            .names
            .get(path)
            .copied()
            .and_then(|id| world.nodes.get_mut(&id))
        else {
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
        let world = self.lock_world();
        let node = world.nodes.get(world.names.get(path)?)?;
        Some(node.visible.clone())
    }

    /// Forgets planned faults and limits.
    pub(super) fn revive(&self, world: &mut World) {
        world.dead = false;
        world.die_at = None;
        world.fail_sync_in = None;
        world.bytes_max = None;
        world.is_out_of_files = false;
    }

    pub(super) fn lock_world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    fn bytes(&self) -> u64 {
        self.names
            .values()
            .filter_map(|id| self.nodes.get(id))
            .map(|node| node.visible.len() as u64)
            .sum()
    }

    /// Room for one more open file.
    fn take_file(&self) -> io::Result<()> {
        match self.is_out_of_files {
            true => Err(io::Error::from(rustix::io::Errno::MFILE)),
            false => Ok(()),
        }
    }

    /// Counts a changing operation; `Err` when the process is dead already. `Ok(true)`: it dies with this one.
    fn begin(&mut self) -> io::Result<bool> {
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

    fn name_of(&self, id: u64) -> String {
        let named = self.names.iter().find(|(_, node)| **node == id);
        named.map_or_else(
            || "a removed file".to_owned(),
            |(path, _)| path.display().to_string(),
        )
    }

    fn name_step(&mut self, step: NameStep) -> io::Result<()> {
        self.tell(|_| format!("{step:?}"));
        let dies = self.begin()?;
        apply_name(&mut self.names, &step);
        self.name_steps.push(step);
        if dies { Err(died()) } else { Ok(()) }
    }

    fn file_step(&mut self, id: u64, step: Step) -> io::Result<()> {
        self.tell(|world| match &step {
            Step::Write { at, data } => {
                format!("write {} bytes at {at} of {}", data.len(), world.name_of(id))
            }
            Step::SetLen(length) => format!("set {} to {length} bytes", world.name_of(id)),
        });
        let dies = self.begin()?;
        let bytes = self.bytes();
        let node = self.nodes.get_mut(&id).ok_or_else(died)?;
        let end = match &step {
            Step::SetLen(len) => *len,
            Step::Write { at, data } => at + data.len(),
        };
        let grows = end.saturating_sub(node.visible.len()) as u64;
        if grows > 0 && self.bytes_max.is_some_and(|max| bytes + grows > max) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        apply(&mut node.visible, &step);
        node.steps.push(step);
        if dies { Err(died()) } else { Ok(()) }
    }
}

fn died() -> io::Error {
    io::Error::other("the process is dead")
}

#[derive(Debug)]
struct FaultFile {
    fs: FaultFs,
    node: u64,
    life: u64,
    direct: bool,
    write: bool,
}

impl FaultFile {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.fs.lock_world();
        if world.life == self.life {
            Ok(world)
        } else {
            Err(died())
        }
    }

    fn world_to_change(&self) -> io::Result<MutexGuard<'_, World>> {
        if !self.write {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        self.world()
    }

    fn check_aligned(&self, buf: &[u8], byte_offset: u64) -> io::Result<()> {
        let numbers = [byte_offset as usize, buf.len(), buf.as_ptr() as usize];
        if self.direct && numbers.iter().any(|n| n % DIRECT_ALIGN != 0) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(())
    }
}

impl FsFile for FaultFile {
    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> io::Result<usize> {
        self.check_aligned(buf, byte_offset)?;
        let world = self.world()?;
        let node = world.nodes.get(&self.node).ok_or_else(died)?;
        let rest = node.visible.get(byte_offset as usize..).unwrap_or_default();
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_all_at(&self, buf: &[u8], byte_offset: u64) -> io::Result<()> {
        self.check_aligned(buf, byte_offset)?;
        let step = Step::Write {
            at: byte_offset as usize,
            data: buf.to_vec(),
        };
        self.world_to_change()?.file_step(self.node, step)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.world_to_change()?;
        world.tell(|world| format!("sync {}", world.name_of(self.node)));
        if world.begin()? {
            return Err(died());
        }
        match world.fail_sync_in {
            Some(0) => {
                world.fail_sync_in = None;
                return Err(io::Error::other("sync failed"));
            }
            Some(n) => world.fail_sync_in = Some(n - 1),
            None => {}
        }
        let node = world.nodes.get_mut(&self.node).ok_or_else(died)?;
        for step in std::mem::take(&mut node.steps) {
            apply(&mut node.durable, &step);
        }
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let step = Step::SetLen(bytes as usize);
        self.world_to_change()?.file_step(self.node, step)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let end = bytes.max(self.len()?);
        self.set_len(end)
    }

    fn len(&self) -> io::Result<u64> {
        let world = self.world()?;
        let node = world.nodes.get(&self.node).ok_or_else(died)?;
        Ok(node.visible.len() as u64)
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}

#[derive(Debug)]
struct FaultLock {
    fs: FaultFs,
    path: PathBuf,
    life: u64,
}

impl FsLock for FaultLock {}

impl Drop for FaultLock {
    fn drop(&mut self) {
        let mut world = self.fs.lock_world();
        if world.locks.get(&self.path) == Some(&self.life) {
            world.locks.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct Mount {
    fs: FaultFs,
    life: u64,
}

impl Mount {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.fs.lock_world();
        if world.life == self.life {
            Ok(world)
        } else {
            Err(died())
        }
    }
}

impl Fs for Mount {
    fn create_dir_all(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn FsFile>> {
        let mut world = self.world()?;
        if world.dead {
            return Err(died());
        }
        world.take_file()?;
        let node = match world.names.get(path) {
            Some(node) => *node,
            None if how.create => {
                let node = world.node_next;
                world.node_next += 1;
                world.nodes.insert(node, Node::default());
                world.name_step(NameStep::Link(path.to_owned(), node))?;
                node
            }
            None => return Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        Ok(Arc::new(FaultFile {
            fs: self.fs.clone(),
            node,
            life: world.life,
            direct: how.direct,
            write: how.write,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world()?;
        if !world.names.contains_key(from) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        world.name_step(NameStep::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world()?;
        if !world.names.contains_key(path) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        world.name_step(NameStep::Unlink(path.to_owned()))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let world = self.world()?;
        let inside = world.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = self.world()?;
        world.take_file()?;
        world.tell(|_| format!("sync directory {}", dir.display()));
        if world.begin()? {
            return Err(died());
        }
        let steps = std::mem::take(&mut world.name_steps);
        let (here, elsewhere): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.is_in(dir));
        world.name_steps = elsewhere;
        for step in here {
            apply_name(&mut world.names_durable, &step);
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FsLock>>> {
        let mut world = self.world()?;
        if world.locks.contains_key(path) {
            return Ok(None);
        }
        let life = world.life;
        world.locks.insert(path.to_owned(), life);
        Ok(Some(Box::new(FaultLock {
            fs: self.fs.clone(),
            path: path.to_owned(),
            life,
        })))
    }
}
