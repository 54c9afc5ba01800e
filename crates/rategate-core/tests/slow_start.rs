//! Tests of the `slow_start` contract, against a clock that is added up nanosecond by nanosecond,
//! and a plain list of grants.

use std::time::Duration;

use crate::common::limits::{Kind, Scale, limit_of};
use crate::common::{
    MS, S, bucket, granted, log, ns, part, per, policy as in_force, rate, retry, start,
};
use fastrand::Rng;
use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::Debt;
use rategate_core::error::LimitError;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::policy::Policy;
use rategate_core::saved::{RestoreContext, SavedError, restore};
use rategate_core::share::Share;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::slow_start::{SlowStart, State};
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::Verdict;
use rategate_core::warm_up::WarmUp;
use rategate_testkit::oracle::Grants;

/// The clock of one ramp as a table: the speed of each nanosecond, added up from the end.
#[derive(Clone, Debug)]
struct Clock {
    began_ns: u64,
    shown_ns: Vec<u64>,
}

impl Clock {
    fn new(began_ns: u64, period_ns: u64, percent: u8) -> Self {
        // In parts of 1/(200 P) ns: the speed in the middle of each nanosecond is its mean.
        let (parts, first) = (200 * period_ns, u64::from(percent));
        let mut left = 0;
        let mut shown_ns: Vec<u64> = (0..period_ns)
            .rev()
            .map(|nth| {
                left += 2 * period_ns * first + (100 - first) * (2 * nth + 1);
                (parts * (began_ns + period_ns) - left).div_euclid(parts)
            })
            .collect();
        shown_ns.reverse();
        Self { began_ns, shown_ns }
    }

    fn at(&self, at_ns: u64) -> u64 {
        let since_ns = usize::try_from(at_ns - self.began_ns).unwrap();
        self.shown_ns.get(since_ns).copied().unwrap_or(at_ns)
    }

    /// Returns the first instant at which the clock shows `shown_ns`, found by stepping.
    fn first(&self, from_ns: u64, shown_ns: u64) -> u64 {
        (from_ns..=u64::MAX).find(|&at_ns| self.at(at_ns) >= shown_ns).unwrap()
    }
}

fn slow(policy: impl Into<AnyPolicy>, period_ns: u64, percent: u8) -> SlowStart {
    let slow = SlowStart::new(policy, ns(period_ns)).unwrap();
    slow.with_first_share(Share::percent(percent))
}

/// The kinds that can have a slow start.
const INSIDE: [Kind; 11] = [
    Kind::Bucket,
    Kind::Bucket,
    Kind::Log,
    Kind::GridLog,
    Kind::CompactLog,
    Kind::WindowOfFirstCall,
    Kind::BoundedBatches,
    Kind::BoundedAverage,
    Kind::Strict,
    Kind::Burst,
    Kind::Pool,
];

/// At most `permits` in any `window_ns` by the clock of the present ramp, as a list of grants.
struct PlainLog {
    permits: u64,
    window_ns: u64,
    period_ns: u64,
    percent: u8,
    clock: Option<Clock>,
    grants: Vec<(u64, u64)>,
}

impl PlainLog {
    fn fits(&self, at_ns: u64, permits: u64) -> bool {
        let Some(clock) = &self.clock else { return permits <= self.permits };
        let (mut sum, now_ns) = (permits, clock.at(at_ns));
        for &(start_ns, granted) in &self.grants {
            sum += if now_ns - clock.at(start_ns) < self.window_ns { granted } else { 0 };
        }
        sum <= self.permits
    }

    /// Forgets the ramp if the log has been empty for a period, without a permit in it.
    fn rest(&mut self, at_ns: u64) {
        let is_old = |&(start_ns, _): &(u64, u64)| start_ns + self.period_ns <= at_ns;
        let was_empty = |then_ns| self.fits(then_ns, self.permits);
        if self.grants.iter().all(is_old)
            && at_ns.checked_sub(self.period_ns).is_some_and(was_empty)
        {
            (self.clock, self.grants) = (None, Vec::new());
        }
    }

    fn take(&mut self, at_ns: u64, permits: u64) {
        self.clock.get_or_insert_with(|| Clock::new(at_ns, self.period_ns, self.percent));
        self.grants.push((at_ns, permits));
    }
}

