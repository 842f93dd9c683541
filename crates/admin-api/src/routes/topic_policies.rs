//! Policies of topics. Those of a partition are its partitioned topic's.

use std::collections::BTreeMap;

use serde_json::Value;

use pharos_auth::Action;

use super::policies::PolicyRoutes;
use super::{Resource, Route};
use crate::query::{ScopeQuery, SetTopicPolicyQuery, TopicPolicyQuery, TopicQuotaQuery};
use crate::{
    AutoSubscriptionCreationOverride, BacklogQuota, DelayedDeliveryPolicies, DispatchRate,
    InactiveTopicPolicies, OffloadPolicies, PersistencePolicies, PublishRate, RetentionPolicies,
    SubscribeRate,
};

macro_rules! at {
    ($rest:expr) => {
        concat!("/admin/v2/{domain}/{tenant}/{namespace}/{topic}/", $rest)
    };
}

table! { Resource::TopicPolicies;
    "The backlog quotas of a topic, by type."
    BACKLOG_QUOTAS = Route::get(at!("backlogQuotaMap"), "backlogQuotas", Action::ReadPolicy).query::<TopicPolicyQuery>()
        .json::<BTreeMap<String, BacklogQuota>>().fails(&[404]);
    "Sets the backlog quota of one type."
    SET_BACKLOG_QUOTA = Route::post(at!("backlogQuota"), "setBacklogQuota", Action::UpdatePolicy).query::<TopicQuotaQuery>()
        .takes::<BacklogQuota>().fails(&[404, 409, 501]);
    "Removes all policies of a topic, so that the word of the namespace holds."
    REMOVE_ALL = Route::delete(at!("policies"), "removeAll", Action::UpdatePolicy).fails(&[404, 409]);
    "Removes the backlog quota of one type."
    REMOVE_BACKLOG_QUOTA = Route::delete(at!("backlogQuota"), "removeBacklogQuota", Action::UpdatePolicy).query::<TopicQuotaQuery>()
        .fails(&[404, 409]);
}

/// Of each: name, method that sets it, form, whether the value comes in the body or in the query, what it says, and what it means without.
macro_rules! policies {
    ($($name:literal $method:ident $form:ty, $in:ident, $what:literal $(, $without:literal)?;)*) => {
        /// The policies that are one value each.
        pub static POLICIES: &[PolicyRoutes] = &[$(PolicyRoutes {
            name: $name,
            read: Route::get(at!($name), concat!($name, ".read"), Action::ReadPolicy).query::<TopicPolicyQuery>()
                .json_or_nothing::<$form>()
                .about(Resource::TopicPolicies, concat!("Says ", $what, ".")).fails(&[404]),
            set: $in::<$form>(Route::$method(at!($name), concat!($name, ".set"), Action::UpdatePolicy))
                .about(Resource::TopicPolicies, concat!("Sets ", $what, "." $(, " ", $without)?)).fails(&[403, 404, 409, 501]),
            remove: Route::delete(at!($name), concat!($name, ".remove"), Action::UpdatePolicy).query::<ScopeQuery>()
                .about(
                    Resource::TopicPolicies,
                    concat!("Removes the policy `", $name, "`, so that the word of the namespace holds."),
                )
                .fails(&[404, 409]),
        }),*];
    };
}

const fn body<T: crate::shape::Described>(route: Route) -> Route {
    route.query::<ScopeQuery>().takes::<T>()
}

/// `pulsar-admin` sends it without a body.
const fn optional<T: crate::shape::Described>(route: Route) -> Route {
    route.query::<ScopeQuery>().may_take::<T>()
}

const fn query<T: crate::shape::Described>(route: Route) -> Route {
    route.query::<SetTopicPolicyQuery>().may_take::<T>()
}

policies! {
    "retention" post RetentionPolicies, body, "what is kept although it is acknowledged";
    "messageTTL" post u32, query, "after how many seconds messages count as acknowledged";
    "autoSubscriptionCreation" post AutoSubscriptionCreationOverride, body, "whether subscriptions are made on first use";
    "deduplicationEnabled" post bool, body, "whether messages sent twice are dropped";
    "deduplicationSnapshotInterval" post u32, body, "how often the state of deduplication is stored, in seconds";
    "delayedDelivery" post DelayedDeliveryPolicies, body, "whether delivery may be delayed, and for how long";
    "inactiveTopicPolicies" post InactiveTopicPolicies, body, "when the idle topic is deleted";
    "persistence" post PersistencePolicies, body, "how many copies of an entry there are";
    "maxProducers" post u32, body, "how many producers the topic takes";
    "maxConsumers" post u32, body, "how many consumers the topic takes";
    "maxConsumersPerSubscription" post u32, body, "how many consumers a subscription takes";
    "maxSubscriptionsPerTopic" post u32, body, "how many subscriptions the topic takes";
    "maxUnackedMessagesOnConsumer" post u32, body, "how many messages a consumer may leave unacknowledged";
    "maxUnackedMessagesOnSubscription" post u32, body, "how many messages a subscription may leave unacknowledged";
    "maxMessageSize" post u32, body, "how many bytes a message may have";
    "subscriptionExpirationTime" post u32, query, "after how many minutes an unused subscription is deleted";
    "subscriptionTypesEnabled" post Vec<String>, body, "which types of subscription are allowed";
    "schemaValidationEnforced" post bool, body, "whether producers without a schema are refused where there is one";
    "schemaCompatibilityStrategy" put String, body, "which changes of a schema are taken";
    "compactionThreshold" post i64, body, "at how many bytes the topic is compacted";
    "offloadPolicies" post OffloadPolicies, body, "when and where closed ledgers are offloaded";
    "entryFilters" post BTreeMap<String, Value>, body, "which filters entries pass";
    "replication" post Vec<String>, body, "on which clusters the topic is";
    "dispatcherPauseOnAckStatePersistent" post bool, optional,
        "whether delivery waits for positions to be stored",
        "Without a body it does.";
    "dispatchRate" post DispatchRate, body, "how much the topic sends";
    "subscriptionDispatchRate" post DispatchRate, body, "how much a subscription sends";
    "replicatorDispatchRate" post DispatchRate, body, "how much goes to other clusters";
    "subscribeRate" post SubscribeRate, body, "how often a consumer may subscribe";
    "publishRate" post PublishRate, body, "how much the topic takes";
}
