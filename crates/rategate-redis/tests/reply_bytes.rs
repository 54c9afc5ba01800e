//! Bytes of replies: read, or refused, and equal however they are split.

use fastrand::Rng;
use rategate_redis::reply::{BadReply, Value};

use crate::reply_laws::replies;

/// Each piece is a reply, a part of one, or none.
const PIECES: [&str; 12] = [
    "+OK\r\n",
    "-ERR no\r\n",
    ":42\r\n",
    "$-1\r\n",
    "$3\r\na\r\n\r\n",
    "*2\r\n",
    "*0\r\n",
    "*-1\r\n",
    "$4\r\n",
    "\r\n",
    "*9223372036854775807\r\n",
    "_\r\n",
];

#[test]
fn replies_mean_the_same_however_they_are_cut() {
    let mut random = Rng::with_seed(7);
    for run in 0..2_000 {
        let bytes: Vec<u8> = (0..random.u8(1..9))
            .flat_map(|_| random.choice(PIECES).unwrap().bytes().collect::<Vec<_>>())
            .collect();
        let pieces: Vec<usize> = (0..random.u8(1..9)).map(|_| random.usize(1..9)).collect();
        assert_eq!(replies(&bytes, &pieces), replies(&bytes, &[usize::MAX]), "{run}: {bytes:?}");
    }
}

/// Each kind of reply, and each way in which bytes are none.
#[test]
fn replies_are_read_or_refused() {
    let one = |text: &str| replies(text.as_bytes(), &[usize::MAX]).map(|values| values[0].clone());
    assert_eq!(one("+OK\r\n"), Ok(Value::Bytes(b"OK".to_vec())));
    assert_eq!(one("-ERR no\r\n"), Ok(Value::Error("ERR no".to_owned())));
    assert_eq!(one("$-1\r\n"), Ok(Value::Null));
    assert_eq!(one("*-1\r\n"), Ok(Value::Null));
    assert_eq!(
        one("*2\r\n*0\r\n:-7\r\n"),
        Ok(Value::List(vec![Value::List(vec![]), Value::Int(-7)]))
    );
    assert_eq!(one("_\r\n"), Err(BadReply::Kind(b'_')));
    assert_eq!(one(":1\rx"), Err(BadReply::Line));
    assert_eq!(one(":x\r\n"), Err(BadReply::Number));
    assert_eq!(one("$-2\r\n"), Err(BadReply::Number));
    assert_eq!(one("*9223372036854775808\r\n"), Err(BadReply::Number));
    assert_eq!(one("$1\r\nab\r\n"), Err(BadReply::End));
    assert_eq!(replies(b"$1\r\nab", &[1]), Err(BadReply::End), "as soon as it is known");
    assert_eq!(one(&format!("+{}", "x".repeat((64 << 10) + 1))), Err(BadReply::Line));
    assert_eq!(one(&"*1\r\n".repeat(9)), Err(BadReply::Depth));
    assert_eq!(one("$67108865\r\n"), Err(BadReply::TooLong));
    // A list gets memory as its elements arrive.
    assert_eq!(replies(b"*9223372036854775807\r\n", &[1]), Ok(vec![]));
}
