//! Calendar quotas in a store: callers whose clocks are wrong, clocks that go back, other rules of
//! a zone, and changed limits. Random traffic is compared with the core in `suite`.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::store::{Store, denied, granted, key};
use crate::common::value;
use fastrand::Rng;
use rategate::calendar::CalendarSpec;
use rategate::charge::Debt;
use rategate::store::{ReservationEnd, ReservationId, Verdict};
use rategate_core::calendar::{Calendar, Grid, Window};
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::ledger::Ledger;
use rategate_redis::batch::{Batch, Extra};
use rategate_redis::charge::Charges;
use rategate_redis::command::Settings;
use rategate_redis::key::Key;
use rategate_redis::library::Library;
use rategate_redis::limit::Limit;
use rategate_redis::plan::Plan;
use rategate_redis::refusal::ServerRefusal;
use rategate_redis::reserve::{Ends, Estimates};
use rategate_testkit::oracle::Oracle;
use rategate_testkit::redis::Reply;

const MINUTE_US: u64 = 60_000_000;
const HOUR_US: u64 = 60 * MINUTE_US;
const DAY_US: u64 = 24 * HOUR_US;
/// Noon of 31 January 2026 in UTC.
const NOW_US: u64 = 1_769_860_800_000_000;

fn quota(unit: &str, zone: &str, permits: u64) -> FixedWindow {
    CalendarSpec::new(unit, zone).unwrap().quota(permits).unwrap()
}

fn plan_of(quota: &FixedWindow) -> Plan {
    Plan::new([("quota", Limit::fixed_window(quota).unwrap())]).unwrap()
}

fn wait_us(verdict: Verdict) -> u64 {
    denied(verdict).retry_after_ns.unwrap().get() / 1_000
}

/// A caller whose clock is wrong, and who sends a call again if the store says its time.
struct Caller {
    ahead_us: i64,
    /// The number of calls that were sent again.
    again: u64,
}

impl Caller {
    fn try_acquire(&mut self, store: &mut Store, plan: &Plan, key: &Key, now_us: u64) -> Verdict {
        let mut batch = Batch::new();
        batch.try_acquire(plan, key, 1, Extra::default()).unwrap();
        for _ in 0..2 {
            let around_us = now_us.checked_add_signed(self.ahead_us).unwrap();
            let command = batch.decide(Settings::around_us(around_us)).at_us(now_us);
            let reply = store.client.call(&command.fcall(Library::DEBUG));
            let Reply::Error(line) = reply else {
                let mut content = batch.read(&value(&reply)).unwrap().content;
                return content.remove(0).unwrap();
            };
            let ServerRefusal::OtherTime { now_us: named_us } = ServerRefusal::of(&line) else {
                panic!("{line}");
            };
            assert_eq!(named_us, now_us, "the store says its time");
            self.again += 1;
            self.ahead_us = 0;
        }
        panic!("a call around the store's time was refused twice");
    }
}

/// Callers whose clocks are wrong by minutes, around borders of daylight saving time and of months,
/// decide as one counter on the store's clock. One whose clock is wrong by months learns the time.
#[test]
fn callers_with_wrong_clocks_count_together() {
    let minutes = |count: i64| count * 60_000_000;
    for mut store in Store::each() {
        for (unit, zone, from_us) in [
            ("day", "America/New_York", 1_772_900_000_000_000),
            ("day", "Australia/Lord_Howe", 1_775_200_000_000_000),
            ("month", "Europe/Rome", 1_774_900_000_000_000),
        ] {
            let (quota, name) = (quota(unit, zone, 20), format!("{unit} in {zone}"));
            let (plan, key) = (plan_of(&quota), key(&name));
            let mut oracle = Oracle::new([quota.into()], from_us * 1_000);
            let mut callers = [minutes(-7), minutes(11), 0, minutes(150 * 1_440)]
                .map(|ahead_us| Caller { ahead_us, again: 0 });
            let (mut random, mut now_us) = (Rng::with_seed(11), from_us);
            for step in 0..1_500 {
                // Most calls are made within ten minutes of a border.
                let end_ns = now_us * 1_000 + quota.border_in_ns(now_us * 1_000, 1);
                let end_us = end_ns / 1_000;
                now_us = match random.u64(..40) {
                    0 => now_us.max(end_us.saturating_sub(random.u64(..10 * MINUTE_US))),
                    _ => now_us + random.u64(..MINUTE_US),
                };
                let caller = &mut callers[random.usize(..4)];
                let seen = caller.try_acquire(&mut store, &plan, &key, now_us);
                let expected = oracle.decide(now_us * 1_000, 1);
                match (seen, expected) {
                    (Verdict::Granted(grant), Ok(theirs)) => {
                        assert_eq!(grant.remaining, theirs.remaining, "{name}, step {step}");
                        let ends_ns = grant.window_ends_in_ns.unwrap();
                        assert_eq!(ends_ns, quota.border_in_ns(now_us * 1_000, 1));
                    }
                    (Verdict::Denied(denial), Err(theirs)) => {
                        let wait_ns = denial.retry_after_ns.unwrap().get();
                        assert_eq!(wait_ns, theirs.wait_ns, "{name}, step {step}");
                    }
                    (seen, expected) => panic!("{name}, step {step}: {seen:?}, {expected:?}"),
                }
            }
            let again = callers.map(|caller| caller.again);
            assert_eq!(again, [0, 0, 0, 1], "{name}");
        }
    }
}

