//! `rategate simulate`: runs a scenario file on a virtual clock.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rategate_sim::scenario::{MAX_BYTES, Scenario};
use rategate_sim::world;

use crate::args::{Format, SimulateArgs};
use crate::failure::{Failure, complain};

/// The exit status if the result differs from the scenario's expectation.
const MISMATCH: u8 = 1;

/// Runs the scenario and returns the exit status.
pub(crate) fn run(args: &SimulateArgs) -> Result<u8, Failure> {
    let text = read(&args.file)?;
    let scenario = Scenario::parse(&text).map_err(|error| {
        let at = error.line.map_or_else(String::new, |line| format!(":{line}"));
        Failure::Usage(format!("{}{at}: {}", args.file.display(), error.message))
    })?;
    let report = world::run(&scenario);
    let output = match args.format {
        Format::Text => report.to_text(),
        Format::Json => report.to_json(),
        Format::Svg => report.to_svg(),
    };
    match &args.out {
        None => print(&output)?,
        Some(path) => fs::write(path, output)
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?,
    }
    for mismatch in &report.mismatches {
        complain(format_args!("{}: {mismatch}", args.file.display()));
    }
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

/// Reads the file as text, and refuses other content and files too long for a scenario.
fn read(path: &Path) -> Result<String, Failure> {
    let refuse =
        |what: &dyn std::fmt::Display| Failure::Usage(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| refuse(&error))?;
    if file.metadata().is_ok_and(|about| about.is_dir()) {
        return Err(refuse(&"is a directory; it must be a scenario file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| refuse(&error))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_BYTES) {
        return Err(refuse(&format_args!("a scenario file has at most {MAX_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| refuse(&"not UTF-8 text; it must be a scenario file"))
}

fn print(output: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush()) {
        // The reader may stop early; the result is still judged.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(Failure::of_output),
    }
}
