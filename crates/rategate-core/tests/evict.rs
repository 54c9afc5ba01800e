//! Tests of eviction: a state equivalent to a fresh one can be dropped without changing any
//! decision.

use std::time::Duration;

use crate::common::{MS, S, policy};
use fastrand::Rng;
use rategate_core::adaptive::AdaptiveRate;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::holds::HoldVerdict;
use rategate_core::ledger::Ledger;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::slow_start::SlowStart;
use rategate_core::verdict::{Grant, Verdict};
use rategate_core::warm_up::WarmUp;

fn policies(random: &mut Rng) -> AnyPolicy {
    let rate = random
        .choice(["1/s", "3/s", "7/10s", "1000/s", "30000001/s", "unlimited", "never"])
        .unwrap();
    let (permits, period_ns) = (random.u64(1..=6), random.choice([7, MS, S]).unwrap());
    match random.u64(0..=10) {
        9 | 10 => {
            let bucket = AnyPolicy::from(Gcra::new(rate.parse().unwrap(), permits).unwrap());
            let log = SlidingLog::new(permits, Duration::from_nanos(period_ns)).into();
            slow(random.choice([bucket, log]).unwrap(), period_ns).into()
        }
        0 | 1 => Gcra::new(rate.parse().unwrap(), permits).unwrap().into(),
        7 => AdaptiveRate::new("1/s".parse().unwrap(), "1000/s".parse().unwrap())
            .burst(permits)
            .into(),
        8 => WarmUp::new(rate.parse().unwrap(), Duration::from_nanos(period_ns)).unwrap().into(),
        2 => SlidingLog::new(permits, Duration::from_nanos(period_ns))
            .with_guard(Duration::from_nanos(period_ns / 3))
            .unwrap()
            .into(),
        3 => SlidingLog::new(permits, Duration::from_nanos(period_ns)).compact().into(),
        4 => {
            let anchor = random.choice([Anchor::Epoch, Anchor::FirstCall]).unwrap();
            FixedWindow::new(permits, Duration::from_nanos(period_ns), anchor).into()
        }
        5 => Concurrency::new(permits).into(),
        _ => CommitLog::new(permits, Duration::from_nanos(period_ns)).into(),
    }
}

/// Returns a limit with a slow start of so many nanoseconds.
fn slow(policy: impl Into<AnyPolicy>, period_ns: u64) -> SlowStart {
    SlowStart::new(policy, Duration::from_nanos(period_ns)).unwrap()
}

/// One limit is dropped whenever it may be, another never, and their decisions agree.
///
/// A limit that has been idle for long enough may always be dropped
/// (docs/theory.md, section 6.8).
#[test]
fn forgetting_never_changes_a_decision() {
    let (mut evicted, mut kept) = (0, 0);
    for seed in 0..4_000 {
        let mut random = Rng::with_seed(seed);
        let policy = policies(&mut random);
        let step = random.choice([3, MS, S / 3, 3 * S]).unwrap();
        let mut now_ns = random.choice([0, 5 * S, u64::MAX - 200 * S]).unwrap();
        let mut whole = Ledger::new(policy, now_ns);
        let mut parted = whole.clone();
        let context = format!("seed {seed}, {policy:?}");
        for _ in 0..60 {
            now_ns += random.u64(0..=step);
            if parted.clone().is_as_fresh(now_ns) {
                parted = Ledger::new(policy, now_ns);
                evicted += 1;
            } else {
                kept += 1;
            }
            let permits = random.u64(1..=3);
            match random.u64(0..=9) {
                0..=6 => {
                    let ideal = whole.try_acquire(now_ns, permits);
                    let seen = parted.try_acquire(now_ns, permits);
                    assert_eq!(ideal.map(visible).ok(), seen.map(visible).ok(), "{context}");
                    assert_eq!(whole.remaining(now_ns), parted.remaining(now_ns), "{context}");
                }
                7 => {
                    // Operations in flight are known, so a limit with any is not dropped.
                    assert_eq!(
                        whole.release(now_ns, permits),
                        parted.release(now_ns, permits),
                        "{context}"
                    );
                }
                8 => {
                    assert_eq!(
                        whole.peek(now_ns, permits),
                        parted.peek(now_ns, permits),
                        "{context}"
                    );
                }
                _ => assert_eq!(whole.remaining(now_ns), parted.remaining(now_ns), "{context}"),
            }
        }
    }
    assert!(evicted > 40_000 && kept > 40_000, "{evicted} {kept}");
}

