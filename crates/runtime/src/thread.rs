//! Starting threads and tasks: every one has a name, and local tasks belong to their shard.

use std::future::Future;
use std::io;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

/// A thread of [`spawn_shard`], to be waited for.
#[derive(Debug)]
pub struct ShardThread(Option<Running>);

#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    /// Resolves when the thread has nothing left to do but to end.
    ending: oneshot::Receiver<()>,
}

impl ShardThread {
    /// Waits until the thread has ended. In a simulated process there is none to wait for: what is left of it runs when the
    /// test says so.
    ///
    /// # Errors
    /// What it panicked with.
    pub fn join(self) -> std::thread::Result<()> {
        self.0.map_or(Ok(()), |running| running.thread.join())
    }

    /// As [`join`](Self::join), for tasks: their own thread goes on meanwhile.
    ///
    /// # Errors
    /// What it panicked with.
    pub async fn joined(self) -> std::thread::Result<()> {
        let Some(Running { thread, ending }) = self.0 else {
            return Ok(());
        };
        // Nothing is ever sent; that the sender is gone says it.
        let _ = ending.await;
        thread.join()
    }
}

/// Starts a plain thread that runs one single-threaded runtime until `main` resolves.
///
/// Everything that `main` spawns with [`spawn_local`] stays on that thread and ends with it.
///
/// # Errors
/// When the system refuses a thread or its event queue.
pub fn spawn_shard<F, M>(name: String, main: M) -> io::Result<ShardThread>
where
    M: FnOnce() -> F + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    #[cfg(feature = "test-util")]
    if crate::simulated::is_entered() {
        crate::simulated::spawn_group(async move { main().await });
        return Ok(ShardThread(None));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (is_ending, ending) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        // Dropped last, also when the thread panics.
        let _is_ending: oneshot::Sender<()> = is_ending;
        let runtime = runtime;
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, main());
    })?;
    Ok(ShardThread(Some(Running { thread, ending })))
}

/// Lets the calling thread stand back behind the others of the process when there are not enough processors for all.
///
/// Best effort: a system that refuses leaves it as it is.
pub fn stand_back() {
    // On Linux the priority belongs to the thread. A third of the weight of the others: enough to get on with it.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 5);
}

/// Runs long CPU work on a thread apart, so that the runtime of the caller goes on meanwhile. `None` when it panicked, or when the
/// runtime stops first.
///
/// The caller bounds how much of it there is at once.
///
/// Cancel safety: work that was begun goes on; its result is dropped.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    #[cfg(feature = "test-util")]
    if crate::simulated::is_entered() {
        return crate::simulated::run(async move { work() }).await.ok();
    }
    tokio::task::spawn_blocking(work).await.ok()
}

/// Spawns a task on the current shard. It ends when it is done, when it panics (logged by the runtime), or with the
/// shard.
#[expect(clippy::disallowed_methods, reason = "the door to spawning")]
pub fn spawn_local<F>(future: F)
where
    F: Future<Output = ()> + 'static,
{
    #[cfg(feature = "test-util")]
    let future = match crate::simulated::spawn(future) {
        Ok(()) => return,
        Err(future) => future,
    };
    drop(tokio::task::spawn_local(future));
}
