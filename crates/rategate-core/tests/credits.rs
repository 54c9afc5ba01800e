//! Tests of credits: what a window leaves to the next, against the list of all that was granted.

use std::time::Duration;

use crate::charge::{Plain, Story, seen_by};
use crate::common::{S, granted, retry, start};
use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrent::HasLockFree;
use rategate_core::debt::Debt;
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::portable::{Numbers, RestoreContext, WordsError, numbers_of, restore};
use rategate_testkit::oracle::Grants;

fn window(permits: u64, credits: u64, period_ns: u64) -> FixedWindow {
    let window = FixedWindow::new(permits, Duration::from_nanos(period_ns), Anchor::Epoch);
    window.with_credits(credits).unwrap()
}

/// Bound, As much as that, Retry: a request passes exactly if no row of windows that ends now has
/// more than its permits and the credits.
#[test]
fn every_row_of_windows_is_bounded_and_nothing_less_is() {
    let (mut denials, mut over_borders) = (0, 0);
    for seed in 0..400 {
        let mut random = Rng::with_seed(seed);
        let (permits, period_ns) = (random.u64(1..=9), random.u64(1..=50));
        let credits = random.u64(0..=permits);
        let mut limit = Ledger::new(window(permits, credits, period_ns), 0);
        let mut grants = Grants::default();
        let left = |grants: &Grants, at_ns: u64| {
            let number = |at_ns| at_ns / period_ns;
            grants.left_in_rows(number(at_ns), number, permits, credits)
        };
        let mut now_ns = 0;
        for call in 0..80 {
            now_ns += random.choice([0, 0, 0, 1, 7, period_ns, 3 * period_ns]).unwrap();
            let context = format!("seed {seed}, call {call} at {now_ns}");
            assert_eq!(i128::from(limit.remaining(now_ns)), left(&grants, now_ns), "{context}");
            let requested = random.u64(1..=permits + credits);
            let mut opens_ns = now_ns;
            while left(&grants, opens_ns) < requested.into() {
                opens_ns = (opens_ns / period_ns + 1) * period_ns;
            }
            let answer = limit.try_acquire(now_ns, requested);
            if opens_ns == now_ns {
                assert_eq!(start(answer), now_ns, "{context}");
                grants.add(now_ns, requested);
            } else {
                assert_eq!(retry(answer), opens_ns - now_ns, "{context}");
                denials += 1;
                over_borders += u64::from(opens_ns - now_ns > period_ns);
            }
            // Fresh: nothing tells a limit that has recovered from one that was never used.
            let is_full = left(&grants, now_ns) == i128::from(permits + credits);
            assert_eq!(limit.is_as_fresh(now_ns), is_full, "{context}");
        }
        let any_phase = |window_ns: u128| {
            u128::from(permits) * (window_ns.div_ceil(period_ns.into()) + 1) + u128::from(credits)
        };
        grants.assert_ceiling(&format!("seed {seed}"), any_phase);
    }
    assert!(denials > 5_000 && over_borders > 500, "{denials} {over_borders}");
}

/// The sum of all that was used, window by window: each leaves up to the credits to the next.
struct Leaving {
    permits: i128,
    credits: i128,
    period_ns: u64,
    is_carried: bool,
    used: Vec<(u64, i128)>,
}

impl Plain for Leaving {
    fn left(&mut self, now_ns: u64) -> i128 {
        let (mut left, now) = (0, now_ns / self.period_ns);
        let mut credit = self.credits;
        for window in 0..=now {
            let used = self.used.iter().filter(|(at_ns, _)| at_ns / self.period_ns == window);
            left = self.permits + credit - used.map(|(_, permits)| permits).sum::<i128>();
            credit = left.min(self.credits);
            if !self.is_carried {
                credit = credit.max(0);
            }
        }
        left
    }

    fn spend(&mut self, now_ns: u64, permits: u64) {
        self.used.push((now_ns, permits.into()));
    }
}

/// Charge: in all forms a debt is what exceeds the permits and the credits, and ends in its way.
#[test]
fn a_debt_begins_behind_the_credits() {
    for is_carried in [false, true] {
        let seen = seen_by(1_000, |random| {
            let (permits, period_ns) = (random.u64(1..=20), random.u64(1..=60));
            let credits = random.u64(0..=permits);
            let policy = window(permits, credits, period_ns);
            let debt = if is_carried { Debt::CARRIED } else { Debt::FORGOTTEN };
            let used = Vec::new();
            let (n, c) = (permits.into(), credits.into());
            let mut plain = Leaving { permits: n, credits: c, period_ns, is_carried, used };
            let step_ns = random.choice([1, 9, 40]).unwrap();
            let story = Story::new(AnyPolicy::from(policy), debt, permits + credits);
            story.play(&mut plain, random, step_ns)
        });
        assert!(seen.packed > if is_carried { 0 } else { 1_000 }, "{seen:?}");
    }
}

