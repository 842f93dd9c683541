//! Decoding one file, whatever store it is of.
//!
//! Segments, logs and indexes name themselves and the mark that everything in them carries, so a copy somewhere else can
//! be decoded as well.

use std::path::{Path, PathBuf};

use pharos_runtime::fs::{Fs, OpenHow, RealFs};
use pharos_storage_format::checkpoint::Checkpoint;
use pharos_storage_format::file::{SegmentFile, read_up_to};
use pharos_storage_format::group::{GROUP_HEADER_BYTES, GroupHeader};
use pharos_storage_format::index_batch::IndexBatch;
use pharos_storage_format::log_header::{LOG_DATA_AT, LogHeader};
use pharos_storage_format::names::{CHECKPOINT, INDEX, LOG, SEGMENT, VERSION};
use pharos_storage_format::record::{Kind, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader};
use pharos_storage_format::scan::{self, Bounds, Event};
use pharos_storage_format::segment_header::SegmentHeader;
use pharos_storage_format::superblock::{FILE_BYTES, Refused, Role, Superblock};
use pharos_storage_format::{get_u32, round_up};

use super::window::Window;
use super::{Access, Offline, OfflineError, dirs};

/// A value in a decoded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A word or a sentence.
    Text(String),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(u64::from(number))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A part of a decoded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Kind of the part.
    pub kind: &'static str,
    /// Offset in the file.
    pub byte_offset: u64,
    /// Length, in bytes.
    pub bytes: u64,
    /// True if it is as it was written.
    pub whole: bool,
    /// Decoded fields.
    pub fields: Vec<(&'static str, Value)>,
}

impl Item {
    fn new(kind: &'static str, byte_offset: u64, bytes: u64) -> Self {
        Self {
            kind,
            byte_offset,
            bytes,
            whole: true,
            fields: Vec::new(),
        }
    }

    fn bad(kind: &'static str, byte_offset: u64, bytes: u64) -> Self {
        Self {
            whole: false,
            ..Self::new(kind, byte_offset, bytes)
        }
    }

    fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((name, value.into()));
        self
    }
}

impl Offline {
    /// Decodes one file of a store, part by part; of segments every record only with `records`.
    ///
    /// # Errors
    /// [`OfflineError`]; `Unusable` for a file that is none of a store's, `Locked` when its store is open.
    pub fn decode_file(path: &Path, records: bool, visit: &mut dyn FnMut(Item)) -> Result<(), OfflineError> {
        Self::decode_file_with(&RealFs, path, records, visit)
    }

    /// [`decode_file`](Self::decode_file) on another file system.
    ///
    /// # Errors
    /// As there.
    pub fn decode_file_with(
        fs: &dyn Fs,
        path: &Path,
        records: bool,
        visit: &mut dyn FnMut(Item),
    ) -> Result<(), OfflineError> {
        let dir = path.parent().unwrap_or(Path::new("."));
        let dir = if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            dir
        };
        let names = fs.list(dir).map_err(OfflineError::io("list", dir))?;
        let _lock = dirs::lock(fs, dir, &names, Access::Look)?;
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let name = name.split(".before-repair").next().unwrap_or_default();
        let version = names.iter().any(|name| name == VERSION);
        let superblock = version
            .then(|| Self::read_file(fs, &dir.join(VERSION)).ok())
            .flatten()
            .and_then(|bytes| Superblock::decode(&bytes).ok());
        let file = Opened {
            fs,
            path: path.to_owned(),
            superblock,
        };
        match name.rsplit_once('.').map_or(name, |(_, ending)| ending) {
            _ if name.starts_with(CHECKPOINT) => file.checkpoint(visit),
            VERSION => file.version(visit),
            SEGMENT => file.segment(records, visit),
            LOG => file.log(visit),
            INDEX => file.index(visit),
            _ => Err(OfflineError::unusable(
                path,
                "is not called like a file of a store: VERSION, CHECKPOINT, *.seg, *.log or *.idx",
            )),
        }
    }
}

struct Opened<'a> {
    fs: &'a dyn Fs,
    path: PathBuf,
    /// Superblock of its directory, if there is one.
    superblock: Option<Superblock>,
}

