//! Streams of commands and replies, fed to the parsers in pieces.

#![allow(dead_code, reason = "the tests use all of it, each target of the fuzzer its part")]

use rategate_protocol::resp::{
    BadReply, Bounds, Broken, ReplyParser, RespWriter, Step, Value, Version, WordSpans, parse,
    words,
};

/// The result of decoding a stream of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) commands: Vec<Vec<Vec<u8>>>,
    pub(crate) broken: Option<Broken>,
}

/// Feeds bytes in pieces of these sizes, the last one repeatedly, as a connection would. Also
/// returns the maximum number of bytes buffered at a time.
pub(crate) fn parse_pieces(bytes: &[u8], pieces: &[usize], bounds: &Bounds) -> (Parsed, usize) {
    let mut parsed = Parsed::default();
    let mut spans = WordSpans::default();
    let (mut buffered, mut max_buffered, mut needed) = (Vec::new(), 0, 0);
    let mut rest = bytes;
    let mut sizes = pieces.iter().copied().chain(std::iter::repeat(*pieces.last().unwrap()));
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(sizes.next().unwrap().clamp(1, rest.len()));
        rest = after;
        buffered.extend_from_slice(piece);
        if buffered.len() < needed {
            max_buffered = max_buffered.max(buffered.len());
            continue;
        }
        loop {
            match parse(&buffered, bounds, &mut spans) {
                Step::Command(count) => {
                    let words = words(&buffered, &spans);
                    assert!(words.len() <= bounds.words && count <= buffered.len() && count > 0);
                    parsed.commands.push(words.skip(0).map(<[u8]>::to_vec).collect());
                    buffered.drain(..count);
                }
                Step::Nothing(count) => {
                    assert!(count > 0);
                    buffered.drain(..count);
                }
                Step::Short(more) => {
                    assert!(more > buffered.len(), "{more} bytes are there already");
                    needed = more;
                    break;
                }
                Step::Broken(broken) => {
                    parsed.broken = Some(broken);
                    return (parsed, max_buffered);
                }
            }
        }
        max_buffered = max_buffered.max(buffered.len());
    }
    (parsed, max_buffered)
}

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

/// Returns values as a server writes them.
pub(crate) fn written(values: &[Value]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        write(value, &mut RespWriter::new(&mut out, Version::Two));
    }
    out
}

fn write(value: &Value, writer: &mut RespWriter<'_>) {
    match value {
        Value::Null => writer.null(),
        Value::Int(number) => writer.integer(*number),
        Value::Bytes(bytes) => writer.bulk(bytes),
        Value::Error(text) => writer.error(text),
        Value::List(values) => {
            writer.array(values.len());
            for value in values {
                write(value, writer);
            }
        }
    }
}
