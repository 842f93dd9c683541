//! Periodic work of feeds: sending progress to the topics' homes, and dropping old entries.

use std::rc::Rc;
use std::time::Duration;

use pharos_feed::Progress;
use pharos_feed::ids::TopicId;
use pharos_mesh::{AnswerTo, Ask, HomeMessage, Message};

use super::feeds::Feeds;

/// Cursors in one report to a topic's home.
const PROGRESS_CURSORS_MAX: usize = 1024;
/// A report of progress waits this long, this often, while there is delivery to do.
const FLUSH_DELAY: Duration = Duration::from_millis(20);
const FLUSH_DELAYS_MAX: u32 = 25;
/// Topics whose progress is sent home at once; those of more are spread over time, because each means a commit there and
/// ten thousand at a time hold up the messages of all others.
const FLUSH_TOPICS: usize = 32;
/// Interval at which a shard drops old entries from memory.
const FORGET_INTERVAL: Duration = Duration::from_secs(1);
/// Topics whose progress is sent home in a second when more than these move. A commit costs about as much as a
/// message, so without a bound ten thousand topics with a message a second each would cost twice.
const FLUSH_TOPICS_PER_S: u64 = 1000;

impl Feeds {
    /// Sends home what moved, about once a second, while anything moves.
    pub(super) async fn run_flush(self: Rc<Self>) {
        let interval = self.cx.shared.options.cursor_flush_interval;
        let mut pause = interval;
        loop {
            tokio::time::sleep(pause).await;
            // Delivery first: while connections wait for their turn of writing, persisting positions may wait a little.
            for _ in 0..FLUSH_DELAYS_MAX {
                if !self.connections.has_ready() {
                    break;
                }
                tokio::time::sleep(FLUSH_DELAY).await;
            }
            let dirty: Vec<TopicId> = self.dirty.borrow().iter().copied().collect();
            let is_spread = dirty.len() > FLUSH_TOPICS;
            pause = if is_spread { interval / 3 } else { interval };
            self.spread_flush(&dirty, spread_time(dirty.len(), interval))
                .await;
        }
    }

    /// Sends home what has moved on these topics, within about `time` when they are many.
    async fn spread_flush(&self, dirty: &[TopicId], time: Duration) {
        let slices = dirty.len().div_ceil(FLUSH_TOPICS).max(1);
        let pause = time / u32::try_from(slices).unwrap_or(u32::MAX);
        for (index, slice) in dirty.chunks(FLUSH_TOPICS).enumerate() {
            if index > 0 {
                tokio::time::sleep(pause).await;
            }
            for topic in slice {
                // Until its turn it stays noted, so that a stop in between forgets nothing.
                if self.dirty.borrow_mut().remove(topic) {
                    self.flush_feed(*topic);
                }
            }
        }
    }

    /// Sends home what moved since the last time.
    pub(crate) fn flush_progress(&self) {
        let dirty = std::mem::take(&mut *self.dirty.borrow_mut());
        for topic in dirty {
            self.flush_feed(topic);
        }
    }

    /// Sends home what moved on one topic.
    pub(super) fn flush_feed(&self, topic: TopicId) {
        let Some(feed) = self.get(topic) else {
            return;
        };
        let progress = feed.take_progress();
        // In parts, so that the home of a hundred thousand cursors gets to its other work in between.
        let mut moved = progress.moved.into_iter().peekable();
        while moved.peek().is_some() {
            let part = moved.by_ref().take(PROGRESS_CURSORS_MAX).collect();
            self.cx
                .send_home(topic, HomeMessage::Progress(Progress { moved: part }));
        }
    }

    /// Sends home what moved on one topic; answered by its home, which has heard of it by then.
    pub(super) fn report(&self, topic: TopicId, answer: AnswerTo<()>) {
        self.flush_feed(topic);
        // What is sent to a shard arrives in the order in which it was sent.
        self.cx.send(topic.home, Message::Ask(Ask::Arrived(answer)));
    }

    /// Lets go of what is old also where nothing new comes.
    pub(super) async fn run_forget(self: Rc<Self>) {
        loop {
            tokio::time::sleep(FORGET_INTERVAL).await;
            self.forget_oldest();
        }
    }
}

/// Returns the time over which the progress of many topics is sent home: a third of the interval, after a wait of a
/// third, so that progress made at the beginning of one round is sent by the end of the next, within the interval.
/// Longer if there are too many topics for that.
fn spread_time(topics: usize, interval: Duration) -> Duration {
    let topics = u64::try_from(topics).unwrap_or(u64::MAX);
    let least = Duration::from_micros(topics.saturating_mul(1_000_000) / FLUSH_TOPICS_PER_S);
    if least > interval { least } else { interval / 3 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_topics_are_sent_home_within_the_interval_and_very_many_at_a_bounded_rate() {
        let interval = Duration::from_secs(3);
        assert_eq!(spread_time(100, interval), interval / 3);
        assert_eq!(spread_time(3000, interval), interval / 3);
        assert_eq!(spread_time(5000, interval), Duration::from_secs(5));
        assert!(spread_time(usize::MAX, interval) > Duration::from_secs(5));
    }
}
