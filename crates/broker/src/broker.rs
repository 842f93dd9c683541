//! The broker as a whole: its shards, and the handle by which the rest of the process reaches them.

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pharos_accounts::budget::Budget;
use pharos_accounts::tenants::Tenants;
use pharos_accounts::unwritten::Unwritten;
use pharos_catalog::Catalog;
use pharos_cluster::{Alone, HandoverError, Ownership, OwnershipError};
use pharos_feed::entry::EntryCodec;
use pharos_feed::ids::ShardId;
use pharos_ledger::LedgerEngine;
use pharos_mesh::placement::Placement;
use pharos_mesh::{
    COMPACTIONS_MAX, INBOX_BATCHES, MESH_BYTES_MAX, Message, Options, PUBLISH_BUDGET_BYTES, Shared,
};
use pharos_metadata::MetadataStore;
use pharos_requests::error::Gone;
use pharos_runtime::{Pool, ShardThread, Shutdown, clock, spawn_shard};
use pharos_transactions::Coordinators;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::shard::{Shard, job, job_with_answer};

/// Shards for each thread that evaluates topic patterns and lists.
const SHARDS_PER_LISTER: usize = 4;

/// The running broker. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Broker {
    /// State shared by all shards.
    pub shared: Arc<Shared>,
    inboxes: Arc<[mpsc::Sender<Vec<Message>>]>,
}

/// The threads of a broker, to be joined when it stops.
pub struct Threads {
    shutdown: Shutdown,
    threads: Vec<ShardThread>,
}

/// Starts the shards of the only broker there is. `codec` reads the entries of all front doors.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(
    options: Options,
    catalog: Catalog,
    engine: Arc<dyn LedgerEngine>,
    metadata: Arc<dyn MetadataStore>,
    codec: &'static dyn EntryCodec,
) -> io::Result<(Broker, Threads)> {
    start_among(
        options,
        catalog,
        engine,
        metadata,
        codec,
        Arc::new(Alone::default()),
    )
}

/// Starts the shards of a broker that may be one of several over the same stores: it serves the topics that `ownership` says.
///
/// # Errors
/// When the system refuses a thread.
pub fn start_among(
    options: Options,
    catalog: Catalog,
    engine: Arc<dyn LedgerEngine>,
    metadata: Arc<dyn MetadataStore>,
    codec: &'static dyn EntryCodec,
    ownership: Arc<dyn Ownership>,
) -> io::Result<(Broker, Threads)> {
    let shutdown = Shutdown::default();
    let shard_count = options.shards.max(1);
    let unwritten = Unwritten::new(options.unwritten_bytes_max);
    let tenants = Tenants::new(options.tenants);
    let coordinators = Coordinators::new(options.transaction_coordinators);
    let shared = Arc::new(Shared {
        options,
        catalog,
        codec,
        engine,
        metadata,
        placement: Placement::new(ownership, shard_count),
        shutdown: shutdown.token(),
        publish_budget: Budget::new(PUBLISH_BUDGET_BYTES),
        mesh_budget: Budget::new(MESH_BYTES_MAX),
        unwritten,
        compactions: Semaphore::new(COMPACTIONS_MAX),
        lists: Pool::start_behind(
            "pharos-lists",
            usize::from(shard_count).div_ceil(SHARDS_PER_LISTER),
        )?,
        tenants,
        coordinators,
        instance: clock::wall_ms(),
    });
    let mut senders = Vec::new();
    let mut receivers = Vec::new();
    for _ in 0..shard_count {
        let (sender, receiver) = mpsc::channel(INBOX_BATCHES);
        senders.push(sender);
        receivers.push(receiver);
    }
    let inboxes: Arc<[_]> = senders.into();
    let mut threads = Vec::new();
    for (index, inbox) in receivers.into_iter().enumerate() {
        let id = ShardId(u16::try_from(index).unwrap_or(u16::MAX));
        let (shared, inboxes) = (shared.clone(), inboxes.clone());
        threads.push(spawn_shard(
            format!("pharos-shard-{index}"),
            move || async move {
                let mut token = shared.shutdown.clone();
                // Kept until the end: the loops hold the shard as long as they run, which is as long as this thread.
                let _shard = Shard::start(id, shared, &inboxes, inbox);
                token.triggered().await;
            },
        )?);
    }
    Ok((Broker { shared, inboxes }, Threads { shutdown, threads }))
}

