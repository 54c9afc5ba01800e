//! Tests of the borders within which a packed bucket fits, and of how far its value reaches.
//!
//! The value has to be checked before it fades.

use std::num::NonZeroU64;

use crate::common::{S, per};
use rategate_core::any_policy::AnyPolicy;
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::packed::{Packed, VALUE_BITS};

/// The maximum distance of a TAT ahead of the clock, in parts, and the parts after which a value
/// fades.
pub(crate) const MAX_AHEAD: u64 = 1 << 55;
const VALIDITY: u64 = 1 << 54;
const MINUTE: u64 = 60 * S;

fn gcra(permits: u64, period_ns: u64, burst: u64) -> Gcra {
    Gcra::new(per(permits, period_ns), burst).unwrap()
}

fn packed(policy: Gcra) -> Option<Packed> {
    AnyPolicy::from(policy).packed()
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
