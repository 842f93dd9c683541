//! Updates that the engine's thread follows: the bookies, their racks and their free disk space.

use std::sync::Arc;

use super::{Inner, STORE_PAUSE};
use crate::wire::{Request, Response};

impl Inner {
    pub(super) async fn ask_for_bookies(&self) -> Result<(), pharos_metadata::ReadError> {
        let prefix = format!("{}/available/", self.store.root());
        let items = self.store.store().scan(&prefix).await?;
        self.directory.update(&prefix, &items);
        Ok(())
    }

    /// Bookies come and go.
    pub(super) async fn follow_bookies(&self) {
        let prefix = format!("{}/available/", self.store.root());
        let mut watch = self.store.store().watch(&prefix);
        loop {
            while let Err(error) = self.ask_for_bookies().await {
                tracing::warn!(%error, "cannot ask for bookies");
                tokio::time::sleep(STORE_PAUSE).await;
            }
            if watch.next().await.is_none() {
                return;
            }
        }
    }

    pub(super) async fn ask_for_racks(&self) -> Result<(), pharos_metadata::ReadError> {
        let key = &self.options.racks_key;
        let text = self.store.store().get(key).await?.map(|found| found.value);
        if let Err(error) = self.directory.describe(&text.unwrap_or_default()) {
            tracing::warn!(%key, %error, "racks and groups of bookies cannot be read; those known before stay");
        }
        Ok(())
    }

    /// Operators move bookies.
    pub(super) async fn follow_racks(&self) {
        let mut watch = self.store.store().watch(&self.options.racks_key);
        loop {
            while let Err(error) = self.ask_for_racks().await {
                tracing::warn!(%error, "cannot ask for the racks of bookies");
                tokio::time::sleep(STORE_PAUSE).await;
            }
            if watch.next().await.is_none() {
                return;
            }
        }
    }

    /// Asks every bookie for the room on its disks, again and again.
    pub(super) async fn ask_for_room(self: Arc<Self>) {
        loop {
            for bookie in self.directory.writable() {
                let inner = Arc::clone(&self);
                let of = bookie.clone();
                let reply = move |answer| match answer {
                    Ok(Response::Info { free, .. }) => inner.directory.has_room(&of, free),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(bookie = %of, %error, "a bookie does not tell of its disks")
                    }
                };
                self.call(
                    &bookie,
                    &Request::Info,
                    self.options.read_timeout,
                    Box::new(reply),
                );
            }
            tokio::time::sleep(self.options.free_disk_interval).await;
        }
    }
}
