//! Processing of the log line by line: parsing, naming, deciding and counting.

use std::rc::Rc;
use std::time::Duration;
use std::time::SystemTime;

use rategate::keyed::HashedId;
use rategate::keyed::{Replay, ReplayOutcome};

use super::args::AnalyzeArgs;
use super::callers::{Call, Callers};
use super::gate::Gate;
use super::hold::{Decided, Effects};
use super::key::{Namer, Source};
use super::lag::Lag;
use super::log::{Parser, Unread};
use super::peak::Grid;
use super::settings::{Ahead, POLL_NS, Settings};
use super::timeline::Timeline;
use crate::failure::Failure;

const SECOND_NS: u64 = 1_000_000_000;
/// A line further ahead than this counts only if the next one agrees.
const DAY_NS: u64 = 86_400 * SECOND_NS;
/// The maximum number of skipped lines that are shown.
const SHOWN: usize = 5;

/// The state of the analysis.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) settings: Settings,
    pub(super) counts: Counts,
    pub(super) callers: Callers,
    pub(super) timeline: Timeline,
    pub(super) gate: Option<Gate>,
    pub(super) lag: Lag,
    /// Lines are read as they are written, so that delays are meaningful.
    pub(super) is_live: bool,
    /// The effect that a list would have had, or has.
    pub(super) effects: Effects,
    /// Callers that are on the list but not published yet.
    unpublished: Vec<usize>,
    is_followed: bool,
    parser: Parser,
    namer: Namer,
    judge: Replay<HashedId>,
    grid: Grid,
    file: Rc<str>,
    line: u64,
    scratch: Vec<u8>,
    held: Option<Held>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) lines: u64,
    pub(super) blank: u64,
    /// The number of lines whose status was not selected.
    pub(super) filtered: u64,
    pub(super) skipped: u64,
    /// The first skipped lines: file, line number, and reason.
    pub(super) shown: Vec<(String, u64, Unread)>,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) allowed_amount: u64,
    pub(super) denied_amount: u64,
    /// The number of calls larger than the limit ever passes; they are among the denied.
    pub(super) too_large: u64,
    /// The number of calls that did not fit in the table and passed without a limit; they are
    /// among the allowed.
    pub(super) unlimited: u64,
    /// The number of lines older than the newest before them.
    pub(super) late: u64,
    pub(super) latest_ns: u64,
    pub(super) first_ns: Option<u64>,
    pub(super) newest_ns: u64,
    /// An instant was not a whole second.
    has_fractions: bool,
}

/// A line that is far ahead of all before it.
#[derive(Debug)]
struct Held {
    at_ns: u64,
    amount: u64,
    file: Rc<str>,
    line: u64,
    name: Vec<u8>,
}

impl Tally {
    pub(super) fn new(
        args: &AnalyzeArgs,
        settings: Settings,
        gate: Option<Gate>,
    ) -> Result<Self, Failure> {
        let source = Source::parse(&args.key)?;
        let max_keys = usize::try_from(args.keys).unwrap_or(usize::MAX);
        let judge = Replay::new(&settings.policies, max_keys);
        Ok(Self {
            counts: Counts::default(),
            callers: Callers::new(judge.seeds(), max_keys),
            timeline: Timeline::new(),
            gate,
            lag: Lag::default(),
            is_live: false,
            effects: Effects::default(),
            unpublished: Vec::new(),
            is_followed: args.follow,
            parser: Parser::new(args.log, source.clone()),
            namer: Namer::new(source, args),
            judge,
            grid: Grid::of(settings.period_ns),
            settings,
            file: Rc::from(""),
            line: 0,
            scratch: Vec::new(),
            held: None,
        })
    }

    /// Continues with a file, of which `line` lines have been read.
    pub(super) fn resume(&mut self, file: &Rc<str>, line: u64) {
        (self.file, self.line) = (Rc::clone(file), line);
    }

    /// Returns the number of lines of the file that have been read.
    pub(super) const fn line(&self) -> u64 {
        self.line
    }

