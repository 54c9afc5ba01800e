//! Tests that a packed state decides as the state itself does.

use crate::calendar::{grid, quota, random_borders};
use crate::common::{MS, S, bucket, log, ns, per, window};
use crate::packed_bucket::MAX_AHEAD;
use fastrand::Rng;
use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::calendar::Calendar;
use rategate_core::debt::Debt;
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::packed::{Packed, VALUE_BITS};
use rategate_core::verdict::Verdict;

fn policies(random: &mut Rng) -> AnyPolicy {
    let rate =
        random.choice(["1/s", "3/s", "7/10s", "1000/s", "12345/s", "1/d", "100000/1s"]).unwrap();
    let permits = random.choice([1, 2, 5, 1000, 40_000]).unwrap();
    let period_ns = random.choice([7, MS, S, 60 * S, 86_400 * S]).unwrap();
    match random.u64(0..=7) {
        0 | 1 => bucket(rate, permits).into(),
        2 => window(permits, period_ns).into(),
        3 => {
            let parts = random.choice([1, 7, 1000]).unwrap().min(period_ns);
            let log = log(permits, period_ns).with_parts(parts).unwrap();
            log.with_guard(ns(random.choice([0, 0, period_ns / 3]).unwrap())).unwrap().into()
        }
        4 => {
            let permits = random.choice([1, 3, 50, 2_000_000, (1 << 28) - 1]).unwrap();
            let unit_ns = random.choice([S, 60 * S, 3_600 * S]).unwrap();
            quota(permits, grid("random", random_borders(random, unit_ns))).into()
        }
        _ => any_bucket(random),
    }
}

/// Returns any bucket, of which not all fit.
fn any_bucket(random: &mut Rng) -> AnyPolicy {
    let permits = random.choice([1, 1, 3, 7, 1_000, 2_469, 300_239]).unwrap();
    let period_ns = random.choice([1, 7, MS, S, 10 * S, 86_400 * S]).unwrap() + random.u64(0..=1);
    let max = MAX_AHEAD / period_ns;
    let burst = random.choice([1, 2, 5, max / 2, max]).unwrap().max(1);
    Gcra::new(per(permits, period_ns), burst).unwrap().into()
}

