//! Tests of a schedule in batches, against the operation throttle's own few lines.

use std::num::NonZeroU64;

use crate::common::{MS, S, US, exact_retry, fraction, granted, ns, pacer, per, rate, start};
use fastrand::Rng;
use rategate_core::any_policy::Member;
use rategate_core::error::ExceedsCapacity;
use rategate_core::ledger::Ledger;
use rategate_core::policy::{Policy, Taken};
use rategate_core::rate::Rate;
use rategate_core::span;
use rategate_core::two_timeline::{
    DEFAULT_CATCH_UP_NS, DEFAULT_MIN_SLEEP_NS, Mode, State, TwoTimeline,
};
use rategate_core::verdict::Verdict;

/// A loop that waits after each operation, on a clock that it advances itself, and records the
/// sleeps.
#[derive(Debug)]
struct PostWait {
    pacer: TwoTimeline,
    state: State,
    elapsed_ns: u64,
    sleep_error_ns: Vec<i64>,
    sleeps: Vec<u64>,
    log: String,
}

impl PostWait {
    fn new(rate: Rate, catch_up_ns: Option<u64>) -> Self {
        let pacer = pacer(rate, ns(DEFAULT_MIN_SLEEP_NS), catch_up_ns.map(ns));
        let state = pacer.fresh_after(0);
        let (sleep_error_ns, sleeps, log) = (vec![0], Vec::new(), String::new());
        Self { pacer, state, elapsed_ns: 0, sleep_error_ns, sleeps, log }
    }

    /// Runs one operation and the wait after it.
    fn run(&mut self, latency_ns: u64) {
        self.elapsed_ns += latency_ns;
        self.log.push('@');
        let (from_ns, permits) = (self.elapsed_ns, NonZeroU64::MIN);
        let start_ns = self.pacer.opening(&self.state, from_ns, permits).unwrap().start_ns;
        self.pacer.take(&mut self.state, Taken { from_ns, start_ns, permits });
        if start_ns > from_ns {
            let error_ns = self.sleep_error_ns[self.sleeps.len() % self.sleep_error_ns.len()];
            let slept_ns = (start_ns - from_ns).checked_add_signed(error_ns).unwrap();
            self.elapsed_ns += slept_ns;
            self.sleeps.push(start_ns - from_ns);
            self.log.push_str("[z*");
            span::write_decimal(&mut self.log, slept_ns, MS).unwrap();
            self.log.push(']');
        }
    }

    fn run_all(&mut self, latencies_ns: &[u64], operations: usize) {
        for operation in 0..operations {
            self.run(latencies_ns[operation % latencies_ns.len()]);
        }
    }
}

fn at(count: usize) -> String {
    "@".repeat(count)
}

/// S0.1, S0.2, S0.3, S0.29, X0.7: 25 operations back to back, then one sleep of exactly 10 ms.
#[test]
fn low_latency_and_a_high_rate() {
    let mut run = PostWait::new(rate("2000/s"), None);
    run.run_all(&[100 * US], 60);
    assert_eq!(run.log, format!("{0}[z*10]{0}[z*10]{1}", at(25), at(10)));
    assert_eq!(run.elapsed_ns, 26 * MS);
    // 10 operations since the last sleep, each 0.4 ms ahead of its interval.
    assert_eq!(60 * 500 * US - run.elapsed_ns, 4 * MS);
}

/// S0.4, S0.30: a sleep of 4 s after each operation of 2 s.
#[test]
fn high_latency_and_a_low_rate() {
    let mut run = PostWait::new(rate("10/min"), None);
    run.run_all(&[2 * S], 10);
    assert_eq!(run.log, "@[z*4000]".repeat(10));
    assert_eq!(run.elapsed_ns, 60 * S);
}

