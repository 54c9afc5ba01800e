//! Denials in debt: each names the first instant at which the same call passes, and it does.

use fastrand::Rng;
use rategate::calendar::CalendarSpec;
use rategate::charge::Debt;
use rategate::store::{Rule, Verdict};

use super::client::{StoreClient, wait_us};
use super::rules::{LABELS, NOW_US, SECOND_NS, bucket, log, window};
use super::{Arena, denied, granted};

/// A named set of limits, and the way in which its debts end.
type Case = (&'static str, Vec<Rule>, Debt);

/// The number of debts that a store keeps at a time: calendars then stay within the clock's range.
const DEBTS_AT_A_TIME: u64 = 200;

fn cases() -> Vec<Case> {
    let (bucket, odd) = (bucket("10/s", 7), bucket("7/3s", 5));
    let (window, grid) = (window(7, 3 * SECOND_NS), log(7, 3 * SECOND_NS, 10_000_000));
    let log = log(7, 3 * SECOND_NS, 1);
    let calendar = |unit: &str, zone: &str, anchor: &str| -> Rule {
        let spec = CalendarSpec::new(unit, zone).and_then(|spec| spec.anchored(anchor));
        spec.and_then(|spec| spec.quota(7)).unwrap().into()
    };
    let day = calendar("day", "America/New_York", "2026-01-01T02:30");
    let month = calendar("month", "Europe/Rome", "2026-01-31");
    vec![
        ("a bucket", vec![bucket], Debt::FORGOTTEN),
        ("an odd bucket", vec![odd], Debt::FORGOTTEN),
        ("a window", vec![window], Debt::FORGOTTEN),
        ("a window that carries", vec![window], Debt::CARRIED),
        ("days", vec![day], Debt::FORGOTTEN),
        ("days that carry", vec![day], Debt::CARRIED),
        ("months that carry", vec![month], Debt::CARRIED),
        ("a log", vec![log], Debt::FORGOTTEN),
        ("a log on a grid", vec![grid], Debt::FORGOTTEN),
        ("four together", vec![bucket, window, day, log], Debt::FORGOTTEN),
        ("three that carry", vec![bucket, window, month], Debt::CARRIED),
    ]
}

/// Plays each set of limits until it has denied that often in debt. Returns the number of denials.
///
/// Every denial of a debt names one instant. A microsecond before it the same call is denied with a
/// wait of a microsecond, and at it the call passes.
///
/// # Panics
///
/// Panics where the store is wrong.
pub fn suite(arena: &impl Arena, denials: u64) -> u64 {
    let mut all = 0;
    for (name, rules, debt) in cases() {
        let rules: Vec<(&str, Rule)> = LABELS.into_iter().zip(rules).collect();
        let (mut random, mut denied) = (Rng::with_seed(31), 0);
        while denied < denials {
            denied += play(arena, (name, &rules, debt), &mut random, denials - denied);
        }
        all += denied;
    }
    all
}

/// Plays some debts on an empty store, and returns how many calls were denied in debt.
fn play(
    arena: &impl Arena,
    (name, rules, debt): (&str, &[(&str, Rule)], Debt),
    random: &mut Rng,
    most: u64,
) -> u64 {
    let capacity = rules.iter().map(|(_, rule)| rule.capacity()).min().unwrap();
    let (mut now_us, mut count) = (NOW_US, 0);
    arena.set_now_us(now_us);
    let client = StoreClient::new(&arena.store(), rules, name);
    for _ in 0..DEBTS_AT_A_TIME {
        while client.charge(1 + random.u64(..capacity * 2), debt).unwrap().charged.debt == 0 {}
        let permits = 1 + random.u64(..capacity);
        let first = denied(client.decide(permits).unwrap());
        let passes_us = now_us + wait_us(first).unwrap();
        let mut left = 3;
        loop {
            let denial = denied(client.decide(permits).unwrap());
            assert_eq!(now_us + wait_us(denial).unwrap(), passes_us, "{name} at {now_us}");
            count += u64::from(denial.debt > 0);
            if left == 0 || count >= most {
                break;
            }
            left -= 1;
            now_us += random.u64(..passes_us - now_us);
            arena.set_now_us(now_us);
        }
        arena.set_now_us(passes_us - 1);
        let sooner = denied(client.decide(permits).unwrap());
        assert_eq!(wait_us(sooner), Some(1), "{name}: a microsecond before {passes_us}");
        now_us = passes_us;
        arena.set_now_us(now_us);
        let then = client.decide(permits).unwrap();
        assert!(matches!(then, Verdict::Granted(_)), "{name} at {passes_us}: {then:?}");
        assert_eq!(granted(then).permits, permits);
        if count >= most {
            break;
        }
    }
    count
}
