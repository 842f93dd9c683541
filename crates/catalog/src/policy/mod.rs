//! The one registry of policies: what may be said about a topic, a namespace or the broker, and what holds then.
//!
//! ```text
//!   settings ─► BrokerPolicies ─┐
//!   namespace ─► Policies ──────┼─► Levels ─► the row's merge rule ─► EffectivePolicies ─► the effect
//!   topic ─► TopicPolicies ─────┘
//! ```
//!
//! A policy is one row of `table`: its type, the broker's default, how the levels merge, where it stands in REST and in the
//! stored JSON, how a value that comes in is checked, and the file in which it acts. From the rows come the fields of
//! [`BrokerPolicies`] and [`EffectivePolicies`], the admin routes, the answers to "what holds", and the reference page.
//!
//! To add a policy: write its row, and the code that acts on it.
//!
//! A policy that nothing acts on has a row as well, among [`OTHERS`]: it can only be set to a value that means
//! "off". A policy that is stored and ignored would be worse than none.
//!
//! Always true: the broker's level, typed, is merged with what was stored, which is JSON and not trusted: a value of a shape
//! that is not understood counts as not set. The admin server lets none in.

mod check;
mod dispatch_rate;
mod levels;
mod offload;
mod persistence;
mod replication;
mod row;
mod table;
mod value;

pub use check::{Refusal, backlog_quota, is_off, retention_exceeds};
pub use dispatch_rate::DispatchRateLimit;
pub use levels::Levels;
pub(crate) use levels::OnTopic;
pub use offload::{offload_read_first, offload_target};
pub use persistence::{BookieAffinity, Persistence, affinity_of};
pub use replication::ReplicationClusters;
pub use row::{AtNamespace, AtTopic, Check, Guard, Level, Method, Row};
pub use table::{BrokerPolicies, EffectivePolicies, OTHERS, POLICIES};
pub use value::{
    AutoSubscriptionCreation, AutoTopicCreation, AutoTopicType, BacklogQuotaDefaults, BacklogQuotas,
    DelayedDelivery, InactiveMode, InactiveTopics, Minutes, PolicyValue, PublishRateLimit, Quota,
    QuotaAction, Retention, Seconds, SubscribeRateLimit, SubscriptionTypes, ToJson,
};

#[cfg(test)]
mod tests;

/// Every row.
pub fn all() -> impl Iterator<Item = &'static Row> {
    POLICIES.iter().copied().chain(OTHERS)
}
