//! `rategate analyze`: replays access logs through a limit, and keeps a deny list that follows
//! them.

mod args;
mod callers;
mod follow;
mod gate;
mod hold;
mod input;
mod key;
mod lag;
mod list_location;
mod log;
mod peak;
mod progress;
mod redis_list;
mod report;
mod settings;
mod suggest;
mod tally;
mod timeline;

use std::fs;
use std::io::{self, Read, Write as _};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::args::Format;
use crate::failure::{Failure, complain};
use crate::pace::Stop;
use follow::{Rotation, Tail};
use gate::Gate;
use input::Bytes;
use log::{Lines, Next};
use progress::Progress;
use report::Report;
use settings::{POLL_NS, Settings};
use tally::{Tally, wall_ns};

pub(crate) use args::AnalyzeArgs;

/// The interval between checks of a file that has no more bytes.
const POLL: Duration = Duration::from_nanos(POLL_NS);
/// The maximum number of files followed at the same time.
const MAX_FOLLOWED: usize = 64;
/// The time a renamed log is still read once its successor exists: servers briefly write to both.
const GRACE: Duration = Duration::from_secs(1);

/// Analyzes the logs and returns the exit status.
pub(crate) fn run(args: &AnalyzeArgs) -> Result<u8, Failure> {
    let settings = Settings::of(args)?;
    let max = usize::try_from(args.keys).unwrap_or(usize::MAX);
    if args.follow {
        can_be_followed(&args.files)?;
    }
    let gate = args.gate.as_deref().map(|path| Gate::open(path, max)).transpose()?;
    let mut tally = Tally::new(args, settings, gate)?;

    let (status, rotations) = if args.follow {
        let stop = Stop::watch()?;
        let tails: Result<Vec<_>, _> = args.files.iter().map(|path| Tail::open(path)).collect();
        let mut tails = tails?;
        follow(&mut tails, &mut tally, &stop)?;
        let rotations = tails.iter().fold(0_u64, |sum, tail| sum.saturating_add(tail.rotations()));
        (stop.interrupted_status().unwrap_or(0), Some(rotations))
    } else {
        read_all(&args.files, &mut tally)?;
        let is_published = tally.close(tally.counts.newest_ns)?;
        (u8::from(!is_published), None)
    };
    let report = Report::of(args, &tally, rotations);
    for (file, line, why) in &tally.counts.shown {
        complain(format_args!("{file}:{line}: skipped: {}", why.what()));
    }
    print(args, &report)?;
    Ok(status)
}

/// Checks that the files can be followed.
fn can_be_followed(files: &[PathBuf]) -> Result<(), Failure> {
    if files.is_empty() || files.iter().any(|file| input::is_stdin(file)) {
        return Err(Failure::Usage(
            "--follow needs FILEs, and not stdin, which is read to its end anyway".to_owned(),
        ));
    }
    if files.len() > MAX_FOLLOWED {
        return Err(Failure::Usage(format!(
            "--follow: {} files; it must be at most {MAX_FOLLOWED}",
            files.len()
        )));
    }
    Ok(())
}

/// Reads one file after another.
fn read_all(files: &[PathBuf], tally: &mut Tally) -> Result<(), Failure> {
    let stdin = [PathBuf::from("-")];
    let files = if files.is_empty() { &stdin } else { files };
    let bytes = Bytes::default();
    let mut progress = Progress::start(&bytes, input::total(files));
    let mut lines = Lines::new();
    for path in files {
        let mut input = input::open(path, &bytes)?;
        let name = if input::is_stdin(path) {
            Rc::from("stdin")
        } else {
            Rc::from(path.display().to_string())
        };
        tally.resume(&name, 0);
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

/// Reads to the end, or to the current end.
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

/// Processes the end of a file, which is a line even without a line end.
fn last(lines: &mut Lines, tally: &mut Tally) {
    match lines.last() {
        Next::Line(line) => tally.add(line),
        Next::TooLong => tally.add_too_long(),
        Next::Dry => {}
    }
}

/// Follows files as they grow, until a stop is requested.
fn follow(tails: &mut [Tail], tally: &mut Tally, stop: &Stop) -> Result<(), Failure> {
    let mut published = Instant::now();
    while !stop.is_requested() {
        let mut is_dry = true;
        for tail in &mut *tails {
            is_dry &=
                !poll_tail(tail, tally).map_err(|error| input::failure(tail.path(), error))?;
        }
        if !is_dry {
            // Publish now and then, however fast the log grows, so that the list is not far
            // behind.
            if published.elapsed() >= POLL {
                tally.publish(wall_ns())?;
                published = Instant::now();
            }
            continue;
        }
        tally.catch_up();
        tally.publish(wall_ns())?;
        published = Instant::now();
        // Lines from here on are new.
        tally.is_live = true;
        let mut left = Some(POLL);
        let _ = stop.cancel_token().wait_on(|| left.take());
    }
    for tail in tails {
        tally.resume(&tail.name, tail.line);
        last(&mut tail.lines, tally);
    }
    tally.finish();
    // Missing entries in a store were reported already; the status names the signal that ended
    // the run.
    tally.close(wall_ns()).map(|_| ())
}

/// Reads once from a file, or continues with the next file of its name. Returns `true` if
/// anything was done.
fn poll_tail(tail: &mut Tail, tally: &mut Tally) -> io::Result<bool> {
    tally.resume(&tail.name, tail.line);
    if tail.fill()? > 0 {
        drain(&mut tail.lines, tally);
        tail.line = tally.line();
        return Ok(true);
    }
    let is_over = match tail.check_rotation()? {
        Rotation::Same => false,
        Rotation::Renamed(since) => since.elapsed() >= GRACE,
        Rotation::Cut => true,
    };
    if is_over {
        last(&mut tail.lines, tally);
        tail.resume()?;
    }
    Ok(is_over)
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
