//! Tests of holds that a restored limit adopts: they end as in the limit that was never saved.

use std::num::NonZeroU64;
use std::time::Duration;

use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::calendar::{Calendar, Grid, Window};
use rategate_core::compact_log::CompactLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::Debt;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::holds::{Committed, Hold, HoldVerdict, Holding as _};
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit as _;
use rategate_core::portable::{RestoreContext, WordsError};
use rategate_core::rate::Rate;
use rategate_core::saved::{SavedHold, restore};
use rategate_core::sliding_log::SlidingLog;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::Verdict;

use crate::common::S;

type Limit = Ledger<AnyPolicy>;

/// The number of restarts of each policy.
const STORIES: u64 = 300;

fn rate(permits: u64, period_ns: u64) -> Rate {
    Rate::new(permits, Duration::from_nanos(period_ns)).unwrap()
}

/// Windows of 700 and of 1300 ns.
#[derive(Debug)]
struct Uneven;

impl Grid for Uneven {
    fn text(&self) -> &'static str {
        "uneven"
    }

    fn window(&self, at_ns: u64) -> Window {
        let (pair, in_pair_ns) = (at_ns / 2_000, at_ns % 2_000);
        let (start_ns, end_ns, second) =
            if in_pair_ns < 700 { (0, 700, 0) } else { (700, 2_000, 1) };
        let of = |ns| pair * 2_000 + ns;
        Window { start_ns: of(start_ns), end_ns: of(end_ns), number: pair * 2 + second }
    }

    fn start_of(&self, number: u64) -> Option<u64> {
        Some(number / 2 * 2_000 + number % 2 * 700)
    }
}

/// Policies with a number of permits that each has. All is known of what is held.
fn exact() -> Vec<(AnyPolicy, u64)> {
    let window = |anchor| FixedWindow::new(20, Duration::from_micros(1), anchor);
    let micro = Duration::from_micros(1);
    vec![
        (Calendar::new(20, &Uneven).into(), 20),
        (Gcra::new(rate(1, 100), 8).unwrap().into(), 8),
        (Gcra::new(rate(7, 100), 50).unwrap().into(), 50),
        (Gcra::new(rate(3, 1_000), 20).unwrap().into(), 20),
        (window(Anchor::Epoch).into(), 20),
        (window(Anchor::FirstCall).into(), 20),
        (SlidingLog::new(20, micro).into(), 20),
        (CompactLog::new(20, micro).into(), 20),
    ]
}

/// Those, and a schedule, which takes back what a refund can prove.
fn policies() -> Vec<(AnyPolicy, u64)> {
    let schedule = TwoTimeline::new(rate(1, 100), Mode::Strict, Some(Duration::from_micros(1)));
    let mut all = exact();
    all.push((schedule.into(), 1));
    all
}

/// A hold of both limits, if the second has it.
type Pair = (Hold, Option<Hold>);

/// Saves a limit with some of its holds, and restores it.
fn restarted(
    limit: &Limit,
    to: AnyPolicy,
    (saved_ns, now_ns): (u64, u64),
    open: &mut [Pair],
    is_kept: impl Fn(&mut Rng) -> bool,
    rng: &mut Rng,
) -> Limit {
    let since = RestoreContext { now_ns, elapsed_ns: now_ns - saved_ns };
    let mut restored = restore(&to, &limit.save(saved_ns), since).unwrap();
    let mut saved: Vec<(SavedHold, usize)> = Vec::new();
    for (at, pair) in open.iter_mut().enumerate() {
        pair.1 = None;
        if is_kept(rng) {
            saved.extend(limit.save_hold(saved_ns, pair.0).map(|hold| (hold, at)));
        }
    }
    saved.sort_by_key(|(hold, _)| hold.serial);
    for (hold, at) in saved {
        open[at].1 = Some(restored.adopt_hold(since, &hold).unwrap());
    }
    restored
}

/// Takes and holds, and ends some of what is held, before a restart.
fn story(limit: &mut Limit, max: u64, span_ns: u64, rng: &mut Rng) -> (u64, Vec<Pair>) {
    let (mut now_ns, mut open) = (rng.u64(0..5_000), Vec::new());
    for _ in 0..rng.u32(1..60) {
        now_ns += if rng.bool() { 0 } else { rng.u64(0..span_ns) };
        let permits = rng.u64(1..=max);
        match rng.u32(0..8) {
            0..=1 => drop(limit.try_acquire(now_ns, permits)),
            2..=5 => {
                let ttl_ns = rng.u64(1..6 * span_ns);
                if let Ok(HoldVerdict::Held(hold)) = limit.try_hold(now_ns, permits, ttl_ns) {
                    open.push((hold, None));
                }
            }
            6 if !open.is_empty() => {
                let (hold, _): Pair = open.swap_remove(rng.usize(..open.len()));
                limit.commit(now_ns, hold, rng.u64(0..=hold.permits), Debt::FORGOTTEN);
            }
            _ if rng.bool() => drop(limit.credit(now_ns, permits / 2)),
            // A debt of a schedule is promises, which are taken when they are saved.
            _ if !matches!(limit.policy(), AnyPolicy::TwoTimeline(_)) => {
                let _ = limit.charge(now_ns, permits, Debt::FORGOTTEN);
            }
            _ => {}
        }
    }
    (now_ns, open)
}