impl Opened<'_> {
    fn version(&self, visit: &mut dyn FnMut(Item)) -> Result<(), OfflineError> {
        let bytes = Offline::read_file(self.fs, &self.path)?;
        for at in [0, FILE_BYTES / 2] {
            // Decoded alone, by putting it in front.
            let copy = bytes.get(at..).unwrap_or_default();
            let mut alone = copy.get(..32.min(copy.len())).unwrap_or_default().to_vec();
            alone.resize(FILE_BYTES, 0);
            visit(match Superblock::decode(&alone) {
                Ok(found) => Item::new("superblock", at as u64, 32)
                    .with("block_bytes", found.block_bytes)
                    .with("store_id", found.store_id)
                    .with(
                        "role",
                        if found.role == Role::Journal {
                            "journal"
                        } else {
                            "ledgers"
                        },
                    )
                    .with("number", found.number),
                Err(Refused::Version(version)) => {
                    Item::new("superblock of another version", at as u64, 32).with("version", version)
                }
                Err(Refused::Damaged) => Item::bad("superblock", at as u64, 32),
            });
        }
        Ok(())
    }

    fn checkpoint(&self, visit: &mut dyn FnMut(Item)) -> Result<(), OfflineError> {
        let bytes = Offline::read_file(self.fs, &self.path)?;
        let half = bytes.len() / 2;
        let mut told = false;
        for (at, copy) in [(0, bytes.get(..half)), (half, bytes.get(half..))] {
            let copy = copy.unwrap_or_default();
            // Its decoder looks at both halves of a file; one alone is given twice.
            let found = Checkpoint::decode(&[copy, copy].concat());
            let Some(found) = found else {
                visit(Item::bad("checkpoint", at as u64, copy.len() as u64));
                continue;
            };
            visit(
                Item::new("checkpoint", at as u64, copy.len() as u64)
                    .with("store_id", found.store_id)
                    .with("generation", found.generation)
                    .with("stop", if found.clean { "clean" } else { "none" })
                    .with("ledger_next", found.ledger_next)
                    .with("ledgers", found.ledgers.len() as u64),
            );
            if !std::mem::replace(&mut told, true) {
                tell_checkpoint(&found, at as u64, visit);
            }
        }
        Ok(())
    }

    /// The number in the file's name. A copy that a repair made has more behind it.
    fn id_by_name(&self) -> Option<u32> {
        let name = self.path.file_name()?.to_str()?;
        u32::from_str_radix(name.get(..8)?, 16).ok()
    }

    /// A segment's number, its mark and its block size: by its directory and name, else by itself.
    fn marks_of(&self, start: &[u8]) -> (u32, u32, u32) {
        let id = get_u32(start, 12).unwrap_or(0);
        let salt = get_u32(start, 8).unwrap_or(0);
        let (id, salt) = match (self.superblock, self.id_by_name()) {
            (Some(superblock), Some(id)) => (id, superblock.salt(id)),
            _ => (id, salt),
        };
        let has_group = |block: &u32| {
            let rest = start.get(*block as usize..).unwrap_or_default();
            GroupHeader::decode(rest, id, salt).is_some()
        };
        let known = self.superblock.map(|superblock| superblock.block_bytes);
        let block = known
            .or_else(|| [4096, 512].into_iter().find(has_group))
            .unwrap_or(4096);
        (id, salt, block)
    }

    fn segment(&self, records: bool, visit: &mut dyn FnMut(Item)) -> Result<(), OfflineError> {
        let how = OpenHow::READ;
        let file = self
            .fs
            .open(&self.path, how)
            .map_err(OfflineError::io("open", &self.path))?;
        let file_bytes = file.len().map_err(OfflineError::io("measure", &self.path))?;
        let start = read_up_to(&*file, 0, 8192).map_err(OfflineError::io("read", &self.path))?;
        let (id, salt, block) = self.marks_of(&start);
        let header = start
            .get(..block as usize)
            .and_then(|block| SegmentHeader::decode(block, id, salt));
        visit(match header {
            Some(found) => Item::new("segment header", 0, u64::from(block))
                .with("segment", found.segment)
                .with("previous_segment", found.previous.segment)
                .with("previous_end", found.previous.end)
                .with("previous_sequence", found.previous.sequence)
                .with("ledger_next", found.ledger_next),
            None if start.iter().all(|byte| *byte == 0) => {
                Item::new("room that was never used", 0, file_bytes)
            }
            None => Item::bad("segment header", 0, u64::from(block)),
        });
        let segment = SegmentFile {
            id,
            salt,
            path: self.path.clone(),
            file,
        };
        let bounds = Bounds {
            block_bytes: u64::from(block),
            file_bytes,
            from: u64::from(block),
            sequence: header.map_or(0, |found| found.previous.sequence),
            end: None,
        };
        scan::sweep(&segment, &bounds, &mut |event| match event {
            Event::Begin { .. } => {}
            Event::Record {
                header,
                body,
                byte_offset,
            } => {
                if records || body.is_none() {
                    visit(record_item(header, body.is_some(), byte_offset));
                }
            }
            Event::Bad(bad) if bad.known => {}
            Event::Bad(bad) => visit(Item::bad("damaged", bad.start, bad.end - bad.start)),
            Event::End { byte_offset, group } => {
                let whole = GROUP_HEADER_BYTES as u64 + u64::from(group.record_bytes);
                let start = byte_offset.saturating_sub(round_up(whole, u64::from(block)));
                visit(
                    Item::new("group", start, whole)
                        .with("sequence", group.sequence)
                        .with("synced", group.synced)
                        .with("ledger_next", group.ledger_next)
                        .with("records", group.records),
                );
            }
        });
        Ok(())
    }

    fn log(&self, visit: &mut dyn FnMut(Item)) -> Result<(), OfflineError> {
        let file = self
            .fs
            .open(&self.path, OpenHow::READ)
            .map_err(OfflineError::io("open", &self.path))?;
        let end = file.len().map_err(OfflineError::io("measure", &self.path))?;
        let mut window = Window::new(&*file);
        let header = LogHeader::decode(&window.get(0, LOG_DATA_AT as usize));
        visit(match header {
            Some(found) => Item::new("log header", 0, LOG_DATA_AT)
                .with("log", found.log)
                .with("directory", found.dir),
            None => Item::bad("log header", 0, LOG_DATA_AT),
        });
        let by_dir = self
            .superblock
            .zip(self.id_by_name())
            .map(|(superblock, id)| superblock.salt(id));
        let Some(salt) = header.map(|found| found.salt).or(by_dir) else {
            let what =
                "its header is damaged and no VERSION file is next to it, so its records cannot be told";
            return Err(OfflineError::unusable(&self.path, what));
        };
        let mut at = LOG_DATA_AT;
        let mut bad_from = None;
        while at + RECORD_HEADER_BYTES as u64 <= end {
            let start = window.get(at, RECORD_HEADER_BYTES);
            let header = RecordHeader::decode(&start, salt).filter(|h| at + h.total_bytes() as u64 <= end);
            let Some(header) = header else {
                // Between two flushes there are zeros.
                if start
                    .get(..RECORD_ALIGN)
                    .is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0))
                {
                    bad_from.get_or_insert(at);
                }
                at += RECORD_ALIGN as u64;
                continue;
            };
            if let Some(from) = bad_from.take() {
                visit(Item::bad("damaged", from, at - from));
            }
            let record = window.get(at, header.total_bytes());
            visit(record_item(&header, header.body(&record).is_some(), at));
            at += header.total_bytes() as u64;
        }
        if let Some(from) = bad_from {
            visit(Item::bad("damaged", from, end - from));
        }
        Ok(())
    }

    fn index(&self, visit: &mut dyn FnMut(Item)) -> Result<(), OfflineError> {
        let bytes = Offline::read_file(self.fs, &self.path)?;
        let mut at = 0;
        while at < bytes.len() {
            let rest = bytes.get(at..).unwrap_or_default();
            let (salt, log) = (get_u32(rest, 8).unwrap_or(0), get_u32(rest, 12).unwrap_or(0));
            let Some((batch, length)) = IndexBatch::decode(rest, salt, log) else {
                visit(Item::bad("batch", at as u64, rest.len() as u64));
                return Ok(());
            };
            visit(
                Item::new("batch", at as u64, length as u64)
                    .with("log", log)
                    .with("data_from", batch.data_from)
                    .with("data_to", batch.data_to)
                    .with("runs", batch.runs.len() as u64),
            );
            for run in &batch.runs {
                visit(
                    Item::new("run", at as u64, 0)
                        .with("ledger", run.ledger)
                        .with("first", run.first)
                        .with("entries", run.count)
                        .with("start", run.start)
                        .with("end", run.end)
                        .with("payload_bytes", run.payload_bytes)
                        .with("points", run.points.len() as u64),
                );
            }
            at += length;
        }
        Ok(())
    }
}

