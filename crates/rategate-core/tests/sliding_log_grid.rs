//! Tests of the `sliding_log` contract on grids: decisions equal those of a plain list of all
//! grants on the grid, whatever the log's form in memory.

use std::num::NonZeroU64;

use crate::common::{S, granted, log, ns, retry, start};
use fastrand::Rng;
use rategate_core::debt::{Charge, Debt};
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::ledger::Ledger;
use rategate_core::policy::{Correction, Policy, Taken};
use rategate_core::refund::Refund;
use rategate_core::sliding_log::{COMPACT_PARTS, MAX_CHARGED, MAX_PERMITS, SlidingLog, State};
use rategate_core::verdict::{Opening, Refusal};
use rategate_testkit::oracle::Grants;

/// The numbers of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Numbers {
    max: u64,
    period_ns: u64,
    guard_ns: u64,
    grid_ns: u64,
}

impl Numbers {
    fn log(self) -> SlidingLog {
        let log = log(self.max, self.period_ns);
        log.with_guard(ns(self.guard_ns)).unwrap().with_resolution(ns(self.grid_ns)).unwrap()
    }
}

/// The oracle: the list of all grants, each with the instant at which it counts as made.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plain(Numbers);

type List = Vec<(u64, u64)>;

impl Plain {
    fn counted_ns(self, start_ns: u64) -> u64 {
        start_ns.checked_next_multiple_of(self.0.grid_ns).unwrap_or(u64::MAX)
    }

    fn release_ns(self, counted_ns: u64) -> u128 {
        u128::from(counted_ns) + u128::from(self.0.period_ns) + u128::from(self.0.guard_ns)
    }

    /// Returns the grants still in the log.
    fn young(self, list: &List, at_ns: u64) -> List {
        let young =
            list.iter().filter(|(counted_ns, _)| self.release_ns(*counted_ns) > at_ns.into());
        young.copied().collect()
    }
}

fn total(list: &List) -> u64 {
    list.iter().map(|(_, permits)| permits).sum()
}

impl Plain {
    fn refund(&self, list: &mut List, refund: Refund) -> u64 {
        if refund.returned.is_none() && self.0.grid_ns > 1 {
            return 0;
        }
        let (counted_ns, mut left) = (self.counted_ns(refund.start_ns), refund.permits);
        if self.release_ns(counted_ns) <= refund.now_ns.into() {
            return 0;
        }
        for entry in list.iter_mut().filter(|entry| entry.0 == counted_ns) {
            let taken = left.min(entry.1);
            (entry.1, left) = (entry.1 - taken, left - taken);
        }
        list.retain(|(_, permits)| *permits > 0);
        refund.permits - left
    }

    fn charge(&self, list: &mut List, charge: Charge) -> u64 {
        let Charge { now_ns, permits, .. } = charge;
        *list = self.young(list, now_ns);
        let booked = permits.min(MAX_CHARGED - total(list));
        list.push((self.counted_ns(now_ns), booked));
        list.sort_unstable();
        booked
    }
}

impl Policy for Plain {
    type State = List;

    fn fresh(&self, _now_ns: u64) -> List {
        List::new()
    }

    fn opening(&self, list: &List, from_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        if permits.get() > self.0.max {
            return Err(Refusal::Exceeds(ExceedsCapacity::new(permits.get(), self.0.max)));
        }
        let young = self.young(list, from_ns);
        let (mut held, mut opens_ns) = (total(&young), u128::from(from_ns));
        for (counted_ns, count) in young {
            if held + permits.get() > self.0.max {
                held -= count;
                opens_ns = self.release_ns(counted_ns);
            }
        }
        u64::try_from(opens_ns).map(Opening::at).map_err(|_| {
            let wait_ns = u64::try_from(opens_ns - u128::from(from_ns)).unwrap();
            Refusal::BeyondClock { wait_ns }
        })
    }

