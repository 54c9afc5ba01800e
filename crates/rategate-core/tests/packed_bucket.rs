//! Tests that a packed bucket decides as its policy does, to the nanosecond, and of the borders
//! within which it fits.
//!
//! The value has to be checked before it fades.

use std::num::NonZeroU64;

use crate::common::{MS, S, part, per};
use fastrand::Rng;
use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::packed::{Packed, VALUE_BITS};
use rategate_core::policy::Policy;
use rategate_core::verdict::Verdict;

/// The maximum distance of a TAT ahead of the clock, in parts, and the parts after which a value
/// fades.
const MAX_AHEAD: u64 = 1 << 55;
const VALIDITY: u64 = 1 << 54;
const MINUTE: u64 = 60 * S;

fn gcra(permits: u64, period_ns: u64, burst: u64) -> Gcra {
    Gcra::new(per(permits, period_ns), burst).unwrap()
}

/// Returns any bucket that fits.
fn any(random: &mut Rng) -> (Gcra, Packed) {
    loop {
        let permits = random.choice([1, 1, 3, 7, 1_000, 2_469, 300_239]).unwrap();
        let period_ns =
            random.choice([1, 7, MS, S, 10 * S, 86_400 * S]).unwrap() + random.u64(0..=1);
        let max = MAX_AHEAD / period_ns.max(1);
        let burst = random.choice([1, 2, 5, max / 2, max]).unwrap().max(1);
        let policy = gcra(permits, period_ns, burst);
        if let Some(numbers) = AnyPolicy::from(policy).packed() {
            return (policy, numbers);
        }
    }
}

fn packed(policy: Gcra) -> Option<Packed> {
    AnyPolicy::from(policy).packed()
}

/// The result of a try, by a ledger or a value.
type Reported = Result<(u64, u64), u64>;

fn of_ledger(ledger: &mut Ledger, now_ns: u64, permits: u64) -> Option<Reported> {
    match ledger.try_acquire(now_ns, permits).ok()? {
        Verdict::Granted(grant) => Some(Ok((grant.start_ns, ledger.remaining(now_ns)))),
        Verdict::Denied(denial) => Some(Err(denial.retry_after_ns?.get())),
    }
}

fn of_value(numbers: Packed, value: &mut u64, now_ns: u64, permits: u64) -> Option<Reported> {
    Some(match numbers.decide(*value, now_ns, permits)? {
        Ok(next) => {
            *value = next;
            Ok((now_ns, numbers.remaining(next, now_ns)))
        }
        Err(retry_after_ns) => Err(retry_after_ns.get()),
    })
}

#[test]
fn a_value_decides_as_its_policy() {
    let (mut granted, mut denied) = (0, 0);
    for seed in 0..4_000 {
        let mut random = Rng::with_seed(seed);
        let (policy, numbers) = any(&mut random);
        let mut now_ns = random.choice([0, 5, S, 1 << 40, 1 << 62]).unwrap();
        let mut ledger = Ledger::new(policy, now_ns);
        let mut value = ledger.limits().only().unwrap().pack(now_ns).unwrap();
        let burst = policy.burst_size().get();
        for call in 0..60 {
            let what = format!("seed {seed}, call {call}: {policy:?} at {now_ns}");
            let validity_ns = numbers.validity_ns();
            let step =
                random.choice([0, 1, 7, MS, S, 60 * S, validity_ns / 2, validity_ns]).unwrap();
            now_ns = now_ns.saturating_add(random.u64(0..=step.min(validity_ns))).min(u64::MAX / 2);
            // Within its fading time a full bucket is renewed, without any visible effect.
            if numbers.is_full(value, now_ns) {
                assert!(policy.is_as_fresh(part(&ledger), now_ns), "{what}");
                value = numbers.full_at(now_ns);
            }
            let permits = random.choice([1, 1, 2, burst, burst.div_ceil(2)]).unwrap();
            assert_eq!(ledger.remaining(now_ns), numbers.remaining(value, now_ns), "{what}");
            let ideal = of_ledger(&mut ledger, now_ns, permits);
            assert_eq!(ideal, of_value(numbers, &mut value, now_ns, permits), "{what}");
            match ideal {
                Some(Ok(_)) => granted += 1,
                Some(Err(_)) => denied += 1,
                None => {}
            }
            // Full at the policy's instant, and for a moment since a nanosecond later.
            let fresh_ns = policy.fresh_at_ns(part(&ledger)).unwrap();
            assert_eq!(numbers.full_after(value, now_ns), fresh_ns.max(now_ns), "{what}");
            if fresh_ns > now_ns {
                assert!(!numbers.is_full(value, fresh_ns - 1), "{what}");
                assert!(numbers.is_full(value, fresh_ns + 1), "{what}");
            }
            // Unpacked and packed again, exactly.
            let limit = Member::unpack(policy.into(), value, now_ns).unwrap();
            assert_eq!(limit.pack(now_ns), Some(value), "{what}");
            assert_eq!(limit.remaining(now_ns), ledger.remaining(now_ns), "{what}");
            assert!(value < 1 << VALUE_BITS);
        }
    }
    assert!(granted > 40_000 && denied > 40_000, "{granted} {denied}");
}

