//! Transaction coordinator: its transactions, their owners, their participants, and the progress of their ends.
//!
//! Every change returns the record to store; the owner answers its caller once that is durable. Topics accept
//! messages in a transaction ([`Coordinator::may_publish`]) only after [`Coordinator::on_added`], so that no message
//! can be in a transaction that would forget it.

use std::collections::{BTreeMap, BTreeSet};

use pharos_types::varint;
use pharos_types::{SubscriptionName, TopicName, TxnId, TxnOutcome};

use crate::codec::{Malformed, put_bytes, take_bytes, take_text, take_u8, take_u64};

/// Ids are reserved in blocks of so many, so that most new transactions need not store how far they have come.
const RESERVED: u64 = 1000;
/// Topics and subscriptions that one transaction may have.
const PARTICIPANTS_MAX: usize = 10_000;

/// Error of creating or changing a transaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TxnError {
    /// Unknown transaction: it ended, never existed, or belongs to another role.
    #[error("transaction {0} was not found: it has ended, or is not of this role")]
    NotFound(TxnId),
    /// Transaction in a state that does not allow the request.
    #[error("transaction {txn} is {status}, which does not allow {wanted}")]
    Status {
        /// Id of the transaction.
        txn: TxnId,
        /// State of the transaction.
        status: TxnStatus,
        /// Request that was refused.
        wanted: &'static str,
    },
    /// There is no such coordinator here.
    #[error("there is no transaction coordinator {0} here")]
    NoCoordinator(u64),
    /// As many are open as may be.
    #[error(
        "coordinator {coordinator} has {limit} open transactions, as many as transactions.max_active_per_coordinator allows"
    )]
    TooMany {
        /// Id of the coordinator.
        coordinator: u64,
        /// The limit.
        limit: u64,
    },
    /// The role has as many open as one may have.
    #[error(
        "role {role} has {limit} open transactions at coordinator {coordinator}, as many as transactions.max_active_per_role allows"
    )]
    TooManyOfRole {
        /// The coordinator.
        coordinator: u64,
        /// The role.
        role: Box<str>,
        /// The limit.
        limit: u64,
    },
    /// Requested timeout above the maximum.
    #[error("a timeout of {asked_ms} ms is longer than transactions.max_timeout allows, {max_ms} ms")]
    TooLong {
        /// Asked for.
        asked_ms: u64,
        /// Allowed.
        max_ms: u64,
    },
    /// More takes part in it than may.
    #[error("transaction {0} has {PARTICIPANTS_MAX} participants, as many as one may have")]
    TooManyParticipants(TxnId),
    /// Record that could not be stored.
    #[error("the coordinator's log did not take it: {0}")]
    Log(String),
}

/// State of a transaction. One that has ended is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxnStatus {
    /// Messages and acknowledgements may be in it.
    Open,
    /// Decided to commit, irrevocably.
    Committing,
    /// Decided to abort, irrevocably.
    Aborting,
}

impl std::fmt::Display for TxnStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Open => "OPEN",
            Self::Committing => "COMMITTING",
            Self::Aborting => "ABORTING",
        })
    }
}

/// A transaction that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// The role of who made it; `None`: clients are not asked who they are.
    pub owner: Option<Box<str>>,
    /// State of the transaction.
    pub status: TxnStatus,
    /// Creation time, in milliseconds since 1970.
    pub opened_ms: u64,
    /// Transaction timeout, in milliseconds.
    pub timeout_ms: u64,
    /// Topics that messages are published to in it.
    pub topics: BTreeMap<TopicName, Added>,
    /// Subscriptions that acknowledge in it.
    pub subscriptions: BTreeMap<(TopicName, SubscriptionName), Added>,
}

/// Participant as it was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// Its topic, as the client called it.
    pub called: Box<str>,
    /// True if the record of the participant is known to be durable.
    is_stored: bool,
}

/// A topic that takes part, and what the client called it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalledTopic {
    /// Its name.
    pub name: TopicName,
    /// Name given by the client; statistics show it.
    pub called: Box<str>,
}

/// Participants to notify of a transaction's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participants {
    /// Outcome of the transaction.
    pub outcome: TxnOutcome,
    /// Topics with its messages.
    pub topics: Vec<TopicName>,
    /// Subscriptions with its acknowledgements.
    pub subscriptions: Vec<(TopicName, SubscriptionName)>,
}

/// Limits of a coordinator.
#[derive(Debug, Clone, Copy)]
pub struct CoordinatorLimits {
    /// Open transactions; 0: any number.
    pub active_max: u64,
    /// Open transactions of one role; 0: any number. Clients without a role are not counted.
    pub active_of_role_max: u64,
    /// The longest timeout, in milliseconds.
    pub timeout_max_ms: u64,
}