    fn take(&self, list: &mut List, grant: Taken) {
        let newest_ns = list.last().map_or(0, |newest| newest.0);
        *list = self.young(list, grant.start_ns);
        list.push((self.counted_ns(grant.start_ns).max(newest_ns), grant.permits.get()));
    }

    fn remaining(&self, list: &List, now_ns: u64) -> u64 {
        self.0.max.saturating_sub(total(&self.young(list, now_ns)))
    }

    fn rebase(&self, list: &mut List, old: &Self, now_ns: u64) {
        *list = old.young(list, now_ns);
        if self.0.grid_ns != old.0.grid_ns {
            for entry in list {
                entry.0 = self.counted_ns(entry.0);
            }
        }
    }

    fn debt(&self, list: &List, now_ns: u64) -> u64 {
        total(&self.young(list, now_ns)).saturating_sub(self.0.max)
    }
}

/// One sequence of calls to the log and to the list.
struct Two {
    log: SlidingLog,
    state: State,
    plain: Plain,
    list: List,
    changes: u32,
}

impl Two {
    fn new(numbers: Numbers) -> Self {
        let (state, list) = (State::default(), List::new());
        Self { log: numbers.log(), state, plain: Plain(numbers), list, changes: 0 }
    }

    /// Returns when permits may start, which both say alike.
    fn opening(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        let opening = self.log.opening(&self.state, now_ns, permits);
        assert_eq!(opening, self.plain.opening(&self.list, now_ns, permits), "{:?}", self.plain);
        opening
    }

    fn take(&mut self, start_ns: u64, permits: NonZeroU64) {
        let taken = Taken { from_ns: start_ns, start_ns, permits };
        self.log.take(&mut self.state, taken);
        self.plain.take(&mut self.list, taken);
    }

    /// Returns permits of a grant made after so many changes. Both take back the same.
    fn refund(&mut self, now_ns: u64, grant: Kept, permits: u64) -> u64 {
        let (start_ns, granted) = (grant.start_ns, grant.permits);
        let returned = (grant.changes == self.changes).then_some(0);
        let refund = Refund { now_ns, start_ns, granted, permits, busy_until_ns: 0, returned };
        let back = self.log.correct(&mut self.state, Correction::Back(refund)).unwrap();
        assert_eq!(back, self.plain.refund(&mut self.list, refund), "{refund:?} {:?}", self.plain);
        back
    }

    fn charge(&mut self, now_ns: u64, permits: u64) {
        let charge = Charge { now_ns, permits, debt: Debt::FORGOTTEN };
        let booked = self.log.correct(&mut self.state, Correction::Charge(charge)).unwrap();
        assert_eq!(booked, self.plain.charge(&mut self.list, charge), "{:?}", self.plain);
    }

    fn reconfigure(&mut self, now_ns: u64, numbers: Numbers) {
        let (old, old_plain) = (self.log, self.plain);
        (self.log, self.plain) = (numbers.log(), Plain(numbers));
        self.log.rebase(&mut self.state, &old, now_ns);
        self.plain.rebase(&mut self.list, &old_plain, now_ns);
        self.changes += 1;
    }

    fn compare(&self, now_ns: u64) {
        let seen = (self.log.remaining(&self.state, now_ns), self.log.debt(&self.state, now_ns));
        let plain = (self.plain.remaining(&self.list, now_ns), self.plain.debt(&self.list, now_ns));
        assert_eq!(seen, plain, "{:?}", self.plain);
    }
}

/// A grant that may still come back.
#[derive(Clone, Copy)]
struct Kept {
    start_ns: u64,
    permits: u64,
    changes: u32,
}

