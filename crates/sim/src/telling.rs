//! The history of one seed, for whoever looks for what went wrong.

use std::cell::Cell;
use std::io::Write as _;

thread_local! {
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// From now on, or no longer, what happens on this thread is told on the standard error output.
pub fn tell_all(tells: bool) {
    TELLS.set(tells);
}

/// Tells something, if anybody wants to know.
pub fn tell(what: impl FnOnce() -> String) {
    if TELLS.get() {
        // Nobody reads it: nothing is lost.
        let _ = writeln!(std::io::stderr(), "  {}", what());
    }
}
