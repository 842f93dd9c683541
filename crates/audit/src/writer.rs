//! The queue and the thread that writes it out.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pharos_auth::{AuditEvent, AuditLevel, AuditLog, Principal};
use pharos_runtime::clock;
use pharos_runtime::fs::Fs;

use crate::file::RotatedFile;
use crate::record;

/// Lines that are written at once.
const BATCH_MAX: usize = 256;
/// Minimum interval between log messages about an audit log that cannot be written, in nanoseconds.
const COMPLAINT_NANOS: u64 = 10_000_000_000;

/// Location and content of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// The file. Earlier ones have numbers behind its name, 1 the latest.
    pub file: PathBuf,
    /// Decisions to record.
    pub level: AuditLevel,
    /// A file that has so much is full.
    pub bytes_max: u64,
    /// Full files that are kept; at least one.
    pub files_max: u32,
    /// Lines that wait for the writer. Each has some kilobytes at most.
    pub queue_max: usize,
}

/// Counters of the audit records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditStats {
    /// Written to the file.
    pub written: u64,
    /// Lost, because the writer did not keep up.
    pub lost_queue_full: u64,
    /// Lost, because the file could not be written.
    pub lost_write_failed: u64,
}

#[derive(Default)]
struct LineCounts {
    written: AtomicU64,
    lost_queue_full: AtomicU64,
    lost_write_failed: AtomicU64,
    /// Lost since the file last said how many.
    unsaid: AtomicU64,
}

enum Order {
    Line(String),
    Stop,
}

/// The audit log, open.
pub struct Audit {
    level: AuditLevel,
    queue: SyncSender<Order>,
    counters: Arc<LineCounts>,
    /// `None` once it was waited for.
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit")
            .field("level", &self.level)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Audit {
    /// Opens the file and starts the thread that writes it.
    ///
    /// # Errors
    /// The file cannot be opened, or the system refuses a thread.
    pub fn start(fs: Arc<dyn Fs>, options: &AuditOptions) -> io::Result<Self> {
        let file = RotatedFile::open(fs, &options.file, options.bytes_max, options.files_max.max(1))?;
        let (queue, orders) = sync_channel(options.queue_max);
        let counters = Arc::new(LineCounts::default());
        let writer = FileWriter {
            file,
            counters: counters.clone(),
            complained_at: None,
        };
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(&orders))?;
        Ok(Self {
            level: options.level,
            queue,
            counters,
            writer: Mutex::new(Some(thread)),
        })
    }

    /// Counters of the records so far.
    #[must_use]
    pub fn stats(&self) -> AuditStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AuditStats {
            written: read(&self.counters.written),
            lost_queue_full: read(&self.counters.lost_queue_full),
            lost_write_failed: read(&self.counters.lost_write_failed),
        }
    }

    /// Writes what is queued, makes it durable and ends the thread. What is told afterwards is lost. Blocks.
    pub fn stop(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            // An error says that the thread has ended already.
            let _ = self.queue.send(Order::Stop);
            let _ = writer.join();
        }
    }
}

impl AuditLog for Audit {
    fn note(&self, who: &Principal, event: AuditEvent<'_>, refused: Option<&str>) {
        if !self.level.keeps(event, refused.is_none()) {
            return;
        }
        let line = Order::Line(record::line(who, event, refused));
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.queue.try_send(line) {
            self.counters.lost_queue_full.fetch_add(1, Ordering::Relaxed);
            self.counters.unsaid.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The thread's side.
struct FileWriter {
    file: RotatedFile,
    counters: Arc<LineCounts>,
    complained_at: Option<clock::Nanos>,
}

impl FileWriter {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut goes_on = true;
        while goes_on {
            let Ok(first) = orders.recv() else {
                break;
            };
            let mut lines = String::new();
            let mut count = 0;
            let mut next = Some(first);
            while let Some(order) = next {
                match order {
                    Order::Line(line) => {
                        lines.push_str(&line);
                        count += 1;
                    }
                    Order::Stop => goes_on = false,
                }
                next = if count < BATCH_MAX && goes_on {
                    orders.try_recv().ok()
                } else {
                    None
                };
            }
            if count > 0 {
                self.write(lines, count as u64);
            }
        }
        if let Err(error) = self.file.sync() {
            self.complain(&error);
        }
    }

    /// Writes lines, after one that says how many are missing before them.
    fn write(&mut self, lines: String, count: u64) {
        let missing = self.counters.unsaid.swap(0, Ordering::Relaxed);
        let lines = match missing {
            0 => lines,
            missing => record::gap(missing) + &lines,
        };
        match self.file.write(lines.as_bytes()) {
            Ok(()) => {
                self.counters.written.fetch_add(count, Ordering::Relaxed);
            }
            Err(error) => {
                self.counters.unsaid.fetch_add(missing + count, Ordering::Relaxed);
                self.counters
                    .lost_write_failed
                    .fetch_add(count, Ordering::Relaxed);
                self.complain(&error);
            }
        }
    }

    fn complain(&mut self, error: &io::Error) {
        let now = clock::now();
        let is_due = self
            .complained_at
            .is_none_or(|at| now.since(at) >= COMPLAINT_NANOS);
        if is_due {
            self.complained_at = Some(now);
            tracing::error!(%error, "the audit log cannot be written; records are lost");
        }
    }
}