/// Whatever comes after a restart is decided as without it, and each hold ends as without it.
#[test]
fn adopted_holds_end_as_without_a_restart() {
    for (nth, (policy, max)) in exact().into_iter().enumerate() {
        let mut rng = Rng::with_seed(u64::try_from(nth).unwrap());
        let (mut returned, mut late) = (0, 0);
        for _ in 0..STORIES {
            let span_ns = rng.u64(20..1_500);
            let mut first = Ledger::new(policy, 0);
            let (saved_ns, mut open) = story(&mut first, max, span_ns, &mut rng);
            let mut now_ns = saved_ns + rng.u64(0..2 * span_ns);
            let both = (saved_ns, now_ns);
            let all = |_: &mut Rng| true;
            let mut second = restarted(&first, policy, both, &mut open, all, &mut rng);
            for step in 0..60 {
                now_ns += if rng.bool() { 0 } else { rng.u64(0..span_ns) };
                let permits = rng.u64(1..=max);
                match rng.u32(0..8) {
                    0..=1 => {
                        let [one, two] = [&mut first, &mut second]
                            .map(|limit| wait(&limit.try_acquire(now_ns, permits).unwrap()));
                        assert_eq!(one, two, "{policy:?}: {permits} at {now_ns}, step {step}");
                    }
                    2 => {
                        let ttl_ns = rng.u64(1..6 * span_ns);
                        let [one, two] = [&mut first, &mut second]
                            .map(|limit| limit.try_hold(now_ns, permits, ttl_ns).unwrap());
                        match (one, two) {
                            (HoldVerdict::Held(one), HoldVerdict::Held(two)) => {
                                open.push((one, Some(two)));
                            }
                            (HoldVerdict::Denied(one), HoldVerdict::Denied(two)) => {
                                assert_eq!(one, two, "{policy:?} at {now_ns}, step {step}");
                            }
                            both => panic!("{policy:?} at {now_ns}, step {step}: {both:?}"),
                        }
                    }
                    3..=5 if !open.is_empty() => {
                        let (one, two) = open.swap_remove(rng.usize(..open.len()));
                        let actual = rng.u64(0..=one.permits + 2);
                        let one = first.commit(now_ns, one, actual, Debt::FORGOTTEN);
                        // What had ended before it was saved was not adopted.
                        let Some(two) = two else {
                            assert!(matches!(one, Committed::Late(_)), "{one:?}");
                            second.charge(now_ns, actual, Debt::FORGOTTEN).unwrap();
                            continue;
                        };
                        let two = second.commit(now_ns, two, actual, Debt::FORGOTTEN);
                        assert_eq!(one, two, "{policy:?} at {now_ns}, step {step}");
                        returned += u32::from(matches!(one, Committed::InTime(_)));
                        late += u32::from(matches!(one, Committed::Late(_)));
                    }
                    _ => {}
                }
                let looks = [&first, &second]
                    .map(|limit| (limit.remaining(now_ns), limit.peek(now_ns, permits)));
                assert_eq!(looks[0], looks[1], "{policy:?} at {now_ns}, step {step}");
            }
        }
        assert!(returned > 300 && late > 100, "{policy:?}: {returned}, {late}");
    }
}