/// Returns the reported result of a try.
fn visible(verdict: Verdict) -> Option<(u64, u64)> {
    match verdict {
        Verdict::Granted(grant) => Some((grant.start_ns, grant.scheduled_ns)),
        Verdict::Denied(denial) => denial.retry_after_ns.map(|wait_ns| (u64::MAX, wait_ns.get())),
    }
}

/// An idle limit may be dropped once all it remembers has expired, and not a nanosecond sooner.
#[test]
fn a_limit_is_evicted_when_its_time_has_come() {
    let cases: [(AnyPolicy, u64); 6] = [
        (Gcra::new("3/s".parse().unwrap(), 2).unwrap().into(), 1_000 + 666_666_667),
        (
            SlidingLog::new(2, Duration::from_nanos(S))
                .with_guard(Duration::from_nanos(5))
                .unwrap()
                .into(),
            S + 1_000 + 5,
        ),
        (SlidingLog::new(2, Duration::from_nanos(S)).compact().into(), S + MS),
        (FixedWindow::new(2, Duration::from_nanos(S), Anchor::Epoch).into(), S),
        (CommitLog::new(2, Duration::from_nanos(S)).into(), S + 2_000),
        // A period after the second by its slow clock.
        (slow(SlidingLog::new(2, Duration::from_nanos(S)), S).into(), 2 * S + 450 * MS + 1_000),
    ];
    for (policy, fresh_ns) in cases {
        let mut limit = Ledger::new(policy, 1_000);
        assert!(limit.is_as_fresh(1_000), "{policy:?}");
        let _ = limit.try_acquire(1_000, 2).unwrap();
        limit.release(2_000, 2);
        assert!(!limit.is_as_fresh(fresh_ns - 1), "{policy:?}");
        assert!(limit.is_as_fresh(fresh_ns), "{policy:?}");
    }
}

/// A grant of the limit that is dropped now and then, and of the one that is kept.
struct Pair {
    kept: Grant,
    parted: Grant,
    started: bool,
}

/// Two ledgers with the same numbers, one of which is dropped and made anew whenever it may be.
struct Evicting {
    kept: Ledger,
    parted: Ledger,
    grants: Vec<Pair>,
    evicted: u32,
    now_ns: u64,
}

impl Evicting {
    fn new(policy: AnyPolicy, now_ns: u64) -> Self {
        let kept = Ledger::new(policy, now_ns);
        let parted = kept.clone();
        Self { kept, parted, grants: Vec::new(), evicted: 0, now_ns }
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        if self.parted.is_as_fresh(self.now_ns) {
            self.parted = Ledger::new(policy(&self.parted), self.now_ns);
            self.evicted += 1;
        }
        for grant in &mut self.grants {
            grant.started |= grant.kept.start_ns <= self.now_ns;
        }
    }

    fn try_acquire(&mut self, permits: u64, what: &str) {
        let kept = self.kept.try_acquire(self.now_ns, permits);
        let parted = self.parted.try_acquire(self.now_ns, permits);
        assert_eq!(kept.map(visible).ok(), parted.map(visible).ok(), "{what}");
        if let (Ok(Verdict::Granted(kept)), Ok(Verdict::Granted(parted))) = (kept, parted) {
            self.grants.push(Pair { kept, parted, started: true });
        }
    }

    fn reserve(&mut self, permits: u64, max_ns: u64, what: &str) {
        let kept = self.kept.reserve(self.now_ns, permits, Some(max_ns));
        let parted = self.parted.reserve(self.now_ns, permits, Some(max_ns));
        assert_eq!(kept.map(visible).ok(), parted.map(visible).ok(), "{what}");
        if let (Ok(Verdict::Granted(kept)), Ok(Verdict::Granted(parted))) = (kept, parted) {
            let started = kept.start_ns <= self.now_ns;
            self.grants.push(Pair { kept, parted, started });
        }
    }

    /// Ends a promise: it is cancelled, or starts now.
    fn end(&mut self, at: usize, early: bool, what: &str) {
        let grant = self.grants.swap_remove(at);
        let now_ns = self.now_ns;
        if grant.started {
            return;
        }
        let act = if early { Ledger::start_early } else { Ledger::cancel };
        let kept = act(&mut self.kept, now_ns, grant.kept.ticket);
        assert_eq!(kept, act(&mut self.parted, now_ns, grant.parted.ticket), "{what}");
    }

    /// Changes the numbers as a table does: a limit that is as good as fresh stays so.
    fn change(&mut self, policy: AnyPolicy) {
        for ledger in [&mut self.kept, &mut self.parted] {
            if ledger.is_as_fresh(self.now_ns) {
                ledger.restart_as(self.now_ns, policy);
            } else {
                ledger.reconfigure(self.now_ns, policy).unwrap();
            }
        }
    }
}

