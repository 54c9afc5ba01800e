//! `rategate simulate`: runs a scenario file on a virtual clock.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use rategate_testkit::report::Report;
use rategate_testkit::scenario::{MAX_BYTES, Scenario, ScenarioError};
use rategate_testkit::server::{ServerFile, ServerReport};
use rategate_testkit::world;

use crate::args::{Format, SimulateArgs};
use crate::failure::{Failure, complain};
use crate::output::{open, print, refused};

/// The exit status if the result differs from the scenario's expectation.
const MISMATCH: u8 = 1;

/// Runs the scenario and returns the exit status.
pub(crate) fn run(args: &SimulateArgs) -> Result<u8, Failure> {
    let text = read(&args.file)?;
    let invalid = |error: ScenarioError| {
        let at = error.line.map_or_else(String::new, |line| format!(":{line}"));
        Failure::Usage(format!("{}{at}: {}", args.file.display(), error.message))
    };
    if ServerFile::is_meant(&text) {
        return run_server(args, &ServerFile::parse(&text).map_err(invalid)?);
    }
    let report = world::run(&Scenario::parse(&text).map_err(invalid)?);
    show(args, &report, [Report::to_text, Report::to_json, Report::to_svg])?;
    mismatched(args, &report.mismatches);
    for check in report.checks.iter().filter(|check| check.seen > check.at_most) {
        complain(format_args!(
            "{}: {} permits in the window of {} ns from {} ns, at most {} allowed",
            args.file.display(),
            check.seen,
            check.window_ns,
            check.from_ns,
            check.at_most
        ));
    }
    Ok(if report.passed() { 0 } else { MISMATCH })
}

/// Runs a file about a server under load.
fn run_server(args: &SimulateArgs, file: &ServerFile) -> Result<u8, Failure> {
    let report = file.report();
    show(args, &report, [ServerReport::to_text, ServerReport::to_json, ServerReport::to_svg])?;
    mismatched(args, &report.mismatches);
    Ok(if report.passed() { 0 } else { MISMATCH })
}

/// Prints the differences from the scenario's expectation.
fn mismatched(args: &SimulateArgs, mismatches: &[String]) {
    for mismatch in mismatches {
        complain(format_args!("{}: {mismatch}", args.file.display()));
    }
}

/// Writes the report as text, JSON or SVG to where it is to go.
fn show<R>(
    args: &SimulateArgs,
    report: &R,
    [text, json, svg]: [fn(&R) -> String; 3],
) -> Result<(), Failure> {
    let output = match args.format {
        Format::Text => text(report),
        Format::Json => json(report),
        Format::Svg => svg(report),
    };
    match &args.out {
        Some(path) => fs::write(path, output).map_err(|error| refused(path, error)),
        None => match print(output) {
            // The reader may stop early; the result is still judged.
            Err(Failure::OutputClosed) => Ok(()),
            printed => printed,
        },
    }
}

/// Reads the file as text, and refuses other content and files too long for a scenario.
fn read(path: &Path) -> Result<String, Failure> {
    let (file, mut bytes) = (open(path, "a scenario file")?, Vec::new());
    let mut file = file.take(MAX_BYTES.saturating_add(1));
    file.read_to_end(&mut bytes).map_err(|error| refused(path, error))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_BYTES) {
        let why = format_args!("a scenario file has at most {MAX_BYTES} bytes");
        return Err(refused(path, why));
    }
    let invalid = |_| refused(path, "not UTF-8 text; it must be a scenario file");
    String::from_utf8(bytes).map_err(invalid)
}
