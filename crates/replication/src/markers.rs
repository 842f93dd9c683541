//! Markers that clusters exchange about subscriptions: entries of the topic's log that no consumer gets, in Pulsar's
//! form.
//!
//! ```text
//!   Request   to all        how far are you?
//!   Response  to who asked  this far
//!   Snapshot  stays here    what lies before this place here, and before those places there, is the same
//!   Update    to all        a subscription acknowledged everything before those places
//! ```
//! They travel with the messages, in log order: [`Snapshots`](crate::Snapshots) explains why that is enough.

use std::collections::BTreeMap;

use bytes::Bytes;
use pharos_types::{EntryId, LedgerId, Position};
use pharos_wire::message::{self, encode_entry};
use pharos_wire::proto::{
    ClusterMessageId, MarkerType, MarkersMessageIdData, MessageMetadata, ReplicatedSubscriptionsSnapshot,
    ReplicatedSubscriptionsSnapshotRequest, ReplicatedSubscriptionsSnapshotResponse,
    ReplicatedSubscriptionsUpdate,
};
use prost::Message as _;

/// The producer of all of them.
const PRODUCER: &str = "pulsar.marker";

/// A place in the topic of each cluster.
pub type ClusterPlaces = BTreeMap<Box<str>, Position>;

/// Marker about subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Asks every other cluster how far it is.
    Request {
        /// Comes back in the answers.
        id: String,
    },
    /// Answers a request.
    Response {
        /// Id of the request.
        id: String,
        /// Cluster that answers.
        cluster: String,
        /// Everything up to here, this included, was there before the answer.
        position: Position,
    },
    /// Result of the answers.
    Snapshot {
        /// Id of the first request.
        id: String,
        /// Here.
        local: Position,
        /// There.
        clusters: ClusterPlaces,
    },
    /// A subscription moved.
    Update {
        /// Its name.
        subscription: String,
        /// Up to where, these included.
        clusters: ClusterPlaces,
    },
}

/// True if an entry with this marker is replicated to other clusters.
#[must_use]
pub fn is_of_subscriptions(marker_type: i32) -> bool {
    matches!(
        MarkerType::try_from(marker_type),
        Ok(MarkerType::ReplicatedSubscriptionSnapshotRequest
            | MarkerType::ReplicatedSubscriptionSnapshotResponse
            | MarkerType::ReplicatedSubscriptionSnapshot
            | MarkerType::ReplicatedSubscriptionUpdate)
    )
}

impl Marker {
    /// As an entry of the log. `local`: this cluster. `only`: the one cluster that it is for; `None`: all of them.
    #[must_use]
    pub fn encode(&self, local: &str, only: Option<&str>, now_ms: u64) -> Bytes {
        let (kind, payload) = match self {
            Self::Request { id } => {
                let request = ReplicatedSubscriptionsSnapshotRequest {
                    snapshot_id: id.clone(),
                    source_cluster: Some(local.to_owned()),
                };
                (
                    MarkerType::ReplicatedSubscriptionSnapshotRequest,
                    request.encode_to_vec(),
                )
            }
            Self::Response {
                id,
                cluster,
                position,
            } => {
                let response = ReplicatedSubscriptionsSnapshotResponse {
                    snapshot_id: id.clone(),
                    cluster: Some(place_of(cluster, *position)),
                };
                (
                    MarkerType::ReplicatedSubscriptionSnapshotResponse,
                    response.encode_to_vec(),
                )
            }
            Self::Snapshot { id, local, clusters } => {
                let snapshot = ReplicatedSubscriptionsSnapshot {
                    snapshot_id: id.clone(),
                    local_message_id: Some(id_of(*local)),
                    clusters: places_of(clusters),
                };
                (
                    MarkerType::ReplicatedSubscriptionSnapshot,
                    snapshot.encode_to_vec(),
                )
            }
            Self::Update {
                subscription,
                clusters,
            } => {
                let update = ReplicatedSubscriptionsUpdate {
                    subscription_name: subscription.clone(),
                    clusters: places_of(clusters),
                };
                (MarkerType::ReplicatedSubscriptionUpdate, update.encode_to_vec())
            }
        };
        let metadata = MessageMetadata {
            producer_name: PRODUCER.to_owned(),
            sequence_id: 0,
            publish_time: now_ms,
            marker_type: Some(kind as i32),
            replicate_to: only.into_iter().map(str::to_owned).collect(),
            ..MessageMetadata::default()
        };
        encode_entry(&metadata, &payload)
    }

