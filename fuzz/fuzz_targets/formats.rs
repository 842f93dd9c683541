//! The storage formats one by one: never a panic, and what is understood can be written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| pharos_storage::fuzzing::any_format(data));
