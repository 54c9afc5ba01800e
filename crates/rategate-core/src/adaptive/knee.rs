//! As many operations as a server works on, and a few more.

use core::mem;

use super::window::{Averages, Throughput, Window};
use super::{Bounds, Controller, ONE, Outcome, Reason, Sample, parts, ratio};
use crate::random::Random;

const MS: u64 = 1_000_000;
/// The samples, and the time, of a window. It lasts as long as its mean latency, too.
const MIN_SAMPLES: u32 = 32;
const MIN_WINDOW_NS: u64 = 100 * MS;
/// The time of a window of a probe.
const MIN_PROBE_NS: u64 = 50 * MS;
/// The time from one probe to the next, unless latencies are long; it doubles up to 16 times as
/// much while probes find the same.
const PROBE_EVERY_NS: u64 = 2_000 * MS;
/// The operations beyond 9/8 of those that are worked on, at least, in 256ths.
const HEADROOM: u64 = 11 * ONE / 2;
/// The time without operations after which a window begins anew, unless latencies are long.
const MAX_GAP_NS: u64 = 1_000 * MS;
/// The windows in a row with a queue after which it stands.
const STANDING: u8 = 3;
/// The windows in a row in which the limit was reached before a probe.
const REACHED: u8 = 4;
/// The windows after which a burst is over.
const BURST: u8 = 2;
const LONG_AGO: u8 = u8::MAX;

/// Follows the knee of the latency: 9/8 of the operations that the server works on at once, and a
/// headroom of 5.5, or of the square root of the limit if that is more.
///
/// The operations that are worked on are those in flight, times the latency without a queue, by the
/// latency. That latency, the *base*, is found and kept right by these rules:
///
/// * Windows of 100 ms, of 32 operations, and of the mean latency at least are compared by the
///   means of what was served and their standard errors. After a change of the limit only
///   operations count that began later; the first window has too few of the long ones, and lowers
///   no base. A second without operations ends a window too.
/// * While the limit is reached and there is no queue, or too short a one, the limit grows: it
///   doubles until the first queue has stood, then it grows up to the goal.
/// * A queue that stands for three windows cuts the limit to the goal. One that vanishes by itself
///   was a burst: there the limit grows by half.
/// * A mean below the base lowers it. A **probe** alone raises it: for one window the limit is a
///   quarter, and the mean of what began in it is the new base, or halfway to it within the noise.
///   Where it is an eighth below the mean before, it raises no base: then it was a queue that fell,
///   and the rest may be that of other callers. A probe waits for the long operations: a mean and
///   three deviations.
/// * A cut below three quarters of the last limit that a probe has confirmed needs another probe,
///   and so a network that becomes slow is not taken for a queue.
/// * Where [shares](crate::share) of the limit are reached and the limit is not, the maximum in
///   flight stands for it: it is what has the queue or the headroom, and the limit moves by the
///   same ratio. So operations of a low priority alone find what the server bears, and the limit
///   is then above it. A share of less than a quarter lets no limit grow.
/// * Where more than a tenth is dropped, the limit is cut by a fifth. After that it doubles up to
///   three quarters of what it was.
///
/// Many callers on one server, each with a controller of its own, keep a longer queue than one:
/// the cut of one hardly moves it. Where some operations take hundreds of times as long as others,
/// a probe may miss those, and the limit stays too low: give it a higher floor.
///
/// Instants are those of one clock. One that is far ahead of the others is recognized after 32 of
/// them.
///
/// ```
/// use rategate_core::adaptive::{Bounds, Controller, Knee, Outcome, Sample};
///
/// let mut knee = Knee::new(Bounds::new(1, 20, 200), 7);
/// // All is refused for a second.
/// for start_ns in (0..1_000_000_000).step_by(1_000_000) {
///     let (end_ns, outcome) = (start_ns + 200_000, Outcome::Dropped);
///     knee.sample(Sample { start_ns, end_ns, in_flight: 1, outcome });
/// }
/// assert!(knee.limit() < 10);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knee {
    bounds: Bounds,
    /// In 256ths.
    limit: u64,
    /// The latency without a queue, in 256ths of a nanosecond; 0 if it is unknown.
    base: u64,
    window: Window,
    latest_ns: u64,
    /// The instant of the last change of the limit.
    changed_ns: u64,
    /// The limit that a probe has confirmed, in 256ths; 0 for none.
    confirmed: u64,
    phase: Phase,
    /// The limit up to which the limit doubles, in 256ths.
    doubles_to: u64,
    /// `true` if the last window had dropped more than a tenth.
    is_dropping: bool,
    /// `true` for the first window after a change: operations that take long have not ended yet.
    is_cut_off: bool,
    /// The time after which nearly all operations of a moment have ended.
    settle_ns: u64,
    /// The instant from which on operations that begin do not count for the probe.
    probed_until_ns: Option<u64>,
    /// The samples in a row that ended long before the latest one.
    behind: u32,
    /// The windows in a row with a queue, and those in which the limit was reached.
    standing: u8,
    reached: u8,
    /// The number of windows since the limit was reached, and since there was a queue.
    reached_ago: u8,
    queue_ago: u8,
    /// The instant of the next probe, and the time from one to the next.
    probe_ns: u64,
    every_ns: u64,
    random: Random,
    reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Probe {
        /// The limit, what is full of it, the throughput and the mean latency before.
        back: u64,
        full: u64,
        before: Throughput,
        mean: u64,
        /// `true` if a queue stands, so that the limit is cut after the probe.
        is_cut: bool,
    },
}

