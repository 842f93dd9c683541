//! A shadow: a managed ledger that shows the entries of another one, its source, and stores none.
//!
//! It has an info of its own for its cursors, its properties and its owner, and reads everything else in the source's: the chain, whose
//! ledgers it opens for reading only, so that no writer is fenced, and the copies in object stores. Its ordinals and positions are the
//! source's. Which ledgers there are it learns by a watch on the source's info; how far the open one is durable, from the engine
//! ([`LedgerEngine::follow`]). Nothing goes through the source's owner, which may be dead.
//!
//! Always true: what it shows is durable in the source, and no recovery takes it back; its durable end never falls.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_ledger::{LedgerEngine, ReadError, Readable};
use pharos_metadata::{Event, Expect, MetadataLayout, MetadataStore, Version, Watch, WriteError};
use pharos_types::{LedgerId, Ordinal, TopicName};
use prost::Message as _;

use super::ManagedLedger;
use super::appending::Appending;
use super::chain::Chain;
use super::offload::Offloading;
use super::open::{TRIES, rows_of};
use super::read::Entry;
use super::rollover::Rollover;
use super::steps::Steps;
use crate::cache::EntryCache;
use crate::error::{DeleteError, OpenError};
use crate::info::{self, HeldBack, InfoError, InfoHandle, ManagedLedgerInfo, ShadowInfo};
use crate::options::Options;
use crate::pulsar::name::storage_name;
use crate::table::LedgerRow;

/// Pause before a source ledger without news is read again.
const PAUSE: Duration = Duration::from_millis(100);

/// State of a shadow's source.
pub(super) struct Shown {
    source: Arc<str>,
    metadata: Arc<dyn MetadataStore>,
    /// The source's info, as of the last look; empty while it has none.
    seen: ManagedLedgerInfo,
    /// Readable end of each of its open ledgers.
    readable: BTreeMap<LedgerId, Readable>,
}

/// Says to the owner of a shadow's source what the shadow holds back.
#[derive(Clone)]
pub struct Holding(Arc<InfoHandle>);

impl Holding {
    /// Last report, by this owner or an earlier one.
    #[must_use]
    pub fn said(&self) -> Option<HeldBack> {
        self.0.seen().shadow?.held
    }

    /// Says it durably. A shadow that another owner has opened meanwhile says nothing any more.
    ///
    /// # Errors
    /// [`InfoError`].
    ///
    /// Cancel safety: it may be said or not.
    pub async fn say(&self, held: HeldBack) -> Result<(), InfoError> {
        let say = |info: &mut ManagedLedgerInfo| {
            if let Some(shadow) = &mut info.shadow {
                shadow.held = Some(held.clone());
            }
        };
        self.0.update(say).await
    }
}

/// Entries of its source that the shadow `name` holds back; `None`: none, or there is no such shadow.
///
/// # Errors
/// [`InfoError`].
pub async fn held_by(name: &str, metadata: &dyn MetadataStore) -> Result<Option<HeldBack>, InfoError> {
    let found = info::load(metadata, name, MetadataLayout::Pharos).await?;
    Ok(found.and_then(|(info, _)| info.shadow?.held))
}

/// Deletes the shadow `name` if it is not of the source that is there now, so that [`open_shadow`] makes a new one.
///
/// # Errors
/// [`DeleteError`].
pub async fn forget_other_shadow(
    (name, source): (&TopicName, &TopicName),
    engine: Arc<dyn LedgerEngine>,
    metadata: &dyn MetadataStore,
) -> Result<(), DeleteError> {
    let own = MetadataLayout::Pharos;
    let (name, source) = (storage_name(name, own), storage_name(source, own));
    let shadow = info::load(metadata, &name, own).await?;
    let Some(shadow) = shadow.and_then(|(info, _)| info.shadow) else {
        return Ok(());
    };
    let found = info::load(metadata, &source, own).await?;
    let created_ms = found.map_or(0, |(info, _)| info.created_ms);
    let is_of = shadow.source_created_ms == 0 || shadow.source_created_ms == created_ms;
    if shadow.source != source || !is_of {
        super::delete(&name, engine, metadata).await?;
    }
    Ok(())
}

/// Waits for what happens to a shadow's source. Owned by the task that tells the shadow.
pub struct SourceFollower {
    source: Arc<str>,
    engine: Arc<dyn LedgerEngine>,
    metadata: Arc<dyn MetadataStore>,
    /// The shadow's own.
    info: Arc<InfoHandle>,
    watch: Watch,
    /// The source's info may be another one.
    is_stale: bool,
    seen: Option<Version>,
}

