//! Locks, conditions, atomics and threads of code whose interleavings are explored by tests.
//!
//! They are those of the standard library. Built with `--cfg pharos_shuttle` they are those of `shuttle`: a scheduler that runs one
//! thread at a time, chooses at each operation which one goes on, and says when none can. The code that uses them is the same.
//! Such a build is good for tests that run within that scheduler and for nothing else.
//!
//! Under it time stands still for a thread that waits: [`Condvar::wait_timeout`] never times out, so that a word that does not
//! come is a thread that waits for ever and not one that is late.

#[cfg(pharos_shuttle)]
pub use shuttle::sync::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, mpsc,
};
#[cfg(not(pharos_shuttle))]
pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, mpsc};

/// Threads.
pub mod thread {
    use std::io;

    #[cfg(pharos_shuttle)]
    pub use shuttle::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle, scope, sleep, yield_now};
    #[cfg(not(pharos_shuttle))]
    pub use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle, scope, sleep, yield_now};

    /// Starts a thread of a scope under a name.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn spawn_scoped<'scope, 'env, T: Send + 'scope>(
        scope: &'scope Scope<'scope, 'env>,
        name: &str,
        body: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        #[cfg(pharos_shuttle)]
        {
            let _ = name;
            Ok(scope.spawn(body))
        }
        #[cfg(not(pharos_shuttle))]
        Builder::new().name(name.to_owned()).spawn_scoped(scope, body)
    }
}
