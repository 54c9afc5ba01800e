//! `rategate config`: its output and exit statuses.

use std::fs;
use std::process::Command;

use crate::common::{run, stderr};

const ENVOY: &str = "\
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 10 }
  - key: remote_address
    value: 50.0.0.5
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: plan
    value: free
    descriptors:
      - key: user
        rate_limit: { name: free_user, unit: day, requests_per_unit: 1000 }
";

struct Folder(tempfile::TempDir);

impl Folder {
    fn of(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

fn stdout(output: &std::process::Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn check_says_what_serve_would() {
    let folder = Folder::of(&[
        ("good.toml", "[[rule]]\nname = \"a\"\nlimit = \"5/s\"\n"),
        ("empty.toml", "# No rules yet.\n"),
        ("bad.toml", "[[rule]]\nname = \"a\"\nlimit = \"5/fortnight\"\n"),
        ("edge.yaml", ENVOY),
    ]);
    let output = run(&["config", "check", &folder.path("good.toml")], b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("good.toml: 1 rule, "), "{}", stdout(&output));

    let output = run(&["config", "check", &folder.path("empty.toml")], b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("0 rules, ")
            && stdout(&output).contains("only limits sent with calls")
    );

    let output = run(&["config", "check", &folder.path("bad.toml")], b"");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    for expected in ["bad.toml:3:9", "limit = \"5/fortnight\"", "^^^^"] {
        assert!(stderr(&output).contains(expected), "{expected} in {}", stderr(&output));
    }

    let output = run(&["config", "check", &folder.path("")], b"");
    assert_eq!(output.status.code(), Some(1));
    let output = run(&["config", "check", &folder.path("none.toml")], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("none.toml: cannot be read"), "{}", stderr(&output));
}

#[test]
fn explain_names_the_rule_and_the_others() {
    let folder = Folder::of(&[("edge.yaml", ENVOY)]);
    let explain = |entries: &[&str]| {
        let path = folder.path("edge.yaml");
        let output = run(&[&["config", "explain", &path, "edge"], entries].concat(), b"");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let text = explain(&["plan=free", "user=ann"]);
    for expected in [
        "rule:      edge.plan=free.user",
        "to envoy:  free_user",
        "edge.yaml:11:9",
        "1000 per day (counted-window: what is denied counts too)",
        "2000 in any day",
        "one for each `user`",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let text = explain(&["remote_address=50.0.0.5"]);
    assert!(
        text.contains("rule:      edge.remote_address=50.0.0.5") && text.contains("nothing passes"),
        "{text}"
    );
    assert!(text.contains("edge.remote_address: it matches, but"), "{text}");
    let text = explain(&["plan=free"]);
    assert!(text.contains("no rule: the call passes"), "{text}");
    assert!(text.contains("it is for descriptors of 2 entries, and the call's has 1"), "{text}");
    let output = run(&["config", "explain", &folder.path("edge.yaml"), "edge", "user"], b"");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn import_writes_what_loads_to_the_same() {
    let folder = Folder::of(&[("edge.yaml", ENVOY)]);
    let out = folder.path("edge.toml");
    let output = run(&["config", "import", &folder.path("edge.yaml"), "--out", &out], b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let written = fs::read_to_string(&out).unwrap();
    assert!(
        written.contains("name = \"edge.plan=free.user\"\nenvoy_name = \"free_user\"")
            && written.contains("algorithm = \"counted-window\""),
        "{written}"
    );
    let output = run(&["config", "explain", &out, "edge", "plan=free", "user=ann"], b"");
    assert!(stdout(&output).contains("1000 per day (counted-window"), "{}", stdout(&output));
}

#[test]
fn the_schema_is_json() {
    let output = run(&["config", "schema"], b"");
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["title"], "rategate");
    assert!(schema["properties"]["rule"].is_object());
}

/// A configuration that `check` accepts is accepted by the others: the environment counts for all
/// of them.
#[test]
fn the_environment_counts_for_all() {
    let text = "[server]\nhttp = \"0.0.0.0:8080\"\n[[rule]]\nname = \"a\"\n\
                limit = \"5/s\"\nmatch = [\"k\"]\n";
    let folder = Folder::of(&[("a.toml", text)]);
    let path = folder.path("a.toml");
    for words in [&["check", &path][..], &["explain", &path, "default", "k=1"], &["import", &path]]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_rategate"))
            .arg("config")
            .args(words)
            .env("RATEGATE_SERVER_TOKEN", "sesame")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
        let output = run(&[&["config"], words].concat(), b"");
        assert_eq!(output.status.code(), Some(1), "without a token");
    }
}

/// An invalid filter would result in another log than intended.
#[test]
fn a_filter_of_the_log_is_checked() {
    let text = "[log]\nfilter = \"rategate_server=loud\"\n";
    let folder = Folder::of(&[("a.toml", text)]);
    let output = run(&["config", "check", &folder.path("a.toml")], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("log.filter"), "{}", stderr(&output));
    let output = run(&["serve", "--config", &folder.path("a.toml"), "--resp", "127.0.0.1:0"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("log.filter"), "{}", stderr(&output));
}

/// A variable that is not valid text must not count as missing: it may be the token.
#[cfg(unix)]
#[test]
fn a_variable_that_is_no_text_is_reported() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = Folder::of(&[("a.toml", "[[rule]]\nname = \"a\"\nlimit = \"5/s\"\n")]);
    let output = Command::new(env!("CARGO_BIN_EXE_rategate"))
        .args(["config", "check", &folder.path("a.toml")])
        .env("RATEGATE_SERVER_TOKEN", std::ffi::OsStr::from_bytes(b"ses\xffame"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("RATEGATE_SERVER_TOKEN: "), "{}", stderr(&output));
    assert!(!stderr(&output).contains("ses"));
}

/// A span that ends before it begins has no windows, and is a mistake.
#[test]
fn windows_of_a_span_that_ends_before_it_begins_are_refused() {
    let rule = "[[rule]]\nname = \"m\"\nalgorithm = \"calendar\"\n\
                limit = { permits = 5, per = \"month\" }\n";
    let folder = Folder::of(&[("rules.toml", rule)]);
    let windows = |from: &str, to: &str| {
        let path = folder.path("rules.toml");
        run(&["config", "windows", &path, "m", "--from", from, "--to", to], b"")
    };
    let (january, march) = ("2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z");
    let output = windows(january, march);
    assert_eq!((output.status.code(), stdout(&output).lines().count()), (Some(0), 2));
    for (from, to) in [(march, january), (march, march)] {
        let output = windows(from, to);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
        let error = format!("--from \"{from}\": it is not before --to \"{to}\"");
        assert!(stderr(&output).contains(&error), "{}", stderr(&output));
    }
    let output = windows("2026-01-01", march);
    assert_eq!(output.status.code(), Some(2));
    let form = "write an instant with its time and offset, as in 2026-01-31T00:00:00Z";
    assert!(stderr(&output).contains(form), "{}", stderr(&output));
}
