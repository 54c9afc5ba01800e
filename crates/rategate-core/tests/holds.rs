//! Tests of holds: every decision is that of a limit in which the true cost had been taken from
//! the start, and a hold ends exactly when its time is over.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::{S, retry};
use fastrand::Rng;
use rategate_core::all_of::AllOf;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::{Charged, Debt};
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::holds::{Committed, Hold, HoldVerdict};
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::verdict::{Denial, Grant, Settled, Verdict};

const FORGOTTEN: Debt = Debt::FORGOTTEN;

/// A limit as a rule over the list of all that was ever taken.
#[derive(Clone, Copy)]
enum Rule {
    /// Permits per nanoseconds, and the burst.
    Bucket(u64, u64, u64),
    /// Permits in each window of nanoseconds on a grid.
    Window(u64, u64),
    /// Permits in any window of nanoseconds.
    Log(u64, u64),
}

/// Permits that were taken, or credited, at one instant. A hold that has not ended ends at
/// `end_ns`.
#[derive(Clone, Copy)]
struct Event {
    at_ns: u64,
    permits: u64,
    end_ns: Option<u64>,
    is_credit: bool,
}

impl Event {
    const fn taken(at_ns: u64, permits: u64) -> Self {
        Self { at_ns, permits, end_ns: None, is_credit: false }
    }

    fn permits_at(&self, now_ns: u64) -> i128 {
        let has_ended = self.end_ns.is_some_and(|end_ns| end_ns <= now_ns);
        if has_ended { 0 } else { self.permits.into() }
    }
}

impl Rule {
    /// Returns `true` if a try passes at `now_ns`: by the definition, over the whole story.
    fn passes(self, story: &[Event], now_ns: u64, permits: u64) -> bool {
        let now = i128::from(now_ns);
        let used_since = |first_ns: i128| -> i128 {
            let counted = story.iter().filter(|event| i128::from(event.at_ns) >= first_ns);
            counted.map(|event| event.permits_at(now_ns)).sum()
        };
        match self {
            Self::Bucket(rate, period_ns, burst) => {
                // In parts of a nanosecond, of which a permit takes `period_ns`.
                let (rate, part) = (i128::from(rate), i128::from(period_ns));
                let (tat, now) = (self.tat(story, now_ns), now * rate);
                tat + i128::from(permits) * part <= now + i128::from(burst) * part
                    || tat <= now && permits <= burst
            }
            Self::Window(max, period_ns) => {
                let first_ns = i128::from(now_ns / period_ns * period_ns);
                used_since(first_ns) + i128::from(permits) <= max.into()
            }
            Self::Log(max, period_ns) => {
                used_since(now - i128::from(period_ns) + 1) + i128::from(permits) <= max.into()
            }
        }
    }

    /// Returns the TAT of a bucket, in parts of a nanosecond.
    fn tat(self, story: &[Event], now_ns: u64) -> i128 {
        let Self::Bucket(rate, part, _) = self else { panic!("no bucket") };
        let (rate, part) = (i128::from(rate), i128::from(part));
        story.iter().fold(0, |tat: i128, event| {
            let at = i128::from(event.at_ns) * rate;
            match event.permits_at(now_ns) {
                0 => tat,
                permits if event.is_credit => at.max(tat - permits * part),
                permits => tat.max(at) + permits * part,
            }
        })
    }

    /// Returns how many of some permits a credit returns: no more than are out.
    fn credited(self, story: &[Event], now_ns: u64, permits: u64) -> u64 {
        let Self::Bucket(rate, part, _) = self else { return 0 };
        let out = self.tat(story, now_ns) - i128::from(now_ns) * i128::from(rate);
        let begun = (out + i128::from(part) - 1).div_euclid(part.into());
        permits.min(u64::try_from(begun).unwrap_or(0))
    }

    /// Returns how long until the try passes, if nothing else happens and nothing that is held
    /// comes back.
    fn wait_ns(self, story: &[Event], now_ns: u64, permits: u64) -> u64 {
        let kept = story.iter().filter(|event| event.end_ns.is_none_or(|end_ns| end_ns > now_ns));
        let story: &[Event] =
            &kept.map(|event| Event { end_ns: None, ..*event }).collect::<Vec<_>>();
        if self.passes(story, now_ns, permits) {
            return 0;
        }
        // What passes once goes on to pass.
        let (mut low, mut high) = (0, 1 << 40);
        while high - low > 1 {
            let middle = u64::midpoint(low, high);
            if self.passes(story, now_ns + middle, permits) {
                high = middle;
            } else {
                low = middle;
            }
        }
        high
    }

