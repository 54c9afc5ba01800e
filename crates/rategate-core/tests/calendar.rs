//! Tests of windows of a calendar, and of those of one length beside them, against one counter that
//! goes from border to border.

use std::num::NonZeroU64;

use crate::common::{S, granted, ns, part, retry, start, window};
use fastrand::Rng;
use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::calendar::{Calendar, Grid, Window};
use rategate_core::debt::{Charge, Debt};
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::fixed_window::FixedWindow;
use rategate_core::ledger::Ledger;
use rategate_core::policy::{Correction, Taken};
use rategate_core::saved::{RestoreContext, Saved, restore};
use rategate_core::verdict::Verdict;

/// Windows between borders in a list, the first of which is zero. The last window never ends.
#[derive(Debug)]
pub(crate) struct Listed {
    text: &'static str,
    borders: Vec<u64>,
}

impl Grid for Listed {
    fn text(&self) -> &str {
        self.text
    }

    fn window(&self, at_ns: u64) -> Window {
        let next = self.borders.partition_point(|&border| border <= at_ns);
        Window {
            start_ns: self.borders[next - 1],
            end_ns: self.borders.get(next).copied().unwrap_or(u64::MAX),
            number: u64::try_from(next - 1).unwrap(),
        }
    }

    fn start_of(&self, number: u64) -> Option<u64> {
        self.borders.get(usize::try_from(number).ok()?).copied()
    }
}

