//! Policies of namespaces. Which of them the broker acts on, and so takes, it says itself when one is set.

use std::collections::BTreeMap;

use serde_json::Value;

use pharos_auth::Action;

use super::policies::PolicyRoutes;
use super::{Resource, Route};
use crate::query::{AppliedQuery, QuotaQuery};
use crate::{
    AutoSubscriptionCreationOverride, AutoTopicCreationOverride, BacklogQuota, BookieAffinityGroupData,
    DelayedDeliveryPolicies, DispatchRate, InactiveTopicPolicies, OffloadPolicies, PersistencePolicies,
    PublishRate, RetentionPolicies, SubscribeRate,
};

macro_rules! at {
    ($rest:expr) => {
        concat!("/admin/v2/namespaces/{tenant}/{namespace}/", $rest)
    };
}

table! { Resource::NamespacePolicies;
    "The backlog quotas of a namespace, by type."
    BACKLOG_QUOTAS = Route::get(at!("backlogQuotaMap"), "backlogQuotas", Action::ReadPolicy).json::<BTreeMap<String, BacklogQuota>>()
        .fails(&[404]);
    "Sets the backlog quota of one type."
    SET_BACKLOG_QUOTA = Route::post(at!("backlogQuota"), "setBacklogQuota", Action::UpdatePolicy).query::<QuotaQuery>()
        .takes::<BacklogQuota>().fails(&[404, 409, 501]);
    "Removes the backlog quota of one type."
    REMOVE_BACKLOG_QUOTA = Route::delete(at!("backlogQuota"), "removeBacklogQuota", Action::UpdatePolicy).query::<QuotaQuery>()
        .fails(&[404, 409]);
    "Removes all policies of offloading."
    REMOVE_OFFLOAD = Route::delete(at!("removeOffloadPolicies"), "removeOffloadPolicies", Action::UpdatePolicy).fails(&[404, 409]);
}

/// Of each: name, method that sets it, form, whether there must be a body, what changing it takes unless that is `UpdatePolicy`, what it
/// says, and what it means without.
macro_rules! policies {
    ($($name:literal $method:ident $form:ty, $in:ident $(by $action:ident)?, $what:literal $(, $without:literal)?;)*) => {
        /// The policies that are one value each.
        pub static POLICIES: &[PolicyRoutes] = &[$(PolicyRoutes {
            name: $name,
            read: Route::get(at!($name), concat!($name, ".read"), Action::ReadPolicy).query::<AppliedQuery>().json_or_nothing::<$form>()
                .about(Resource::NamespacePolicies, concat!("Says ", $what, ".")).fails(&[404]),
            set: $in::<$form>(Route::$method(at!($name), concat!($name, ".set"), policies!(@action $($action)?)))
                .about(Resource::NamespacePolicies, concat!("Sets ", $what, "." $(, " ", $without)?)).fails(&[403, 404, 409, 501]),
            remove: Route::delete(at!($name), concat!($name, ".remove"), policies!(@action $($action)?))
                .about(
                    Resource::NamespacePolicies,
                    concat!("Removes the policy `", $name, "`, so that the word of the broker holds."),
                )
                .fails(&[404, 409]),
        }),*];
    };
    (@action) => { Action::UpdatePolicy };
    (@action $action:ident) => { Action::$action };
}

const fn body<T: crate::shape::Described>(route: Route) -> Route {
    route.takes::<T>()
}

/// `pulsar-admin` sends some without a body.
const fn optional<T: crate::shape::Described>(route: Route) -> Route {
    route.may_take::<T>()
}

policies! {
    "retention" post RetentionPolicies, body, "what is kept although it is acknowledged";
    "messageTTL" post u32, body, "after how many seconds messages count as acknowledged";
    "autoTopicCreation" post AutoTopicCreationOverride, body, "whether topics are made on first use";
    "autoSubscriptionCreation" post AutoSubscriptionCreationOverride, body, "whether subscriptions are made on first use";
    "deduplication" post bool, body, "whether messages sent twice are dropped";
    "deduplicationSnapshotInterval" post u32, optional,
        "how often the state of deduplication is stored, in seconds",
        "Without a body the policy is removed.";
    "delayedDelivery" post DelayedDeliveryPolicies, body, "whether delivery may be delayed, and for how long";
    "inactiveTopicPolicies" post InactiveTopicPolicies, body, "when an idle topic is deleted";
    "persistence" post PersistencePolicies, body, "how many copies of an entry there are";
    "persistence/bookieAffinity" post BookieAffinityGroupData, body by ChooseBookies, "which groups of bookies keep the namespace's entries";
    "maxProducersPerTopic" post u32, body, "how many producers a topic takes";
    "maxConsumersPerTopic" post u32, body, "how many consumers a topic takes";
    "maxConsumersPerSubscription" post u32, body, "how many consumers a subscription takes";
    "maxSubscriptionsPerTopic" post u32, body, "how many subscriptions a topic takes";
    "maxTopicsPerNamespace" post u32, body, "how many topics the namespace takes";
    "maxUnackedMessagesPerConsumer" post u32, body, "how many messages a consumer may leave unacknowledged";
    "maxUnackedMessagesPerSubscription" post u32, body, "how many messages a subscription may leave unacknowledged";
    "subscriptionExpirationTime" post u32, body, "after how many minutes an unused subscription is deleted";
    "subscriptionTypesEnabled" post Vec<String>, body, "which types of subscription are allowed";
    "subscriptionAuthMode" post String, body, "whether names of subscriptions begin with the role";
    "encryptionRequired" post bool, body, "whether producers must encrypt";
    "isAllowAutoUpdateSchema" post bool, body, "whether producers may bring new schemas";
    "schemaValidationEnforced" post bool, body, "whether producers without a schema are refused where there is one";
    "schemaCompatibilityStrategy" put String, body, "which changes of a schema are taken";
    "schemaAutoUpdateCompatibilityStrategy" put String, body, "which changes of a schema are taken, by its older name";
    "compactionThreshold" put i64, body, "at how many bytes topics are compacted";
    "offloadThreshold" put i64, body, "how many bytes stay before ledgers are offloaded";
    "offloadThresholdInSeconds" put i64, body, "after how many seconds closed ledgers are offloaded";
    "offloadDeletionLagMs" put i64, body, "how long an offloaded ledger's first copy stays, in milliseconds";
    "offloadPolicies" post OffloadPolicies, body, "when and where closed ledgers are offloaded";
    "entryFilters" post BTreeMap<String, Value>, body, "which filters entries pass";
    "antiAffinity" post String, body, "with which namespaces this one does not share a broker";
    "replication" post Vec<String>, body, "on which clusters the namespace is";
    "allowedClusters" post Vec<String>, body, "on which clusters the namespace may be";
    "dispatcherPauseOnAckStatePersistent" post bool, optional,
        "whether delivery waits for positions to be stored",
        "Without a body it does.";
    "dispatchRate" post DispatchRate, body, "how much a topic sends";
    "subscriptionDispatchRate" post DispatchRate, body, "how much a subscription sends";
    "replicatorDispatchRate" post DispatchRate, body, "how much goes to other clusters";
    "subscribeRate" post SubscribeRate, body, "how often a consumer may subscribe";
    "publishRate" post PublishRate, body, "how much a topic takes";
}