/// Returns numbers of all sizes, on grids from a nanosecond to the period.
fn numbers(random: &mut Rng, largest: u64) -> Numbers {
    let period_ns = match random.u64(0..=3) {
        0 => random.u64(1..=60),
        1 => random.u64(50..=5_000),
        2 => random.u64(1_000..=10_000_000),
        _ => S,
    };
    let grid_ns = match random.u64(0..=3) {
        0 => 1,
        1 => period_ns,
        2 => period_ns.div_ceil(random.choice([3, 10, 100, 1_000, 65_535]).unwrap()),
        _ => random.u64(1..=period_ns),
    };
    let guard_ns = if random.u64(..3) == 0 { random.u64(0..=period_ns) } else { 0 };
    let max = match random.u64(0..=2) {
        0 => random.u64(1..=9),
        1 => random.u64(1..=largest.min(300)),
        _ => random.u64(1..=largest),
    };
    Numbers { max, period_ns, guard_ns, grid_ns }
}

/// Returns a step of a burst, of steady traffic, or of traffic with gaps beyond the window.
fn step_ns(random: &mut Rng, numbers: Numbers, mood: u64) -> u64 {
    let held_ns = numbers.period_ns + numbers.guard_ns;
    match mood {
        0 => random.choice([0, 0, 0, 1]).unwrap(),
        1 => random.u64(0..=2 * held_ns / numbers.max),
        2 => random.choice([0, numbers.grid_ns, held_ns / 20, held_ns]).unwrap(),
        3 => random.u64(0..=held_ns / 30),
        _ => random.choice([held_ns - 1, held_ns, held_ns + numbers.grid_ns, 3 * held_ns]).unwrap(),
    }
}

/// Plays one story. The grants that were kept obey the ceiling, unless numbers changed.
fn play(seed: u64, largest: u64, steps: usize) {
    let mut random = Rng::with_seed(seed);
    let mut numbers = numbers(&mut random, largest);
    // Some stories start near the end of the clock, so that some later instants lie beyond it.
    let margin_ns = 40 * (numbers.period_ns + numbers.guard_ns);
    let mut now_ns = random.choice([0, 0, 12_345, u64::MAX - margin_ns]).unwrap();
    let mut log = Two::new(numbers);
    let (mut grants, mut mood): (Vec<Kept>, u64) = (Vec::new(), 0);
    let mut kept = Some(Grants::default());
    for _ in 0..steps {
        if random.u64(..25) == 0 {
            mood = random.u64(0..=4);
        }
        now_ns = now_ns.saturating_add(step_ns(&mut random, numbers, mood));
        let small = random.u64(1..=numbers.max.min(3));
        let any = random.u64(1..=numbers.max + 1);
        let permits =
            NonZeroU64::new(random.choice([1, 1, 1, small, small, any]).unwrap()).unwrap();
        match random.u64(0..=19) {
            call @ 0..=15 => {
                // A try takes what starts at once, and a reservation waits for its start.
                if let Ok(opening) = log.opening(now_ns, permits)
                    && (opening.start_ns == now_ns || call > 12)
                {
                    now_ns = opening.start_ns;
                    log.take(now_ns, permits);
                    let (permits, changes) = (permits.get(), log.changes);
                    grants.push(Kept { start_ns: now_ns, permits, changes });
                }
            }
            16 | 17 if !grants.is_empty() => {
                // Usually a recent one: nothing is left of others.
                let at = grants.len() - random.usize(1..=6).min(grants.len());
                let part = random.choice([1, grants[at].permits]).unwrap();
                grants[at].permits -= log.refund(now_ns, grants[at], part);
                if grants[at].permits == 0 {
                    grants.remove(at);
                }
            }
            18 if random.u64(..6) == 0 => {
                kept = None;
                let other = self::numbers(&mut random, largest);
                numbers = match random.u64(0..=3) {
                    0 => Numbers { max: other.max, ..numbers },
                    1 => Numbers { guard_ns: other.guard_ns, ..numbers },
                    2 => Numbers { grid_ns: other.grid_ns.min(numbers.period_ns), ..numbers },
                    _ => other,
                };
                log.reconfigure(now_ns, numbers);
            }
            18 if random.u64(..6) == 0 => {
                kept = None;
                let charged = random.choice([permits.get(), 3 * numbers.max, 1 << 61]).unwrap();
                log.charge(now_ns, charged);
            }
            _ => {}
        }
        log.compare(now_ns);
    }
    // What came back does not count: the rest keeps the ceiling by its true
    // instants.
    if let Some(list) = &mut kept {
        for grant in &grants {
            list.add(grant.start_ns, grant.permits);
        }
        let held_ns = numbers.period_ns + numbers.guard_ns;
        assert!(list.fullest_window(held_ns).0 <= numbers.max, "seed {seed}, {numbers:?}");
    }
}

