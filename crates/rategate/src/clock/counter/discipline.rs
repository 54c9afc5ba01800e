//! The discipline of the counter, which computes the line that maps ticks to nanoseconds.
//!
//! A line starts where the one before it ended, so readings never go back. Its slope comes from a
//! long baseline; a small correction makes up, over the next second, for the error of the last
//! line.
//!
//! It is our own: libraries calibrate once, and drift away from the system's clock by most of a
//! second a day. Decision 0013 has the figures.

use super::Times;

/// The fraction bits of slopes: they are in units of 2^-40 ns per tick, 10^-12 of a usual slope.
const SCALE_BITS: u32 = 40;

/// The maximum number of ticks of a line: a second's worth, unless the counter runs at a THz.
const MAX_TICKS: u64 = 1 << SCALE_BITS;

/// The time for which a line is used.
const LENGTH_NS: u64 = 1_000_000_000;

/// The minimum length of a baseline, once that much time has passed; at most it is twice as long.
const BASELINE_NS: u64 = 8_000_000_000;

/// The number of tries of which an anchor is the best.
const TRIES: u32 = 16;

/// The largest deviation between two anchors that is noise, plus 2 ppm of the time between.
///
/// Beyond it the counter or the system's clock has changed its rate, or jumped; baselines then
/// start anew.
const UNUSUAL_NS: u64 = 2_000;
const UNUSUAL_BITS: u32 = 19;

/// The largest error that is corrected without a step.
const JOINED_NS: u64 = 50_000;

/// The deviation at which the counter is given up, plus one part in 2048 of the time between.
///
/// System clocks are steered by 500 parts in a million, so that much is not a fault.
const TOO_FAR_NS: u64 = 1_000_000;
const STEERED_BITS: u32 = 11;

/// The readings of both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) ticks: u64,
    pub(super) system_ns: u64,
}

impl Anchor {
    /// Takes the best of several readings; `None` for a counter that only goes back.
    ///
    /// The counter is read before and after the system's clock. Where the two readings are
    /// nearest, the middle between them is nearest the truth.
    pub(super) fn of(times: &impl Times) -> Option<Self> {
        let tries = (0..TRIES).filter_map(|_| {
            let before = times.ticks();
            let system_ns = times.system_ns();
            let width = times.ticks().checked_sub(before)?;
            Some((width, Self { ticks: before.saturating_add(width / 2), system_ns }))
        });
        tries.min_by_key(|&(width, _)| width).map(|(_, anchor)| anchor)
    }
}

/// A straight line from ticks to nanoseconds, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) ticks0: u64,
    pub(super) ns0: u64,
    /// Nanoseconds per tick, in units of 2^-40.
    pub(super) scale: u64,
    /// The number of ticks for which the line is used; zero once the counter has been given up.
    pub(super) length_ticks: u64,
    /// The time by which readings stay ahead of the system's clock, since they cannot go back.
    pub(super) lead_ns: u64,
}

impl Line {
    /// Returns the time at `ticks`, if the line covers them.
    ///
    /// One comparison finds the end of the line and a counter that has gone back: ticks before
    /// the start wrap to far past the end.
    #[inline]
    pub(super) fn at(&self, ticks: u64) -> Option<u64> {
        let since = ticks.wrapping_sub(self.ticks0);
        // Some seconds after the system's clock, which is 584 years from wrapping.
        (since < self.length_ticks).then(|| self.ns0.wrapping_add(scaled_short(since, self.scale)))
    }

    /// Returns the time at `ticks` on the line, or just before its start.
    ///
    /// Another core's counter may be a little behind the one that the line was computed from.
    pub(super) fn at_or_start(&self, ticks: u64) -> Option<u64> {
        self.at(ticks).or_else(|| self.is_just_before(ticks).then_some(self.ns0))
    }