/// Where only some are adopted, at another moment than that of saving, and under other numbers, the
/// restored limit has no more than the one that goes on.
#[test]
fn a_restored_limit_has_never_more_than_the_one_that_was_saved() {
    let others: Vec<AnyPolicy> = vec![
        Gcra::new(rate(3, 100), 30).unwrap().into(),
        Gcra::new(rate(1, 1_000), 8).unwrap().into(),
        FixedWindow::new(30, Duration::from_nanos(700), Anchor::Epoch).into(),
        SlidingLog::new(11, Duration::from_nanos(1_300)).into(),
        CompactLog::new(40, Duration::from_nanos(1_300)).into(),
    ];
    for (nth, (policy, max)) in policies().into_iter().enumerate() {
        let mut rng = Rng::with_seed(100 + u64::try_from(nth).unwrap());
        for _ in 0..STORIES {
            let span_ns = rng.u64(20..1_500);
            let mut first = Ledger::new(policy, 0);
            let (saved_ns, mut open) = story(&mut first, max, span_ns, &mut rng);
            let counters = first.save(saved_ns);
            let is_kind = |other: &&AnyPolicy| {
                std::mem::discriminant(*other) == std::mem::discriminant(&policy)
            };
            let to = others.iter().filter(is_kind).find(|_| rng.bool()).unwrap_or(&policy);
            // The list of holds is of a later moment than the counters, and calls go on meanwhile:
            // what these take is lost.
            let (mut list_ns, mut listed) = (saved_ns, first.clone());
            for _ in 0..rng.u32(0..6) {
                list_ns += rng.u64(0..=span_ns / 10);
                match rng.u32(0..3) {
                    0 => drop(listed.try_acquire(list_ns, rng.u64(1..=max))),
                    1 if !open.is_empty() => {
                        let (hold, _) = open.swap_remove(rng.usize(..open.len()));
                        // What a late commit charges is lost as well.
                        for limit in [&mut first, &mut listed] {
                            if hold.end_ns <= list_ns {
                                continue;
                            }
                            limit.commit(list_ns, hold, hold.permits, Debt::FORGOTTEN);
                        }
                    }
                    _ => {}
                }
            }
            let now_ns = list_ns + rng.u64(0..span_ns);
            let since = RestoreContext { now_ns, elapsed_ns: now_ns - saved_ns };
            let mut second = restore(to, &counters, since).unwrap();
            let mut saved: Vec<(SavedHold, usize)> = Vec::new();
            for (at, pair) in open.iter().enumerate() {
                if rng.u8(0..4) > 0 {
                    saved.extend(listed.save_hold(saved_ns, pair.0).map(|hold| (hold, at)));
                }
            }
            saved.sort_by_key(|(hold, _)| hold.serial);
            for (hold, at) in saved {
                open[at].1 = Some(second.adopt_hold(since, &hold).unwrap());
            }
            if to != &policy {
                first.reconfigure(now_ns, *to);
            }
            let mut now_ns = now_ns;
            for step in 0..40 {
                now_ns += if rng.bool() { 0 } else { rng.u64(0..span_ns) };
                if rng.bool() && !open.is_empty() {
                    let (one, two) = open.swap_remove(rng.usize(..open.len()));
                    let actual = rng.u64(0..=one.permits);
                    let ended = first.commit(now_ns, one, actual, Debt::FORGOTTEN);
                    match (two, ended) {
                        (Some(two), _) => {
                            second.commit(now_ns, two, actual, Debt::FORGOTTEN);
                        }
                        // Its caller is told that it is unknown, and charges what was used.
                        (None, Committed::Late(_)) => {
                            second.charge(now_ns, actual, Debt::FORGOTTEN).unwrap();
                        }
                        (None, Committed::InTime(_)) => {}
                    }
                }
                let [one, two] = [&first, &second].map(|limit| limit.remaining(now_ns));
                assert!(
                    two <= one,
                    "{policy:?} to {to:?} at {now_ns}, step {step}: {two} of {one}"
                );
            }
        }
    }
}

fn wait(verdict: &Verdict) -> u64 {
    match verdict {
        Verdict::Granted(_) => 0,
        Verdict::Denied(denial) => denial.retry_after_ns.map_or(0, NonZeroU64::get),
    }
}

#[test]
fn what_is_no_hold_of_a_limit_is_refused() {
    let since = RestoreContext { now_ns: S, elapsed_ns: 0 };
    let mut limit = Ledger::new(Gcra::per_second(1).burst(9), 0);
    let hold = match limit.try_hold(0, 4, S).unwrap() {
        HoldVerdict::Held(hold) => hold,
        HoldVerdict::Denied(denial) => panic!("{denial:?}"),
    };
    let saved = limit.save_hold(0, hold).unwrap();
    let mut window = Ledger::new(FixedWindow::new(9, Duration::from_secs(1), Anchor::Epoch), S);
    assert_eq!(window.adopt_hold(since, &saved), Err(WordsError::OtherPolicy { tag: 1 }));
    for length in 0..saved.words.len() {
        let words = saved.words[..length].to_vec();
        let torn = SavedHold { words, ..saved.clone() };
        assert_eq!(limit.adopt_hold(since, &torn), Err(WordsError::EndsEarly { words: length }));
    }
    let mut words = saved.words.clone();
    words.push(0);
    let longer = SavedHold { words, ..saved };
    assert!(matches!(limit.adopt_hold(since, &longer), Err(WordsError::TrailingWords { .. })));
    limit.commit(0, hold, 4, Debt::FORGOTTEN);
    assert_eq!(limit.save_hold(0, hold), None, "it has ended");
    let mut slots = Ledger::new(Concurrency::new(3), 0);
    let Ok(HoldVerdict::Held(slot)) = slots.try_hold(0, 1, S) else { panic!("there are three") };
    assert_eq!(slots.save_hold(0, slot), None, "what is in flight has ended with its process");
}
