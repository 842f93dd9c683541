//! A small store with some bytes changed, checksums right or wrong: a check and a start never panic or hang, and what opens can
//! be read, written to and stopped.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| pharos_storage::fuzzing::store(data));
