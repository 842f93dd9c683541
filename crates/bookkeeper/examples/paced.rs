//! Benchmark of bookies alone, without a broker: this client appends entries to ledgers of three copies at a fixed
//! rate, some each millisecond, and prints as JSON the time to their ack quorum and the CPU time of this process.
//! `tests/cluster/speed.sh` compares it with brokers on the same bookies.
//!
//! `paced ZOOKEEPER/ROOT LEDGERS ENTRY-BYTES ENTRIES-A-MILLISECOND ACK-QUORUM WARM-UP-MS MEASURED-MS`, where ROOT is
//! the key below which `ledgers` is.

#![expect(clippy::print_stdout, reason = "its result")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use pharos_bookkeeper::{BookKeeper, Options};
use pharos_ledger::{CreateOptions, LedgerEngine, LedgerWriter, Replication};
use pharos_runtime::{Nanos, clock};
use pharos_zookeeper::{ConnectOptions, ZooKeeper};

/// Ledger, with the append times of entries that are not acknowledged yet.
struct Ledger {
    writer: Arc<dyn LedgerWriter>,
    sent: RefCell<VecDeque<Nanos>>,
}

/// The longest time that is told apart, in microseconds.
const LONGEST: u64 = 60_000_000;

/// Measured times, in microseconds; `None` during the warm-up.
type Measured = Rc<RefCell<Option<Histogram<u64>>>>;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, numbers @ ..] = arguments.as_slice() else {
        return Err("no address of ZooKeeper".into());
    };
    let numbers = numbers
        .iter()
        .map(|number| number.parse())
        .collect::<Result<Vec<u64>, _>>()?;
    let [ledgers, bytes, burst, ack_quorum, warmup, measured] = numbers[..] else {
        return Err("six numbers are wanted: see the head of this file".into());
    };
    let of = Load {
        ledgers,
        entry: Bytes::from(vec![7; usize::try_from(bytes)?]),
        burst,
        ack_quorum: usize::try_from(ack_quorum)?,
        warmup: Duration::from_millis(warmup),
        measured: Duration::from_millis(measured),
    };
    tokio::task::LocalSet::new().block_on(&runtime, of.run(address))
}

struct Load {
    ledgers: u64,
    entry: Bytes,
    burst: u64,
    ack_quorum: usize,
    warmup: Duration,
    measured: Duration,
}

impl Load {
    async fn run(self, address: &str) -> Result<(), Box<dyn Error>> {
        let store = ZooKeeper::connect(address, Duration::from_secs(30), ConnectOptions::default()).await?;
        let engine = BookKeeper::start(Options::default(), Arc::new(store), "ledgers").await?;
        let histogram: Measured = Rc::default();
        let mut ledgers = Vec::new();
        for _ in 0..self.ledgers {
            let copies = Replication {
                ensemble: 3,
                write_quorum: 3,
                ack_quorum: self.ack_quorum,
            };
            let options = CreateOptions {
                replication: Some(copies),
                ..CreateOptions::default()
            };
            let ledger = Rc::new(Ledger {
                writer: engine.create(options).await?,
                sent: RefCell::default(),
            });
            pharos_runtime::spawn_local(Rc::clone(&ledger).watch(Rc::clone(&histogram)));
            ledgers.push(ledger);
        }
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        let began = clock::now();
        let (mut used_before, mut appended) = (0.0, 0);
        for ledger in ledgers.iter().cycle() {
            if appended % self.burst == 0 {
                ticks.tick().await;
                let since = Duration::from_nanos(clock::now().since(began));
                if since >= self.warmup + self.measured {
                    break;
                }
                if since >= self.warmup && histogram.borrow().is_none() {
                    used_before = processor_seconds()?;
                    *histogram.borrow_mut() = Some(Histogram::new_with_max(LONGEST, 3)?);
                }
            }
            appended += 1;
            ledger.sent.borrow_mut().push_back(clock::now());
            ledger.writer.append(self.entry.clone())?;
        }
        let used = processor_seconds()? - used_before;
        let measured = histogram.take().ok_or("nothing was measured")?;
        for ledger in &ledgers {
            ledger.writer.close().await?;
            engine.delete(ledger.writer.id()).await?;
        }
        let ms = |quantile: f64| measured.value_at_quantile(quantile) as f64 / 1e3;
        println!(
            r#"{{"entries": {}, "p50_ms": {:.3}, "p99_ms": {:.3}, "cpu_s": {used:.2}}}"#,
            measured.len(),
            ms(0.5),
            ms(0.99),
        );
        Ok(())
    }
}

impl Ledger {
    /// Counts what was acknowledged, until the writer is gone.
    async fn watch(self: Rc<Self>, histogram: Measured) {
        let mut tail = self.writer.tail();
        let mut known = 0;
        while tail.changed().await.is_ok() {
            let durable = tail.borrow_and_update().durable;
            let mut sent = self.sent.borrow_mut();
            for _ in known..durable {
                let Some(at) = sent.pop_front() else { break };
                if let Some(histogram) = &mut *histogram.borrow_mut() {
                    histogram.saturating_record(clock::now().since(at) / 1000);
                }
            }
            known = durable;
        }
    }
}

/// Returns the CPU time of all threads of this process, in seconds.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    // Fields 14 and 15 of proc(5), in hundredths of a second on Linux; the two before the name are gone.
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Ok(ticks as f64 / 100.0)
}
