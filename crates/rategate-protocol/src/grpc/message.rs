//! Messages with their prefix of five bytes: a flag and a length.

use bytes::{BufMut, BytesMut};

use super::status::{Code, Status};

/// The error for bytes of a call that are not exactly one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// The message is compressed.
    #[error("the message has a flag that means compression")]
    Compressed,
    /// The message exceeds the maximum length.
    #[error("a message of {bytes} bytes is longer than {max}")]
    TooLong {
        /// The length of the message.
        bytes: usize,
        /// The maximum.
        max: usize,
    },
    /// The head of the call exceeds the maximum length.
    #[error("the fields of the call's head count more than {max} bytes")]
    LongHead {
        /// The maximum.
        max: usize,
    },
    /// The call has more than one message.
    #[error("there is more than one message")]
    Several,
    /// The call has no message.
    #[error("there is no message")]
    Missing,
    /// The call ends within a message.
    #[error("the call ends within a message")]
    CutOff,
}

impl From<BadFrame> for Status {
    fn from(bad: BadFrame) -> Self {
        let code = match bad {
            BadFrame::TooLong { .. } | BadFrame::LongHead { .. } => Code::ResourceExhausted,
            _ => Code::Internal,
        };
        Self::new(code, bad.to_string())
    }
}

/// Returns the length of the first message with its prefix, or `None` while the prefix is
/// incomplete.
///
/// The caller checks that all these bytes have arrived.
///
/// # Errors
///
/// A message that is compressed, or longer than `max`. Both are detected before memory is
/// reserved for it.
pub fn length(bytes: &[u8], max: usize) -> Result<Option<usize>, BadFrame> {
    let Some((&[flag, a, b, c, d], _)) = bytes.split_first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    if flag != 0 {
        return Err(BadFrame::Compressed);
    }
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > max {
        return Err(BadFrame::TooLong { bytes: length, max });
    }
    Ok(Some(length.saturating_add(PREFIX)))
}

/// Returns the only message of a call that has ended.
///
/// # Errors
///
/// [`BadFrame`], unless the bytes are exactly one message of at most `max` bytes.
pub fn only(bytes: &[u8], max: usize) -> Result<&[u8], BadFrame> {
    match length(bytes, max)? {
        Some(length) if length == bytes.len() => Ok(bytes.get(PREFIX..).unwrap_or_default()),
        Some(length) if length < bytes.len() => Err(BadFrame::Several),
        _ if bytes.is_empty() => Err(BadFrame::Missing),
        _ => Err(BadFrame::CutOff),
    }
}

/// The length of a prefix, in bytes.
pub const PREFIX: usize = 5;

/// Writes a message with its prefix. `write` appends the message itself.
pub fn prefixed(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_slice(&[0; PREFIX]);
    write(out);
    let length = out.len().saturating_sub(start).saturating_sub(PREFIX);
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    if let Some(prefix) = out.get_mut(start.saturating_add(1)..start.saturating_add(PREFIX)) {
        prefix.copy_from_slice(&length);
    }
}