/// Behind the horizon the newest window goes on. Beyond it the quota counts as used up, until the
/// border of the store's clock.
#[test]
fn a_clock_that_goes_back_grants_no_more() {
    for mut store in Store::each() {
        let quota = quota("day", "UTC", 3);
        let (plan, key) = (plan_of(&quota), key("k"));
        let midnight_us = NOW_US + 12 * HOUR_US;
        granted(store.try_acquire(&plan, &key, 2, midnight_us + 1));
        let before_us = midnight_us - MINUTE_US / 2;
        granted(store.try_acquire(&plan, &key, 1, before_us));
        let wait = wait_us(store.try_acquire(&plan, &key, 1, before_us));
        assert_eq!(before_us + wait, midnight_us + DAY_US, "the newest window's end");
        // Two days and more behind the start of its window, the state is not believed.
        let earlier_us = midnight_us - 2 * DAY_US;
        let wait = wait_us(store.try_acquire(&plan, &key, 1, earlier_us));
        assert_eq!(earlier_us + wait, midnight_us - DAY_US, "used up until the border");
        granted(store.try_acquire(&plan, &key, 3, midnight_us - DAY_US));
    }
}

/// A zone with one border, which later rules move.
#[derive(Debug)]
struct Zone {
    border_us: u64,
}

impl Grid for Zone {
    fn text(&self) -> &'static str {
        "day in Some/Where from 1970-01-01T00:00:00 every 1"
    }

    fn window(&self, at_ns: u64) -> Window {
        let border_ns = self.border_us * 1_000;
        let day_ns = DAY_US * 1_000;
        let first = border_ns % day_ns;
        let number = (at_ns + day_ns - first) / day_ns;
        let start_ns = (number * day_ns + first).saturating_sub(day_ns);
        Window { start_ns, end_ns: number * day_ns + first, number }
    }

    fn start_of(&self, number: u64) -> Option<u64> {
        let (border_ns, day_ns) = (self.border_us * 1_000, DAY_US * 1_000);
        Some((number * day_ns + border_ns % day_ns).saturating_sub(day_ns))
    }
}

/// Callers with two versions of a zone's rules share a count until the window ends as its first
/// caller said. From then on it ends as its own first caller says.
#[test]
fn callers_with_other_rules_of_the_zone_share_a_window() {
    static OLD: Zone = Zone { border_us: NOW_US };
    static NEW: Zone = Zone { border_us: NOW_US + HOUR_US };
    for mut store in Store::each() {
        let of = |zone: &'static Zone| {
            plan_of(&FixedWindow::of_calendar(3, Calendar::new(zone)).unwrap())
        };
        let [old, new] = [&OLD, &NEW].map(of);
        let key = key("k");
        granted(store.try_acquire(&old, &key, 2, NOW_US));
        granted(store.try_acquire(&new, &key, 1, NOW_US + 1));
        for plan in [&old, &new] {
            let wait = wait_us(store.try_acquire(plan, &key, 1, NOW_US + 2));
            assert_eq!(NOW_US + 2 + wait, NOW_US + DAY_US, "the end by the first caller's rules");
        }
        // The window before the border of the new rules is an hour long.
        granted(store.try_acquire(&new, &key, 3, NOW_US + DAY_US));
        for plan in [&old, &new] {
            let wait = wait_us(store.try_acquire(plan, &key, 1, NOW_US + DAY_US + 1));
            assert_eq!(1 + wait, HOUR_US);
        }
        granted(store.try_acquire(&old, &key, 3, NOW_US + DAY_US + HOUR_US));
    }
}

