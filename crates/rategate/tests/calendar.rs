//! Calendars: their windows one after the other, and tables of keys that count by them. The
//! borders themselves are compared with Python's in the tests of `rategate-cli`.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use rategate::calendar::{CalendarError, CalendarSpec, Window};
use rategate::charge::Debt;
use rategate::keyed::{Capacity, Overflow};
use rategate::policy::Member;
use rategate::{Clock, Decision, FixedWindow, Keyed, Limiter, ManualClock};
use rategate_core::debt::Charge;
use rategate_core::policy::Correction;

const S: u64 = 1_000_000_000;
/// 2026-03-29T00:00:00+01:00: in Rome, a day of 23 hours.
const SHORT_DAY: u64 = 1_774_738_800 * S;

fn quota(permits: u64, text: &str) -> FixedWindow {
    text.parse::<CalendarSpec>().unwrap().quota(permits).unwrap()
}

const TEXTS: [&str; 8] = [
    "day in Pacific/Apia from 1970-01-01T00:00:00 every 1",
    "day in Pacific/Kwajalein from 1970-01-01T00:00:00 every 1",
    "day in Pacific/Apia from 2026-01-31T02:30:00 every 3",
    "week in Europe/Rome from 1970-01-05T00:00:00 every 1",
    "month in America/New_York from 2026-01-31T00:00:00 every 1",
    "month in Asia/Gaza from 2500-01-31T00:00:00 every 1",
    "quarter in Australia/Lord_Howe from 2024-02-29T02:30:00 every 1",
    "year in Antarctica/Troll from 2024-02-29T00:00:00 every 100",
];

/// Windows follow each other without a gap, none is empty, and their numbers have none missing.
#[test]
fn windows_follow_each_other() {
    for calendar in TEXTS.map(|text| quota(1, text).calendar().unwrap()) {
        let (mut at_ns, mut number) = (0, 0);
        while at_ns < 2_100_000_000 * S {
            let window = calendar.window(at_ns);
            let context = format!("{}: {window:?}", calendar.text());
            assert_eq!((window.start_ns, window.number), (at_ns, number), "{context}");
            assert!(window.end_ns > at_ns, "{context}");
            (at_ns, number) = (window.end_ns, number + 1);
        }
        assert_eq!(calendar.window(u64::MAX).end_ns, u64::MAX, "the end of the clock");
    }
}

/// A window is found from any instant in it, and by its number, as a debt of several windows does.
#[test]
fn windows_are_found_from_anywhere() {
    for text in TEXTS {
        let quota = quota(1, text);
        let calendar = quota.calendar().unwrap();
        let mut random = Rng::with_seed(7);
        for _ in 0..3_000 {
            let at_ns = random.u64(0..10_000_000_000 * S);
            let window = calendar.window(at_ns);
            assert!(window.start_ns <= at_ns && at_ns < window.end_ns, "{text} at {at_ns}");
            for inside in [window.start_ns, window.end_ns - 1] {
                assert_eq!(calendar.window(inside), window, "{text} at {at_ns}");
            }
            let next = calendar.window(window.end_ns);
            assert_eq!((next.start_ns, next.number), (window.end_ns, window.number + 1), "{text}");
            // What three windows allow is paid at the second border behind the next.
            let mut limit = Member::fresh(quota.into(), at_ns);
            let charge = Charge { now_ns: at_ns, permits: 3, debt: Debt::CARRIED };
            limit.correct(Correction::Charge(charge)).unwrap();
            let opening = limit.opening(at_ns, NonZeroU64::MIN).unwrap();
            let third = (0..2).fold(next, |window, _| calendar.window(window.end_ns));
            assert_eq!(opening.opens_ns, third.start_ns, "{text} at {at_ns}");
        }
    }
}

/// On 30 December 2011 there was no midnight in Apia: no window is empty there.
#[test]
fn a_day_that_did_not_exist_has_no_window() {
    let calendar = quota(1, TEXTS[0]).calendar().unwrap();
    let last = calendar.window(1_325_239_199 * S);
    assert_eq!(last.end_ns, 1_325_239_200 * S, "2011-12-30T10:00:00Z");
    let next = calendar.window(last.end_ns);
    assert_eq!((next.number, next.length_ns()), (last.number + 1, 86_400 * S));
}

/// Equal specifications make one calendar for the whole process, with a text that reads back.
#[test]
fn a_calendar_is_its_text() {
    for text in TEXTS {
        let (spec, window) = (text.parse::<CalendarSpec>().unwrap(), quota(3, text));
        assert_eq!((spec.to_string().as_str(), window.calendar().unwrap().text()), (text, text));
        assert_eq!(window, quota(3, text));
        assert_ne!(window, quota(4, text));
    }
    let plain = CalendarSpec::new("month", "UTC").unwrap();
    assert_eq!(plain.to_string(), "month in UTC from 1970-01-01T00:00:00 every 1");
    assert_ne!(plain.quota(1), plain.clone().every(2).unwrap().quota(1));
}

