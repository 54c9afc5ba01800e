//! The laws of any text as a configuration.

use rategate_server::config::{load_text, to_toml};

/// Loads a text and checks the laws for the result.
pub(crate) fn hold(name: &str, text: &str) {
    match load_text(name, text) {
        Err(error) => {
            assert!(!error.problems().is_empty());
            let lines = text.lines().count().max(1) + 1;
            for problem in error.problems() {
                assert!(problem.line().is_none_or(|line| (1..=lines).contains(&line)), "{problem}");
            }
            assert!(error.report().len() < 200_000, "a report for people");
        }
        Ok(loaded) => {
            for rule in &loaded.rules.rules {
                assert!(!rule.name.is_empty() && rule.name.len() <= 128);
                assert!(
                    rule.name.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'"' && b != b'\\')
                );
            }
            let needs_store = "[store]\nurl = \"redis://h\"\n";
            let again = format!("{needs_store}{}", to_toml(&loaded.rules).unwrap());
            let again = load_text("again.toml", &again)
                .unwrap_or_else(|error| panic!("{}\n{again}", error.report()));
            for (one, other) in loaded.rules.rules.iter().zip(&again.rules.rules) {
                assert_eq!(
                    (&one.name, &one.domain, &one.entries),
                    (&other.name, &other.domain, &other.entries)
                );
                assert_eq!(
                    (one.limit, one.display_limit, &one.replaces),
                    (other.limit, other.display_limit, &other.replaces)
                );
                assert_eq!(
                    (&one.dimension, &one.also, &one.counts),
                    (&other.dimension, &other.also, &other.counts)
                );
            }
            assert_eq!(loaded.rules.rules.len(), again.rules.rules.len());
        }
    }
}