/// Numbers for stats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoordinatorStats {
    /// Id of the coordinator.
    pub id: u64,
    /// The last id given out; `None`: none was.
    pub last: Option<u64>,
    /// Transactions below this have ended.
    pub low_watermark: u64,
    /// Transactions that have not ended.
    pub active: u64,
}

/// Transaction coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinator {
    id: u64,
    /// The next id, and how many are reserved.
    next: u64,
    reserved: u64,
    live: BTreeMap<u64, Transaction>,
    /// Open ones by when their time is over.
    deadlines: BTreeSet<(u64, u64)>,
    /// Number of live transactions of each role that has any.
    by_owner: BTreeMap<Box<str>, u64>,
}

impl Coordinator {
    /// Coordinator without transactions. `reserved`: as stored last ([`reserved`](Self::reserved)), 0 for a new one.
    #[must_use]
    pub fn new(id: u64, reserved: u64) -> Self {
        Self {
            id,
            next: reserved,
            reserved,
            live: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            by_owner: BTreeMap::new(),
        }
    }

    /// Id of the coordinator.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Ids below this may have been given out; to be stored whenever it is another than before.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// A transaction as it was stored.
    pub fn restore(&mut self, least: u64, transaction: Transaction) {
        self.next = self.next.max(least.saturating_add(1));
        self.reserved = self.reserved.max(self.next);
        if transaction.status == TxnStatus::Open {
            self.deadlines.insert((transaction.deadline_ms(), least));
        }
        self.insert(least, transaction);
    }

    fn insert(&mut self, least: u64, transaction: Transaction) {
        if let Some(owner) = &transaction.owner {
            *self.by_owner.entry(owner.clone()).or_default() += 1;
        }
        self.live.insert(least, transaction);
    }

    /// A new transaction. `timeout_ms` of 0: the longest.
    ///
    /// # Errors
    /// `TooMany`, `TooManyOfRole`, `TooLong`.
    pub fn begin(
        &mut self,
        owner: Option<&str>,
        timeout_ms: u64,
        now_ms: u64,
        limits: CoordinatorLimits,
    ) -> Result<TxnId, TxnError> {
        if timeout_ms > limits.timeout_max_ms {
            return Err(TxnError::TooLong {
                asked_ms: timeout_ms,
                max_ms: limits.timeout_max_ms,
            });
        }
        if limits.active_max > 0 && self.live.len() as u64 >= limits.active_max {
            return Err(TxnError::TooMany {
                coordinator: self.id,
                limit: limits.active_max,
            });
        }
        let limit = limits.active_of_role_max;
        if let Some(role) = owner
            && limit > 0
            && self.by_owner.get(role).is_some_and(|count| *count >= limit)
        {
            return Err(TxnError::TooManyOfRole {
                coordinator: self.id,
                role: role.into(),
                limit,
            });
        }
        let least = self.next;
        self.next += 1;
        if self.next > self.reserved {
            self.reserved = self.next + RESERVED - 1;
        }
        let transaction = Transaction {
            owner: owner.map(Box::from),
            status: TxnStatus::Open,
            opened_ms: now_ms,
            timeout_ms: if timeout_ms == 0 {
                limits.timeout_max_ms
            } else {
                timeout_ms
            },
            topics: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
        };
        self.deadlines.insert((transaction.deadline_ms(), least));
        self.insert(least, transaction);
        Ok(self.txn(least))
    }

    /// Topics and subscriptions take part. Returns whether anything is new, which is to be stored.
    ///
    /// # Errors
    /// `NotFound`, `Status`, `TooManyParticipants`.
    pub fn add(
        &mut self,
        txn: TxnId,
        owner: Option<&str>,
        topics: &[CalledTopic],
        subscriptions: &[(CalledTopic, SubscriptionName)],
    ) -> Result<bool, TxnError> {
        let transaction = self.of_owner(txn, owner)?;
        if transaction.status != TxnStatus::Open {
            return Err(TxnError::Status {
                txn,
                status: transaction.status,
                wanted: "more participants",
            });
        }
        let before = transaction.participants();
        let new = topics
            .iter()
            .filter(|topic| !transaction.topics.contains_key(&topic.name));
        if before + new.count() + subscriptions.len() > PARTICIPANTS_MAX {
            return Err(TxnError::TooManyParticipants(txn));
        }
        for topic in topics {
            let added = || Added::new(&topic.called);
            transaction.topics.entry(topic.name.clone()).or_insert_with(added);
        }
        for (topic, subscription) in subscriptions {
            let of = (topic.name.clone(), subscription.clone());
            let added = || Added::new(&topic.called);
            transaction.subscriptions.entry(of).or_insert_with(added);
        }
        Ok(transaction.participants() > before)
    }

