//! The modes that space operations or forfeit time: two timelines in two words.
//!
//! # Layout
//!
//! ```text
//!   word    63 ............ 3 | 2      | 1     | 0
//!           dispatch          | parity | which | sealed
//!
//!   count   the operations that have started, above a base
//! ```
//!
//! The dispatch timeline is the instant at which the next operation may start. In strict, damped
//! and bounded average mode it is counted in *parts* from the configuration's origin (`N` to the
//! nanosecond at `N` permits per `P` ns, so that a permit is `P`). In burst mode it is the gate,
//! as whole nanoseconds and the fraction not yet paid. The ideal timeline follows from the count:
//! operation `k` is due `first + k * P` parts after a separate instant, which may lie as far
//! behind as time has been forfeited.
//!
//! # Who writes what, and why it suffices
//!
//! * A grant is a swap of the word, to the next dispatch instant and the other parity; it
//!   linearises there. Then the winner counts its operation, or the next thread counts it
//!   instead. Parity and count agree, or the count is one behind; while it is behind, no thread
//!   swaps the word.
//! * So while the word is unchanged, the count is one of two numbers, and the parity says which.
//!   A thread that swaps has found both to agree, and so knows the number of its operation. Its
//!   ideal instant, and so its wait, are exact under every schedule.
//! * Helping is safe for a late thread. It has seen the word twice, with the count in between. If
//!   the count has moved since, its swap fails, because counts only grow, also from one
//!   configuration to the next.
//! * Dispatch values only grow, as each swap adds a step to an instant that has come.
//! * Orderings: the word's are those of [`Word`]; the count is swapped `AcqRel` and loaded
//!   `Acquire` after the word, so it is no older than the word.

use super::super::LockFreeVerdict;
use super::super::sync::{AtomicU64, Ordering, Padded, back_off};
use super::super::word::{SPAN, Seen, Word, free_base};
use super::MIN_HORIZON_NS;
use crate::exact::{Exact, Pace};
use crate::two_timeline::{Mode, Plain, TwoTimeline};

/// The number of dispatch values that one configuration may use.
const VALUES_PER_CONFIG: u64 = 1 << 59;
/// The distance between the counts of two configurations.
const COUNT_GAP: u64 = 2;

/// Timelines in a mode that spaces operations or forfeits time.
#[derive(Debug)]
pub(super) struct Spaced {
    word: Word<13>,
    count: Padded<AtomicU64>,
}

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    origin_ns: u64,
    horizon_ns: u64,
    parts_per_ns: u64,
    parts_per_permit: u64,
    /// The ideal start of operation 0, in whole nanoseconds and parts, and the count of that
    /// operation.
    ideal_ns: u64,
    first: u64,
    count_base: u64,
    base: u64,
    /// The time that a late caller forfeits: `late >> shift`, and all beyond the bound.
    forfeit_shift: u64,
    catch_up_ns: u64,
    /// Burst mode: the step in whole nanoseconds, its fraction, and the number of fractions in
    /// two nanoseconds.
    ///
    /// That last number is zero in the other modes.
    step_ns: u64,
    step_rest: u64,
    two_ns: u64,
}

/// The state and the report of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Next {
    dispatch: u64,
    scheduled_ns: u64,
}

impl Numbers {
    const fn from_fields(fields: [u64; 13]) -> Self {
        let [origin_ns, horizon_ns, parts_per_ns, parts_per_permit, ideal_ns, ..] = fields;
        let [.., first, count_base, base, forfeit_shift, catch_up_ns, step_ns, step_rest, two_ns] =
            fields;
        Self {
            origin_ns,
            horizon_ns,
            parts_per_ns,
            parts_per_permit,
            ideal_ns,
            first,
            count_base,
            base,
            forfeit_shift,
            catch_up_ns,
            step_ns,
            step_rest,
            two_ns,
        }
    }

    const fn to_fields(self) -> [u64; 13] {
        [
            self.origin_ns,
            self.horizon_ns,
            self.parts_per_ns,
            self.parts_per_permit,
            self.ideal_ns,
            self.first,
            self.count_base,
            self.base,
            self.forfeit_shift,
            self.catch_up_ns,
            self.step_ns,
            self.step_rest,
            self.two_ns,
        ]
    }

    /// Returns the time since the origin, unless it is off the scale.
    fn since_ns(self, now_ns: u64) -> Option<u64> {
        let since_ns = now_ns.checked_sub(self.origin_ns)?;
        (since_ns <= self.horizon_ns).then_some(since_ns)
    }

