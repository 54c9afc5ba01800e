//! Every scenario file of the suite passes on the pure algorithms, and gives equal bytes twice.

use std::fs;
use std::path::PathBuf;

use rategate_sim::scenario::Scenario;
use rategate_sim::world;

pub(crate) fn suite() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/scenarios");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// S2.46: all of the logic is tested on a virtual clock.
#[test]
fn every_scenario_passes() {
    let files = suite();
    assert!(files.len() > 15, "the suite is missing");
    for file in files {
        let scenario = Scenario::parse(&fs::read_to_string(&file).unwrap());
        let scenario = scenario.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let report = world::run(&scenario);
        assert!(
            report.passed(),
            "{}: {:#?} {:#?}",
            file.display(),
            report.mismatches,
            report.checks
        );
    }
}

#[test]
fn the_same_file_gives_the_same_bytes() {
    for file in suite() {
        let text = fs::read_to_string(&file).unwrap();
        let run = || world::run(&Scenario::parse(&text).unwrap());
        let (first, second) = (run(), run());
        assert_eq!(first.to_json(), second.to_json(), "{}", file.display());
        assert_eq!(first.to_svg(), second.to_svg(), "{}", file.display());
        assert_eq!(first.to_text(), second.to_text(), "{}", file.display());
    }
}

#[test]
fn a_wrong_expectation_and_a_broken_check_are_seen() {
    let text = "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\nburst = 3\n\
                [[step]]\nat = \"0s\"\ncall = \"try\"\npermits = 3\n\
                expect = { outcome = \"denied\", start = \"1s\", remaining = 7 }\n\
                [[check]]\nwindow = \"1s\"\nat_most = 2\n\
                [expect]\ntape = \"@\"\nelapsed = \"1s\"\ngranted = 1\n";
    let report = world::run(&Scenario::parse(text).unwrap());
    assert!(!report.passed());
    assert_eq!(
        report.mismatches,
        [
            "step 1: start is 0ns, expected 1s",
            "step 1: outcome is granted, expected denied",
            "step 1: remaining is 0, expected 7",
            "tape is , expected @",
            "elapsed is 0ns, expected 1s",
            "granted is 3, expected 1",
        ]
    );
    assert_eq!((report.checks[0].seen, report.checks[0].from_ns), (3, 0));
}

/// Arrivals at 3/s come at exact thirds of a second, rounded down, without drift.
#[test]
fn constant_arrivals_do_not_drift() {
    let text = "[limit]\npolicy = \"gcra\"\nrate = \"unlimited\"\n\
                [[arrivals]]\nrate = \"3/s\"\ncount = 3001\ncall = \"try\"\n";
    let report = world::run(&Scenario::parse(text).unwrap());
    let at = |index: usize| report.operations[index].arrival_ns;
    assert_eq!([0, 1, 2, 3].map(at), [0, 333_333_333, 666_666_666, 1_000_000_000]);
    assert_eq!(at(3_000), 1_000_000_000_000);
}

/// A scenario without calls passes every check, and its report says that nothing was called.
#[test]
fn a_scenario_without_calls_says_so() {
    let limit = "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n";
    let text = |more: &str| {
        let scenario = Scenario::parse(&format!("{limit}{more}")).unwrap();
        world::run(&scenario).to_text()
    };
    assert!(text("").contains("nothing called"), "{}", text(""));
    for calls in ["[[caller]]\noperations = 1\n", "[[step]]\nat = \"0s\"\ncall = \"try\"\n"] {
        assert!(!text(calls).contains("nothing called"), "{}", text(calls));
    }
}
