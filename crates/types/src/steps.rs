//! Steps of the work that grows with the number of producers, consumers, subscriptions or groups.
//!
//! Whatever walks over many of these, or searches among them, counts a step for each that it looks at. Tests hold the cost of a
//! request against a bound by it, whatever the machine is doing. Without debug assertions nothing is counted.

#[cfg(debug_assertions)]
thread_local! {
    static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts one step.
#[inline]
pub fn step() {
    #[cfg(debug_assertions)]
    TAKEN.with(|taken| taken.set(taken.get() + 1));
}

/// Counts a step for each item that is taken.
#[inline]
pub fn walk<T>(items: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    items.inspect(|_| step())
}

/// Number of steps that this thread has taken; always 0 without debug assertions.
#[must_use]
pub fn taken() -> u64 {
    #[cfg(debug_assertions)]
    let taken = TAKEN.with(std::cell::Cell::get);
    #[cfg(not(debug_assertions))]
    let taken = 0;
    taken
}
