//! Namespaces: making, listing, deleting, their topics and properties.

use std::collections::BTreeMap;

use serde_json::Value;

use pharos_auth::Action;

use super::{Resource, Route};
use crate::query::{ForceQuery, NamespaceTopicsQuery};
use crate::{BundlesData, TopicGrant, TopicRevocation};

const ONE: &str = "/admin/v2/namespaces/{tenant}/{namespace}";

macro_rules! at {
    ($rest:literal) => {
        concat!("/admin/v2/namespaces/{tenant}/{namespace}", $rest)
    };
}

table! { Resource::Namespaces;
    "Lists the namespaces of a tenant."
    LIST = Route::get("/admin/v2/namespaces/{tenant}", "list", Action::ListNamespaces).json::<Vec<String>>().fails(&[404]);
    "All policies of a namespace."
    READ = Route::get(ONE, "read", Action::ReadNamespace).json::<BTreeMap<String, Value>>().fails(&[404]);
    "Makes a namespace, with policies if any are given."
    CREATE = Route::put(ONE, "create", Action::CreateNamespace).may_take::<BTreeMap<String, Value>>().fails(&[403, 404, 405, 409, 501]);
    "Deletes a namespace that has no topics of users; with `force` its topics as well, where settings allow that."
    DELETE = Route::delete(ONE, "delete", Action::DeleteNamespace).query::<ForceQuery>().fails(&[404, 405, 409]);
    "Lists the topics of a namespace."
    TOPICS = Route::get(at!("/topics"), "topics", Action::ListTopics).query::<NamespaceTopicsQuery>().json::<Vec<String>>().fails(&[404]);
    "How the namespace's hash space is cut."
    BUNDLES = Route::get(at!("/bundles"), "bundles", Action::ReadNamespace).json::<BundlesData>().fails(&[404]);
    "What roles may do in a namespace."
    PERMISSIONS = Route::get(at!("/permissions"), "permissions", Action::ReadPermissions).json::<BTreeMap<String, Vec<String>>>().fails(&[404]);
    "The roles that may use a subscription, of those subscriptions that name some."
    SUBSCRIPTION_PERMISSIONS = Route::get(at!("/permissions/subscription"), "subscriptionPermissions", Action::ReadPermissions)
        .json::<BTreeMap<String, Vec<String>>>().fails(&[404]);
    "Grants a role these permissions in a namespace, in place of those it had."
    GRANT = Route::post(at!("/permissions/{role}"), "grant", Action::UpdatePermissions).takes::<Vec<String>>().fails(&[404, 409]);
    "Takes all permissions in a namespace from a role."
    REVOKE = Route::delete(at!("/permissions/{role}"), "revoke", Action::UpdatePermissions).fails(&[404, 409]);
    "Grants roles permissions on topics, in place of those they had there; all of one namespace or none."
    GRANT_ON_TOPICS = Route::post("/admin/v2/namespaces/grantPermissionsOnTopics", "grantOnTopics", Action::UpdateManyPermissions)
        .takes::<Vec<TopicGrant>>().fails(&[404, 409]);
    "Takes the permissions on topics from roles; what was not granted is no failure."
    REVOKE_ON_TOPICS = Route::post("/admin/v2/namespaces/revokePermissionsOnTopics", "revokeOnTopics", Action::UpdateManyPermissions)
        .takes::<Vec<TopicRevocation>>().fails(&[404, 409]);
    "Lets only these roles use a subscription, of those that may consume."
    GRANT_SUBSCRIPTION = Route::post(at!("/permissions/subscription/{subscription}"), "grantSubscription", Action::UpdatePermissions)
        .takes::<Vec<String>>().fails(&[404, 409]);
    "Takes a role from those that may use a subscription; one that has none left is for all that may consume."
    REVOKE_SUBSCRIPTION = Route::delete(at!("/permissions/{subscription}/{role}"), "revokeSubscription", Action::UpdatePermissions)
        .fails(&[404, 409]);
    "The same of a subscription that is called `subscription`; the last part of the path is the role."
    REVOKE_SUBSCRIPTION_SUBSCRIPTION = Route::delete(
        at!("/permissions/subscription/{subscription}"), "revokeSubscriptionSubscription", Action::UpdatePermissions,
    ).fails(&[404, 409]);
    "The resource group of a namespace; it is in none."
    RESOURCE_GROUP = Route::get(at!("/resourcegroup"), "resourceGroup", Action::ReadNamespace).done(204).fails(&[404]);
    "Unloads the topics of a namespace."
    UNLOAD = Route::put(at!("/unload"), "unload", Action::UnloadNamespace).fails(&[404]);
    "Empties all subscriptions of the namespace's topics."
    CLEAR_BACKLOG = Route::post(at!("/clearBacklog"), "clearBacklog", Action::SkipMessages).fails(&[404]);
    "Empties one subscription on each of the namespace's topics that has it."
    CLEAR_BACKLOG_OF = Route::post(at!("/clearBacklog/{subscription}"), "clearSubscriptionBacklog", Action::SkipMessages).fails(&[404]);
    "Deletes one subscription on each of the namespace's topics that has it; none of its consumers may be connected."
    UNSUBSCRIBE = Route::post(at!("/unsubscribe/{subscription}"), "unsubscribe", Action::DeleteSubscription).fails(&[404, 412]);
    "The properties of a namespace."
    PROPERTIES = Route::get(at!("/properties"), "properties", Action::ReadNamespace).json::<BTreeMap<String, String>>().fails(&[404]);
    "Adds properties, or replaces those of the same names."
    SET_PROPERTIES = Route::put(at!("/properties"), "setProperties", Action::UpdateNamespace).takes::<BTreeMap<String, String>>().fails(&[404, 409]);
    "Removes all properties."
    CLEAR_PROPERTIES = Route::delete(at!("/properties"), "clearProperties", Action::UpdateNamespace).fails(&[404, 409]);
    "One property."
    PROPERTY = Route::get(at!("/property/{key}"), "property", Action::ReadNamespace).text().fails(&[404]);
    "Removes one property."
    REMOVE_PROPERTY = Route::delete(at!("/property/{key}"), "removeProperty", Action::UpdateNamespace).text_or_nothing().fails(&[404, 409]);
    "Sets one property."
    SET_PROPERTY = Route::put(at!("/property/{key}/{value}"), "setProperty", Action::UpdateNamespace).fails(&[404, 409]);
}
