//! The examples of the guide, exactly as written.

use serde_json::Value as Json;

use crate::common::with_rules;

const GUIDE: &str = include_str!("../../../../docs/guides/http.md");

/// Returns the code blocks in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("\n```{language}\n");
    let parts = GUIDE.split(&*fence).skip(1);
    parts.map(|part| part.split_once("\n```\n").unwrap().0).collect()
}

/// Returns `true` if all expected members are present; more may be.
fn holds(expected: &Json, told: &Json) -> bool {
    match (expected, told) {
        (Json::Object(expected), Json::Object(told)) => expected
            .iter()
            .all(|(name, value)| told.get(name).is_some_and(|told| holds(value, told))),
        (Json::Array(expected), Json::Array(told)) => {
            expected.len() == told.len()
                && expected.iter().zip(told).all(|(expected, told)| holds(expected, told))
        }
        _ => expected == told,
    }
}

#[test]
fn every_example_is_answered_as_it_says() {
    let [rules] = blocks("toml").try_into().unwrap();
    let rules = rategate_server::config::load_text("rules.toml", rules).unwrap().rules;
    let service = with_rules(rules.set().as_ref().clone());
    let examples = blocks("http");
    assert_eq!(examples.len(), 16);
    for example in examples {
        let (asked, expected) = example.split_once("\n\n").unwrap();
        let (line, body) = asked.split_once('\n').unwrap_or((asked, ""));
        let (method, uri) = line.split_once(' ').unwrap();
        let answer = service.call(method, uri, &[], body);
        let mut lines = expected.lines();
        assert_eq!(answer.status.as_str(), lines.next().unwrap(), "{asked}: {answer:?}");
        for line in lines {
            if line.starts_with('{') {
                let expected: Json = serde_json::from_str(line).unwrap();
                assert!(holds(&expected, &answer.json()), "{asked}: {}", answer.json());
            } else {
                let (name, value) = line.split_once(": ").unwrap();
                assert_eq!(answer.field(name), value, "{asked}");
            }
        }
    }
}