fn tell_checkpoint(found: &Checkpoint, at: u64, visit: &mut dyn FnMut(Item)) {
    for (number, mark) in (0u64..).zip(&found.journals) {
        visit(
            Item::new("mark", at, 0)
                .with("journal", number)
                .with("segment", mark.segment)
                .with("byte_offset", mark.byte_offset)
                .with("sequence", mark.sequence),
        );
    }
    for log in &found.logs {
        visit(
            Item::new("log", at, 0)
                .with("directory", log.dir)
                .with("log", log.log)
                .with("end", log.end)
                .with("index_end", log.index_end),
        );
    }
    for row in &found.ledgers {
        let item = Item::new("ledger", at, 0)
            .with("ledger", row.id)
            .with(
                "durability",
                format!("{:?}", row.durability).to_lowercase().as_str(),
            )
            .with("journal", u32::from(row.journal))
            .with("directory", u32::from(row.dir))
            .with("flushed", row.flushed)
            .with("flushed_bytes", row.flushed_bytes);
        let item = match row.sealed {
            Some(sealed) => item.with("sealed_entries", sealed.entry_count),
            None => item,
        };
        visit(if row.end_unknown {
            item.with("end", "unknown")
        } else {
            item
        });
    }
}

fn record_item(header: &RecordHeader, whole: bool, byte_offset: u64) -> Item {
    let (kind, value) = match header.kind {
        Kind::Entry => ("entry", "entry"),
        Kind::Created => ("created", "durability"),
        Kind::Sealed => ("sealed", "entries"),
        Kind::Deleted => ("deleted", "value"),
    };
    let item = Item::new(kind, byte_offset, header.total_bytes() as u64)
        .with("ledger", header.ledger)
        .with(value, header.value)
        .with("payload_bytes", header.body_bytes);
    Item { whole, ..item }
}
