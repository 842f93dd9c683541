//! The `pharos` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    pharos::run(std::env::args_os())
}
