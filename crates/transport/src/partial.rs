//! Room for large frames that have not arrived whole.
//!
//! A frame may have megabytes, and a peer may stop in the middle of it. So a connection reads on in a large frame only with room
//! for all of it, taken from an account that all connections share, first come first served; the connection that has it can
//! finish. Small frames and everything already arrived need none. While others wait, a frame that does not get whole in time
//! costs its connection.

use std::sync::Arc;

use pharos_runtime::{Nanos, clock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Frames up to this size need no room.
pub const SMALL_FRAME_BYTES: usize = 64 << 10;
/// Memory for partial frames of all connections together, unless the largest frame is larger.
const ROOM_BYTES: usize = 128 << 20;
/// The account counts in these, so that it fits the semaphore.
const UNIT_BYTES: usize = 1 << 10;
/// A frame may take so long while others wait for room.
const FRAME_NANOS_MAX: u64 = 30_000_000_000;

/// The account.
#[derive(Debug)]
pub struct PartialFrames {
    room: Arc<Semaphore>,
    units: usize,
    frame_units_max: usize,
}

/// Room for one frame; free again when this is dropped.
#[derive(Debug)]
pub struct FrameRoom {
    /// The whole frame, with its four length bytes.
    pub frame_bytes: usize,
    since: Nanos,
    _units: OwnedSemaphorePermit,
}

impl PartialFrames {
    /// For frames of at most `frame_bytes_max`.
    pub fn new(frame_bytes_max: usize) -> Self {
        let frame_units_max = units(frame_bytes_max);
        let units = units(ROOM_BYTES)
            .max(2 * frame_units_max)
            .min(Semaphore::MAX_PERMITS);
        Self {
            room: Arc::new(Semaphore::new(units)),
            units,
            frame_units_max,
        }
    }

    /// Takes room for a frame, when it is its turn.
    ///
    /// Cancel safety: dropping the future gives up the place in the line.
    pub async fn reserve(&self, frame_bytes: usize) -> Option<FrameRoom> {
        let wanted = units(frame_bytes).min(self.units);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let taken = Arc::clone(&self.room).acquire_many_owned(wanted).await;
        // The account is never closed.
        Some(FrameRoom {
            frame_bytes,
            since: clock::now(),
            _units: taken.ok()?,
        })
    }

    /// True if a frame of the largest size would have to wait.
    pub fn is_short(&self) -> bool {
        self.room.available_permits() < self.frame_units_max
    }

    /// True if a frame has been incomplete for too long while others wait.
    pub fn is_overdue(&self, room: &FrameRoom, now: Nanos) -> bool {
        now.since(room.since) > FRAME_NANOS_MAX && self.is_short()
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES)
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    const FRAME: usize = 5 << 20;

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

    #[tokio::test]
    async fn large_frames_wait_for_one_another_and_only_then_must_hurry() {
        let frames = PartialFrames::new(FRAME);
        let mut inside = Vec::new();
        while let Some(Some(room)) = at_once(frames.reserve(FRAME)).await {
            inside.push(room);
        }
        assert_eq!(inside.len(), ROOM_BYTES / FRAME);
        let late = Nanos(inside[0].since.0 + FRAME_NANOS_MAX + 1);
        assert!(frames.is_short() && frames.is_overdue(&inside[0], late));
        assert!(!frames.is_overdue(&inside[0], inside[0].since));
        inside.truncate(3);
        assert!(!frames.is_short() && !frames.is_overdue(&inside[0], late));
    }

    #[tokio::test]
    async fn a_frame_larger_than_everything_goes_alone() {
        let frames = PartialFrames::new(FRAME);
        let all = at_once(frames.reserve(10 * ROOM_BYTES)).await.unwrap();
        assert!(at_once(frames.reserve(FRAME)).await.is_none());
        drop(all);
        assert!(at_once(frames.reserve(FRAME)).await.is_some());
    }
}
