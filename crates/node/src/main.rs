//! The `pharos` binary.

fn main() {}
