//! Output that a connection has yet to write, and the events to report once it is written.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use pharos_broker::entry::FeedEntry;
use pharos_broker::ids::{ConsumerKey, TopicId};
use pharos_broker::unwritten::Held;
use pharos_transport::{BufferPool, Outbound, Reusable, WriteHalf};
use pharos_types::Ordinal;
use pharos_wire::Command;
use pharos_wire::frame::decode_command;
use pharos_wire::proto::CommandMessage;

/// Deliveries that share one mark.
const MARK_MESSAGES_MAX: u32 = 32;
/// The memory of marks that grew beyond this is not kept.
const MARKS_KEPT: usize = 2048;

thread_local! {
    static POOL: BufferPool<Outgoing> = const { BufferPool::new() };
}

/// Event that is due when the stream reaches an offset.
struct Mark {
    /// Offset in what this connection ever wrote.
    end: u64,
    event: Written,
}

/// Something reached the socket.
pub(crate) enum Written {
    /// Deliveries of one live entry to stream consumers of the group with this index.
    StreamConsumers {
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

/// Source of a dispatched payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) topic: TopicId,
    pub(crate) ordinal: Ordinal,
    /// Bytes of the stored entry.
    pub(crate) bytes: usize,
}

/// A dispatched payload in the queue that can be set aside.
struct Dispatched {
    /// Offset of its end in what this connection ever wrote.
    end: u64,
    source: Source,
    /// `None` while it is set aside.
    held: Option<Held>,
}

/// The queue of frames, with marks.
#[derive(Default)]
pub(crate) struct Outgoing {
    queue: Outbound,
    marks: VecDeque<Mark>,
    /// In the order of the queue.
    dispatched: VecDeque<Dispatched>,
}

impl Reusable for Outgoing {
    fn is_worth_keeping(&self) -> bool {
        self.is_idle()
            && self.queue.is_small()
            && self.marks.capacity() <= MARKS_KEPT
            && self.dispatched.capacity() <= MARKS_KEPT
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

    /// True if nothing is queued and no event of earlier output is due.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.marks.is_empty()
    }

    /// True if there is room for another message.
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
        let bytes = self.queue.write(stream, frame_bytes)?;
        self.forget_written(self.queue.written_end());
        Ok(bytes)
    }

    fn forget_written(&mut self, written_end: u64) {
        while self.dispatched.front().is_some_and(|it| it.end <= written_end) {
            self.dispatched.pop_front();
        }
    }

    /// Appends a message that a dispatcher chose a consumer for.
    pub(crate) fn push_dispatched(&mut self, header: &[u8], payload: Bytes, source: Source, held: Held) {
        if self.queue.push_own(header, payload) {
            self.dispatched.push_back(Dispatched {
                end: self.queue.queued_end(),
                source,
                held: Some(held),
            });
        }
    }

    /// True if it holds the payload of such a message.
    pub(crate) fn holds_dispatched(&self) -> bool {
        self.dispatched.iter().any(|it| it.held.is_some())
    }

    /// True if such a payload cannot be read again once it is dropped.
    pub(crate) fn has_unstored(&self) -> bool {
        let mut held = self.dispatched.iter().filter_map(|it| it.held.as_ref());
        held.any(|held| !held.is_stored())
    }

    /// Lets go of the payloads of all such messages.
    pub(crate) fn set_aside(&mut self) {
        self.queue.set_aside();
        for held in self.dispatched.iter_mut().filter_map(|it| it.held.take()) {
            held.set_aside();
        }
    }

    /// Bytes queued that are not those of payloads which can be set aside.
    pub(crate) fn queued_apart(&self) -> usize {
        match self.dispatched.is_empty() {
            true => self.queue.queued_bytes(),
            false => self.queue.bytes_apart(),
        }
    }

    /// Takes whole messages out of which nothing is written: those of which `takes` says so, asked with the command and the payload.
    /// Returns their bytes.
    pub(crate) fn take_back(&mut self, mut takes: impl FnMut(&CommandMessage, &[u8]) -> bool) -> usize {
        let taken = self.queue.take_frames(frame_bytes, |head, shared| {
            let Some((Command::Message(message), rest)) = command_of(head) else {
                return false;
            };
            takes(&message, if shared.is_empty() { rest } else { shared })
        });
        let before = |end: u64| -> u64 {
            let until = taken.iter().take_while(|(of, _)| *of <= end);
            until.map(|(_, bytes)| *bytes as u64).sum()
        };
        // How long it took to write what comes again says nothing.
        self.marks
            .retain(|mark| matches!(mark.event, Written::Dispatched { .. }));
        for mark in &mut self.marks {
            mark.end -= before(mark.end);
        }
        for it in &mut self.dispatched {
            it.end -= before(it.end);
        }
        taken.iter().map(|(_, bytes)| *bytes).sum()
    }

