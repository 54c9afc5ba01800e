//! Paced commands: one for each line, a permit each, some at a time.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use rategate::wait::Wake;
use rategate_core::adaptive::Outcome;

use super::gate::Gate;
use super::input::{Input, Ready};
use super::jobs::{self, Jobs, Slot, Slots};
use super::signals::Stop;
use crate::failure::{Failure, complain};

/// The maximum length of a line passed to a command; systems usually allow less.
const MAX_LINE: usize = 1 << 20;

/// Exit statuses, as those of xargs.
const SOME_FAILED: u8 = 123;
const GAVE_UP: u8 = 124;
const KILLED: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The command, with the position of the line.
#[derive(Debug)]
pub(crate) struct Template {
    program: OsString,
    arguments: Vec<OsString>,
}

/// The running children, and the results of those that have ended.
#[derive(Debug)]
struct Children {
    slots: Slots,
    /// The status that ended the starts, or zero. The first reason stays.
    stopped_by: AtomicU8,
    /// The status if some have failed in a way that does not affect the others, or zero.
    failed: AtomicU8,
    stop: Stop,
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
    None,
}

/// Runs the command for each line and returns the exit status. All children have ended by then.
pub(crate) fn lines(
    input: &mut Input,
    gate: &mut Gate,
    template: &Template,
    jobs: Jobs,
    stop: &Stop,
) -> Result<u8, Failure> {
    let children = Children {
        slots: Slots::new(jobs),
        stopped_by: AtomicU8::new(0),
        failed: AtomicU8::new(0),
        stop: stop.clone(),
    };
    thread::scope(|scope| {
        while !gate.is_over() {
            let line = match next_line(input, gate)? {
                Line::Whole(line) => line,
                Line::TooLong => {
                    children
                        .refuse(template, format_args!("a line is longer than {MAX_LINE} bytes"));
                    break;
                }
                Line::None => break,
            };
            // First a free job, then the permit: a permit taken is used at once.
            let Some(slot) = children.wait_for_slot(gate)? else { break };
            gate.set_max_jobs(children.slots.max_jobs());
            if !gate.pass(1, || Ok(()))? {
                break;
            }
            let (children, command) = (&children, template.command(&line));
            let started = thread::Builder::new().spawn_scoped(scope, move || {
                children.slots.run(slot, || children.run(command, template));
                children.stop.nudge();
            });
            started.map_err(|error| Failure::Io("cannot start a thread".to_owned(), error))?;
        }
        // Children may still be running, and end later.
        gate.before_wait()
    })?;
    Ok(children.status())
}

/// Reads a line without its newline, in bounded memory.
fn next_line(input: &mut Input, gate: &mut Gate) -> Result<Line, Failure> {
    let mut line = Vec::new();
    let mut ready = input.begin(|| gate.before_wait())?;
    if ready != Ready::Bytes {
        return Ok(Line::None);
    }
    while ready == Ready::Bytes {
        let bytes = input.bytes();
        let newline = bytes.iter().position(|byte| *byte == b'\n');
        let length = newline.unwrap_or(bytes.len());
        if line.len().saturating_add(length) > MAX_LINE {
            return Ok(Line::TooLong);
        }
        line.extend_from_slice(bytes.get(..length).unwrap_or_default());
        input.consume(length.saturating_add(1));
        if newline.is_some() {
            break;
        }
        // No command was started for this line, so a stop may drop it.
        ready = input.begin(|| gate.before_wait())?;
    }
    Ok(if ready == Ready::Stopped { Line::None } else { Line::Whole(line) })
}

impl Template {
    pub(crate) fn new(program: &OsStr, arguments: &[OsString]) -> Self {
        let mut arguments = arguments.to_vec();
        if !arguments.iter().any(|argument| has_placeholder(argument)) {
            arguments.push("{}".into());
        }
        Self { program: program.to_owned(), arguments }
    }

    fn command(&self, line: &[u8]) -> Command {
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::null());
        for argument in &self.arguments {
            command.arg(filled(argument, line));
        }
        command
    }
}

fn has_placeholder(argument: &OsStr) -> bool {
    argument.as_bytes().windows(2).any(|pair| pair == b"{}")
}

/// Returns the argument with the line in each position of `{}`.
fn filled(argument: &OsStr, line: &[u8]) -> OsString {
    let mut result = Vec::new();
    let mut rest = argument.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(b"{}") {
            result.extend_from_slice(line);
            rest = behind;
        } else {
            result.push(*byte);
            rest = behind;
        }
    }
    OsString::from_vec(result)
}

impl Children {
    /// Waits for a free slot. Returns `None` if a stop was requested in the meantime.
    fn wait_for_slot(&self, gate: &mut Gate) -> Result<Option<Slot>, Failure> {
        let mut slot = self.slots.take();
        if slot.is_none() {
            gate.before_wait()?;
        }
        let wake = self.stop.cancel_token().wait_on(|| {
            slot = slot.take().or_else(|| self.slots.take());
            slot.is_none().then_some(Duration::MAX)
        });
        Ok(slot.filter(|_| wake == Wake::Due))
    }

    /// Runs one child to its end, and returns what that says about those that run at once.
    fn run(&self, mut command: Command, template: &Template) -> Outcome {
        match command.status() {
            Ok(status) => {
                self.ended(status, template);
                return jobs::outcome(status);
            }
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => self.give_up(NOT_FOUND, template, "not found"),
                io::ErrorKind::ArgumentListTooLong => {
                    self.refuse(template, "a line is too long to be an argument on this system");
                }
                io::ErrorKind::InvalidInput => {
                    self.refuse(template, "a line with a zero byte cannot be an argument");
                }
                _ => self.refuse(template, error),
            },
        }
        Outcome::Ignored
    }

    fn ended(&self, status: ExitStatus, template: &Template) {
        match status.code() {
            Some(0) => {}
            Some(255) => {
                self.give_up(GAVE_UP, template, "exited with status 255; no more are started");
            }
            Some(_) => self.failed.store(SOME_FAILED, Ordering::Release),
            None => self.give_up(KILLED, template, format_args!("{status}; no more are started")),
        }
    }

    fn refuse(&self, template: &Template, complaint: impl std::fmt::Display) {
        let complaint = format_args!("cannot be run: {complaint}");
        self.give_up(CANNOT_RUN, template, complaint);
    }

    fn give_up(&self, status: u8, template: &Template, complaint: impl std::fmt::Display) {
        if !self.stop.is_interrupted() {
            complain(format_args!("{}: {complaint}", template.program.display()));
        }
        let _ = self.stopped_by.compare_exchange(0, status, Ordering::AcqRel, Ordering::Acquire);
        self.stop.request();
    }

    fn status(&self) -> u8 {
        match self.stopped_by.load(Ordering::Acquire) {
            0 => self.failed.load(Ordering::Acquire),
            status => status,
        }
    }
}
