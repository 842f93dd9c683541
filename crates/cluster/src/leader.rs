//! Which of the brokers leads: the one that does what is to be done once for all of them.
//!
//! ```text
//! loadbalance/leader    ephemeral, of the leader's session: its addresses
//! ```
//! The first broker that puts the key leads until its session ends; then the others try. What a leader does must be safe when two brokers
//! believe that they lead, because one of them may have been paused.

use std::sync::Arc;

use pharos_metadata::{Expect, SessionWriteError, WriteError};

use crate::{BrokerAddresses, BundleOwnership};

/// The key of the leader.
pub(crate) const LEADER: &str = "loadbalance/leader";

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
        let (Some(session), Some(us)) = (session, self.us()) else {
            return;
        };
        match session.put(LEADER, us.clone(), Expect::Absent).await {
            // The watch tells whose it is.
            Ok(_) | Err(SessionWriteError::Write(WriteError::Conflict { .. })) => {}
            Err(error) => tracing::warn!(%error, "this broker cannot become the leader"),
        }
    }
}
