//! Configurations: the rules and settings that files load to, the problems of wrong ones, and
//! changes of files.

mod bounds;
mod cases;
mod ceilings;
mod faults;
mod files;
mod fuzz;
mod laws;
mod metadata_values;
mod names;
mod outside;
mod watch;

use rategate_server::config::{ConfigError, Loaded, load_text};

fn loaded(name: &str, text: &str) -> Loaded {
    load_text(name, text).unwrap_or_else(|error| panic!("{}", error.report()))
}

fn invalid(name: &str, text: &str) -> ConfigError {
    load_text(name, text).map(|_| panic!("accepted: {text}")).unwrap_err()
}
