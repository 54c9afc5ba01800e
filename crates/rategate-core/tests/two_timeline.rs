//! Tests of the `two_timeline` contract, against the recurrence written out in plain integers.

use crate::common::{
    MS, Profile, RATES, S, call, exact_retry, fraction, granted, ns, part, per, rate, retry,
    timeline, traffic,
};
use fastrand::Rng;
use rategate_core::error::{ExceedsCapacity, LimitError, RatioError};
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::saved::{RestoreContext, restore};
use rategate_core::schedule::{MAX_PIECES, Schedule};
use rategate_core::two_timeline::DampingShift;
use rategate_core::two_timeline::{Mode, State, TwoTimeline};
use rategate_core::verdict::{Grant, Verdict};

fn limit(text: &str, mode: Mode) -> Ledger {
    Ledger::new(TwoTimeline::new(rate(text), mode, None), 0)
}

fn reserve(limit: &mut Ledger, now_ns: u64) -> Grant {
    granted(limit.reserve(now_ns, 1, None)).unwrap()
}

fn burst(numerator: u64, denominator: u64) -> Mode {
    Mode::Burst(Ratio::new(numerator, denominator).unwrap())
}

/// Returns a mode of each kind: forfeited time is all caught up on, or none, or a part.
fn modes() -> [Mode; 4] {
    [Mode::Average, Mode::Strict, burst(3, 2), Mode::from_compensation(0.25).unwrap()]
}

fn backlog(limit: &Ledger, now_ns: u64) -> u64 {
    part::<TwoTimeline>(&limit).backlog_ns(part(&limit), now_ns)
}

/// S2.53, S2.37: strict, one microsecond late: the lost time never comes back, and all later
/// operations are late by it.
#[test]
fn strict_waits_stay() {
    let mut limit = limit("1000/s", Mode::Strict);
    let waits = [1_000; 5].map(|now_ns| reserve(&mut limit, now_ns).wait_ns());
    assert_eq!(waits, [1_000; 5]);
}

/// S2.54, S2.38, S2.36: one and a half times the rate, a millisecond late: faster than normal
/// only until the wait is back to zero.
#[test]
fn burst_waits_fall_to_zero() {
    let mut limit = limit("1000/s", burst(3, 2));
    let grants = [MS; 6].map(|now_ns| reserve(&mut limit, now_ns));
    let waits = grants.map(|grant| grant.wait_ns());
    assert_eq!(waits, [1_000_000, 666_666, 333_332, 0, 0, 0]);
    assert_eq!(grants[4].start_ns - grants[3].start_ns, MS);
}

/// S2.26: strict at 2000/s: no two operations less than 500_000 ns apart, whatever the arrivals.
#[test]
fn strict_spaces_every_two_operations() {
    for seed in 1..50 {
        let mut random = Rng::with_seed(seed);
        let mut limit = limit("2000/s", Mode::Strict);
        let (mut now_ns, mut last) = (0, None);
        for _ in 0..200 {
            now_ns += random.choice([0, 0, 100_000, 499_999, 500_000, 500_001, 5 * MS]).unwrap();
            let answer = if random.u64(..2) == 0 {
                limit.try_acquire(now_ns, 1)
            } else {
                limit.reserve(now_ns, 1, None)
            };
            let Some(grant) = granted(answer) else { continue };
            assert!(last.is_none_or(|last| grant.start_ns - last >= 500_000), "seed {seed}");
            last = Some(grant.start_ns);
        }
    }
}

