//! Messages within the bytes of a call: each has a prefix of five bytes before it, a flag and its length.

use super::status::{Code, Status};

/// How many bytes the first message takes with its prefix, once its prefix is there. Whether they are all there is for the
/// caller to see.
///
/// # Errors
///
/// A message that is compressed, or longer than `most`: known before there is memory for it.
pub(crate) fn length(bytes: &[u8], most: usize) -> Result<Option<usize>, Status> {
    let Some((&[flag, a, b, c, d], _)) = bytes.split_first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    if flag != 0 {
        return Err(Status::new(Code::Internal, "the message has a flag that means compression"));
    }
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > most {
        let message = format!("a message of {length} bytes is longer than {most}");
        return Err(Status::new(Code::ResourceExhausted, message));
    }
    Ok(Some(length.saturating_add(PREFIX)))
}

/// The only message of a call that has ended.
pub(crate) fn only(bytes: &[u8], most: usize) -> Result<&[u8], Status> {
    match length(bytes, most)? {
        Some(length) if length == bytes.len() => Ok(bytes.get(PREFIX..).unwrap_or_default()),
        Some(length) if length < bytes.len() => {
            Err(Status::new(Code::Internal, "there is more than one message"))
        }
        _ if bytes.is_empty() => Err(Status::new(Code::Internal, "there is no message")),
        _ => Err(Status::new(Code::Internal, "the call ends within a message")),
    }
}

/// How long a prefix is.
pub(crate) const PREFIX: usize = 5;