    fn max(self) -> u64 {
        match self {
            Self::Bucket(_, _, max) | Self::Window(max, _) | Self::Log(max, _) => max,
        }
    }
}

/// Credits some permits at an instant, and returns how many came back.
type Credit = fn(&mut Ledger, u64, u64) -> u64;

/// Plays random stories against the rule, and compares every decision and every wait.
fn agrees(rules: &[Rule], new: impl Fn() -> Ledger, credit: Option<Credit>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let (mut made, mut returned, mut late, mut denied_by_hold) = (0, 0, 0, 0);
    for _ in 0..300 {
        let (mut limit, mut now_ns) = (new(), 0);
        let mut story: Vec<Event> = Vec::new();
        let mut open: Vec<(Hold, usize)> = Vec::new();
        let span_ns = rng.u64(20..3_000);
        for _ in 0..80 {
            now_ns += if rng.bool() { 0 } else { rng.u64(0..span_ns) };
            let max = rules.iter().map(|rule| rule.max()).min().unwrap();
            let permits = rng.u64(1..=max);
            let wait_of = |story: &[Event]| {
                let mut wait_ns = 0;
                // Each is monotonic, so the longest wait suits all.
                for rule in rules {
                    wait_ns = rule.wait_ns(story, now_ns, permits).max(wait_ns);
                }
                // A hold may end sooner.
                let ends = story.iter().filter_map(|event| event.end_ns?.checked_sub(now_ns));
                ends.filter(|&left_ns| left_ns > 0).fold(wait_ns, u64::min)
            };
            match rng.u32(0..10) {
                0..=2 => {
                    let wait_ns = wait_of(&story);
                    let verdict = limit.try_acquire(now_ns, permits).unwrap();
                    assert_eq!(
                        wait_of_verdict(&verdict),
                        wait_ns,
                        "a try for {permits} at {now_ns}"
                    );
                    if let Verdict::Granted(grant) = verdict {
                        let back = if rng.bool() { 0 } else { rng.u64(0..=permits) };
                        assert_eq!(limit.refund(now_ns, &grant, back), back);
                        story.push(Event::taken(now_ns, permits - back));
                    }
                }
                3..=5 => {
                    let (wait_ns, ttl_ns) = (wait_of(&story), rng.u64(1..4 * span_ns));
                    match limit.try_hold(now_ns, permits, ttl_ns).unwrap() {
                        HoldVerdict::Held(hold) => {
                            assert_eq!(wait_ns, 0, "a hold of {permits} at {now_ns}");
                            open.push((hold, story.len()));
                            let end_ns = Some(now_ns + ttl_ns);
                            story.push(Event { end_ns, ..Event::taken(now_ns, permits) });
                            made += 1;
                        }
                        HoldVerdict::Denied(Denial { retry_after_ns }) => {
                            let retry_ns = retry_after_ns.map(NonZeroU64::get);
                            assert_eq!(retry_ns, Some(wait_ns), "of {permits} at {now_ns}");
                            let holds_end = story.iter().any(|event| event.end_ns.is_some());
                            denied_by_hold += u32::from(holds_end);
                        }
                    }
                }
                6..=8 if !open.is_empty() => {
                    let (hold, at) = open.swap_remove(rng.usize(0..open.len()));
                    let actual = rng.u64(0..=hold.permits + 1);
                    let is_late = hold.end_ns <= now_ns;
                    let committed = limit.commit(now_ns, hold, actual, FORGOTTEN);
                    assert_eq!(matches!(committed, Committed::Late(_)), is_late);
                    let short = if is_late { actual } else { actual.saturating_sub(hold.permits) };
                    if is_late {
                        (story[at].permits, story[at].end_ns) = (0, None);
                        late += 1;
                    } else {
                        story[at].permits = actual.min(hold.permits);
                        story[at].end_ns = None;
                        returned += u32::from(actual < hold.permits);
                    }
                    if short > 0 {
                        story.push(Event::taken(now_ns, short));
                    }
                }
                9 if rng.bool() && credit.is_some() => {
                    let back = rules[0].credited(&story, now_ns, permits);
                    let credited = credit.map(|credit| credit(&mut limit, now_ns, permits));
                    assert_eq!(credited, Some(back), "of {permits} at {now_ns}");
                    story.push(Event { is_credit: true, ..Event::taken(now_ns, back) });
                }
                9 if rng.bool() => {
                    let charged = limit.charge(now_ns, permits, FORGOTTEN).unwrap();
                    assert_eq!((charged.booked, charged.forgiven), (permits, 0));
                    story.push(Event::taken(now_ns, permits));
                }
                _ => {
                    let wait_ns = wait_of(&story);
                    assert_eq!(limit.peek(now_ns, permits), Ok(Some(wait_ns)), "at {now_ns}");
                }
            }
        }
    }
    assert!(made > 1_000 && returned > 200 && late > 200 && denied_by_hold > 500);
}

