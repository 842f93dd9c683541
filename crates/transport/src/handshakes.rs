//! Limit on concurrent handshakes: a handshake costs the broker more than the peer that requests it.
//!
//! A peer beyond the limit waits for its turn, first come first served, at most [`WAIT`]. The number per address (per
//! /64 network with IPv6) is small, so that one machine with unfinished handshakes cannot take the turns of all
//! others.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::quota::network_of;

/// Maximum time that a peer waits for its turn.
const WAIT: Duration = Duration::from_secs(30);

/// The handshakes of one listener.
#[derive(Debug)]
pub(crate) struct Handshakes {
    all: Arc<Semaphore>,
    per_address: usize,
    addresses: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// A turn: the next peer has it when this is dropped.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _address: Address<'a>,
}

/// Keeps the count of an address while anything waits or goes on there.
#[derive(Debug)]
struct Address<'a> {
    handshakes: &'a Handshakes,
    key: IpAddr,
    /// `None` only while it is dropped.
    count: Option<Arc<Semaphore>>,
}

impl Handshakes {
    /// At most so many at once, and so many of one address.
    pub(crate) fn new(all: usize, per_address: usize) -> Self {
        let within = |number: usize| number.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Semaphore::new(within(all))),
            per_address: within(per_address),
            addresses: Mutex::default(),
        }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// `TimedOut`: none came.
    ///
    /// Cancel safety: dropping the future gives up the place in the line.
    pub(crate) async fn enter(&self, peer: IpAddr) -> io::Result<Slot<'_>> {
        let address = self.address(peer);
        let waiting = async {
            // Its own line first: who waits there must not hold a turn that others could have.
            let own = address.count.clone()?.acquire_owned().await.ok()?;
            let all = self.all.clone().acquire_owned().await.ok()?;
            Some((own, all))
        };
        let too_many = || io::Error::new(io::ErrorKind::TimedOut, "too many TLS handshakes are under way");
        let (own, all) = match tokio::time::timeout(WAIT, waiting).await {
            Ok(Some(turn)) => turn,
            // The semaphores are never closed.
            Ok(None) | Err(_) => return Err(too_many()),
        };
        Ok(Slot {
            _all: all,
            _own: own,
            _address: address,
        })
    }

    fn address(&self, peer: IpAddr) -> Address<'_> {
        let key = network_of(peer);
        let mut addresses = self.lock();
        let count = addresses
            .entry(key)
            .or_insert_with(|| Arc::new(Semaphore::new(self.per_address)));
        Address {
            handshakes: self,
            key,
            count: Some(count.clone()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Semaphore>>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Address<'_> {
    fn drop(&mut self) {
        let mut addresses = self.handshakes.lock();
        drop(self.count.take());
        // The map alone still knows of it: nothing waits there, and nothing goes on.
        if addresses
            .get(&self.key)
            .is_some_and(|count| Arc::strong_count(count) == 1)
        {
            addresses.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    async fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|context| {
            Poll::Ready(match future.as_mut().poll(context) {
                Poll::Ready(value) => Some(value),
                Poll::Pending => None,
            })
        })
        .await
    }

    fn peer(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[tokio::test]
    async fn one_address_cannot_take_the_turns_of_others() {
        let handshakes = Handshakes::new(3, 2);
        let first = at_once(handshakes.enter(peer(1))).await.unwrap().unwrap();
        let second = at_once(handshakes.enter(peer(1))).await.unwrap().unwrap();
        assert!(at_once(handshakes.enter(peer(1))).await.is_none());
        let other = at_once(handshakes.enter(peer(2))).await.unwrap().unwrap();
        assert!(
            at_once(handshakes.enter(peer(3))).await.is_none(),
            "three are under way"
        );
        drop(first);
        let third = at_once(handshakes.enter(peer(3))).await.unwrap().unwrap();
        drop((second, other, third));
        assert!(handshakes.lock().is_empty(), "nothing is kept of an address");
    }

    #[tokio::test]
    async fn addresses_of_one_network_count_as_one() {
        let handshakes = Handshakes::new(9, 1);
        let turn = at_once(handshakes.enter("2001:db8::1".parse().unwrap())).await;
        assert!(
            at_once(handshakes.enter("2001:db8::2".parse().unwrap()))
                .await
                .is_none()
        );
        assert!(
            at_once(handshakes.enter("2001:db8:0:1::2".parse().unwrap()))
                .await
                .is_some()
        );
        drop(turn);
        let mapped = at_once(handshakes.enter("::ffff:192.0.2.1".parse().unwrap())).await;
        assert!(at_once(handshakes.enter(peer(1))).await.is_none());
        assert!(at_once(handshakes.enter(peer(2))).await.is_some());
        drop(mapped);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_come_is_not_waited_for_for_ever() {
        let handshakes = Handshakes::new(1, 1);
        let _turn = handshakes.enter(peer(1)).await.unwrap();
        let late = handshakes.enter(peer(2)).await.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }
}