fn evicts_unnoticed<P: Into<AnyPolicy>>(seed: u64, policies: [P; 3], evicted: &mut u32) {
    let policies = policies.map(Into::<AnyPolicy>::into);
    let mut random = Rng::with_seed(seed);
    let mut pair = Evicting::new(policies[0], random.choice([0, 5 * S]).unwrap());
    let step = random.choice([3, MS, S / 3, 3 * S]).unwrap();
    let changes_once_in = random.choice([15, 1_000]).unwrap();
    for call in 0..80 {
        pair.pass(random.u64(0..=step));
        let permits = random.u64(1..=3);
        let what = format!("seed {seed}, call {call}, {policies:?}");
        let grants = pair.grants.len();
        match random.u64(0..=9) {
            0..=4 => pair.try_acquire(permits, &what),
            5 => pair.reserve(permits, random.u64(0..=2 * step), &what),
            6 | 7 if grants > 0 => {
                let last = u64::try_from(grants - 1).unwrap();
                let at = usize::try_from(random.u64(0..=last)).unwrap();
                pair.end(at, random.u64(..3) == 0, &what);
            }
            _ if random.u64(..changes_once_in) == 0 => {
                pair.change(policies[random.choice([0, 1, 2]).unwrap()]);
            }
            _ => {
                let kept = pair.kept.remaining(pair.now_ns);
                assert_eq!(kept, pair.parted.remaining(pair.now_ns), "{what}");
            }
        }
    }
    *evicted += pair.evicted;
}

/// Promises and changes of the numbers do not reveal which limit has been dropped.
///
/// Promises are kept, cancelled and started early.
#[test]
fn evicting_grants_no_permit() {
    let (mut buckets, mut logs, mut windows, mut slows) = (0, 0, 0, 0);
    for seed in 0..3_000 {
        let mut random = Rng::with_seed(seed);
        let period_ns = random.choice([7, MS, S]).unwrap();
        let rates = ["1/s", "3/s", "7/10s", "1000/s", "30000001/s"];
        let mut bucket = || {
            Gcra::new(random.choice(&rates).copied().unwrap().parse().unwrap(), random.u64(1..=6))
                .unwrap()
        };
        evicts_unnoticed(seed, [bucket(), bucket(), bucket()], &mut buckets);
        let mut slow_bucket = || slow(bucket(), period_ns);
        evicts_unnoticed(seed, [slow_bucket(), slow_bucket(), slow_bucket()], &mut slows);
        let mut permits = || random.u64(1..=6);
        let mut log = || SlidingLog::new(permits(), Duration::from_nanos(period_ns)).compact();
        evicts_unnoticed(seed, [log(), log(), log()], &mut logs);
        let mut log = || SlidingLog::new(permits(), Duration::from_nanos(period_ns));
        evicts_unnoticed(seed, [log(), log(), log()], &mut logs);
        let mut slow_log = || slow(log(), period_ns);
        evicts_unnoticed(seed, [slow_log(), slow_log(), slow_log()], &mut slows);
        let mut window =
            || FixedWindow::new(permits(), Duration::from_nanos(period_ns), Anchor::Epoch);
        evicts_unnoticed(seed, [window(), window(), window()], &mut windows);
    }
    for evicted in [buckets, logs, windows, slows] {
        assert!(evicted > 5_000, "{evicted}");
    }
}

/// A state that is kept without its ledger determines all decisions, once nothing is promised or
/// held.
#[test]
fn a_state_alone_says_everything() {
    let [slow, fast] = ["1/s", "1000/s"].map(|rate| Gcra::new(rate.parse().unwrap(), 10).unwrap());
    let mut ledger = Ledger::new(slow, S);
    assert!(matches!(ledger.try_acquire(S, 10), Ok(Verdict::Granted(_))));
    assert!(ledger.quiescent_state(S).is_some());
    let Verdict::Granted(promise) = ledger.reserve(S, 1, Some(S)).unwrap() else { panic!() };
    assert!(ledger.quiescent_state(S).is_none());
    assert!(ledger.start_early(S, promise.ticket));
    assert!(ledger.quiescent_state(S).is_some());
    ledger.reconfigure(S, fast).unwrap();
    assert!(ledger.quiescent_state(S).is_some());
    let HoldVerdict::Held(held) = ledger.try_hold(2 * S, 3, 5 * S).unwrap() else { panic!() };
    assert!(ledger.quiescent_state(2 * S).is_none());
    assert_eq!(ledger.cancel_hold(3 * S, held), Some(3));
    assert!(ledger.quiescent_state(3 * S).is_some());
}