fn wait_of_verdict(verdict: &Verdict) -> u64 {
    match verdict {
        Verdict::Granted(_) => 0,
        Verdict::Denied(denial) => denial.retry_after_ns.map_or(0, NonZeroU64::get),
    }
}

fn window(permits: u64, period_ns: u64) -> FixedWindow {
    FixedWindow::new(permits, Duration::from_nanos(period_ns), Anchor::Epoch)
}

fn log(permits: u64, period_ns: u64) -> SlidingLog {
    SlidingLog::new(permits, Duration::from_nanos(period_ns))
}

#[test]
fn a_bucket_decides_as_if_the_cost_had_been_known() {
    for (seed, (permits, period_ns, burst)) in
        [(1, 100, 8), (3, 100, 20), (7, 10, 50), (1, 1_000, 3)].into_iter().enumerate()
    {
        let policy = Gcra::new(rate(permits, period_ns), burst).unwrap();
        let rules = [Rule::Bucket(permits, period_ns, burst)];
        agrees(&rules, || Ledger::new(policy, 0), Some(Ledger::credit), seed.try_into().unwrap());
    }
}

#[test]
fn a_window_and_a_log_decide_as_if_the_cost_had_been_known() {
    agrees(&[Rule::Window(20, 1_000)], || Ledger::new(window(20, 1_000), 0), None, 1);
    agrees(&[Rule::Log(20, 1_000)], || Ledger::new(log(20, 1_000), 0), None, 2);
}

#[test]
fn several_limits_decide_as_if_the_cost_had_been_known() {
    let rules = [Rule::Bucket(1, 50, 30), Rule::Log(40, 2_000)];
    let bucket = Gcra::new(rate(1, 50), 30).unwrap();
    let both = AllOf::default().and(bucket).and(log(40, 2_000));
    agrees(&rules, || Ledger::new(both.clone(), 0), None, 4);
}

fn rate(permits: u64, period_ns: u64) -> Rate {
    Rate::new(permits, Duration::from_nanos(period_ns)).unwrap()
}

fn granted(limit: &mut Ledger, now_ns: u64, permits: u64) -> Grant {
    match limit.try_acquire(now_ns, permits).unwrap() {
        Verdict::Granted(grant) => grant,
        Verdict::Denied(denial) => panic!("{permits} at {now_ns}: {denial:?}"),
    }
}

fn held(limit: &mut Ledger, now_ns: u64, permits: u64, ttl_ns: u64) -> Hold {
    match limit.try_hold(now_ns, permits, ttl_ns).unwrap() {
        HoldVerdict::Held(hold) => hold,
        HoldVerdict::Denied(denial) => panic!("{permits} at {now_ns}: {denial:?}"),
    }
}

#[test]
fn a_hold_ends_at_its_instant_and_not_before() {
    let mut limit = Ledger::new(Gcra::per_hour(1).burst(10), 0);
    held(&mut limit, 0, 10, 500);
    assert_eq!(limit.remaining(499), 0);
    assert_eq!(limit.peek(499, 10), Ok(Some(1)));
    assert_eq!(limit.remaining(500), 10, "looked at, and not changed");
    assert_eq!(limit.debt(500), 0);
    assert_eq!(limit.peek(500, 10), Ok(Some(0)));
    assert!(matches!(limit.try_acquire(499, 1), Ok(Verdict::Denied(_))));
    granted(&mut limit, 500, 10);
}

#[test]
fn a_late_commit_is_charged_whole_and_once() {
    let mut limit = Ledger::new(Gcra::per_hour(1).burst(10), 0);
    let hold = held(&mut limit, 0, 4, 500);
    let late = limit.commit(500, hold, 12, FORGOTTEN);
    assert_eq!(late, Committed::Late(Charged { booked: 12, forgiven: 0, debt: 2 }));
    assert_eq!(limit.cancel_hold(501, hold), None);
    let second = held(&mut Ledger::new(Gcra::per_hour(1).burst(10), 0), 0, 4, 500);
    assert_eq!(second.permits, 4);
}