    /// Processes the next line, without its end.
    pub(super) fn add(&mut self, line: &[u8]) {
        self.count_line();
        if line.iter().all(u8::is_ascii_whitespace) {
            self.counts.blank = self.counts.blank.saturating_add(1);
            return;
        }
        let entry = match self.parser.read(line) {
            Ok(entry) => entry,
            Err(why) => return self.skip_this(why),
        };
        if !self.settings.statuses.has(entry.status) {
            self.counts.filtered = self.counts.filtered.saturating_add(1);
            return;
        }
        let amount = if self.settings.in_bytes { entry.bytes } else { 1 };
        let mut scratch = std::mem::take(&mut self.scratch);
        let name = self.namer.name(entry.key, &mut scratch);
        self.admit(entry.at_ns, amount, name);
        self.scratch = scratch;
    }

    /// Counts a line that was too long.
    pub(super) fn add_too_long(&mut self) {
        self.count_line();
        self.skip_this(Unread::TooLong);
    }

    /// Processes the held line, after all lines have been read.
    pub(super) fn finish(&mut self) {
        if let Some(held) = self.held.take() {
            self.decide(held.at_ns, held.amount, &held.name);
        }
    }

    /// Processes a held line that is not ahead of the wall clock, after no line has come for a
    /// while.
    pub(super) fn catch_up(&mut self) {
        let latest_ns = wall_ns().saturating_add(DAY_NS);
        if self.held.as_ref().is_some_and(|held| held.at_ns <= latest_ns) {
            self.finish();
        }
    }

    /// Publishes the gate at an instant of Unix time, unless its store is unavailable.
    pub(super) fn publish(&mut self, now_ns: u64) -> Result<(), Failure> {
        let Some(gate) = &mut self.gate else { return Ok(()) };
        if gate.publish(now_ns)? {
            self.published(wall_ns());
        }
        Ok(())
    }

    /// Publishes the gate at the end, and waits for a store. Returns `true` if it is up to date.
    pub(super) fn close(&mut self, now_ns: u64) -> Result<bool, Failure> {
        let Some(gate) = &mut self.gate else { return Ok(true) };
        let is_published = gate.finish(now_ns)?;
        if is_published {
            self.published(wall_ns());
        }
        Ok(is_published)
    }

    fn published(&mut self, wall_ns: u64) {
        self.lag.published(wall_ns);
        for index in self.unpublished.drain(..) {
            if let Some(caller) = self.callers.get_mut(index) {
                caller.hold.published(wall_ns);
            }
        }
    }

    /// Returns `true` if the lower bounds of fullest windows are exact.
    pub(super) const fn is_exact(&self) -> bool {
        !self.counts.has_fractions && self.grid.is_exact_in_seconds()
    }

    fn count_line(&mut self) {
        self.line = self.line.saturating_add(1);
        self.counts.lines = self.counts.lines.saturating_add(1);
    }

    fn skip_this(&mut self, why: Unread) {
        let file = Rc::clone(&self.file);
        self.skip(&file, self.line, why);
    }

    fn skip(&mut self, file: &str, line: u64, why: Unread) {
        self.counts.skipped = self.counts.skipped.saturating_add(1);
        if self.counts.shown.len() < SHOWN {
            self.counts.shown.push((file.to_owned(), line, why));
        }
    }

    /// Decides a call, or holds it if it is far ahead until the next line.
    ///
    /// One wrong date must not stop the clock for the rest of the log, so a line far ahead counts
    /// only if the next one agrees.
    fn admit(&mut self, at_ns: u64, amount: u64, name: &[u8]) {
        if let Some(held) = self.held.take() {
            if at_ns.saturating_add(DAY_NS) >= held.at_ns {
                self.decide(held.at_ns, held.amount, &held.name);
            } else {
                self.skip(&held.file, held.line, Unread::Ahead);
            }
        }
        let is_ahead = at_ns.saturating_sub(self.counts.newest_ns) > DAY_NS;
        if is_ahead {
            let (file, name) = (Rc::clone(&self.file), name.to_vec());
            self.held = Some(Held { at_ns, amount, file, line: self.line, name });
        } else {
            self.decide(at_ns, amount, name);
        }
    }

