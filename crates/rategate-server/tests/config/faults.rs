//! Problems of files: all of them are reported at once, each with its position, its line and a
//! sentence.

use std::collections::BTreeSet;

use rategate_server::config::load_text;

use super::invalid;

/// Files with every key, each on its own line.
const NATIVE: &str = include_str!("cases/every_key.toml");
const ENVOY: &str = include_str!("cases/every_key.yaml");

/// Words of a program that no message may contain.
const FOREIGN: [&str; 25] = [
    "Some(",
    "None",
    "Err(",
    "Ok(",
    "[1, 2",
    "1 values",
    "struct ",
    "u64",
    "usize",
    "i64",
    "f64",
    "invalid type",
    "invalid value",
    "variant",
    "Error",
    "::",
    "sequence",
    "floating point",
    "nonzero",
    "deserial",
    "Unexpected",
    "unit value",
    "Breach",
    "byte array",
    " line ",
];

/// Loads a file of this name. Returns `true` if it is refused, and collects messages without a
/// position, an excerpt or plain words.
fn hold(name: &str, text: &str, invalid: &mut BTreeSet<String>) -> bool {
    let Err(error) = load_text(name, text) else { return false };
    let report = error.report();
    for problem in error.problems().iter().take(50) {
        let message = [problem.message(), problem.help_text().unwrap_or_default()].join("; ");
        let (Some(line), Some(column)) = (problem.line(), problem.column()) else {
            invalid.insert(format!("no position: {message}"));
            continue;
        };
        for foreign in FOREIGN.iter().filter(|foreign| message.contains(**foreign)) {
            invalid.insert(format!("{foreign}: {message}"));
        }
        if message.len() > 500 {
            invalid.insert(format!("too long: {message}"));
        }
        // A line that may be a secret is reported by its number alone.
        let written = text.lines().nth(line - 1).unwrap_or_default();
        let (key, value) = written.split_once(['=', ':']).unwrap_or((written, ""));
        let is_flag = key.trim() == "auth" || ["true", "false"].contains(&value.trim());
        let is_ours = ["token ", "password "].iter().any(|word| written.starts_with(word));
        let has_word = ["token", "password", "auth"].iter().any(|word| key.contains(word));
        let is_secret = is_ours || has_word && !is_flag;
        let is_shown = report.contains(&format!("{line} | "));
        if !report.contains(&format!("{name}:{line}:{column}")) || is_secret == is_shown {
            invalid.insert(format!("no excerpt of line {line}: {message}"));
        }
    }
    true
}

/// Returns variants of a good file in which each line is wrong in many ways.
fn broken(text: &str, sign: &str, values: &[&str]) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let with = |nth: usize, line: &str| {
        let mut all = lines.clone();
        all[nth] = line;
        all.join("\n")
    };
    let mut all = Vec::new();
    for (nth, line) in lines.iter().enumerate() {
        let Some((key, value)) = line.split_once(sign) else { continue };
        all.extend(values.iter().map(|value| with(nth, &format!("{key}{sign}{value}"))));
        all.push(with(nth, &format!("{key}x{sign}{value}")));
        all.push(with(nth, &format!("{line}\n{line}")));
        all.push(with(nth, ""));
    }
    all
}

/// A configuration that is broken anywhere is refused with a position and a plain sentence, or is
/// valid.
#[test]
fn a_broken_file_is_reported_with_position_and_cause() {
    let values = [
        "5",
        "-1",
        "0",
        "1.5",
        "true",
        "\"x\"",
        "\"\"",
        "[]",
        "[1, 2]",
        "{}",
        "{ a = 1 }",
        "1979-05-27",
        "18446744073709551616",
        "nan",
        "\"99999999999999999999/s\"",
    ];
    let native = broken(NATIVE, " = ", &values);
    let values = [
        "5",
        "-1",
        "0",
        "1.5",
        "1e400",
        "true",
        "x",
        "\"\"",
        "[]",
        "[1, 2]",
        "[[]]",
        "{}",
        "{ a: 1 }",
        "[{ a: 1 }]",
        "1979-05-27",
        "340282366920938463463374607431768211456",
        ".nan",
        "*a",
        "!!binary x",
        "\"",
    ];
    let envoy = broken(ENVOY, ": ", &values);
    let mut invalid = BTreeSet::new();
    assert!(
        !hold("a.toml", NATIVE, &mut invalid) && !hold("a.yaml", ENVOY, &mut invalid),
        "good files"
    );
    let mut refused = |name: &str, all: &[String]| {
        all.iter().filter(|text| hold(name, text, &mut invalid)).count()
    };
    let (native, envoy) = (refused("a.toml", &native), refused("a.yaml", &envoy));
    assert!(invalid.is_empty(), "{invalid:#?}");
    assert!(native > 700 && envoy > 200, "{native} and {envoy} files are refused");
}

