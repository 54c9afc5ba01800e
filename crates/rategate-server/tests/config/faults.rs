//! Problems of files: all of them are reported at once, each with its position, its line and a
//! sentence.

use std::collections::BTreeSet;
use std::path::Path;

use rategate_server::config::{ConfigError, load, load_text};

/// A file of the native format with every key, each on its own line.
const NATIVE: &str = r#"
[server]
resp = "127.0.0.1:6380"
http = ["127.0.0.1:8080"]
grpc = { address = "127.0.0.1:8081", auth = false }
auth = true
token = "secret-of-a-test"
threads = 2
drain = "10s"
insecure = false
[server.limits]
frame = "64KiB"
body = 1024
streams = 10
idle = "5min"
[http]
headers = ["ietf"]
hosts = ["limits.example.com"]
trusted_proxies = ["10.0.0.0/8"]
[grpc]
shadow = false
[store]
kind = "server"
url = "redis://127.0.0.1:6379"
database = 0
prefix = "rategate"
budget = "20ms"
queue = 100
nodes = 3
[snapshot]
path = "/tmp/counters"
every = "1min"
when_torn = "full"
[inline]
keys = 100
limits = 10
[log]
format = "json"
filter = "info"
keys = "hashed"
[tracing]
otlp = "off"
sample = "1%"
service = "rategate"
[keys]
total = 1000
[[rule]]
name = "api"
envoy_name = "api"
domain = "edge"
match = ["user", { key = "plan", value = "free" }, { key = "path", values = ["a", "b"] }]
limit = "100/min"
algorithm = "gcra"
burst = 10
enforce = "all"
ttl = "30s"
max_ttl = "5min"
max_held = "50%"
quota = false
replaces = ["other"]
detailed_metric = false
keys = 10
[[rule.schedule]]
days = ["mon-fri"]
from = "09:00"
to = "17:00"
zone = "Europe/Berlin"
limit = "10/min"
burst = 5
[[rule.tiers]]
name = "gold"
key = "user"
values = ["gold"]
limit = { permits = 5, unit = "second", multiplier = 1 }
burst = 5
keys = 10
[[rule]]
name = "other"
limit = "1/s"
store = "leased"
lease = "100ms"
on_unavailable = "local"
"#;