/// S2.41, S2.35, S2.47, S2.36, S2.29, X2.11: with whole slices, each mode is its recurrence: an
/// ideal instant `i` a slice apart for ever, a start of `max(now, i)` pushed back by what was
/// forfeited, and a wait of start less `i`; an operation exactly on time proceeds.
#[test]
fn starts_and_waits_follow_the_recurrence() {
    for seed in 1..200 {
        let mut random = Rng::with_seed(seed);
        let slice = random.u64(1..=60);
        let pace = per(1, slice);
        let shift = random.u64(1..=5);
        let (mode, cap) = match random.u64(0..=3) {
            0 => (Mode::Average, None),
            1 => (Mode::Average, Some(random.u64(0..=300))),
            2 => (Mode::Strict, None),
            _ => (
                Mode::from_compensation(0.5_f64.powi(i32::try_from(shift).unwrap())).unwrap(),
                None,
            ),
        };
        let mut limit = Ledger::new(timeline(pace, mode, cap), 0);
        let (mut ideal, mut idle, mut now_ns, mut last_ns) = (0_u64, 0_u64, 0_u64, 0_u64);
        for step in 0..200 {
            now_ns += random.choice([0, 0, 0, slice, slice - 1, 7, 100, 2_000]).unwrap();
            let requested_ns = now_ns.max(last_ns);
            let due = ideal + idle;
            let begun = requested_ns.max(due);
            let reserves = random.u64(..2) == 0;
            if !reserves && begun > now_ns {
                assert_eq!(retry(limit.try_acquire(now_ns, 1)), begun - now_ns, "seed {seed}");
                continue;
            }
            let answer = call(&mut limit, reserves, now_ns, 1);
            let grant = granted(answer).unwrap();
            let what = format!("seed {seed}, step {step}: {mode:?} {cap:?} slice {slice}");
            assert_eq!((grant.start_ns, grant.scheduled_ns), (begun, ideal), "{what}");
            assert_eq!(grant.wait_ns(), begun - ideal, "{what}");
            let gap = begun - due;
            idle += match (mode, cap) {
                (Mode::Strict, _) => gap,
                (Mode::Damped { .. }, _) => gap >> shift,
                (_, Some(cap)) => gap.saturating_sub(cap),
                _ => 0,
            };
            ideal += slice;
            last_ns = begun;
        }
    }
}

/// S2.48, X2.5: operation p is scheduled at start + p / r, rounded down, and starts there rounded
/// up, exactly, for as long as the clock lasts and at every rate.
#[test]
fn ideal_instants_are_exact_at_every_rate() {
    for text in RATES {
        let (n, p) = fraction(rate(text));
        for mode in [Mode::Average, Mode::Strict] {
            let mut limit = limit(text, mode);
            for operation in 0..3_000_u128 {
                if operation * p / n > u128::from(u64::MAX) - 1 {
                    break;
                }
                let grant = reserve(&mut limit, 0);
                assert_eq!(u128::from(grant.scheduled_ns), operation * p / n, "{text}");
                assert_eq!(u128::from(grant.start_ns), (operation * p).div_ceil(n), "{text}");
            }
        }
        // A day's worth at a time.
        let mut limit = limit(text, Mode::Average);
        let permits = (86_400 * u128::from(S) * n / p).max(1);
        for call in 1..400 {
            let last = call * permits - 1;
            let Some(grant) = granted(limit.reserve(0, u64::try_from(permits).unwrap(), None))
            else {
                break;
            };
            assert_eq!(u128::from(grant.start_ns), (last * p).div_ceil(n), "{text}, call {call}");
        }
    }
}

/// S2.22, S2.27, S2.24: average catches up without limit, and the open timespan is the time left
/// to catch up on.
#[test]
fn average_catches_up_without_limit() {
    let mut limit = limit("1000/s", Mode::from_compensation(0.0).unwrap());
    assert_eq!(backlog(&limit, 0), 0);
    assert_eq!(backlog(&limit, 2 * S), 2 * S);
    let passed = (0..5_000).filter(|_| granted(limit.try_acquire(2 * S, 1)).is_some()).count();
    assert_eq!(passed, 2_001);
    assert_eq!(backlog(&limit, 2 * S), 0);
    assert_eq!(backlog(&limit, 3 * S), S - MS);
}

/// S2.23: a bound on catching up prevents bursts of many times the rate: `ceil((W + cap) / T)` in
/// any half-open window, for average and damped, weights included.
///
/// In batches the shortest sleep adds to the bound.
#[test]
fn a_bound_on_catching_up_holds_in_every_window() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let pace = per(random.u64(1..=9), random.u64(1..=90));
        let (n, p) = fraction(pace);
        let (cap_ns, min_sleep_ns) = (random.u64(0..=300), random.u64(0..=100));
        let damped = Mode::from_compensation(0.25).unwrap();
        let batched = Mode::Batched { min_sleep_ns };
        for (mode, early_ns) in [(Mode::Average, 0), (damped, 0), (batched, min_sleep_ns)] {
            let what = format!("seed {seed}: {pace} {mode:?} {cap_ns}");
            let mut limit = Ledger::new(timeline(pace, mode, Some(cap_ns)), 0);
            let is_possible = |&permits: &u64| limit.peek(0, permits).is_ok();
            let max = (1..10_000).take_while(is_possible).last().unwrap();
            assert_eq!(limit.try_acquire(0, max + 1), Err(ExceedsCapacity::new(max + 1, max)));
            let caught_up = u128::from(cap_ns) * n / p + 1;
            assert!(u128::from(max) == caught_up || mode == batched, "{what}: {max}");
            let pauses = [0, 0, 0, 2, 9, 60, 150, 1_000];
            let grants = traffic(&mut limit, &mut random, (200, &pauses, max));
            let reach_ns = u128::from(cap_ns + early_ns);
            // An ideal instant between two nanoseconds shows rounded up: one more of W.
            grants.assert_ceiling(&what, |window_ns| ((window_ns + reach_ns) * n).div_ceil(p));
        }
    }
}

