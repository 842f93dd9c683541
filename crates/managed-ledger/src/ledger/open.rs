//! Opening: take the chain over from its last owner, find its true end, begin a new ledger.
//!
//! Order: the open ledgers are recovered (which fences their writer) before the info is changed, and the change is
//! guarded by the version that was read. An owner that raced us is thereby found out on one side or the other: its
//! appends are refused by the engine, or our change is refused by the store and we begin again.

use std::sync::Arc;

use pharos_ledger::{LedgerEngine, LedgerWriter};
use pharos_metadata::{Expect, MetadataLayout, MetadataStore, Version, WriteError};
use pharos_types::{LedgerId, Ordinal};

use super::ManagedLedger;
use super::appending::Appending;
use super::chain::Chain;
use super::offload::Offloading;
use super::rollover::Rollover;
use super::steps::Steps;
use crate::cache::EntryCache;
use crate::error::OpenError;
use crate::info::{self, InfoError, InfoHandle, LedgerInfo, ManagedLedgerInfo};
use crate::options::Options;
use crate::pulsar::compaction;
use crate::table::LedgerRow;

/// Races lost before giving up.
pub(super) const TRIES: usize = 5;

/// Action if the managed ledger does not exist.
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
    /// Stored state on which this result depends.
    expect: Expect,
    /// Ledgers that turned out to be empty.
    empty: Vec<LedgerId>,
}

/// A chain that is ours.
struct Taken {
    info: ManagedLedgerInfo,
    version: Version,
    /// Writer of the new ledger, unless the chain is terminated.
    writer: Option<Arc<dyn LedgerWriter>>,
    /// Ledgers that the info does not name any more.
    given_up: Vec<LedgerId>,
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
            let recovered = match info::load(&*metadata, name, options.layout).await? {
                Some((info, _)) if info.shadow.is_some() => {
                    let what = "the shadow of another".to_owned();
                    let name = name.to_owned();
                    return Err(OpenError::NotSuch { name, what });
                }
                Some((mut info, version)) => {
                    if options.layout == MetadataLayout::Pulsar && info.writer_epoch == 0 {
                        info.first_ordinal = compaction::first_ordinal(&*metadata, name).await?;
                    }
                    recover(&*engine, info, version, now_ms).await?
                }
                None if mode == OpenMode::Create => Recovered {
                    info: ManagedLedgerInfo::new(now_ms),
                    expect: Expect::Absent,
                    empty: Vec::new(),
                },
                None => return Err(OpenError::NotFound(name.to_owned())),
            };
            let taken = take_over(name, &*engine, &*metadata, recovered, &options).await?;
            let Some(taken) = taken else {
                continue;
            };
            let info = Arc::new(InfoHandle::new(
                metadata,
                name,
                options.layout,
                taken.info,
                taken.version,
            ));
            // Nothing names them any more. What cannot be deleted now, the next opening or start does.
            for ledger in taken.given_up {
                if engine.delete(ledger).await.is_ok() {
                    info.note_deleted(ledger);
                }
            }
            return Ok(Self::with(name, engine, info, options, taken.writer, now_ms));
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
        let first = Ordinal(stored.first_ordinal);
        let chain = Chain::new(rows_of(&stored), first, writer.is_some());
        let end = chain.end();
        Self {
            name: name.into(),
            engine,
            info,
            // The new ledger is empty: everything before it is durable.
            appending: Appending::new(writer, end),
            chain,
            rollover: Rollover::new(options.keeping(), end, now_ms),
            cache: EntryCache::new(options.cache_budget.clone(), options.cache_bytes_max, end),
            offload: Offloading::new(options.offloader.clone(), &stored),
            options,
            steps: Steps::default(),
            now_ms,
            shadow: None,
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

/// Begins a new ledger, unless there shall be none, and writes the info that makes us the owner. `None`: another was faster.
async fn take_over(
    name: &str,
    engine: &dyn LedgerEngine,
    metadata: &dyn MetadataStore,
    recovered: Recovered,
    options: &Options,
) -> Result<Option<Taken>, OpenError> {
    let Recovered {
        mut info,
        expect,
        empty,
    } = recovered;
    if options.layout == MetadataLayout::Pharos {
        // In Pulsar's the node of a cursor says which one counts.
        info.give_up_compaction();
    }
    let spared = |ledger: &LedgerId| *ledger < options.condemned_from;
    let dead = info.dead_ids().map(LedgerId).filter(|ledger| !spared(ledger));
    let mut given_up: Vec<_> = dead.collect();
    given_up.extend_from_slice(&empty);
    empty.iter().for_each(|ledger| info.give_up(ledger.0));
    info.writer_epoch += 1;
    let writer = match info.terminated {
        true => None,
        false => Some(engine.create(options.create_options(name)).await?),
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
    let value = info::encode(&info, options.layout);
    match metadata.put(&info::key_of(name), value, expect).await {
        Ok(version) => Ok(Some(Taken {
            info,
            version,
            writer,
            given_up,
        })),
        Err(WriteError::Conflict { .. }) => {
            if let Some(writer) = writer {
                let _ = engine.delete(writer.id()).await;
            }
            Ok(None)
        }
        Err(error) => Err(InfoError::Write(error).into()),
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

pub(super) fn rows_of(info: &ManagedLedgerInfo) -> Vec<LedgerRow> {
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
