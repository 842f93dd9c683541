//! Cutting a byte stream into frames without copying it.
//!
//! A frame is `totalSize(4) commandSize(4) command [payload part]`, sizes big-endian, `totalSize` not counting itself.

/// Largest `totalSize` believed: the default `maxMessageSize` plus the protocol's padding, with room for brokers that raise
/// the former.
pub(crate) const MAX_FRAME: usize = 64 << 20;

/// A peer broke the framing; the connection cannot be used any more.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// `totalSize` is above [`MAX_FRAME`] or too small to hold a command.
    #[error("frame of {0} bytes is outside the protocol's limits")]
    Size(usize),
    /// `commandSize` reaches beyond the frame, or the command does not parse.
    #[error("malformed frame")]
    Malformed,
}

/// The frame's whole length, its four length bytes included, once those four have arrived.
#[inline]
pub(crate) fn whole_len(buf: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(size) = buf.first_chunk::<4>() else {
        return Ok(None);
    };
    let size = u32::from_be_bytes(*size) as usize;
    if !(4..=MAX_FRAME).contains(&size) {
        return Err(FrameError::Size(size));
    }
    Ok(Some(size + 4))
}

/// Splits what has arrived of a frame into its command and what follows, once the command is complete.
#[inline]
pub(crate) fn split(frame: &[u8]) -> Option<(&[u8], &[u8])> {
    let size = u32::from_be_bytes(*frame.get(4..)?.first_chunk::<4>()?) as usize;
    frame.get(8..)?.split_at_checked(size)
}

/// The number of the command, when it is the first field as every known encoder writes it.
#[inline]
pub(crate) fn command_type(command: &[u8]) -> Option<u64> {
    let mut rest = command.strip_prefix(&[0x08])?;
    super::fields::read(&mut rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: [u8; 13] = [0, 0, 0, 9, 0, 0, 0, 5, 8, 0x12, 0x92, 1, 0];

    #[test]
    fn a_frame_is_split_into_its_command() {
        assert_eq!(whole_len(&PING), Ok(Some(13)));
        assert_eq!(whole_len(&PING[..3]), Ok(None));
        let (command, rest) = split(&PING).expect("complete");
        assert_eq!(command_type(command), Some(18));
        assert!(rest.is_empty());
        assert_eq!(split(&PING[..12]), None);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert_eq!(whole_len(&[0, 0, 0, 3]), Err(FrameError::Size(3)));
        assert!(whole_len(&[0xff; 4]).is_err());
    }
}