    /// Returns `true` if `ticks` are before the line's start by less than a thousandth of its
    /// length.
    const fn is_just_before(&self, ticks: u64) -> bool {
        let before = self.ticks0.wrapping_sub(ticks);
        // Not for a counter that was given up: that has no length.
        before <= self.length_ticks / 1_000 && self.length_ticks > 0
    }

    pub(super) const fn is_given_up(&self) -> bool {
        self.length_ticks == 0
    }

    /// Returns the time at `now` for a reader that has found the line used up or given up.
    ///
    /// It is the start of the next line, so that readers agree with the one that computes that
    /// line. It is not before the end of this line, since other threads may have read that.
    pub(super) fn resume_ns(&self, now: Anchor) -> u64 {
        let right_ns = now.system_ns.saturating_add(self.lead_ns);
        let since = now.ticks.saturating_sub(self.ticks0);
        let joined_ns = self.after(since);
        // After a pause without any reading, the time goes straight to where it should be, and so
        // it does after a large error.
        let paused = since / 2 > self.length_ticks;
        let near = !paused && joined_ns.abs_diff(right_ns) <= JOINED_NS;
        if near { joined_ns } else { right_ns }.max(self.end_ns())
    }

    fn end_ns(&self) -> u64 {
        self.after(self.length_ticks)
    }

    fn after(&self, since: u64) -> u64 {
        self.ns0.saturating_add(scaled(since, self.scale))
    }
}

/// The measurements of the two clocks. Only one thread at a time has them.
#[derive(Debug)]
pub(super) struct Discipline {
    line: Line,
    /// Nanoseconds per tick, as measured.
    slope: u64,
    /// The start of the baseline, and of the one that will replace it.
    base: Anchor,
    next_base: Anchor,
    last: Anchor,
}

impl Discipline {
    /// Creates a discipline from two anchors; `None` if they show no rate.
    ///
    /// The first line starts at the second anchor, on the system's time.
    pub(super) fn between(first: Anchor, second: Anchor) -> Option<Self> {
        let slope = slope_between(first, second)?;
        let line = Line {
            ticks0: second.ticks,
            ns0: second.system_ns,
            scale: slope,
            length_ticks: length_ticks(slope),
            lead_ns: 0,
        };
        Some(Self { line, slope, base: first, next_base: second, last: second })
    }

    pub(super) const fn line(&self) -> Line {
        self.line
    }

    /// Returns `true` if counter and system clock have diverged too far since the last anchor.
    ///
    /// Only a fault of the counter explains that.
    pub(super) fn is_off(&self, now: Anchor) -> bool {
        self.clock_deviation_ns(now).is_none_or(|clock_deviation_ns| {
            let between_ns = now.system_ns.saturating_sub(self.last.system_ns);
            clock_deviation_ns > TOO_FAR_NS.saturating_add(between_ns >> STEERED_BITS)
        })
    }

    /// Gives the counter up if `now`, well measured, shows that it is off.
    pub(super) fn audit(&mut self, now: Option<Anchor>, system_ns: u64) {
        if now.is_none_or(|now| self.is_off(now)) {
            let ticks = now.map(|now| now.ticks);
            self.give_up(system_ns, ticks);
        }
    }

    /// Computes the next line, from `now` on, or gives the counter up.
    ///
    /// All readings so far were before the end of the line, so later readings do not go back.
    pub(super) fn draw(&mut self, now: Option<Anchor>, system_ns: u64) {
        let Some(now) = now.filter(|&now| !self.is_off(now)) else {
            self.give_up(system_ns, None);
            return;
        };
        self.measure(now);
        let right_ns = now.system_ns.saturating_add(self.line.lead_ns);
        let ns0 = self.line.resume_ns(now);
        let off_ns = ns0.abs_diff(right_ns).min(LENGTH_NS >> STEERED_BITS);
        let more = mul_div(self.slope, off_ns, LENGTH_NS);
        let scale = if ns0 < right_ns {
            self.slope.saturating_add(more)
        } else {
            self.slope.saturating_sub(more)
        };
        let length_ticks = length_ticks(self.slope);
        self.line = Line { ticks0: now.ticks, ns0, scale, length_ticks, ..self.line };
        self.last = now;
    }

