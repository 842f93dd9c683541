//! What a connection has yet to write, and who wants to know when it was written.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use pharos_broker::entry::FeedEntry;
use pharos_broker::ids::{ConsumerKey, TopicId};
use pharos_transport::{BufferPool, Outbound, Reusable, WriteHalf};

/// Deliveries that share one mark.
const MARK_MESSAGES_MAX: u32 = 32;
/// The memory of marks that grew beyond this is not kept.
const MARKS_KEPT: usize = 2048;

thread_local! {
    static POOL: BufferPool<Outgoing> = const { BufferPool::new() };
}

/// What is to be done when the stream has got so far.
struct Mark {
    /// Offset in what this connection ever wrote.
    end: u64,
    event: Written,
}

/// Something reached the socket.
pub(crate) enum Written {
    /// Deliveries of one live entry to listeners of the group with this index.
    Listeners {
        entry: Arc<FeedEntry>,
        group: u32,
        messages: u32,
    },
    /// Bytes dispatched to one consumer.
    Dispatched {
        topic: TopicId,
        key: ConsumerKey,
        bytes: u64,
    },
}

/// The queue of frames, with marks.
#[derive(Default)]
pub(crate) struct Outgoing {
    queue: Outbound,
    marks: VecDeque<Mark>,
}

impl Reusable for Outgoing {
    fn is_worth_keeping(&self) -> bool {
        self.is_idle() && self.queue.is_small() && self.marks.capacity() <= MARKS_KEPT
    }
}

impl Outgoing {
    /// An empty one out of the pool of this thread.
    pub(crate) fn take() -> Self {
        POOL.with(BufferPool::take)
    }

    /// Gives it back to the pool, if it is worth that.
    pub(crate) fn give(self) {
        POOL.with(|pool| pool.give(self));
    }

    /// Bytes not yet written.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.queued_bytes()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether nothing is queued and no event of what was is due.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.marks.is_empty()
    }

    /// Whether one more message may be dealt.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.has_room()
    }

    /// Appends bytes that `write` makes.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut BytesMut)) {
        self.queue.push_with(write);
    }

    /// Appends a message: its header, then its payload.
    pub(crate) fn push_message(&mut self, header: &[u8], payload: &Bytes) {
        self.queue.push_shared(header, payload);
    }

    /// Writes once. Returns how many bytes the socket took.
    ///
    /// # Errors
    /// As the socket says; `WouldBlock` when it is full.
    pub(crate) fn write(&mut self, stream: &WriteHalf) -> io::Result<usize> {
        self.queue.write(stream)
    }

    /// Counts the message just pushed as a delivery of a live entry.
    pub(crate) fn mark_listener(&mut self, entry: &Arc<FeedEntry>, group: u32) {
        let end = self.queue.queued_end();
        if let Some(mark) = self.marks.back_mut()
            && let Written::Listeners {
                entry: same,
                group: of,
                messages,
            } = &mut mark.event
            && *of == group
            && Arc::ptr_eq(same, entry)
            && *messages < MARK_MESSAGES_MAX
        {
            *messages += 1;
            mark.end = end;
            return;
        }
        let event = Written::Listeners {
            entry: entry.clone(),
            group,
            messages: 1,
        };
        self.marks.push_back(Mark { end, event });
    }

    /// Counts the message just pushed against its consumer's window.
    pub(crate) fn mark_dispatched(&mut self, topic: TopicId, key: ConsumerKey, bytes: u64) {
        let end = self.queue.queued_end();
        if let Some(mark) = self.marks.back_mut()
            && let Written::Dispatched {
                topic: of,
                key: same,
                bytes: sum,
            } = &mut mark.event
            && *of == topic
            && *same == key
        {
            *sum += bytes;
            mark.end = end;
            return;
        }
        self.marks.push_back(Mark {
            end,
            event: Written::Dispatched { topic, key, bytes },
        });
    }

    /// The next mark that the stream has passed.
    pub(crate) fn take_written(&mut self) -> Option<Written> {
        self.take_passed(self.queue.written_end())
    }

    fn take_passed(&mut self, written_end: u64) -> Option<Written> {
        if self.marks.front()?.end > written_end {
            return None;
        }
        self.marks.pop_front().map(|mark| mark.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_up_once_its_last_byte_is_written() {
        let mut out = Outgoing::default();
        let topic = TopicId {
            home: pharos_broker::ids::ShardId(0),
            number: 1,
        };
        out.push_message(b"head", &Bytes::from_static(b"body"));
        out.mark_dispatched(topic, ConsumerKey(1), 4);
        assert!(out.take_written().is_none());
        assert!(out.take_passed(7).is_none());
        assert!(matches!(
            out.take_passed(8),
            Some(Written::Dispatched { bytes: 4, .. })
        ));
    }
}
