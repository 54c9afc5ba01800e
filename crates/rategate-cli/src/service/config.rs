//! `rategate config`: checks and converts configurations of the service, without the service.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rategate_server::config::{self, Loaded, Problem};

use crate::failure::Failure;
use crate::output::{print, print_to};
use crate::service::serve;

/// Check, explain and import configurations of `serve`
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check a configuration, and list its errors
    ///
    /// The environment counts as it does for `serve`: RATEGATE_SERVER_TOKEN and its like take
    /// precedence over files.
    #[command(after_help = CHECK_STATUSES)]
    Check {
        /// A file, or a folder of *.toml and *.yaml files
        path: PathBuf,
    },
    /// Show the rule that applies to a call, why others do not match, and the resulting limit
    Explain {
        /// A file, or a folder of *.toml and *.yaml files
        path: PathBuf,
        /// The call's domain: "default" is that of rules without one
        domain: String,
        /// The call's entries in their order, as in plan=free user=ann
        #[arg(value_name = "KEY=VALUE")]
        entries: Vec<String>,
    },
    /// Print the JSON Schema of the TOML format, for editors that complete and check it
    Schema,
    /// Print the windows of a rule with a calendar, one a line: from, to and length in seconds
    #[command(after_help = WINDOWS_EXAMPLE)]
    Windows {
        /// A file, or a folder of *.toml and *.yaml files
        path: PathBuf,
        /// The name of the rule
        rule: String,
        /// The first instant, as in 2026-01-31T00:00:00Z
        #[arg(long, value_name = "INSTANT", value_parser = instant)]
        from: (String, u64),
        /// The instant before which the last window starts
        #[arg(long, value_name = "INSTANT", value_parser = instant)]
        to: (String, u64),
    },
    /// Convert Envoy's YAML to TOML with the same meaning
    Import {
        /// A file, or a folder of *.yaml files
        path: PathBuf,
        /// Write the output to FILE instead of stdout
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// Runs the subcommand, and returns the exit status.
pub(crate) fn run(args: &ConfigArgs) -> Result<u8, Failure> {
    match &args.command {
        ConfigCommand::Check { path } => check(path)?,
        ConfigCommand::Explain { path, domain, entries } => explain(path, domain, entries)?,
        ConfigCommand::Windows { path, rule, from, to } => windows(path, rule, from, to)?,
        ConfigCommand::Schema => print(config::schema())?,
        ConfigCommand::Import { path, out } => import(path, out.as_deref())?,
    }
    Ok(0)
}

fn load(path: &Path) -> Result<Loaded, Failure> {
    let loaded = config::load_with(Some(path), &serve::environment().0);
    loaded.map_err(|error| Failure::Invalid(error.report()))
}

fn check(path: &Path) -> Result<(), Failure> {
    let loaded = load(path)?;
    serve::filter(&loaded.settings.log).map_err(|why| Failure::Invalid(why + "\n"))?;
    warn(&loaded.warnings);
    let rules = loaded.rules.rules.len();
    let s = if rules == 1 { "" } else { "s" };
    let limits_nothing = if rules == 0 { "; only limits sent with calls apply" } else { "" };
    let (path, hash) = (path.display(), loaded.hash);
    print(format!("{path}: {rules} rule{s}, {hash}{limits_nothing}\n"))
}

fn explain(path: &Path, domain: &str, entries: &[String]) -> Result<(), Failure> {
    let complaint = "no \"=\"; write an entry as in user=ann";
    let pairs = entries.iter().map(|text| {
        text.split_once('=').ok_or_else(|| Failure::argument("KEY=VALUE", text, complaint))
    });
    let entries: Vec<_> = pairs.collect::<Result<_, _>>()?;
    print(config::explain(&load(path)?.rules, domain, &entries).to_string())
}

/// Parses an instant, and keeps its text for errors.
fn instant(text: &str) -> Result<(String, u64), String> {
    let at_ns = config::instant(text)?;
    Ok((text.to_owned(), at_ns))
}

/// Prints the windows that touch the span from one instant until another.
fn windows(
    path: &Path,
    name: &str,
    (from, from_ns): &(String, u64),
    (to, to_ns): &(String, u64),
) -> Result<(), Failure> {
    if from_ns >= to_ns {
        let complaint = format!("it is not before --to \"{to}\"; write an earlier instant");
        return Err(Failure::argument("--from", from, complaint));
    }
    let loaded = load(path)?;
    let rule = loaded.rules.rules.iter().find(|rule| *rule.name == *name);
    let rule = rule.ok_or_else(|| Failure::argument("RULE", name, "no rule has this name"))?;
    let calendar = rule.limit.calendar();
    let calendar = calendar
        .ok_or_else(|| Failure::argument("RULE", name, "its algorithm is not \"calendar\""))?;
    let (mut text, mut at_ns) = (String::new(), *from_ns);
    while at_ns < *to_ns {
        let window = calendar.window(at_ns);
        let local = |at_ns| config::local_time(&calendar, at_ns);
        let seconds = window.length_ns() / 1_000_000_000;
        // Writing to memory does not fail.
        let _ = writeln!(text, "{} {} {seconds}", local(window.start_ns), local(window.end_ns));
        at_ns = window.end_ns;
    }
    print(text)
}

fn import(path: &Path, out: Option<&Path>) -> Result<(), Failure> {
    let loaded = load(path)?;
    warn(&loaded.warnings);
    let rules = config::to_toml(&loaded.rules);
    let rules = rules.map_err(|error| Failure::Usage(error.to_string()))?;
    let from = path.display().to_string();
    print_to(out, &format!("# From {}.\n\n{rules}", from.escape_debug()))
}

fn warn(warnings: &[Problem]) {
    // A closed stderr leaves no way to report.
    let _ = io::stderr().write_all(config::report(warnings).as_bytes());
}

const WINDOWS_EXAMPLE: &str = "\
Example:
  rategate config windows rules.toml monthly --from 2026-01-01T00:00:00Z --to 2027-01-01T00:00:00Z";

const CHECK_STATUSES: &str = "\
Exit status:
  0    `serve` would accept it
  1    it has errors, which stderr lists
  2    an argument is wrong";