    /// The message that is written in part and shares its payload with others, and the bytes of that.
    pub(crate) fn begun(&self) -> Option<(CommandMessage, usize)> {
        let head = self.queue.begun()?;
        match command_of(head)? {
            (Command::Message(message), rest) => {
                let payload = frame_bytes(head).saturating_sub(head.len() - rest.len());
                Some((message, payload))
            }
            _ => None,
        }
    }

    /// Sets its payload aside, which comes from there.
    pub(crate) fn set_begun_aside(&mut self, source: Source) {
        if let Some(end) = self.queue.set_begun_aside() {
            let held = None;
            self.dispatched.push_front(Dispatched { end, source, held });
        }
    }

    /// The payload without which nothing more can be written.
    pub(crate) fn missing(&self) -> Option<Source> {
        let first = self.dispatched.front()?;
        self.queue.is_missing().then_some(first.source)
    }

    /// Puts the payload back that is missing. Returns false if it is not that one.
    pub(crate) fn bring_back(&mut self, payload: Bytes, held: Held) -> bool {
        let is_back = self.queue.bring_back(payload);
        if let Some(first) = self.dispatched.front_mut().filter(|_| is_back) {
            first.held = Some(held);
        }
        is_back
    }

    /// Counts the message just pushed as a delivery of a live entry.
    pub(crate) fn mark_stream_consumer(&mut self, entry: &Arc<FeedEntry>, group: u32) {
        let end = self.queue.queued_end();
        if let Some(mark) = self.marks.back_mut()
            && let Written::StreamConsumers {
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
        let event = Written::StreamConsumers {
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

/// Bytes of the frame that begins with these.
fn frame_bytes(head: &[u8]) -> usize {
    let size = head.first_chunk().map(|size| u32::from_be_bytes(*size));
    size.map_or(head.len(), |size| 4 + size as usize)
}

/// The command of a frame that begins with these bytes, and those of them that follow it.
fn command_of(head: &[u8]) -> Option<(Command, &[u8])> {
    let (size, rest) = head.get(4..)?.split_first_chunk()?;
    let (command, rest) = rest.split_at_checked(u32::from_be_bytes(*size) as usize)?;
    Some((decode_command(command).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use pharos_broker::ids::ShardId;
    use pharos_broker::unwritten::Unwritten;

    use super::*;

    const TOPIC: TopicId = TopicId {
        home: ShardId(0),
        number: 1,
    };

    #[test]
    fn a_mark_comes_up_once_its_last_byte_is_written() {
        let mut out = Outgoing::default();
        out.push_message(b"head", &Bytes::from_static(b"body"));
        out.mark_dispatched(TOPIC, ConsumerKey(1), 4);
        assert!(out.take_written().is_none());
        assert!(out.take_passed(7).is_none());
        assert!(matches!(
            out.take_passed(8),
            Some(Written::Dispatched { bytes: 4, .. })
        ));
    }

    #[test]
    fn payloads_that_are_set_aside_are_not_in_the_account_until_they_are_back() {
        let account = Unwritten::new(1 << 20);
        let mut out = Outgoing::default();
        for (ordinal, bytes) in (0..).zip([2000, 10, 5000]) {
            let source = Source {
                topic: TOPIC,
                ordinal: Ordinal(ordinal),
                bytes,
            };
            let held = account.hold(bytes, true);
            out.push_dispatched(b"head", vec![1; bytes].into(), source, held);
        }
        // The small one is copied and counts no longer.
        assert_eq!(account.used(), 7000);
        assert!(out.holds_dispatched() && !out.has_unstored());
        out.set_aside();
        assert_eq!((account.used(), account.set_aside_total()), (0, 7000));
        assert!(!out.holds_dispatched() && out.missing().is_none());
        out.forget_written(2003);
        assert_eq!(out.dispatched.len(), 2);
        out.forget_written(2004);
        assert_eq!(out.dispatched.len(), 1);
    }

    #[test]
    fn what_is_not_stored_is_found_before_it_is_dropped() {
        let account = Unwritten::new(1);
        let mut out = Outgoing::default();
        let source = Source {
            topic: TOPIC,
            ordinal: Ordinal(0),
            bytes: 5000,
        };
        let held = account.hold(5000, false);
        out.push_dispatched(b"head", vec![1; 5000].into(), source, held);
        assert!(out.has_unstored());
    }
}
