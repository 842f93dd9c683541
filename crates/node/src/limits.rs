//! Limits of the operating system.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one: every client is a file, and the usual soft limit of 1024 is for
/// programs that use `select`. Returns the limit in force; `None` when there is none.
pub(crate) fn raise_open_files() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let wanted = rustix::process::Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        match setrlimit(Resource::Nofile, wanted) {
            Ok(()) => limit.current = limit.maximum,
            Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
        }
    }
    limit.current
}