pub(crate) fn grid(text: &'static str, borders: Vec<u64>) -> &'static Listed {
    Box::leak(Box::new(Listed { text, borders }))
}

pub(crate) fn quota(permits: u64, grid: &'static dyn Grid) -> FixedWindow {
    FixedWindow::of_calendar(permits, Calendar::new(grid)).unwrap()
}

/// Windows of unequal random lengths, in units of `unit_ns`.
pub(crate) fn random_borders(random: &mut Rng, unit_ns: u64) -> Vec<u64> {
    let mut borders = vec![0];
    for _ in 0..40 {
        let length = random.choice([1, 2, 5, 23, 24, 25]).unwrap();
        borders.push(borders.last().unwrap() + length * unit_ns);
    }
    borders
}

/// The contract: a counter that is told of each border, one after the other.
#[derive(Clone)]
struct Plain {
    permits: u64,
    borders: Vec<u64>,
    passed: usize,
    used: u64,
    is_carried: bool,
}

impl Plain {
    fn new(permits: u64, borders: &[u64]) -> Self {
        Self { permits, borders: borders.to_vec(), passed: 0, used: 0, is_carried: false }
    }

    fn next_border(&self) -> Option<u64> {
        self.borders.get(self.passed + 1).copied()
    }

    fn cross(&mut self) {
        self.passed += 1;
        self.used = if self.is_carried { self.used.saturating_sub(self.permits) } else { 0 };
        self.is_carried &= self.used > self.permits;
    }

    fn go_to(&mut self, now_ns: u64) {
        while self.next_border().is_some_and(|border_ns| border_ns <= now_ns) {
            self.cross();
        }
    }

    fn book(&mut self, permits: u64, is_carried: bool) {
        self.used += permits;
        self.is_carried = (self.is_carried || is_carried) && self.used > self.permits;
    }

    fn give_back(&mut self, permits: u64) -> u64 {
        let back = permits.min(self.used);
        self.used -= back;
        self.is_carried &= self.used > self.permits;
        back
    }

    /// Returns when no more than the limit is used, if that is on the clock.
    fn settled_ns(&self, now_ns: u64) -> Option<u64> {
        let (mut then, mut at_ns) = (self.clone(), now_ns);
        while then.used > self.permits {
            at_ns = then.next_border()?;
            then.cross();
        }
        Some(at_ns)
    }

    /// Returns when `permits` pass, if that is on the clock.
    fn opens_ns(&self, now_ns: u64, permits: u64) -> Option<u64> {
        let (mut then, mut at_ns) = (self.clone(), now_ns);
        while then.used + permits > self.permits {
            at_ns = then.next_border()?;
            then.cross();
        }
        Some(at_ns)
    }
}

/// Units, Ceiling, Retry, Refund, Charge, Saved: every answer is that of one counter.
#[test]
fn answers_are_those_of_one_counter() {
    let (mut grants, mut denials, mut restored, mut refunds) = (0, 0, 0, 0);
    for seed in 0..1_500 {
        let mut random = Rng::with_seed(seed);
        let permits = random.u64(1..=6);
        // Every other seed has windows of one length.
        let period_ns = random.u64(1..=80);
        let (policy, listed) = if seed % 2 == 0 {
            let listed = grid("random", random_borders(&mut random, 3));
            (quota(permits, listed), listed)
        } else {
            let even = window(permits, period_ns);
            (even, grid("even", (0..20_000).map(|nth| nth * period_ns).collect()))
        };
        let mut now_ns = random.u64(0..=90);
        let (mut limit, mut plain) =
            (Ledger::new(policy, now_ns), Plain::new(permits, &listed.borders));
        let mut last = None;
        for call in 0..60 {
            now_ns += random.choice([0, 0, 0, 1, 7, 30, 200]).unwrap();
            plain.go_to(now_ns);
            let context = format!("seed {seed}, call {call} at {now_ns}");
            assert_eq!(limit.remaining(now_ns), permits.saturating_sub(plain.used), "{context}");
            assert_eq!(limit.debt(now_ns), plain.used.saturating_sub(permits), "{context}");
            let debt_ends_ns = plain.settled_ns(now_ns);
            let debt_ends_in = debt_ends_ns.map(|end_ns| end_ns - now_ns);
            assert_eq!(limit.debt_ends_in_ns(now_ns), debt_ends_in, "{context}");
            let requested = random.u64(1..=permits);
            match random.u64(0..=9) {
                0 => {
                    // A window without an end would pay for a debt after ages.
                    let is_carried = random.bool() && plain.next_border().is_some();
                    let debt = if is_carried { Debt::CARRIED } else { Debt::FORGOTTEN };
                    let charged = limit.charge(now_ns, requested * 3, debt).unwrap();
                    plain.book(requested * 3, is_carried);
                    assert_eq!(charged.booked, requested * 3, "{context}");
                    assert_eq!(charged.debt, plain.used.saturating_sub(permits), "{context}");
                }
                1 => {
                    assert_eq!(
                        limit.credit(now_ns, requested),
                        plain.give_back(requested),
                        "{context}"
                    );
                    last = None;
                }
                2 => {
                    if let Some((passed, grant)) = last.take() {
                        let is_current = passed == plain.passed;
                        let back = if is_current { plain.give_back(requested) } else { 0 };
                        assert_eq!(limit.refund(now_ns, &grant, requested), back, "{context}");
                        refunds += back;
                    }
                }
                3 => {
                    let saved = limit.save(now_ns);
                    let elapsed_ns = random.u64(0..=20);
                    now_ns += elapsed_ns;
                    plain.go_to(now_ns);
                    limit = restore(policy, &saved, RestoreContext { now_ns, elapsed_ns }).unwrap();
                    last = None;
                    restored += 1;
                }
                _ => {
                    let opens_ns = plain.opens_ns(now_ns, requested);
                    let wait = opens_ns.map_or(u64::MAX, |opens_ns| opens_ns - now_ns);
                    assert_eq!(limit.peek(now_ns, requested), Ok(Some(wait)), "{context}");
                    let answer = limit.try_acquire(now_ns, requested);
                    if wait == 0 {
                        let grant = granted(answer).expect("a grant");
                        plain.book(requested, false);
                        last = (requested == permits).then_some((plain.passed, grant));
                        grants += 1;
                    } else {
                        assert_eq!(retry(answer), wait, "{context}");
                        denials += 1;
                    }
                }
            }
            let fresh_ns = plain.opens_ns(now_ns, permits);
            let expected = fresh_ns.is_some_and(|fresh_ns| fresh_ns <= now_ns);
            assert_eq!(limit.is_as_fresh(now_ns), expected, "{context}");
        }
    }
    assert!(grants > 10_000 && denials > 10_000 && restored > 5_000, "{grants} {denials}");
    assert!(refunds > 500, "{refunds}");
}

/// A state stays one where no value can hold it: a carried debt, a border between seconds, a window
/// that lasts for too long, one of an older calendar, and too many permits.
#[test]
fn what_does_not_fit_is_not_packed() {
    let days = grid("days", vec![0, 10 * S, 20 * S + 1, (1 << 57) / S * S]);
    let policy = AnyPolicy::from(quota(1 << 27, days));
    let used_at = |now_ns| {
        let mut limit = Member::fresh(policy, now_ns);
        let charge = Charge { now_ns, permits: 7, debt: Debt::FORGOTTEN };
        limit.correct(Correction::Charge(charge)).map(|_| limit).unwrap()
    };
    assert!(used_at(3).pack(3).is_some());
    let mut limit = used_at(3);
    let within = Charge { now_ns: 3, permits: 7, debt: Debt::CARRIED };
    assert!(
        limit.correct(Correction::Charge(within)).is_some() && limit.pack(3).is_some(),
        "no window pays for it"
    );
    assert_eq!(used_at(11 * S).pack(11 * S), None, "between two seconds");
    assert_eq!(used_at(21 * S).pack(21 * S), None, "too far ahead");
    let mut limit = used_at(3);
    let charge = Charge { now_ns: 3, permits: 1 << 27, debt: Debt::CARRIED };
    assert!(limit.correct(Correction::Charge(charge)).is_some());
    assert_eq!(limit.pack(3), None, "later windows pay");
    let mut limit = used_at(3);
    limit.change(quota(1 << 27, grid("days", vec![0, 5 * S])).into(), 3);
    assert_eq!(limit.pack(3), None, "a window of older rules");
    assert_eq!(AnyPolicy::from(quota(1 << 28, days)).packed(), None, "too many permits");
}

/// An unused value is a fresh limit, in whichever window it is looked at.
#[test]
fn an_unused_value_begins_at_the_border() {
    let days = grid("days", vec![0, 100 * S, 200 * S]);
    let policy = AnyPolicy::from(quota(5, days));
    let unused = policy.packed().unwrap().full_at(10 * S + 500);
    let mut limit = Member::unpack(policy, unused, 9 * S).unwrap();
    let permits = NonZeroU64::new(5).unwrap();
    limit.take(Taken { from_ns: 9 * S, start_ns: 9 * S, permits });
    assert_eq!(limit.opening(11 * S, NonZeroU64::MIN).unwrap().opens_ns, 100 * S);
    assert!(limit.pack(11 * S).is_some());
}

/// Change: a window of which nothing is used is none of the new ones, nor is that of a calendar
/// whose borders were not known.
#[test]
fn an_unused_window_does_not_outlive_its_rules() {
    let rules = |borders: &[u64]| quota(5, grid("weeks", borders.to_vec()));
    let saved = again(&Ledger::new(rules(&[0, 1_500]), 0).save(0));
    let AnyPolicy::FixedWindow(unknown) = saved[0].policy else { panic!("{saved:?}") };
    for begun in [rules(&[0, 1_500]), unknown] {
        for used in [0, 2] {
            let mut limit = Ledger::new(begun, 0);
            assert!(granted(limit.try_acquire(1_000, 2)).is_some());
            assert_eq!(limit.credit(1_010, 2 - used), 2 - used);
            limit.reconfigure(1_100, rules(&[0, 1_400, 1_600])).unwrap();
            assert_eq!(start(limit.try_acquire(1_200, 5 - used)), 1_200);
            let ends_ns = if used == 2 && begun != unknown { 1_500 } else { 1_400 };
            assert_eq!(retry(limit.try_acquire(1_200, 1)), ends_ns - 1_200);
        }
    }
}

/// Change: another calendar takes the count over at once, newer rules of the same from the next
/// window on.
#[test]
fn a_change_keeps_the_count() {
    let calendar = |permits, text, borders: &[u64]| quota(permits, grid(text, borders.to_vec()));
    let mut limit = Ledger::new(calendar(4, "months", &[0, 1_000, 2_000]), 0);
    assert!(granted(limit.try_acquire(1_300, 3)).is_some());
    limit.reconfigure(1_400, calendar(5, "weeks", &[0, 1_350, 1_500, 1_700])).unwrap();
    assert_eq!(limit.remaining(1_400), 2);
    assert_eq!(retry(limit.try_acquire(1_450, 3)), 50, "the window around the change");
    limit.reconfigure(1_460, calendar(2, "weeks", &[0, 1_350, 1_480, 1_510, 1_700])).unwrap();
    assert_eq!(limit.remaining(1_480), 0, "the window ends where it would have");
    assert_eq!(retry(limit.try_acquire(1_499, 1)), 1);
    assert_eq!(start(limit.try_acquire(1_500, 2)), 1_500);
    assert_eq!(retry(limit.try_acquire(1_500, 1)), 10, "then the new rules hold");
    // A window that has passed by then is not carried over.
    limit.reconfigure(1_600, calendar(2, "months", &[0, 9_000])).unwrap();
    assert_eq!(limit.remaining(1_600), 2);
    // A debt is carried over, and paid by the numbers that held.
    limit.charge(1_600, 5, Debt::CARRIED).unwrap();
    limit.reconfigure(9_000, calendar(1, "months", &[0, 9_000, 9_100, 9_300, 9_600])).unwrap();
    assert_eq!(limit.debt(9_000), 2);
    assert_eq!(retry(limit.try_acquire(9_000, 1)), 600, "three windows pay for what was used");
}

/// Refund: a grant of the window before a change of the rules is none of the next, although the
/// new rules begin that one before the grant.
#[test]
fn a_refund_is_of_its_own_window() {
    let rules = |borders: &[u64]| quota(5, grid("weeks", borders.to_vec()));
    let mut limit = Ledger::new(rules(&[0, 1_500]), 0);
    assert!(granted(limit.try_acquire(1_000, 1)).is_some());
    limit.reconfigure(1_100, rules(&[0, 1_400, 1_600])).unwrap();
    let grant = granted(limit.try_acquire(1_450, 2)).unwrap();
    assert!(granted(limit.try_acquire(1_500, 3)).is_some());
    assert_eq!((limit.refund(1_510, &grant, 2), limit.remaining(1_510)), (0, 2));
}

/// Returns saved limits as they are read from bytes.
fn again(saved: &[Saved]) -> Vec<Saved> {
    postcard::from_bytes(&postcard::to_allocvec(saved).unwrap()).unwrap()
}

/// Saved: under other permits, on a clock with other borders, and without any.
#[test]
fn a_saved_count_is_restored() {
    let months = grid("months", vec![0, 1_000, 2_000, 3_000]);
    let mut limit = Ledger::new(quota(4, months), 0);
    assert!(granted(limit.try_acquire(1_300, 3)).is_some());
    let saved = again(&limit.save(1_400));
    let since = |now_ns, elapsed_ns| RestoreContext { now_ns, elapsed_ns };
    let restored = |policy: FixedWindow, since| restore(policy, &saved, since).unwrap();

    let more = restored(quota(9, months), since(1_900, 500));
    assert_eq!((more.remaining(1_999), more.remaining(2_000)), (6, 9));
    let behind = restored(quota(4, months), since(1_900, 400));
    assert_eq!(behind.remaining(1_999), 1);
    assert_eq!(behind.remaining(2_000), 1, "the window ends at no border: it lasts to the next");
    assert_eq!((behind.remaining(2_999), behind.remaining(3_000)), (1, 4));
    let more = restored(quota(9, months), since(1_900, 400));
    assert_eq!((more.remaining(2_999), more.remaining(3_000)), (6, 9), "under other permits, too");
    let weeks = quota(9, grid("weeks", vec![0, 1_800, 1_950, 2_000]));
    let other = restored(weeks, since(1_900, 500));
    assert_eq!((other.remaining(1_949), other.remaining(1_950)), (6, 9), "another calendar");
    let over = restored(quota(4, months), since(2_000, 600));
    assert_eq!(over.remaining(2_000), 4);

    // The data alone says what was used until when, and nothing of later windows.
    let AnyPolicy::FixedWindow(policy) = saved[0].policy else { panic!("{saved:?}") };
    let calendar = policy.calendar().unwrap();
    assert_eq!((policy.permits(), calendar.text()), (4, ""));
    let alone = restored(policy, since(1_900, 500));
    assert_eq!((alone.remaining(1_999), alone.remaining(2_000)), (1, 4));
    assert_eq!(calendar.window(1_999).end_ns, u64::MAX);
    // The same through a policy that is chosen at run time.
    let any = AnyPolicy::from(quota(4, months));
    assert_eq!(restore(any, &saved, since(1_900, 500)).unwrap().remaining(1_999), 1);
}

/// Calendars are told apart by their texts.
#[test]
fn calendars_have_digests() {
    let digest = |text| Calendar::new(grid(text, vec![0])).digest();
    let text = "month in Europe/Rome";
    assert_eq!(digest(text), digest("month in Europe/Rome"));
    assert_ne!(digest(text), digest("month in Europe/Romf"));
    assert_ne!(digest("day"), digest("day\0"));
    // Apart by one byte only, which is the eighth of eight.
    assert_ne!(digest("month in Asia/Irkutsk"), digest("month in Asia/Yakutsk"));
    assert!(digest(text) < 1 << 52, "a store keeps no more");
}

#[test]
fn a_debt_has_a_bound() {
    let policy = quota(10, grid("days", vec![0, 1_000, 3_000]));
    let mut limit = Ledger::new(policy, 0);
    let half = Debt::CARRIED.at_most(ns(500));
    let charged = limit.charge(0, 100, half).unwrap();
    assert_eq!((charged.booked, charged.forgiven, charged.debt), (15, 85, 5));
    let mut limit = Ledger::new(quota(1 << 40, grid("days", vec![0, 1_000])), 0);
    let all = limit.charge(0, u64::MAX, Debt::CARRIED).unwrap();
    assert_eq!(all.booked, u64::MAX / 2, "past the state's range it stays there");
    let Ok(Verdict::Denied(denial)) = limit.try_acquire(0, 1) else { panic!("in debt") };
    assert_eq!(denial.retry_after_ns.map(NonZeroU64::get), Some(u64::MAX), "not on this clock");
}

/// A grid that contradicts itself makes wrong windows, and neither panics nor grants for ever.
#[test]
fn a_wrong_grid_does_no_harm() {
    #[derive(Debug)]
    struct Wrong;
    impl Grid for Wrong {
        fn text(&self) -> &'static str {
            "wrong"
        }

        fn window(&self, at_ns: u64) -> Window {
            Window { start_ns: at_ns + 5, end_ns: at_ns / 2, number: u64::MAX - at_ns }
        }

        fn start_of(&self, _: u64) -> Option<u64> {
            Some(0)
        }
    }
    let mut limit = Ledger::new(quota(1, &Wrong), 0);
    for now_ns in 0..100 {
        let _ = limit.charge(now_ns, 3, Debt::CARRIED);
        let _ = limit.try_acquire(now_ns, 1);
        let _ = restore(
            *part::<FixedWindow>(&limit),
            &limit.save(now_ns),
            RestoreContext { now_ns, elapsed_ns: 0 },
        );
    }
    let mut limit = Ledger::new(quota(1, &Wrong), 0);
    assert!(granted(limit.try_acquire(7, 1)).is_some());
    assert!(granted(limit.try_acquire(7, 1)).is_none());
}

#[test]
fn misuse_is_an_error() {
    let days = grid("days", vec![0]);
    assert_eq!(FixedWindow::of_calendar(0, Calendar::new(days)), Err(LimitError::ZeroPermits));
    let mut limit = Ledger::new(quota(2, days), 0);
    assert_eq!(limit.try_acquire(0, 3), Err(ExceedsCapacity::new(3, 2)));
    assert_ne!(quota(2, days), quota(2, grid("days", vec![0])), "newer rules");
    assert_eq!(quota(2, days), quota(2, days));
}
