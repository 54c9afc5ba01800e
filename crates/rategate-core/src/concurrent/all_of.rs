//! Several limits in one cell: the twin of [`all_of`](crate::all_of).
//!
//! # Layout
//!
//! ```text
//!   state    latest | 3 words | 3 words | ...      the newest start, and for each limit its state
//!   numbers  past   | 3 words | 3 words | ...      what has come back, and each limit's numbers
//! ```
//!
//! A bucket's state is its TAT with its fraction, a fixed window's its grid and its count. A try copies
//! all of it, and makes sure that the copy is whole, before it asks the very policies that the ledgers
//! ask: so the answers are theirs to the nanosecond, `remaining` and what can be given back later
//! among them.
//!
//! # Who writes what, and why it suffices
//!
//! A grant puts the states behind it in place of those it was judged by, in one swap: taken from all
//! limits, or from none. The swap linearises it. A denial linearises at the second look at the
//! word, which comes after the reading of the clock.
//!
//! The clock is clamped as in [`AllOf`]: a reading older than the newest start counts as that one, and
//! a grant says so. So windows of a grid are counted right whatever the disorder of the readings.
//!
//! # Contract
//!
//! That of [`all_of`](crate::all_of), for one to [`MOST_LIMITS`] token buckets and fixed windows. Other
//! policies, rates `never` and `unlimited`, and states beyond the end of the clock stay with the
//! ledgers. So do tries that find all slots in the hands of others, of which there are 16.

use core::num::NonZeroU64;

use super::cell::{Cell, Copied, Replaced};
use super::sync::back_off;
use super::{Answer, Concurrent, Spare, Twin};
use crate::agree;
use crate::all_of::AllOf;
use crate::any_policy::AnyPolicy;
use crate::compact::{Compact, Kind, WORDS};
use crate::error::LimitError;
use crate::policy::Taken;
use crate::refund::Past;
use crate::verdict::{Opening, Refusal};

/// The most limits that have a twin together.
pub const MOST_LIMITS: usize = 4;

/// One word, and each limit's.
const FIELDS: usize = 1 + MOST_LIMITS * WORDS;

type Words = [u64; FIELDS];

/// Several limits that threads share without a lock.
#[derive(Debug)]
pub struct Bundle {
    /// They never change. None if the limits are not such as a bundle can hold.
    kinds: [Option<Kind>; MOST_LIMITS],
    cell: Cell<FIELDS, FIELDS>,
}

/// The limits as they were at one instant.
#[derive(Clone, Copy, Debug)]
struct Moment {
    latest_ns: u64,
    past: Past,
    limits: [Compact; MOST_LIMITS],
    /// How many of these there are.
    count: usize,
}

impl Moment {
    fn limits(&self) -> &[Compact] {
        self.limits.get(..self.count).unwrap_or_default()
    }

    #[inline]
    fn opening(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        agree::opening(self.limits(), now_ns, permits)
    }

    fn remaining(&self, now_ns: u64) -> u64 {
        self.limits().iter().map(|limit| limit.remaining(now_ns)).min().unwrap_or(u64::MAX)
    }

    /// Takes `permits` from all at `now_ns`, and says what is left.
    #[inline]
    fn take(&mut self, now_ns: u64, permits: NonZeroU64) -> Spare {
        self.latest_ns = now_ns;
        let grant = Taken { from_ns: now_ns, start_ns: now_ns, permits };
        let limits = self.limits.iter_mut().take(self.count);
        // Sooner is always true as well.
        let busy_until_ns = limits.map(|limit| limit.take(grant)).min().unwrap_or(u64::MAX);
        Spare::booked(self.remaining(now_ns), busy_until_ns).with_past(self.past)
    }

    #[inline]
    fn state(&self) -> Option<Words> {
        fields(self.latest_ns, self.limits().iter().map(Compact::words))
    }

    fn numbers(&self) -> Option<Words> {
        fields(self.past.bits(), self.limits().iter().map(Compact::numbers))
    }
}

/// One word and those of each limit, in a row.
#[inline]
fn fields(first: u64, limits: impl Iterator<Item = Option<[u64; WORDS]>>) -> Option<Words> {
    let mut fields = [0; FIELDS];
    let (head, rest) = fields.split_first_mut()?;
    *head = first;
    for (place, words) in rest.chunks_exact_mut(WORDS).zip(limits) {
        place.copy_from_slice(&words?);
    }
    Some(fields)
}

/// The words of each limit.
#[inline]
fn parts(fields: &Words) -> (u64, impl Iterator<Item = [u64; WORDS]>) {
    let [first, rest @ ..] = fields;
    let parts = rest.chunks_exact(WORDS);
    (*first, parts.map(|part| core::array::from_fn(|word| part.get(word).copied().unwrap_or(0))))
}

