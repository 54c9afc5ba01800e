//! Packed fields, by RFC 7541.

use super::{COMPRESSION, GRPC, Goaway, Reply, Row, headed};
use crate::rls::abuse::{PATH, call, frame, head, right_head, right_message};

/// The field `user-agent` by its number, in the six bits and in the four bits of a field's start.
const AGENT_IN_SIX: u8 = 58;
const AGENT_IN_FOUR: [u8; 2] = [15, 58 - 15];

/// Encodes a call on stream 1 whose head ends with these fields.
fn call_ending(fields: &[&[u8]]) -> Vec<u8> {
    let head = [&head(PATH, &[GRPC]), &fields.concat()[..]].concat();
    [frame(1, 4, 1, &head), frame(0, 1, 1, &right_message())].concat()
}

pub(super) fn rows() -> Vec<Row> {
    let packed = |value: &[u8]| headed(&[b"\x00\x01x", value]);
    let (plain, huffman) = (&b"\x04test"[..], &b"\x83\x49\x50\x9f"[..]);
    let [name, more] = AGENT_IN_FOUR;
    let (kept, passed, never) = ([0x40 | AGENT_IN_SIX], [name, more], [0x10 | name, more]);
    vec![
        ("generic/5/1", "a known field", call_ending(&[b"\x90"]), Reply),
        ("generic/5/2", "a known name, kept", call_ending(&[&kept, plain]), Reply),
        ("generic/5/3", "a known name, kept, packed", call_ending(&[&kept, huffman]), Reply),
        ("generic/5/4", "a new name, kept", call_ending(&[b"\x40", plain, plain]), Reply),
        (
            "generic/5/5",
            "a new name, kept, packed",
            call_ending(&[b"\x40", huffman, huffman]),
            Reply,
        ),
        ("generic/5/6", "a known name", call_ending(&[&passed, plain]), Reply),
        ("generic/5/7", "a known name, packed", call_ending(&[&passed, huffman]), Reply),
        ("generic/5/8", "a new name", call_ending(&[b"\x00", plain, plain]), Reply),
        ("generic/5/9", "a new name, packed", call_ending(&[b"\x00", huffman, huffman]), Reply),
        ("generic/5/10", "a known name, never kept", call_ending(&[&never, plain]), Reply),
        (
            "generic/5/11",
            "a known name, never kept, packed",
            call_ending(&[&never, huffman]),
            Reply,
        ),
        ("generic/5/12", "a new name, never kept", call_ending(&[b"\x10", plain, plain]), Reply),
        (
            "generic/5/13",
            "a new name, never kept, packed",
            call_ending(&[b"\x10", huffman, huffman]),
            Reply,
        ),
        (
            "generic/5/14",
            "a table of no size",
            [headed(&[b"\x20", &right_head()]), call(3)].concat(),
            Reply,
        ),
        (
            "generic/5/15",
            "sizes of the table",
            headed(&[b"\x20\x3f\xe1\x1f", &right_head()]),
            Reply,
        ),
        ("http2/4.3/1", "a field that breaks off", headed(&[b"\x40\x05x"]), Goaway(COMPRESSION)),
        ("", "a number without end", headed(&[b"\xff\xff\xff"]), Goaway(COMPRESSION)),
        ("hpack/6.1/1", "field 0", headed(&[b"\x80"]), Goaway(COMPRESSION)),
        ("hpack/2.3.3/1", "field 70", headed(&[b"\xc6"]), Goaway(COMPRESSION)),
        ("hpack/2.3.3/2", "the name of field 70", headed(&[b"\x7f\x07\x01x"]), Goaway(COMPRESSION)),
        (
            "hpack/6.3/1",
            "too large a size",
            headed(&[b"\x3f\xe2\x1f", &right_head()]),
            Goaway(COMPRESSION),
        ),
        (
            "hpack/4.2/1",
            "a size at the end",
            headed(&[&right_head(), b"\x20"]),
            Goaway(COMPRESSION),
        ),
        ("hpack/5.2/1", "text filled by a byte", packed(b"\x83\x64\x02\xff"), Goaway(COMPRESSION)),
        (
            "hpack/5.2/2",
            "text filled with zeros",
            packed(b"\x86\xa8\xeb\x10\x64\x9c\xb8"),
            Goaway(COMPRESSION),
        ),
        ("hpack/5.2/3", "text with an end", packed(b"\x84\xff\xff\xff\xff"), Goaway(COMPRESSION)),
    ]
}
