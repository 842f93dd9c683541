//! The clusters that have the data of a topic.

use serde_json::Value;

use super::value::{PolicyValue, ToJson};

/// Names of clusters, this one among them; an empty list says nothing: the data is here alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationClusters(pub Vec<String>);

impl PolicyValue for ReplicationClusters {
    type Json = Vec<String>;

    fn from_json(said: Vec<String>, _: &Self) -> Self {
        Self(said)
    }
}

impl ToJson for ReplicationClusters {
    fn to_json(&self) -> Option<Value> {
        (!self.0.is_empty()).then(|| self.0.clone().into())
    }
}
