//! RESP: a batch of requests in one write, the next when all of them have their replies.

use rategate_bench::engines::Made;

use super::Dialect;
use super::key_sequence::KeySequence;
use super::tally::LoadTally;
use super::template::Template;

/// The form of the replies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// A list that begins with 0 for a grant, as redis-cell's.
    Limited,
    /// A list that begins with 1 for a grant, as throttlecrab's.
    Allowed,
    /// Any number, always a grant.
    Number,
    /// A list of names and values, as many for each request as `replies`. All of them allow it.
    Own { replies: usize },
}

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct Resp {
    template: Template,
    answer: Answer,
    pipeline: usize,
    waits_for: usize,
    sent_ns: u64,
}

impl Resp {
    pub(crate) fn new(words: &[&str], answer: Answer, pipeline: usize) -> Self {
        Self::of_bytes(command(words), answer, pipeline)
    }

    /// Creates a connection whose requests are of several commands each.
    pub(crate) fn of_bytes(bytes: Vec<u8>, answer: Answer, pipeline: usize) -> Self {
        Self { template: Template::new(bytes), answer, pipeline, waits_for: 0, sent_ns: 0 }
    }
}

/// Returns a command as it is sent.
pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

impl Dialect for Resp {
    fn write_requests(&mut self, key_sequence: &mut KeySequence, now_ns: u64, out: &mut Vec<u8>) {
        if self.waits_for > 0 {
            return;
        }
        self.sent_ns = now_ns;
        while self.waits_for < self.pipeline {
            let Some(key) = key_sequence.key() else { break };
            self.template.write(key, out);
            self.waits_for += 1;
        }
    }

    fn read_replies(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        tally: &mut LoadTally,
        _out: &mut Vec<u8>,
    ) -> Made<usize> {
        let took_ns = now_ns.saturating_sub(self.sent_ns);
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            if let Answer::Own { replies } = self.answer {
                let Some(count) = lists(rest, replies) else { break };
                let reply = rest.get(..count).unwrap_or_default();
                let allowed = b"allowed\r\n:1\r\n";
                let allows = memchr::memmem::find_iter(reply, allowed).count() == replies;
                if reply[0] == b'-' {
                    tally.fail(reply);
                } else {
                    tally.answer(allows, took_ns);
                }
                taken += count;
                self.waits_for =
                    self.waits_for.checked_sub(1).ok_or("a reply without a request")?;
                continue;
            }
            let Some((count, first)) = reply(rest)? else { break };
            match (self.answer, first) {
                (_, None) => tally.fail(rest.get(..count).unwrap_or_default()),
                (Answer::Number | Answer::Own { .. }, Some(_)) => tally.answer(true, took_ns),
                (Answer::Limited, Some(first)) => tally.answer(first == 0, took_ns),
                (Answer::Allowed, Some(first)) => tally.answer(first == 1, took_ns),
            }
            taken += count;
            self.waits_for = self.waits_for.checked_sub(1).ok_or("a reply without a request")?;
        }
        Ok(taken)
    }

    fn waits_for(&self) -> usize {
        self.waits_for
    }
}

/// Returns the length of as many replies, which are errors or lists without lists in them. Returns
/// `None` if they have not fully arrived.
fn lists(bytes: &[u8], replies: usize) -> Option<usize> {
    let (mut at, mut left) = (0, replies);
    while left > 0 {
        let end = memchr::memchr(b'\n', bytes.get(at..)?)?;
        let kind = bytes[at];
        let count = bytes[at + 1..at + end].iter().take_while(|byte| byte.is_ascii_digit());
        let count = count.fold(0, |count, digit| count * 10 + usize::from(digit - b'0'));
        at += match kind {
            // Its text, and the end of that line. The length of none is negative.
            b'$' if bytes[at + 1] != b'-' => end + 1 + count + 2,
            _ => end + 1,
        };
        left += if kind == b'*' { count } else { 0 };
        left -= 1;
    }
    (at <= bytes.len()).then_some(at)
}

/// Returns the length of the first reply, and its first number if it is a number or a list of
/// them. Returns `None` if it has not fully arrived.
fn reply(bytes: &[u8]) -> Made<Option<(usize, Option<i64>)>> {
    let Some((head, number)) = line(bytes)? else { return Ok(None) };
    match bytes[0] {
        b':' => Ok(Some((head, Some(number)))),
        b'*' => {
            let (mut at, mut first) = (head, None);
            for _ in 0..number {
                let Some((count, number)) = line(bytes.get(at..).unwrap_or_default())? else {
                    return Ok(None);
                };
                first = first.or(Some(number));
                at += count;
            }
            Ok(Some((at, first)))
        }
        _ => Ok(Some((head, None))),
    }
}

/// Returns the length of a line, its end included, and its number. The number of a text has no
/// meaning.
#[inline]
fn line(bytes: &[u8]) -> Made<Option<(usize, i64)>> {
    let (mut number, mut is_negative) = (0_i64, false);
    for (at, &byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' => number = number.wrapping_mul(10).wrapping_add(i64::from(byte - b'0')),
            b'-' => is_negative = true,
            b'\n' => {
                if bytes[0] == b'$' {
                    return Err("a text where numbers are expected".into());
                }
                return Ok(Some((
                    at + 1,
                    if is_negative { number.wrapping_neg() } else { number },
                )));
            }
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::{lists, reply};

    #[test]
    fn a_reply_is_whole_or_not_there_yet() {
        let whole = b"*5\r\n:0\r\n:10\r\n:9\r\n:-1\r\n:3600\r\n";
        assert_eq!(reply(whole).unwrap(), Some((whole.len(), Some(0))));
        for length in 1..whole.len() {
            assert_eq!(reply(&whole[..length]).unwrap(), None);
        }
        assert_eq!(reply(b":-12\r\n+OK").unwrap(), Some((6, Some(-12))));
        assert_eq!(reply(b"-ERR 1\r\n").unwrap(), Some((8, None)));
        assert!(reply(b"*1\r\n$1\r\na\r\n").is_err());
    }

    #[test]
    fn lists_of_names_and_values_are_whole_or_not_there_yet() {
        let whole = b"*4\r\n$7\r\nallowed\r\n:1\r\n$2\r\nid\r\n$-1\r\n-ERR no\r\n";
        assert_eq!(lists(whole, 2), Some(whole.len()));
        assert_eq!(lists(whole, 1), Some(whole.len() - b"-ERR no\r\n".len()));
        for length in 1..whole.len() {
            assert_eq!(lists(&whole[..length], 2), None);
        }
    }
}
