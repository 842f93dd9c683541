//! The history of one seed, for a reader who looks for what went wrong.

use std::cell::Cell;
use std::io::Write as _;

thread_local! {
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// From now on, or no longer, what happens on this thread is told on the standard error output.
pub fn tell_all(tells: bool) {
    TELLS.set(tells);
}

/// Tells something, if it is wanted.
pub fn tell(what: impl FnOnce() -> String) {
    if TELLS.get() {
        // It is not read: nothing is lost.
        let _ = writeln!(std::io::stderr(), "  {}", what());
    }
}