/// Change of a source; for [`Shadow::on_source`].
#[derive(Debug)]
pub enum SourceNews {
    /// Its info changed.
    Info(Box<ManagedLedgerInfo>),
    /// There is more in its open ledger, or that is sealed.
    Readable(LedgerId, Readable),
    /// The source was deleted: the entries shown are gone or will be.
    Gone,
}

/// Reason why a source could not be read. Retry after a pause.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FollowError {
    /// Its info, or the shadow's own.
    #[error("cannot look at the info of a shadow's source")]
    Info(#[from] InfoError),
    /// Its open ledger.
    #[error("cannot follow the ledger of a shadow's source")]
    Ledger(#[from] ReadError),
}

/// Opens the managed ledger `name` as the shadow of `source`, and becomes its only owner; makes it when there is none. The source need not be
/// there yet, and its owner may be any process. With `is_shown` it shows what is durable there now, else nothing.
///
/// # Errors
/// [`OpenError`]; `SourceGone` when the source is not the one that the cursors are of.
///
/// Cancel safety: dropping the future is fine.
pub async fn open_shadow(
    (name, source): (&str, &str),
    engine: Arc<dyn LedgerEngine>,
    metadata: Arc<dyn MetadataStore>,
    options: Options,
    is_shown: bool,
    now_ms: u64,
) -> Result<ManagedLedger, OpenError> {
    if options.layout != MetadataLayout::Pharos {
        let what = "a shadow, for which there is no place in Pulsar's layout of metadata".to_owned();
        let name = name.to_owned();
        return Err(OpenError::NotSuch { name, what });
    }
    for _ in 0..TRIES {
        let (mut info, expect) = match info::load(&*metadata, name, options.layout).await? {
            Some((info, version)) => (info, Expect::Version(version)),
            None => (new_info(now_ms), Expect::Absent),
        };
        let found = info::load(&*metadata, source, options.layout)
            .await?
            .map(|(info, _)| info);
        take_as_shadow(name, source, &mut info, found.as_ref())?;
        let seen = found.unwrap_or_default();
        let Some(readable) = look(&*engine, &seen).await? else {
            continue; // It went on meanwhile.
        };
        info.writer_epoch += 1;
        info.settle_format();
        let value = Bytes::from(info.encode_to_vec());
        let version = match metadata.put(&info::key_of(name), value, expect).await {
            Ok(version) => version,
            Err(WriteError::Conflict { .. }) => continue,
            Err(error) => return Err(InfoError::Write(error).into()),
        };
        let shown = Shown {
            source: source.into(),
            metadata: Arc::clone(&metadata),
            seen,
            readable,
        };
        let info = Arc::new(InfoHandle::new(metadata, name, options.layout, info, version));
        let (rows, is_open) = shown.rows();
        let first = Ordinal(shown.seen.first_ordinal);
        let chain = Chain::new(rows, first, is_open);
        let end = chain.end();
        return Ok(ManagedLedger {
            name: name.into(),
            engine,
            info,
            chain,
            appending: Appending::shadow(if is_shown { end } else { first }),
            rollover: Rollover::new(options.keeping(), end, now_ms),
            cache: EntryCache::new(options.cache_budget.clone(), options.cache_bytes_max, end),
            offload: Offloading::new(options.offloader.clone(), &shown.seen),
            options,
            steps: Steps::default(),
            now_ms,
            shadow: Some(shown),
        });
    }
    Err(OpenError::Contended(name.to_owned()))
}

/// A managed ledger that is a shadow, for what only such a one is told.
pub struct Shadow<'a> {
    chain: &'a mut Chain,
    appending: &'a mut Appending,
    cache: &'a mut EntryCache,
    offload: &'a mut Offloading,
    shown: &'a mut Shown,
    engine: &'a Arc<dyn LedgerEngine>,
    info: &'a Arc<InfoHandle>,
}

impl<'a> Shadow<'a> {
    /// `None`: it is none.
    #[must_use]
    pub fn of(ledger: &'a mut ManagedLedger) -> Option<Self> {
        Some(Self {
            shown: ledger.shadow.as_mut()?,
            chain: &mut ledger.chain,
            appending: &mut ledger.appending,
            cache: &mut ledger.cache,
            offload: &mut ledger.offload,
            engine: &ledger.engine,
            info: &ledger.info,
        })
    }

