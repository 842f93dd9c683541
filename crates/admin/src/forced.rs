//! Deleting what has something in it: a namespace with its topics, by force; a tenant with its namespaces, by force; a
//! namespace with nothing but topics of the system.
//!
//! Off unless the settings say otherwise. Topics go by the same way as one by one, with their producers and consumers
//! disconnected. A request that is given up in the middle leaves a namespace with fewer topics; asking again goes on.

use std::convert::identity;
use std::time::Duration;

use futures_util::FutureExt as _;
use pharos_broker_admin::AdminError;
use pharos_catalog::{ListMode, NamespaceError};
use pharos_runtime::many;
use pharos_types::{Domain, NamespaceName, TopicName};

use crate::error::{ApiError, ApiResult};
use crate::state::Admin;

/// Number of times that the topics of a namespace are listed again, and the pause before each: topics that were being
/// created when the deletion began appear within that time.
const ROUNDS_MAX: u32 = 50;
const ROUND_PAUSE: Duration = Duration::from_millis(100);

/// Deletes a namespace and everything in it.
pub(crate) async fn delete_with_topics(admin: &Admin, name: &NamespaceName) -> ApiResult<()> {
    if !admin.options.force_delete_namespace {
        return Err(ApiError::not_allowed(
            "Broker doesn't allow forced deletion of namespaces",
        ));
    }
    let _leaving = admin.catalog.namespaces().begin_delete(name)?;
    for round in 1.. {
        delete_topics(admin, name).await?;
        match admin.catalog.namespaces().delete(name).await {
            Err(NamespaceError::NotEmpty) if round < ROUNDS_MAX => tokio::time::sleep(ROUND_PAUSE).await,
            outcome => return Ok(outcome?),
        }
    }
    Ok(())
}

/// Deletes a namespace without topics of users. Those that the system keeps there for itself go first, with what they store.
pub(crate) async fn delete_empty(admin: &Admin, name: &NamespaceName) -> ApiResult<()> {
    let leaving = admin.catalog.namespaces().begin_delete(name)?;
    let topics = admin.catalog.topics(name, ListMode::Persistent, true);
    let wholes = [Domain::Persistent, Domain::NonPersistent]
        .map(|domain| admin.catalog.partitioned().names(name, domain))
        .concat();
    if topics.iter().chain(&wholes).all(TopicName::is_system) {
        delete_topics(admin, name).await?;
    }
    admin.catalog.namespaces().delete(name).await?;
    drop(leaving);
    Ok(())
}

/// Deletes a tenant and all its namespaces.
pub(crate) async fn delete_with_namespaces(admin: &Admin, tenant: &str) -> ApiResult<()> {
    if !admin.options.force_delete_tenant {
        return Err(ApiError::not_allowed(
            "Broker doesn't allow forced deletion of tenants",
        ));
    }
    for name in admin.catalog.namespaces().of(tenant) {
        delete_with_topics(admin, &name).await?;
    }
    admin.catalog.tenants().delete(tenant).await?;
    Ok(())
}

/// Deletes what is in a namespace now. What is gone meanwhile is fine.
async fn delete_topics(admin: &Admin, name: &NamespaceName) -> ApiResult<()> {
    let gone = |outcome: Result<(), AdminError>| match outcome {
        Err(AdminError::NotFound(_)) => Ok(()),
        outcome => outcome,
    };
    let mut whole: Vec<TopicName> = Vec::new();
    for domain in [Domain::Persistent, Domain::NonPersistent] {
        whole.extend(admin.catalog.partitioned().names(name, domain));
    }
    let delete = |topic| admin.topics.delete_partitioned(topic, true).map(gone);
    many(whole, delete, identity).await?;
    let topics = admin.catalog.topics(name, ListMode::All, true);
    let delete = |topic| admin.topics.delete_topic(topic, true).map(gone);
    Ok(many(topics, delete, identity).await?)
}