/// Ceiling: strict `ceil(W / T)`, burst `ceil((W + 2 ns) b / T)`, at slices down to less than a
/// nanosecond.
///
/// Right from a change, bursts obey the new numbers, whatever the backlog.
#[test]
fn strict_and_burst_hold_in_every_window() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let is_strict = random.bool();
        let (mut limit, mut now_ns) = (limit("1/s", Mode::Strict), 0);
        for change in 0..8 {
            let pace = per(random.u64(1..=9), random.u64(1..=90));
            let (n, p) = fraction(pace);
            let down = random.u64(1..=10);
            let up = down + random.u64(0..=10);
            let (mode, b, a, two) = if is_strict {
                (Mode::Strict, 1, 1, 0)
            } else {
                (burst(up, down), u128::from(up), u128::from(down), 2)
            };
            let policy = timeline(pace, mode, random.bool().then(|| random.u64(0..=300)));
            if is_strict || change == 0 {
                limit.restart_as(now_ns, policy);
            } else {
                limit.reconfigure(now_ns, policy).unwrap();
            }
            assert_eq!(limit.try_acquire(now_ns, 2), Err(ExceedsCapacity::new(2, 1)));
            let pauses = [0, 0, 0, 1, 3, 60, 1_000];
            let grants = traffic(&mut limit, &mut random, (40, &pauses, 1));
            // No promise is left at the next change.
            now_ns = limit.clamp(grants.0.last().map_or(0, |&(start_ns, _)| start_ns));
            let what = format!("seed {seed}, change {change}: {pace} {mode:?}");
            grants.assert_ceiling(&what, |window_ns| ((window_ns + two) * n * b).div_ceil(p * a));
        }
    }
}

/// S2.30, S2.32: behind schedule, a burst mode runs at b times the rate and no faster, for as
/// long as the gap lasts: `ceil(w / (slice (1 - 1 / b)))` operations
/// (docs/theory.md, section 3.3).
#[test]
fn a_longer_gap_gives_a_longer_catch_up_at_the_same_speed() {
    for (up, down, late_ms) in
        [(3, 2, 10), (2, 1, 10), (2, 1, 100), (11, 10, 20), (23, 20, 7), (4, 1, 5)]
    {
        let mut limit = limit("1000/s", burst(up, down));
        let late_ns = late_ms * MS;
        let expected = late_ns * up / (up - down) / MS;
        let mut behind = 0_u64;
        let mut last_ns = None;
        loop {
            let grant = reserve(&mut limit, late_ns);
            let step_ns = last_ns.map(|last_ns| grant.start_ns - last_ns);
            last_ns = Some(grant.start_ns);
            assert!(step_ns.is_none_or(|step_ns| step_ns >= MS * down / up));
            if grant.wait_ns() <= 2 {
                break;
            }
            assert!(step_ns.is_none_or(|step_ns| step_ns <= MS * down / up + 2));
            behind += 1;
        }
        assert!(behind.abs_diff(expected) <= 1, "{up}/{down}: {behind} and not {expected}");
    }
}

/// Burst: the fraction of a step is paid in steps of two nanoseconds, and coming late pays it
/// too.
#[test]
fn the_fraction_of_a_step_is_paid_later_or_by_coming_late() {
    let mut limit = limit("1000/s", burst(3, 2));
    assert_eq!(reserve(&mut limit, 100 * MS).start_ns, 100 * MS);
    let starts = [110 * MS; 5].map(|now_ns| reserve(&mut limit, now_ns).start_ns);
    let steps: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps, [666_666, 666_666, 666_668, 666_666]);
}