#[test]
fn a_commit_of_more_is_charged_and_leaves_a_debt() {
    let mut limit = Ledger::new(Gcra::per_second(1).burst(10), 0);
    let hold = held(&mut limit, 0, 8, 60 * S);
    let committed = limit.commit(0, hold, 13, FORGOTTEN);
    assert_eq!(committed, Committed::InTime(Settled::Owed { permits: 5, forgiven: 0 }));
    assert_eq!((limit.debt(0), retry(limit.try_acquire(0, 1))), (3, 4 * S));
    let hold = held(&mut limit, 20 * S, 8, 60 * S);
    let bounded = FORGOTTEN.at_most(Duration::from_secs(1));
    let committed = limit.commit(20 * S, hold, 13, bounded);
    let Committed::InTime(Settled::Owed { permits, forgiven }) = committed else { panic!() };
    assert!(forgiven > 0 && permits + forgiven == 5);
    let hold = held(&mut limit, 60 * S, 8, S);
    assert_eq!(limit.commit(60 * S, hold, 8, FORGOTTEN), Committed::InTime(Settled::Even));
}

#[test]
fn no_permits_are_held_without_a_trace() {
    let mut limit = Ledger::new(Gcra::per_hour(1).burst(3), 0);
    granted(&mut limit, 0, 3);
    let hold = held(&mut limit, 0, 0, 100);
    assert_eq!(limit.next_end_ns(), None);
    let committed = limit.commit(99, hold, 2, FORGOTTEN);
    assert_eq!(committed, Committed::InTime(Settled::Owed { permits: 2, forgiven: 0 }));
    let hold = held(&mut limit, 99, 0, 100);
    assert!(matches!(limit.commit(199, hold, 2, FORGOTTEN), Committed::Late(_)));
    assert!(limit.try_hold(200, 4, 1).is_err(), "more than could ever pass");
}

#[test]
fn slots_come_back_whatever_was_used() {
    let mut limit = Ledger::new(Concurrency::new(3), 0);
    let (first, second) = (held(&mut limit, 0, 1, 100), held(&mut limit, 0, 2, 200));
    assert_eq!(limit.peek(0, 1), Ok(Some(100)), "time helps: the first ends by itself");
    let committed = limit.commit(50, second, 7, FORGOTTEN);
    assert_eq!(committed, Committed::InTime(Settled::Even), "no debt of slots");
    assert_eq!(limit.remaining(50), 2);
    assert_eq!(limit.remaining(100), 3);
    assert_eq!(limit.commit(100, first, 1, FORGOTTEN), Committed::Late(Charged::default()));
    assert_eq!(limit.remaining(100), 3);
}

#[test]
fn effects_count_from_the_commit_or_from_the_end_of_a_hold() {
    let mut limit = Ledger::new(CommitLog::new(4, Duration::from_micros(1)), 0);
    let (first, _) = (held(&mut limit, 0, 2, 10_000), held(&mut limit, 0, 2, 500));
    assert_eq!(
        limit.commit(100, first, 1, FORGOTTEN),
        Committed::InTime(Settled::Back { permits: 1 })
    );
    assert_eq!(limit.remaining(499), 1);
    assert_eq!(limit.remaining(1_099), 1, "the second may have had its effect at 500");
    assert_eq!(limit.remaining(1_100), 2);
    assert_eq!(limit.remaining(1_500), 4);
}

#[test]
fn a_hold_keeps_the_lock_free_form_closed_and_its_end_opens_it() {
    let mut limit = Ledger::new(Gcra::per_second(1).burst(10), 0);
    held(&mut limit, 0, 10, 500);
    assert!(!limit.is_as_fresh(499));
    let lock_free = limit.lock_free(499);
    let is_open = |limit: &mut Ledger, now_ns| {
        limit.open(&lock_free, now_ns);
        lock_free.remaining(now_ns)
    };
    assert_eq!(is_open(&mut limit, 499), None);
    assert_eq!(is_open(&mut limit, 500), Some(10));
}

