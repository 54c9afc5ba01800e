//! Variables and flags for every key.

use rategate_server::config::{Layers, Settings, keys, load_with, variable};

/// What one sets to a value of its own, and has the facts of.
const CASES: &str = include_str!("cases/native/environment.txt");

#[test]
fn each_key_has_a_variable() {
    let (first, _) = CASES.split_once("=>").unwrap();
    let set = first.lines().filter_map(|line| line.strip_prefix("$ ")?.split_once('='));
    let set: Vec<_> = set.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(keys().map(variable).collect::<Vec<_>>(), set);
    assert!(Layers::default().flag("no.such", "--x", "1").is_err());
}

/// `NAME=` is how compose and similar tools omit a variable.
#[test]
fn an_empty_variable_says_nothing() {
    let may_be_empty =
        |name: &str| !name.contains("TOKEN") && keys().any(|key| variable(key) == name);
    let layers = Layers::of_variables(|name| may_be_empty(name).then(String::new));
    assert_eq!(load_with(None, &layers).unwrap().settings, Settings::default());
}