/// S2.28: a damping is rounded down to a power of two; one over 2^i is a shift of i.
#[test]
fn dampings_are_powers_of_two() {
    for shift in 1..64 {
        let ratio = 0.5_f64.powi(shift);
        assert_eq!(
            DampingShift::from_ratio(ratio).map(DampingShift::get),
            Ok(shift.unsigned_abs())
        );
        assert_eq!(
            DampingShift::from_ratio(ratio * 1.25).map(DampingShift::get),
            Ok(shift.unsigned_abs())
        );
    }
    for (ratio, shift) in [
        (0.25, 2),
        (0.125, 3),
        (0.3, 2),
        (0.499, 2),
        (0.75, 1),
        (0.999, 1),
        (1e-30, 63),
        (f64::MIN_POSITIVE, 63),
    ] {
        assert_eq!(DampingShift::from_ratio(ratio).map(DampingShift::get), Ok(shift), "{ratio}");
    }
    for none in [0.0, 1.0, 1.5, -0.25, f64::NAN, f64::INFINITY] {
        assert_eq!(DampingShift::from_ratio(none), Err(LimitError::Damping));
    }
}

/// S2.25, S2.27, S2.29, S2.30, S2.31, X2.10: one knob from average over damped and strict to
/// burst, and each number is exactly one of them.
#[test]
fn the_knob_names_one_mode() {
    let mode = Mode::from_compensation;
    assert_eq!((mode(0.0), mode(-0.0)), (Ok(Mode::Average), Ok(Mode::Average)));
    assert_eq!(mode(1.0), Ok(Mode::Strict));
    let shift = DampingShift::from_ratio(0.25).unwrap();
    assert_eq!((mode(0.25), mode(0.3)), (Ok(Mode::Damped { shift }), Ok(Mode::Damped { shift })));
    assert_eq!((mode(1.1), mode(1.15)), (Ok(burst(11, 10)), Ok(burst(23, 20))));
    assert_eq!(mode(1.0001), Ok(burst(10_001, 10_000)));
    assert_eq!(mode(-0.1), Err(RatioError::BelowOne));
    assert!(mode(f64::NAN).is_err() && mode(f64::INFINITY).is_err() && mode(1e7).is_err());
}

/// S2.28: each late call forfeits a part of the gap it finds: after m of them at one instant,
/// what is left of a gap of G is about `G (1 - 2^-k)^m`, less their slices
/// (docs/theory.md, section 3.5).
#[test]
fn a_damped_gap_shrinks_by_its_share_at_each_call() {
    let mut limit = Ledger::new(
        TwoTimeline::new(rate("1/ns"), Mode::from_compensation(0.25).unwrap(), None),
        0,
    );
    let mut gap_ns = 1_000_000_u64;
    for call in 0..40 {
        assert_eq!(backlog(&limit, 1_000_000), gap_ns, "call {call}");
        assert_eq!(reserve(&mut limit, 1_000_000).scheduled_ns, call);
        gap_ns = (gap_ns - gap_ns / 4).saturating_sub(1);
    }
}

/// X2.9: forfeiting moves the dispatch timeline only; the wait continues to include it, until a
/// restart zeroes both.
#[test]
fn waits_tell_of_forfeited_time_until_a_restart() {
    let mut limit = limit("1000/s", Mode::Strict);
    assert_eq!(reserve(&mut limit, 5 * MS).wait_ns(), 5 * MS);
    assert_eq!(backlog(&limit, 6 * MS), 0);
    assert_eq!(reserve(&mut limit, 6 * MS).wait_ns(), 5 * MS);
    limit.restart(20 * MS);
    assert_eq!(reserve(&mut limit, 20 * MS).wait_ns(), 0);
    assert_eq!(reserve(&mut limit, 21 * MS).wait_ns(), 0);
}

