//! The analysis: parsing, naming, deciding and counting, line by line.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use rategate::keyed::HashedId;
use rategate::keyed::{Replay, ReplayOutcome};

use crate::callers::{Call, Callers};
use crate::fullest::Grid;
use crate::input::{Lines, Next, plain};
use crate::key::Namer;
use crate::list_effect::{Decided, Effects, Lag};
use crate::log::{Parser, SkipReason};
use crate::publish::DenyPublisher;
use crate::report::{Counts, Skipped};
use crate::settings::{ListSettings, POLL, Settings};
use crate::timeline::Timeline;
use crate::{AnalyzeError, SECOND_NS, ns, wall_ns};

/// A line further ahead than this counts only if the next one agrees.
const DAY_NS: u64 = 86_400 * SECOND_NS;
/// The maximum number of skipped lines that are shown.
const SHOWN: usize = 5;

/// An analysis of one log, in one file or several.
#[derive(Debug)]
pub struct Analysis {
    pub(crate) settings: Settings,
    pub(crate) counts: Counts,
    pub(crate) callers: Callers,
    pub(crate) timeline: Timeline,
    pub(crate) publisher: Option<DenyPublisher>,
    pub(crate) lag: Lag,
    pub(crate) follows: Option<Follows>,
    /// The effect that a list would have had, or has.
    pub(crate) effects: Effects,
    pub(crate) first_skipped: Vec<Skipped>,
    pub(crate) first_ns: Option<u64>,
    pub(crate) newest_ns: u64,
    /// An instant was not a whole second.
    has_fractions: bool,
    /// Callers that are on the list but not published yet.
    unpublished: Vec<usize>,
    parser: Parser,
    namer: Namer,
    judge: Replay<HashedId>,
    grid: Grid,
    file: Arc<str>,
    line: u64,
    scratch: Vec<u8>,
    held: Option<Held>,
}

/// The state of following.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Follows {
    /// Lines are read as they are written, so that delays are meaningful.
    pub(crate) is_live: bool,
    pub(crate) rotations: u64,
}

/// A line that is far ahead of all before it.
#[derive(Debug)]
struct Held {
    at_ns: u64,
    amount: u64,
    file: Arc<str>,
    line: u64,
    name: Vec<u8>,
}