    /// Returns a follower that waits for changes of the source.
    #[must_use]
    pub fn follower(&self) -> SourceFollower {
        let key = info::key_of(&self.shown.source);
        SourceFollower {
            source: Arc::clone(&self.shown.source),
            engine: Arc::clone(self.engine),
            metadata: Arc::clone(&self.shown.metadata),
            info: Arc::clone(self.info),
            watch: self.shown.metadata.watch(&key),
            // It may have changed before the watch was there.
            is_stale: true,
            seen: None,
        }
    }

    /// By which it says what it holds back.
    #[must_use]
    pub fn holding(&self) -> Holding {
        Holding(Arc::clone(self.info))
    }

    /// The ledger of the source that is to be followed, and how many of its entries are known; `None` while none is open.
    #[must_use]
    pub fn followed(&self) -> Option<(LedgerId, u64)> {
        let (rows, is_open) = self.shown.rows();
        let last = rows.last().filter(|_| is_open)?;
        Some((last.id, last.entries))
    }

    /// Takes news of the source: [`ManagedLedger::end`] is then where the source is durable, as far as that is known. What is shown of
    /// it, [`show`](Self::show) says.
    pub fn on_source(&mut self, news: SourceNews) {
        let shown = &mut *self.shown;
        match news {
            SourceNews::Info(info) => {
                shown.readable.retain(|ledger, _| {
                    let row = info.ledgers.iter().find(|row| row.ledger_id == ledger.0);
                    row.is_some_and(|row| row.closed_at_ms.is_none())
                });
                shown.seen = *info;
            }
            SourceNews::Readable(ledger, readable) => {
                let known = shown.readable.entry(ledger).or_insert(readable);
                known.entries = known.entries.max(readable.entries);
                known.is_sealed |= readable.is_sealed;
            }
            SourceNews::Gone => return,
        }
        let (rows, is_open) = shown.rows();
        let first = Ordinal(shown.seen.first_ordinal).max(self.chain.first());
        self.offload.show(&shown.seen, &rows);
        self.chain.replace(rows, first, is_open);
        // What was trimmed there is over here.
        self.appending.show(first);
    }

    /// Shows what is durable in the source up to `end`, exclusive: its [`ManagedLedger::durable_end`]. `entries` are the last ones before
    /// it, for the cache, or none.
    pub fn show(&mut self, entries: &[Entry], end: Ordinal) {
        let end = end.min(self.chain.end());
        for entry in entries.iter().filter(|entry| entry.ordinal < end) {
            self.cache.push(entry.ordinal, entry.payload.clone());
        }
        self.appending.show(end);
    }

    /// True if the source was terminated and all its entries are shown. A second call returns false.
    pub fn end_with_source(&mut self) -> bool {
        let is_over = self.shown.seen.terminated
            && self.followed().is_none()
            && self.appending.durable_end() == self.chain.end();
        is_over && self.appending.end_shadow()
    }
}

impl ManagedLedger {
    /// True if it shows the entries of another managed ledger.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow.is_some()
    }
}

impl Shown {
    /// The chain as it can be read: to the first ledger that may get more entries, and whether there is one.
    fn rows(&self) -> (Vec<LedgerRow>, bool) {
        let mut rows = rows_of(&self.seen);
        let mut first = Ordinal(self.seen.first_ordinal);
        for index in 0..rows.len() {
            let Some(row) = rows.get_mut(index) else { break };
            row.first = first;
            if row.closed_at_ms.is_none() {
                let known = self.readable.get(&row.id);
                row.entries = known.map_or(0, |known| known.entries);
                row.bytes = 0;
                if !known.is_some_and(|known| known.is_sealed) {
                    rows.truncate(index + 1);
                    return (rows, true);
                }
            }
            first = row.end();
        }
        (rows, false)
    }
}

