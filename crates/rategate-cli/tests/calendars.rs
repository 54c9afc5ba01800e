//! The borders of calendars, compared with Python's `zoneinfo` in another process.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::common::serving::{installed, on_path};
use crate::common::{folder, rategate, stderr};

/// Zones with gaps and overlaps of an hour, of half an hour, of two hours and of a day, at
/// midnight and at other times, with daylight saving time in winter, around Ramadan, and with
/// odd offsets that have changed.
const ZONES: [&str; 20] = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Caracas",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Europe/London",
    "Pacific/Apia",
    "Pacific/Chatham",
    "UTC",
];
const UNITS: [&str; 5] = ["day", "week", "month", "quarter", "year"];
/// The 31st of a month, a 29 February, and a time of the day that gaps and overlaps contain.
const ANCHORS: [&str; 3] = ["2026-01-31T00:00", "2024-02-29T00:00", "2018-03-11T02:30"];

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("calendars").join("windows.py")
}

/// Returns a Python whose `zoneinfo` has data, the folder of that data, and their version.
fn python() -> Option<(PathBuf, String, String)> {
    let says = |python: &Path| {
        let output = Command::new(python).arg(script()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let (folder, version) = text.trim().split_once('\n')?;
        Some((folder.to_owned(), version.to_owned()))
    };
    let system = on_path("python3")?;
    let found = says(&system).map(|said| (system, said)).or_else(|| {
        let python = installed("python-zones/bin/python")?;
        let said = says(&python)?;
        Some((python, said))
    });
    let (python, (folder, version)) = found?;
    Some((python, folder, version))
}

/// The rules of a zone, one for each unit and anchor, with their names.
fn rules(zone: &str) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for unit in UNITS {
        for (nth, anchor) in ANCHORS.iter().enumerate() {
            let name = format!("{}.{unit}.{nth}", zone.replace('/', "-"));
            let rule = format!(
                "[[rule]]\nname = \"{name}\"\nalgorithm = \"calendar\"\n\
                 limit = {{ permits = 5, per = \"{unit}\", zone = \"{zone}\", anchor = \"{anchor}\" }}\n"
            );
            all.push((name.clone(), format!("{name} {zone} {unit} {anchor}\n"), rule));
        }
    }
    all
}

/// All windows of five units, twenty zones and three anchors from 2011 to 2035 are Python's, to
/// the second and with the same offsets. Both read the same files.
#[test]
fn all_borders_are_those_of_zoneinfo() {
    let Some((python, zones, version)) = python() else { return };
    eprintln!("zones of {zones}: {version}");
    let begun = Instant::now();
    let folder = folder("calendars");
    let mut oracle = Command::new(python)
        .args([script(), folder.clone()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = oracle.stdin.take().unwrap();
    for (_, line, _) in ZONES.iter().flat_map(|zone| rules(zone)) {
        input.write_all(line.as_bytes()).unwrap();
    }
    drop(input);
    let span = ["--from", "2011-01-01T00:00:00Z", "--to", "2036-01-01T00:00:00Z"];
    let mut ours = Vec::new();
    for zone in ZONES {
        let path = folder.join("rules.toml");
        let rules = rules(zone);
        let text: String = rules.iter().map(|(.., rule)| rule.as_str()).collect();
        std::fs::write(&path, text).unwrap();
        for (name, ..) in rules {
            let mut windows = rategate(&["config", "windows", path.to_str().unwrap(), &name]);
            let output = windows.args(span).env("TZDIR", &zones).output().unwrap();
            assert!(output.status.success(), "{name}: {}", stderr(&output));
            ours.push((name, String::from_utf8(output.stdout).unwrap()));
        }
    }
    assert!(oracle.wait().unwrap().success());
    let mut compared = 0;
    for (name, windows) in ours {
        let theirs = std::fs::read_to_string(folder.join(&name)).unwrap();
        let differ = windows.lines().zip(theirs.lines()).find(|(own, other)| own != other);
        assert_eq!(differ, None, "{name}: rategate's window, and Python's");
        assert_eq!(windows.lines().count(), theirs.lines().count(), "{name}");
        compared += windows.lines().count();
    }
    eprintln!("{compared} windows compared in {:?}", begun.elapsed());
    // 25 years of days alone are over 9000 windows, for each zone and anchor.
    assert!(compared > 20 * 3 * 9_000, "{compared}");
}

fn windows(rule: &str, from: &str, to: &str) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    std::fs::write(&path, rule).unwrap();
    let path = path.to_str().unwrap();
    rategate(&["config", "windows", path, "quota", "--from", from, "--to", to]).output().unwrap()
}

/// A day of 23 hours, two borders that coincide, and the last days of months.
#[test]
fn windows_have_their_true_lengths() {
    let listed = |limit: &str, from: &str, to: &str| {
        let rule =
            format!("[[rule]]\nname = \"quota\"\nalgorithm = \"calendar\"\nlimit = {limit}\n");
        let output = windows(&rule, from, to);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let days = r#"{ permits = 1, per = "day", zone = "Europe/Rome" }"#;
    assert_eq!(
        listed(days, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
        "2026-03-29T00:00:00+01:00 2026-03-30T00:00:00+02:00 82800\n"
    );
    let days = r#"{ permits = 1, per = "day", zone = "Pacific/Apia" }"#;
    assert_eq!(
        listed(days, "2011-12-30T00:00:00Z", "2011-12-30T12:00:00Z"),
        "2011-12-29T00:00:00-10:00 2011-12-31T00:00:00+14:00 86400\n\
         2011-12-31T00:00:00+14:00 2012-01-01T00:00:00+14:00 86400\n"
    );
    let months = r#"{ permits = 1, per = "month", zone = "UTC", anchor = "2026-01-31" }"#;
    let text = listed(months, "2026-02-01T00:00:00Z", "2026-06-01T00:00:00Z");
    let starts: Vec<_> = text.lines().map(|line| &line[..10]).collect();
    assert_eq!(starts, ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31"]);
    let many = r#"{ permits = 1, per = "week", every = 2 }"#;
    let text = listed(many, "1970-01-05T00:00:00Z", "1970-01-20T00:00:00Z");
    let starts: Vec<_> = text.lines().map(|line| &line[..10]).collect();
    assert_eq!(starts, ["1970-01-05", "1970-01-19"], "Mondays");
}

#[test]
fn misuse_is_explained() {
    let bucket = "[[rule]]\nname = \"quota\"\nlimit = \"5/s\"\n";
    let output = windows(bucket, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("its algorithm is not \"calendar\""), "{}", stderr(&output));
    let output = windows(bucket, "2026-01-01", "2027-01-01T00:00:00Z");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let output = windows(bucket, "1960-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    assert!(stderr(&output).contains("between the years 1970 and 2554"), "{}", stderr(&output));
}
