//! Resources of a process on a [`FaultFs`]: the mounted file system, its open files and its locks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};

use super::plan::FaultOp;
use super::world::{NameStep, Node, World, died};
use super::{FaultFs, Fs, FsFile, FsLock, OpenHow};
use crate::fs::DIRECT_ALIGN;

/// Handle that counts against the process's limit; it ends when this is dropped.
#[derive(Debug)]
struct Handle {
    fs: FaultFs,
    life: u64,
}

impl Handle {
    /// Takes one; `world` is that of `fs`.
    fn take(fs: &FaultFs, world: &mut World) -> Self {
        world.handles += 1;
        Self {
            fs: fs.clone(),
            life: world.life,
        }
    }

    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.fs.lock_world();
        if world.life == self.life {
            Ok(world)
        } else {
            Err(died())
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(mut world) = self.world() {
            world.handles -= 1;
        }
    }
}

#[derive(Debug)]
struct FaultFile {
    handle: Handle,
    node: u64,
    direct: bool,
    write: bool,
}

impl FaultFile {
    fn world_to_change(&self) -> io::Result<MutexGuard<'_, World>> {
        if !self.write {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        self.handle.world()
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
        self.handle.world()?.read(self.node, buf, byte_offset as usize)
    }

    fn write_all_at(&self, buf: &[u8], byte_offset: u64) -> io::Result<()> {
        self.check_aligned(buf, byte_offset)?;
        let mut world = self.world_to_change()?;
        world.write(self.node, byte_offset as usize, buf, self.direct)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.world_to_change()?.sync(self.node)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut world = self.world_to_change()?;
        world.set_len(FaultOp::SetLen, self.node, bytes as usize)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut world = self.world_to_change()?;
        let length = world.node(self.node)?.visible.len();
        world.set_len(FaultOp::Allocate, self.node, length.max(bytes as usize))
    }

    fn len(&self) -> io::Result<u64> {
        let mut world = self.handle.world()?;
        Ok(world.node(self.node)?.visible.len() as u64)
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}

#[derive(Debug)]
struct FaultLock {
    handle: Handle,
    path: PathBuf,
}

impl FsLock for FaultLock {}

impl Drop for FaultLock {
    fn drop(&mut self) {
        // Those of an older life are gone already.
        if let Ok(mut world) = self.handle.world() {
            world.locks.remove(&self.path);
        }
    }
}

#[derive(Debug)]
pub(super) struct Mount {
    fs: FaultFs,
    life: u64,
}

impl Mount {
    pub(super) fn new(fs: FaultFs, life: u64) -> Self {
        Self { fs, life }
    }

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
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.world()?.refuse(FaultOp::CreateDir, dir)
    }

    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn FsFile>> {
        let mut world = self.world()?;
        if world.dead {
            return Err(died());
        }
        world.need_handle()?;
        let node = match world.names.get(path) {
            Some(node) => {
                let node = *node;
                world.refuse(FaultOp::Open, path)?;
                node
            }
            None if how.create => {
                let node = world.node_next;
                world.node_next += 1;
                world.nodes.insert(node, Node::default());
                world.name_step(FaultOp::Create, path, NameStep::Link(path.to_owned(), node))?;
                node
            }
            None => return Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        Ok(Arc::new(FaultFile {
            handle: Handle::take(&self.fs, &mut world),
            node,
            direct: how.direct,
            write: how.write,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world()?;
        let Some(node) = world.names.get(from).copied() else {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        };
        let step = NameStep::Rename(from.to_owned(), to.to_owned(), node);
        world.name_step(FaultOp::Rename, from, step)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world()?;
        if !world.names.contains_key(path) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        world.name_step(FaultOp::Remove, path, NameStep::Unlink(path.to_owned()))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut world = self.world()?;
        world.need_handle()?;
        world.refuse(FaultOp::List, dir)?;
        let inside = world.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.world()?.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FsLock>>> {
        let mut world = self.world()?;
        world.need_handle()?;
        world.refuse(FaultOp::Lock, path)?;
        if world.locks.contains_key(path) {
            return Ok(None);
        }
        let life = world.life;
        world.locks.insert(path.to_owned(), life);
        Ok(Some(Box::new(FaultLock {
            handle: Handle::take(&self.fs, &mut world),
            path: path.to_owned(),
        })))
    }
}
