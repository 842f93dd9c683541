//! A command without its frame: never a panic, and encoding what was decoded gives the same command.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pharos_wire::{encode, frame};

fuzz_target!(|data: &[u8]| {
    // Seeds are whole frames; their lengths are skipped so that every byte of the input is command.
    let data = data.get(8..).unwrap_or_default();
    if let Ok(command) = frame::decode_command(data) {
        let bytes = encode::encode_command(&command);
        assert_eq!(bytes.len(), 8 + command_bytes(&bytes));
        // Bytes are compared, because a number that is not a number does not equal itself.
        let again = frame::decode_command(&bytes[8..]).unwrap();
        assert_eq!(encode::encode_command(&again), bytes);
    }
});

fn command_bytes(frame: &[u8]) -> usize {
    u32::from_be_bytes(frame[4..8].try_into().unwrap()) as usize
}
