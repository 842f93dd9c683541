//! Opening a topic: its log and its cursors as they are stored, and the topic over them.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use pharos_accounts::tenants::TenantShare;
use pharos_catalog::Shadows;
use pharos_feed::entry::EntryCodec;
use pharos_feed::ids::TopicId;
use pharos_ledger::LedgerEngine;
use pharos_managed_ledger::{
    CompactedLedgers, CursorLog, ManagedLedger, OpenError, OpenMode, Options, open_shadow, storage_name,
};
use pharos_mesh::ShardContext;
use pharos_metadata::MetadataStore;
use pharos_requests::error::{TopicError, chain};
use pharos_runtime::clock;
use pharos_types::TopicName;

use super::durable_cursors::DurableCursors;
use super::host::TopicHost;
use super::shadow::Following;
use super::transaction_acks::{self, PendingBySubscription};
use super::transactions::TopicTransactions;
use super::{Attached, Links, Publishing, State, Stored, Topic, TopicContext, TopicLog, cursor_store};

/// Creation of a topic on access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Requires an existing topic.
    Existing,
    /// Creates the topic if the policies allow it.
    Create,
}

/// Source of a shadow topic.
pub struct ShadowOf {
    /// The topic that it shows.
    pub source: TopicName,
    /// The source names it as its shadow.
    pub is_shown: bool,
}

/// Stored state of a topic, opened.
pub struct StoredTopic {
    ledger: ManagedLedger,
    cursors: CursorLog,
    /// Source of a shadow topic.
    source: Option<TopicName>,
    /// State of transactions from its log, if it ever had any.
    transactions: TopicTransactions,
    pending_acks: PendingBySubscription,
}

impl StoredTopic {
    /// Opens the log and the cursors of a topic; makes them when there are none.
    ///
    /// # Errors
    /// `Storage`.
    pub async fn open(
        name: &TopicName,
        shadow_of: Option<ShadowOf>,
        options: Options,
        engine: Arc<dyn LedgerEngine>,
        metadata: Arc<dyn MetadataStore>,
        codec: &dyn EntryCodec,
    ) -> Result<Self, TopicError> {
        let name = storage_name(name, options.layout);
        let now_ms = clock::wall_ms();
        let opened = match &shadow_of {
            None => ManagedLedger::open(&name, engine, metadata, options, OpenMode::Create, now_ms).await,
            Some(of) => {
                let source = storage_name(&of.source, options.layout);
                open_shadow((&name, &source), engine, metadata, options, of.is_shown, now_ms).await
            }
        };
        let ledger = opened.map_err(|error| open_error(&error))?;
        let cursors = cursor_store::open(&ledger).await;
        let cursors = cursors.map_err(|error| open_error(&error))?;
        let transactions = TopicTransactions::replay(&ledger, &cursors, codec).await?;
        let pending_acks = transaction_acks::read(&cursors)?;
        Ok(Self {
            ledger,
            cursors,
            transactions,
            pending_acks,
            source: shadow_of.map(|of| of.source),
        })
    }

    /// The topic over it, on its home shard, with the policies of now.
    #[must_use]
    pub fn load(mut self, name: &TopicName, shard: &Rc<ShardContext>, host: &Rc<dyn TopicHost>) -> Rc<Topic> {
        let id = TopicId {
            home: shard.id,
            number: shard.number(),
        };
        let producers = super::Producers::new(&self.ledger.properties());
        let catalog = &shard.shared.catalog;
        let policy_version = catalog.policy_version();
        let policies = Rc::new(catalog.effective_policies(name));
        self.ledger.set_durability(policies.durability);
        let replication = policies.persistence.replication;
        let affinity = || policies.bookie_affinity.clone();
        self.ledger.set_copies(replication, affinity());
        self.cursors.set_copies(replication, affinity());
        let now_ms = clock::wall_ms();
        let tenant = shard.shared.tenants.of(name);
        let with_rate = tenant.clone().filter(|tenant| tenant.has_rate());
        let mut state = State {
            stored: Stored {
                compaction: super::Compaction::new(CompactedLedgers::of(&self.ledger).view()),
                log: TopicLog::new(self.ledger),
                publishing: Publishing::new(producers, with_rate, now_ms),
                cursors: DurableCursors::new(self.cursors),
                replication: super::Replication::default(),
                carrying: None,
                holder: None,
                commits: super::Commits::default(),
                closing: false,
                policies,
                policy_version,
                key_shared: shard.shared.options.key_shared(),
                rate: Arc::default(),
                backlog: super::Backlog::default(),
                last_used_ms: now_ms,
            },
            attached: Attached {
                tenant,
                subscriptions: super::Subscriptions::default(),
                consumers: HashMap::new(),
                consumer_hosts: super::Hosts::default(),
                links: Links::new(shard.mesh.shard_count()),
                subscribes: super::Subscribes::default(),
                sent: pharos_feed::Sent::default(),
            },
        };
        cursor_store::restore(&mut state, self.pending_acks);
        state.stored.log.set_open_from(self.transactions.open_from());
        state.set_dispatch_rates();
        state
            .stored
            .log
            .set_followed(Shadows::of(catalog).are_there(name));
        let topic = Rc::new_cyclic(|me| Topic {
            cx: TopicContext {
                id,
                name: name.clone(),
                codec: shard.shared.codec,
                transactions: self.transactions,
                shard: shard.clone(),
                host: host.clone(),
                me: me.clone(),
            },
            used_ms: Cell::new(now_ms),
            state: RefCell::new(state),
        });
        topic.state.borrow_mut().stored.await_compaction();
        if let Some(source) = self.source {
            Following::begin(&topic, source);
        }
        topic.state.borrow_mut().stored.follow_deduplication(&topic.cx);
        topic.state.borrow_mut().stored.follow_replication(&topic.cx);
        topic.replicate_subscriptions();
        super::carried::resume_dealing(&topic);
        super::transactions::end_orphans(&topic);
        topic
    }
}

impl Publishing {
    fn new(producers: super::Producers, tenant_rate: Option<Arc<TenantShare>>, now_ms: u64) -> Self {
        Self {
            producers,
            throttle: super::Throttle::beside(tenant_rate),
            dedup: super::Deduplication::default(),
            pending: VecDeque::new(),
            draining: Vec::new(),
            watching: false,
            fault: None,
            stages: super::HomeStages::default(),
            counters: super::Counters::default(),
            rate_in: super::RateWindow::new(now_ms),
        }
    }
}

fn open_error(error: &OpenError) -> TopicError {
    TopicError::Storage(chain(error))
}