/// Every try, its retry and what remains are those of the list, at every instant of many ramps.
#[test]
fn a_log_decides_as_a_plain_list_by_the_slow_clock() {
    let mut ramps = 0;
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let (permits, window_ns) = (random.u64(1..=4), random.u64(1..=30));
        let period_ns = random.choice([1, 2, 20, 77]).unwrap();
        let percent = random.choice([1, 10, 35, 99, 100]).unwrap();
        let mut plain =
            PlainLog { permits, window_ns, period_ns, percent, clock: None, grants: Vec::new() };
        let log = log(permits, window_ns);
        let first_ns = random.choice([0, 3, 1_000]).unwrap();
        let mut limit = Ledger::new(slow(log, period_ns, percent), first_ns);
        let tries = random.choice([3, 30]).unwrap();
        for now_ns in first_ns..first_ns + 500 {
            let what = format!("seed {seed} at {now_ns}: {:?}", in_force(&limit));
            plain.rest(now_ns);
            let most = (0..=permits).rev().find(|&n| n == 0 || plain.fits(now_ns, n)).unwrap();
            assert_eq!(limit.remaining(now_ns), most, "{what}");
            assert_eq!(limit.is_as_fresh(now_ns), plain.clock.is_none(), "{what}");
            if random.u64(..tries) > 0 {
                continue;
            }
            let wanted = random.u64(1..=permits);
            match limit.try_acquire(now_ns, wanted).unwrap() {
                Verdict::Granted(_) => {
                    assert!(plain.fits(now_ns, wanted), "{what}");
                    ramps += u32::from(plain.clock.is_none());
                    plain.take(now_ns, wanted);
                }
                Verdict::Denied(denial) => {
                    let opens_ns =
                        (now_ns..=u64::MAX).find(|&at_ns| plain.fits(at_ns, wanted)).unwrap();
                    let wait_ns = denial.retry_after_ns.unwrap().get();
                    assert_eq!(now_ns + wait_ns, opens_ns, "{what}");
                }
            }
        }
    }
    assert!(ramps > 900, "{ramps}");
}

