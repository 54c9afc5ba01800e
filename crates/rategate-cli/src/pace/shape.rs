//! The load of `--shape`: when each line is due, and the part of it that `--split` leaves.

use std::fmt::Display;
use std::fs::{self, File};
use std::iter::{self, Peekable};

use rategate_analyze::{TraceError, TraceFault, TraceReader};
use rategate_core::shape::{Factor, Load, LoadError, ShapeError};

use crate::failure::Failure;

/// The due instants of a load in nanoseconds since its start, in order.
pub(crate) type Due = Peekable<Box<dyn Iterator<Item = Result<u64, Failure>>>>;

/// Parses a shape: the text of a load, or `trace:FILE`; and `split`, the part to keep of it.
///
/// A trace is opened, and its first instant read.
pub(super) fn due(text: &str, split: Option<&str>) -> Result<Due, Failure> {
    let (part, of) = split.map_or(Ok((0, 1)), parts)?;
    let due: Box<dyn Iterator<Item = _>> = if let Some(trace) = text.strip_prefix("trace:") {
        let all = (0..).zip(traced(text, trace)?);
        // A fault ends each part at its line, also that of another part.
        let is_kept = move |n: u64, at: &Result<u64, _>| {
            at.is_err() || n.checked_rem(of).is_some_and(|left| left == part)
        };
        Box::new(all.filter(move |(n, at)| is_kept(*n, at)).map(|(_, at)| at))
    } else {
        let load: Load = text.parse().map_err(|error| misread(text, error))?;
        let operations = load.into_operations().split(part, of);
        let operations = operations.map_err(|error| refuse_split(split.unwrap_or(""), error))?;
        Box::new(operations.into_iter().map(Ok))
    };
    Ok(due.peekable())
}

/// Returns the file of a trace, if the shape is one.
pub(super) fn trace_file(text: &str) -> Option<&str> {
    let trace = text.strip_prefix("trace:")?;
    Some(trace.rsplit_once(",speed=").map_or(trace, |(path, _)| path))
}

/// Parses `PART/OF`: every `OF`-th operation from `PART` on, which counts from 0.
fn parts(text: &str) -> Result<(u64, u64), Failure> {
    let sides = text.split_once('/').and_then(|(part, of)| Some((whole(part)?, whole(of)?)));
    let Some((part, of)) = sides else {
        let complaint = "not a part; write PART/PARTS, as in 0/5 on the first of five machines";
        return Err(refuse_split(text, complaint));
    };
    if part >= of {
        return Err(refuse_split(text, ShapeError::Part { part, of }));
    }
    Ok((part, of))
}

fn whole(digits: &str) -> Option<u64> {
    digits.parse().ok().filter(|_| !digits.starts_with('+'))
}

fn refuse_split(text: &str, complaint: impl Display) -> Failure {
    Failure::argument("--split", text, complaint)
}

fn refuse(text: &str, complaint: impl Display) -> Failure {
    Failure::argument("--shape", text, complaint)
}

fn misread(text: &str, error: LoadError) -> Failure {
    let LoadError { at, fault, .. } = error;
    match text.get(at..).filter(|rest| !rest.is_empty()) {
        Some(rest) => {
            let rest = rest.escape_debug();
            refuse(text, format_args!("at byte {at}, \"{rest}\": {fault}"))
        }
        None => refuse(text, format_args!("at the end: {fault}")),
    }
}

/// Opens `FILE`, or `FILE,speed=2`. Instants count from the first one.
fn traced(
    text: &str,
    trace: &str,
) -> Result<impl Iterator<Item = Result<u64, Failure>> + use<>, Failure> {
    let (path, speed) = match trace.rsplit_once(",speed=") {
        Some((path, speed)) => (path, factor(text, speed)?),
        None => (trace, Factor::ONE),
    };
    let failure = |error| Failure::Io(format!("--shape trace:{path}"), error);
    // A pipe could hold up the output, and a stop.
    if !fs::metadata(path).map_err(failure)?.is_file() {
        return Err(refuse(text, "not a regular file; write the trace to a file first"));
    }
    let trace = TraceReader::new(File::open(path).map_err(failure)?).map_err(failure)?;
    let (name, text) = (path.to_owned(), text.to_owned());
    let mut trace = trace.map(move |at_ns| at_ns.map_err(|error| torn(&name, &text, error)));
    let Some(first_ns) = trace.next().transpose()? else {
        return Err(refuse(
            &format!("trace:{path}"),
            "the file has no instants; write at least one line of an access log, or an instant",
        ));
    };
    let recorded = iter::once(Ok(first_ns)).chain(trace);
    let since_first = recorded.map(move |at_ns| at_ns.map(|at_ns| at_ns.saturating_sub(first_ns)));
    // What comes after the end of the clock never comes.
    Ok(since_first.map_while(move |at_ns| match at_ns {
        Ok(at_ns) => speed.shortened(at_ns).map(Ok),
        Err(error) => Some(Err(error)),
    }))
}

fn torn(path: &str, text: &str, error: TraceError) -> Failure {
    match error.fault {
        TraceFault::Io(cause) => Failure::Io(format!("{path}, line {}", error.line), cause),
        _ => refuse(text, error),
    }
}

/// Parses a speed: `2`, or `1/2`.
fn factor(text: &str, speed: &str) -> Result<Factor, Failure> {
    let (over, under) = speed.split_once('/').unwrap_or((speed, "1"));
    let factor = whole(over).zip(whole(under)).map(|(over, under)| Factor::new(over, under));
    match factor {
        Some(Ok(factor)) => Ok(factor),
        _ => Err(refuse(
            text,
            format_args!(
                "the speed \"{}\" is not a factor above zero; write speed=10 or speed=1/2",
                speed.escape_debug()
            ),
        )),
    }
}