    /// Measures the slope up to `now`, and chooses the start of the next baseline.
    fn measure(&mut self, now: Anchor) {
        let between_ns = now.system_ns.saturating_sub(self.last.system_ns);
        let usual_ns = UNUSUAL_NS.saturating_add(between_ns >> UNUSUAL_BITS);
        // A baseline that started at the last anchor has no rate to compare with.
        let is_new = self.base.ticks == self.last.ticks;
        if !is_new
            && self
                .clock_deviation_ns(now)
                .is_none_or(|clock_deviation_ns| clock_deviation_ns > usual_ns)
        {
            // Either side of a jump, or of a change of the rate, is of no use to the other.
            (self.base, self.next_base) = (now, now);
            return;
        }
        self.slope = slope_between(self.base, now).unwrap_or(self.slope);
        if now.system_ns.saturating_sub(self.next_base.system_ns) >= BASELINE_NS {
            (self.base, self.next_base) = (self.next_base, now);
        }
    }

    /// Switches to the system's time, ahead of it by what has been shown already.
    ///
    /// That is the time at `ticks` if the line covers them, else the time at its end.
    fn give_up(&mut self, system_ns: u64, ticks: Option<u64>) {
        let shown_ns = ticks.and_then(|ticks| self.line.at(ticks));
        let shown_ns = shown_ns.unwrap_or_else(|| self.line.end_ns());
        let lead_ns = self.line.lead_ns.max(shown_ns.saturating_sub(system_ns));
        self.line = Line { ns0: shown_ns, length_ticks: 0, lead_ns, ..self.line };
    }

    /// Returns by how much the two clocks disagree on the time since the last anchor.
    ///
    /// Returns `None` if the counter has gone back.
    fn clock_deviation_ns(&self, now: Anchor) -> Option<u64> {
        let counted_ns = scaled(now.ticks.checked_sub(self.last.ticks)?, self.slope);
        Some(counted_ns.abs_diff(now.system_ns.saturating_sub(self.last.system_ns)))
    }
}

fn slope_between(first: Anchor, second: Anchor) -> Option<u64> {
    let ticks = second.ticks.checked_sub(first.ticks)?;
    let ns = second.system_ns.checked_sub(first.system_ns)?;
    let slope = (u128::from(ns) << SCALE_BITS).checked_div(ticks.into())?;
    u64::try_from(slope).ok().filter(|&slope| slope > 0)
}

fn length_ticks(slope: u64) -> u64 {
    let ticks = (u128::from(LENGTH_NS) << SCALE_BITS).checked_div(slope.into());
    ticks.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(0).min(MAX_TICKS)
}

/// Computes [`scaled`] for less than [`MAX_TICKS`].
///
/// Shifted before it is multiplied, the product's upper word is the result.
#[inline]
fn scaled_short(ticks: u64, scale: u64) -> u64 {
    let shifted = ticks << (u64::BITS - SCALE_BITS);
    let product = u128::from(shifted).saturating_mul(scale.into());
    u64::try_from(product >> u64::BITS).unwrap_or(u64::MAX)
}

fn scaled(ticks: u64, scale: u64) -> u64 {
    let product = u128::from(ticks).saturating_mul(scale.into());
    u64::try_from(product >> SCALE_BITS).unwrap_or(u64::MAX)
}

fn mul_div(a: u64, b: u64, divisor: u64) -> u64 {
    let product = u128::from(a).saturating_mul(b.into());
    let quotient = product.checked_div(divisor.into());
    quotient.and_then(|quotient| u64::try_from(quotient).ok()).unwrap_or(u64::MAX)
}
