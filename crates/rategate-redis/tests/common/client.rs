//! A RESP2 connection for tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rategate_redis::reply::Value;

/// A reply as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    List(Vec<Self>),
}

impl Reply {
    /// Converts the reply to the crate's type.
    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Int(number) => Value::Int(*number),
            Self::Bulk(bytes) => Value::Bytes(bytes.clone()),
            Self::List(items) => Value::List(items.iter().map(Self::value).collect()),
            _ => Value::Null,
        }
    }

    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("no number: {other:?}"),
        }
    }

    pub(crate) fn error(&self) -> &str {
        match self {
            Self::Error(line) => line,
            other => panic!("no error: {other:?}"),
        }
    }

    pub(crate) fn list_text(&self) -> Vec<String> {
        match self {
            Self::List(items) => items.iter().map(Self::text).collect(),
            other => panic!("no list: {other:?}"),
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Status(text) => text.clone(),
            other => panic!("no text: {other:?}"),
        }
    }
}

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self { stream: BufReader::with_capacity(1 << 16, stream), out: Vec::new() })
    }

    /// Adds a call to the pipeline.
    pub(crate) fn push<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        write!(self.out, "*{}\r\n", words.len()).unwrap();
        for word in words {
            let word = word.as_ref();
            write!(self.out, "${}\r\n", word.len()).unwrap();
            self.out.extend_from_slice(word);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    pub(crate) fn flush(&mut self) {
        self.stream.get_mut().write_all(&self.out).unwrap();
        self.out.clear();
    }

    pub(crate) fn try_call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> std::io::Result<Reply> {
        self.push(words);
        let sent = self.stream.get_mut().write_all(&self.out);
        self.out.clear();
        sent?;
        self.try_read()
    }

    pub(crate) fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        self.try_call(words).unwrap()
    }

    /// Makes a call that must not fail.
    pub(crate) fn ok<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        match self.call(words) {
            Reply::Error(line) => {
                let shown: Vec<_> =
                    words.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
                panic!("{line}\n{:.400}", shown.join(" "))
            }
            reply => reply,
        }
    }

    pub(crate) fn read(&mut self) -> Reply {
        self.try_read().unwrap()
    }

    fn try_read(&mut self) -> std::io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (mark, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().unwrap();
        Ok(match mark {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()),
            "$" => match usize::try_from(number()) {
                Err(_) => Reply::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Bulk(bytes)
                }
            },
            "*" => match usize::try_from(number()) {
                Err(_) => Reply::Nil,
                Ok(length) => {
                    Reply::List((0..length).map(|_| self.try_read()).collect::<Result<_, _>>()?)
                }
            },
            other => panic!("no RESP2: {other}{rest}"),
        })
    }
}
