//! Requests of HTTP as lines of text, and behind an arrow what is in their answers.
//!
//! ```text
//! {rule: api, key: ann, permits: 2} => [{remaining: 1}]
//! GET /v1/auth?rule=api & x-api-key: 5 => 429 & retry-after: 3 & ~ no more
//! ```
//!
//! A request is a method with an address and a body, or a body alone for `POST /v1/check`, and then
//! header fields, each behind a `&`. Bodies are written in the short form of YAML, and sent as JSON.
//! An answer is a status, which is 200 unless it is said, and parts of it behind `&` signs: members
//! of its object, all of its `items`, a header field, or behind `~` some of its text. A member that
//! is null may be missing, and so may a field without a value. `$7` is an id. A line that begins
//! with a sign, or with two dots, goes on with the one before.

use serde_json::Value as Json;

use crate::resp::client::Client;
use crate::serve::clients::{Answer, Service};

/// A request as it is sent.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: String,
}

/// Calls a function with each line of a story: what is before its arrow, and what is behind it.
pub(crate) fn each(story: &str, mut play: impl FnMut(&str, &str)) {
    let lines = story.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    let mut whole: Vec<String> = Vec::new();
    for line in lines {
        match whole.last_mut() {
            Some(last) if ["=>", "&", ".."].iter().any(|sign| line.starts_with(sign)) => {
                last.push_str(&format!(" {}", line.trim_start_matches(".. ")));
            }
            _ => whole.push(line.to_owned()),
        }
    }
    for line in whole {
        println!("{line}");
        let (asked, expected) = line.split_once(" => ").unwrap_or((&line, ""));
        play(&with_ids(asked), &with_ids(expected));
    }
}

/// Plays a line, with what sends its request.
pub(crate) fn check(asked: &str, expected: &str, send: impl FnOnce(&Asked) -> Answer) {
    let answer = send(&Asked::of(asked));
    let mut status = 200;
    for part in expected.split(" & ").filter(|part| !part.is_empty()) {
        let (first, rest) = part.split_at(1);
        let holds = match first {
            "{" => holds(&yaml(part), &answer.json()),
            "[" => holds(&yaml(part), &answer.json()["items"]),
            "~" => answer.text().contains(rest.trim_start()),
            _ if part.len() == 3 => {
                status = part.parse().unwrap();
                true
            }
            _ => {
                let (name, value) = part.split_once(':').unwrap();
                answer.field(name) == value.trim_start()
            }
        };
        assert!(holds, "{part}: {answer:?}, {}", answer.text());
    }
    assert_eq!(answer.status, status, "{}", answer.text());
}

impl Asked {
    fn of(text: &str) -> Self {
        let mut parts = text.split(" & ");
        let first = parts.next().unwrap();
        let (line, body) = match first.strip_prefix('{') {
            Some(_) => ("POST /v1/check", first),
            None => match first.match_indices(' ').nth(1) {
                Some((at, _)) => (&first[..at], &first[at + 1..]),
                None => (first, ""),
            },
        };
        let (method, uri) = line.split_once(' ').unwrap();
        let is_short = body.starts_with(['{', '[']);
        let fields = parts.map(|field| {
            let (name, value) = field.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        });
        Self {
            method: method.to_owned(),
            uri: uri.to_owned(),
            fields: fields.collect(),
            body: if is_short { yaml(body).to_string() } else { body.to_owned() },
        }
    }
}

impl Service {
    /// Plays a story, each request on a connection of its own. Lines that are no request of HTTP
    /// are commands of Redis' protocol, or metrics.
    pub(crate) fn play(&self, story: &str) {
        each(story, |asked, expected| {
            let word = asked.split(' ').next().unwrap();
            if word.starts_with("rategate_") {
                let value = self.metric(asked).unwrap_or_else(|| "none".to_owned());
                assert_eq!(value, expected);
            } else if word.starts_with('{') || asked[word.len()..].starts_with(" /") {
                check(asked, expected, |asked| self.send(asked));
            } else {
                Client::at(self.at("resp").parse().unwrap()).unwrap().check(asked, expected);
            }
        });
    }

    pub(crate) fn send(&self, asked: &Asked) -> Answer {
        let Asked { method, uri, fields, body } = asked;
        let mut head = format!("{method} {uri} HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
        if !fields.iter().any(|(name, _)| name == "host") {
            head.push_str("host: localhost\r\n");
        }
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.http().answer(&format!("{head}\r\n{body}"))
    }
}

/// Writes `$` and digits as an id of 32.
fn with_ids(line: &str) -> String {
    let (first, rest) = line.split_once('$').unwrap_or((line, ""));
    let ids = rest.split('$').filter(|part| !part.is_empty()).map(|part| {
        let end = part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len());
        format!("{:f>32}{}", &part[..end], &part[end..])
    });
    [first.to_owned()].into_iter().chain(ids).collect()
}

/// Reads a value in the short form.
pub(crate) fn yaml(text: &str) -> Json {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns `true` if all expected members are present; more may be. `_` stands for any value.
pub(crate) fn holds(expected: &Json, actual: &Json) -> bool {
    match (expected, actual) {
        (Json::Object(expected), Json::Object(actual)) => expected
            .iter()
            .all(|(name, value)| holds(value, actual.get(name).unwrap_or(&Json::Null))),
        (Json::Array(expected), Json::Array(actual)) => {
            expected.len() == actual.len()
                && expected.iter().zip(actual).all(|(expected, actual)| holds(expected, actual))
        }
        // A map of the second version of Redis' protocol.
        (Json::Object(expected), Json::Array(pairs)) => expected.iter().all(|(name, value)| {
            let found = pairs.chunks(2).find(|pair| pair[0] == **name);
            found.is_some_and(|pair| holds(value, &pair[1]))
        }),
        (Json::String(any), _) if any == "_" => true,
        _ => expected == actual,
    }
}
