//! Opening: take the chain over from its last owner, find its true end, begin a new ledger.
//!
//! Order: the open ledgers are recovered (which fences their writer) before the info is changed, and the change is
//! guarded by the version that was read. An owner that raced us is thereby found out on one side or the other: its
//! appends are refused by the engine, or our change is refused by the store and we begin again.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use pharos_ledger::{CreateOptions, LedgerEngine, LedgerWriter};
use pharos_metadata::{Expect, MetadataStore, Version, WriteError};
use pharos_types::{LedgerId, Ordinal};
use prost::Message;
use tokio::sync::watch;

use super::offload::Offloading;
use super::{End, ManagedLedger, Next};
use crate::cache::EntryCache;
use crate::durable::Active;
use crate::error::OpenError;
use crate::info::{self, InfoError, InfoHandle, LedgerInfo, ManagedLedgerInfo};
use crate::options::Options;
use crate::table::{LedgerRow, LedgerTable};

/// Races lost before giving up.
const TRIES: usize = 5;

/// What to do when there is no such managed ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Create it.
    Create,
    /// Fail with [`OpenError::NotFound`].
    Existing,
}

/// An info with its open ledgers resolved.
struct Recovered {
    info: ManagedLedgerInfo,
    /// What must still be in the store for this to hold.
    expect: Expect,
    /// Ledgers that turned out to be empty.
    empty: Vec<LedgerId>,
}

impl ManagedLedger {
    /// Opens the managed ledger `name` and becomes its only owner.
    ///
    /// `name`: a metadata path such as `tenant/namespace/persistent/topic`. `now_ms`: milliseconds since 1970.
    ///
    /// # Errors
    /// [`OpenError`]. Nothing was lost; opening again is fine.
    ///
    /// Cancel safety: dropping the future may leave an empty ledger behind.
    pub async fn open(
        name: &str,
        engine: Arc<dyn LedgerEngine>,
        metadata: Arc<dyn MetadataStore>,
        options: Options,
        mode: OpenMode,
        now_ms: u64,
    ) -> Result<Self, OpenError> {
        for _ in 0..TRIES {
            let recovered = match info::load(&*metadata, name).await? {
                Some((info, version)) => recover(&*engine, info, version, now_ms).await?,
                None if mode == OpenMode::Create => Recovered {
                    info: ManagedLedgerInfo::new(now_ms),
                    expect: Expect::Absent,
                    empty: Vec::new(),
                },
                None => return Err(OpenError::NotFound(name.to_owned())),
            };
            let Recovered {
                mut info,
                expect,
                empty,
            } = recovered;
            let spared = |ledger: &LedgerId| *ledger < options.condemned_from;
            let dead = info.dead_ids().map(LedgerId).filter(|ledger| !spared(ledger));
            let mut given_up: Vec<_> = dead.collect();
            given_up.extend_from_slice(&empty);
            empty.iter().for_each(|ledger| info.give_up(ledger.0));
            info.writer_epoch += 1;
            let writer = match info.terminated {
                true => None,
                false => Some(
                    engine
                        .create(CreateOptions {
                            durability: options.durability,
                            ..CreateOptions::default()
                        })
                        .await?,
                ),
            };
            if let (Some(writer), Expect::Absent) = (&writer, &expect) {
                info.writer_epoch = first_epoch(writer.id());
            }
            if let Some(writer) = &writer {
                let last = info.ledgers.last().map(|row| row.ledger_id);
                if last >= Some(writer.id().0) {
                    // Nothing will name it.
                    let _ = engine.delete(writer.id()).await;
                    return Err(not_of_this_engine(name, last.unwrap_or_default(), writer.id()).into());
                }
                info.ledgers.push(LedgerInfo {
                    ledger_id: writer.id().0,
                    ..LedgerInfo::default()
                });
            }
            info.settle_format();
            let value = Bytes::from(info.encode_to_vec());
            match metadata.put(&info::key_of(name), value, expect).await {
                Ok(version) => {
                    let info = Arc::new(InfoHandle::new(metadata, name, info, version));
                    // Nothing names them any more. What cannot be deleted now, the next opening or start does.
                    for ledger in given_up {
                        if engine.delete(ledger).await.is_ok() {
                            info.note_deleted(ledger);
                        }
                    }
                    return Ok(Self::with(name, engine, info, options, writer, now_ms));
                }
                Err(WriteError::Conflict { .. }) => {
                    if let Some(writer) = writer {
                        let _ = engine.delete(writer.id()).await;
                    }
                }
                Err(error) => return Err(InfoError::Write(error).into()),
            }
        }
        Err(OpenError::Contended(name.to_owned()))
    }