#[test]
fn misuse_is_an_error() {
    let day = || CalendarSpec::new("day", "Europe/Rome").unwrap();
    let says = |error: CalendarError| error.to_string();
    assert_eq!(
        says(CalendarSpec::new("fortnight", "UTC").unwrap_err()),
        "\"fortnight\" is no unit: write day, week, month, quarter or year"
    );
    let zone = says(CalendarSpec::new("day", "Europe/Rom").unwrap_err());
    assert!(zone.starts_with("no time zone \"Europe/Rom\": "), "{zone}");
    for anchor in ["yesterday", "2026-02-30", "2026-01-31T00:00Z", "2026-01-31T00:00:00.5"] {
        let error = day().anchored(anchor).unwrap_err();
        assert!(matches!(error, CalendarError::Anchor { .. }), "{anchor}: {error}");
    }
    for anchor in ["1899-12-31", "2501-01-01"] {
        let error = day().anchored(anchor).unwrap_err();
        assert!(matches!(error, CalendarError::AnchorRange(_)), "{error}");
    }
    assert_eq!(says(day().every(0).unwrap_err()), "a window of 0 units; write at least 1");
    assert!(day().every(36_526).is_err() && day().every(36_525).is_ok());
    assert!(matches!(day().quota(0), Err(CalendarError::Limit(_))));
    assert!("day in UTC".parse::<CalendarSpec>().is_err());
}

/// A table decides as one count for each key and window does, over borders and a day of 23 hours.
#[test]
fn a_table_counts_in_each_window() {
    for seed in 0..30 {
        let mut random = Rng::with_seed(seed);
        let permits = random.u64(1..=4);
        let daily = quota(permits, "day in Europe/Rome from 1970-01-01T00:00:00 every 1");
        let clock = Arc::new(ManualClock::new());
        clock.advance(Duration::from_nanos(SHORT_DAY - 86_400 * S));
        let table: Keyed<u64, _> =
            Keyed::with_clock(daily, Capacity::for_keys(50), Arc::clone(&clock));
        let mut counts = HashMap::<(u64, u64), u64>::new();
        let (mut granted, mut denied) = (0, 0);
        for _ in 0..2_000 {
            let step_ns = random.choice([0, 1, S, 600 * S, 7_200 * S]).unwrap();
            clock.advance(Duration::from_nanos(step_ns));
            let now_ns = clock.now_ns();
            let Window { start_ns, end_ns, .. } = daily.calendar().unwrap().window(now_ns);
            let (key, requested) = (random.u64(0..9), random.u64(1..=permits));
            let used = counts.entry((key, start_ns)).or_default();
            assert_eq!(table.remaining(&key).unwrap(), permits - *used, "seed {seed}");
            match table.try_acquire(&key, requested).unwrap() {
                Decision::Granted(_) => {
                    *used += requested;
                    assert!(*used <= permits, "seed {seed} at {now_ns}");
                    granted += 1;
                }
                Decision::Denied(denial) => {
                    assert!(*used + requested > permits, "seed {seed} at {now_ns}");
                    let wait = denial.retry_after().unwrap();
                    assert_eq!(wait, Duration::from_nanos(end_ns - now_ns), "seed {seed}");
                    denied += 1;
                }
            }
        }
        assert!(granted > 100 && denied > 100, "{granted} {denied}");
    }
}

/// Keys of a past window are evicted, and a limiter waits for the border.
#[test]
fn a_border_frees_keys_and_waiters() {
    let calendar = quota(1, "day in Europe/Rome from 1970-01-01T00:00:00 every 1");
    let clock = Arc::new(ManualClock::new());
    clock.advance(Duration::from_nanos(SHORT_DAY));
    let capacity = Capacity::for_keys(100).or_else(Overflow::Refuse);
    let table: Keyed<u64, _> = Keyed::with_clock(calendar, capacity, Arc::clone(&clock));
    for key in 0..100 {
        assert!(matches!(table.try_acquire(&key, 1).unwrap(), Decision::Granted(_)));
    }
    assert!(table.try_acquire(&100, 1).is_err(), "the table is full");
    clock.advance(Duration::from_hours(23));
    for key in 100..200 {
        assert!(matches!(table.try_acquire(&key, 1).unwrap(), Decision::Granted(_)));
    }

    let limiter = Limiter::with_clock(calendar, Arc::clone(&clock));
    limiter.acquire(1).unwrap();
    limiter.acquire(1).unwrap();
    assert_eq!(clock.now_ns(), SHORT_DAY + 47 * 3_600 * S, "the next day has 24 hours");
}

/// A clock of the process shows the time since 1970.
#[test]
fn the_clock_shows_the_year() {
    let year_ns = 31_557_600 * S;
    let years = rategate::calendar::clock().now_ns() / year_ns;
    assert!((55..500).contains(&years), "{years} years since 1970");
}
