//! Keeping processors from sleeping, so that a thread that a message or a device wakes runs at once.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Device file for such requests on Linux: 32 bits in the processor's byte order, microseconds. A request lasts until
/// the file is closed.
const REQUESTS: &str = "/dev/cpu_dma_latency";

/// A request to the system that waking a processor take no time. It ends when this is dropped, or with the process.
///
/// Idle processors then look for work instead of sleeping, for all programs of the machine.
#[derive(Debug)]
pub struct Awake {
    _request: File,
}

impl Awake {
    /// Asks the system.
    ///
    /// # Errors
    /// What the system says; mostly that only root may ask, or that it takes no such requests.
    ///
    /// Source: `Documentation/power/pm_qos_interface.rst` of the Linux kernel.
    pub fn ask() -> io::Result<Self> {
        Self::ask_at(Path::new(REQUESTS))
    }

    fn ask_at(path: &Path) -> io::Result<Self> {
        let mut request = OpenOptions::new().write(true).open(path)?;
        request.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self { _request: request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_of_zero_are_the_request() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu_dma_latency");
        let missing = Awake::ask_at(&path).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, b"").unwrap();
        let _awake = Awake::ask_at(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0; 4]);
    }
}