/// The slow clock fed to the limit inside gives every decision, and from the end of the ramp on
/// the same limit without a slow start gives the same, call by call: promises, what comes back and
/// what is charged included.
#[test]
fn the_limit_inside_decides_by_the_slow_clock() {
    let (mut slowed, mut after) = (0, 0);
    for seed in 0..4_000 {
        let mut random = Rng::with_seed(seed);
        let policy = limit_of(&INSIDE, Scale::Of(1), &mut random);
        let period_ns = random.choice([2, 40, 400]).unwrap();
        let percent = random.choice([1, 10, 50, 100]).unwrap();
        let began_ns = random.choice([0, 1, 777]).unwrap();
        let clock = Clock::new(began_ns, period_ns, percent);
        let mut limit = Ledger::new(slow(policy, period_ns, percent), began_ns);
        let mut inside = Ledger::new(policy, clock.at(began_ns));
        let (mut now_ns, mut used_ns, mut grants) = (began_ns, began_ns, Vec::new());
        for step in 0..60 {
            let what = format!("seed {seed}, step {step} at {now_ns}: {:?}", in_force(&limit));
            let (shown_ns, permits) = (clock.at(now_ns), random.u64(1..=3));
            // A log that carries a debt promises its parts, and may rest between them.
            let is_log = matches!(policy, AnyPolicy::SlidingLog(_));
            let debt = if is_log || random.bool() { Debt::FORGOTTEN } else { Debt::CARRIED };
            if now_ns < began_ns + period_ns {
                slowed += 1;
            } else {
                after += 1;
            }
            assert_eq!(limit.remaining(now_ns), inside.remaining(shown_ns), "{what}");
            assert_eq!(limit.debt(now_ns), inside.debt(shown_ns), "{what}");
            let of_debt = (limit.debt_ends_in_ns(now_ns), inside.debt_ends_in_ns(shown_ns));
            if let (Some(ends_ns), Some(inside_ns)) = of_debt {
                assert_eq!(now_ns + ends_ns, clock.first(now_ns, shown_ns + inside_ns), "{what}");
            }
            let calls = if step == 0 { 0 } else { random.u64(..10) };
            match calls {
                0..=5 => {
                    let permits = if step == 0 { 1 } else { permits };
                    let both =
                        [(&mut limit, now_ns), (&mut inside, shown_ns)].map(|(it, now_ns)| {
                            match calls {
                                0..3 => it.try_acquire(now_ns, permits),
                                _ => it.reserve(now_ns, permits, None),
                            }
                        });
                    match both.into() {
                        (Ok(Verdict::Granted(seen)), Ok(Verdict::Granted(ideal))) => {
                            let start_ns = clock.first(now_ns, ideal.start_ns);
                            assert_eq!(seen.start_ns, start_ns, "{what}");
                            let left = limit.remaining(now_ns);
                            assert_eq!(left, inside.remaining(shown_ns), "{what}");
                            assert!(
                                clock.at(seen.scheduled_ns.max(began_ns)) >= ideal.scheduled_ns
                            );
                            assert_eq!(seen.wait_ns() == 0, ideal.wait_ns() == 0, "{what}");
                            // A promise after a rest begins another ramp.
                            let rests = limit.limits().only().unwrap().fresh_at_ns().is_some();
                            if rests && seen.start_ns >= used_ns + period_ns {
                                break;
                            }
                            used_ns = if seen.start_ns == now_ns { now_ns } else { used_ns };
                            grants.push((seen, ideal));
                        }
                        (Ok(Verdict::Denied(seen)), Ok(Verdict::Denied(ideal))) => {
                            let opens_ns = ideal.retry_after_ns.map(|wait_ns| {
                                clock.first(now_ns, shown_ns + wait_ns.get()) - now_ns
                            });
                            let wait_ns = seen.retry_after_ns.map(u64::from);
                            assert_eq!(wait_ns, opens_ns, "{what}");
                        }
                        (seen, ideal) => assert_eq!(seen.is_err(), ideal.is_err(), "{what}"),
                    }
                }
                6 if !grants.is_empty() => {
                    let (seen, ideal) = grants.swap_remove(random.usize(..grants.len()));
                    if seen.start_ns > now_ns {
                        let cancelled = inside.cancel(shown_ns, ideal.ticket);
                        assert_eq!(limit.cancel(now_ns, seen.ticket), cancelled, "{what}");
                    } else {
                        let back = inside.refund(shown_ns, &ideal, permits);
                        assert_eq!(limit.refund(now_ns, &seen, permits), back, "{what}");
                    }
                }
                7 => {
                    let back = inside.credit(shown_ns, permits);
                    assert_eq!(limit.credit(now_ns, permits), back, "{what}");
                }
                8 => {
                    used_ns = now_ns;
                    let charged = inside.charge(shown_ns, permits, debt);
                    assert_eq!(limit.charge(now_ns, permits, debt), charged, "{what}");
                }
                _ => {
                    let taken = inside.refill(shown_ns, permits);
                    assert_eq!(limit.refill(now_ns, permits), taken, "{what}");
                }
            }
            now_ns += random.choice([0, 1, 3, 20]).unwrap();
            limit.pass_to(now_ns);
            inside.pass_to(clock.at(now_ns));
            if limit.limits().only().unwrap().is_as_fresh(now_ns) {
                break;
            }
        }
    }
    assert!(slowed > 60_000 && after > 20_000, "{slowed} {after}");
}

/// No window sees more than the limit inside allows, however callers come: over ramps, rests and
/// changes of all numbers.
#[test]
fn the_ceiling_is_that_of_the_limit_inside() {
    for seed in 0..2_000 {
        let mut random = Rng::with_seed(seed);
        let interval_ns = random.u64(2..=30);
        let every = per(1, interval_ns);
        let permits = random.u64(1..=5);
        let policy: AnyPolicy = match random.u64(..4) {
            0 => Gcra::new(every, permits).unwrap().into(),
            1 => TwoTimeline::new(every, Mode::Strict, None).into(),
            2 => log(permits, interval_ns).into(),
            _ => log(permits, interval_ns)
                .with_resolution(ns(interval_ns.div_ceil(4)))
                .unwrap()
                .into(),
        };
        let ceiling = |window_ns: u64| match policy {
            AnyPolicy::Gcra(_) => window_ns.div_ceil(interval_ns) + permits - 1,
            AnyPolicy::TwoTimeline(_) => window_ns.div_ceil(interval_ns),
            _ => window_ns.div_ceil(interval_ns) * permits,
        };
        let mut numbers = || slow(policy, random.choice([1, 30, 300]).unwrap(), random.u8(1..=100));
        let all = [numbers(), numbers(), numbers()];
        let (mut limit, mut grants, mut now_ns) = (Ledger::new(all[0], 0), Grants::default(), 0);
        let pause_ns = random.choice([2, 60, 400]).unwrap();
        for _ in 0..400 {
            if random.u64(..50) == 0 {
                limit.reconfigure(now_ns, random.choice(all).unwrap()).unwrap();
            }
            now_ns += if random.u64(..12) == 0 { random.u64(0..=pause_ns) } else { 0 };
            if let Some(grant) = granted(limit.reserve(now_ns, 1, Some(20))) {
                grants.add(grant.start_ns, 1);
                now_ns = grant.start_ns;
            } else {
                now_ns += 1;
            }
        }
        for window_ns in [1, 7, interval_ns, interval_ns + 1, 3 * interval_ns, 500] {
            let (most, at) = grants.fullest_window(window_ns);
            let what = format!("seed {seed}: {most} in {window_ns} from {at:?} of {all:?}");
            assert!(most <= ceiling(window_ns), "{what}");
        }
    }
}