/// S2.39: the rate changes again and again; the number of operations due by any time is the
/// integral of the rate, rounded down, plus the first: nothing lost, nothing gained.
#[test]
fn rate_changes_lose_nothing() {
    // Prime to 10, so that all count in the same fraction and nothing is rounded at all.
    let rates = [1, 3, 7, 999_983, 123_457, 3_000_000_007];
    for seed in 1..100 {
        let mut random = Rng::with_seed(seed);
        let policy = |per_s| TwoTimeline::new(Rate::per_second(per_s), Mode::Average, None);
        let mut per_s = random.choice(&rates).copied().unwrap();
        let mut limit = Ledger::new(policy(per_s), 0);
        let (mut now_ns, mut owed, mut taken) = (0_u64, 0_u128, 0_u128);
        for _ in 0..80 {
            let step_ns = random.choice([0, 1, 17, 1_000, MS, S, 3 * S]).unwrap();
            now_ns += step_ns;
            owed += u128::from(step_ns) * u128::from(per_s);
            let due = owed / u128::from(S) + 1 - taken;
            assert_eq!(u128::from(limit.remaining(now_ns)), due, "seed {seed} at {now_ns}");
            if random.u64(..2) == 0 && due > 0 {
                let permits = random.u64(1..=u64::try_from(due).unwrap());
                assert!(granted(limit.try_acquire(now_ns, permits)).is_some());
                taken += u128::from(permits);
            }
            if random.u64(..3) == 0 {
                per_s = random.choice(&rates).copied().unwrap();
                limit.reconfigure(now_ns, policy(per_s)).unwrap();
            }
        }
    }
}

/// S2.39: a hundred changes and more with nothing taken between: all due operations are still due,
/// none early, and the open timespan never jumps.
///
/// The pieces are fewer than the changes, so the oldest are joined.
#[test]
fn a_hundred_changes_keep_every_operation() {
    let policy = |per_s| timeline(Rate::per_second(per_s), Mode::Average, None);
    for seed in 1..20 {
        let mut random = Rng::with_seed(seed);
        let mut limit = Ledger::new(policy(1), 0);
        let (mut per_s, mut now_ns, mut owed) = (1_u64, 0, 0_u128);
        for _ in 0..3 * MAX_PIECES {
            let step_ns = random.u64(1..=3 * S);
            now_ns += step_ns;
            owed += u128::from(step_ns) * u128::from(per_s);
            per_s = random.choice([1, 3, 7, 11]).unwrap();
            let backlog_ns = backlog(&limit, now_ns);
            limit.reconfigure(now_ns, policy(per_s)).unwrap();
            assert_eq!(backlog(&limit, now_ns), backlog_ns, "seed {seed}");
        }
        let due = owed / u128::from(S) + 1;
        assert_eq!(u128::from(limit.remaining(now_ns)), due, "seed {seed}");
        let all = u64::try_from(due).unwrap();
        assert!(granted(limit.clone().try_acquire(now_ns, all)).is_some());
        let mut last_ns = 0;
        for _ in 0..all {
            let grant = reserve(&mut limit, now_ns);
            assert!(grant.start_ns == now_ns && grant.scheduled_ns >= last_ns, "seed {seed}");
            last_ns = grant.scheduled_ns;
        }
        assert!(reserve(&mut limit, now_ns).start_ns > now_ns, "seed {seed}");
    }
}

/// S2.39: EngineBlock's own figures: the total wait is 104_999 ns at the change, and ten more ten
/// nanoseconds later: continuous (docs/theory.md, section 3.7).
#[test]
fn waits_are_continuous_across_a_change() {
    let policy = |text| TwoTimeline::new(rate(text), Mode::Average, None);
    let mut limit = Ledger::new(policy("1000000/s"), 0);
    assert_eq!(reserve(&mut limit, 0).wait_ns(), 0);
    let changed_ns = 104_999 + 1_000;
    assert_eq!(backlog(&limit, changed_ns), 104_999);
    limit.reconfigure(changed_ns, policy("500/s")).unwrap();
    assert_eq!(backlog(&limit, changed_ns), 104_999);
    assert_eq!(backlog(&limit, changed_ns + 10), 105_009);
    assert_eq!(reserve(&mut limit, changed_ns + 10).wait_ns(), 105_009);
}

/// Change, in burst mode: no two operations come closer than the step of the numbers in force.
#[test]
fn a_change_in_burst_mode_keeps_the_distance() {
    let policy = |text| TwoTimeline::new(rate(text), burst(3, 2), None);
    let mut limit = Ledger::new(policy("1000/s"), 0);
    assert_eq!(reserve(&mut limit, S).start_ns, S);
    limit.reconfigure(S, policy("10/s")).unwrap();
    // Two thirds of 100 ms, rounded up by less than two nanoseconds.
    let next_ns = reserve(&mut limit, S).start_ns;
    assert!((S + 66_666_666..=S + 66_666_669).contains(&next_ns), "{next_ns}");
    let next_ns = next_ns + 1_000;
    limit.reconfigure(next_ns, policy("1000/s")).unwrap();
    let then_ns = reserve(&mut limit, next_ns).start_ns - next_ns;
    assert!((660_000..=666_669).contains(&then_ns), "{then_ns}");
}