impl Knee {
    /// Creates a controller within these bounds. The seed decides when it probes, so that several
    /// on one server do not probe at once.
    #[must_use]
    pub fn new(bounds: Bounds, seed: u64) -> Self {
        Self {
            bounds,
            limit: parts(bounds.first),
            base: 0,
            window: Window::default(),
            latest_ns: 0,
            changed_ns: 0,
            confirmed: 0,
            phase: Phase::Open,
            doubles_to: u64::MAX,
            is_dropping: false,
            is_cut_off: true,
            settle_ns: 0,
            probed_until_ns: None,
            behind: 0,
            standing: 0,
            reached: 0,
            reached_ago: LONG_AGO,
            queue_ago: LONG_AGO,
            probe_ns: 0,
            every_ns: PROBE_EVERY_NS,
            random: Random::new(seed),
            reason: Reason::Restart,
        }
    }

    /// Returns why the limit changed last.
    pub(super) const fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the limit before the probe, in one.
    pub(super) fn before_probe(&self) -> Option<u32> {
        match self.phase {
            Phase::Probe { back, .. } => Some(self.bounds.clamp(back / ONE)),
            Phase::Open => None,
        }
    }

    /// Returns the latency without a queue, if it is known.
    pub(super) fn base_ns(&self) -> Option<u64> {
        Some(self.base / ONE).filter(|_| self.base > 0)
    }

    fn set(&mut self, limit: u64, reason: Reason) {
        self.reason = reason;
        let before = mem::replace(&mut self.limit, self.bounds.clamp_parts(limit));
        if before / ONE != self.limit / ONE {
            (self.changed_ns, self.is_cut_off) = (self.latest_ns, true);
        }
    }

    fn end_window(&mut self) {
        let averages = self.window.averages();
        self.window = Window::new(self.latest_ns);
        let settle_ns = averages.mean.saturating_add(averages.deviation.saturating_mul(3)) / ONE;
        let was_cut_off = mem::replace(&mut self.is_cut_off, false);
        self.settle_ns = if was_cut_off { self.settle_ns.max(settle_ns) } else { settle_ns };
        self.probed_until_ns = None;
        let was_dropping = mem::replace(&mut self.is_dropping, averages.is_dropping);
        match mem::replace(&mut self.phase, Phase::Open) {
            Phase::Probe { back, .. } if averages.is_dropping => self.shed(back, was_dropping),
            Phase::Probe { back, full, before, mean, is_cut } => {
                self.find_base(averages, mean);
                self.end_probe(back, full, before, is_cut);
            }
            Phase::Open if averages.is_dropping => self.shed(self.limit, was_dropping),
            Phase::Open => self.follow(averages, was_cut_off),
        }
    }

    /// Cuts a limit at which too much is dropped.
    fn shed(&mut self, limit: u64, was_dropping: bool) {
        if !was_dropping {
            self.doubles_to = (limit / 4).saturating_mul(3);
        }
        self.set((limit / 5).saturating_mul(4), Reason::Dropped);
        (self.standing, self.reached) = (0, 0);
    }