/// A file of Envoy's format with every key.
const ENVOY: &str = "domain: edge
descriptors:
  - key: plan
    value: free
    rate_limit:
      name: free
      unit: minute
      requests_per_unit: 20
      unit_multiplier: 2
      algorithm: gcra
      burst: 3
      ttl: 30s
      max_ttl: 5min
      max_held: 50%
      replaces: [ { name: user } ]
    shadow_mode: true
    quota_mode: false
    detailed_metric: true
    metadata: { a: 1 }
    descriptors:
      - key: user
        rate_limit:
          name: user
          unit: day
          requests_per_unit: 5
  - key: path
    value: /api/*
    share_threshold: true
    value_to_metric: true
    rate_limit:
      unlimited: true
";

fn invalid(name: &str, text: &str) -> ConfigError {
    load_text(name, text).map(|_| panic!("accepted: {text}")).unwrap_err()
}

/// Returns the lines and messages of the problems.
fn reported(error: &ConfigError) -> Vec<(usize, String)> {
    let problems = error.problems().iter();
    problems.map(|problem| (problem.line().unwrap_or(0), problem.message().to_owned())).collect()
}

/// Asserts that exactly these lines are reported, and parts of their messages.
#[track_caller]
fn assert_reported(name: &str, text: &str, expected: &[(usize, &str)]) {
    let error = invalid(name, text);
    let reported = reported(&error);
    let lines = |all: Vec<usize>| all;
    assert_eq!(
        lines(reported.iter().map(|(line, _)| *line).collect()),
        lines(expected.iter().map(|(line, _)| *line).collect()),
        "{}",
        error.report()
    );
    for ((line, message), (_, fragment)) in reported.iter().zip(expected) {
        assert!(message.contains(fragment), "line {line}: {fragment:?} in {message:?}");
    }
}

/// A problem of several keys is reported together with those of single values.
#[test]
fn faults_of_the_whole_rule_are_reported_with_those_of_its_values() {
    assert_reported(
        "a.toml",
        "[[rule]]
name = \"a\"
limit = \"5/fortnight\"
algorithm = \"sliding-log\"
burst = 5
lease = \"1s\"
enforce = \"maybe\"
quota = 3
[[rule.schedule]]
days = []
zone = \"Mars/Olympus\"
limit = \"never\"
burst = 2
[[rule.tiers]]
limit = \"x\"
burst = 0
[[rule]]
name = \"b\"
match = [5, { key = \"\", value = \"x\" }, { key = \"k\", vale = \"y\" }]
burst = 5
replaces = [\"a\", \"bb\"]
",
        &[
            (3, "unknown unit"),
            (5, "burst belongs to"),
            (6, "a lease belongs to"),
            (7, "shadow"),
            (8, "true or false"),
            (10, "`days` is empty"),
            (11, "no time zone"),
            (13, "burst belongs to"),
            (14, "no name"),
            (14, "tier has no values"),
            (14, "no entry without a value"),
            (15, "N/PERIOD"),
            (16, "burst belongs to"),
            (17, "no limit"),
            (19, "wrong type: 5, not an entry"),
            (19, "key is empty"),
            (19, "unknown key `vale`"),
            (21, "replaces the unknown rule \"bb\""),
        ],
    );
}

/// A reported problem causes no further ones: not as missing, not as a replaced rule, not in a
/// dependent check.
#[test]
fn a_fault_is_reported_once() {
    let rule = |lines: &str| format!("[[rule]]\nname = \"a\"\n{lines}");
    for (text, line) in [
        (rule("limit = 5\nalgorithm = \"concurency\""), 4),
        ("[store]\nurl = 5".to_owned(), 2),
        ("[server]\nresp = \"x\"".to_owned(), 2),
        ("[server]\nresp = {}".to_owned(), 2),
        ("[store]\nurl = {}".to_owned(), 2),
        ("[server]\nauth = true\ntoken = 5".to_owned(), 3),
        (format!("[store]\nurl = 5\n{}", rule("limit = \"1/s\"\nstore = \"exact\"")), 2),
        (rule("limit = \"x\""), 3),
        (rule("limit = { permits = 1, unit = \"fortnight\" }"), 3),
        (rule("limit = { permits = 1, unit = \"day\", x = 1 }"), 3),
        (rule("limt = \"1/s\""), 3),
        (rule("limit = \"1/s\"\nstore = \"lesed\"\nlease = \"1s\"\non_unavailable = \"deny\""), 4),
        (
            rule(
                "limit = \"1/s\"\nmatch = [5]\n[[rule.tiers]]\nname = \"t\"\nvalues = [\"x\"]\n\
                 limit = \"1/s\"",
            ),
            4,
        ),
        (
            rule(
                "limit = \"1/s\"\nmatch = [\"k\"]\n[[rule.tiers]]\nname = \"t\"\nvalues = 5\n\
                 limit = \"1/s\"",
            ),
            7,
        ),
        (rule("limit = \"x\"\n[[rule]]\nname = \"b\"\nlimit = \"1/s\"\nreplaces = [\"a\"]"), 3),
        (
            rule(
                "limit = \"x\"\nmatch = [\"k\"]\n[[rule.tiers]]\nname = \"t\"\nvalues = [\"v\"]\n\
                 limit = \"1/s\"\n[[rule]]\nname = \"b\"\nlimit = \"1/s\"\nreplaces = [\"a/t\"]",
            ),
            3,
        ),
    ] {
        let error = invalid("a.toml", &text);
        let reported = reported(&error);
        assert!(reported.len() == 1 && reported[0].0 == line, "{text}\n{}", error.report());
    }
}

#[test]
fn faults_in_envoys_format_are_reported_together() {
    assert_reported(
        "a.yaml",
        "descriptors:
  - value: x
    rate_limit: { unit: fortnight, requests_per_unit: 5, burst: 3 }
    descriptors:
      - key: user
        rate_limit:
          unit: 5
          algorithm: gcr
          store: lent
          lease: long
          on_unavailable: nevr
  - key: a
    rate_limit: { unit: day, requests_per_unit: x, burst: 3 }
",
        &[
            (1, "empty domain"),
            (2, "empty key"),
            (3, "unknown unit \"fortnight\""),
            (3, "burst belongs to"),
            (7, "unknown unit \"5\""),
            (8, "unknown algorithm"),
            (9, "unknown store"),
            (10, "lease"),
            (11, "unknown on_unavailable"),
            (13, "wrong type: \"x\""),
            (13, "burst belongs to"),
        ],
    );
}

/// Words of a program that no message may contain.
const FOREIGN: [&str; 24] = [
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

/// Problems that belong to no line of a rule have a position all the same.
#[test]
fn settings_that_do_not_go_together_have_a_place() {
    for (text, line) in [
        ("[server]\nauth = true\n", 2),
        ("[server.tls]\ncert = \"c\"\nkey = \"\"\n", 1),
        ("[server]\nhttp = { address = \"127.0.0.1:1\", tls = true }\n", 2),
        (
            "[server]\n[server.tls]\ncert = \"c\"\nkey = \"k\"\n[[rule]]\nname = \"a\"\n\
             limit = \"x\"",
            7,
        ),
    ] {
        let error = invalid("a.toml", text);
        assert!(
            reported(&error).iter().all(|(reported, _)| *reported == line),
            "{}",
            error.report()
        );
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.toml"), b"[[rule]]\nname = \"\xff\"").unwrap();
    let error = load(folder.path()).unwrap_err();
    assert_eq!(error.problems()[0].line(), Some(2));
    assert!(error.problems()[0].file().is_some_and(|file| file.ends_with(Path::new("a.toml"))));
}

/// Units of other programs are answered with a suggestion, numbers beyond 64 bits with the range.
#[test]
fn what_others_write_is_answered_with_what_is_meant() {
    let rule = |more: &str| format!("[[rule]]\nname = \"a\"\n{more}\n");
    let error = invalid("a.toml", &rule("limit = \"10/m\"")).to_string();
    assert!(error.contains("did you mean \"10/min\"?"), "{error}");
    for limit in ["10/sec", "10/day", "10 per minute", "1k/s"] {
        load_text("a.toml", &rule(&format!("limit = \"{limit}\""))).unwrap();
    }
    let burst = "limit = \"1/s\"\nburst = 99999999999999999999";
    let error = invalid("a.toml", &rule(burst)).to_string();
    assert!(error.contains("99999999999999999999, not a whole number from "), "{error}");
    assert!(!error.contains("i128") && !error.contains('`'), "{error}");
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