    fn decide(&mut self, at_ns: u64, amount: u64, name: &[u8]) {
        let now_ns = self.advance(at_ns);
        let id = self.callers.id(name);
        let outcome = self.judge.attempt(&id, amount);
        let is_denied = outcome != ReplayOutcome::Allowed;
        self.count(outcome, amount);
        let call = Call { grid: self.grid, at_ns: now_ns, amount, is_denied };
        let index = self.callers.count(id, name, call);
        self.timeline.add(now_ns, is_denied);
        if self.is_live {
            self.lag.decided(at_ns, wall_ns());
        }
        if !self.has_list() {
            return;
        }
        let is_warned = !is_denied && index.is_some_and(|index| self.is_close(id, index, now_ns));
        if let Some(index) = index {
            let call = Decided { at_ns: now_ns, amount, is_denied, is_warned };
            self.overlay(index, call);
        }
        if let Some(gate) = self.gate.as_mut().filter(|_| is_denied || is_warned) {
            gate.deny(name, now_ns.saturating_add(self.settings.hold_ns));
            if self.is_live {
                self.lag.denied(at_ns);
            }
        }
    }

    /// Returns `true` if there is a deny list, if only in the report.
    pub(super) const fn has_list(&self) -> bool {
        self.gate.is_some() || self.settings.delay_ns.is_some()
    }

    /// Returns `true` if the caller is expected to be over the limit soon.
    fn is_close(&mut self, id: HashedId, index: usize, now_ns: u64) -> bool {
        let lead_ns = match self.settings.ahead {
            None => return false,
            Some(Ahead::By(ns)) => ns,
            Some(Ahead::Measured(max_ns)) => self.lag.lead_ns(POLL_NS).min(max_ns),
        };
        let Some(caller) = self.callers.get_mut(index) else { return false };
        // A caller that is already denied needs no warning.
        if caller.hold.denies(now_ns) {
            return false;
        }
        caller.peak.expected(self.grid, now_ns, lead_ns) > self.judge.left(&id)
    }

    /// Counts the effect of the list on a call. In a followed log only new lines count: earlier
    /// ones could not have been listed in time.
    fn overlay(&mut self, index: usize, call: Decided) {
        let Some(caller) = self.callers.get_mut(index) else { return };
        let (hold_ns, delay_ns) = (self.settings.hold_ns, self.settings.delay_ns);
        let mut discarded = Effects::default();
        let is_news = !self.is_followed || self.is_live;
        let effects = if is_news { &mut self.effects } else { &mut discarded };
        let is_new = effects.count(&mut caller.hold, call, hold_ns, delay_ns);
        if is_new && delay_ns.is_none() {
            self.unpublished.push(index);
        }
    }

    /// Advances the log's clock, which never goes back, and returns its time.
    fn advance(&mut self, at_ns: u64) -> u64 {
        let counts = &mut self.counts;
        counts.first_ns = Some(counts.first_ns.unwrap_or(at_ns));
        if at_ns > counts.newest_ns {
            counts.newest_ns = at_ns;
            counts.has_fractions |= !at_ns.is_multiple_of(SECOND_NS);
            self.judge.set(Duration::from_nanos(at_ns));
        } else if at_ns < counts.newest_ns {
            counts.late = counts.late.saturating_add(1);
            counts.latest_ns = counts.latest_ns.max(counts.newest_ns.saturating_sub(at_ns));
        }
        counts.newest_ns
    }

    fn count(&mut self, outcome: ReplayOutcome, amount: u64) {
        let counts = &mut self.counts;
        let (calls, sum) = match outcome {
            ReplayOutcome::Allowed => (&mut counts.allowed, &mut counts.allowed_amount),
            ReplayOutcome::Denied | ReplayOutcome::TooLarge => {
                (&mut counts.denied, &mut counts.denied_amount)
            }
        };
        *calls = calls.saturating_add(1);
        *sum = sum.saturating_add(amount);
        counts.too_large =
            counts.too_large.saturating_add((outcome == ReplayOutcome::TooLarge).into());
        counts.unlimited = self.judge.overflows();
    }
}

/// Returns Unix time now.
pub(super) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