/// A bound on a carried debt is a time, at the rate of the windows: credits do not lengthen it.
#[test]
fn the_bound_on_a_debt_is_counted_behind_the_credits() {
    let mut limit = Ledger::new(window(10, 4, 100), 0);
    let charged = limit.charge(0, 40, Debt::CARRIED.at_most(Duration::from_nanos(150))).unwrap();
    assert_eq!((charged.booked, charged.forgiven, charged.debt), (29, 11, 15));
    assert_eq!(limit.debt_ends_in_ns(0), Some(200));
    assert_eq!(retry(limit.try_acquire(0, 10)), 300);
    // A debt that has been paid is over although credits are in use: the next ends in its own way.
    let mut limit = Ledger::new(window(10, 4, 100), 0);
    assert_eq!(limit.charge(0, 33, Debt::CARRIED).unwrap().debt, 19);
    assert_eq!(limit.charge(200, 20, Debt::FORGOTTEN).unwrap().debt, 19);
    assert_eq!((limit.debt(300), limit.remaining(300)), (0, 10));
    let mut limit = Ledger::new(window(10, 4, 100), 0);
    assert_eq!(limit.charge(0, 40, Debt::FORGOTTEN).unwrap().debt, 26);
    assert_eq!((limit.remaining(99), limit.remaining(100), limit.remaining(200)), (0, 10, 14));
    assert_eq!(retry(limit.try_acquire(0, 11)), 200, "a forgotten debt leaves the credits used");
}

/// Refund: within the window, whatever the permits were taken from; later nothing comes back.
#[test]
fn credits_come_back_with_their_grant() {
    let mut limit = Ledger::new(window(10, 4, 100), 0);
    let grant = granted(limit.try_acquire(10, 13)).unwrap();
    assert_eq!((limit.refund(20, &grant, 5), limit.remaining(20)), (5, 6));
    let grant = granted(limit.try_acquire(30, 6)).unwrap();
    assert_eq!((limit.refund(100, &grant, 6), limit.remaining(100)), (0, 10));
    assert_eq!(limit.credit(110, 9), 4, "what is used now are the credits");
    assert_eq!(limit.remaining(110), 14);
    // Behind a debt that has been forgotten, too.
    limit.charge(120, 50, Debt::FORGOTTEN).unwrap();
    assert_eq!((limit.remaining(200), limit.credit(210, 3), limit.remaining(210)), (10, 3, 13));
}

/// Change: permits in use stay in use under other credits, and none are lost at a border.
#[test]
fn a_change_of_the_credits_keeps_the_count() {
    let mut limit = Ledger::new(window(10, 4, 100), 0);
    assert!(granted(limit.try_acquire(10, 12)).is_some());
    limit.reconfigure(20, window(10, 6, 100));
    assert_eq!((limit.remaining(20), limit.remaining(100)), (4, 14));
    limit.reconfigure(30, window(10, 0, 100));
    assert_eq!((limit.remaining(30), limit.debt(30), limit.remaining(100)), (0, 2, 10));
    limit.reconfigure(40, window(10, 4, 100));
    assert_eq!((limit.remaining(40), limit.remaining(100), limit.remaining(200)), (2, 12, 14));
    limit.reconfigure(150, window(20, 4, 50));
    assert_eq!((limit.remaining(150), limit.remaining(200)), (22, 24));
    // From another grid, too, and into one.
    let first = FixedWindow::new(10, Duration::from_nanos(100), Anchor::FirstCall);
    assert!(granted(limit.try_acquire(160, 22)).is_some());
    limit.reconfigure(170, first.with_credits(9).unwrap());
    // What exceeds the new capacity is forgotten at the border.
    assert_eq!((limit.debt(170), limit.remaining(170)), (5, 0));
    assert_eq!((retry(limit.try_acquire(170, 10)), limit.remaining(270)), (100, 10));
    assert_eq!(retry(limit.try_acquire(170, 11)), 200);
}

