//! The continuous token bucket in one word: the twin of [`gcra`](crate::gcra).
//!
//! # Layout
//!
//! The word's value is the TAT, counted in *parts*: at `N` permits per `P` ns (reduced) a
//! nanosecond is `N` parts and a permit is `P`, so that both are whole and nothing is ever rounded.
//!
//! ```text
//!   value = base + (TAT - origin) * N          now = base + (now_ns - origin) * N
//! ```
//!
//! `base` and `origin` are the configuration's; beside them it holds `N`, `P`, the burst in parts,
//! and the `horizon`: how far from the origin the 62 bits of a value reach. A reading beyond it
//! is the ledger's, which then opens the twin again with a new origin.
//!
//! # Who writes what, and why it suffices
//!
//! Threads swap the word from the TAT that they have judged to the TAT behind their grant. That
//! swap linearises the grant; a denial is linearised by its last look at the word. A thread that
//! stops anywhere holds up nobody.
//!
//! The ceiling needs no order of the clocks. In the order of swaps, the TAT is at least one
//! permit's time behind each grant's reading and grows by one with each grant, whatever the
//! readings of the others were; with the first and the last grant inside a window this is the
//! proof of theory 1.1.
//!
//! # Contract
//!
//! That of [`gcra`](crate::gcra), to the nanosecond. Rates whose parts are so small that 60 bits of
//! them do not last a second (a fraction with more than 10^9 in its numerator), bursts over 2^59
//! parts, `never` and `unlimited` stay with the ledger.

use super::sync::back_off;
use super::word::Word;
use super::{Answer, Owned, Spare, Twin, Twinned};
use crate::exact::{Exact, Pace};
use crate::gcra::{Gcra, State};
use crate::rate::Kind;

/// The values that one configuration may use.
const ROOM: u64 = 1 << 60;
const SHORTEST_HORIZON_NS: u64 = 1_000_000_000;

/// A token bucket that threads share without a lock.
#[derive(Debug)]
pub struct Bucket {
    word: Word<6>,
}

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    origin_ns: u64,
    horizon_ns: u64,
    parts_per_ns: u64,
    parts_per_permit: u64,
    burst: u64,
    base: u64,
}

impl Numbers {
    #[inline]
    const fn from_fields(fields: [u64; 6]) -> Self {
        let [origin_ns, horizon_ns, parts_per_ns, parts_per_permit, burst, base] = fields;
        Self { origin_ns, horizon_ns, parts_per_ns, parts_per_permit, burst, base }
    }

    const fn to_fields(self) -> [u64; 6] {
        let Self { origin_ns, horizon_ns, parts_per_ns, parts_per_permit, burst, base } = self;
        [origin_ns, horizon_ns, parts_per_ns, parts_per_permit, burst, base]
    }

    /// The clock on the scale of values, unless it is off that scale.
    ///
    /// Numbers may be torn here and in what follows: the result is thrown away then, so it may be
    /// anything but a panic.
    #[inline]
    fn at(self, now_ns: u64) -> Option<u64> {
        let since_ns = now_ns.checked_sub(self.origin_ns)?;
        let parts = since_ns.wrapping_mul(self.parts_per_ns);
        (since_ns <= self.horizon_ns).then_some(self.base.wrapping_add(parts))
    }

    /// The value behind a grant and the parts left then, or how many parts too soon it comes.
    #[inline]
    fn decide(self, value: u64, now_ns: u64, permits: u64) -> Option<Result<(u64, u64), u64>> {
        let now = self.at(now_ns)?;
        let cost = permits.checked_mul(self.parts_per_permit)?;
        let most = self.burst.checked_sub(cost)?;
        let debt = value.saturating_sub(now);
        Some(match most.checked_sub(debt) {
            Some(spare) => Ok((value.max(now).wrapping_add(cost), spare)),
            None => Err(debt.wrapping_sub(most)),
        })
    }

    #[inline]
    const fn ns_of(self, parts: u64) -> u64 {
        if self.parts_per_ns <= 1 { parts } else { parts.div_ceil(self.parts_per_ns) }
    }
}

impl Bucket {
    fn numbers_in_force(&self) -> Numbers {
        Numbers::from_fields(self.word.numbers(self.word.load()))
    }
}