/// S0.5, S0.31: a sleep of 5.9 s after each operation of 0.1 s.
#[test]
fn low_latency_and_a_low_rate() {
    let mut run = PostWait::new(rate("10/min"), None);
    run.run_all(&[100 * MS], 10);
    assert_eq!(run.log, "@[z*5900]".repeat(10));
    assert_eq!(run.elapsed_ns, 60 * S);
}

/// S0.6, S0.32: operations slower than the rate never sleep.
#[test]
fn high_latency_and_a_high_rate() {
    let mut run = PostWait::new(rate("100/s"), None);
    run.run_all(&[100 * MS], 75);
    assert_eq!((run.log, run.elapsed_ns), (at(75), 7_500 * MS));
}

/// S0.7, S0.8, S0.33: the error of one sleep is corrected in the next.
#[test]
fn jitter_is_carried() {
    let mut run = PostWait::new(rate("2000/s"), None);
    run.sleep_error_ns = vec![-200_000, 100_000];
    run.run_all(&[100 * US, 200 * US], 100);
    let log = format!("{}[z*10]{}[z*10.1]{}[z*9.8]{}", at(29), at(28), at(29), at(14));
    assert_eq!(run.log, log);
    assert_eq!(run.elapsed_ns, 44_900 * US);
    assert_eq!(run.sleeps, [10_200 * US, 10 * MS, 10 * MS]);
}

/// S0.33: a live limit has the same sleeps, if sleepers report that they woke early.
#[test]
fn early_wakers_carry_the_rest() {
    let pacer = pacer(rate("2000/s"), ns(DEFAULT_MIN_SLEEP_NS), None);
    let mut limit =
        Ledger::with_state(Member::TwoTimeline(Box::new(pacer), Box::new(pacer.fresh_after(0))), 0);
    let (mut now_ns, mut sleeps) = (0, Vec::new());
    for operation in 0..100 {
        now_ns += [100, 200][operation % 2] * US;
        let grant = granted(limit.reserve(now_ns, 1, None)).unwrap();
        if grant.start_ns == now_ns {
            continue;
        }
        sleeps.push(grant.start_ns - now_ns);
        let (early_ns, late_ns) = if sleeps.len() % 2 == 1 { (200 * US, 0) } else { (0, 100 * US) };
        now_ns = grant.start_ns - early_ns + late_ns;
        assert_eq!(limit.start_early(now_ns, grant.ticket), early_ns > 0);
    }
    assert_eq!(sleeps, [10_200 * US, 10 * MS, 10 * MS]);
    assert_eq!(now_ns, 44_900 * US);
}

/// S0.26, S0.28, S0.7: without a bound on catching up, the pacer is the operation throttle: its
/// few lines, in plain integers, sleep as long at the same operations, whatever the latencies and
/// the sleeps really take.
#[test]
fn unbounded_it_is_the_operation_throttle() {
    for seed in 1..100 {
        let mut random = Rng::with_seed(seed);
        let interval_ns =
            random.choice([1_000, 100_000, 500_000, 3_000_000, 20_000_000_u64]).unwrap();
        let pace = per(1, interval_ns);
        let mut run = PostWait::new(pace, None);
        let errors = (0..7).map(|_| i64::try_from(random.u64(0..=2_000_000)).unwrap() - 1_000_000);
        run.sleep_error_ns = errors.collect();
        let (mut mark1, mut next_delay, mut clock, mut sleeps) = (0_i128, 0_i128, 0_i128, 0_usize);
        for _ in 0..400 {
            let latency_ns = random.u64(0..=2 * interval_ns);
            let slept_before = run.sleeps.len();
            run.run(latency_ns);

            clock += i128::from(latency_ns);
            let mark2 = clock;
            next_delay += i128::from(interval_ns) - (mark2 - mark1);
            mark1 = mark2;
            let mut requested = None;
            if next_delay >= 10_000_000 {
                requested = Some(next_delay);
                clock += next_delay + i128::from(run.sleep_error_ns[sleeps % 7]);
                sleeps += 1;
                mark1 = clock;
                next_delay -= mark1 - mark2;
            }
            let slept = run.sleeps.get(slept_before).map(|&ns| i128::from(ns));
            assert_eq!(slept, requested, "seed {seed}");
            assert_eq!(i128::from(run.elapsed_ns), clock, "seed {seed}");
        }
    }
}