/// Used permits stay used under other numbers. Under another calendar they count in its window
/// around now.
#[test]
fn a_changed_limit_keeps_the_count() {
    for mut store in Store::each() {
        let [three, five] = [3, 5].map(|permits| plan_of(&quota("month", "UTC", permits)));
        let (daily, key) = (plan_of(&quota("day", "UTC", 5)), key("k"));
        granted(store.try_acquire(&three, &key, 3, NOW_US - DAY_US));
        assert_eq!(wait_us(store.peek(&three, &key, 1, NOW_US)), 12 * HOUR_US);
        let grant = granted(store.try_acquire(&five, &key, 1, NOW_US));
        assert_eq!(grant.remaining, 1);
        let today = granted(store.try_acquire(&daily, &key, 1, NOW_US));
        assert_eq!(today.remaining, 0);
        assert_eq!(today.window_ends_in_ns, Some(12 * HOUR_US * 1_000));
        // What was granted under another calendar does not come back.
        assert_eq!(store.refund(&daily, &key, &grant, 1, NOW_US), 0);
        assert_eq!(store.refund(&daily, &key, &today, 1, NOW_US), 1);
        granted(store.try_acquire(&daily, &key, 1, NOW_US + 1));
        assert_eq!(wait_us(store.peek(&daily, &key, 1, NOW_US + 1)), 12 * HOUR_US - 1);
    }
}

/// Permits come back within their window alone, and a state that is over leaves no key.
#[test]
fn a_window_ends_with_its_refunds_and_its_key() {
    for mut store in Store::each() {
        let (plan, key) = (plan_of(&quota("day", "UTC", 3)), key("k"));
        let grant = granted(store.try_acquire(&plan, &key, 2, NOW_US));
        assert_eq!(store.refund(&plan, &key, &grant, 1, NOW_US + 12 * HOUR_US - 1), 1);
        assert_eq!(store.refund(&plan, &key, &grant, 1, NOW_US + 12 * HOUR_US), 0);
        let reset = rategate_redis::returns::reset(&plan, &key);
        let ends_us = NOW_US + 12 * HOUR_US;
        granted(store.try_acquire(&plan, &key, 1, NOW_US));
        assert_eq!(store.counts(&plan, &reset, ends_us + 2_000).content, [0], "it has expired");
        granted(store.try_acquire(&plan, &key, 1, NOW_US));
        assert_eq!(store.counts(&plan, &reset, ends_us - 1).content, [1], "it is there");
    }
}

/// A debt of 100 limits that borders pay: over a hundred unequal months, at each reported instant a
/// call passes, and a microsecond before it does not.
#[test]
fn a_carried_debt_ends_at_the_hundredth_border() {
    for mut store in Store::each() {
        for (zone, anchor) in [("America/New_York", "2026-01-31"), ("Asia/Kathmandu", "2024-02-29")]
        {
            let spec = CalendarSpec::new("month", zone).unwrap().anchored(anchor).unwrap();
            let quota = spec.quota(10).unwrap();
            let (plan, key) = (plan_of(&quota), key(zone));
            let mut oracle = Oracle::new([quota.into()], NOW_US * 1_000);
            let (expected, wait_ns) = oracle.charge(NOW_US * 1_000, 1_010, Debt::CARRIED);
            let reply = store.charge(&plan, &key, (1_010, Debt::CARRIED), NOW_US).content.unwrap();
            assert_eq!((reply.charged, reply.retry_after_ns), (expected, wait_ns), "{zone}");
            let wait = wait_us(store.try_acquire(&plan, &key, 1, NOW_US));
            let ends_ns = NOW_US * 1_000 + quota.border_in_ns(NOW_US * 1_000, 101);
            assert_eq!((NOW_US + wait) * 1_000, ends_ns, "{zone}: 101 borders");
            let mut random = Rng::with_seed(3);
            let mut now_us = NOW_US;
            while (now_us + 1) * 1_000 < ends_ns {
                let last_us = ends_ns / 1_000 - 1;
                now_us = (now_us + random.u64(..80 * DAY_US)).min(last_us);
                let refused = oracle.decide(now_us * 1_000, 1).unwrap_err();
                let denial = denied(store.try_acquire(&plan, &key, 1, now_us));
                assert_eq!(denial.retry_after_ns.unwrap().get(), refused.wait_ns, "{zone}");
                assert_eq!(denial.debt, refused.debt, "{zone} at {now_us}");
            }
            granted(store.try_acquire(&plan, &key, 1, now_us + 1));
        }
    }
}