    const fn ns_of(self, parts: u64) -> u64 {
        if self.parts_per_ns <= 1 { parts } else { parts.div_ceil(self.parts_per_ns) }
    }

    const fn parts_of(self, ns: u64) -> u64 {
        ns.wrapping_mul(self.parts_per_ns)
    }

    /// Returns the ideal start of the operation with this count, in parts from `ideal_ns`.
    const fn ideal(self, count: u64) -> u64 {
        let before = count.wrapping_sub(self.count_base).wrapping_mul(self.parts_per_permit);
        self.first.wrapping_add(before)
    }

    fn scheduled_ns(self, ideal: u64, now_ns: u64) -> u64 {
        let since_ns = match self.parts_per_ns {
            0 | 1 => ideal,
            parts => ideal.checked_div(parts).unwrap_or(ideal),
        };
        self.ideal_ns.wrapping_add(since_ns).min(now_ns)
    }

    const fn is_burst(self) -> bool {
        self.two_ns > 0
    }

    /// Returns the instant at which the next operation may start, in nanoseconds since the
    /// origin.
    fn opens_ns(self, dispatch: u64, count: u64) -> u64 {
        if self.is_burst() {
            // In this mode nothing is forfeited, so both instants are one: `origin_ns` is
            // `ideal_ns`.
            let gate_ns = dispatch.checked_div(self.two_ns).unwrap_or(0);
            gate_ns.max(self.ns_of(self.ideal(count)))
        } else {
            self.ns_of(dispatch)
        }
    }

    /// Returns the state behind a grant now, or the wait as an error.
    fn decide(self, dispatch: u64, count: u64, now_ns: u64) -> Option<Result<Next, u64>> {
        let since_ns = self.since_ns(now_ns)?;
        let opens_ns = self.opens_ns(dispatch, count);
        let Some(late_ns) = since_ns.checked_sub(opens_ns) else {
            return Some(Err(opens_ns.wrapping_sub(since_ns)));
        };
        let scheduled_ns = self.scheduled_ns(self.ideal(count), now_ns);
        let next = if self.is_burst() {
            self.next_gate(dispatch, since_ns)
        } else {
            let after_forfeit = self.after_forfeit(dispatch, opens_ns, self.forfeited_ns(late_ns));
            after_forfeit.wrapping_add(self.parts_per_permit)
        };
        Some(Ok(Next { dispatch: next, scheduled_ns }))
    }

    fn forfeited_ns(self, late_ns: u64) -> u64 {
        let shift = u32::try_from(self.forfeit_shift).unwrap_or(u32::MAX);
        let by_mode = late_ns.checked_shr(shift).unwrap_or(0);
        by_mode.max(late_ns.saturating_sub(self.catch_up_ns))
    }

    /// Returns the dispatch instant after the forfeit, which leaves it on a whole nanosecond.
    const fn after_forfeit(self, dispatch: u64, opens_ns: u64, forfeited_ns: u64) -> u64 {
        match forfeited_ns {
            0 => dispatch,
            _ => self.parts_of(opens_ns.wrapping_add(forfeited_ns)),
        }
    }

    /// Returns the gate of burst mode, one step behind a start.
    ///
    /// Time that has passed since the gate pays for its fraction first.
    fn next_gate(self, dispatch: u64, since_ns: u64) -> u64 {
        let gate_ns = dispatch.checked_div(self.two_ns).unwrap_or(0);
        let unpaid = dispatch.checked_rem(self.two_ns).unwrap_or(0);
        let late_ns = since_ns.saturating_sub(gate_ns);
        let unpaid = unpaid.saturating_sub(late_ns.saturating_mul(self.two_ns >> 1));
        let unpaid = unpaid.wrapping_add(self.step_rest);
        let gate_ns = since_ns.wrapping_add(self.step_ns);
        // From two nanoseconds on, the fraction carries into them.
        let (carried_ns, unpaid) = match unpaid.checked_sub(self.two_ns) {
            Some(unpaid) => (2, unpaid),
            None => (0, unpaid),
        };
        gate_ns.wrapping_add(carried_ns).wrapping_mul(self.two_ns).wrapping_add(unpaid)
    }

    /// Returns the permits that one more try could take.
    fn remaining(self, dispatch: u64, count: u64, since_ns: u64) -> u64 {
        let opens_ns = self.opens_ns(dispatch, count);
        let Some(late_ns) = since_ns.checked_sub(opens_ns) else { return 0 };
        if self.is_burst() || self.forfeit_shift == 0 {
            return 1;
        }
        // The last of the operations that are due is not late, so only the bound takes any.
        let first =
            self.after_forfeit(dispatch, opens_ns, late_ns.saturating_sub(self.catch_up_ns));
        let due = self.parts_of(since_ns).saturating_sub(first);
        due.checked_div(self.parts_per_permit).map_or(0, |more| more.saturating_add(1))
    }
}