/// Retry is exact, at every rate and in every mode.
#[test]
fn retry_after_is_exact() {
    for text in RATES {
        for mode in modes() {
            let mut limit = limit(text, mode);
            for now_ns in [0, 5, 1_000_000_007] {
                let mut passed = 0;
                while granted(limit.try_acquire(now_ns, 1)).is_some() {
                    let free = limit.remaining(now_ns);
                    if free > 100 {
                        assert!(granted(limit.try_acquire(now_ns, free)).is_some());
                    }
                    passed += 1;
                    assert!(passed < 1_000, "{text} {mode:?}: no end of permits at {now_ns}");
                }
                exact_retry(&limit, now_ns, 1, &format!("{text} {mode:?}"));
            }
        }
    }
}

/// The two ends of the rate.
#[test]
fn never_and_unlimited() {
    for mode in [Mode::Average, Mode::Strict, burst(2, 1)] {
        let mut never = limit("never", mode);
        let Ok(Verdict::Denied(denial)) = never.reserve(5, 1, None) else { panic!("never") };
        assert_eq!((denial.retry_after_ns, never.remaining(5)), (None, 0));
        let mut unlimited = limit("unlimited", mode);
        let grant = granted(unlimited.reserve(5, u64::MAX, None)).unwrap();
        assert_eq!((grant.start_ns, grant.wait_ns()), (5, 0));
        assert_eq!(unlimited.remaining(5), u64::MAX);
    }
}

/// With a bound, and the rate lowered after a silence: at most what the bound allows to accumulate
/// is earned at the old rate, and in batches one sleep's worth more.
#[test]
fn a_change_after_silence_ends_the_old_rate() {
    // In 5 s: what is caught up, and five or six at the new rate.
    for (mode, most) in
        [(Mode::Average, 1_001 + 6), (Mode::Batched { min_sleep_ns: 10 * MS }, 1_000 + 10)]
    {
        let policy = |text| timeline(rate(text), mode, Some(S));
        let mut limit = Ledger::new(policy("1000/s"), 0);
        limit.reconfigure(10 * S, policy("1/s")).unwrap();
        let (mut now_ns, mut passed) = (10 * S, 0);
        while now_ns < 15 * S {
            now_ns = reserve(&mut limit, now_ns).start_ns;
            passed += 1;
        }
        assert!(passed <= most, "{mode:?}: {passed} in 5 s");
    }
}

/// Ceiling and change, in the modes that forfeit time: the ceiling holds while the rate changes
/// again and again.
///
/// With and without a backlog, no span of starts contains more than its own rates earn over it
/// and over the bound before it, and in batches the last of them over the shortest sleep. Strict
/// mode has no bound before it: it holds right from the change.
#[test]
fn a_bound_on_catching_up_holds_across_changes() {
    for seed in 1..120 {
        let mut random = Rng::with_seed(seed);
        let (cap_ns, min_sleep_ns) = (random.u64(0..=300), random.u64(0..=100));
        let damped = Mode::from_compensation(0.25).unwrap();
        for (mode, cap, reach_ns, sleep_ns) in [
            (Mode::Strict, None, 0, 0),
            (Mode::Strict, Some(cap_ns), 0, 0),
            (Mode::Average, Some(cap_ns), cap_ns, 0),
            (damped, Some(cap_ns), cap_ns, 0),
            (Mode::Batched { min_sleep_ns }, Some(cap_ns), cap_ns, min_sleep_ns),
        ] {
            let mut profile = Profile::default();
            // The first rate reaches back to zero: the first permit is there from the start.
            let mut now_ns = 1_000;
            let policy = timeline(profile.draw(&mut random, 0), mode, cap);
            let mut limit = Ledger::new(policy, now_ns);
            // Start, permits, and the sixtieths in force.
            let mut grants = Vec::<(u64, u64, u128)>::new();
            for _ in 0..120 {
                now_ns += random.choice([0, 0, 0, 1, 7, 60, 200, 2_000]).unwrap();
                if random.u64(..2) == 0 {
                    // A promise from before the change is kept at any new rate.
                    now_ns = now_ns.max(grants.last().map_or(0, |&(start_ns, ..)| start_ns));
                    let policy = timeline(profile.draw(&mut random, now_ns), mode, cap);
                    limit.reconfigure(now_ns, policy).unwrap();
                }
                let reserves = random.u64(..3) == 0;
                let permits = if reserves { 1 } else { random.choice([1, 1, 2, 4]).unwrap() };
                if let Ok(Verdict::Granted(grant)) = call(&mut limit, reserves, now_ns, permits) {
                    grants.push((grant.start_ns, permits, profile.0.last().unwrap().1));
                }
            }
            for (first, &(from_ns, ..)) in grants.iter().enumerate() {
                let mut sum = 0;
                for &(to_ns, permits, sixtieths) in &grants[first..] {
                    sum += u128::from(permits);
                    // The first was due in the nanosecond before it, or at it: a schedule rounds
                    // up.
                    let brought = profile.integral(from_ns - 1 - reach_ns, to_ns)
                        + sixtieths * u128::from(sleep_ns);
                    assert!(
                        sum <= brought.div_ceil(60).max(1),
                        "seed {seed}: {mode:?} {cap:?}: {sum} in {from_ns}..={to_ns}: {profile:?}"
                    );
                }
            }
        }
    }
}

