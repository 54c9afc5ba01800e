//! A program that measures: the machine that it runs on, and its end.

use std::io::{self, Read as _};
use std::process::{self, ExitCode};
use std::time::Duration;
use std::{env, fs, thread};

use crate::engines::Made;

/// Returns the processor's name as the system reports it, and the number of cores available.
#[must_use]
pub fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or(env::consts::ARCH, |(_, name)| name);
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{name}, {cores} cores, {}", env::consts::OS)
}

/// Returns the status of a program, after its error is printed.
#[must_use]
#[expect(clippy::print_stderr, reason = "it is a program, and prints why it failed")]
pub fn exit_code(done: &Made<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Ends this process with its parent, which holds its stdin for as long as it lives.
pub fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        process::exit(1);
    });
}

/// Ends this process after a time in which it should long be done.
#[expect(clippy::print_stderr, reason = "it is a program, and prints why it failed")]
pub fn end_after(time: Duration) {
    thread::spawn(move || {
        thread::sleep(time);
        eprintln!("error: not done within {time:?}");
        process::exit(1);
    });
}