/// S3.10, S3.11, X3.6: start, wait and remainder are those of the quantised plain log for every
/// call: tries, waits, refunds, charges and changes of the numbers.
#[test]
fn decisions_are_those_of_the_quantised_plain_log() {
    (1..900).for_each(|seed| play(seed, 500, 120));
    (1_000..2_300).for_each(|seed| play(seed, 30, 120));
}

/// Logs of up to 20 000 permits agree too, in stories long enough to fill such a log.
#[test]
fn decisions_of_large_logs_are_those_of_the_quantised_plain_log() {
    (1..12).for_each(|seed| play(seed, 20_000, 3_000));
}

/// At the end of 64 bits nothing wraps: a grant that counts there stays granted there.
#[test]
fn the_end_of_the_clock_is_no_beginning() {
    for grid_ns in [1, 7, 1_000, S] {
        let log = log(3, S).with_resolution(ns(grid_ns)).unwrap();
        let mut limit = Ledger::new(log, u64::MAX - 3 * S);
        for before_ns in [3 * S, 3 * S, 1, 0] {
            let now_ns = u64::MAX - before_ns;
            assert!(granted(limit.try_acquire(now_ns, 1)).is_some(), "{grid_ns}: {before_ns}");
        }
        assert!(granted(limit.try_acquire(u64::MAX, 2)).is_none(), "{grid_ns}");
        assert_eq!(limit.remaining(u64::MAX), 1, "{grid_ns}");
        assert!(granted(limit.try_acquire(u64::MAX, 1)).is_some(), "{grid_ns}");
        assert!(granted(limit.try_acquire(u64::MAX, 1)).is_none(), "{grid_ns}");
        assert!(granted(limit.try_acquire(0, 1)).is_none(), "a clock that goes back");
    }
    // The whole clock as the window, and one gap as wide as it.
    let log = log(3, u64::MAX);
    let mut limit = Ledger::new(log, 0);
    for now_ns in [0, u64::MAX - 1, u64::MAX - 1] {
        assert!(granted(limit.try_acquire(now_ns, 1)).is_some(), "at {now_ns}");
    }
    assert_eq!(retry(limit.try_acquire(u64::MAX - 1, 1)), 1);
    assert_eq!(start(limit.try_acquire(u64::MAX, 1)), u64::MAX);
    assert!(granted(limit.try_acquire(u64::MAX, 1)).is_none());
    // A gap of one bit more than fits: skipped in two steps.
    let mut state = State::default();
    for start_ns in [0, u64::MAX] {
        let permits = NonZeroU64::MIN;
        log.take(&mut state, Taken { from_ns: start_ns, start_ns, permits });
    }
    assert_eq!(log.remaining(&state, u64::MAX), 2);
}

/// Invalid grids are refused.
#[test]
fn grids_are_checked_once() {
    let short = log(MAX_PERMITS, 999).compact();
    assert_eq!(short.resolution_ns(), 1, "no finer than that");
    let log = log(1, S);
    for grid_ns in [0, S + 1] {
        assert_eq!(log.with_resolution(ns(grid_ns)), Err(LimitError::Resolution));
        assert_eq!(log.with_parts(grid_ns), Err(LimitError::Resolution));
    }
    assert!(log.with_resolution(ns(S)).is_ok());
    assert_eq!((log.resolution_ns(), log.compact().resolution_ns()), (1, S / COMPACT_PARTS));
    assert_eq!(log.with_parts(65_535).unwrap().resolution_ns(), 15_259);
}
