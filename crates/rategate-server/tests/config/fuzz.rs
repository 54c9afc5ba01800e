//! Arbitrary bytes: nothing panics or hangs, and whatever loads can be written and loaded again.

use proptest::prelude::*;
use rategate_server::config::load;

use super::laws::hold;

const NATIVE: &str = include_str!("../../../../packaging/rategate.toml");
const ENVOY: &str = "domain: edge\ndescriptors:\n  - key: plan\n    value: free\n    \
                     descriptors: &d\n      - key: user\n        \
                     rate_limit: { name: n, unit: day, requests_per_unit: 1000 }\n        \
                     shadow_mode: true\n  - key: path\n    value: /api/*\n    \
                     share_threshold: true\n    \
                     rate_limit: { unit: minute, requests_per_unit: 20, \
                     replaces: [ { name: n } ] }\n  - key: other\n    descriptors: *d\n";

/// A change of a file.
#[derive(Clone, Debug)]
enum Change {
    Cut(usize, usize),
    Insert(usize, String),
    Copy(usize, usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let token = prop::sample::select(vec![
        "[",
        "]",
        "{",
        "}",
        "\"",
        "'",
        "=",
        ":",
        "\n",
        "\n  ",
        "- ",
        "*",
        "&a ",
        "*a",
        "<<: ",
        "0",
        "-1",
        "1e9",
        "null",
        "~",
        "true",
        "unlimited",
        "never",
        "1/s",
        "[[rule]]\n",
        "name = ",
        "\\u0000",
        "\u{feff}",
        "é",
        "#",
        "!!binary ",
        "? ",
        "| ",
        ">",
        "%",
        "---\n",
        "...\n",
        "18446744073709551616",
        "\"\"\"",
        "''",
        "key: ",
        "match = ",
        "limit = ",
        "0x7f",
        "nan",
        ".inf",
    ]);
    prop_oneof![
        (any::<usize>(), 0..40_usize).prop_map(|(at, length)| Change::Cut(at, length)),
        (any::<usize>(), token).prop_map(|(at, text)| Change::Insert(at, text.to_owned())),
        (any::<usize>(), 0..120_usize, any::<usize>())
            .prop_map(|(from, length, to)| Change::Copy(from, length, to)),
    ]
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut all: Vec<char> = text.chars().collect();
    for change in changes {
        let end = all.len() + 1;
        match change {
            Change::Cut(at, length) => {
                let at = at % end;
                all.drain(at..(at + length).min(all.len()));
            }
            Change::Insert(at, text) => {
                let at = at % end;
                all.splice(at..at, text.chars());
            }
            Change::Copy(from, length, to) => {
                let from = from % end;
                let fragment = all[from..(from + length).min(all.len())].to_vec();
                let to = to % end;
                all.splice(to..to, fragment);
            }
        }
    }
    all.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn mutated_files_do_no_harm(changes in prop::collection::vec(change(), 1..8)) {
        hold("a.toml", &changed(NATIVE, &changes));
        hold("a.yaml", &changed(ENVOY, &changes));
    }

    #[test]
    fn any_text_does_no_harm(text in "\\PC{0,200}|[\\[\\]{}:\\-\\n \"'=*&!|>%#a-c0-9]{0,300}") {
        hold("a.toml", &text);
        hold("a.yaml", &text);
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.toml", "a.yaml"] {
            let path = folder.path().join(name);
            std::fs::write(&path, &bytes).unwrap();
            if let Err(error) = load(&path) {
                let _ = error.report();
            }
        }
    }
}

#[test]
fn depth_and_length_are_bounded() {
    for name in ["a.toml", "a.yaml"] {
        for unit in [
            "[",
            "{",
            "[[",
            "{a = ",
            "{a: ",
            "- ",
            "a.",
            "a: \n ",
            "\"",
            "[[rule.tiers]]\n",
            "? ",
            "&a ",
            "!!seq ",
        ] {
            hold(name, &unit.repeat(4_000));
            hold(name, &format!("x = {}", unit.repeat(4_000)));
            hold(name, &format!("x: {}", unit.repeat(4_000)));
        }
        let long = "x".repeat(1 << 20);
        hold(name, &long);
        hold(name, &format!("domain: {long}\ndescriptors: [{{key: {long}}}]"));
        hold(
            name,
            &format!("[[rule]]\nname = \"{long}\"\nlimit = \"{long}\"\nmatch = [\"{long}\"]"),
        );
    }
}

#[test]
fn all_prefixes_of_good_files_do_no_harm() {
    for (name, text) in [("a.toml", NATIVE), ("a.yaml", ENVOY)] {
        for (end, _) in text.char_indices().step_by(7) {
            hold(name, &text[..end]);
        }
    }
}