/// A value does not decide about zero permits, or about more than could ever pass.
#[test]
fn what_a_value_does_not_say() {
    let numbers = packed(gcra(1, S, 3)).unwrap();
    let value = numbers.full_at(7);
    assert!(numbers.decide(value, 7, 0).is_none());
    assert!(numbers.decide(value, 7, 3).is_some());
    assert!(numbers.decide(value, 7, 4).is_none());
    assert!(numbers.decide(value, 7, u64::MAX).is_none());
    // Torn numbers never cause a panic.
    for fields in [
        [0; 5],
        [u64::MAX; 5],
        [0, 0, u64::MAX, 1, 7],
        [0, 1, 0, 0, 0],
        [0, u64::MAX, 1, u64::MAX, 0],
        [1, 0, 0, 0, 0],
        [1, 0, u64::MAX, u64::MAX, 1],
        [1, u64::MAX, 1, u64::MAX >> 36, 0],
    ] {
        let torn = Packed::from_fields(fields);
        for value in [0, 1, (1 << VALUE_BITS) - 1, u64::MAX] {
            for now_ns in [0, 7, u64::MAX] {
                let _ = (torn.decide(value, now_ns, 1), torn.remaining(value, now_ns));
                let _ = (torn.full_after(value, now_ns), torn.is_full(value, now_ns));
                let _ = (torn.validity_ns(), torn.full_at(now_ns));
            }
        }
    }
}

/// A burst of 2^55 parts fits and one of a part more does not; values fade in a minute or more.
#[test]
fn what_fits() {
    assert!(packed(gcra(1, 1, MAX_AHEAD)).is_some());
    assert!(packed(gcra(1, 1, MAX_AHEAD + 1)).is_none());
    assert!(packed(gcra(1, MAX_AHEAD, 1)).is_some());
    assert!(packed(gcra(1, MAX_AHEAD + 1, 1)).is_none());
    let max_parts = VALIDITY / MINUTE;
    assert_eq!(max_parts, 300_239);
    let fastest = packed(gcra(max_parts, 1, 1)).unwrap();
    assert!(fastest.validity_ns() >= MINUTE);
    assert!(packed(gcra(max_parts + 1, 1, 1)).is_none());
    assert_eq!(packed(gcra(1, S, 1)).unwrap().validity_ns(), VALIDITY);
    for rate in ["never", "unlimited"] {
        assert!(packed(Gcra::new(rate.parse().unwrap(), 1).unwrap()).is_none());
    }
}

/// A burst of the maximum size is read correctly until it is full, and from then on until the
/// value fades.
///
/// The state of a key that owes more does not fit.
#[test]
fn how_far_a_value_reaches() {
    let policy = gcra(1, 1, MAX_AHEAD);
    let numbers = packed(policy).unwrap();
    let now_ns = 1 << 61;
    let value = numbers.decide(numbers.full_at(now_ns), now_ns, MAX_AHEAD).unwrap().unwrap();
    assert_eq!(numbers.remaining(value, now_ns), 0);
    let full_ns = now_ns + MAX_AHEAD;
    assert_eq!(numbers.full_after(value, now_ns), full_ns);
    // To a clock that is set back by the fading time, the value is still ahead.
    assert_eq!(numbers.remaining(value, now_ns - VALIDITY), 0);
    assert!(!numbers.is_full(value, full_ns));
    for behind_ns in [1, VALIDITY, 2 * VALIDITY, 4 * VALIDITY - 1, 4 * VALIDITY] {
        assert!(numbers.is_full(value, full_ns + behind_ns), "{behind_ns}");
    }
    assert!(!numbers.is_full(value, full_ns + 4 * VALIDITY + 1), "it has come round");

    let mut ledger = Ledger::new(policy, now_ns);
    let all = NonZeroU64::new(MAX_AHEAD).unwrap();
    ledger.book(now_ns, now_ns, all);
    assert!(ledger.limits().only().unwrap().pack(now_ns).is_some());
    assert!(ledger.limits().only().unwrap().pack(now_ns - 1).is_none());
}
