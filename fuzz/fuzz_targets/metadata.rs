//! The files of the metadata store, and a small store with some bytes changed, checksums right or wrong: looking and starting never
//! panic or hang, and what opens can be read, written to, stopped and opened again with the same content.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    pharos_metadata::fuzzing::any_format(data);
    pharos_metadata::fuzzing::store(data);
});
