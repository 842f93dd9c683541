//! A byte stream cut into frames: never a panic, progress or patience, and what is understood can be said again.

#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use pharos_wire::{Frame, encode, frame};

fuzz_target!(|data: &[u8]| {
    let mut stream = BytesMut::from(data);
    loop {
        let before = stream.len();
        match frame::decode(&mut stream, 1 << 20) {
            Ok(Some(first)) => {
                assert!(stream.len() < before, "a frame takes bytes");
                let bytes = encode(&first);
                let again = frame::decode(&mut BytesMut::from(&bytes[..]), usize::MAX);
                // Bytes are compared, because a number that is not a number does not equal itself.
                assert_eq!(encode(&again.unwrap().unwrap()), bytes);
            }
            Ok(None) => {
                assert_eq!(stream.len(), before, "an incomplete frame stays");
                assert!(frame::missing_bytes(&stream) > 0);
                return;
            }
            Err(_) => return,
        }
    }
});

fn encode(frame: &Frame) -> Bytes {
    encode::encode_frame(&frame.command, frame.payload.as_deref().unwrap_or_default())
}
