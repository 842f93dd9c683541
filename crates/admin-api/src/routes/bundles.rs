//! Bundles: the parts that a namespace's hash space is cut into, as `0x40000000_0x80000000`.

use pharos_auth::Action;

use super::{Resource, Route};
use crate::query::{SplitBundleQuery, UnloadBundleQuery};

macro_rules! at {
    ($rest:literal) => {
        concat!("/admin/v2/namespaces/{tenant}/{namespace}/{bundle}", $rest)
    };
}

table! { Resource::Bundles;
    "Deletes an empty bundle, as tools do before they delete the namespace; nothing is kept per bundle."
    DELETE = Route::delete(at!(""), "delete", Action::UpdateBundles).fails(&[404, 409]);
    "Unloads the topics of a bundle; with `destinationBroker` the bundle goes to that broker, and clients are told so."
    UNLOAD = Route::put(at!("/unload"), "unload", Action::UnloadNamespace).query::<UnloadBundleQuery>().fails(&[404, 409, 412]);
    "Cuts a bundle. Its topics stay open, unless `unload` gives parts of it to other brokers."
    SPLIT = Route::put(at!("/split"), "split", Action::UpdateBundles).query::<SplitBundleQuery>().may_take::<Vec<u32>>().fails(&[400, 404, 409, 412]);
    "Empties all subscriptions of the bundle's topics."
    CLEAR_BACKLOG = Route::post(at!("/clearBacklog"), "clearBacklog", Action::SkipMessages).fails(&[404]);
    "Empties one subscription on each of the bundle's topics that has it."
    CLEAR_BACKLOG_OF = Route::post(at!("/clearBacklog/{subscription}"), "clearSubscriptionBacklog", Action::SkipMessages).fails(&[404]);
    "Deletes one subscription on each of the bundle's topics that has it; none of its consumers may be connected."
    UNSUBSCRIBE = Route::post(at!("/unsubscribe/{subscription}"), "unsubscribe", Action::DeleteSubscription).fails(&[404, 412]);
}