    /// Marks an added participant as durable: it may be used.
    ///
    /// # Errors
    /// `NotFound`, `Status`: the transaction began to end meanwhile.
    pub fn on_added(
        &mut self,
        txn: TxnId,
        topics: &[CalledTopic],
        subscriptions: &[(CalledTopic, SubscriptionName)],
    ) -> Result<(), TxnError> {
        let transaction = self.get_mut(txn).ok_or(TxnError::NotFound(txn))?;
        if transaction.status != TxnStatus::Open {
            return Err(TxnError::Status {
                txn,
                status: transaction.status,
                wanted: "more participants",
            });
        }
        for topic in topics {
            if let Some(added) = transaction.topics.get_mut(&topic.name) {
                added.is_stored = true;
            }
        }
        for (topic, subscription) in subscriptions {
            let of = (topic.name.clone(), subscription.clone());
            if let Some(added) = transaction.subscriptions.get_mut(&of) {
                added.is_stored = true;
            }
        }
        Ok(())
    }

    /// The transaction begins to end. Returns whether that is new, which is to be stored before a participant hears of it. Asked again
    /// for the same end it does nothing. `owner`: `None` also for the broker itself.
    ///
    /// # Errors
    /// `NotFound`, `Status`.
    pub fn end(&mut self, txn: TxnId, outcome: TxnOutcome) -> Result<bool, TxnError> {
        let transaction = self.get_mut(txn).ok_or(TxnError::NotFound(txn))?;
        let (to, wanted) = match outcome {
            TxnOutcome::Committed => (TxnStatus::Committing, "a commit"),
            TxnOutcome::Aborted => (TxnStatus::Aborting, "an abort"),
        };
        match transaction.status {
            TxnStatus::Open => {
                transaction.status = to;
                let deadline = transaction.deadline_ms();
                self.deadlines.remove(&(deadline, txn.least));
                Ok(true)
            }
            status if status == to => Ok(false),
            status => Err(TxnError::Status { txn, status, wanted }),
        }
    }

    /// Checks that the transaction belongs to this role.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn check_owner(&mut self, txn: TxnId, owner: Option<&str>) -> Result<(), TxnError> {
        self.of_owner(txn, owner).map(drop)
    }

    /// Participants to notify that a transaction ends; `None` if it is not ending.
    #[must_use]
    pub fn participants(&self, txn: TxnId) -> Option<Participants> {
        let transaction = self.get(txn)?;
        let outcome = match transaction.status {
            TxnStatus::Open => return None,
            TxnStatus::Committing => TxnOutcome::Committed,
            TxnStatus::Aborting => TxnOutcome::Aborted,
        };
        Some(Participants {
            outcome,
            topics: transaction.topics.keys().cloned().collect(),
            subscriptions: transaction.subscriptions.keys().cloned().collect(),
        })
    }

    /// All have heard: the transaction is forgotten, also in the store.
    pub fn forget(&mut self, txn: TxnId) {
        if txn.most == self.id
            && let Some(transaction) = self.live.remove(&txn.least)
        {
            self.deadlines.remove(&(transaction.deadline_ms(), txn.least));
            if let Some(owner) = &transaction.owner
                && let Some(count) = self.by_owner.get_mut(owner)
            {
                *count -= 1;
                if *count == 0 {
                    self.by_owner.remove(owner);
                }
            }
        }
    }

    /// The open transactions whose time is over, at most so many.
    #[must_use]
    pub fn overdue(&self, now_ms: u64, most: usize) -> Vec<TxnId> {
        let due = self.deadlines.range(..(now_ms.saturating_add(1), 0));
        due.take(most).map(|(_, least)| self.txn(*least)).collect()
    }

    /// Transactions that are ending.
    #[must_use]
    pub fn ending(&self) -> Vec<TxnId> {
        let ending = self.live.iter().filter(|(_, txn)| txn.status != TxnStatus::Open);
        ending.map(|(least, _)| self.txn(*least)).collect()
    }

    /// A transaction that has not ended.
    #[must_use]
    pub fn get(&self, txn: TxnId) -> Option<&Transaction> {
        self.live.get(&txn.least).filter(|_| txn.most == self.id)
    }

    /// All that have not ended.
    pub fn all(&self) -> impl Iterator<Item = (TxnId, &Transaction)> {
        self.live.iter().map(|(least, txn)| (self.txn(*least), txn))
    }

    /// True if a message may be published to a topic in a transaction.
    #[must_use]
    pub fn may_publish(&self, txn: TxnId, topic: &TopicName) -> bool {
        self.get(txn).is_some_and(|transaction| {
            let added = transaction.topics.get(topic);
            transaction.status == TxnStatus::Open && added.is_some_and(|added| added.is_stored)
        })
    }

    /// True if a subscription may acknowledge in a transaction.
    #[must_use]
    pub fn may_acknowledge(&self, txn: TxnId, of: &(TopicName, SubscriptionName)) -> bool {
        self.get(txn).is_some_and(|transaction| {
            let added = transaction.subscriptions.get(of);
            transaction.status == TxnStatus::Open && added.is_some_and(|added| added.is_stored)
        })
    }

    /// Numbers for stats.
    #[must_use]
    pub fn stats(&self) -> CoordinatorStats {
        CoordinatorStats {
            id: self.id,
            last: self.next.checked_sub(1),
            low_watermark: self.live.first_key_value().map_or(self.next, |(least, _)| *least),
            active: self.live.len() as u64,
        }
    }

    fn txn(&self, least: u64) -> TxnId {
        TxnId { most: self.id, least }
    }

    fn get_mut(&mut self, txn: TxnId) -> Option<&mut Transaction> {
        self.live.get_mut(&txn.least).filter(|_| txn.most == self.id)
    }

    fn of_owner(&mut self, txn: TxnId, owner: Option<&str>) -> Result<&mut Transaction, TxnError> {
        let found = self.get_mut(txn).ok_or(TxnError::NotFound(txn))?;
        match found.owner.as_deref() == owner {
            true => Ok(found),
            false => Err(TxnError::NotFound(txn)),
        }
    }
}

