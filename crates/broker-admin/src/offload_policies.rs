//! Validation of offload policies: a policy that cannot be applied is refused, because one that is stored and ignored
//! is worse than none.

use pharos_admin_api::OffloadPolicies;
use pharos_broker::Options;
use pharos_catalog::policy::{offload_read_first, offload_target};
use serde::Deserialize as _;
use serde_json::Value;

use crate::error::AdminError;

/// Checks policies before they are set.
///
/// # Errors
/// `Precondition` with what is wrong, `Invalid` when the value has another shape.
pub(crate) fn check(value: &Value, options: &Options) -> Result<(), AdminError> {
    let policies = OffloadPolicies::deserialize(value);
    let policies = policies.map_err(|error| AdminError::Invalid(format!("offload policies: {error}")))?;
    let refuse = |reason: String| Err(AdminError::Precondition(reason));
    if let Some(member) = foreign_member(&policies) {
        return refuse(format!(
            "{member} is not available in this release: credentials come from the node's environment, and the drivers are \
             aws-s3, S3 and filesystem"
        ));
    }
    if let Some(word) = &policies.managed_ledger_offloaded_read_priority
        && offload_read_first(word).is_none()
    {
        return refuse(format!(
            "'{word}' is none of tiered-storage-first and bookkeeper-first"
        ));
    }
    let node = &options.offload;
    for (member, limit, own) in [
        (
            "…OffloadMaxBlockSizeInBytes",
            block_limit(&policies),
            node.block_bytes,
        ),
        (
            "…OffloadReadBufferSizeInBytes",
            read_limit(&policies),
            node.read_bytes,
        ),
    ] {
        let is_lower = limit.is_some_and(|limit| u64::try_from(limit).unwrap_or(0) < own);
        if is_lower {
            return refuse(format!("{member} is lower than the node's own setting, {own}"));
        }
    }
    let positive = [
        (
            "managedLedgerOffloadMaxThreads",
            policies.managed_ledger_offload_max_threads,
        ),
        (
            "managedLedgerOffloadReadThreads",
            policies.managed_ledger_offload_read_threads,
        ),
    ];
    for (member, value) in positive {
        if value.is_some_and(|value| value < 1) {
            return refuse(format!("{member} must be at least 1"));
        }
    }
    let Some(target) = offload_target(&policies) else {
        return Ok(());
    };
    match &options.managed_ledger.offloader {
        Some(offloader) => offloader
            .check_target(&target)
            .map_err(|error| AdminError::Precondition(error.to_string())),
        None => refuse("this broker has no offloader".to_owned()),
    }
}

fn block_limit(of: &OffloadPolicies) -> Option<i64> {
    let general = of.managed_ledger_offload_max_block_size_in_bytes;
    general.or(of.s3_managed_ledger_offload_max_block_size_in_bytes)
}

fn read_limit(of: &OffloadPolicies) -> Option<i64> {
    let general = of.managed_ledger_offload_read_buffer_size_in_bytes;
    general.or(of.s3_managed_ledger_offload_read_buffer_size_in_bytes)
}

/// A member that is set and that nothing here acts on. Defaults that tools always send are not such: they concern
/// drivers and plug-ins that are not chosen.
fn foreign_member(of: &OffloadPolicies) -> Option<&'static str> {
    let texts = [
        (
            "s3ManagedLedgerOffloadCredentialId",
            &of.s3_managed_ledger_offload_credential_id,
        ),
        (
            "s3ManagedLedgerOffloadCredentialSecret",
            &of.s3_managed_ledger_offload_credential_secret,
        ),
        ("s3ManagedLedgerOffloadRole", &of.s3_managed_ledger_offload_role),
        (
            "gcsManagedLedgerOffloadRegion",
            &of.gcs_managed_ledger_offload_region,
        ),
        (
            "gcsManagedLedgerOffloadBucket",
            &of.gcs_managed_ledger_offload_bucket,
        ),
        (
            "gcsManagedLedgerOffloadServiceAccountKeyFile",
            &of.gcs_managed_ledger_offload_service_account_key_file,
        ),
        ("fileSystemProfilePath", &of.file_system_profile_path),
    ];
    let maps = [
        (
            "managedLedgerExtraConfigurations",
            &of.managed_ledger_extra_configurations,
        ),
        (
            "managedLedgerOffloadDriverMetadata",
            &of.managed_ledger_offload_driver_metadata,
        ),
    ];
    let text = texts
        .into_iter()
        .find(|(_, text)| text.as_deref().is_some_and(|text| !text.is_empty()));
    let map = || {
        maps.into_iter()
            .find(|(_, map)| map.as_ref().is_some_and(|map| !map.is_empty()))
    };
    text.map(|(member, _)| member)
        .or_else(|| map().map(|(member, _)| member))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_acted_on_is_refused_and_defaults_of_tools_are_not() {
        let mut options = Options::default();
        options.offload.block_bytes = 16 << 20;
        let refused = |value: Value| match check(&value, &options) {
            Err(AdminError::Precondition(reason) | AdminError::Invalid(reason)) => reason,
            other => panic!("{other:?}"),
        };
        let secret = refused(json!({"s3ManagedLedgerOffloadCredentialSecret": "x"}));
        assert!(
            secret.contains("s3ManagedLedgerOffloadCredentialSecret"),
            "{secret}"
        );
        assert!(refused(json!({"managedLedgerOffloadedReadPriority": "tape-first"})).contains("tape-first"));
        assert!(refused(json!({"managedLedgerOffloadMaxBlockSizeInBytes": 1})).contains("lower"));
        assert!(refused(json!({"nonsense": 1})).contains("nonsense"));
        assert!(
            refused(json!({"managedLedgerOffloadThresholdInBytes": "much"})).contains("offload policies")
        );
        assert!(refused(json!({"managedLedgerOffloadDriver": "S3"})).contains("no offloader"));
        let defaults = json!({
            "offloadersDirectory": "./offloaders", "managedLedgerOffloadMaxThreads": 2,
            "managedLedgerOffloadReadThreads": 2, "managedLedgerOffloadPrefetchRounds": 1,
            "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 67_108_864, "s3ManagedLedgerOffloadRole": null,
            "gcsManagedLedgerOffloadMaxBlockSizeInBytes": 67_108_864, "s3Driver": false,
            "managedLedgerExtraConfigurations": {}, "managedLedgerOffloadThresholdInBytes": 1000,
        });
        check(&defaults, &options).unwrap();
    }
}