impl Spaced {
    pub(super) fn sealed() -> Self {
        Self { word: Word::sealed(), count: Padded(AtomicU64::new(0)) }
    }

    /// Returns the word and the count that goes with it, or `None` if sealed.
    ///
    /// The pair is consistent once the word is found unchanged.
    fn pair(&self) -> Option<(Seen, u64)> {
        loop {
            let seen = self.word.load();
            if seen.is_sealed() {
                return None;
            }
            let count = self.count.0.load(Ordering::Acquire);
            if (seen.value() ^ count) & 1 == 0 {
                return Some((seen, count));
            }
            if self.word.is_still(seen) {
                self.counted(count);
            }
        }
    }

    /// Counts the operation behind `count`, unless another thread has.
    fn counted(&self, count: u64) {
        let next = count.wrapping_add(1);
        let _ = self.count.0.compare_exchange(count, next, Ordering::AcqRel, Ordering::Relaxed);
    }

    #[inline(never)]
    pub(super) fn try_acquire(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
    ) -> LockFreeVerdict {
        if permits != 1 {
            return LockFreeVerdict::Sealed;
        }
        loop {
            let Some((seen, count)) = self.pair() else { return LockFreeVerdict::Sealed };
            let now_ns = read_ns();
            let numbers = Numbers::from_fields(self.word.numbers(seen));
            let dispatch = (seen.value() >> 1).wrapping_sub(numbers.base);
            match numbers.decide(dispatch, count, now_ns) {
                None => return LockFreeVerdict::Sealed,
                Some(Ok(next)) => {
                    let value = numbers.base.wrapping_add(next.dispatch) << 1;
                    let parity = !seen.value() & 1;
                    if self.word.swap(seen, (value | parity) & SPAN) {
                        self.counted(count);
                        let Next { scheduled_ns, .. } = next;
                        return LockFreeVerdict::Granted { start_ns: now_ns, scheduled_ns };
                    }
                }
                Some(Err(early_ns)) => {
                    if self.word.is_still(seen) {
                        return LockFreeVerdict::denied(early_ns);
                    }
                }
            }
            back_off();
        }
    }

    pub(super) fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        self.read_stable(|numbers, dispatch, count| {
            match numbers.decide(dispatch, count, now_ns)? {
                _ if permits != 1 => None,
                Ok(_) => Some(0),
                Err(early_ns) => Some(early_ns),
            }
        })
    }

    pub(super) fn remaining(&self, now_ns: u64) -> Option<u64> {
        self.read_stable(|numbers, dispatch, count| {
            Some(numbers.remaining(dispatch, count, numbers.since_ns(now_ns)?))
        })
    }

    /// Evaluates `at` on a state that did not change meanwhile.
    fn read_stable(&self, at: impl Fn(Numbers, u64, u64) -> Option<u64>) -> Option<u64> {
        loop {
            let (seen, count) = self.pair()?;
            let numbers = Numbers::from_fields(self.word.numbers(seen));
            let answer = at(numbers, (seen.value() >> 1).wrapping_sub(numbers.base), count);
            if self.word.is_still(seen) {
                return answer;
            }
        }
    }

    pub(super) fn seal(&self, pace: Pace) -> Option<(u64, Plain)> {
        let last = self.word.seal()?;
        // The last grant may not have counted itself yet.
        let count = self.count.0.load(Ordering::Acquire);
        if (last.value() ^ count) & 1 != 0 {
            self.counted(count);
        }
        let count = self.count.0.load(Ordering::Acquire);
        let numbers = Numbers::from_fields(self.word.numbers(last));
        let dispatch = (last.value() >> 1).saturating_sub(numbers.base);
        let origin = Exact::at(numbers.origin_ns.into());
        let at = |parts: u64| pace.add(origin, pace.from_parts(parts.into()));
        let first = pace.from_parts(numbers.first.into());
        let first = pace.add(Exact::at(numbers.ideal_ns.into()), first);
        let started = pace.time_of(count.wrapping_sub(numbers.count_base));
        let ideal = pace.add(first, started);
        let plain = match dispatch.checked_div(numbers.two_ns) {
            None => Plain { ideal, dispatch: at(dispatch), gate_ns: 0, unpaid: 0 },
            Some(gate_ns) => Plain {
                ideal,
                dispatch: ideal,
                gate_ns: u128::from(numbers.origin_ns).saturating_add(gate_ns.into()),
                unpaid: dispatch.checked_rem(numbers.two_ns).unwrap_or(0).into(),
            },
        };
        Some((numbers.ideal_ns.min(numbers.origin_ns), plain))
    }

    pub(super) fn open(&self, policy: &TwoTimeline, pace: Pace, plain: Plain, now_ns: u64) -> bool {
        let Some(mut numbers) = numbers_for(policy, pace, plain, now_ns) else { return false };
        let Some(dispatch) = dispatch_of(numbers, pace, plain) else { return false };
        let used = self.word.load().value() >> 1;
        // With the parity below it, a dispatch instant has half the values of a word.
        numbers.base = free_base(used, VALUES_PER_CONFIG << 1, SPAN >> 1);
        // Above all earlier counts.
        let count = self.count.0.load(Ordering::Acquire).wrapping_add(COUNT_GAP);
        numbers.count_base = count;
        self.count.0.store(count, Ordering::Release);
        let value = (numbers.base.wrapping_add(dispatch) << 1) | (count & 1);
        self.word.open(numbers.to_fields(), value);
        true
    }
}

