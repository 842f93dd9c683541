//! A byte buffer whose start is aligned in memory, as direct I/O wants it, without unsafe code.

use super::DIRECT_ALIGN;

/// Bytes that start at a multiple of [`DIRECT_ALIGN`] in memory. Grows by replacing, never by moving what is in it.
#[derive(Debug, Default)]
pub struct AlignedBuf {
    /// Up to `DIRECT_ALIGN - 1` bytes longer than needed, so that an aligned start is inside.
    raw: Vec<u8>,
    start: usize,
    capacity: usize,
}

impl AlignedBuf {
    /// A buffer of `bytes` zeros.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        let raw = vec![0; bytes + DIRECT_ALIGN - 1];
        let start = raw.as_ptr().align_offset(DIRECT_ALIGN).min(DIRECT_ALIGN - 1);
        Self {
            raw,
            start,
            capacity: bytes,
        }
    }

    /// Makes sure that it holds at least `bytes`. What was in it is gone when it had to grow.
    pub fn reserve(&mut self, bytes: usize) {
        if self.capacity < bytes {
            // The old memory goes first, so that the two are never held together.
            *self = Self::default();
            *self = Self::zeroed(bytes.next_power_of_two().max(DIRECT_ALIGN));
        }
    }

    /// How many bytes it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.raw
            .get(self.start..self.start + self.capacity)
            .unwrap_or_default()
    }

    /// All of it, to write to.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let end = self.start + self.capacity;
        self.raw.get_mut(self.start..end).unwrap_or_default()
    }

    /// The memory behind it and where in that memory it begins; for handing it on without a copy.
    #[must_use]
    pub fn into_raw(self) -> (Vec<u8>, usize) {
        (self.raw, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_aligned_at_every_size() {
        for bytes in [0, 1, 4096, 5000, 1 << 20] {
            let mut buf = AlignedBuf::zeroed(bytes);
            assert_eq!(buf.bytes().len(), bytes);
            assert_eq!(buf.bytes().as_ptr() as usize % DIRECT_ALIGN, 0);
            buf.reserve(bytes + 1);
            assert!(buf.bytes_mut().len() > bytes);
            assert_eq!(buf.bytes().as_ptr() as usize % DIRECT_ALIGN, 0);
        }
    }
}
