//! Which line leads from ticks to nanoseconds, and when to draw another.
//!
//! A line starts where the one before it ended, so readings never go back. Its slope comes from a
//! long baseline, and a little more or less makes good, over the next second, what the last line
//! was off by.

use super::Times;

/// Slopes are in units of 2^-40 ns for each tick, which is 10^-12 of a usual one.
const SCALE_BITS: u32 = 40;

/// How many ticks a line may have: a second's worth, unless the counter runs at a THz.
const MOST_TICKS: u64 = 1 << SCALE_BITS;

/// How long a line is used.
const LENGTH_NS: u64 = 1_000_000_000;

/// The baseline of a slope is from one to two times as long, once that much time has passed.
const BASELINE_NS: u64 = 8_000_000_000;

/// An anchor is the best of so many tries.
const TRIES: u32 = 16;

/// More than this, and 2 parts in a million of the time between two anchors, is no noise: the counter
/// or the system's clock has changed its rate, or jumped. Baselines begin anew then.
const UNUSUAL_NS: u64 = 2_000;
const UNUSUAL_BITS: u32 = 19;

/// An error of up to so much is made good without a step.
const JOINED_NS: u64 = 50_000;

/// More than this, and one part in 2048 of the time between, and the counter is given up. System
/// clocks are steered by 500 parts in a million, so that much is nobody's fault.
const TOO_FAR_NS: u64 = 1_000_000;
const STEERED_BITS: u32 = 11;

/// What both clocks showed at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) ticks: u64,
    pub(super) system_ns: u64,
}

impl Anchor {
    /// The best of several: the counter is read before and after the system's clock, and where the
    /// two readings are nearest, the middle between them is nearest the truth. `None` for a counter
    /// that only goes back.
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

/// A straight line from ticks to nanoseconds, and how far it is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) ticks0: u64,
    pub(super) ns0: u64,
    /// Nanoseconds for each tick, in units of 2^-40.
    pub(super) scale: u64,
    /// For how many ticks the line is used; zero once the counter has been given up.
    pub(super) length_ticks: u64,
    /// What the time is ahead of the system's clock for good, since it cannot go back.
    pub(super) lead_ns: u64,
}

impl Line {
    /// The time at `ticks`, if the line is good for that. One comparison finds the end of the line
    /// and a counter that has gone back: what is before the beginning wraps to a long way past it.
    #[inline]
    pub(super) fn at(&self, ticks: u64) -> Option<u64> {
        let since = ticks.wrapping_sub(self.ticks0);
        // Some seconds after the system's clock, which is 584 years from wrapping.
        (since < self.length_ticks).then(|| self.ns0.wrapping_add(scaled_short(since, self.scale)))
    }

    /// The time at `ticks`, also just before the line begins: another core's counter may be a little
    /// behind the one that drew it.
    pub(super) fn tells(&self, ticks: u64) -> Option<u64> {
        self.at(ticks).or_else(|| self.is_just_before(ticks).then_some(self.ns0))
    }

    /// Whether `ticks` are less than a thousandth of the line's length before its beginning.
    const fn is_just_before(&self, ticks: u64) -> bool {
        let before = self.ticks0.wrapping_sub(ticks);
        // Not for a counter that was given up: that has no length.
        before <= self.length_ticks / 1_000 && self.length_ticks > 0
    }

    pub(super) const fn is_given_up(&self) -> bool {
        self.length_ticks == 0
    }

    /// Returns the time at `now` for a reader who has found the line used up or given up: what the next line begins
    /// with, so that readers beside the one who draws it agree with him. Not before the end of the line, since others
    /// may have read that.
    pub(super) fn goes_on_at(&self, now: Anchor) -> u64 {
        let right_ns = now.system_ns.saturating_add(self.lead_ns);
        let since = now.ticks.saturating_sub(self.ticks0);
        let joined_ns = self.after(since);
        // After a pause, in which nobody has read anything, the time goes straight to where it
        // should be, and so it does after a large error.
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

/// What is known of the two clocks. Only one thread at a time has it.
#[derive(Debug)]
pub(super) struct Discipline {
    line: Line,
    /// Nanoseconds for each tick, as measured.
    slope: u64,
    /// The beginning of the baseline, and of the one that will take its place.
    base: Anchor,
    next_base: Anchor,
    last: Anchor,
}

impl Discipline {
    /// Begins with two anchors; `None` if they show no rate. The first line starts at the second of
    /// them, on the system's time.
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

    /// Whether the counter has gone another way than the system's clock since the last anchor, by
    /// more than anything but a fault of it explains.
    pub(super) fn is_off(&self, now: Anchor) -> bool {
        self.astray_ns(now).is_none_or(|astray_ns| {
            let between_ns = now.system_ns.saturating_sub(self.last.system_ns);
            astray_ns > TOO_FAR_NS.saturating_add(between_ns >> STEERED_BITS)
        })
    }

    /// Gives the counter up if `now`, well measured, shows that it is off.
    pub(super) fn audit(&mut self, now: Option<Anchor>, system_ns: u64) {
        if now.is_none_or(|now| self.is_off(now)) {
            let ticks = now.map(|now| now.ticks);
            self.give_up(system_ns, ticks);
        }
    }

    /// Draws the next line, from `now` on, or gives the counter up. All readings so far were before
    /// the end of the line, so whatever comes after that does not go back.
    pub(super) fn draw(&mut self, now: Option<Anchor>, system_ns: u64) {
        let Some(now) = now.filter(|&now| !self.is_off(now)) else {
            self.give_up(system_ns, None);
            return;
        };
        self.measure(now);
        let right_ns = now.system_ns.saturating_add(self.line.lead_ns);
        let ns0 = self.line.goes_on_at(now);
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

    /// The slope up to `now`, and where the next will be measured from.
    fn measure(&mut self, now: Anchor) {
        let between_ns = now.system_ns.saturating_sub(self.last.system_ns);
        let usual_ns = UNUSUAL_NS.saturating_add(between_ns >> UNUSUAL_BITS);
        // A baseline that began with the last anchor has no rate to compare with.
        let is_new = self.base.ticks == self.last.ticks;
        if !is_new && self.astray_ns(now).is_none_or(|astray_ns| astray_ns > usual_ns) {
            // Either side of a jump, or of a change of the rate, is of no use to the other.
            (self.base, self.next_base) = (now, now);
            return;
        }
        self.slope = slope_between(self.base, now).unwrap_or(self.slope);
        if now.system_ns.saturating_sub(self.next_base.system_ns) >= BASELINE_NS {
            (self.base, self.next_base) = (self.next_base, now);
        }
    }

    /// The system's time from here on, ahead by what has been shown already: the time at `ticks` if
    /// the line goes on from there, else at most what it shows at its end.
    fn give_up(&mut self, system_ns: u64, ticks: Option<u64>) {
        let shown_ns = ticks.and_then(|ticks| self.line.at(ticks));
        let shown_ns = shown_ns.unwrap_or_else(|| self.line.end_ns());
        let lead_ns = self.line.lead_ns.max(shown_ns.saturating_sub(system_ns));
        self.line = Line { ns0: shown_ns, length_ticks: 0, lead_ns, ..self.line };
    }

    /// By how much the two clocks disagree on the time since the last anchor; `None` if the counter
    /// has gone back.
    fn astray_ns(&self, now: Anchor) -> Option<u64> {
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
    ticks.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(0).min(MOST_TICKS)
}

/// The same as [`scaled`] for less than [`MOST_TICKS`]. Shifted before it is multiplied, the product's
/// upper word is the result.
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