#[test]
fn a_change_of_the_rate_keeps_what_comes_back() {
    let mut limit = Ledger::new(Gcra::per_second(1).burst(100), 0);
    let hold = held(&mut limit, 0, 60, 600 * S);
    granted(&mut limit, 10 * S, 40);
    // 90 are in use. Ten of the 60 have been earned back, and would have been without them.
    limit.reconfigure(10 * S, Gcra::per_second(2).burst(100)).unwrap();
    assert_eq!(limit.remaining(10 * S), 10);
    let committed = limit.commit(10 * S, hold, 0, FORGOTTEN);
    let Committed::InTime(Settled::Back { permits }) = committed else { panic!("{committed:?}") };
    // A part of a nanosecond is lost.
    assert!((49..=50).contains(&permits), "{permits}");
    assert!((59..=60).contains(&limit.remaining(10 * S)));
}

#[test]
fn an_older_grant_is_held_for_what_a_refund_can_prove() {
    let mut limit = Ledger::new(Gcra::new(rate(1, 100), 20).unwrap(), 0);
    let grant = granted(&mut limit, 0, 5);
    granted(&mut limit, 400, 5);
    let hold = limit.hold_grant(400, &grant, S);
    // Four have been earned since, and would have been without it.
    assert_eq!(limit.cancel_hold(400, hold), Some(1));
    assert_eq!(limit.remaining(400), 15);
}

#[test]
fn a_denial_names_the_first_end_of_a_hold() {
    let mut limit = Ledger::new(log(1_000, 60 * S), 0);
    held(&mut limit, 0, 1_000, 200);
    assert_eq!(retry(limit.reserve(0, 300, Some(100))), 200);
    assert!(matches!(limit.clone().reserve(199, 300, Some(100)), Ok(Verdict::Denied(_))));
    assert_eq!(limit.fresh_at_ns(0), Some(60 * S), "if all of it is used");
    assert!(matches!(limit.reserve(200, 300, Some(100)), Ok(Verdict::Granted(_))));

    // The bucket recovers before the hold ends.
    let mut limit = Ledger::new(Gcra::per_second(1).burst(10), 0);
    held(&mut limit, 0, 4, 60 * S);
    assert_eq!(limit.fresh_at_ns(0), Some(4 * S));
    assert!(!limit.is_as_fresh(5 * S), "its hold may still be committed");

    // Of several limits one may let a short wait pass sooner than it opens.
    let both = AllOf::default().and(Gcra::per_second(1).burst(10)).and(log(20, S));
    let mut limit = Ledger::new(both, 0);
    held(&mut limit, 0, 2, S);
    held(&mut limit, 0, 8, 60 * S);
    assert_eq!(retry(limit.reserve(0, 6, Some(S))), S, "the first end, which is not enough");
    assert_eq!(retry(limit.reserve(S, 6, Some(S))), 2 * S, "what is held is used");
    let mut pauses = Ledger::new(Gcra::per_second(1).burst(10), 0);
    held(&mut pauses, 0, 10, 4 * S);
    assert_eq!(retry(pauses.reserve(0, 6, Some(3 * S))), 3 * S, "sooner than the end");

    // That end may not be enough: then the next denial names the next one.
    let mut limit = Ledger::new(Concurrency::new(3), 0);
    for ttl_ns in [5 * S, 9 * S, 20 * S] {
        held(&mut limit, 0, 1, ttl_ns);
    }
    assert_eq!(retry(limit.try_acquire(S, 2)), 4 * S);
    assert_eq!(retry(limit.try_acquire(5 * S, 2)), 4 * S);
    granted(&mut limit, 9 * S, 2);
}

#[test]
fn a_reset_ends_holds() {
    let mut limit = Ledger::new(Gcra::per_hour(1).burst(10), 0);
    let hold = held(&mut limit, 0, 10, 500);
    limit.restart(1);
    assert_eq!((limit.remaining(1), limit.next_end_ns()), (10, None));
    assert!(matches!(limit.commit(2, hold, 3, FORGOTTEN), Committed::Late(_)));
    assert_eq!(limit.remaining(2), 7);
}

#[test]
fn promises_are_kept_beside_holds() {
    let mut limit = Ledger::new(Gcra::per_second(1).burst(4), 0);
    let hold = held(&mut limit, 0, 4, 600 * S);
    let Ok(Verdict::Granted(promise)) = limit.reserve(0, 2, None) else { panic!() };
    assert_eq!(promise.start_ns, 2 * S);
    assert_eq!(limit.cancel_hold(S, hold), Some(4));
    // Three were free, and the promise needs two of them.
    granted(&mut limit, S, 3);
    assert!(matches!(limit.try_acquire(S, 1), Ok(Verdict::Denied(_))));
    assert_eq!(limit.remaining(2 * S), 0);
    assert_eq!(retry(limit.try_acquire(2 * S, 1)), S);
}