/// Returns the configuration of a policy, with its bases left open, if it has one here.
fn numbers_for(policy: &TwoTimeline, pace: Pace, plain: Plain, now_ns: u64) -> Option<Numbers> {
    let ideal_ns = u64::try_from(plain.ideal.ns).ok()?;
    let origin_ns = u64::try_from(plain.dispatch.ns).ok()?.min(now_ns);
    let (forfeit_shift, catch_up_ns) = match (policy.mode(), policy.catch_up_ns()) {
        (Mode::Strict, bound_ns) => (0, bound_ns.unwrap_or(u64::MAX)),
        (Mode::Damped { shift }, bound_ns) => (shift.get(), bound_ns.unwrap_or(u64::MAX)),
        (Mode::Average, Some(bound_ns)) => (u64::BITS, bound_ns),
        (Mode::Burst(_), None) if plain.ideal == plain.dispatch && ideal_ns == origin_ns => {
            (u64::BITS, u64::MAX)
        }
        (Mode::Average | Mode::Batched { .. } | Mode::Burst(_), _) => return None,
    };
    let (step_ns, step_rest, two_ns) = match policy.step(pace) {
        Some((step_ns, rest, parts)) => (step_ns, rest, parts.checked_mul(2)?),
        None => (0, 0, 0),
    };
    let per_ns = two_ns.max(pace.permits().get().into());
    let scale_ns = u128::from(VALUES_PER_CONFIG).checked_div(per_ns)?;
    let step = step_ns.saturating_add(pace.time_of(2).ns);
    let horizon_ns = u64::try_from(scale_ns.checked_sub(step.checked_mul(2)?)?).ok()?;
    let left_ns = horizon_ns.checked_sub(now_ns.checked_sub(origin_ns)?)?;
    (left_ns >= MIN_HORIZON_NS).then_some(Numbers {
        origin_ns,
        horizon_ns,
        parts_per_ns: pace.permits().get(),
        parts_per_permit: pace.period_ns().get(),
        ideal_ns,
        first: plain.ideal.part,
        count_base: 0,
        base: 0,
        forfeit_shift: forfeit_shift.into(),
        catch_up_ns,
        step_ns: u64::try_from(step_ns).ok()?,
        step_rest: u64::try_from(step_rest).ok()?,
        two_ns: u64::try_from(two_ns).ok()?,
    })
}

/// Returns the position of the dispatch timeline on the scale of a configuration.
fn dispatch_of(numbers: Numbers, pace: Pace, plain: Plain) -> Option<u64> {
    let origin_ns = u128::from(numbers.origin_ns);
    let dispatch = if numbers.is_burst() {
        // A gate before the origin has been paid for by the time since.
        let ahead_ns = plain.gate_ns.saturating_sub(origin_ns);
        let behind_ns = origin_ns.saturating_sub(plain.gate_ns);
        let paid = behind_ns.saturating_mul((numbers.two_ns >> 1).into());
        let unpaid = plain.unpaid.saturating_sub(paid);
        ahead_ns.checked_mul(numbers.two_ns.into())?.checked_add(unpaid)?
    } else {
        pace.to_parts(pace.sub(plain.dispatch, Exact::at(origin_ns)))
    };
    u64::try_from(dispatch).ok().filter(|&dispatch| dispatch <= VALUES_PER_CONFIG)
}