impl Analysis {
    /// Creates an analysis that has read nothing.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let judge = Replay::new(&settings.limit.policies, settings.max_callers);
        Self {
            counts: Counts::default(),
            callers: Callers::new(judge.seeds(), settings.max_callers),
            timeline: Timeline::new(),
            publisher: None,
            lag: Lag::default(),
            follows: None,
            effects: Effects::default(),
            first_skipped: Vec::new(),
            first_ns: None,
            newest_ns: 0,
            has_fractions: false,
            unpublished: Vec::new(),
            parser: Parser::new(settings.dialect, settings.key.clone()),
            namer: Namer::new(&settings),
            judge,
            grid: Grid::of(settings.limit.period_ns),
            settings,
            file: Arc::from(""),
            line: 0,
            scratch: Vec::new(),
            held: None,
        }
    }

    /// Keeps the callers over the limit on a deny list. Without settings for one, a denial keeps
    /// a caller there for the period of the limit.
    #[must_use]
    pub fn publish_to(mut self, publisher: DenyPublisher) -> Self {
        let hold = self.settings.limit.period();
        self.settings.list.get_or_insert(ListSettings { hold, ahead: None, delay: None });
        self.publisher = Some(publisher);
        self
    }

    /// Reads an input to its end. Inputs form one log, in their order.
    ///
    /// # Errors
    ///
    /// Those of the input. What was read before counts.
    pub fn read(&mut self, name: &str, input: impl Read) -> io::Result<()> {
        self.resume(&Arc::from(name), 0);
        let (mut input, mut lines) = (plain(input)?, Lines::new());
        while lines.fill(&mut *input)? > 0 {
            self.drain(&mut lines);
        }
        self.end_of_file(&mut lines);
        Ok(())
    }

    /// Ends the log, and updates the deny list.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Io`] if a list cannot be written.
    pub fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.decide_held();
        let now_ns = if self.follows.is_some() { wall_ns() } else { self.newest_ns };
        self.publish(now_ns)
    }

    /// Continues with a file, of which `line` lines have been read.
    pub(crate) fn resume(&mut self, file: &Arc<str>, line: u64) {
        (self.file, self.line) = (Arc::clone(file), line);
    }

    /// Returns the number of lines of the file that have been read.
    pub(crate) const fn line(&self) -> u64 {
        self.line
    }

    /// Processes the complete lines of a buffer.
    pub(crate) fn drain(&mut self, lines: &mut Lines) {
        while self.add(lines.next()) {}
    }

    /// Processes the end of a file, which is a line even without a line end.
    pub(crate) fn end_of_file(&mut self, lines: &mut Lines) {
        self.add(lines.last());
    }

    /// Processes the next line. Returns `false` if there is none.
    fn add(&mut self, next: Next<'_>) -> bool {
        let line = match next {
            Next::Dry => return false,
            Next::Line(line) => Some(line),
            Next::TooLong => None,
        };
        self.line = self.line.saturating_add(1);
        self.counts.lines = self.counts.lines.saturating_add(1);
        let Some(line) = line else {
            self.skip_this(SkipReason::TooLong);
            return true;
        };
        if line.iter().all(u8::is_ascii_whitespace) {
            self.counts.blank = self.counts.blank.saturating_add(1);
            return true;
        }
        match self.parser.read(line) {
            Err(why) => self.skip_this(why),
            Ok(entry) if !self.settings.statuses.has(entry.status) => {
                self.counts.filtered = self.counts.filtered.saturating_add(1);
            }
            Ok(entry) => {
                let amount = if self.settings.limit.in_bytes { entry.bytes } else { 1 };
                let mut scratch = std::mem::take(&mut self.scratch);
                let name = self.namer.name(entry.key, &mut scratch);
                self.admit(entry.at_ns, amount, name);
                self.scratch = scratch;
            }
        }
        true
    }

    /// Processes the held line, after all lines have been read.
    fn decide_held(&mut self) {
        if let Some(held) = self.held.take() {
            self.decide(held.at_ns, held.amount, &held.name);
        }
    }

    /// Processes a held line that is not ahead of the wall clock, after no line has come for a
    /// while.
    pub(crate) fn catch_up(&mut self) {
        let latest_ns = wall_ns().saturating_add(DAY_NS);
        if self.held.as_ref().is_some_and(|held| held.at_ns <= latest_ns) {
            self.decide_held();
        }
    }

    /// Publishes the deny list, without the entries that have ended at an instant of Unix time.
    pub(crate) fn publish(&mut self, now_ns: u64) -> Result<(), AnalyzeError> {
        let Some(publisher) = &mut self.publisher else { return Ok(()) };
        publisher.publish(now_ns)?;
        self.published(wall_ns());
        Ok(())
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
    pub(crate) const fn is_exact(&self) -> bool {
        !self.has_fractions && self.grid.is_exact_in_seconds()
    }

    fn skip_this(&mut self, why: SkipReason) {
        let file = Arc::clone(&self.file);
        self.skip(&file, self.line, why);
    }

    fn skip(&mut self, file: &str, line: u64, why: SkipReason) {
        self.counts.skipped = self.counts.skipped.saturating_add(1);
        if self.first_skipped.len() < SHOWN {
            self.first_skipped.push(Skipped { file: file.to_owned(), line, why });
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
                self.skip(&held.file, held.line, SkipReason::Ahead);
            }
        }
        let is_ahead = at_ns.saturating_sub(self.newest_ns) > DAY_NS;
        if is_ahead {
            let (file, name) = (Arc::clone(&self.file), name.to_vec());
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
        if self.is_live() {
            self.lag.decided(at_ns, wall_ns());
        }
        let Some(list) = self.settings.list else { return };
        let is_warned =
            !is_denied && index.is_some_and(|index| self.is_close(list, id, index, now_ns));
        if let Some(index) = index {
            let call = Decided { at_ns: now_ns, amount, is_denied, is_warned };
            self.overlay(list, index, call);
        }
        if let Some(publisher) = self.publisher.as_mut().filter(|_| is_denied || is_warned) {
            publisher.deny(name, now_ns.saturating_add(ns(list.hold)));
            if self.is_live() {
                self.lag.denied(at_ns);
            }
        }
    }

    /// Marks lines from here on as new.
    pub(crate) fn set_live(&mut self) {
        self.follows.get_or_insert_default().is_live = true;
    }

    fn is_live(&self) -> bool {
        self.follows.is_some_and(|follows| follows.is_live)
    }

    /// Returns `true` if the caller is expected to be over the limit soon.
    fn is_close(&mut self, list: ListSettings, id: HashedId, index: usize, now_ns: u64) -> bool {
        let Some(ahead) = list.ahead else { return false };
        let lead_ns = ahead.lead_ns(|| self.lag.lead_ns(ns(POLL)));
        let Some(caller) = self.callers.get_mut(index) else { return false };
        // A caller that is already denied needs no warning.
        if caller.hold.denies(now_ns) {
            return false;
        }
        caller.peak.expected(self.grid, now_ns, lead_ns) > self.judge.left(&id)
    }

    /// Counts the effect of the list on a call. In a followed log only new lines count: earlier
    /// ones could not have been listed in time.
    fn overlay(&mut self, list: ListSettings, index: usize, call: Decided) {
        let is_news = self.follows.is_none_or(|follows| follows.is_live);
        let Some(caller) = self.callers.get_mut(index) else { return };
        let mut discarded = Effects::default();
        let effects = if is_news { &mut self.effects } else { &mut discarded };
        let is_new = effects.count(&mut caller.hold, call, ns(list.hold), list.delay.map(ns));
        if is_new && list.delay.is_none() {
            self.unpublished.push(index);
        }
    }

    /// Advances the log's clock, which never goes back, and returns its time.
    fn advance(&mut self, at_ns: u64) -> u64 {
        self.first_ns.get_or_insert(at_ns);
        if at_ns > self.newest_ns {
            self.newest_ns = at_ns;
            self.has_fractions |= !at_ns.is_multiple_of(SECOND_NS);
            self.judge.set(Duration::from_nanos(at_ns));
        } else if at_ns < self.newest_ns {
            let late_ns = self.newest_ns.saturating_sub(at_ns);
            self.counts.late = self.counts.late.saturating_add(1);
            self.counts.latest_ns = self.counts.latest_ns.max(late_ns);
        }
        self.newest_ns
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
        counts.calls = counts.calls.saturating_add(1);
        *sum = sum.saturating_add(amount);
        counts.too_large =
            counts.too_large.saturating_add((outcome == ReplayOutcome::TooLarge).into());
        counts.unlimited = self.judge.overflows();
    }
}

#[cfg(test)]
mod tests {
    use super::Analysis;

    #[test]
    fn an_analysis_may_run_on_any_thread() {
        const fn can_move<T: Send>() {}
        can_move::<Analysis>();
    }
}
