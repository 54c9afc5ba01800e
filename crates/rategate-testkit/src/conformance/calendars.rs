//! Calendar quotas, on which a store decides as the core does: over changes of a zone's clocks, the
//! ends of months, and a day that did not exist.

use std::time::Duration;

use rategate::calendar::CalendarSpec;
use rategate::charge::Debt;
use rategate::store::Rule;

use super::Arena;
use super::rules::{LABELS, bucket};
use super::traffic::Traffic;

const HOUR_US: u64 = 3_600_000_000;
const DAY_US: u64 = 24 * HOUR_US;

/// A quota: its name, unit and zone, anchor, units in a window, permits, the time of one permit
/// about, the begin of the traffic in seconds since 1970, and the number of steps.
type Case = (&'static str, &'static str, &'static str, u32, u64, u64, u64, u64);

const CASES: [Case; 8] = [
    ("day", "Pacific/Apia", "2000-01-01", 1, 9, 2 * HOUR_US, 1_324_340_000, 400),
    ("day", "America/New_York", "2000-01-01T02:30", 1, 8, 2 * HOUR_US, 1_772_000_000, 600),
    ("day", "Australia/Lord_Howe", "2000-01-01", 1, 7, 2 * HOUR_US, 1_774_500_000, 400),
    ("week", "Europe/London", "1970-01-05", 1, 9, 12 * HOUR_US, 1_790_000_000, 400),
    ("month", "Europe/Rome", "2026-01-31", 1, 9, 2 * DAY_US, 1_767_200_000, 600),
    ("month", "America/Sao_Paulo", "1999-12-31T23:30", 2, 12, 3 * DAY_US, 1_500_000_000, 400),
    ("quarter", "Asia/Kathmandu", "1970-01-01", 1, 10, 6 * DAY_US, 1_790_000_000, 400),
    ("year", "Asia/Tehran", "2024-02-29T02:30", 1, 12, 15 * DAY_US, 900_000_000, 200),
];

/// Plays decisions, refunds and credits on all quotas, and on one together with other limits.
/// Returns the number of decisions that were compared.
///
/// # Panics
///
/// Panics where the store decides otherwise than the core.
pub fn suite(arena: &impl Arena) -> u64 {
    let alone = cases().map(|(name, quota, typical_us, begin, steps)| {
        let traffic = Traffic::new(arena, &name, &[("a", quota)], begin, None);
        traffic.play(typical_us, steps)
    });
    let compared = alone.sum::<u64>();
    let Some((_, quota, typical_us, begin, steps)) =
        cases().next().filter(|_| arena.supports_several_limits())
    else {
        return compared;
    };
    let both: Vec<(&str, Rule)> = LABELS.into_iter().zip([quota, bucket("1/h", 3)]).collect();
    let traffic = Traffic::new(arena, "a day and a bucket", &both, begin, None);
    compared + traffic.play(typical_us, 2 * steps)
}

/// Plays all quotas with charges among the calls, for each way in which a debt ends. Returns the
/// number of decisions and charges that were compared.
///
/// # Panics
///
/// Panics where the store decides otherwise than the core.
pub fn charges(arena: &impl Arena) -> u64 {
    let played = cases().flat_map(|(name, quota, typical_us, begin, steps)| {
        let some = Duration::from_micros(typical_us * 7);
        [Debt::FORGOTTEN, Debt::CARRIED, Debt::CARRIED.at_most(some)].map(|debt| {
            let name = format!("{name}, {debt:?}");
            let traffic = Traffic::new(arena, &name, &[("a", quota)], begin, Some(debt));
            traffic.play(typical_us, 2 * steps)
        })
    });
    played.sum()
}

pub(super) fn cases() -> impl Iterator<Item = (String, Rule, u64, (u64, u64), u64)> {
    let all = (1..).zip(CASES);
    all.map(|(seed, (unit, zone, anchor, every, permits, typical_us, from_s, steps))| {
        let spec = CalendarSpec::new(unit, zone).and_then(|spec| spec.anchored(anchor));
        let quota = spec.and_then(|spec| spec.every(every)?.quota(permits)).unwrap();
        let begin = (seed, from_s * 1_000_000 + 123_457);
        let name = format!("{every} {unit} in {zone}");
        (name, quota.into(), typical_us, begin, steps)
    })
}
