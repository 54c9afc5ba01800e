//! Overlong heads, which a proxy's clients can cause: each refuses its own call, and no other on
//! its connection.

use rategate_server::protocol::grpc::Settings;

use crate::rls::abuse::{
    Frame, PATH, Raw, begun_call, contains_text, field, frame, head, right_head, right_message,
    server, server_with,
};

const GRPC: (&str, &str) = ("content-type", "application/grpc");

fn is_denied(answer: &[Frame]) -> bool {
    let data: Vec<u8> = answer.iter().filter(|f| f.0 == 0).flat_map(|f| f.3.clone()).collect();
    data == [0, 0, 0, 0, 2, 8, 2]
}

/// Encodes a head of that many bytes, in frames of the maximum length. Its last field becomes the
/// first of the table.
fn long_head(stream: u32, bytes: usize) -> Vec<u8> {
    let known = [&[0x40][..], &field("x-known", "here")[1..]].concat();
    let mut block = head(PATH, &[GRPC]);
    let filler = field("x-long", &"x".repeat(120));
    while block.len() + filler.len() + known.len() <= bytes {
        block.extend(&filler);
    }
    block.extend(known);
    let fragments: Vec<_> = block.chunks(16 << 10).collect();
    let last = fragments.len() - 1;
    let fragment = |(nth, fragment): (usize, &&[u8])| {
        let (kind, is_ended) = if nth == 0 { (1, 1) } else { (9, 0) };
        frame(kind, is_ended | if nth == last { 4 } else { 0 }, stream, fragment)
    };
    fragments.iter().enumerate().flat_map(fragment).collect()
}

/// A head in many frames is decoded to its end, up to 256 KiB. The call is denied, and the others
/// continue.
#[test]
fn a_head_of_many_frames_refuses_its_call_alone() {
    let mut raw = Raw::greeted(&server());
    raw.send(&begun_call(1));
    for (nth, bytes) in (1..).zip([17 << 10, 64 << 10, 256 << 10]) {
        raw.send(&long_head(1 + 2 * nth, bytes));
        assert!(is_denied(&raw.answer(1 + 2 * nth)), "{bytes} bytes");
    }
    // The last field of each is in the table: the third is the newest.
    let short = [right_head(), vec![0xbe, 0xbf, 0xc0]].concat();
    raw.send(&[frame(1, 4, 9, &short), frame(0, 1, 9, &right_message())].concat());
    assert_eq!(raw.answer(9).len(), 3, "answered");
    raw.send(&frame(0, 1, 1, &right_message()));
    assert_eq!(raw.answer(1).len(), 3, "the call of before goes on");
    raw.send(&long_head(11, (256 << 10) + 200));
    assert_eq!(raw.goaway(), Some(11), "more than the maximum");
}

/// Any number of denied calls is possible: a denial is an answer, and outweighs the frames of its
/// head.
#[test]
fn any_number_of_long_heads_is_denied() {
    let mut raw = Raw::greeted(&server());
    raw.send(&begun_call(1));
    for nth in 1..=1_100 {
        raw.send(&long_head(1 + 2 * nth, 20 << 10));
        assert!(is_denied(&raw.answer(1 + 2 * nth)), "the {nth}th");
    }
    raw.send(&frame(0, 1, 1, &right_message()));
    assert_eq!(raw.answer(1).len(), 3, "the call of before goes on");
}

/// A head with overlong fields affects one call, which is denied, whatever its message is. The
/// others continue, and the table of fields stays synchronized.
#[test]
fn a_head_that_is_too_long_refuses_its_call_alone() {
    let settings = Settings { max_head_bytes: 1_024, ..Settings::default() };
    let server = server_with(settings);
    let mut raw = Raw::greeted(&server);
    let long = "x".repeat(120);
    let grpc = ("content-type", "application/grpc");
    // A field that enters the table, as its first.
    let known = [&[0x40][..], &field("x-long", &long)[1..]].concat();
    let mut too_long = [head(PATH, &[grpc]), known].concat();
    too_long.extend([0xbe; 10]);
    raw.send(&[begun_call(1), frame(1, 4, 3, &too_long)].concat());
    assert!(is_denied(&raw.answer(3)));
    // A call that ends at once is denied too.
    raw.send(&frame(1, 5, 5, &too_long));
    assert!(is_denied(&raw.answer(5)));
    // A call of another method is refused by a status.
    let health = head("/grpc.health.v1.Health/Check", &[grpc]);
    raw.send(&frame(1, 5, 7, &[health, vec![0xbe; 10]].concat()));
    assert!(contains_text(&raw.answer(7), "1024 bytes"));
    // The earlier field is in the table: a head that uses it once is short enough.
    let mut short = right_head();
    short.push(0xbe);
    raw.send(&[frame(1, 4, 9, &short), frame(0, 1, 9, &right_message())].concat());
    assert_eq!(raw.answer(9).len(), 3, "answered");
    raw.send(&frame(0, 1, 1, &right_message()));
    assert_eq!(raw.answer(1).len(), 3, "the call of before goes on");
}