/// From cold a bucket in full use has its burst, and then exactly what the factor adds up to.
#[test]
fn a_cold_bucket_earns_the_integral_of_the_factor() {
    for (percent, in_period) in [(1, 505), (10, 550), (50, 750), (100, 1_000)] {
        for burst in [1, 7] {
            let bucket = bucket("100/s", burst);
            let mut limit = Ledger::new(slow(bucket, 10 * S, percent), 5 * S);
            let mut starts = Vec::new();
            for _ in 0..2_000 {
                starts.push(start(limit.reserve(5 * S, 1, None)) - 5 * S);
            }
            let within = |ns: u64| starts.iter().filter(|&&start_ns| start_ns <= ns).count();
            assert_eq!(within(0), usize::try_from(burst).unwrap());
            assert_eq!(within(10 * S), usize::try_from(burst).unwrap() + in_period);
            // Half way the factor is (1 + f) / 2, and has been (1 + 3 f) / 4 in the mean.
            let half = 500 * (100 + 3 * u64::from(percent)) / 400;
            assert_eq!(u64::try_from(within(5 * S)).unwrap(), burst + half);
            let after: Vec<u64> = (1..=3).map(|nth| 10 * S + nth * 10 * MS).collect();
            let end = within(10 * S);
            assert_eq!(starts[end..end + 3], after, "evenly after the ramp");
        }
    }
}

/// An unused limit keeps its slow start, for denials and reads do not begin it. A rest of a whole
/// period after the last permit has come back begins another one.
#[test]
fn a_ramp_begins_with_the_first_permit_and_after_a_rest() {
    let policy = slow(bucket("1/s", 1), 10 * S, 10);
    let mut limit = Ledger::new(policy, 0);
    let wait_at = |limit: &mut Ledger, now_ns| {
        assert_eq!(start(limit.try_acquire(now_ns, 1)), now_ns);
        retry(limit.try_acquire(now_ns, 1))
    };
    let cold_ns = wait_at(&mut limit.clone(), 0);
    assert!(cold_ns > 3 * S);
    // An hour of looking and of requests that cannot pass.
    for now_ns in (0..3_600 * S).step_by(3_600_000_000) {
        assert_eq!((limit.remaining(now_ns), limit.peek(now_ns, 1)), (1, Ok(Some(0))));
        assert!(limit.try_acquire(now_ns, 2).is_err());
    }
    let mut now_ns = 3_600 * S;
    assert_eq!(wait_at(&mut limit, now_ns), cold_ns, "as at first");
    // In use more often than each ten seconds, it gets warm.
    now_ns += 9 * S;
    assert!((S..2 * S).contains(&wait_at(&mut limit, now_ns)), "nearly");
    now_ns += 10 * S;
    for _ in 0..5 {
        // It is full a second after each permit, and ten seconds from then on are a rest.
        assert_eq!(wait_at(&mut limit, now_ns), S);
        now_ns += 11 * S - 1;
    }
    let last_ns = now_ns - (11 * S - 1);
    assert_eq!(limit.fresh_at_ns(now_ns), Some(last_ns + 11 * S));
    assert_eq!(wait_at(&mut limit.clone(), last_ns + 11 * S - 1), S, "not quite a rest");
    assert!(!limit.clone().is_as_fresh(last_ns + 11 * S - 1));
    assert!(limit.is_as_fresh(last_ns + 11 * S));
    assert_eq!(wait_at(&mut limit, last_ns + 11 * S), cold_ns);

    // The rest of one that takes long to recover begins when it has.
    let mut limit = Ledger::new(slow(bucket("1/s", 20), 10 * S, 10), 0);
    assert_eq!(start(limit.try_acquire(0, 20)), 0);
    assert_eq!(limit.fresh_at_ns(0), Some(34_500 * MS));
    assert_eq!(limit.peek(15 * S, 20), Ok(Some(9_500 * MS)));

    // A limit in full use gets warm, however long its permits take to come.
    for period_ns in [S, 10 * S, 30 * S, 90 * S, 200 * S] {
        let log = SlidingLog::new(3, Duration::from_secs(60));
        let mut limit = Ledger::new(slow(log, period_ns, 10), 0);
        let mut now_ns = 0;
        let mut next_window = || {
            let from_ns = now_ns;
            for _ in 0..3 {
                let Ok(Verdict::Granted(grant)) = limit.reserve(now_ns, 1, None) else { panic!() };
                now_ns = now_ns.max(grant.start_ns);
            }
            now_ns - from_ns
        };
        let windows: Vec<_> = (0..12).map(|_| next_window()).collect();
        assert!(windows[11] == 60 * S && windows[1] > 60 * S, "{period_ns}: {windows:?}");
    }

    // Permits that come back make no rest of the time in which the server was in use.
    let log = slow(SlidingLog::new(300, Duration::from_secs(1)), 10 * S, 10);
    let mut limit = Ledger::new(log, 0);
    for now_ns in (0..40).map(|nth| nth * S) {
        assert_eq!(start(limit.try_acquire(now_ns, 1)), now_ns);
    }
    assert_eq!(limit.credit(39 * S, 3), 1);
    let factor =
        |limit: &Ledger, now_ns| part::<SlowStart>(limit).factor_millionths(part(limit), now_ns);
    assert_eq!(factor(&limit, 50 * S - 1), 1_000_000);
    assert_eq!(factor(&limit, 50 * S), 100_000, "a period after the window of the last permit");
}