impl Broker {
    /// Number of shards.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.inboxes.len()
    }

    /// Runs a piece of asynchronous work on a shard and waits for its result.
    ///
    /// # Errors
    /// [`Gone`] when the broker stopped.
    ///
    /// Cancel safety: dropping the future does not stop work that was sent.
    pub async fn call<R, W, F>(&self, shard: ShardId, work: W) -> Result<R, Gone>
    where
        R: Send + 'static,
        W: FnOnce(Rc<Shard>) -> F + Send + 'static,
        F: Future<Output = R> + 'static,
    {
        let (answer, result) = oneshot::channel();
        let inbox = self.inboxes.get(shard.index()).ok_or(Gone)?;
        inbox
            .send(vec![Message::Job(job_with_answer(work, answer))])
            .await
            .map_err(|_| Gone)?;
        result.await.map_err(|_| Gone)
    }

    /// Runs the same work on all shards at once and collects the results, in the order of the shards.
    ///
    /// # Errors
    /// [`Gone`] when the broker stopped.
    pub async fn call_all<R, W, F>(&self, work: W) -> Result<Vec<R>, Gone>
    where
        R: Send + 'static,
        W: FnOnce(Rc<Shard>) -> F + Send + Clone + 'static,
        F: Future<Output = R> + 'static,
    {
        let mut waiting = Vec::with_capacity(self.inboxes.len());
        for inbox in &*self.inboxes {
            let (answer, result) = oneshot::channel();
            let work = Message::Job(job_with_answer(work.clone(), answer));
            inbox.send(vec![work]).await.map_err(|_| Gone)?;
            waiting.push(result);
        }
        let mut results = Vec::with_capacity(waiting.len());
        for result in waiting {
            results.push(result.await.map_err(|_| Gone)?);
        }
        Ok(results)
    }

    /// Runs something on a shard soon; waits while the shard's inbox is full.
    pub async fn run_on(&self, shard: usize, work: impl FnOnce(&Rc<Shard>) + Send + 'static) {
        let Some(inbox) = self.inboxes.get(shard) else {
            return;
        };
        // A closed inbox means that the broker stops, and the work with it.
        let _ = inbox.send(vec![Message::Job(job(work))]).await;
    }

    /// Runs something on a shard soon, without waiting. For start-up, when inboxes are empty.
    fn on_shard(&self, shard: usize, work: impl FnOnce(&Rc<Shard>) + Send + 'static) {
        let Some(inbox) = self.inboxes.get(shard) else {
            return;
        };
        if inbox.try_send(vec![Message::Job(job(work))]).is_err() {
            tracing::error!(shard, "a shard did not take its start-up work");
        }
    }

    /// Runs something on every shard.
    pub fn on_every_shard(&self, work: impl FnOnce(&Rc<Shard>) + Send + Clone + 'static) {
        for shard in 0..self.inboxes.len() {
            self.on_shard(shard, work.clone());
        }
    }

    /// Gives the bundle `<tenant>/<namespace>/<range>` to the broker `to`. Its topics are closed here, their clients told where they are
    /// now, and the other broker opens them when all of them are closed.
    ///
    /// # Errors
    /// [`HandoverError`].
    ///
    /// Cancel safety: goes on when the future is dropped.
    pub async fn hand_over(&self, bundle: String, to: String) -> Result<(), HandoverError> {
        let broker = self.clone();
        let gone = HandoverError::Store(OwnershipError::NotReady("it is stopping"));
        let going = self.call(ShardId(0), move |_| async move {
            let placement = &broker.shared.placement;
            placement.hand_over(&bundle, &to).await?;
            // A shard that is gone has closed its topics.
            let _ = broker
                .call_all(|shard| async move { shard.home.close_foreign().await })
                .await;
            placement.end_handover(&bundle).await;
            Ok(())
        });
        going.await.unwrap_or(Err(gone))
    }

    /// Closes all topics, with their producers and consumers, and makes them durable. Connections stay.
    pub async fn close_topics(&self) {
        // A shard that is gone has closed its topics.
        let _ = self
            .call_all(|shard| async move { shard.home.close_topics().await })
            .await;
    }

    /// Tells every client that the broker stops, waits for what is in flight, and makes all cursors durable.
    pub async fn drain(&self) {
        // A shard that is gone has drained.
        let _ = self
            .call_all(|shard| async move { shard.connections.shut_down() })
            .await;
        // What connections gave back when they closed is on its way home; a second round comes after it.
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let _ = self
                .call_all(|shard| async move { shard.feeds.flush_progress() })
                .await;
        }
        self.close_topics().await;
    }
}

impl Threads {
    /// Stops the shards and waits for their threads.
    pub fn stop(self) {
        self.shutdown.trigger();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a shard ended with a panic");
            }
        }
    }
}