#[test]
fn a_refund_beside_a_hold_returns_nothing_twice() {
    let mut rng = Rng::with_seed(5);
    for _ in 0..2_000 {
        let (permits, period_ns, burst) = (1, 100, 12);
        let mut limit = Ledger::new(Gcra::new(rate(permits, period_ns), burst).unwrap(), 0);
        // What was taken and had its effect: the rest came back.
        let mut effects: Vec<(u64, u64)> = Vec::new();
        let (mut holds, mut grants) = (Vec::new(), Vec::new());
        let mut now_ns = 0;
        for _ in 0..30 {
            now_ns += rng.u64(0..300);
            let permits = rng.u64(1..=6);
            match rng.u32(0..5) {
                0 | 1 => {
                    if let Verdict::Granted(grant) = limit.try_acquire(now_ns, permits).unwrap() {
                        grants.push((grant, effects.len()));
                        effects.push((now_ns, permits));
                    }
                }
                2 => {
                    let hold = limit.try_hold(now_ns, permits, 1 << 40).unwrap();
                    if let HoldVerdict::Held(hold) = hold {
                        holds.push((hold, effects.len()));
                        effects.push((now_ns, permits));
                    }
                }
                3 if !grants.is_empty() => {
                    let (grant, at) = grants.swap_remove(rng.usize(0..grants.len()));
                    let back = rng.u64(0..=grant.permits);
                    assert!(limit.refund(now_ns, &grant, back) <= back);
                    effects[at].1 -= back;
                }
                4 if !holds.is_empty() => {
                    let (hold, at) = holds.swap_remove(rng.usize(0..holds.len()));
                    let actual = rng.u64(0..=hold.permits);
                    limit.commit(now_ns, hold, actual, FORGOTTEN);
                    effects[at].1 = actual;
                }
                _ => {}
            }
            // At least as full as a bucket that only the effects were taken from.
            let story: Vec<Event> =
                effects.iter().map(|&(at_ns, permits)| Event::taken(at_ns, permits)).collect();
            let left = limit.remaining(now_ns);
            assert!(left == 0 || Rule::Bucket(1, period_ns, burst).passes(&story, now_ns, left));
        }
    }
}

#[test]
fn a_refund_of_a_later_grant_takes_nothing_from_earlier_holds() {
    // A permit is earned in 100 ns.
    let mut limit = Ledger::new(Gcra::new(rate(1, 100), 20).unwrap(), 0);
    let first = held(&mut limit, 0, 5, S);
    granted(&mut limit, 300, 3);
    held(&mut limit, 300, 4, S);
    let newest = granted(&mut limit, 600, 2);
    assert_eq!(limit.refund(600, &newest, 2), 2);
    // Without the first, 7 were taken at 300 and three earned since.
    assert_eq!(limit.cancel_hold(600, first), Some(2));
    assert_eq!(limit.remaining(600), 16);
}

#[test]
fn refunds_of_several_limits_work_beside_and_after_holds() {
    let both: [AnyPolicy; 2] =
        [Gcra::per_second(1).burst(10).into(), log(100, 3_600_000_000_000).into()];
    let mut limit = Ledger::new(both, 0);
    let hold = held(&mut limit, 0, 5, 60 * S);
    // The bucket has made up for the hold by then, and the log has not: they differ.
    limit.pass_to(50 * S);
    assert_eq!(limit.cancel_hold(50 * S, hold), Some(5));
    let hold = held(&mut limit, 50 * S, 5, 60 * S);
    granted(&mut limit, 58 * S, 10);
    assert_eq!(limit.cancel_hold(59 * S, hold), Some(0), "earned back by 55");
    let grant = granted(&mut limit, 70 * S, 8);
    assert_eq!(limit.refund(70 * S, &grant, 8), 8);
    assert_eq!(limit.remaining(70 * S), 10);
}

#[test]
fn many_holds_end_in_any_order() {
    let mut rng = Rng::with_seed(6);
    let mut limit = Ledger::new(Gcra::per_second(1_000_000).burst(10_000_000), 0);
    let mut holds: Vec<Hold> =
        (0..20_000).map(|at| held(&mut limit, at * 1_000, 100, 60 * S)).collect();
    rng.shuffle(&mut holds);
    let mut back = 0;
    for hold in holds {
        match limit.commit(S, hold, 40, FORGOTTEN) {
            Committed::InTime(Settled::Back { permits }) => back += permits,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(back, 20_000 * 60, "the bucket was never full");
    assert_eq!(limit.next_end_ns(), None);
}
