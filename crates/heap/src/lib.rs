//! Memory that was freed and that the allocator keeps, given back to the system.
//!
//! The one place with `unsafe` in it. glibc keeps what was freed in the middle of its arenas, and after large buffers were freed,
//! once, it keeps buffers of that size too: a broker that had passed on messages of 5 MB to six hundred sockets kept 200 MB for
//! as long as it ran. No library asks it to let go with a safe call.

#[cfg(target_env = "gnu")]
mod trim {
    #![expect(unsafe_code, reason = "malloc_trim is a call of C")]

    pub(super) fn trim() -> bool {
        // SAFETY: malloc_trim takes a number, has no conditions, and may be called by any thread at any time (MT-Safe).
        unsafe { libc::malloc_trim(0) != 0 }
    }
}

/// Gives whole pages that are free back to the system. Returns whether there were any; `false` with other allocators than
/// glibc's.
///
/// Takes milliseconds to tens of them for hundreds of MB, and threads that allocate wait meanwhile: call it when the process is
/// quiet, on a thread that may wait.
pub fn give_back() -> bool {
    #[cfg(target_env = "gnu")]
    return trim::trim();
    #[cfg(not(target_env = "gnu"))]
    return false;
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    /// Resident memory of this process in KiB.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.unwrap_or_default()
    }

    #[test]
    fn freed_memory_below_memory_in_use_goes_back() {
        // In an arena that is not the main one, small enough not to be mapped by themselves.
        let (freed, kept) = std::thread::spawn(|| {
            let mut pieces: Vec<Vec<u8>> = (0..1_000).map(|_| vec![1; 100 << 10]).collect();
            let kept = pieces.pop();
            (pieces, kept)
        })
        .join()
        .unwrap_or_default();
        assert_eq!(freed.len(), 999);
        drop(freed);
        let before = resident();
        assert!(super::give_back());
        let after = resident();
        assert!(after + (80 << 10) < before, "{before} KiB before, {after} after");
        drop(kept);
    }
}