    /// Reads one, and the cluster that it came from; `None` there: it was written here. `None`: the entry is something else, or
    /// cannot be read.
    #[must_use]
    pub fn decode(entry: &[u8]) -> Option<(Option<&str>, Self)> {
        let parts = message::split_ref(entry).ok()?;
        let facts = message::peek(parts.metadata).ok()?;
        let kind = MarkerType::try_from(facts.marker_type?).ok()?;
        let marker = match kind {
            MarkerType::ReplicatedSubscriptionSnapshotRequest => {
                let request = ReplicatedSubscriptionsSnapshotRequest::decode(parts.payload).ok()?;
                Self::Request {
                    id: request.snapshot_id,
                }
            }
            MarkerType::ReplicatedSubscriptionSnapshotResponse => {
                let response = ReplicatedSubscriptionsSnapshotResponse::decode(parts.payload).ok()?;
                let place = response.cluster?;
                Self::Response {
                    id: response.snapshot_id,
                    position: position_of(place.message_id),
                    cluster: place.cluster,
                }
            }
            MarkerType::ReplicatedSubscriptionSnapshot => {
                let snapshot = ReplicatedSubscriptionsSnapshot::decode(parts.payload).ok()?;
                Self::Snapshot {
                    id: snapshot.snapshot_id,
                    local: position_of(snapshot.local_message_id?),
                    clusters: of_places(snapshot.clusters),
                }
            }
            MarkerType::ReplicatedSubscriptionUpdate => {
                let update = ReplicatedSubscriptionsUpdate::decode(parts.payload).ok()?;
                Self::Update {
                    subscription: update.subscription_name,
                    clusters: of_places(update.clusters),
                }
            }
            _ => return None,
        };
        let from = match facts.replicated_from {
            Some(from) => Some(std::str::from_utf8(from).ok()?),
            None => None,
        };
        Some((from, marker))
    }
}

fn id_of(position: Position) -> MarkersMessageIdData {
    MarkersMessageIdData {
        ledger_id: position.ledger.0,
        entry_id: position.entry.0,
    }
}

fn position_of(id: MarkersMessageIdData) -> Position {
    Position {
        ledger: LedgerId(id.ledger_id),
        entry: EntryId(id.entry_id),
    }
}

fn place_of(cluster: &str, position: Position) -> ClusterMessageId {
    ClusterMessageId {
        cluster: cluster.to_owned(),
        message_id: id_of(position),
    }
}

fn places_of(clusters: &ClusterPlaces) -> Vec<ClusterMessageId> {
    let places = clusters.iter();
    places.map(|(cluster, place)| place_of(cluster, *place)).collect()
}

fn of_places(places: Vec<ClusterMessageId>) -> ClusterPlaces {
    let places = places.into_iter();
    places
        .map(|place| (place.cluster.into(), position_of(place.message_id)))
        .collect()
}

#[cfg(test)]
mod tests {
    use pharos_wire::message::Relayed;

    use super::*;
    use crate::outgoing::{Fate, Passed, outgoing};

    fn all() -> [Marker; 4] {
        let clusters = ClusterPlaces::from([("west".into(), Position::new(3, 4))]);
        [
            Marker::Request { id: "i".to_owned() },
            Marker::Response {
                id: "i".to_owned(),
                cluster: "west".to_owned(),
                position: Position::new(3, 4),
            },
            Marker::Snapshot {
                id: "i".to_owned(),
                local: Position::new(1, 2),
                clusters: clusters.clone(),
            },
            Marker::Update {
                subscription: "s".to_owned(),
                clusters,
            },
        ]
    }

    #[test]
    fn a_marker_is_read_as_it_was_written_here_and_there() {
        for marker in all() {
            let entry = marker.encode("east", None, 7);
            assert_eq!(Marker::decode(&entry), Some((None, marker.clone())));
            let parts = message::split_ref(&entry).unwrap();
            let change = Relayed {
                from: "east",
                position: Position::new(5, 6),
                schema_version: b"",
            };
            let there = message::relayed(&parts, change).unwrap();
            assert_eq!(Marker::decode(&there), Some((Some("east"), marker)));
            assert!(matches!(
                outgoing(&there, "east", 0),
                Fate::Passed(Passed::Replicated)
            ));
        }
    }

    #[test]
    fn a_marker_goes_to_whom_it_is_for() {
        let [request, response, snapshot, _] = all();
        let goes = |entry: &[u8], to: &str| matches!(outgoing(entry, to, 0), Fate::Sent(_));
        assert!(goes(&request.encode("east", None, 7), "west"));
        let entry = response.encode("east", Some("west"), 7);
        assert!(goes(&entry, "west") && !goes(&entry, "north"));
        assert!(!goes(&snapshot.encode("east", Some("east"), 7), "west"));
    }

    #[test]
    fn what_is_no_marker_or_broken_is_none() {
        let metadata = MessageMetadata {
            producer_name: "p".to_owned(),
            ..MessageMetadata::default()
        };
        assert_eq!(Marker::decode(&encode_entry(&metadata, b"x")), None);
        let broken = MessageMetadata {
            marker_type: Some(13),
            ..metadata.clone()
        };
        assert_eq!(Marker::decode(&encode_entry(&broken, b"\xff\xff")), None);
        let of_transactions = MessageMetadata {
            marker_type: Some(21),
            ..metadata
        };
        assert_eq!(Marker::decode(&encode_entry(&of_transactions, b"")), None);
        assert_eq!(Marker::decode(b"\xff"), None);
    }
}