    fn follow(&mut self, averages: Averages, was_cut_off: bool) {
        let Averages { mean, error, in_flight, most, most_in_share, .. } = averages;
        let noise = error.saturating_mul(2);
        if self.base == 0 {
            self.base = mean;
        } else if !was_cut_off && mean.saturating_add(noise) < self.base {
            self.base = self.base.midpoint(mean.saturating_add(error));
        }
        let has_queue = mean > self.base.saturating_add(noise.max(self.base / 64));
        let is_whole = u64::from(most) >= self.limit / ONE;
        let is_reached = is_whole || most_in_share > 0;
        let may_grow = is_whole || parts(most_in_share) >= self.limit / 4;
        let full = if is_whole { self.limit } else { parts(most.max(most_in_share)).max(1) };
        let busy = u128::from(in_flight).saturating_mul(self.base.into());
        let worked_on = ratio(busy, mean.max(1).into());
        let goal = goal(worked_on, full);
        let next = |ago: u8, is_now: bool| if is_now { 0 } else { ago.saturating_add(1) };
        self.reached = if is_reached { self.reached.saturating_add(1) } else { 0 };
        self.reached_ago = next(self.reached_ago, may_grow);
        self.queue_ago = next(self.queue_ago, has_queue && (!is_reached || goal < full));
        if !is_reached {
            self.standing = 0;
            if !has_queue && self.reached_ago <= BURST && self.queue_ago <= BURST {
                (self.reached_ago, self.queue_ago) = (LONG_AGO, LONG_AGO);
                self.set(self.limit.saturating_add(self.limit / 2), Reason::Reached);
            }
        } else if !has_queue || goal >= full {
            self.standing = 0;
            if may_grow {
                let missing = goal.saturating_sub(full).min(headroom(full));
                let double = self.limit.saturating_mul(2).min(self.doubles_to);
                let grown = moved(self.limit, full.saturating_add(missing), full);
                self.set(grown.max(double), Reason::Reached);
            }
        } else {
            self.standing = self.standing.saturating_add(1);
            if self.standing >= STANDING {
                (self.standing, self.doubles_to) = (0, 0);
                let cut = moved(self.limit, goal, full);
                if self.confirmed == 0 || cut < (self.confirmed / 4).saturating_mul(3) {
                    return self.probe(averages, full, true);
                }
                self.set(cut, Reason::Queue);
            }
        }
        if self.reached >= REACHED && self.latest_ns >= self.probe_ns {
            self.probe(averages, full, false);
        }
    }

    fn probe(&mut self, averages: Averages, full: u64, is_cut: bool) {
        let Averages { mean, throughput: before, .. } = averages;
        self.phase = Phase::Probe { back: self.limit, full, before, mean, is_cut };
        self.set(self.limit / 4, Reason::Probe);
    }

    /// Finds the base by the averages of a probe, and the mean latency before it.
    fn find_base(&mut self, averages: Averages, mean_before: u64) {
        let Averages { mean, error, .. } = averages;
        let noise = error.saturating_mul(2);
        let old = self.base;
        // A latency that falls with the limit is that of a queue. If it is still above the base,
        // other callers have a part in the queue.
        let has_fallen = mean.saturating_add(noise) < (mean_before / 8).saturating_mul(7);
        if mean.abs_diff(old) < noise {
            self.base = old.midpoint(mean);
        } else if mean < old || !has_fallen {
            self.base = mean;
        }
        let least_ns = PROBE_EVERY_NS.max((mean / ONE).saturating_mul(32));
        let is_same = self.base.abs_diff(old) <= noise.max(old / 8);
        let every_ns = if is_same { self.every_ns.saturating_mul(2) } else { least_ns };
        self.every_ns = every_ns.clamp(least_ns, least_ns.saturating_mul(16));
    }

    fn end_probe(&mut self, back: u64, full: u64, before: Throughput, is_cut: bool) {
        self.set(back, Reason::Probe);
        if is_cut {
            let goal = goal(before.worked_on(self.base), full);
            self.set(moved(self.limit, goal, full).min(back), Reason::Queue);
        }
        (self.changed_ns, self.is_cut_off) = (self.latest_ns, true);
        self.confirmed = self.limit;
        self.schedule_probe();
    }

