//! Encoding of replies in either version of the protocol, and of commands.

/// A writer of consecutive replies. A command is written as a reply is: an array of bulk strings.
///
/// Types that a version lacks are written as its nearest type: maps become arrays of alternating
/// names and values, booleans become 1 and 0.
#[derive(Debug)]
pub struct RespWriter<'a> {
    out: &'a mut Vec<u8>,
    version: Version,
}

/// The version of the protocol that a client uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// RESP2, which each connection starts with.
    #[default]
    Two,
    /// RESP3, after `HELLO 3`.
    Three,
}

impl<'a> RespWriter<'a> {
    /// Creates a writer that appends to `out`.
    pub const fn new(out: &'a mut Vec<u8>, version: Version) -> Self {
        Self { out, version }
    }

    /// Writes `+OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// Writes a status.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Writes an error, whose first word is its code. Bytes that would end the line become spaces.
    pub fn error(&mut self, text: &str) {
        self.out.push(b'-');
        self.out.extend(
            text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n' | 0) { b' ' } else { byte }),
        );
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a number.
    pub fn integer(&mut self, number: i64) {
        // Most replies consist of single digits.
        if let Ok(digit) = u8::try_from(number)
            && digit < 10
        {
            self.out.extend_from_slice(&[b':', b'0' | digit, b'\r', b'\n']);
            return;
        }
        let mut digits = itoa::Buffer::new();
        self.line(b':', digits.format(number).as_bytes());
    }

    /// Writes a number that is never negative. Numbers beyond the protocol's maximum become that
    /// maximum.
    pub fn unsigned(&mut self, number: u64) {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Writes a bulk string of any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        let mut digits = itoa::Buffer::new();
        self.line(b'$', digits.format(bytes.len()).as_bytes());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a null.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// Writes a boolean.
    pub fn truth(&mut self, truth: bool) {
        self.out.extend_from_slice(match (self.version, truth) {
            (Version::Two, true) => b":1\r\n",
            (Version::Two, false) => b":0\r\n",
            (Version::Three, true) => b"#t\r\n",
            (Version::Three, false) => b"#f\r\n",
        });
    }

    /// Writes the head of an array of `elements` replies, which follow.
    pub fn array(&mut self, elements: usize) {
        if elements == 5 {
            self.out.extend_from_slice(b"*5\r\n");
            return;
        }
        let mut digits = itoa::Buffer::new();
        self.line(b'*', digits.format(elements).as_bytes());
    }

    /// Writes the head of a map of `pairs` names and values, which follow.
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Two => self.array(pairs.saturating_mul(2)),
            Version::Three => {
                let mut digits = itoa::Buffer::new();
                self.line(b'%', digits.format(pairs).as_bytes());
            }
        }
    }

    fn line(&mut self, mark: u8, text: &[u8]) {
        self.out.push(mark);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}
