//! Offloading: asking for it, hearing what came of it, and what is particular about its policies.
//!
//! A namespace has three single policies (`offloadThreshold`, `offloadThresholdInSeconds`, `offloadDeletionLagMs`) beside the one
//! that holds all (`offloadPolicies`). Whichever was set last is what holds, as in Pulsar: [`sync`] writes it to both.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Map, Value};

use pharos_admin_api::routes::namespace_policies::REMOVE_OFFLOAD;
use pharos_admin_api::routes::offload as routes;
use pharos_admin_api::{OffloadProcessStatus, ResetCursorData};
use pharos_catalog::Policies;
use pharos_catalog::policy::{Guard, Row};
use pharos_types::{EntryId, LedgerId, Position, TopicName};

use crate::body::RequiredJson;
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::namespaces::policies_of;
use crate::partitions::single;
use crate::paths::{NamespacePath, TopicPath};
use crate::state::Admin;
use crate::topics::stored_only;

/// The policy that holds all, by its name among a namespace's policies.
const ALL: &str = "offload_policies";
/// The single policies, and the members of [`ALL`] that say the same.
const SINGLES: [(&str, &str); 3] = [
    ("offload_threshold", "managedLedgerOffloadThresholdInBytes"),
    (
        "offload_threshold_in_seconds",
        "managedLedgerOffloadThresholdInSeconds",
    ),
    (
        "offload_deletion_lag_ms",
        "managedLedgerOffloadDeletionLagInMillis",
    ),
];

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::START, offload),
        on(&routes::STATUS, status),
        on(&REMOVE_OFFLOAD, remove_policies),
    ]
}

/// The body is the message up to whose ledger all closed ledgers are offloaded.
async fn offload(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
    RequiredJson(before): RequiredJson<ResetCursorData>,
) -> ApiResult<StatusCode> {
    check_topic(&admin, &topic)?;
    let (Ok(ledger), entry) = (u64::try_from(before.ledger_id), u64::try_from(before.entry_id)) else {
        return Err(ApiError::bad_request(
            "the id of a message is expected, ledgerId and entryId",
        ));
    };
    let before = Position {
        ledger: LedgerId(ledger),
        entry: EntryId(entry.unwrap_or(0)),
    };
    admin.offload.offload(topic, before).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn status(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<Json<OffloadProcessStatus>> {
    check_topic(&admin, &topic)?;
    Ok(Json(admin.offload.offload_status(topic).await?))
}

fn check_topic(admin: &Admin, topic: &TopicName) -> ApiResult<()> {
    single(admin, topic, "Offloading")?;
    stored_only(topic, "Offloading")
}

async fn remove_policies(
    State(admin): State<Admin>,
    NamespacePath(name): NamespacePath,
) -> ApiResult<StatusCode> {
    policies_of(&admin, &name)?;
    let removed = admin.catalog.namespaces().update_policies(&name, |policies| {
        policies.remove(ALL);
        for (single, _) in SINGLES {
            policies.remove(single);
        }
    });
    removed.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Asks the broker whether it could act on a policy before it is set.
pub(crate) fn check(admin: &Admin, row: &Row, value: &Value) -> ApiResult<()> {
    match row.guard {
        Guard::OffloadDrivers => Ok(admin.offload.check_offload_policies(value)?),
        Guard::Copies => Ok(admin.bookies.check_persistence(value)?),
        _ => Ok(()),
    }
}

/// Makes the single policies and the one that holds all say the same, after `member` was set or removed.
pub(crate) fn sync(policies: &mut Policies, member: &str) {
    let all: Option<Map<String, Value>> = policies.get_as(ALL);
    let Some(mut all) = all else {
        return;
    };
    for (single, part) in SINGLES {
        if member == single {
            match policies.get(single) {
                Some(value) => drop(all.insert(part.to_owned(), value.clone())),
                None => drop(all.remove(part)),
            }
        } else if let Some(value) = all.get(part).filter(|_| member == ALL) {
            policies.set(single, value.clone());
        }
    }
    policies.set(ALL, Value::Object(all));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_set_last_holds() {
        let mut policies = Policies::default();
        policies.set("offload_threshold", json!(5));
        sync(&mut policies, "offload_threshold");
        assert!(policies.get(ALL).is_none());
        policies.set(
            ALL,
            json!({"managedLedgerOffloadDriver": "S3", "managedLedgerOffloadThresholdInBytes": 9}),
        );
        sync(&mut policies, ALL);
        assert_eq!(policies.get("offload_threshold"), Some(&json!(9)));
        policies.set("offload_threshold", json!(1));
        sync(&mut policies, "offload_threshold");
        policies.set("offload_deletion_lag_ms", json!(3));
        sync(&mut policies, "offload_deletion_lag_ms");
        let all = policies.get(ALL).unwrap();
        assert_eq!(all["managedLedgerOffloadThresholdInBytes"], json!(1));
        assert_eq!(all["managedLedgerOffloadDeletionLagInMillis"], json!(3));
        policies.remove("offload_threshold");
        sync(&mut policies, "offload_threshold");
        assert!(
            policies
                .get(ALL)
                .unwrap()
                .get("managedLedgerOffloadThresholdInBytes")
                .is_none()
        );
    }
}