/// X0.1: the run ends early by the delay not yet slept, less than one sleep.
#[test]
fn the_tail_not_slept_is_the_whole_difference() {
    for seed in 1..50 {
        let mut random = Rng::with_seed(seed);
        let mut run = PostWait::new(rate("2000/s"), None);
        for _ in 0..1_000 {
            run.run(random.u64(US..=5 * US));
        }
        // Due instants are absolute, so the missing part of N intervals is the unslept delay.
        assert!((490 * MS + 1..=500 * MS).contains(&run.elapsed_ns), "seed {seed}");
        let slept: u64 = run.sleeps.iter().sum();
        assert!(500 * MS - run.elapsed_ns < 10 * MS && slept <= run.elapsed_ns);
    }
}

/// X0.2: after 75 operations of 100 ms at 100/s the debt is 6750 ms. Unbounded, 675 more run at
/// full speed; with a bound, as many as fit the bound and one sleep.
#[test]
fn catching_up_is_bounded_or_not() {
    for (catch_up_ns, free) in [(None, 675), (Some(S), 100), (Some(0), 0)] {
        let mut run = PostWait::new(rate("100/s"), catch_up_ns);
        run.run_all(&[100 * MS], 75);
        assert_eq!(run.elapsed_ns, 7_500 * MS);
        let mut passed = 0;
        while run.sleeps.is_empty() {
            run.run(0);
            passed += 1;
        }
        // The one that slept is not among the free ones.
        assert_eq!(passed - 1, free, "{catch_up_ns:?}");
    }
    assert_eq!((DEFAULT_MIN_SLEEP_NS, DEFAULT_CATCH_UP_NS), (10 * MS, S));
}

/// X0.5: "never" denies without a wait and without arithmetic; "unlimited" lets everything
/// through.
#[test]
fn the_two_ends() {
    let mut limit = Ledger::new(pacer(Rate::NEVER, ns(10 * MS), Some(ns(S))), 0);
    for now_ns in [0, 1, u64::MAX] {
        let Ok(Verdict::Denied(denial)) = limit.reserve(now_ns, 1, None) else { panic!("never") };
        assert_eq!(denial.retry_after_ns, None);
        assert_eq!(limit.remaining(now_ns), 0);
    }
    let mut limit = Ledger::new(pacer(Rate::UNLIMITED, ns(10 * MS), Some(ns(S))), 0);
    assert_eq!(start(limit.try_acquire(7, 1_000_000_000_000)), 7);
    assert_eq!(limit.remaining(7), u64::MAX);
}

/// X0.6: with a request before the operation, the first passes at once; waiting after it is the
/// same with one permit taken.
#[test]
fn two_forms() {
    let pacer = pacer(rate("10/s"), ns(0), None);
    let mut before = Ledger::new(pacer, 5);
    let mut after =
        Ledger::with_state(Member::TwoTimeline(Box::new(pacer), Box::new(pacer.fresh_after(5))), 5);
    let starts = |limit: &mut Ledger| [0; 3].map(|_| start(limit.reserve(5, 1, None)));
    assert_eq!(starts(&mut before), [0, 100 * MS, 200 * MS].map(|ns| ns + 5));
    assert_eq!(starts(&mut after), [100 * MS, 200 * MS, 300 * MS].map(|ns| ns + 5));
}

