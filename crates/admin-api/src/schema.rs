//! Schemas.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A schema to store or to check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PostSchemaPayload {
    /// Upper-case type name: `AVRO`, `JSON`, `STRING`, `KEY_VALUE`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The definition as text.
    pub schema: String,
    /// Properties; clients write `null` for none.
    #[serde(deserialize_with = "or_none")]
    pub properties: BTreeMap<String, String>,
}

fn or_none<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A version number in an object of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LongSchemaVersion {
    /// The version, from 0.
    pub version: i64,
}

/// Answer to storing a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PostSchemaResponse {
    /// The version it got, or has had all along.
    pub version: LongSchemaVersion,
}

/// Answer to deleting a topic's schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeleteSchemaResponse {
    /// The version of the deletion mark.
    pub version: i64,
}

/// One stored schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GetSchemaResponse {
    /// Its version.
    pub version: i64,
    /// Upper-case type name.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it was stored, milliseconds since 1970.
    pub timestamp: i64,
    /// The definition as text; for `KEY_VALUE` a JSON `{"key":…,"value":…}`.
    pub data: String,
    /// Properties.
    pub properties: BTreeMap<String, String>,
}

/// All stored schemas of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct GetAllVersionsSchemaResponse {
    /// Rising by version.
    pub get_schema_responses: Vec<GetSchemaResponse>,
}

/// Whether a schema would be accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct IsCompatibilityResponse {
    /// Whether.
    #[serde(rename = "compatibility")]
    pub compatible: bool,
    /// By which rule.
    #[serde(rename = "schemaCompatibilityStrategy")]
    pub schema_compatibility_strategy: String,
}