impl Twin for Bucket {
    #[inline]
    fn try_acquire(&self, read_ns: impl Fn() -> u64, permits: u64) -> Answer {
        loop {
            let seen = self.word.load();
            let now_ns = read_ns();
            let numbers = Numbers::from_fields(self.word.numbers(seen));
            if seen.is_sealed() || permits == 0 {
                return Answer::Sealed;
            }
            match numbers.decide(seen.value(), now_ns, permits) {
                None => return Answer::Sealed,
                Some(Ok((value, spare))) => {
                    if self.word.swap(seen, value) {
                        let spare = Spare::in_parts(spare, numbers.parts_per_permit);
                        return Answer::Granted { start_ns: now_ns, scheduled_ns: now_ns, spare };
                    }
                }
                Some(Err(missing)) => {
                    if self.word.is_still(seen) {
                        return Answer::denied(numbers.ns_of(missing));
                    }
                }
            }
            back_off();
        }
    }

    fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        loop {
            let seen = self.word.load();
            let numbers = Numbers::from_fields(self.word.numbers(seen));
            let decision = numbers.decide(seen.value(), now_ns, permits);
            if seen.is_sealed() || permits == 0 {
                return None;
            }
            if self.word.is_still(seen) {
                return decision.map(|made| made.map_or_else(|parts| numbers.ns_of(parts), |_| 0));
            }
        }
    }

    fn remaining(&self, now_ns: u64) -> Option<u64> {
        loop {
            let seen = self.word.load();
            let numbers = Numbers::from_fields(self.word.numbers(seen));
            let now = numbers.at(now_ns);
            if seen.is_sealed() {
                return None;
            }
            if self.word.is_still(seen) {
                let free = numbers.burst.saturating_sub(seen.value().saturating_sub(now?));
                return free.checked_div(numbers.parts_per_permit);
            }
        }
    }
}

impl Owned<Gcra> for Bucket {
    fn new(_policy: &Gcra) -> Self {
        Self { word: Word::sealed() }
    }

    fn seal(&self, policy: &Gcra) -> Option<State> {
        let last = self.word.seal()?;
        let Kind::Paced(pace) = policy.rate().0 else { return None };
        let numbers = Numbers::from_fields(self.word.numbers(last));
        let ahead = pace.from_parts(last.value().saturating_sub(numbers.base).into());
        let tat = pace.add(Exact::at(numbers.origin_ns.into()), ahead);
        Some(State::with_tat(tat, pace))
    }

    fn open(&self, policy: &Gcra, state: &State, now_ns: u64) -> bool {
        let Kind::Paced(pace) = policy.rate().0 else { return false };
        let before = self.numbers_in_force();
        let on_scale = |numbers: Numbers| {
            let tat = pace.sub(state.tat(), Exact::at(numbers.origin_ns.into()));
            let ahead = u64::try_from(pace.to_parts(tat)).ok()?;
            (ahead <= ROOM).then(|| numbers.base.checked_add(ahead))?
        };
        // Half a horizon to go is enough to leave the origin where it is.
        let since_ns = now_ns.checked_sub(before.origin_ns);
        let lasts = since_ns.is_some_and(|since_ns| since_ns <= before.horizon_ns >> 1);
        let is_same = numbers_of(policy, pace)
            .is_some_and(|(burst, per_permit)| before.holds(pace, burst, per_permit));
        if lasts && is_same {
            return on_scale(before).is_some_and(|value| {
                self.word.reopen(value);
                true
            });
        }
        let fresh = numbers_of(policy, pace).and_then(|(burst, parts_per_permit)| {
            let base = self.word.free_value(1, ROOM)?;
            let parts_per_ns = pace.permits().get();
            let debt = pace.to_parts(pace.sub(state.tat(), Exact::at(now_ns.into())));
            let used = u64::try_from(debt).ok()?.checked_add(burst)?;
            let horizon_ns = ROOM.checked_sub(used)?.checked_div(parts_per_ns)?;
            let long_enough = horizon_ns >= SHORTEST_HORIZON_NS;
            long_enough.then_some(Numbers {
                origin_ns: now_ns,
                horizon_ns,
                parts_per_ns,
                parts_per_permit,
                burst,
                base,
            })
        });
        let Some((numbers, value)) = fresh.and_then(|fresh| Some((fresh, on_scale(fresh)?))) else {
            return false;
        };
        self.word.open(numbers.to_fields(), value);
        true
    }
}

impl Numbers {
    fn holds(self, pace: Pace, burst: u64, parts_per_permit: u64) -> bool {
        self.parts_per_ns == pace.permits().get()
            && self.parts_per_permit == parts_per_permit
            && self.burst == burst
    }
}

/// The burst and one permit in parts, if half the room is enough for a burst.
fn numbers_of(policy: &Gcra, pace: Pace) -> Option<(u64, u64)> {
    let parts_per_permit = pace.period_ns().get();
    let burst = policy.burst().get().checked_mul(parts_per_permit)?;
    (burst <= ROOM >> 1).then_some((burst, parts_per_permit))
}

impl Twinned for Gcra {
    type Twin = Bucket;
}
