//! `rategate analyze`: access logs, asked what a limit would have done; and a deny list that follows them.

mod args;
mod callers;
mod follow;
mod gate;
mod input;
mod judge;
mod key;
mod lag;
mod log;
mod peak;
mod plan;
mod progress;
mod report;
mod suggest;
mod tally;
mod timeline;

use std::fs;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::args::Format;
use crate::failure::{Failure, complain};
use crate::pace::Stop;
use follow::{Tail, Turn};
use gate::Gate;
use input::Bytes;
use log::{Lines, Next};
use plan::Plan;
use progress::Progress;
use report::Report;
use tally::{Tally, wall_ns};

pub(crate) use args::AnalyzeArgs;

/// How often a file is looked at that has no more bytes.
const POLL: Duration = Duration::from_millis(200);
/// How long a log that was renamed is still read, once the new one is there: servers write to both for a moment.
const GRACE: Duration = Duration::from_secs(1);

/// Analyzes the logs and returns the exit status.
pub(crate) fn run(args: &AnalyzeArgs) -> Result<u8, Failure> {
    let plan = Plan::of(args)?;
    let most = usize::try_from(args.keys).unwrap_or(usize::MAX);
    let followed = args.follow.then(|| followed(&args.files)).transpose()?;
    if args.hold.is_some() && args.gate.is_none() {
        return Err(Failure::Usage(
            "--hold says how long --gate denies; add --gate FILE".to_owned(),
        ));
    }
    let gate = args.gate.as_deref().map(|path| Gate::open(path, most)).transpose()?;
    let mut tally = Tally::new(args, plan, gate)?;

    let (status, rotations) = if let Some(path) = followed {
        let stop = Stop::watch()?;
        let mut tail = Tail::open(path)?;
        follow(&mut tail, path, &mut tally, &stop)?;
        (stop.interrupted_status().unwrap_or(0), Some(tail.rotations))
    } else {
        read_all(&args.files, &mut tally)?;
        tally.publish(tally.counts.newest_ns)?;
        (0, None)
    };
    let report = Report::of(args, &tally, rotations);
    for (file, line, why) in &tally.counts.shown {
        complain(format_args!("{file}:{line}: skipped: {}", why.what()));
    }
    print(args, &report)?;
    Ok(status)
}

/// The one file that can be followed.
fn followed(files: &[PathBuf]) -> Result<&Path, Failure> {
    match files {
        [file] if !input::is_stdin(file) => Ok(file),
        _ => Err(Failure::Usage(
            "--follow needs one FILE, and not stdin, which it reads to its end anyway".to_owned(),
        )),
    }
}

/// Reads one file after the other.
fn read_all(files: &[PathBuf], tally: &mut Tally) -> Result<(), Failure> {
    let stdin = [PathBuf::from("-")];
    let files = if files.is_empty() { &stdin } else { files };
    let bytes = Bytes::default();
    let mut progress = Progress::start(&bytes, input::total(files));
    let mut lines = Lines::new();
    for path in files {
        let mut input = input::open(path, &bytes)?;
        tally.begin(if input::is_stdin(path) {
            "stdin".to_owned()
        } else {
            path.display().to_string()
        });
        let read = read(&mut *input, &mut lines, tally, &mut || progress.tick());
        if let Err(error) = read {
            progress.finish();
            return Err(input::failure(path, error));
        }
        last(&mut lines, tally);
    }
    tally.finish();
    progress.finish();
    Ok(())
}

/// Reads to the end, or to where it is for now.
fn read(
    input: &mut dyn Read,
    lines: &mut Lines,
    tally: &mut Tally,
    tick: &mut dyn FnMut(),
) -> io::Result<()> {
    while lines.fill(input)? > 0 {
        drain(lines, tally);
        tick();
    }
    Ok(())
}

fn drain(lines: &mut Lines, tally: &mut Tally) {
    loop {
        match lines.next() {
            Next::Line(line) => tally.add(line),
            Next::TooLong => tally.add_too_long(),
            Next::Dry => return,
        }
    }
}

/// What a file ends with is a line, with or without its end.
fn last(lines: &mut Lines, tally: &mut Tally) {
    match lines.last() {
        Next::Line(line) => tally.add(line),
        Next::TooLong => tally.add_too_long(),
        Next::Dry => {}
    }
}

/// Reads a file as it grows, until a stop is asked for.
fn follow(tail: &mut Tail, path: &Path, tally: &mut Tally, stop: &Stop) -> Result<(), Failure> {
    let failure = |error| input::failure(path, error);
    let mut lines = Lines::new();
    let mut published = Instant::now();
    tally.begin(path.display().to_string());
    while !stop.is_asked() {
        if lines.fill(tail).map_err(failure)? > 0 {
            drain(&mut lines, tally);
            // However fast it goes, the list is not far behind.
            if published.elapsed() >= POLL {
                tally.publish(wall_ns())?;
                published = Instant::now();
            }
            continue;
        }
        let is_over = match tail.turn().map_err(failure)? {
            Turn::Same => false,
            Turn::Renamed(since) => since.elapsed() >= GRACE,
            Turn::Cut => true,
        };
        if is_over {
            last(&mut lines, tally);
            tail.go_on().map_err(failure)?;
            tally.begin(path.display().to_string());
            continue;
        }
        tally.catch_up();
        tally.publish(wall_ns())?;
        published = Instant::now();
        // What comes from here on is news.
        tally.is_live = true;
        let mut left = Some(POLL);
        let _ = stop.alarm().wait_on(|| left.take());
    }
    last(&mut lines, tally);
    tally.finish();
    tally.publish(wall_ns())
}

fn print(args: &AnalyzeArgs, report: &Report) -> Result<(), Failure> {
    let output = match args.format {
        Format::Text => report.to_text(),
        Format::Json => report.to_json(),
        Format::Svg => report.to_svg(),
    };
    if let Some(path) = &args.out {
        return fs::write(path, output)
            .map_err(|error| Failure::Io(format!("--out {}", path.display()), error));
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::of_output)
}