/// A call with borders of another time changes nothing, in none of its limits.
#[test]
fn a_call_around_another_time_takes_nothing() {
    for mut store in Store::each() {
        let hourly = FixedWindow::new(5, Duration::from_hours(1), Anchor::Epoch);
        let limits = [
            ("hour", Limit::fixed_window(&hourly).unwrap()),
            ("month", Limit::fixed_window(&quota("month", "UTC", 5)).unwrap()),
        ];
        let (plan, key) = (Plan::new(limits).unwrap(), key("k"));
        let mut batch = Batch::new();
        batch.try_acquire(&plan, &key, 2, Extra::default()).unwrap();
        let settings = Settings::around_us(NOW_US + 100 * DAY_US);
        let command = batch.decide(settings).at_us(NOW_US);
        let reply = store.client.call(&command.fcall(Library::DEBUG));
        let Reply::Error(line) = reply else { panic!("{reply:?}") };
        assert_eq!(ServerRefusal::of(&line), ServerRefusal::OtherTime { now_us: NOW_US });
        assert_eq!(granted(store.try_acquire(&plan, &key, 1, NOW_US)).remaining, 4);
    }
}

/// The bound of a carried debt depends on the length of the window, which the store picks: callers
/// whose clocks are in the window before, in the one around or in the one after book the same.
#[test]
fn a_debt_is_bounded_by_the_window_that_the_store_picks() {
    let month = quota("month", "UTC", 1_000);
    let (plan, debt) = (plan_of(&month), Debt::CARRIED.at_most(Duration::from_secs(40 * 86_400)));
    // In the middle of January, February and March.
    for now_us in [NOW_US - 15 * DAY_US, NOW_US + 14 * DAY_US, NOW_US + 45 * DAY_US] {
        let mut core = Ledger::new(month, now_us * 1_000);
        let expected = core.charge(now_us * 1_000, 5_000, debt).unwrap();
        assert!(expected.forgiven > 0, "{expected:?}");
        for mut store in Store::each() {
            for (name, around_us) in
                [("b", now_us - 30 * DAY_US), ("a", now_us), ("n", now_us + 30 * DAY_US)]
            {
                let mut charges = Charges::new();
                charges.push(&plan, &key(name), 5_000, (debt, None)).unwrap();
                let settings = Settings::around_us(around_us);
                let reply = store.send(charges.command(settings), now_us);
                let seen = charges.read(&reply).unwrap().content.remove(0).unwrap();
                assert_eq!(seen.charged, expected, "{name}, at {now_us} us");
                // So is what a reservation used beyond its estimate.
                let (mut estimates, mut ends) = (Estimates::new(), Ends::new());
                let (key, id) = (key(&format!("{name}, held")), ReservationId([1; 16]));
                let ttl_ns = NonZeroU64::new(1_000_000_000).unwrap();
                estimates.push(&plan, &key, (1_000, 0), (id, ttl_ns)).unwrap();
                store.send(estimates.command(settings), now_us);
                let end = ReservationEnd::Commit { used: Some(5_000) };
                ends.push(&plan, &key, id, end, debt).unwrap();
                let reply = store.send(ends.command(settings), now_us);
                let ended = ends.read(&reply).unwrap().content.remove(0).unwrap();
                assert_eq!(ended.debt, expected.debt, "{name}, at {now_us} us");
            }
        }
    }
}

/// A state that one call takes from one calendar to another is kept for as long as a debt lasts by
/// the other.
#[test]
fn a_debt_that_moves_to_longer_windows_is_kept_for_their_time() {
    let (day, year) = (quota("day", "UTC", 10), quota("year", "UTC", 10));
    let (day, year) = (plan_of(&day), plan_of(&year));
    for mut store in Store::each() {
        let mut charges = Charges::new();
        charges.push(&day, &key("k"), 1, (Debt::CARRIED, None)).unwrap();
        charges.push(&year, &key("k"), 44, (Debt::CARRIED, None)).unwrap();
        let reply = store.send(charges.command(Settings::around_us(NOW_US)), NOW_US);
        let debt = charges.read(&reply).unwrap().content.remove(1).unwrap().charged.debt;
        assert_eq!(debt, 35);
        for (years, debt) in [(1, 25), (3, 5), (4, 0)] {
            let now_us = NOW_US + years * 366 * DAY_US;
            let seen = store.charge(&year, &key("k"), (0, Debt::CARRIED), now_us);
            assert_eq!(seen.content.unwrap().charged.debt, debt, "after {years} years");
        }
    }
}