/// A charge of what was used begins a ramp, as a grant does. One of nothing does not.
#[test]
fn a_charge_begins_a_ramp() {
    let policy = slow(bucket("1/s", 2), 10 * S, 10);
    let mut limit = Ledger::new(policy, 0);
    assert_eq!(limit.charge(0, 0, Debt::FORGOTTEN).unwrap().booked, 0);
    assert!(limit.is_as_fresh(0));
    assert_eq!(limit.charge(S, 5, Debt::FORGOTTEN).unwrap().debt, 3);
    let ends_ns = limit.debt_ends_in_ns(S).unwrap();
    let mut granted = Ledger::new(slow(Gcra::spaced(rate("1/s")), 10 * S, 10), S);
    let starts = [0; 4].map(|_| start(granted.reserve(S, 1, None)));
    assert_eq!(S + ends_ns, starts[3], "three permits' time by the slow clock");
    assert_eq!(limit.debt(S + ends_ns - 1), 1);
    assert_eq!(limit.debt(S + ends_ns), 0);
}

/// Of an earlier ramp nothing comes back: it had been made up for before this one began.
#[test]
fn grants_of_an_earlier_ramp_are_not_refunded() {
    let mut limit = Ledger::new(slow(bucket("1/s", 4), 10 * S, 10), 0);
    let first = granted(limit.try_acquire(0, 2)).unwrap();
    assert_eq!(limit.refund(0, &first, 1), 1);
    let second = granted(limit.try_acquire(60 * S, 4)).unwrap();
    assert_eq!(limit.refund(60 * S, &first, 1), 0);
    assert_eq!(limit.refund(60 * S, &second, 3), 3);
    assert_eq!(limit.remaining(60 * S), 3);
    assert_eq!(limit.refund(99 * S, &second, 1), 0, "the rest has made up for it");
}

