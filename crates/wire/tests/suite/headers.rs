//! Frames made by the fan-out header equal those made the general way.

use pharos_wire::command::Command;
use pharos_wire::header::{PAYLOAD_BYTES_MAX, PayloadTooLarge};
use pharos_wire::proto::{CommandMessage, MessageIdData};
use pharos_wire::{HeaderBuf, MessageHeader, answer, encode};
use proptest::prelude::*;

/// Numbers of every encoded length, not only huge ones.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(bits, shift)| bits >> shift)
}

proptest! {
    #[test]
    fn a_header_equals_the_general_encoding(
        ledger_id in number(),
        entry_id in number(),
        partition in proptest::option::of(any::<u32>()),
        payload in 0..100_000_usize,
        consumer_id in number(),
        redelivery_count in prop_oneof![Just(0), any::<u32>()],
        ack_set in proptest::collection::vec(any::<i64>(), 0..12),
        consumer_epoch in proptest::option::of(number()),
    ) {
        // A partition index fits 31 bits; larger ones would come back negative.
        let partition = partition.map(|index| index >> 1);
        let command = Command::Message(CommandMessage {
            consumer_id,
            message_id: MessageIdData {
                partition: partition.map(|index| index as i32),
                ..answer::message_id(ledger_id, entry_id)
            },
            redelivery_count: (redelivery_count > 0).then_some(redelivery_count),
            ack_set: ack_set.clone(),
            consumer_epoch,
        });
        let mut expected = bytes::BytesMut::new();
        encode::encode_header_into(&command, payload, &mut expected);

        let header = MessageHeader::new(ledger_id, entry_id, partition, payload).unwrap();
        let mut out = HeaderBuf::new();
        header.write_for(consumer_id, redelivery_count, &ack_set, consumer_epoch, &mut out);
        prop_assert_eq!(out.as_slice(), &expected[..]);
        // A second header lands behind the first, whether or not the room inside is enough.
        header.write_for(consumer_id, redelivery_count, &ack_set, consumer_epoch, &mut out);
        prop_assert_eq!(out.to_bytes(), [&expected[..], &expected[..]].concat());
        out.clear();
        prop_assert_eq!(out.as_slice(), b"");
    }
}

#[test]
fn an_entry_no_frame_can_carry_is_refused() {
    let bytes = PAYLOAD_BYTES_MAX + 1;
    assert_eq!(
        MessageHeader::new(1, 2, None, bytes).unwrap_err(),
        PayloadTooLarge { bytes }
    );
}