/// Change: an operation that was due by the change keeps its scheduled time, and where the mode
/// catches up at once, its start too.
///
/// In every mode the next one starts as it would have without the change.
#[test]
fn what_is_due_does_not_jump_at_a_change() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let mut profile = Profile::default();
        let mode = random.choice(modes()).unwrap();
        let cap = (random.u64(..2) == 0).then(|| random.u64(0..=300));
        let policy = timeline(profile.draw(&mut random, 0), mode, cap);
        let mut limit = Ledger::new(policy, 0);
        let mut now_ns = 0;
        for _ in 0..random.u64(0..=30) {
            now_ns += random.choice([0, 1, 7, 60, 300]).unwrap();
            let _ = limit.try_acquire(now_ns, 1);
        }
        // Past the last step of a burst, so that the next may start at once.
        now_ns += 120;
        let mut changed = limit.clone();
        changed
            .reconfigure(
                now_ns,
                TwoTimeline::new(profile.draw(&mut random, now_ns), mode, cap.map(ns)),
            )
            .unwrap();
        let at_once = matches!(mode, Mode::Average);
        for step in 0..200 {
            let (was, is) = (reserve(&mut limit, now_ns), reserve(&mut changed, now_ns));
            if was.scheduled_ns >= now_ns {
                break;
            }
            let what = format!("seed {seed}, step {step}: {mode:?} {cap:?}: {profile:?}");
            assert_eq!(was.scheduled_ns, is.scheduled_ns, "{what}");
            let due = step == 0 || (at_once && was.start_ns == now_ns);
            assert!(!due || was.start_ns == is.start_ns, "{what}: {was:?} {is:?}");
        }
    }
}

/// S2.39: on time, nothing is lost: a caller that comes as soon as it may starts operation k at
/// the first nanosecond by which the rate, however it changed, has earned k permits; in every
/// mode and under every bound.
#[test]
fn on_time_nothing_is_lost_across_changes() {
    for seed in 1..40 {
        let mut random = Rng::with_seed(seed);
        let mode = random.choice(modes()).unwrap();
        let cap = (random.u64(..2) == 0).then(|| random.u64(0..=300));
        // Prime to 10, as above, so that nothing is rounded.
        let rates = [1_000_003, 3_000_017, 123_457, 77_777_777];
        let policy = |per_s| timeline(Rate::per_second(per_s), mode, cap);
        let mut per_s = random.choice(&rates).copied().unwrap();
        let mut limit = Ledger::new(policy(per_s), 0);
        let (mut now_ns, mut owed, mut taken) = (0_u64, 0_u128, 0_u128);
        for _ in 0..60 {
            let changes_ns = now_ns + random.u64(0..=20_000);
            loop {
                let missing = (taken * u128::from(S)).saturating_sub(owed);
                let due_ns = now_ns + u64::try_from(missing.div_ceil(per_s.into())).unwrap();
                if due_ns > changes_ns {
                    break;
                }
                owed += u128::from(due_ns - now_ns) * u128::from(per_s);
                assert_eq!(
                    limit.peek(now_ns, 1),
                    Ok(Some(due_ns - now_ns)),
                    "seed {seed}: {mode:?} {cap:?}"
                );
                now_ns = due_ns;
                assert!(granted(limit.try_acquire(now_ns, 1)).is_some());
                taken += 1;
            }
            owed += u128::from(changes_ns - now_ns) * u128::from(per_s);
            now_ns = changes_ns;
            per_s = random.choice(&rates).copied().unwrap();
            limit.reconfigure(now_ns, policy(per_s)).unwrap();
        }
    }
}