/// A ramp that has begun goes on as it began, and the limit inside changes at once. The next ramp
/// has the new numbers.
#[test]
fn a_change_leaves_the_ramp_as_it_is() {
    let bucket = |text: &str| bucket(text, 1);
    let (policy, other) = (slow(bucket("1/s"), 10 * S, 10), slow(bucket("1/s"), 2 * S, 50));
    let mut limit = Ledger::new(policy, 0);
    assert_eq!(start(limit.try_acquire(0, 1)), 0);
    let unchanged = limit.clone();
    limit.reconfigure(S, other).unwrap();
    assert_eq!(limit.peek(S, 1), unchanged.peek(S, 1));
    limit.reconfigure(S, slow(bucket("10/s"), 2 * S, 50)).unwrap();
    assert!(limit.peek(S, 1).unwrap() < unchanged.peek(S, 1).unwrap());
    assert_eq!(
        part::<SlowStart>(&limit).factor_millionths(part(&limit), 1_500 * MS),
        235_000,
        "still of 10 s"
    );
    assert_eq!(
        part::<SlowStart>(&limit).factor_millionths(part(&limit), 60 * S),
        500_000,
        "the next one"
    );

    // At rest, what changes is as good as new.
    let mut limit = Ledger::new(policy, 0);
    limit.reconfigure(S, other).unwrap();
    assert_eq!(part::<State>(&limit), &other.fresh(S));
}

#[test]
fn the_factor_rises_in_a_straight_line() {
    let policy = slow(Gcra::spaced(rate("1/min")), 9 * S, 10);
    let mut state = policy.fresh(0);
    assert_eq!(policy.factor_millionths(&state, 77 * S), 100_000, "the next permit begins a ramp");
    let mut limit = Ledger::new(policy, 77 * S);
    assert_eq!(start(limit.try_acquire(77 * S, 1)), 77 * S);
    state.clone_from(part(&limit));
    let factors = [0, 1, 5, 8, 9, 12].map(|s| policy.factor_millionths(&state, (77 + s) * S));
    assert_eq!(factors, [100_000, 200_000, 600_000, 900_000, 1_000_000, 1_000_000]);
    assert_eq!(policy.factor_millionths(&state, 86 * S - 1), 999_999, "rounded down");
}

/// Saved in its ramp and restored, also where the ramp began before the new clock's zero, a limit
/// goes on with it.
#[test]
fn a_ramp_goes_on_after_a_restart() {
    let policy = slow(Gcra::spaced(rate("1/s")), 10 * S, 10);
    let mut limit = Ledger::new(policy, 70 * S);
    assert_eq!(start(limit.try_acquire(70 * S, 1)), 70 * S);
    let saved = limit.save(75 * S);
    let wait_ns = |limit: &mut Ledger, now_ns| {
        assert_eq!(start(limit.try_acquire(now_ns, 1)), now_ns);
        retry(limit.try_acquire(now_ns, 1))
    };
    let expected = wait_ns(&mut limit, 76 * S);
    for now_ns in [500 * S, 6 * S, S] {
        let since = RestoreContext { now_ns, elapsed_ns: S };
        let mut restored = restore(policy, &saved, since).unwrap();
        assert_eq!(wait_ns(&mut restored, now_ns), expected, "at {now_ns}");
    }
    let other = slow(SlidingLog::new(1, Duration::from_secs(1)), 10 * S, 10);
    let since = RestoreContext { now_ns: 0, elapsed_ns: 0 };
    let refused = restore(other, &saved, since).unwrap_err();
    assert_eq!(refused, SavedError::OtherPolicy { saved: "slow start" });
    assert_eq!(refused.to_string(), "the limit is of another policy, slow start");
    let plain = restore(Gcra::spaced(rate("1/s")), &saved, since);
    assert_eq!(plain.unwrap_err(), SavedError::OtherPolicy { saved: "slow start" });
}

/// Numbers at the edges: nothing wraps, retries stay exact, and the clock's end ends a ramp.
#[test]
fn extreme_numbers_stay_exact() {
    for period_ns in [1, 2, 3, S, u64::MAX / 2, u64::MAX] {
        for percent in [1, 10, 99, 100] {
            for began_ns in [0, 1, S, u64::MAX / 2, u64::MAX - 3 * S] {
                let bucket = bucket("1000/s", 2);
                let mut limit = Ledger::new(slow(bucket, period_ns, percent), began_ns);
                let what = format!("{began_ns} of {:?}", in_force(&limit));
                let mut now_ns = began_ns;
                assert_eq!(limit.remaining(now_ns), 2, "{what}");
                for _ in 0..20 {
                    assert_eq!(start(limit.try_acquire(now_ns, limit.remaining(now_ns))), now_ns);
                    let opens_ns = now_ns + retry(limit.try_acquire(now_ns, 1));
                    assert_eq!(limit.remaining(opens_ns - 1), 0, "{what}");
                    assert_eq!(limit.remaining(opens_ns), 1, "{what}");
                    assert!(opens_ns - now_ns >= MS && opens_ns - now_ns <= 100 * MS, "{what}");
                    now_ns = opens_ns;
                }
            }
        }
    }
    let mut limit = Ledger::new(slow(Gcra::spaced(rate("1/s")), 10 * S, 10), u64::MAX - 9);
    assert_eq!(start(limit.try_acquire(u64::MAX - 9, 1)), u64::MAX - 9);
    assert_eq!(limit.fresh_at_ns(u64::MAX - 9), None);
    assert!(limit.try_acquire(u64::MAX, 1).is_ok(), "denied, with a wait beyond the clock");

    // One permit in as long as the clock lasts: the wait is exact, and its end is beyond the clock.
    let never_twice = Gcra::spaced(per(1, u64::MAX));
    let mut limit = Ledger::new(slow(never_twice, 10 * S, 10), 0);
    assert_eq!(start(limit.try_acquire(0, 1)), 0);
    assert_eq!(retry(limit.try_acquire(5 * S, 1)), u64::MAX - 500 * MS);
}

