//! Deliveries on their way to becoming frames.

use std::sync::Arc;

use pharos_broker::entry::FeedEntry;
use pharos_broker::feed::{DeliverySink, Recipient};
use pharos_wire::{HeaderBuf, MessageHeader};

use crate::outgoing::Outgoing;

/// Turns deliveries into frames.
pub(crate) struct Sink<'a> {
    pub(crate) out: &'a mut Outgoing,
    pub(crate) group: u32,
    pub(crate) protocol_version: i32,
    pub(crate) head: HeaderBuf,
    pub(crate) current: Option<(MessageHeader, bytes::Bytes, Arc<FeedEntry>)>,
}

impl DeliverySink for Sink<'_> {
    fn has_room(&self) -> bool {
        self.out.has_room()
    }

    fn begin(&mut self, entry: &Arc<FeedEntry>, partition: Option<u32>) {
        let payload = payload_for(self.protocol_version, entry);
        let position = entry.position;
        self.current = MessageHeader::new(position.ledger.0, position.entry.0, partition, payload.len())
            .ok()
            .map(|header| (header, payload, entry.clone()));
    }

    fn message(&mut self, to: Recipient, ack_set: &[i64]) {
        let Some((header, payload, entry)) = &self.current else {
            return;
        };
        self.head.clear();
        header.write_for(
            to.consumer_id,
            to.redelivery_count,
            ack_set,
            to.epoch,
            &mut self.head,
        );
        self.out.push_message(self.head.as_slice(), payload);
        if entry.is_live() {
            self.out.mark_stream_consumer(entry, self.group);
        }
    }
}

/// Returns the payload of an entry for a consumer of this protocol version: below version 11 without the checksum.
pub(crate) fn payload_for(protocol_version: i32, entry: &FeedEntry) -> bytes::Bytes {
    if protocol_version >= 11 {
        return entry.payload.clone();
    }
    pharos_wire::message::strip_checksum(&entry.payload).unwrap_or_else(|_| entry.payload.clone())
}
