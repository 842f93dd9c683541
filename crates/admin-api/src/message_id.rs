//! Message ids as JSON.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A message id in an answer (`lastMessageId`, `terminate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MessageIdJson {
    /// Ledger id; -1 when there is no ledger.
    pub ledger_id: i64,
    /// Entry id; -1 when there is no entry.
    pub entry_id: i64,
    /// Partition, -1 when the topic is none.
    pub partition_index: i32,
    /// Index in the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_index: Option<i32>,
    /// Members of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<i32>,
}

/// A place in a topic as clients send it: to create a subscription, to reset one, to expire up to it.
///
/// Absent members mean "earliest": -1 everywhere. Read also from the bare words `"earliest"` and `"latest"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResetCursorData {
    /// Ledger id; -1 earliest, 9223372036854775807 latest.
    pub ledger_id: i64,
    /// Entry id; likewise.
    pub entry_id: i64,
    /// Partition, -1 for none.
    pub partition_index: i32,
    /// Index in the batch, -1 for the whole entry.
    pub batch_index: i32,
    /// Subscription properties, when creating one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<BTreeMap<String, String>>,
    /// Start after this message rather than at it.
    pub excluded: bool,
}

/// The members of a place.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(Serialize, schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
struct Members {
    /// Ledger id; -1 earliest, 9223372036854775807 latest.
    ledger_id: i64,
    /// Entry id; likewise.
    entry_id: i64,
    /// Partition, -1 for none.
    partition_index: i32,
    /// Index in the batch, -1 for the whole entry.
    batch_index: i32,
    /// Subscription properties, when creating one.
    properties: Option<BTreeMap<String, String>>,
    /// Start after this message rather than at it; also called `isExcluded`.
    #[serde(alias = "isExcluded")]
    excluded: bool,
}

#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{Members, ResetCursorData};

    /// What is read, which is more than what is written.
    impl JsonSchema for ResetCursorData {
        fn schema_name() -> Cow<'static, str> {
            "ResetCursorData".into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            json_schema!({
                "description": "A place in a topic.",
                "anyOf": [{ "enum": ["earliest", "latest"] }, Members::json_schema(generator)],
            })
        }
    }
}

impl Default for Members {
    fn default() -> Self {
        Self {
            ledger_id: -1,
            entry_id: -1,
            partition_index: -1,
            batch_index: -1,
            properties: None,
            excluded: false,
        }
    }
}

impl<'de> Deserialize<'de> for ResetCursorData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match value.as_str() {
            Some("earliest") => return Ok(Self::earliest()),
            Some("latest") => return Ok(Self::latest()),
            Some(other) => {
                return Err(D::Error::custom(format!(
                    "Invalid value {other} for the position. Allowed values are [latest, earliest]"
                )));
            }
            None => {}
        }
        let members = Members::deserialize(value).map_err(D::Error::custom)?;
        Ok(members.into())
    }
}

impl Default for ResetCursorData {
    fn default() -> Self {
        Self::from(Members::default())
    }
}

impl From<Members> for ResetCursorData {
    fn from(members: Members) -> Self {
        Self {
            ledger_id: members.ledger_id,
            entry_id: members.entry_id,
            partition_index: members.partition_index,
            batch_index: members.batch_index,
            properties: members.properties,
            excluded: members.excluded,
        }
    }
}

impl ResetCursorData {
    /// Before the first message that exists.
    #[must_use]
    pub fn earliest() -> Self {
        Self::default()
    }

    /// After the last message.
    #[must_use]
    pub fn latest() -> Self {
        Self {
            ledger_id: i64::MAX,
            entry_id: i64::MAX,
            ..Self::default()
        }
    }

    /// Whether it means [`earliest`](Self::earliest).
    #[must_use]
    pub fn is_earliest(&self) -> bool {
        self.ledger_id < 0
    }

    /// Whether it means [`latest`](Self::latest).
    #[must_use]
    pub fn is_latest(&self) -> bool {
        self.ledger_id == i64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_may_be_a_word() {
        let of = |text: &str| serde_json::from_str::<ResetCursorData>(text);
        assert!(of(r#""earliest""#).unwrap().is_earliest() && of("{}").unwrap().is_earliest());
        assert!(of(r#""latest""#).unwrap().is_latest());
        let error = of(r#""soon""#).unwrap_err().to_string();
        assert!(error.contains("Allowed values are [latest, earliest]"), "{error}");
        let place = of(r#"{"ledgerId":3,"entryId":4,"isExcluded":true}"#).unwrap();
        assert_eq!(
            (place.ledger_id, place.entry_id, place.batch_index, place.excluded),
            (3, 4, -1, true)
        );
    }
}