/// A caller whose clock goes back finds no more permits.
#[test]
fn a_clock_that_goes_back_earns_nothing() {
    let policy = slow(bucket("1000/s", 3), S, 10);
    let mut state = policy.fresh(50 * MS);
    let permits = 3.try_into().unwrap();
    let taken = rategate_core::policy::Taken { from_ns: 50 * MS, start_ns: 50 * MS, permits };
    policy.take(&mut state, taken);
    let mut last = 0;
    for now_ns in (0..200 * MS).step_by(100_000) {
        let remaining = policy.remaining(&state, now_ns);
        assert!(remaining >= last && (now_ns > 50 * MS || remaining == 0), "at {now_ns}");
        last = remaining;
    }
    assert_eq!(last, 3);
}

#[test]
fn numbers_that_make_no_slow_start_are_errors() {
    let (bucket, period) = (Gcra::spaced(rate("10/s")), Duration::from_secs(1));
    assert_eq!(SlowStart::new(bucket, Duration::ZERO), Err(LimitError::ZeroPeriod));
    assert_eq!(SlowStart::new(bucket, Duration::MAX), Err(LimitError::PeriodTooLong));
    assert_eq!(Share::try_percent(0), Err(LimitError::Share));
    assert_eq!(Share::try_percent(101), Err(LimitError::Share));
    let window = FixedWindow::new(10, period, Anchor::Epoch);
    assert_eq!(SlowStart::new(window, period), Err(LimitError::WindowOnClock));
    assert_eq!(
        SlowStart::new(window, period).unwrap_err().to_string(),
        "a slow start would move the borders of a window on the clock's grid; anchor it at the \
         first call, or use a sliding log"
    );
    let warm_up = WarmUp::new(rate("10/s"), period).unwrap();
    for other in [AnyPolicy::from(Concurrency::new(3)), warm_up.into()] {
        let refused = SlowStart::new(other, period).unwrap_err();
        assert_eq!(refused, LimitError::NotTimed);
        assert!(refused.to_string().contains("permits come with time"), "{refused}");
    }
    let policy = SlowStart::new(bucket, period).unwrap();
    assert_eq!((policy.period_ns(), policy.first_share()), (S, Share::percent(10)));
    assert_eq!(policy.policy(), bucket.into());
}

/// Each kind of limit inside is a kind of its own for a saved state, and no state of any policy is
/// larger for it.
#[test]
fn any_policy_holds_a_slow_start() {
    let period = Duration::from_secs(1);
    let any = |policy: AnyPolicy| AnyPolicy::from(SlowStart::new(policy, period).unwrap());
    let bucket = |text| any(Gcra::spaced(rate(text)).into());
    let log = any(SlidingLog::new(3, period).into());
    let plain = AnyPolicy::from(Gcra::spaced(rate("1/s")));
    let saved = Ledger::new(log, 0).save(0);
    let since = RestoreContext { now_ns: 0, elapsed_ns: 0 };
    assert!(restore(log, &saved, since).is_ok());
    let refused = restore(bucket("1/s"), &saved, since).unwrap_err();
    assert_eq!(refused, SavedError::OtherPolicy { saved: "slow start" });
    assert!(size_of::<Member>() <= 320, "its state is in a box: {}", size_of::<Member>());
    // The box of the state counts as what a key has on the heap.
    let heap_bytes = |policy| Member::fresh(policy, 0).heap_bytes();
    assert!(heap_bytes(log) > heap_bytes(plain));
}
