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
        Self { template: Template::new(command(words)), answer, pipeline, waits_for: 0, sent_ns: 0 }
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
            let Some((count, first)) = reply(rest)? else { break };
            match (self.answer, first) {
                (_, None) => tally.fail(rest.get(..count).unwrap_or_default()),
                (Answer::Number, Some(_)) => tally.answer(true, took_ns),
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
    use super::reply;

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
}