impl Transaction {
    /// End of its timeout, in milliseconds since 1970.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        self.opened_ms.saturating_add(self.timeout_ms)
    }

    fn participants(&self) -> usize {
        self.topics.len() + self.subscriptions.len()
    }

    /// As it is stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![match self.status {
            TxnStatus::Open => 0,
            TxnStatus::Committing => 1,
            TxnStatus::Aborting => 2,
        }];
        match &self.owner {
            None => out.push(0),
            Some(owner) => {
                out.push(1);
                put_bytes(&mut out, owner.as_bytes());
            }
        }
        varint::put(&mut out, self.opened_ms);
        varint::put(&mut out, self.timeout_ms);
        varint::put(&mut out, self.topics.len() as u64);
        for added in self.topics.values() {
            put_bytes(&mut out, added.called.as_bytes());
        }
        varint::put(&mut out, self.subscriptions.len() as u64);
        for ((_, subscription), added) in &self.subscriptions {
            put_bytes(&mut out, added.called.as_bytes());
            put_bytes(&mut out, subscription.to_string().as_bytes());
        }
        out
    }

    /// From what is stored: whatever takes part is.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(mut input: &[u8]) -> Result<Self, Malformed> {
        let input = &mut input;
        let status = match take_u8(input)? {
            0 => TxnStatus::Open,
            1 => TxnStatus::Committing,
            2 => TxnStatus::Aborting,
            _ => return Err(Malformed("status")),
        };
        let owner = match take_u8(input)? {
            0 => None,
            _ => Some(Box::from(take_text(input)?)),
        };
        let mut transaction = Self {
            owner,
            status,
            opened_ms: take_u64(input)?,
            timeout_ms: take_u64(input)?,
            topics: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
        };
        for _ in 0..take_u64(input)? {
            let (topic, added) = take_topic(input)?;
            transaction.topics.insert(topic, added);
        }
        for _ in 0..take_u64(input)? {
            let (topic, added) = take_topic(input)?;
            let name = std::str::from_utf8(take_bytes(input)?).ok();
            let name = name.and_then(|name| SubscriptionName::new(name).ok());
            let name = name.ok_or(Malformed("name of a subscription"))?;
            transaction.subscriptions.insert((topic, name), added);
        }
        Ok(transaction)
    }
}

fn take_topic(input: &mut &[u8]) -> Result<(TopicName, Added), Malformed> {
    let called = take_text(input)?;
    let name = called.parse().map_err(|_| Malformed("name of a topic"))?;
    let added = Added {
        called: Box::from(called),
        is_stored: true,
    };
    Ok((name, added))
}

impl Added {
    fn new(called: &str) -> Self {
        Self {
            called: Box::from(called),
            is_stored: false,
        }
    }
}

impl From<TopicName> for CalledTopic {
    fn from(name: TopicName) -> Self {
        let called = name.to_string().into_boxed_str();
        Self { name, called }
    }
}