impl Bundle {
    /// A sealed bundle, with room for `policies` if it can hold such.
    fn sealed<'a>(policies: impl Iterator<Item = &'a AnyPolicy>) -> Self {
        let mut kinds = [None; MOST_LIMITS];
        let (mut count, mut fit) = (0_usize, true);
        for policy in policies {
            let kind = Kind::of(policy);
            fit &= kind.is_some() && count < MOST_LIMITS;
            if let Some(place) = kinds.get_mut(count) {
                *place = kind;
            }
            count = count.saturating_add(1);
        }
        let used = if fit && count > 0 { count.saturating_mul(WORDS).saturating_add(1) } else { 0 };
        Self { kinds, cell: Cell::sealed(used) }
    }

    /// The limits that a copy says, which is whole.
    #[inline]
    fn moment(&self, copied: &Copied<FIELDS, FIELDS>) -> Option<Moment> {
        let (latest_ns, states) = parts(&copied.state);
        let (past, numbers) = parts(&copied.numbers);
        let kinds = self.kinds.iter().map_while(|kind| *kind);
        let limits = kinds.zip(numbers.zip(states));
        let limits =
            limits.map(|(kind, (numbers, state))| Compact::from_words(kind, numbers, state));
        moment_of(latest_ns, Past::from_bits(past), limits)
    }

    /// The limits at one instant, and the clock as it was read before that.
    #[inline]
    fn look(&self, read_ns: impl Fn() -> u64) -> Option<(Copied<FIELDS, FIELDS>, Moment, u64)> {
        let (copied, now_ns) = self.cell.read(read_ns)?;
        let moment = self.moment(&copied)?;
        Some((copied, moment, now_ns.max(moment.latest_ns)))
    }
}

#[inline]
fn moment_of(
    latest_ns: u64,
    past: Past,
    mut from: impl Iterator<Item = Option<Compact>>,
) -> Option<Moment> {
    let mut limits = [from.next()??; MOST_LIMITS];
    let mut count = 1_usize;
    for limit in from {
        *limits.get_mut(count)? = limit?;
        count = count.wrapping_add(1);
    }
    Some(Moment { latest_ns, past, limits, count })
}

impl Twin for Bundle {
    #[inline]
    fn try_acquire(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> Answer {
        let Some(permits) = NonZeroU64::new(permits) else { return Answer::Sealed };
        let mut claim = self.cell.claim();
        loop {
            let Some((copied, mut moment, now_ns)) = self.look(read_ns) else {
                return Answer::Sealed;
            };
            let opening = match moment.opening(now_ns, permits) {
                Ok(opening) if opening.opens_ns <= now_ns => opening,
                Ok(opening) => return Answer::denied(opening.opens_ns.saturating_sub(now_ns)),
                Err(Refusal::BeyondClock { wait_ns }) => return Answer::denied(wait_ns),
                Err(_) => return Answer::Sealed,
            };
            let spare = moment.take(now_ns, permits);
            let Some(state) = moment.state() else { return Answer::Sealed };
            match claim.replace(&copied, &state) {
                Replaced::Yes => {
                    let scheduled_ns = opening.scheduled_ns.unwrap_or(now_ns);
                    return Answer::Granted { start_ns: now_ns, scheduled_ns, spare };
                }
                Replaced::No => back_off(),
                Replaced::NoSlot => return Answer::Sealed,
            }
        }
    }

    fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        let permits = NonZeroU64::new(permits)?;
        let (_, moment, now_ns) = self.look(|| now_ns)?;
        match moment.opening(now_ns, permits) {
            Ok(opening) => Some(opening.opens_ns.saturating_sub(now_ns)),
            Err(Refusal::BeyondClock { wait_ns }) => Some(wait_ns),
            Err(_) => None,
        }
    }

    fn remaining(&self, now_ns: u64) -> Option<u64> {
        let (_, moment, now_ns) = self.look(|| now_ns)?;
        Some(moment.remaining(now_ns))
    }
}

impl Concurrent for AllOf {
    type Twin = Bundle;

    fn twin(&mut self, now_ns: u64) -> Bundle {
        let twin = Bundle::sealed(self.policies());
        self.open(&twin, now_ns);
        twin
    }

    fn seal(&mut self, twin: &Bundle) {
        let Some(last) = twin.cell.seal() else { return };
        if let Some(moment) = twin.moment(&last) {
            self.resume(moment.latest_ns, moment.limits().iter().map(Compact::state));
        }
    }

    fn open(&mut self, twin: &Bundle, now_ns: u64) {
        if !twin.cell.is_of_use() {
            return;
        }
        let Some(now_ns) = self.at_rest(now_ns) else { return };
        let limits = self.started().map(|(policy, state)| Compact::new(policy, state));
        let Some(moment) = moment_of(now_ns, self.past(), limits) else { return };
        if let (Some(numbers), Some(state)) = (moment.numbers(), moment.state()) {
            twin.cell.open(&numbers, &state);
        }
    }
}

impl AllOf {
    /// Puts new numbers for all the policies into force at `now_ns`, and into the twin.
    ///
    /// # Errors
    ///
    /// Those of [`reconfigure`](Self::reconfigure); nothing changes then.
    pub fn change(
        &mut self,
        twin: &Bundle,
        now_ns: u64,
        policies: &[AnyPolicy],
    ) -> Result<(), LimitError> {
        self.seal(twin);
        let changed = self.reconfigure(now_ns, policies);
        self.open(twin, now_ns);
        changed
    }
}
