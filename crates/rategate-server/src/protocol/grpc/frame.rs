//! Messages within the bytes of a call: each has a prefix of five bytes before it, a flag and its length.

use super::status::{Code, Status};

/// Bytes of a call that are not the one message that it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFrame {
    /// The message is compressed.
    #[error("the message has a flag that means compression")]
    Compressed,
    /// The message is longer than messages may be.
    #[error("a message of {bytes} bytes is longer than {most}")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// The maximum.
        most: usize,
    },
    /// The call's head is longer than heads may be.
    #[error("the fields of the call's head count more than {most} bytes")]
    LongHead {
        /// The maximum.
        most: usize,
    },
    /// More than one message.
    #[error("there is more than one message")]
    Several,
    /// No message.
    #[error("there is no message")]
    Missing,
    /// The end of the call, within a message.
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

/// How many bytes the first message takes with its prefix, once its prefix is there. Whether they are all there is for the
/// caller to see.
///
/// # Errors
///
/// A message that is compressed, or longer than `most`: known before there is memory for it.
pub(crate) fn length(bytes: &[u8], most: usize) -> Result<Option<usize>, BadFrame> {
    let Some((&[flag, a, b, c, d], _)) = bytes.split_first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    if flag != 0 {
        return Err(BadFrame::Compressed);
    }
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > most {
        return Err(BadFrame::TooLong { bytes: length, most });
    }
    Ok(Some(length.saturating_add(PREFIX)))
}

/// The only message of a call that has ended.
pub(crate) fn only(bytes: &[u8], most: usize) -> Result<&[u8], BadFrame> {
    match length(bytes, most)? {
        Some(length) if length == bytes.len() => Ok(bytes.get(PREFIX..).unwrap_or_default()),
        Some(length) if length < bytes.len() => Err(BadFrame::Several),
        _ if bytes.is_empty() => Err(BadFrame::Missing),
        _ => Err(BadFrame::CutOff),
    }
}

/// How long a prefix is.
pub(crate) const PREFIX: usize = 5;