/// Carry: due instants are absolute and exact, so a billion operations lose nothing.
///
/// Operation k of a caller that sleeps until it may continue is never later than due, and at most
/// one sleep early.
#[test]
fn nothing_is_lost_in_the_long_run() {
    for text in crate::common::RATES {
        let (n, p) = fraction(rate(text));
        let mut limit = Ledger::new(pacer(rate(text), ns(10 * MS), None), 0);
        // Ten seconds' worth at a time, for as long as the clock lasts or 400 calls.
        let permits = u64::try_from((10 * u128::from(S) * n / p).max(1)).unwrap();
        let (mut taken, mut now_ns) = (0_u128, 0);
        for _ in 0..400 {
            let Some(grant) = granted(limit.reserve(now_ns, permits, None)) else { break };
            taken += u128::from(permits);
            let due_ns = ((taken - 1) * p).div_ceil(n);
            let begun_ns = u128::from(grant.start_ns);
            assert!(begun_ns <= due_ns.max(now_ns.into()), "{text}");
            assert!(begun_ns + u128::from(10 * MS) > due_ns, "{text}");
            now_ns = grant.start_ns;
        }
    }
}

/// Carry and catch-up: a reservation of any weight, requested in time, forfeits nothing.
///
/// It starts when its last permit is due, or sooner, so that its first is not beyond catching up.
/// No reservation starts a sleep or more before its last is due.
#[test]
fn a_heavy_reservation_gives_nothing_up() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let period = ns(random.u64(1..=90));
        let pace = Rate::new(random.u64(1..=7), period).unwrap();
        let (n, p) = fraction(pace);
        let (sleep_ns, bound_ns) = (random.u64(1..=100), random.u64(0..=200));
        let mut limit = Ledger::new(pacer(pace, ns(sleep_ns), Some(ns(bound_ns))), 0);
        let heaviest = (1..10_000).take_while(|&permits| limit.peek(0, permits).is_ok()).last();
        let (mut taken, mut now_ns) = (0_u128, 0);
        for _ in 0..60 {
            let permits = random.u64(1..=heaviest.unwrap());
            let begun_ns = start(limit.reserve(now_ns, permits, None));
            let first_ns = (taken * p).div_ceil(n);
            taken += u128::from(permits);
            let last = (taken - 1) * p;
            let (due_ns, opens_ns) =
                (last.div_ceil(n), (last / n + 1).saturating_sub(sleep_ns.into()));
            let expected_ns = if opens_ns <= now_ns.into() {
                now_ns.into()
            } else {
                due_ns.min(first_ns + u128::from(bound_ns)).max(opens_ns.min(due_ns))
            };
            let what = format!("seed {seed}: {pace}, sleep {sleep_ns}, bound {bound_ns}");
            assert_eq!(u128::from(begun_ns), expected_ns, "{what}: {permits} after {now_ns}");
            now_ns = begun_ns;
        }
    }
}

/// Retry: the first instant at which the call is less than the shortest sleep early.
#[test]
fn retry_after_is_exact() {
    for text in ["3/s", "999983/s", "600000000/s"] {
        let (n, p) = fraction(rate(text));
        for sleep_ns in [0, 1, 10 * MS] {
            let mut limit = Ledger::new(pacer(rate(text), ns(sleep_ns), Some(ns(S))), 0);
            let mut taken = 0_u128;
            let free = limit.remaining(0);
            assert!(granted(limit.try_acquire(0, free)).is_some());
            assert_eq!(limit.remaining(0), 0);
            taken += u128::from(free);
            let after_ns = exact_retry(&limit, 0, 1, text);
            // Less than the sleep before `taken p / n`, or at it rounded up.
            let barely = (taken * p / n + 1).saturating_sub(sleep_ns.into());
            let exact = barely.min((taken * p).div_ceil(n));
            assert_eq!(u128::from(after_ns), exact, "{text}, sleep {sleep_ns}");
        }
    }
}