/// Saved: on a young clock the windows before its zero have paid as well.
#[test]
fn credits_in_use_are_restored() {
    for anchor in [Anchor::Epoch, Anchor::FirstCall] {
        let policy = FixedWindow::new(10, Duration::from_nanos(100), anchor);
        let policy = policy.with_credits(8).unwrap();
        let mut limit = Ledger::new(policy, 1_000);
        assert!(granted(limit.try_acquire(1_000, 17)).is_some());
        let saved = limit.save(1_010);
        let at = |now_ns, elapsed_ns| {
            restore(&policy, &saved, RestoreContext { now_ns, elapsed_ns }).unwrap()
        };
        for (elapsed_ns, left) in [(0, 1), (89, 1), (90, 11), (189, 11), (190, 18), (90_000, 18)] {
            assert_eq!(at(9_010 + elapsed_ns, elapsed_ns).remaining(9_010 + elapsed_ns), left);
        }
        // The grid of a first call moves with its windows. The clock's own does not, and a window
        // that lies across a border of it counts in the later one.
        if anchor == Anchor::FirstCall {
            for (elapsed_ns, left) in [(89, 1), (90, 11), (189, 11), (190, 18)] {
                assert_eq!(at(3, elapsed_ns).remaining(3), left, "{elapsed_ns} later");
            }
        }
        assert!(at(3, 90).remaining(3) <= 11 && at(3, 1_000).remaining(3) == 18);
    }
}

/// Words: windows without credits have the words that they had, and credits a tag of their own.
#[test]
fn words_tell_of_credits() {
    let words = |policy: &FixedWindow| {
        let Numbers { tag, words } = numbers_of(policy);
        (tag, words)
    };
    assert_eq!(words(&window(10, 0, 100)), (3, vec![10, 100, 0]));
    assert_eq!(words(&window(10, 4, 100)), (11, vec![10, 100, 0, 4]));
    let read = |tag, words: &[u64]| {
        let numbers = Numbers { tag, words: words.to_vec() };
        (numbers.policy::<FixedWindow>(), numbers.policy::<AnyPolicy>())
    };
    let (own, any) = read(11, &[10, 100, 0, 4]);
    assert_eq!((own, any), (Ok(window(10, 4, 100)), Ok(window(10, 4, 100).into())));
    assert_eq!(read(3, &[10, 100, 0]).0, Ok(window(10, 0, 100)));
    let too_many = WordsError::Limit(LimitError::TooManyCredits { max: 10 });
    assert_eq!(read(11, &[10, 100, 0, 11]).0, Err(too_many));
    assert!(read(3, &[10, 100, 0, 4]).1.is_err() && read(11, &[10, 100, 0]).1.is_err());
    assert_eq!(read(12, &[10, 100, 0, 4]).0, Err(WordsError::OtherPolicy { tag: 12 }));
}

/// A table keeps a word for each key that takes no credits, and a state for the others until they
/// have recovered so far.
#[test]
fn a_value_has_no_credits_in_use() {
    let policy = window(10, 4, 60 * S);
    let numbers = policy.packed().unwrap();
    let fresh = numbers.full_at(S);
    assert_eq!((numbers.capacity(), numbers.remaining(fresh, S)), (14, 14));
    let (full, leftover) = numbers.decide(fresh, S, 10).unwrap().unwrap();
    assert_eq!((leftover.permits(), numbers.remaining(full, S)), (4, 4));
    assert_eq!(numbers.decide(full, S, 4), None);
    assert_eq!(numbers.decide(full, S, 5).unwrap().unwrap_err().get(), 59 * S);
    assert_eq!(numbers.charge(full, S, 1, Debt::FORGOTTEN), None);
    let mut limit = Ledger::new(policy, 0);
    assert!(granted(limit.try_acquire(S, 12)).is_some());
    let pack = |now_ns| policy.pack(limit.state(), now_ns);
    assert_eq!(pack(S), None);
    let later = pack(60 * S).unwrap();
    assert_eq!(numbers.remaining(later, 60 * S), 12);
    assert_eq!(pack(120 * S), Some(numbers.full_at(120 * S)));
}

#[test]
fn misuse_is_an_error() {
    let window = FixedWindow::new(5, Duration::from_nanos(100), Anchor::Epoch);
    assert_eq!(window.with_credits(6), Err(LimitError::TooManyCredits { max: 5 }));
    let huge = FixedWindow::new(u64::MAX / 2, Duration::from_nanos(1), Anchor::Epoch);
    assert_eq!(huge.with_credits(1), Err(LimitError::TooManyCredits { max: 0 }));
    let window = window.with_credits(5).unwrap();
    assert_eq!((window.permits(), window.credits(), window.capacity()), (5, 5, 10));
    let mut limit = Ledger::new(window, 0);
    assert_eq!(limit.try_acquire(0, 11), Err(ExceedsCapacity::new(11, 10)));
    assert!(granted(limit.try_acquire(0, 10)).is_some());
}