#[test]
fn a_value_decides_as_its_state_does() {
    let (mut fit, mut over, mut crossed, mut waits, mut by_state) = (0, 0, 0, 0, 0);
    for seed in 0..12_000 {
        let mut random = Rng::with_seed(seed);
        let policy = policies(&mut random);
        let Some(numbers) = policy.packed() else { continue };
        let is_bucket = matches!(policy, AnyPolicy::Gcra(_));
        // A bucket is renewed within its fading time, and other values are not.
        let validity_ns = numbers.validity_ns();
        let widest_ns = if is_bucket { validity_ns } else { 90_000 * S };
        let step = random.choice([3, MS, S / 3, 3 * S, 90_000 * S, widest_ns]).unwrap();
        let step = step.min(if is_bucket { validity_ns } else { validity_ns / 2 });
        let mut now_ns = random.choice([0, 5 * S, 1 << 60, u64::MAX - 1000 * S]).unwrap();
        // The last window of a calendar never ends.
        let calendar = calendar_of(policy);
        let never_ends = |now_ns| calendar.is_some_and(|it| it.window(now_ns).end_ns == u64::MAX);
        if calendar.is_some() {
            now_ns = random.u64(0..=9 * S);
            // Another unused value of this second would equal it.
            let unused = numbers.full_at(now_ns);
            assert!(!numbers.is_full(unused, now_ns) && numbers.is_full(unused, now_ns + S));
        }
        let mut limit = Member::fresh(policy, now_ns);
        let mut value = numbers.full_at(now_ns);
        let context = format!("seed {seed}, {policy:?}");
        let (mut is_used, mut latest_ns) = (false, now_ns);
        for call in 0..80 {
            now_ns = match random.u64(0..=9) {
                // An unused value belongs to the instant at which it was made, and to no earlier
                // one.
                0 if is_used => now_ns.saturating_sub(random.u64(0..=step / 2)),
                1..=5 => now_ns.saturating_add(random.u64(0..=step)),
                _ => now_ns,
            };
            let context = format!("{context}, call {call} at {now_ns}");
            // A full bucket is renewed without any visible effect.
            if is_bucket && is_used && numbers.is_full(value, now_ns) {
                assert!(limit.is_as_fresh(now_ns), "{context}");
                value = numbers.full_at(now_ns);
                is_used = false;
            }
            let most = policy.max_at_once();
            let permits = random.choice([1, 1, 2, 3, most, most.div_ceil(2)]).unwrap();
            if never_ends(now_ns) {
                break;
            }
            if calendar.is_some() {
                owes_alike(numbers, value, &limit, now_ns);
            }
            if calendar.is_some() && random.u64(..10) == 0 {
                let Some(next) = charged(numbers, value, &mut limit, now_ns, permits) else {
                    break;
                };
                (value, is_used) = (next, true);
            }
            let mut after = Ledger::with_state(limit.clone(), 0);
            let verdict = after.try_acquire(now_ns, permits);
            let after = after.limits().only().unwrap();
            let remaining = limit.remaining(now_ns);
            assert_eq!(numbers.remaining(value, now_ns), remaining, "{context}");
            match (numbers.decide(value, now_ns, permits), verdict) {
                (Some(Ok(next)), Ok(Verdict::Granted(_))) => {
                    assert_eq!(
                        numbers.remaining(next, now_ns),
                        after.remaining(now_ns),
                        "{context}"
                    );
                    value = next;
                    limit = after.clone();
                    is_used = true;
                    fit += 1;
                }
                (Some(Err(wait_ns)), Ok(Verdict::Denied(denial))) => {
                    assert_eq!(Some(wait_ns), denial.retry_after_ns, "{context}");
                    waits += 1;
                }
                (None, Err(_)) => over += 1,
                // The first try of a window and of a key is decided by the state.
                (None, Ok(Verdict::Granted(_))) if calendar.is_some() => {
                    assert_eq!(numbers.fresh_in_ns(value, now_ns), Some(0), "{context}");
                    limit = after.clone();
                    value = limit.pack(now_ns).expect("a state that fits");
                    is_used = true;
                    by_state += 1;
                }
                // A state that does not fit stays unpacked until it fits again.
                (None, Ok(Verdict::Granted(_))) => {
                    assert_eq!(after.pack(now_ns), None, "{context}");
                    assert!(matches!(policy, AnyPolicy::SlidingLog(_)), "{context}");
                    crossed += 1;
                }
                (by_value, verdict) => panic!("{context}: {by_value:?}, {verdict:?}"),
            }
            is_as_full(numbers, value, &limit, now_ns, &context);
            // An earlier clock may be too far behind for it.
            latest_ns = latest_ns.max(now_ns);
            if (is_bucket || calendar.is_some()) && is_used && now_ns == latest_ns {
                is_exact(numbers, value, &limit, now_ns, &context);
            }
        }
    }
    assert!(fit > 90_000 && over > 10_000 && crossed > 1_000, "{fit} {over} {crossed}");
    assert!(waits > 40_000 && by_state > 2_000, "{waits} {by_state}");
}

/// Asserts that a state comes back from its value with as much left, and that a value that says so
/// is full.
fn is_as_full(numbers: Packed, value: u64, limit: &Member, now_ns: u64, context: &str) {
    let Some(again) = limit.pack(now_ns) else { return };
    let wide = Member::unpack(limit.policy(), again, now_ns).unwrap();
    assert_eq!(wide.remaining(now_ns), limit.remaining(now_ns), "{context}");
    if numbers.is_full(value, now_ns) {
        assert!(limit.is_as_fresh(now_ns), "{context}");
    }
    let full_ns = numbers.full_after(value, now_ns);
    assert!(limit.is_as_fresh(full_ns) || full_ns == u64::MAX, "{context}");
}

fn calendar_of(policy: AnyPolicy) -> Option<Calendar> {
    if let AnyPolicy::FixedWindow(window) = policy { window.calendar() } else { None }
}

