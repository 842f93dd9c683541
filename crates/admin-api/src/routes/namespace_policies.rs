//! Policies of namespaces. Which of them the broker acts on, and so takes, it says itself when one is set.

use std::collections::BTreeMap;

use serde_json::Value;

use super::policies::PolicyRoutes;
use super::{Resource, Route};
use crate::query::{AppliedQuery, QuotaQuery};
use crate::{
    AutoSubscriptionCreationOverride, AutoTopicCreationOverride, BacklogQuota, DelayedDeliveryPolicies,
    DispatchRate, InactiveTopicPolicies, OffloadPolicies, PersistencePolicies, PublishRate,
    RetentionPolicies, SubscribeRate,
};

macro_rules! at {
    ($rest:expr) => {
        concat!("/admin/v2/namespaces/{tenant}/{namespace}/", $rest)
    };
}

table! { Resource::NamespacePolicies;
    "The backlog quotas of a namespace, by type."
    BACKLOG_QUOTAS = Route::get(at!("backlogQuotaMap"), "backlogQuotas").json::<BTreeMap<String, BacklogQuota>>()
        .fails(&[404]);
    "Sets the backlog quota of one type."
    SET_BACKLOG_QUOTA = Route::post(at!("backlogQuota"), "setBacklogQuota").query::<QuotaQuery>()
        .takes::<BacklogQuota>().fails(&[404, 409, 501]);
    "Removes the backlog quota of one type."
    REMOVE_BACKLOG_QUOTA = Route::delete(at!("backlogQuota"), "removeBacklogQuota").query::<QuotaQuery>()
        .fails(&[404, 409]);
    "Removes all policies of offloading."
    REMOVE_OFFLOAD = Route::delete(at!("removeOffloadPolicies"), "removeOffloadPolicies").fails(&[404, 409]);
}

/// Of each: name, method that sets it, form, and what it says.
macro_rules! policies {
    ($($name:literal $method:ident $form:ty, $what:literal;)*) => {
        /// The policies that are one value each.
        pub static POLICIES: &[PolicyRoutes] = &[$(PolicyRoutes {
            name: $name,
            read: Route::get(at!($name), concat!($name, ".read")).query::<AppliedQuery>().json_or_nothing::<$form>()
                .about(Resource::NamespacePolicies, concat!("Says ", $what, ".")).fails(&[404]),
            set: Route::$method(at!($name), concat!($name, ".set")).takes::<$form>()
                .about(Resource::NamespacePolicies, concat!("Sets ", $what, ".")).fails(&[403, 404, 409, 501]),
            remove: Route::delete(at!($name), concat!($name, ".remove"))
                .about(Resource::NamespacePolicies, concat!("Removes the policy `", $name, "`, so that the word of the broker holds.")).fails(&[404, 409]),
        }),*];
    };
}

policies! {
    "retention" post RetentionPolicies, "what is kept although it is acknowledged";
    "messageTTL" post u32, "after how many seconds messages count as acknowledged";
    "autoTopicCreation" post AutoTopicCreationOverride, "whether topics are made on first use";
    "autoSubscriptionCreation" post AutoSubscriptionCreationOverride, "whether subscriptions are made on first use";
    "deduplication" post bool, "whether messages sent twice are dropped";
    "deduplicationSnapshotInterval" post u32, "how often the state of deduplication is stored, in seconds";
    "delayedDelivery" post DelayedDeliveryPolicies, "whether delivery may be delayed, and for how long";
    "inactiveTopicPolicies" post InactiveTopicPolicies, "when an idle topic is deleted";
    "persistence" post PersistencePolicies, "how many copies of an entry there are";
    "maxProducersPerTopic" post u32, "how many producers a topic takes";
    "maxConsumersPerTopic" post u32, "how many consumers a topic takes";
    "maxConsumersPerSubscription" post u32, "how many consumers a subscription takes";
    "maxSubscriptionsPerTopic" post u32, "how many subscriptions a topic takes";
    "maxTopicsPerNamespace" post u32, "how many topics the namespace takes";
    "maxUnackedMessagesPerConsumer" post u32, "how many messages a consumer may leave unacknowledged";
    "maxUnackedMessagesPerSubscription" post u32, "how many messages a subscription may leave unacknowledged";
    "subscriptionExpirationTime" post u32, "after how many minutes an unused subscription is deleted";
    "subscriptionTypesEnabled" post Vec<String>, "which types of subscription are allowed";
    "subscriptionAuthMode" post String, "whether names of subscriptions begin with the role";
    "encryptionRequired" post bool, "whether producers must encrypt";
    "isAllowAutoUpdateSchema" post bool, "whether producers may bring new schemas";
    "schemaValidationEnforced" post bool, "whether producers without a schema are refused where there is one";
    "schemaCompatibilityStrategy" put String, "which changes of a schema are taken";
    "schemaAutoUpdateCompatibilityStrategy" put String, "which changes of a schema are taken, by its older name";
    "compactionThreshold" put i64, "at how many bytes topics are compacted";
    "offloadThreshold" put i64, "how many bytes stay before ledgers are offloaded";
    "offloadThresholdInSeconds" put i64, "after how many seconds closed ledgers are offloaded";
    "offloadDeletionLagMs" put i64, "how long an offloaded ledger's first copy stays, in milliseconds";
    "offloadPolicies" post OffloadPolicies, "when and where closed ledgers are offloaded";
    "entryFilters" post BTreeMap<String, Value>, "which filters entries pass";
    "antiAffinity" post String, "with which namespaces this one does not share a broker";
    "replication" post Vec<String>, "on which clusters the namespace is";
    "allowedClusters" post Vec<String>, "on which clusters the namespace may be";
    "dispatcherPauseOnAckStatePersistent" post bool, "whether delivery waits for positions to be stored";
    "dispatchRate" post DispatchRate, "how much a topic sends";
    "subscriptionDispatchRate" post DispatchRate, "how much a subscription sends";
    "replicatorDispatchRate" post DispatchRate, "how much goes to other clusters";
    "subscribeRate" post SubscribeRate, "how often a consumer may subscribe";
    "publishRate" post PublishRate, "how much a topic takes";
}