/// Change: the delay accumulated so far is a number of permits, and takes its time at the new
/// rate.
#[test]
fn a_change_keeps_the_delay_in_permits() {
    let of = |text| pacer(rate(text), ns(100 * MS), Some(ns(S)));
    let mut limit = Ledger::new(of("100/s"), 0);
    assert!(granted(limit.try_acquire(0, 10)).is_some());
    limit.reconfigure(0, of("50/s")).unwrap();
    // The eleventh is ten permits ahead: 100 ms at 100/s, 200 ms at 50/s.
    assert_eq!(start(limit.reserve(0, 1, None)), 200 * MS);
    limit.reconfigure(200 * MS, pacer(Rate::NEVER, ns(0), None)).unwrap();
    assert_eq!(limit.peek(300 * MS, 1), Ok(None));
    limit.reconfigure(900 * MS, pacer(rate("10/s"), ns(0), None)).unwrap();
    assert_eq!(start(limit.reserve(900 * MS, 1, None)), 1_000 * MS);
}

#[test]
fn misuse_is_an_error() {
    // 100 permits are caught up, and one is due now.
    let mut limit = Ledger::new(pacer(rate("100/s"), ns(10 * MS), Some(ns(S))), 0);
    assert_eq!(limit.try_acquire(0, 102), Err(ExceedsCapacity::new(102, 101)));
    assert!(start(limit.reserve(0, 101, None)) > 0);
}

/// A change to the very same numbers changes nothing.
#[test]
fn a_change_to_the_same_numbers_changes_nothing() {
    let pacer = pacer(rate("999999937/s"), ns(60 * S), Some(ns(S)));
    let mut limit = Ledger::new(pacer, 0);
    assert!(granted(limit.try_acquire(0, 59_000_000_000)).is_some());
    let before = limit.remaining(0);
    limit.reconfigure(0, pacer).unwrap();
    assert_eq!(limit.remaining(0), before);
}

/// A change between batches and another mode keeps what is due, and waits count from there again.
#[test]
fn a_change_of_the_mode_keeps_the_schedule() {
    let batched = pacer(rate("10/s"), ns(0), None);
    let average = TwoTimeline::new(rate("10/s"), Mode::Average, None);
    let mut limit = Ledger::new(batched, 0);
    for ms in [0, 100, 200] {
        assert_eq!(start(limit.reserve(0, 1, None)), ms * MS);
    }
    let mut next = |policy: TwoTimeline| {
        limit.reconfigure(550 * MS, policy).unwrap();
        let grant = granted(limit.reserve(550 * MS, 1, None)).unwrap();
        (grant.start_ns, grant.wait_ns())
    };
    assert_eq!(next(average), (550 * MS, 250 * MS), "due at 300 ms");
    assert_eq!(next(batched), (550 * MS, 0), "due at 400 ms, and asked for now");
    assert_eq!(next(average), (550 * MS, 50 * MS), "due at 500 ms");
    assert_eq!(next(average), (600 * MS, 0));
}

/// No reservation starts before a try would pass, also where an earlier rate has left less between
/// two operations than the bound on catching up.
#[test]
fn a_reservation_starts_no_sooner_than_a_try() {
    let of = |text| pacer(rate(text), ns(0), Some(ns(500 * MS)));
    let mut limit = Ledger::new(of("1/s"), 0);
    limit.reconfigure(500 * MS, of("2/s")).unwrap();
    let wait_ns = limit.peek(500 * MS, 2).unwrap().unwrap();
    assert!(wait_ns > 0 && start(limit.reserve(500 * MS, 2, None)) >= 500 * MS + wait_ns);
}

/// Waits count from the request, however long ago it came, also where nothing has to wait.
#[test]
fn a_wait_counts_from_the_request() {
    let mut limit = Ledger::new(pacer(Rate::UNLIMITED, ns(0), None), 0);
    limit.pass_to(5);
    let grant = limit.promise(0, NonZeroU64::MIN).unwrap();
    assert_eq!((grant.start_ns, grant.wait_ns()), (5, 5));
}
