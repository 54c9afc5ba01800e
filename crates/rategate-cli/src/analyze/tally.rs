//! Line after line: read, named, decided and counted.

use std::time::SystemTime;

use super::args::AnalyzeArgs;
use super::callers::{Call, Callers};
use super::gate::Gate;
use super::judge::{Judge, Verdict};
use super::key::{Namer, Source};
use super::lag::Lag;
use super::log::{Parser, Unread};
use super::peak::Grid;
use super::plan::Plan;
use super::timeline::Timeline;
use crate::failure::Failure;

const SECOND_NS: u64 = 1_000_000_000;
/// A line that is further ahead than this is believed once the next one agrees.
const DAY_NS: u64 = 86_400 * SECOND_NS;
/// How many lines that are passed over are shown.
const SHOWN: usize = 5;

/// All that is known of the logs so far.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) plan: Plan,
    pub(super) counts: Counts,
    pub(super) callers: Callers,
    pub(super) timeline: Timeline,
    pub(super) gate: Option<Gate>,
    pub(super) lag: Lag,
    /// Whether lines come as they are written, so that delays mean something.
    pub(super) is_live: bool,
    parser: Parser,
    namer: Namer,
    judge: Judge,
    grid: Grid,
    file: String,
    line: u64,
    scratch: Vec<u8>,
    held: Option<Held>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) lines: u64,
    pub(super) blank: u64,
    /// Lines of a status that was not asked for.
    pub(super) filtered: u64,
    pub(super) skipped: u64,
    /// The first of them: file, line, and why.
    pub(super) shown: Vec<(String, u64, Unread)>,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) allowed_amount: u64,
    pub(super) denied_amount: u64,
    /// Calls that no limit of this size ever passes; they are among the denied.
    pub(super) too_large: u64,
    /// Calls that found no room, and passed without being asked; they are among the allowed.
    pub(super) unlimited: u64,
    /// Lines older than the newest before them.
    pub(super) late: u64,
    pub(super) latest_ns: u64,
    pub(super) first_ns: Option<u64>,
    pub(super) newest_ns: u64,
    /// Whether any instant was not a whole second.
    has_parts: bool,
}

/// A line that is far ahead of all before it.
#[derive(Debug)]
struct Held {
    at_ns: u64,
    amount: u64,
    line: u64,
    name: Vec<u8>,
}

impl Tally {
    pub(super) fn new(args: &AnalyzeArgs, plan: Plan, gate: Option<Gate>) -> Result<Self, Failure> {
        let source = Source::parse(&args.key)?;
        let most_keys = usize::try_from(args.keys).unwrap_or(usize::MAX);
        let judge = Judge::new(&plan.policies, most_keys);
        Ok(Self {
            counts: Counts::default(),
            callers: Callers::new(judge.seeds(), most_keys),
            timeline: Timeline::new(),
            gate,
            lag: Lag::default(),
            is_live: false,
            parser: Parser::new(args.log, source.clone()),
            namer: Namer::new(source, args),
            judge,
            grid: Grid::of(plan.period_ns),
            plan,
            file: String::new(),
            line: 0,
            scratch: Vec::new(),
            held: None,
        })
    }

    /// Begins with another file.
    pub(super) fn begin(&mut self, file: String) {
        (self.file, self.line) = (file, 0);
    }

    /// The next line, without its end.
    pub(super) fn add(&mut self, line: &[u8]) {
        self.count_line();
        if line.iter().all(u8::is_ascii_whitespace) {
            self.counts.blank = self.counts.blank.saturating_add(1);
            return;
        }
        let entry = match self.parser.read(line) {
            Ok(entry) => entry,
            Err(why) => return self.skip(self.line, why),
        };
        if !self.plan.statuses.has(entry.status) {
            self.counts.filtered = self.counts.filtered.saturating_add(1);
            return;
        }
        let amount = if self.plan.in_bytes { entry.bytes } else { 1 };
        let mut scratch = std::mem::take(&mut self.scratch);
        let name = self.namer.name(entry.key, &mut scratch);
        self.place_in_time(entry.at_ns, amount, name);
        self.scratch = scratch;
    }

    /// The next line was too long.
    pub(super) fn add_too_long(&mut self) {
        self.count_line();
        self.skip(self.line, Unread::TooLong);
    }

