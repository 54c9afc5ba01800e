//! The laws of any text as a configuration.

use rategate_server::config::{load_text, to_toml};
use rategate_server::rule::{CounterLocation, Origin, Rule};

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
            // TOML has no null for metadata.
            let Ok(written) = to_toml(&loaded.rules) else { return };
            let again = format!("[store]\nurl = \"redis://h\"\n{written}");
            let again = load_text("again.toml", &again)
                .unwrap_or_else(|error| panic!("{}\n{again}", error.report()));
            // A lease from a store is no time of permits in flight.
            let plain = |rule: &Rule| match rule.location {
                CounterLocation::StoreLeased { .. } => Rule { held_ns: 0, ..rule.clone() },
                _ => rule.clone(),
            };
            let plain = |rule| Rule { origin: Origin::default(), ..plain(rule) };
            for (one, other) in loaded.rules.rules.iter().zip(&again.rules.rules) {
                assert_eq!(plain(one), plain(other), "{written}");
            }
            assert_eq!(loaded.rules.rules.len(), again.rules.rules.len());
        }
    }
}
