//! Streams of replies, fed to the parser in pieces.

use rategate_redis::reply::{BadReply, ReplyParser, Value};

/// Feeds bytes in pieces of these sizes, the last one repeatedly, as a connection would.
pub(crate) fn replies(bytes: &[u8], pieces: &[usize]) -> Result<Vec<Value>, BadReply> {
    let (mut parser, mut replies, mut buffered) = (ReplyParser::default(), Vec::new(), Vec::new());
    let mut sizes = pieces.iter().copied().chain(std::iter::repeat(*pieces.last().unwrap()));
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(sizes.next().unwrap().clamp(1, rest.len()));
        rest = after;
        buffered.extend_from_slice(piece);
        loop {
            let (count, reply) = parser.parse(&buffered)?;
            buffered.drain(..count);
            match reply {
                Some(reply) => replies.push(reply),
                None => break,
            }
        }
    }
    Ok(replies)
}