    /// All lines that are there have been read.
    pub(super) fn finish(&mut self) {
        if let Some(held) = self.held.take() {
            self.decide(held.at_ns, held.amount, &held.name);
        }
    }

    /// No line has come for a while: what is ahead of the log, but not of the wall clock, need not wait.
    pub(super) fn catch_up(&mut self) {
        let latest_ns = wall_ns().saturating_add(DAY_NS);
        if self.held.as_ref().is_some_and(|held| held.at_ns <= latest_ns) {
            self.finish();
        }
    }

    /// Brings the gate's file up to date at an instant of Unix time.
    pub(super) fn publish(&mut self, now_ns: u64) -> Result<(), Failure> {
        if let Some(gate) = &mut self.gate {
            gate.publish(now_ns)?;
            self.lag.published(wall_ns());
        }
        Ok(())
    }

    /// Whether the lower bounds of fullest windows are exact.
    pub(super) const fn is_exact(&self) -> bool {
        !self.counts.has_parts && self.grid.is_exact_in_seconds()
    }

    fn count_line(&mut self) {
        self.line = self.line.saturating_add(1);
        self.counts.lines = self.counts.lines.saturating_add(1);
    }

    fn skip(&mut self, line: u64, why: Unread) {
        self.counts.skipped = self.counts.skipped.saturating_add(1);
        if self.counts.shown.len() < SHOWN {
            self.counts.shown.push((self.file.clone(), line, why));
        }
    }

    /// One wrong date must not stop the clock for the rest of the log: a line that is far ahead waits for the next
    /// one, and counts only if that agrees.
    fn place_in_time(&mut self, at_ns: u64, amount: u64, name: &[u8]) {
        if let Some(held) = self.held.take() {
            if at_ns.saturating_add(DAY_NS) >= held.at_ns {
                self.decide(held.at_ns, held.amount, &held.name);
            } else {
                self.skip(held.line, Unread::Ahead);
            }
        }
        let is_ahead = at_ns.saturating_sub(self.counts.newest_ns) > DAY_NS;
        if is_ahead {
            self.held = Some(Held { at_ns, amount, line: self.line, name: name.to_vec() });
        } else {
            self.decide(at_ns, amount, name);
        }
    }

    fn decide(&mut self, at_ns: u64, amount: u64, name: &[u8]) {
        let now_ns = self.advance(at_ns);
        let id = self.callers.id(name);
        let verdict = self.judge.ask(id, amount);
        let is_denied = verdict != Verdict::Allowed;
        self.count(verdict, amount);
        self.callers.count(id, name, Call { grid: self.grid, at_ns: now_ns, amount, is_denied });
        self.timeline.add(now_ns, is_denied);
        if self.is_live {
            self.lag.decided(at_ns, wall_ns());
        }
        if let Some(gate) = self.gate.as_mut().filter(|_| is_denied) {
            gate.deny(name, now_ns.saturating_add(self.plan.hold_ns));
            if self.is_live {
                self.lag.denied(at_ns);
            }
        }
    }

    /// Moves the log's clock, which never goes back, and returns what it shows.
    fn advance(&mut self, at_ns: u64) -> u64 {
        let counts = &mut self.counts;
        counts.first_ns = Some(counts.first_ns.unwrap_or(at_ns));
        if at_ns > counts.newest_ns {
            counts.newest_ns = at_ns;
            counts.has_parts |= !at_ns.is_multiple_of(SECOND_NS);
            self.judge.set(at_ns);
        } else if at_ns < counts.newest_ns {
            counts.late = counts.late.saturating_add(1);
            counts.latest_ns = counts.latest_ns.max(counts.newest_ns.saturating_sub(at_ns));
        }
        counts.newest_ns
    }

    fn count(&mut self, verdict: Verdict, amount: u64) {
        let counts = &mut self.counts;
        let (calls, sum) = match verdict {
            Verdict::Allowed => (&mut counts.allowed, &mut counts.allowed_amount),
            Verdict::Denied | Verdict::TooLarge => (&mut counts.denied, &mut counts.denied_amount),
        };
        *calls = calls.saturating_add(1);
        *sum = sum.saturating_add(amount);
        counts.too_large = counts.too_large.saturating_add((verdict == Verdict::TooLarge).into());
        counts.unlimited = self.judge.overflows();
    }
}

/// Unix time now.
pub(super) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