    fn is_long_enough(&self, min_ns: u64) -> bool {
        self.window.samples >= MIN_SAMPLES
            && self.window.lasted_ns() >= min_ns.max(self.window.mean_ns())
    }

    /// Sets the instant of the next probe, up to a quarter later than the time to it.
    fn schedule_probe(&mut self) {
        let jitter = self.random.bits() >> 58;
        let jitter_ns = (self.every_ns / 256).saturating_mul(jitter);
        self.probe_ns = self.latest_ns.saturating_add(self.every_ns).saturating_add(jitter_ns);
    }

    /// Begins anew at a sample, with what is known of the server.
    fn resume(&mut self, sample: &Sample) {
        if let Phase::Probe { back, .. } = mem::replace(&mut self.phase, Phase::Open) {
            (self.limit, self.reason) = (back, Reason::Probe);
        }
        (self.changed_ns, self.is_cut_off) = (sample.start_ns.min(sample.end_ns), true);
        self.probed_until_ns = None;
        self.window = self.window.renewed(self.changed_ns);
        (self.standing, self.reached) = (0, 0);
    }
}

/// Returns the room for a queue beside the operations that are worked on, where so many are in
/// flight.
fn headroom(full: u64) -> u64 {
    HEADROOM.max(full.saturating_mul(ONE).isqrt())
}

/// Returns the operations in flight for a server that works on so many, where `full` are now.
fn goal(worked_on: u64, full: u64) -> u64 {
    (worked_on / 8).saturating_mul(9).saturating_add(headroom(full))
}

/// Returns a limit moved by the ratio of two numbers of operations.
fn moved(limit: u64, to: u64, from: u64) -> u64 {
    ratio(u128::from(limit).saturating_mul(to.into()), from.into())
}

impl Controller for Knee {
    fn limit(&self) -> u32 {
        self.bounds.clamp(self.limit / ONE)
    }

    fn rebound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    fn fill_share(&mut self, in_flight: u32, now_ns: u64) {
        self.window.fill_share(in_flight, now_ns);
    }

    fn sample(&mut self, sample: Sample) {
        if sample.outcome == Outcome::Ignored {
            return;
        }
        let quiet_ns = MAX_GAP_NS.max(self.settle_ns.saturating_mul(2));
        let is_first = self.latest_ns == 0;
        if sample.end_ns < self.latest_ns.saturating_sub(quiet_ns) {
            self.behind = self.behind.saturating_add(1);
            if self.behind < MIN_SAMPLES {
                return;
            }
            // It is the others that came from the future.
            self.latest_ns = sample.end_ns;
            self.schedule_probe();
            self.resume(&sample);
        } else if is_first || sample.start_ns > self.latest_ns.saturating_add(quiet_ns) {
            // Time without operations is no time of a low throughput.
            self.latest_ns = sample.end_ns.max(self.latest_ns);
            self.resume(&sample);
        }
        self.behind = 0;
        self.latest_ns = self.latest_ns.max(sample.end_ns);
        if is_first {
            self.schedule_probe();
        }
        // What began under another limit says nothing about this one.
        if sample.start_ns < self.changed_ns {
            return;
        }
        if self.window.samples == 0 && self.changed_ns >= self.window.begun_ns() {
            self.window = self.window.renewed(sample.start_ns.min(self.latest_ns));
        }
        match (self.phase, self.probed_until_ns) {
            (Phase::Probe { .. }, None) => {
                self.window.add(&sample, self.latest_ns);
                if self.is_long_enough(MIN_PROBE_NS) {
                    self.probed_until_ns = Some(self.latest_ns);
                }
            }
            // Those that have begun by then end within some time, short and long ones alike.
            (Phase::Probe { .. }, Some(until_ns)) => {
                if sample.start_ns <= until_ns {
                    self.window.add(&sample, self.latest_ns);
                }
                if self.latest_ns >= until_ns.saturating_add(self.settle_ns) {
                    self.end_window();
                }
            }
            (Phase::Open, _) => {
                self.window.add(&sample, self.latest_ns);
                if self.is_long_enough(MIN_WINDOW_NS) {
                    self.end_window();
                }
            }
        }
    }
}
