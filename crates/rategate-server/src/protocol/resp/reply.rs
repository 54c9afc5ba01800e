//! Answers become bytes, in either version of the protocol.

/// Writes replies behind each other. What a version lacks is written as the nearest it has: maps become arrays of names and
/// values in turn, truths become 1 and 0.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    version: Version,
}

/// Which protocol a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// RESP2, which each connection starts with.
    #[default]
    Two,
    /// RESP3, after `HELLO 3`.
    Three,
}

impl<'a> Reply<'a> {
    /// Replies at the end of `out`.
    pub const fn new(out: &'a mut Vec<u8>, version: Version) -> Self {
        Self { out, version }
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A status of the server's own words.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error; its first word is its code. Bytes that would end the line become spaces.
    pub fn error(&mut self, text: &str) {
        self.out.push(b'-');
        self.out.extend(
            text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n' | 0) { b' ' } else { byte }),
        );
        self.out.extend_from_slice(b"\r\n");
    }

    /// A number.
    pub fn integer(&mut self, number: i64) {
        // The digits that most replies consist of.
        if let Ok(digit) = u8::try_from(number)
            && digit < 10
        {
            self.out.extend_from_slice(&[b':', b'0' | digit, b'\r', b'\n']);
            return;
        }
        let mut digits = itoa::Buffer::new();
        self.line(b':', digits.format(number).as_bytes());
    }

    /// A number that is never negative; the largest there is if it is larger.
    pub fn unsigned(&mut self, number: u64) {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        let mut digits = itoa::Buffer::new();
        self.line(b'$', digits.format(bytes.len()).as_bytes());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Nothing.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// Yes or no.
    pub fn truth(&mut self, truth: bool) {
        self.out.extend_from_slice(match (self.version, truth) {
            (Version::Two, true) => b":1\r\n",
            (Version::Two, false) => b":0\r\n",
            (Version::Three, true) => b"#t\r\n",
            (Version::Three, false) => b"#f\r\n",
        });
    }

    /// The start of so many replies that belong together.
    pub fn array(&mut self, elements: usize) {
        if elements == 5 {
            self.out.extend_from_slice(b"*5\r\n");
            return;
        }
        let mut digits = itoa::Buffer::new();
        self.line(b'*', digits.format(elements).as_bytes());
    }

    /// The start of so many names and values in turn.
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