/// An overlong line is shown around the problem, and a problem of many lines by its first.
#[test]
fn long_lines_are_shown_in_part() {
    let many = vec!["\"v\""; 400].join(", ");
    let rule = format!(
        "rule = [{{ name = \"a\", match = [{{ key = \"k\", values = [{many}] }}], \
         limit = \"5/fortnight\", burst = 3 }}]"
    );
    let report = invalid("a.toml", &rule).report();
    assert!(report.contains("limit = \"5/fortnight\"") && report.contains("1 | "), "{report}");
    let line = report.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(line < 300, "{line}: {report}");
    let long = format!("domain: d\ndescriptors:\n{}", "- key: a\n  value: v\n".repeat(40));
    let report = invalid("a.yaml", &long).report();
    assert!(report.contains("5 | - key: a"), "{report}");
}

#[test]
fn a_report_shows_the_line_with_carets_and_what_would_be_right() {
    let error = invalid("rules.toml", "[server]\nhttp = \"0.0.0.0:80\"\n");
    assert!(error.to_string().starts_with("rules.toml:2:8: "), "{error}");
    let report = error.report();
    let carets = format!("{}\n", "^".repeat(12));
    for fragment in ["rules.toml:2:8", "http = \"0.0.0.0:80\"", &carets, "insecure = true"] {
        assert!(report.contains(fragment), "{fragment} in {report}");
    }
}

#[test]
fn lines_with_secrets_are_not_shown() {
    let is_shown = |text: &str, line: usize| {
        let report = invalid("rules.toml", text).report();
        assert!(report.contains(&format!("rules.toml:{line}:")), "{report}");
        report.contains(&format!("{line} | "))
    };
    let text = "a = 1\ntoken = 5\nurl = \"redis://u:p@h\"\n";
    assert!(is_shown(text, 1) && !is_shown(text, 2) && !is_shown(text, 3));
    for secret in [
        "[server.token]",
        "token.value = 1",
        "\"password\" = 1",
        "a = { token= 1",
        "token",
        "token = \"sesame",
        "auth_token = \"s3cret\"",
        "redis_password = 's3cret'",
        "Secret: s3cret",
        "a = { x = 1, \"api-token\" = \"s3cret\" }",
        "PASSWORD=s3cret",
        "passwords.main\t= \"s3cret\"",
    ] {
        assert!(!is_shown(secret, 1), "{secret}");
    }
    for plain in [
        "algorithm = \"token-bucket\"",
        "name = \"token_user\"",
        "key = \"by-token-x\"",
        "auth = 5",
        "token_needed = true",
    ] {
        assert!(is_shown(plain, 1), "{plain}");
    }
    let misplaced = invalid("rules.toml", "token = \"sesame\"").report();
    assert!(!misplaced.contains("sesame") && misplaced.contains("rules.toml:1:1"), "{misplaced}");
    assert!(misplaced.contains("help: it is one of server, "), "{misplaced}");
}

#[test]
fn problems_come_in_the_order_of_lines_and_not_without_end() {
    // The keys of a table are read in the order of their names.
    let text: String = (1..=200).map(|line| format!("k{:03} = 1\n", 200 - line)).collect();
    let error = invalid("f.toml", &text);
    let display = error.to_string();
    assert!(display.starts_with("f.toml:1:1: unknown key `k199`\nf.toml:2:1: unknown key"));
    assert!(display.ends_with("and 150 more") && display.lines().count() == 51, "{display}");
    assert_eq!(error.problems().len(), 200);
    let text: String = (0..2_000).map(|nth| format!("k{nth} = 1\n")).collect();
    assert_eq!(invalid("f.toml", &format!("[server]\n{text}")).problems().len(), 1_000);
}
