//! The examples of the guide, exactly as written.

use serde_json::Value as Json;

use crate::http::common::with_rules;

const GUIDE: &str = include_str!("../../../../docs/guides/http.md");

/// Returns the code blocks in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("\n```{language}\n");
    let sections = GUIDE.split(&*fence).skip(1);
    sections.map(|section| section.split_once("\n```\n").unwrap().0).collect()
}

/// Returns `true` if all expected members are present; more may be.
fn holds(expected: &Json, actual: &Json) -> bool {
    match (expected, actual) {
        (Json::Object(expected), Json::Object(actual)) => expected
            .iter()
            .all(|(name, value)| actual.get(name).is_some_and(|actual| holds(value, actual))),
        (Json::Array(expected), Json::Array(actual)) => {
            expected.len() == actual.len()
                && expected.iter().zip(actual).all(|(expected, actual)| holds(expected, actual))
        }
        _ => expected == actual,
    }
}

#[test]
fn every_example_is_answered_as_it_says() {
    let [rules] = blocks("toml").try_into().unwrap();
    let rules = rategate_server::config::load_text("rules.toml", rules).unwrap().rules;
    let service = with_rules(rules.set().as_ref().clone());
    let examples = blocks("http");
    assert_eq!(examples.len(), 33);
    for example in examples {
        let (request, expected) = example.split_once("\n\n").unwrap();
        let (line, body) = request.split_once('\n').unwrap_or((request, ""));
        let (method, uri) = line.split_once(' ').unwrap();
        let answer = service.call(method, uri, &[], body);
        let mut lines = expected.lines();
        assert_eq!(answer.status.as_str(), lines.next().unwrap(), "{request}: {answer:?}");
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
