//! Every scenario file of the suite passes on the pure algorithms, and gives equal bytes twice.

use std::convert::Infallible;

use rategate_testkit::scenario::Scenario;
use rategate_testkit::suite::{self, Played};
use rategate_testkit::world;

pub(crate) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/scenarios");

/// Calls `check` with each scenario of the suite.
pub(crate) fn each(mut check: impl FnMut(&str, Scenario)) -> Played<Infallible> {
    let checked = suite::each(FOLDER, |name, scenario| -> Result<(), Infallible> {
        check(name, scenario);
        Ok(())
    });
    let checked = checked.unwrap();
    assert!(checked.played.len() > 15, "the suite is missing");
    checked
}

/// S2.46: all of the logic is tested on a virtual clock.
#[test]
fn every_scenario_passes() {
    let played = each(|name, scenario| {
        let report = world::run(&scenario);
        assert!(report.passed(), "{name}: {:#?} {:#?}", report.mismatches, report.checks);
    });
    played.record("ledger").unwrap();
}

#[test]
fn the_same_file_gives_the_same_bytes() {
    each(|name, scenario| {
        let [first, second] = [(); 2].map(|()| world::run(&scenario));
        assert_eq!(first.to_json(), second.to_json(), "{name}");
        assert_eq!(first.to_svg(), second.to_svg(), "{name}");
        assert_eq!(first.to_text(), second.to_text(), "{name}");
    });
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
