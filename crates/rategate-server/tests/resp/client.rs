//! A service for one test, and a connection to it that sends words and receives replies.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rategate_server::config::settings::Listener;
use rategate_server::config::{Loaded, Settings, load_text};
use rategate_server::engine::Compiled;
use rategate_server::net::Address;
use rategate_server::rule::RuleSet;
use rategate_server::serve::{Running, Start, start};
use serde_json::Value as Json;

use crate::lines;

/// The maximum time for a reply before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Starts a service on a free port, with changed settings.
pub(crate) fn serve(change: impl FnOnce(&mut Settings)) -> Running {
    serve_rules(RuleSet::default(), change)
}

/// Starts a service with the rules of a text.
pub(crate) fn serve_text(rules: &str) -> Running {
    serve_rules(load_text("rules.toml", rules).unwrap().rules.set().as_ref().clone(), |_| ())
}

pub(crate) fn serve_rules(rules: RuleSet, change: impl FnOnce(&mut Settings)) -> Running {
    let mut settings = Settings::default();
    settings.server.resp = vec![Listener::plain(Address::loopback(0))];
    settings.server.http.clear();
    settings.server.grpc.clear();
    settings.server.threads = std::num::NonZeroUsize::new(2);
    change(&mut settings);
    start(Start { loaded: loaded(settings, rules), files: None, signals: false }).unwrap()
}

/// Returns settings and rules as if they had been loaded from files.
pub(crate) fn loaded(settings: Settings, rules: RuleSet) -> Loaded {
    let rules = Compiled::new(rules).unwrap();
    Loaded { settings, hash: rules.hash.clone(), rules, warnings: Vec::new() }
}

/// Returns the TCP address of a service.
pub(crate) fn address(running: &Running) -> SocketAddr {
    let mut listeners = running.listening().iter();
    let address = listeners.find_map(|listener| match listener.address {
        Address::Tcp(address) => Some(address),
        Address::Unix(_) => None,
    });
    address.unwrap()
}

/// A reply as received, in either version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Truth(bool),
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
}

impl Reply {
    pub(crate) fn ints(&self) -> Vec<i64> {
        match self {
            Self::List(all) => all.iter().map(Self::int).collect(),
            other => panic!("no list: {other:?}"),
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
            Self::Error(text) => text,
            other => panic!("no error: {other:?}"),
        }
    }

    /// Returns the value of a name in a map, or in a list that stands for one.
    pub(crate) fn named(&self, name: &str) -> &Self {
        let name = Self::Bulk(name.into());
        let found = match self {
            Self::Map(pairs) => pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value),
            Self::List(all) => all.chunks(2).find(|pair| pair[0] == name).map(|pair| &pair[1]),
            other => panic!("no map: {other:?}"),
        };
        found.unwrap_or_else(|| panic!("no {name:?} in {self:?}"))
    }
}

impl From<Reply> for Json {
    /// Errors begin with `-`, and words that are no strings with `+`. Truths are 0 and 1, as in the
    /// second version.
    fn from(reply: Reply) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match reply {
            Reply::Simple(word) => format!("+{word}").into(),
            Reply::Error(error) => format!("-{error}").into(),
            Reply::Int(number) => number.into(),
            Reply::Bulk(bytes) => text(&bytes).into(),
            Reply::Null => Self::Null,
            Reply::Truth(is_true) => i64::from(is_true).into(),
            Reply::List(all) => all.into_iter().map(Self::from).collect(),
            Reply::Map(pairs) => {
                let key = |key| Self::from(key).as_str().unwrap().to_owned();
                let pairs = pairs.into_iter().map(|(name, value)| (key(name), Self::from(value)));
                Self::Object(pairs.collect())
            }
        }
    }
}

pub(crate) fn text(text: &str) -> Reply {
    Reply::Bulk(text.into())
}

/// Encodes words as a client sends them.
pub(crate) fn command<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Encodes the words of a line as a command, without quotes.
pub(crate) fn line(line: &str) -> Vec<u8> {
    command(&line.split(' ').collect::<Vec<_>>())
}

pub(crate) struct Client<S: Read + Write = TcpStream> {
    pub(crate) stream: BufReader<S>,
}

impl Client {
    pub(crate) fn to(running: &Running) -> Self {
        Self::at(address(running)).unwrap()
    }

    pub(crate) fn at(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Sends the words of a line, and returns the reply.
    pub(crate) fn ask(&mut self, words: &str) -> Reply {
        self.send(&line(words));
        self.read()
    }

    /// Plays the lines of a story, as [`lines`] says: commands, and what their replies are.
    pub(crate) fn play(&mut self, story: &str) {
        lines::each(story, |words, expected| self.check(words, expected));
    }

    /// Sends the words of a line. The reply is what is expected in the short form of YAML, or an
    /// error with this text, whose rest may be left out.
    pub(crate) fn check(&mut self, words: &str, expected: &str) {
        let reply = Json::from(self.ask(words));
        let holds = match (expected.strip_suffix("..."), &reply) {
            _ if expected.is_empty() => !reply.as_str().is_some_and(|it| it.starts_with('-')),
            (Some(start), Json::String(error)) => error.starts_with(start),
            (None, Json::String(error)) if error.starts_with('-') => error == expected,
            _ => lines::holds(&lines::yaml(expected), &reply),
        };
        assert!(holds, "{words}: {reply}, not {expected}");
    }

    pub(crate) fn read(&mut self) -> Reply {
        self.try_read().unwrap()
    }

    /// Returns all bytes until the peer closes.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        String::from_utf8_lossy(&rest).into_owned()
    }

    pub(crate) fn try_read(&mut self) -> std::io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if !line.ends_with("\r\n") {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let (mark, rest) = line.trim_end_matches("\r\n").split_at(1);
        let number = || rest.parse::<i64>().unwrap();
        let count = || usize::try_from(number());
        Ok(match mark {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()),
            "_" => Reply::Null,
            "#" => Reply::Truth(rest == "t"),
            "$" => match count() {
                Err(_) => Reply::Null,
                Ok(count) => {
                    let mut bytes = vec![0; count + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(count);
                    Reply::Bulk(bytes)
                }
            },
            "*" => match count() {
                Err(_) => Reply::Null,
                Ok(count) => {
                    Reply::List((0..count).map(|_| self.try_read()).collect::<Result<_, _>>()?)
                }
            },
            "%" => {
                let pair = |_| Ok((self.try_read()?, self.try_read()?));
                Reply::Map((0..number()).map(pair).collect::<std::io::Result<_>>()?)
            }
            other => panic!("no reply: {other}{rest}"),
        })
    }
}