impl SourceFollower {
    /// The next news. `at`: [`Shadow::followed`].
    ///
    /// # Errors
    /// [`FollowError`]: ask again, after a pause.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn next(&mut self, at: Option<(LedgerId, u64)>) -> Result<SourceNews, FollowError> {
        loop {
            if self.is_stale
                && let Some(news) = self.look_at_info().await?
            {
                return Ok(news);
            }
            let engine = Arc::clone(&self.engine);
            let following = async move {
                let Some((ledger, known)) = at else {
                    return pending().await;
                };
                loop {
                    let readable = engine.follow(ledger, Some(known)).await?;
                    if readable.entries > known || readable.is_sealed {
                        return Ok(SourceNews::Readable(ledger, readable));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            };
            tokio::select! {
                biased;
                event = self.watch.next() => match event {
                    Some(Event::Put { key, .. } | Event::Deleted { key }) => {
                        self.is_stale = key.strip_prefix(info::INFO_PREFIX) == Some(&*self.source);
                    }
                    Some(Event::Lagged) => self.is_stale = true,
                    // The store ends, and the process with it.
                    None => pending().await,
                },
                followed = following => match followed {
                    // Its ledger went: the info says why.
                    Err(ReadError::NoSuchLedger(_)) => {
                        self.is_stale = true;
                        tokio::time::sleep(PAUSE).await;
                    }
                    followed => return followed.map_err(FollowError::Ledger),
                },
            }
        }
    }

    /// Looks at the source's info; says what is new.
    async fn look_at_info(&mut self) -> Result<Option<SourceNews>, FollowError> {
        let found = info::load(&*self.metadata, &self.source, MetadataLayout::Pharos).await?;
        let known = self
            .info
            .seen()
            .shadow
            .map_or(0, |shadow| shadow.source_created_ms);
        let Some((found, version)) = found else {
            self.is_stale = false;
            return Ok((known != 0).then_some(SourceNews::Gone));
        };
        if known != 0 && known != found.created_ms {
            return Ok(Some(SourceNews::Gone));
        }
        if known == 0 {
            // Before anything of it is shown, and acknowledged.
            let note = |info: &mut ManagedLedgerInfo| {
                if let Some(shadow) = &mut info.shadow {
                    shadow.source_created_ms = found.created_ms;
                }
            };
            self.info.update(note).await?;
        }
        self.is_stale = false;
        if self.seen.replace(version) == Some(version) {
            return Ok(None);
        }
        Ok(Some(SourceNews::Info(Box::new(found))))
    }
}

/// The info of a new shadow. Its epochs are none that an owner of another managed ledger of the same name had: those are multiples of
/// 2^24 that grow with ledger ids, or times.
fn new_info(now_ms: u64) -> ManagedLedgerInfo {
    let mut info = ManagedLedgerInfo::new(now_ms);
    info.writer_epoch = now_ms.saturating_mul(1 << 12).min(1 << 55);
    info
}

/// Makes the info that of a shadow of `source`, or says why it cannot be.
fn take_as_shadow(
    name: &str,
    source: &str,
    info: &mut ManagedLedgerInfo,
    found: Option<&ManagedLedgerInfo>,
) -> Result<(), OpenError> {
    let not_such = |what: &str| OpenError::NotSuch {
        name: name.to_owned(),
        what: what.to_owned(),
    };
    if found.is_some_and(|found| found.shadow.is_some()) {
        return Err(not_such("to be the shadow of a shadow"));
    }
    let is_new = info.shadow.is_none();
    if is_new && (!info.ledgers.is_empty() || info.first_ordinal > 0) {
        return Err(not_such("not a shadow, it has entries of its own"));
    }
    let shadow = info.shadow.get_or_insert_with(|| ShadowInfo {
        source: source.to_owned(),
        source_created_ms: 0,
        held: None,
    });
    if shadow.source != source {
        return Err(not_such("the shadow of another one"));
    }
    let found_ms = found.map(|found| found.created_ms);
    match (shadow.source_created_ms, found_ms) {
        (0, found_ms) => shadow.source_created_ms = found_ms.unwrap_or(0),
        (known, Some(found_ms)) if known == found_ms => {}
        _ => return Err(OpenError::SourceGone(source.to_owned())),
    }
    Ok(())
}

/// Reads the readable ends of the source's open ledgers; `None` if one no longer exists.
async fn look(
    engine: &dyn LedgerEngine,
    seen: &ManagedLedgerInfo,
) -> Result<Option<BTreeMap<LedgerId, Readable>>, OpenError> {
    let mut readable = BTreeMap::new();
    for row in seen.ledgers.iter().filter(|row| row.closed_at_ms.is_none()) {
        let ledger = LedgerId(row.ledger_id);
        match engine.follow(ledger, None).await {
            Ok(found) => {
                readable.insert(ledger, found);
                if !found.is_sealed {
                    break;
                }
            }
            Err(ReadError::NoSuchLedger(_)) => return Ok(None),
            Err(error) => return Err(OpenError::Follow(error)),
        }
    }
    Ok(Some(readable))
}