fn owes_alike(numbers: Packed, value: u64, limit: &Member, now_ns: u64) {
    let ledger = Ledger::with_state(limit.clone(), 0);
    assert_eq!(numbers.debt(value, now_ns), ledger.debt(now_ns));
    let debt_ends_ns = ledger.debt_ends_in_ns(now_ns).unwrap_or(u64::MAX - now_ns);
    assert_eq!(numbers.debt_ends_in_ns(value, now_ns), debt_ends_ns);
}

/// Charges a calendar's limit and its value alike. Returns the next value, if one can hold the
/// count.
fn charged(
    numbers: Packed,
    value: u64,
    limit: &mut Member,
    now_ns: u64,
    permits: u64,
) -> Option<u64> {
    let mut ledger = Ledger::with_state(limit.clone(), 0);
    assert_eq!(numbers.charge(value, now_ns, 1, Debt::CARRIED), None);
    let charged = ledger.charge(now_ns, permits, Debt::FORGOTTEN).unwrap();
    *limit = ledger.limits().only().unwrap().clone();
    match numbers.charge(value, now_ns, permits, Debt::FORGOTTEN) {
        Some((value, by_value)) => {
            assert_eq!(by_value, charged);
            Some(value)
        }
        None => limit.pack(now_ns),
    }
}

/// Asserts that a value is the state of a bucket, or of a window of a calendar, to the nanosecond: it is full at the policy's
/// instant, and for a moment since a nanosecond later, and comes back as it was.
fn is_exact(numbers: Packed, value: u64, limit: &Member, now_ns: u64, context: &str) {
    let Some(fresh_ns) = limit.fresh_at_ns() else { return };
    assert_eq!(numbers.full_after(value, now_ns), fresh_ns.max(now_ns), "{context}");
    if fresh_ns > now_ns {
        assert!(!numbers.is_full(value, fresh_ns - 1), "{context}");
        let then_ns = fresh_ns.saturating_add(1);
        assert!(then_ns == fresh_ns || numbers.is_full(value, then_ns), "{context}");
    }
    if !numbers.is_full(value, now_ns) {
        let unpacked = Member::unpack(limit.policy(), value, now_ns).unwrap();
        assert_eq!(unpacked.pack(now_ns), Some(value), "{context}");
        if calendar_of(limit.policy()).is_some() {
            assert_eq!(unpacked, *limit, "{context}");
            assert!(numbers.is_full(value, fresh_ns), "{context}");
        }
    }
    assert!(value < 1 << VALUE_BITS, "{context}");
}

/// A later owner of a slot writes no value that an earlier one wrote, so a change of owner can be
/// detected.
#[test]
fn no_later_owner_writes_the_value_of_an_earlier_one() {
    for seed in 0..3_000 {
        let mut random = Rng::with_seed(seed);
        let policy = policies(&mut random);
        let Some(numbers) = policy.packed() else { continue };
        let mut now_ns = random.u64(0..=5 * S);
        let mut seen = vec![numbers.full_at(now_ns)];
        let mut value = numbers.full_at(now_ns);
        for _ in 0..20 {
            if let Some(Ok(next)) = numbers.decide(value, now_ns, 1) {
                value = next;
                seen.push(value);
            }
            now_ns += random.u64(0..=3);
        }
        let from_ns = numbers.full_after(value, now_ns).saturating_sub(1);
        // For an unused limit, not before the next point of the grid.
        let later_ns = (from_ns..from_ns + 10)
            .find(|&at_ns| numbers.is_full(value, at_ns))
            .unwrap_or(from_ns + 86_400 * S + 2);
        assert!(numbers.is_full(value, later_ns), "seed {seed}, {policy:?}");
        let mut value = numbers.full_at(later_ns);
        for at_ns in later_ns..later_ns + 20 {
            assert!(!seen.contains(&value), "seed {seed}, {policy:?}");
            if let Some(Ok(next)) = numbers.decide(value, at_ns, 1) {
                value = next;
            }
        }
    }
}
