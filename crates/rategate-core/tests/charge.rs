//! Tests of charges: what was used is booked whether it fits or not, and a debt ends exactly when
//! it should.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::with_lock_free::{Open, WithLockFree};
use crate::common::{S, granted, rate, retry};
use fastrand::Rng;
use rategate_core::all_of::AllOf;
use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::{Charged, Debt};
use rategate_core::error::CountsInFlight;
use rategate_core::fixed_window::{self, Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::packed::Packed;
use rategate_core::sliding_log::{self, SlidingLog};
use rategate_core::verdict::{Denial, Verdict};

/// The contract in plain numbers: what is left, which is below zero in debt.
trait Plain {
    /// Returns what is left at `now_ns`, before which no event may lie any more.
    fn left(&mut self, now_ns: u64) -> i128;
    fn spend(&mut self, now_ns: u64, permits: u64);

    fn debt(&mut self, now_ns: u64) -> u64 {
        u64::try_from(-self.left(now_ns)).unwrap_or(0)
    }

    fn remaining(&mut self, now_ns: u64) -> u64 {
        u64::try_from(self.left(now_ns)).unwrap_or(0)
    }
}

/// A bucket as a level in parts of a permit, which rises with time.
struct Level {
    left: i128,
    full: i128,
    parts_per_ns: i128,
    parts_per_permit: i128,
    at_ns: u64,
}

impl Level {
    fn new(permits: u64, period_ns: u64, burst: u64) -> Self {
        let full = i128::from(burst) * i128::from(period_ns);
        let (parts_per_ns, parts_per_permit) = (permits.into(), period_ns.into());
        Self { left: full, full, parts_per_ns, parts_per_permit, at_ns: 0 }
    }
}

impl Plain for Level {
    fn left(&mut self, now_ns: u64) -> i128 {
        let passed_ns = i128::from(now_ns - self.at_ns);
        self.left = self.full.min(self.left + passed_ns * self.parts_per_ns);
        self.at_ns = now_ns;
        self.left.div_euclid(self.parts_per_permit)
    }

    fn spend(&mut self, now_ns: u64, permits: u64) {
        self.left(now_ns);
        self.left -= i128::from(permits) * self.parts_per_permit;
    }
}

/// A window or a log as the list of all that was ever spent.
struct Events {
    permits: i128,
    period_ns: u64,
    resolution_ns: u64,
    kind: Kind,
    spent: Vec<(u64, i128)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Window,
    CarryingWindow,
    Log,
}

impl Plain for Events {
    fn left(&mut self, now_ns: u64) -> i128 {
        let window = now_ns / self.period_ns;
        let sum = |is_in: &dyn Fn(u64) -> bool| -> i128 {
            let spent = self.spent.iter().filter(|(at_ns, _)| is_in(*at_ns));
            spent.map(|(_, permits)| permits).sum()
        };
        let used = match self.kind {
            Kind::Window => sum(&|at_ns| at_ns / self.period_ns == window),
            Kind::CarryingWindow => {
                let owed = |owed: i128, w: u64| {
                    let used = owed + sum(&|at_ns| at_ns / self.period_ns == w);
                    if w == window { used } else { (used - self.permits).max(0) }
                };
                (0..=window).fold(0, owed)
            }
            Kind::Log => {
                sum(&|at_ns| at_ns.next_multiple_of(self.resolution_ns) + self.period_ns > now_ns)
            }
        };
        self.permits - used
    }

    fn spend(&mut self, now_ns: u64, permits: u64) {
        self.spent.push((now_ns, permits.into()));
    }
}

/// A limit with its state kept elsewhere, packed into a part of a word wherever that is possible.
#[derive(Clone)]
struct InTable {
    limit: Member,
    packed: u32,
}

impl InTable {
    /// Returns the limit as a part of a word, if there is one, and what that is decided by.
    fn packed(&self, now_ns: u64) -> Option<(Packed, u64)> {
        self.limit.policy().packed().zip(self.limit.pack(now_ns))
    }

    fn unpack(&mut self, value: u64, now_ns: u64) {
        self.packed += 1;
        self.limit = Member::unpack(self.limit.policy(), value, now_ns).unwrap();
    }

    fn charge(&mut self, now_ns: u64, permits: u64, debt: Debt) -> Charged {
        if let Some((numbers, value)) = self.packed(now_ns)
            && let Some((value, charged)) = numbers.charge(value, now_ns, permits, debt)
        {
            assert_eq!(numbers.debt(value, now_ns), charged.debt);
            self.unpack(value, now_ns);
            return charged;
        }
        self.with(|limit| limit.charge(now_ns, permits, debt)).unwrap()
    }

    fn try_acquire(&mut self, now_ns: u64, permits: u64) -> Verdict {
        let packed = self.packed(now_ns);
        let decided = packed.and_then(|(numbers, value)| numbers.decide(value, now_ns, permits));
        match decided {
            None => self.with(|limit| limit.try_acquire(now_ns, permits)).unwrap(),
            Some(Err(wait_ns)) => Verdict::Denied(Denial { retry_after_ns: Some(wait_ns) }),
            Some(Ok(value)) => {
                self.unpack(value, now_ns);
                self.with(|limit| limit.try_acquire(now_ns, 0)).unwrap()
            }
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut limit = Ledger::with_state(self.limit.clone(), 0);
        let done = act(&mut limit);
        self.limit = limit.limits().only().unwrap().clone();
        done
    }
}

/// One story of a limit in all its forms beside the contract.
struct Story {
    ledger: Ledger,
    lock_free: WithLockFree,
    table: InTable,
    debt: Debt,
    max: u64,
}

/// The tally of a story.
#[derive(Debug, Default)]
struct Seen {
    denied_in_debt: u32,
    by_lock_free: u64,
    packed: u32,
}

impl Story {
    fn new(policy: impl Into<AnyPolicy>, debt: Debt, max: u64) -> Self {
        let policy = policy.into();
        let table = InTable { limit: Member::fresh(policy, 0), packed: 0 };
        let lock_free = WithLockFree::new(policy.into(), 0);
        Self { ledger: Ledger::new(policy, 0), lock_free, table, debt, max }
    }

    fn play(mut self, plain: &mut impl Plain, random: &mut Rng, step_ns: u64) -> Seen {
        let (mut now_ns, mut seen) = (0, Seen::default());
        for _ in 0..120 {
            now_ns += random.u64(0..=step_ns) * random.u64(0..=1);
            if random.u64(..3) == 0 {
                self.charge(plain, now_ns, random.u64(0..=3 * self.max));
            } else {
                let is_denied = self.attempt(plain, now_ns, random.u64(1..=self.max));
                seen.denied_in_debt += u32::from(is_denied && plain.debt(now_ns) > 0);
            }
            let expected = (plain.remaining(now_ns), plain.debt(now_ns));
            assert_eq!((self.ledger.remaining(now_ns), self.ledger.debt(now_ns)), expected);
            assert_eq!((self.lock_free.remaining(now_ns), self.lock_free.debt(now_ns)), expected);
            let table = self.table.with(|limit| (limit.remaining(now_ns), limit.debt(now_ns)));
            assert_eq!(table, expected);
            self.compare_end(now_ns);
        }
        seen.by_lock_free = self.lock_free.lock_free_count;
        seen.packed = self.table.packed;
        seen
    }

    /// Checks when the debt ends: not a nanosecond sooner.
    fn compare_end(&mut self, now_ns: u64) {
        let left_ns = self.ledger.debt_ends_in_ns(now_ns).unwrap();
        assert_eq!(self.table.with(|limit| limit.debt_ends_in_ns(now_ns)), Some(left_ns));
        if let Some((numbers, value)) = self.table.packed(now_ns) {
            assert_eq!(numbers.debt_ends_in_ns(value, now_ns), left_ns);
        }
        assert_eq!(self.ledger.debt(now_ns + left_ns), 0);
        assert!(left_ns == 0 || self.ledger.debt(now_ns + left_ns - 1) > 0, "{left_ns}");
    }

    fn charge(&mut self, plain: &mut impl Plain, now_ns: u64, permits: u64) {
        plain.spend(now_ns, permits);
        let expected = Charged { booked: permits, forgiven: 0, debt: plain.debt(now_ns) };
        assert_eq!(self.ledger.charge(now_ns, permits, self.debt), Ok(expected), "at {now_ns}");
        assert_eq!(self.lock_free.charge(now_ns, permits, self.debt), Ok(expected));
        assert_eq!(self.table.charge(now_ns, permits, self.debt), expected);
    }

    /// Tries, and checks the wait of a denial to the nanosecond. Returns `true` for a denial.
    fn attempt(&mut self, plain: &mut impl Plain, now_ns: u64, permits: u64) -> bool {
        let fits = plain.left(now_ns) >= i128::from(permits);
        let before = self.ledger.clone();
        let answer = self.ledger.try_acquire(now_ns, permits);
        assert_eq!(granted(answer).is_some(), fits, "{permits} at {now_ns}: {before:?}");
        let lock_free = self.lock_free.try_acquire(now_ns, permits);
        assert_eq!(granted(lock_free).is_some(), fits);
        assert_eq!(matches!(self.table.try_acquire(now_ns, permits), Verdict::Granted(_)), fits);
        if fits {
            plain.spend(now_ns, permits);
            return false;
        }
        let wait_ns = retry(answer);
        assert_eq!(retry(lock_free), wait_ns);
        assert_eq!(retry(Ok(self.table.try_acquire(now_ns, permits))), wait_ns);
        for (after_ns, passes) in [(wait_ns, true), (wait_ns - 1, false)] {
            let mut later = before.clone();
            let answer = later.try_acquire(now_ns + after_ns, permits);
            assert_eq!(granted(answer).is_some(), passes, "{after_ns} after {now_ns}");
            let at_ns = now_ns + after_ns;
            let mut later = self.table.clone();
            let answer = later.try_acquire(at_ns, permits);
            assert_eq!(matches!(answer, Verdict::Granted(_)), passes);
        }
        true
    }
}

fn seen_by(seeds: u64, mut play: impl FnMut(&mut Rng) -> Seen) -> Seen {
    let mut all = Seen::default();
    for seed in 0..seeds {
        let seen = play(&mut Rng::with_seed(seed));
        all.denied_in_debt += seen.denied_in_debt;
        all.by_lock_free += seen.by_lock_free;
        all.packed += seen.packed;
    }
    assert!(u64::from(all.denied_in_debt) > 10 * seeds, "{all:?}");
    all
}

#[test]
fn a_bucket_in_debt_is_a_level_below_zero() {
    let seen = seen_by(2_000, |random| {
        let (permits, period_ns) = (random.u64(1..=9), random.u64(1..=60));
        let burst = random.u64(1..=6);
        let policy = Gcra::new(rate(&format!("{permits}/{period_ns}ns")), burst).unwrap();
        let mut plain = Level::new(permits, period_ns, burst);
        let step_ns = random.choice([2, 9, 40]).unwrap() * period_ns;
        let debt = random.choice([Debt::FORGOTTEN, Debt::CARRIED]).unwrap();
        Story::new(policy, debt, burst).play(&mut plain, random, step_ns)
    });
    assert!(seen.by_lock_free > 10_000 && seen.packed > 10_000, "{seen:?}");
}

#[test]
fn a_window_in_debt_is_a_sum_of_events() {
    for kind in [Kind::Window, Kind::CarryingWindow] {
        let seen = seen_by(1_500, |random| {
            let (permits, period_ns) = (random.u64(1..=20), random.u64(1..=60));
            let policy = FixedWindow::new(permits, Duration::from_nanos(period_ns), Anchor::Epoch);
            let debt = if kind == Kind::Window { Debt::FORGOTTEN } else { Debt::CARRIED };
            let (resolution_ns, spent) = (1, Vec::new());
            let mut plain =
                Events { permits: permits.into(), period_ns, resolution_ns, kind, spent };
            let step_ns = random.choice([1, 9, 40]).unwrap();
            Story::new(policy, debt, permits).play(&mut plain, random, step_ns)
        });
        let may_pack = kind == Kind::Window;
        assert!(seen.packed > if may_pack { 10_000 } else { 0 }, "{seen:?}");
    }
}

#[test]
fn a_log_in_debt_is_a_sum_of_events() {
    seen_by(3_000, |random| {
        let (permits, period_ns) = (random.u64(1..=20), random.u64(1..=60));
        let resolution_ns = random.u64(1..=period_ns);
        let (kind, spent) = (Kind::Log, Vec::new());
        let mut plain = Events { permits: permits.into(), period_ns, resolution_ns, kind, spent };
        let step_ns = random.choice([1, 9, 40]).unwrap();
        let policy = SlidingLog::new(permits, Duration::from_nanos(period_ns))
            .with_resolution(Duration::from_nanos(resolution_ns))
            .unwrap();
        Story::new(policy, Debt::FORGOTTEN, permits).play(&mut plain, random, step_ns)
    });
}

/// Full is no debt, and one permit more is one.
#[test]
fn full_is_no_debt() {
    let window = FixedWindow::new(5, Duration::from_secs(1), Anchor::Epoch);
    let log = SlidingLog::new(5, Duration::from_secs(1));
    let bucket = Gcra::per_second(5).burst(5);
    for policy in [AnyPolicy::from(window), log.into(), bucket.into()] {
        let mut limit = Ledger::new(policy, 0);
        let full = Charged { booked: 5, forgiven: 0, debt: 0 };
        assert_eq!(limit.charge(0, 5, Debt::FORGOTTEN), Ok(full));
        assert_eq!((limit.remaining(0), limit.debt(0)), (0, 0));
        let over = Charged { booked: 1, forgiven: 0, debt: 1 };
        assert_eq!(limit.charge(0, 1, Debt::FORGOTTEN), Ok(over));
        assert_eq!((limit.remaining(0), limit.debt(0)), (0, 1));
    }
}

/// A bound on debts forgives what exceeds it, and counts that.
#[test]
fn a_bounded_debt_forgives_the_rest() {
    let bucket = Gcra::per_second(10).burst(5);
    let window = FixedWindow::new(10, Duration::from_secs(1), Anchor::Epoch);
    let debt = Debt::CARRIED.at_most(Duration::from_secs(3));
    for (policy, fits) in [(AnyPolicy::from(bucket), 35), (window.into(), 40)] {
        for forms in [false, true] {
            let mut limit = WithLockFree::new(policy.into(), 0);
            if forms {
                // A promise keeps the ledger in charge.
                let _ = limit.reserve(0, 1, None).unwrap();
            }
            let taken = u64::from(forms);
            let charged = limit.charge(0, 1_000, debt).unwrap();
            let booked = fits - taken;
            let expected = Charged { booked, forgiven: 1_000 - booked, debt: 30 };
            assert_eq!(charged, expected, "{policy:?}");
            assert_eq!(limit.charge(0, 1, debt).unwrap().forgiven, 1);
            let half = limit.charge(S / 2, 100, debt).unwrap();
            assert_eq!(half.booked, if fits == 35 { 5 } else { 0 });
        }
    }
}

/// The largest charges stay within the state, and the rest is counted as forgiven.
#[test]
fn a_charge_of_everything_saturates() {
    let period = Duration::from_secs(1);
    let policies: [(AnyPolicy, u64); 3] = [
        (FixedWindow::new(5, period, Anchor::Epoch).into(), fixed_window::MAX_CHARGED),
        (SlidingLog::new(5, period).into(), sliding_log::MAX_CHARGED),
        (Gcra::per_second(5).burst(5).into(), 5 * (u64::MAX / S) + 5),
    ];
    for (policy, max) in policies {
        let mut limit = WithLockFree::new(policy.into(), 0);
        let first = limit.charge(0, u64::MAX, Debt::FORGOTTEN).unwrap();
        assert!(first.booked.abs_diff(max) <= 5, "{policy:?}: {first:?}");
        assert_eq!(first.booked + first.forgiven, u64::MAX);
        assert_eq!(first.debt, first.booked - 5);
        let again = limit.charge(0, u64::MAX, Debt::FORGOTTEN).unwrap();
        assert!(again.booked <= 1, "{policy:?}: {again:?}");
        assert!(granted(limit.try_acquire(0, 1)).is_none());
    }
}

/// Nothing is charged to operations in flight, and a set leaves such limits out.
#[test]
fn operations_in_flight_are_not_charged() {
    let mut ovens = Ledger::new(Concurrency::new(2), 0);
    assert_eq!(ovens.charge(0, 1, Debt::FORGOTTEN), Err(CountsInFlight));
    let both = AllOf::default().and(Concurrency::new(2)).and(Gcra::per_second(1).burst(3));
    let mut both = Ledger::new(both, 0);
    let charged = both.charge(0, 4, Debt::FORGOTTEN).unwrap();
    assert_eq!(charged, Charged { booked: 4, forgiven: 0, debt: 1 });
    assert_eq!(both.debt(0), 1);
    assert_eq!(retry(both.try_acquire(0, 1)), 2 * S);
    both.release(0, u64::MAX);
    assert!(granted(both.try_acquire(2 * S, 1)).is_some());
}

/// Of several limits each is charged in its own way, and what is promised afterwards can still be
/// cancelled in all of them.
#[test]
fn several_limits_are_charged_each_in_its_own_way() {
    let log = SlidingLog::new(2, Duration::from_nanos(100));
    let window = FixedWindow::new(3, Duration::from_micros(1), Anchor::Epoch);
    let mut both = Ledger::new(AllOf::default().and(log).and(window), 0);
    // The log owes two parts, as promises; the window holds the number.
    let charged = both.charge(0, 4, Debt::CARRIED).unwrap();
    assert_eq!(charged, Charged { booked: 4, forgiven: 0, debt: 2 });
    let first = granted(both.reserve(0, 1, None)).unwrap();
    assert_eq!(first.start_ns, 1_000);
    let second = granted(both.reserve(0, 1, None)).unwrap();
    assert!(both.cancel(0, second.ticket));
    let again = granted(both.reserve(0, 1, None)).unwrap();
    assert_eq!(again.start_ns, second.start_ns);
    assert!(both.cancel(0, again.ticket) && both.cancel(0, first.ticket));
    assert_eq!(both.peek(0, 1), Ok(Some(1_000)));
}

/// Where no state can hold a debt that is to be carried, it is a row of promises: the schedule is
/// that of a caller who requests as much.
#[test]
fn a_log_carries_a_debt_as_promises() {
    let log = SlidingLog::new(10, Duration::from_nanos(S));
    let (mut debtor, mut caller) = (Ledger::new(log, 0), Ledger::new(log, 0));
    let charged = debtor.charge(0, 25, Debt::CARRIED).unwrap();
    assert_eq!((charged.booked, charged.forgiven), (25, 0));
    for _ in 0..25 {
        assert!(caller.promise(0, NonZeroU64::MIN).is_ok());
    }
    assert_eq!(debtor.peek(0, 5), caller.peek(0, 5));
    assert_eq!(debtor.peek(0, 5), Ok(Some(2 * S)));
    assert_eq!(debtor.peek(0, 6), Ok(Some(3 * S)));
}

/// A debt that is carried stays so whatever is charged on top, and the next one ends in its own
/// way.
#[test]
fn a_debt_ends_as_it_began() {
    let window = FixedWindow::new(10, Duration::from_nanos(100), Anchor::Epoch);
    let mut limit = Ledger::new(window, 0);
    assert_eq!(limit.charge(0, 25, Debt::CARRIED).unwrap().debt, 15);
    assert_eq!(limit.charge(10, 10, Debt::FORGOTTEN).unwrap().debt, 25);
    assert_eq!((limit.debt(100), limit.debt(200), limit.debt(300)), (15, 5, 0));
    assert_eq!(limit.charge(300, 20, Debt::FORGOTTEN).unwrap().debt, 15);
    assert_eq!(limit.debt(400), 0);
    assert_eq!(limit.remaining(400), 10);
}
