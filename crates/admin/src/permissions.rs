//! Who may do what in a namespace, on a topic and on a subscription: granting, revoking, looking.
//!
//! Grants are stored in the namespace's policies as Pulsar stores them ([`AUTH_POLICIES`]), whether authorization is on or off;
//! while it is off nothing asks them. They hold from the answer on, for what is asked from then on. A producer or consumer that
//! was let in stays.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde_json::{Map, Value, json};

use pharos_admin_api::{TopicGrant, TopicRevocation};
use pharos_auth::{
    AUTH_POLICIES, Access, Action, NAMESPACE_AUTH, Permission, Principal, Resource, SUBSCRIPTION_AUTH,
    TOPIC_AUTH,
};
use pharos_catalog::Policies;
use pharos_types::{NamespaceName, TopicName};

use crate::body::RequiredJson;
use crate::error::{ApiError, ApiResult};
use crate::namespaces::policies_of;
use crate::paths::{NamespacePath, PathParams, TopicPath};
use crate::state::Admin;
use crate::topics::known;

/// Names by role or subscription, as REST has them.
type Names = BTreeMap<String, BTreeSet<String>>;

pub(crate) async fn of_namespace(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<Json<Names>> {
    let policies = policies_of(&admin, &name)?;
    Ok(Json(names(part(&policies, NAMESPACE_AUTH))))
}

pub(crate) async fn of_subscriptions(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<Json<Names>> {
    let policies = policies_of(&admin, &name)?;
    Ok(Json(names(part(&policies, SUBSCRIPTION_AUTH))))
}

/// Permissions of roles on a topic: grants of its namespace, of the topic, and of its partitioned topic.
pub(crate) async fn of_topic(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<Json<Names>> {
    known(&admin, &topic)?;
    let policies = policies_of(&admin, topic.namespace())?;
    let mut found = names(part(&policies, NAMESPACE_AUTH));
    let topics = part(&policies, TOPIC_AUTH);
    for name in BTreeSet::from([topic.to_string(), topic.base().to_string()]) {
        let roles = topics
            .and_then(|topics| topics.get(&name))
            .and_then(Value::as_object);
        for (role, permissions) in names(roles) {
            found.entry(role).or_default().extend(permissions);
        }
    }
    Ok(Json(found))
}

pub(crate) async fn grant_on_namespace(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
    RequiredJson(permissions): RequiredJson<BTreeSet<String>>,
) -> ApiResult<StatusCode> {
    let (role, permissions) = (role_of(&params)?, check(&permissions)?);
    change(&admin, &name, NAMESPACE_AUTH, |roles| {
        roles.insert(role.clone(), permissions.clone());
    })
    .await
}

pub(crate) async fn revoke_on_namespace(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    let role = role_of(&params)?;
    change(&admin, &name, NAMESPACE_AUTH, |roles| {
        roles.remove(&role);
    })
    .await
}

pub(crate) async fn grant_on_topic(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    params: PathParams,
    RequiredJson(permissions): RequiredJson<BTreeSet<String>>,
) -> ApiResult<StatusCode> {
    let (role, permissions) = (role_of(&params)?, check(&permissions)?);
    change(&admin, topic.namespace(), TOPIC_AUTH, |topics| {
        if let Some(roles) = object(topics, &topic.to_string()) {
            roles.insert(role.clone(), permissions.clone());
        }
    })
    .await
}

pub(crate) async fn revoke_on_topic(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    let (role, name) = (role_of(&params)?, topic.to_string());
    let policies = policies_of(&admin, topic.namespace())?;
    let has_role = |policies: &Policies| {
        let roles = part(policies, TOPIC_AUTH).and_then(|topics| topics.get(&name));
        roles.is_some_and(|roles| roles.get(&role).is_some())
    };
    if !has_role(&policies) {
        return Err(ApiError::precondition(
            "Permissions are not set at the topic level",
        ));
    }
    change(&admin, topic.namespace(), TOPIC_AUTH, |topics| {
        let Some(roles) = object(topics, &name) else {
            return;
        };
        roles.remove(&role);
        if roles.is_empty() {
            topics.remove(&name);
        }
    })
    .await
}

/// Grants on several topics. All are looked at, and asked about, before the first is changed; those of a namespace are changed
/// together.
pub(crate) async fn grant_on_topics(
    State(admin): State<Admin>,
    Extension(access): Extension<Access>,
    Extension(who): Extension<Principal>,
    RequiredJson(wanted): RequiredJson<Vec<TopicGrant>>,
) -> ApiResult<StatusCode> {
    let mut changes = Changes::new();
    for wish in &wanted {
        let listed: BTreeSet<String> = wish.actions.iter().cloned().collect();
        let permissions = check(&listed)?;
        add_change(
            &mut changes,
            &access,
            &who,
            (&wish.topic, &wish.role),
            Some(permissions),
        )?;
    }
    make_changes(&admin, &changes).await
}

/// Revokes on several topics, in the same way.
pub(crate) async fn revoke_on_topics(
    State(admin): State<Admin>,
    Extension(access): Extension<Access>,
    Extension(who): Extension<Principal>,
    RequiredJson(wanted): RequiredJson<Vec<TopicRevocation>>,
) -> ApiResult<StatusCode> {
    let mut changes = Changes::new();
    for wish in &wanted {
        add_change(&mut changes, &access, &who, (&wish.topic, &wish.role), None)?;
    }
    make_changes(&admin, &changes).await
}

/// By namespace: topic, role, and what it may from then on.
type Changes = BTreeMap<NamespaceName, Vec<(String, String, Option<Value>)>>;

/// Notes a change, if the caller may make it.
fn add_change(
    changes: &mut Changes,
    access: &Access,
    who: &Principal,
    (topic, role): (&str, &str),
    permissions: Option<Value>,
) -> ApiResult<()> {
    let name: TopicName = topic
        .parse()
        .map_err(|error| ApiError::precondition(format!("'{topic}' is no topic: {error}")))?;
    let asked = access.check(who, Action::UpdatePermissions, Resource::Topic(&name));
    asked.map_err(|denied| ApiError::denied(&denied))?;
    if role.is_empty() {
        return Err(ApiError::precondition("a role has a name"));
    }
    let of_namespace = changes.entry(name.namespace().clone()).or_default();
    of_namespace.push((name.to_string(), role.to_owned(), permissions));
    Ok(())
}

async fn make_changes(admin: &Admin, changes: &Changes) -> ApiResult<StatusCode> {
    for namespace in changes.keys() {
        policies_of(admin, namespace)?;
    }
    for (namespace, wanted) in changes {
        change(admin, namespace, TOPIC_AUTH, |topics| {
            for (topic, role, permissions) in wanted {
                match (object(topics, topic), permissions) {
                    (Some(roles), Some(permissions)) => drop(roles.insert(role.clone(), permissions.clone())),
                    (Some(roles), None) => drop(roles.remove(role)),
                    (None, _) => {}
                }
            }
            topics.retain(|_, roles| roles.as_object().is_none_or(|roles| !roles.is_empty()));
        })
        .await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn grant_on_subscription(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
    RequiredJson(roles): RequiredJson<BTreeSet<String>>,
) -> ApiResult<StatusCode> {
    let subscription = params.get("subscription").to_owned();
    change(&admin, &name, SUBSCRIPTION_AUTH, |all| {
        all.insert(subscription.clone(), json!(roles));
    })
    .await
}

/// Takes one role from a subscription. One that has none left is for all who may consume, as in Pulsar.
pub(crate) async fn revoke_on_subscription(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    revoke_use(&admin, &name, params.get("subscription"), &role_of(&params)?).await
}

/// Revokes a permission on the subscription `subscription`. Its path is the one that grants roles on other
/// subscriptions, so the role takes the place of the subscription.
pub(crate) async fn revoke_on_subscription_subscription(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
    params: PathParams,
) -> ApiResult<StatusCode> {
    revoke_use(&admin, &name, "subscription", params.get("subscription")).await
}

async fn revoke_use(
    admin: &Admin,
    name: &NamespaceName,
    subscription: &str,
    role: &str,
) -> ApiResult<StatusCode> {
    change(admin, name, SUBSCRIPTION_AUTH, |all| {
        if let Some(Value::Array(roles)) = all.get_mut(subscription) {
            roles.retain(|listed| listed.as_str() != Some(role));
        }
    })
    .await
}

fn role_of(params: &PathParams) -> ApiResult<String> {
    match params.get("role") {
        "" => Err(ApiError::precondition("a role has a name")),
        role => Ok(role.to_owned()),
    }
}

/// The names of permissions, all of which must be known.
fn check(permissions: &BTreeSet<String>) -> ApiResult<Value> {
    match permissions.iter().find(|name| Permission::of(name).is_none()) {
        Some(unknown) => Err(ApiError::bad_request(format!(
            "'{unknown}' is none of produce, consume, functions, sources, sinks, packages"
        ))),
        None => Ok(json!(permissions)),
    }
}

fn part<'p>(policies: &'p Policies, name: &str) -> Option<&'p Map<String, Value>> {
    policies.get(AUTH_POLICIES)?.get(name)?.as_object()
}

/// Stored grants in the form of the REST API; entries of another form grant nothing and are left out.
fn names(stored: Option<&Map<String, Value>>) -> Names {
    let entries = stored.into_iter().flatten().filter_map(|(key, listed)| {
        let listed = listed.as_array()?.iter().filter_map(Value::as_str);
        Some((key.clone(), listed.map(str::to_owned).collect()))
    });
    entries.collect()
}

/// The object in a member of another one; what is not there or has another shape becomes an empty one first.
fn object<'m>(members: &'m mut Map<String, Value>, name: &str) -> Option<&'m mut Map<String, Value>> {
    let member = members.entry(name).or_insert_with(|| json!({}));
    if !member.is_object() {
        *member = json!({});
    }
    member.as_object_mut()
}

/// Changes one part of who may do what.
async fn change(
    admin: &Admin,
    name: &NamespaceName,
    part: &str,
    change: impl Fn(&mut Map<String, Value>),
) -> ApiResult<StatusCode> {
    let changed = admin.catalog.namespaces().update_policies(name, |policies| {
        let stored = policies.get(AUTH_POLICIES).and_then(Value::as_object);
        let mut members = stored.cloned().unwrap_or_default();
        for known in [NAMESPACE_AUTH, TOPIC_AUTH, SUBSCRIPTION_AUTH] {
            object(&mut members, known);
        }
        if let Some(entries) = object(&mut members, part) {
            change(entries);
        }
        policies.set(AUTH_POLICIES, Value::Object(members));
    });
    changed.await?;
    Ok(StatusCode::NO_CONTENT)
}
