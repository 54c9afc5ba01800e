//! Streams of commands, fed to the parser in pieces.

use rategate_server::protocol::resp::{Bounds, Broken, Step, WordSpans, parse, words};

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
