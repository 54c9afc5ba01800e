//! The examples of the guide, exactly as written.

use std::time::Duration;

use rategate::wait::{CancelToken, Wake};
use rategate::{Clock, ManualClock};
use rategate_server::protocol::http::Options;
use serde_json::Value as Json;

use crate::http::common::{on_clock, on_monday};
use crate::lines::holds;

const GUIDE: &str = include_str!("../../../../docs/guides/http.md");

/// A clock that goes on with each reading, as time does while a request is answered.
#[derive(Clone)]
struct Ticking(ManualClock);

impl Clock for Ticking {
    fn now_ns(&self) -> u64 {
        self.0.advance(Duration::from_nanos(1));
        self.0.now_ns()
    }

    fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
        self.0.wait(until_ns, cancel)
    }
}

/// Returns the code blocks in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("\n```{language}\n");
    let sections = GUIDE.split(&*fence).skip(1);
    sections.map(|section| section.split_once("\n```\n").unwrap().0).collect()
}

#[test]
fn every_example_is_answered_as_it_says() {
    let [rules] = blocks("toml").try_into().unwrap();
    let rules = rategate_server::config::load_text("rules.toml", rules).unwrap().rules;
    let rules = rules.set().as_ref().clone();
    let service = on_clock(Ticking(on_monday()), rules, Options::default());
    let examples = blocks("http");
    assert_eq!(examples.len(), 30);
    for example in examples {
        let (request, expected) = example.split_once("\n\n").unwrap();
        let (line, body) = request.split_once('\n').unwrap_or((request, ""));
        let (method, uri) = line.split_once(' ').unwrap();
        let answer = service.call(method, uri, &[], body);
        let mut lines = expected.lines();
        assert_eq!(answer.status.to_string(), lines.next().unwrap(), "{request}: {answer:?}");
        for line in lines {
            if line.starts_with('{') {
                let expected: Json = serde_json::from_str(line).unwrap();
                assert!(holds(&expected, &answer.json()), "{request}: {}", answer.json());
            } else {
                let (name, value) = line.split_once(": ").unwrap();
                assert_eq!(answer.field(name), value, "{request}");
            }
        }
    }
}