    fn with(
        name: &str,
        engine: Arc<dyn LedgerEngine>,
        info: Arc<InfoHandle>,
        options: Options,
        writer: Option<Arc<dyn LedgerWriter>>,
        now_ms: u64,
    ) -> Self {
        let stored = info.seen();
        let rows = rows_of(&stored);
        let first = Ordinal(stored.first_ordinal);
        let end = rows.last().map_or(first, LedgerRow::end);
        let tail = writer.as_ref().map(|writer| writer.tail());
        Self {
            name: name.into(),
            engine,
            info,
            table: LedgerTable::new(&rows, first, writer.is_some(), 1),
            rows,
            first,
            // The new ledger is empty: everything before it is durable.
            active: watch::Sender::new(Active {
                first: end,
                tail,
                failed: None,
            }),
            cache: EntryCache::new(options.cache_budget.clone(), options.cache_bytes_max, end),
            offload: Offloading::new(options.offloader.clone(), &stored),
            durability: options.durability,
            options,
            end: if writer.is_some() {
                End::Endless
            } else {
                End::Terminated
            },
            writer,
            handover: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            next: Next::None,
            jobs: VecDeque::new(),
            retry_at_ms: 0,
            now_ms,
            opened_ms: now_ms,
            moved: (end, now_ms),
            is_roll_asked: false,
            failure: None,
        }
    }
}

/// The epoch of the first owner of a new managed ledger: beyond those of all owners of an earlier one of the same name, so
/// that what they have under way finds out that it is over. Ledger ids rise for ever.
fn first_epoch(first: LedgerId) -> u64 {
    const OPENINGS_MAX: u64 = 1 << 24;
    first.0.saturating_mul(OPENINGS_MAX).min(u64::MAX / 2) + 1
}

/// The info names a ledger that the engine has yet to give out: the two are not of one store.
fn not_of_this_engine(name: &str, named: u64, next: LedgerId) -> InfoError {
    InfoError::Malformed {
        name: name.to_owned(),
        cause: format!("it names ledger {named}, but the engine only gives out ledger {next} now"),
    }
}

/// Resolves every ledger whose end is not recorded, oldest first. Empty ones are dropped from the chain.
async fn recover(
    engine: &dyn LedgerEngine,
    mut info: ManagedLedgerInfo,
    version: Version,
    now_ms: u64,
) -> Result<Recovered, OpenError> {
    for row in &mut info.ledgers {
        if row.closed_at_ms.is_none() {
            let sealed = engine.recover(LedgerId(row.ledger_id)).await?;
            (row.entries, row.bytes) = (sealed.entry_count, sealed.bytes);
            row.closed_at_ms = Some(now_ms);
        }
    }
    let is_empty = |row: &LedgerInfo| row.entries == 0;
    let empty = info
        .ledgers
        .iter()
        .filter(|row| is_empty(row))
        .map(|row| LedgerId(row.ledger_id))
        .collect();
    info.ledgers.retain(|row| !is_empty(row));
    Ok(Recovered {
        info,
        expect: Expect::Version(version),
        empty,
    })
}

fn rows_of(info: &ManagedLedgerInfo) -> Vec<LedgerRow> {
    let mut first = Ordinal(info.first_ordinal);
    let row = |ledger: &LedgerInfo| {
        let row = LedgerRow {
            id: LedgerId(ledger.ledger_id),
            first,
            entries: ledger.entries,
            bytes: ledger.bytes,
            closed_at_ms: ledger.closed_at_ms,
        };
        first = row.end();
        row
    };
    info.ledgers.iter().map(row).collect()
}
