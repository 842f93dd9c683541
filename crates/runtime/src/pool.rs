//! Threads for work that belongs to no shard: object stores, and whatever else waits for the network beside the broker.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Runtime};

use crate::thread::stand_back;

/// A few named threads that run spawned futures. Dropping it calls off what runs there, at its next await.
#[derive(Debug)]
pub struct Pool {
    /// `None` only while it is dropped, and in a simulated process.
    runtime: Option<Runtime>,
}

impl Pool {
    /// Starts `threads` (at least one) threads called `name`.
    ///
    /// # Errors
    /// When the system refuses a thread or an event queue.
    pub fn start(name: &str, threads: usize) -> io::Result<Self> {
        Self::start_with(name, threads, || {})
    }

    /// As [`start`](Self::start), with threads that stand back behind the others of the process ([`stand_back`]).
    ///
    /// # Errors
    /// When the system refuses a thread or an event queue.
    pub fn start_behind(name: &str, threads: usize) -> io::Result<Self> {
        Self::start_with(name, threads, stand_back)
    }

    fn start_with(name: &str, threads: usize, begin: fn()) -> io::Result<Self> {
        #[cfg(feature = "test-util")]
        if crate::simulated::is_entered() {
            return Ok(Self { runtime: None });
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .thread_name(name)
            .on_thread_start(begin)
            .enable_all()
            .build()?;
        Ok(Self {
            runtime: Some(runtime),
        })
    }

    /// Runs `work` on the pool's threads. The future resolves with its result, or with `None` when it panicked (logged by the
    /// runtime) or the pool was dropped.
    ///
    /// Cancel safety: dropping the future lets the work go on.
    pub fn run<T, F>(&self, work: F) -> impl Future<Output = Option<T>> + Send + 'static
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        #[cfg(feature = "test-util")]
        let (task, simulated) = match &self.runtime {
            Some(runtime) => (Some(runtime.spawn(work)), None),
            None => (None, Some(crate::simulated::run(work))),
        };
        #[cfg(not(feature = "test-util"))]
        let task = self.runtime.as_ref().map(|runtime| runtime.spawn(work));
        async move {
            #[cfg(feature = "test-util")]
            if let Some(simulated) = simulated {
                return simulated.await.ok();
            }
            task?.await.ok()
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Waiting for threads is not allowed where futures run, and a pool may be dropped there.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
