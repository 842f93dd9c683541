//! Subscriptions of a topic: making, moving, emptying, deleting, and who listens on a broadcast one.

use std::collections::{BTreeMap, BTreeSet};

use pharos_auth::Action;

use super::{Resource, Route};
use crate::query::{BroadcastQuery, CreateSubscriptionQuery, ForceQuery};
use crate::{AnalyzeBacklogResult, BroadcastDetails, ResetCursorData};

macro_rules! topic {
    ($rest:literal) => {
        concat!("/admin/v2/{domain}/{tenant}/{namespace}/{topic}", $rest)
    };
}
macro_rules! at {
    ($rest:literal) => {
        concat!(
            "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}",
            $rest
        )
    };
}

table! { Resource::Subscriptions;
    "Lists the durable subscriptions of a topic."
    LIST = Route::get(topic!("/subscriptions"), "list", Action::ListSubscriptions).json::<BTreeSet<String>>().fails(&[404]);
    "Acknowledges, on every subscription, what is older than so many seconds."
    EXPIRE_ALL_OLDER = Route::post(topic!("/all_subscription/expireMessages/{seconds}"), "expireAllOlder", Action::SkipMessages).fails(&[404, 405]);
    "How many bytes there are from a message to the end."
    BACKLOG_SIZE = Route::put(topic!("/backlogSize"), "backlogSize", Action::ReadStats).takes::<ResetCursorData>().json::<u64>()
        .fails(&[404, 405, 501]);
    "Makes a durable subscription, at the end if no place is given; makes its topic where clients may do that."
    CREATE = Route::put(at!(""), "create", Action::CreateSubscription).query::<CreateSubscriptionQuery>().may_take::<ResetCursorData>()
        .fails(&[404, 405, 409]);
    "Deletes a subscription; with `force` also when consumers are connected."
    DELETE = Route::delete(at!(""), "delete", Action::DeleteSubscription).query::<ForceQuery>().fails(&[404, 405]);
    "Moves a subscription to a message."
    RESET_TO = Route::post(at!("/resetcursor"), "resetTo", Action::ResetCursor).takes::<ResetCursorData>().fails(&[404, 405]);
    "Moves a subscription to the first message published at or after a time in milliseconds since 1970."
    RESET_TO_TIME = Route::post(at!("/resetcursor/{timestamp}"), "resetToTime", Action::ResetCursor).fails(&[404, 405]);
    "Acknowledges the next so many entries of the backlog."
    SKIP = Route::post(at!("/skip/{count}"), "skip", Action::SkipMessages).fails(&[404, 405]);
    "Acknowledges the whole backlog."
    SKIP_ALL = Route::post(at!("/skip_all"), "skipAll", Action::SkipMessages).fails(&[404, 405]);
    "Acknowledges everything up to a message."
    EXPIRE_TO = Route::post(at!("/expireMessages"), "expireTo", Action::SkipMessages).takes::<ResetCursorData>().fails(&[404, 405]);
    "Acknowledges what is older than so many seconds."
    EXPIRE_OLDER = Route::post(at!("/expireMessages/{seconds}"), "expireOlder", Action::SkipMessages).fails(&[404, 405]);
    "Reads through a backlog and counts."
    ANALYZE_BACKLOG = Route::post(at!("/analyzeBacklog"), "analyzeBacklog", Action::ReadSubscription).may_take::<ResetCursorData>()
        .json::<AnalyzeBacklogResult>().fails(&[404, 405, 501]);
    "The properties of a subscription."
    PROPERTIES = Route::get(at!("/properties"), "properties", Action::ReadSubscription).json::<BTreeMap<String, String>>().fails(&[404, 405]);
    "Replaces the properties of a subscription."
    SET_PROPERTIES = Route::put(at!("/properties"), "setProperties", Action::UpdateSubscription)
        .may_take::<BTreeMap<String, String>>().fails(&[404, 405]);
    "Who listens on a broadcast subscription, in numbers, and the consumers furthest behind."
    BROADCAST = Route::get(at!("/broadcast"), "broadcast", Action::ReadSubscription)
        .query::<BroadcastQuery>().json::<BroadcastDetails>().fails(&[404, 405]);
    "Whether other clusters are told how far the subscription is, of each partition."
    REPLICATED = Route::get(at!("/replicatedSubscriptionStatus"), "replicated", Action::ReadSubscription)
        .json::<BTreeMap<String, bool>>().fails(&[404, 405]);
    "Says whether other clusters are told how far the subscription is."
    SET_REPLICATED = Route::post(at!("/replicatedSubscriptionStatus"), "setReplicated", Action::UpdateSubscription)
        .takes::<bool>().fails(&[404, 405]);
}
