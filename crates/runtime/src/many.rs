//! Same call on many items, with a bounded number in flight.
//!
//! A call on each of ten thousand partitions that waits for the one before it pays ten thousand commits one after the
//! other; all at once would hold ten thousand answers and crowd out all other requests. [`many`] is in between.

use std::future::Future;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;

/// Calls under way at once: enough to share the commits of a store, few enough to leave room beside them.
const AT_ONCE: usize = 64;

/// Makes `call` on each of `items`, at most 64 at once, and hands the outcomes to `take` in the order of the items.
///
/// When `take` fails, no further call begins; those under way are waited for and their outcomes dropped. So nothing of it
/// goes on after the answer, and what `take` failed with is what the calls one after the other would have failed with.
///
/// # Errors
/// The first of `take`.
///
/// Cancel safety: dropping the future drops the calls under way; no further one begins.
pub async fn many<T, F: Future, E>(
    items: impl IntoIterator<Item = T>,
    mut call: impl FnMut(T) -> F,
    mut take: impl FnMut(F::Output) -> Result<(), E>,
) -> Result<(), E> {
    let mut items = items.into_iter().fuse();
    let mut under_way = FuturesOrdered::new();
    let mut outcome = Ok(());
    loop {
        while outcome.is_ok()
            && under_way.len() < AT_ONCE
            && let Some(item) = items.next()
        {
            under_way.push_back(call(item));
        }
        let Some(answer) = under_way.next().await else {
            return outcome;
        };
        if outcome.is_ok() {
            outcome = take(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[tokio::test]
    async fn outcomes_come_in_order_and_the_calls_side_by_side() {
        let (now, most) = (Cell::new(0), Cell::new(0));
        let mut taken = Vec::new();
        let call = |number: usize| {
            let (now, most) = (&now, &most);
            async move {
                now.set(now.get() + 1);
                most.set(most.get().max(now.get()));
                // Later ones are done earlier.
                for _ in number..500 {
                    tokio::task::yield_now().await;
                }
                now.set(now.get() - 1);
                number
            }
        };
        let outcome = many(0..500, call, |number| {
            taken.push(number);
            Ok::<_, ()>(())
        });
        assert_eq!(outcome.await, Ok(()));
        assert_eq!(taken, (0..500).collect::<Vec<_>>());
        assert_eq!(most.get(), AT_ONCE);
    }

    #[tokio::test]
    async fn after_a_failure_nothing_begins_and_what_began_ends() {
        let (begun, ended) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let call = |number: usize| {
            let (begun, ended) = (&begun, &ended);
            async move {
                begun.borrow_mut().push(number);
                for _ in 0..number {
                    tokio::task::yield_now().await;
                }
                ended.borrow_mut().push(number);
                number
            }
        };
        let failed = many(
            0..500,
            call,
            |number| if number == 3 { Err(number) } else { Ok(()) },
        );
        assert_eq!(failed.await, Err(3));
        assert_eq!(begun, ended);
        assert!(begun.borrow().len() <= AT_ONCE + 4, "{begun:?}");
    }
}
