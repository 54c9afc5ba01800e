//! HTTP/1.1: one request in flight on each connection, which is kept.

use rategate_bench::engines::Made;

use super::Dialect;
use super::key_sequence::KeySequence;
use super::tally::LoadTally;
use super::template::Template;

/// The text in the body of a grant.
const ALLOWED: &[u8] = b"\"allowed\":true";
/// The text in the body of a denial.
const DENIED: &[u8] = b"\"allowed\":false";

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    template: Template,
    is_waiting: bool,
    sent_ns: u64,
}

impl Http {
    /// Creates a connection that posts this JSON.
    pub(crate) fn post(path: &str, body: &str) -> Self {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        Self { template: Template::new((head + body).into_bytes()), is_waiting: false, sent_ns: 0 }
    }
}

impl Dialect for Http {
    fn write_requests(&mut self, key_sequence: &mut KeySequence, now_ns: u64, out: &mut Vec<u8>) {
        if self.is_waiting {
            return;
        }
        if let Some(key) = key_sequence.key() {
            self.template.write(key, out);
            (self.is_waiting, self.sent_ns) = (true, now_ns);
        }
    }

    fn read_replies(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        tally: &mut LoadTally,
        _out: &mut Vec<u8>,
    ) -> Made<usize> {
        let Some((length, body_at)) = response(bytes)? else { return Ok(0) };
        let body = bytes.get(body_at..length).unwrap_or_default();
        if !std::mem::take(&mut self.is_waiting) {
            return Err("a reply without a request".into());
        }
        let took_ns = now_ns.saturating_sub(self.sent_ns);
        if memchr::memmem::find(body, ALLOWED).is_some() {
            tally.answer(true, took_ns);
        } else if memchr::memmem::find(body, DENIED).is_some() {
            tally.answer(false, took_ns);
        } else {
            tally.fail(bytes.get(..length).unwrap_or_default());
        }
        Ok(length)
    }

    fn waits_for(&self) -> usize {
        usize::from(self.is_waiting)
    }
}

/// Returns the length of a response and where its body begins, or `None` if it has not fully
/// arrived.
pub(crate) fn response(bytes: &[u8]) -> Made<Option<(usize, usize)>> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let head = bytes.get(..end).unwrap_or_default();
    let length = content_length(head).ok_or("a response without content-length")?;
    let body_at = end + 4;
    Ok((bytes.len() >= body_at + length).then_some((body_at + length, body_at)))
}

fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let mut ends = memchr::memchr_iter(b'\n', head);
    let at = ends.find(|&at| {
        head.get(at + 1..at + 1 + NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME))
    })?;
    let value = head.get(at + 1 + NAME.len()..)?;
    let digits = value.trim_ascii_start().iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::response;

    #[test]
    fn a_response_ends_where_its_length_says() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx: y\r\n\r\n";
        let whole = format!("{head}{{}}HTTP/1.1");
        assert_eq!(response(whole.as_bytes()).unwrap(), Some((head.len() + 2, head.len())));
        assert_eq!(response(&whole.as_bytes()[..=head.len()]).unwrap(), None);
        assert!(response(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