/// Catch-up: time at a rate under which nothing was due counts as time at that rate, slow or
/// never.
#[test]
fn a_rate_without_operations_is_not_evicted() {
    let pace = |period_ns| per(1, period_ns);
    let average = |rate| TwoTimeline::new(rate, Mode::Average, Some(ns(10)));
    let passing = |limit: &mut Ledger, now_ns| {
        (0..20).filter(|_| granted(limit.try_acquire(now_ns, 1)).is_some()).count()
    };
    let mut limit = Ledger::new(average(pace(1)), 0);
    limit.reconfigure(100, average(pace(1_000))).unwrap();
    limit.reconfigure(110, average(pace(2_000))).unwrap();
    assert_eq!((limit.remaining(112), passing(&mut limit, 112)), (1, 1));

    let mut limit = Ledger::new(average(pace(1)), 0);
    limit.reconfigure(100, average(Rate::NEVER)).unwrap();
    limit.reconfigure(200, average(pace(1_000))).unwrap();
    assert_eq!((limit.remaining(205), passing(&mut limit, 205)), (1, 1));
}

/// Retry: several permits that a bound on catching up keeps from being due together wait until
/// they are, exactly, after a change and along a ramp.
#[test]
fn a_heavy_call_waits_until_the_bound_holds_it() {
    let pace = |period_ns| per(1, period_ns);
    let exact = |limit: &Ledger, now_ns: u64, permits: u64| {
        let wait_ns = limit.peek(now_ns, permits).unwrap().unwrap();
        let at = |now_ns: u64| granted(limit.clone().try_acquire(now_ns, permits));
        assert!(at(now_ns + wait_ns - 1).is_none());
        assert!(at(now_ns + wait_ns).is_some());
        let promised = granted(limit.clone().reserve(now_ns, permits, None)).unwrap();
        assert_eq!(promised.start_ns, now_ns + wait_ns);
    };
    let average = |rate| TwoTimeline::new(rate, Mode::Average, Some(ns(5)));
    let mut limit = Ledger::new(average(pace(20)), 0);
    limit.reconfigure(100, average(pace(4))).unwrap();
    exact(&limit, 100, 2);

    let ramp = Schedule::ramp(pace(1_000), pace(1), 10_000_000).unwrap();
    let limit = Ledger::new(TwoTimeline::on_schedule(ramp, Mode::Average, Some(ns(5))), 0);
    exact(&limit, 10_000, 6);
}

/// Damped: a caller that is never late gets the full rate, however many permits it takes at once.
#[test]
fn a_caller_on_time_forfeits_nothing() {
    let shift = DampingShift::from_ratio(0.5).unwrap();
    for permits in [1, 2, 10, 37] {
        let mode = Mode::Damped { shift };
        let mut limit = Ledger::new(TwoTimeline::new(rate("1000/s"), mode, None), 0);
        let mut now_ns = 0;
        for call in 1..=20 {
            now_ns = granted(limit.reserve(now_ns, permits, None)).unwrap().start_ns;
            assert_eq!(now_ns, (call * permits - 1) * MS, "{permits} at once, call {call}");
        }
    }
}

/// However often a rate comes and goes without an operation, a track keeps few pieces, and what is
/// saved of it can be restored.
#[test]
fn rates_without_operations_leave_no_pieces() {
    let of = |rate| timeline(rate, Mode::Strict, None);
    let mut limit = Ledger::new(of(per(1, S)), 0);
    let mut now_ns = 100 * S;
    assert!(granted(limit.try_acquire(now_ns, 1)).is_some(), "99 more stay on the ideal timeline");
    for _ in 0..200 {
        for rate in [Rate::NEVER, per(10, S)] {
            now_ns += MS;
            limit.reconfigure(now_ns, of(rate)).unwrap();
        }
    }
    let pieces = format!("{:?}", part::<State>(&limit)).matches("Piece {").count();
    assert!(pieces <= 2 * MAX_PIECES, "{pieces}");
    let since = RestoreContext { now_ns, elapsed_ns: 0 };
    assert!(restore(of(per(10, S)), &limit.save(now_ns), since).is_ok());
}
