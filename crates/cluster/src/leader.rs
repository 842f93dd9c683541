//! Leader election: the leader does the tasks that must be done once for all brokers.
//!
//! ```text
//! loadbalance/leader    ephemeral, of the leader's session: its addresses, and the two members that Pulsar's brokers read
//! ```
//! The first broker that puts the key leads until its session ends; then the others try. A leader's actions must be
//! safe if two brokers believe that they lead, because one of them may have been paused.

use std::sync::Arc;

use bytes::Bytes;
use pharos_metadata::{Expect, SessionWriteError, WriteError};
use serde::Serialize;

use crate::{BrokerAddresses, BundleOwnership};

/// The key of the leader.
pub(crate) const LEADER: &str = "loadbalance/leader";

/// Value of the leader's key. A Pulsar broker that starts before the key of a killed broker has expired reads it, and
/// requires it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Leading<'a> {
    #[serde(flatten)]
    addresses: &'a BrokerAddresses,
    /// `host:port` of the admin API.
    broker_id: &'a str,
    /// `http://host:port` of it.
    service_url: &'a str,
}

/// The value of the key, of a broker that registers with `us`.
fn leading(us: &Bytes) -> Option<Bytes> {
    let addresses: &BrokerAddresses = &serde_json::from_slice(us).ok()?;
    let value = Leading {
        addresses,
        broker_id: addresses.broker_id(),
        service_url: &addresses.http_url,
    };
    serde_json::to_vec(&value).ok().map(Bytes::from)
}

impl BundleOwnership {
    /// Reads who leads, and tries to when there is none.
    pub(crate) async fn look_at_leader(&self) {
        match self.store.get(LEADER).await {
            Ok(Some(found)) => {
                // One that an earlier life of this broker left goes with its session.
                let leader: Option<BrokerAddresses> = serde_json::from_slice(&found.value).ok();
                self.lock().leader = leader.map(Arc::new);
            }
            Ok(None) => {
                self.lock().leader = None;
                self.run_for_leader().await;
            }
            Err(error) => tracing::warn!(%error, "which broker leads is not known"),
        }
    }

    async fn run_for_leader(&self) {
        let session = {
            let state = self.lock();
            state.session.clone().filter(|_| !state.is_closing)
        };
        let (Some(session), Some(leading)) = (session, self.us().and_then(leading)) else {
            return;
        };
        match session.put(LEADER, leading, Expect::Absent).await {
            // The watch tells whose it is.
            Ok(_) | Err(SessionWriteError::Write(WriteError::Conflict { .. })) => {}
            Err(error) => tracing::warn!(%error, "this broker cannot become the leader"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_leader_says_is_read_by_pulsars_brokers_and_by_ours() {
        let us = br#"{"nativeUrl":"pulsar://a:6650","httpUrl":"http://a:8080"}"#;
        let value = leading(&Bytes::from_static(us)).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&value).unwrap();
        assert_eq!(read["brokerId"], "a:8080");
        assert_eq!(read["serviceUrl"], "http://a:8080");
        let ours: BrokerAddresses = serde_json::from_slice(&value).unwrap();
        assert_eq!(ours.native_url, "pulsar://a:6650");
    }
}
