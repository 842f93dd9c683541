//! Messages and bytes.

/// Messages and bytes sent to consumers, redeliveries included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Messages; a batch counts its members.
    pub messages: u64,
    /// Bytes as stored.
    pub bytes: u64,
}

impl Sent {
    /// Counts more.
    pub fn add(&mut self, more: Self) {
        self.messages += more.messages;
        self.bytes += more.bytes;
    }
}
