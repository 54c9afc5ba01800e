//! Tests of eviction: a state equivalent to a fresh one can be dropped without changing any
//! decision.

use crate::common::limits::{Kind, Scale, limit};
use crate::common::{MS, S, bucket, log, ns, policy, window};
use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::commit_log::CommitLog;
use rategate_core::gcra::Gcra;
use rategate_core::holds::HoldVerdict;
use rategate_core::ledger::Ledger;
use rategate_core::slow_start::SlowStart;
use rategate_core::verdict::{Grant, Verdict};

const KINDS: [Kind; 14] = [
    Kind::Bucket,
    Kind::BucketAtAnEnd,
    Kind::AdaptiveRate,
    Kind::Log,
    Kind::GridLog,
    Kind::CompactLog,
    Kind::Window,
    Kind::WindowOfFirstCall,
    Kind::WarmUp,
    Kind::WarmUpAtAnEnd,
    Kind::Concurrency,
    Kind::CommitLog,
    Kind::SlowBucket,
    Kind::SlowLog,
];

/// Returns a limit with a slow start of so many nanoseconds.
fn slow(policy: impl Into<AnyPolicy>, period_ns: u64) -> SlowStart {
    SlowStart::new(policy, ns(period_ns)).unwrap()
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
        (bucket("3/s", 2).into(), 1_000 + 666_666_667),
        (log(2, S).with_guard(ns(5)).unwrap().into(), S + 1_000 + 5),
        (log(2, S).compact().into(), S + MS),
        (window(2, S).into(), S),
        (CommitLog::new(2, ns(S)).into(), S + 2_000),
        // A period after the second by its slow clock.
        (slow(log(2, S), S).into(), 2 * S + 450 * MS + 1_000),
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

    /// Tries, or reserves within a time.
    fn call(&mut self, permits: u64, max_wait_ns: Option<u64>, what: &str) {
        let now_ns = self.now_ns;
        let answers = [&mut self.kept, &mut self.parted].map(|limit| match max_wait_ns {
            None => limit.try_acquire(now_ns, permits),
            Some(_) => limit.reserve(now_ns, permits, max_wait_ns),
        });
        let [kept, parted] = answers.map(|answer| answer.map(visible).ok());
        assert_eq!(kept, parted, "{what}");
        if let [Ok(Verdict::Granted(kept)), Ok(Verdict::Granted(parted))] = answers {
            let started = kept.start_ns <= now_ns;
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

/// One limit is dropped whenever it may be, another never, and their decisions agree. Returns how
/// often it was dropped, and how often it could not be.
fn evicts_unnoticed(seed: u64, kind: Kind) -> [u32; 2] {
    let mut random = Rng::with_seed(seed);
    let policies = [0; 3].map(|_| limit(kind, Scale::Any, &mut random));
    let start_ns = random.choice([0, 5 * S, u64::MAX - 300 * S]).unwrap();
    let mut pair = Evicting::new(policies[0], start_ns);
    let step = random.choice([3, MS, S / 3, 3 * S]).unwrap();
    let changes_once_in = random.choice([15, 1_000]).unwrap();
    for call in 0..80 {
        pair.pass(random.u64(0..=step));
        let permits = random.u64(1..=3);
        let what = format!("seed {seed}, call {call}, {policies:?}");
        let grants = pair.grants.len();
        let Evicting { kept, parted, now_ns, .. } = &mut pair;
        match random.u64(0..=11) {
            0..=4 => pair.call(permits, None, &what),
            5 => pair.call(permits, Some(random.u64(0..=2 * step)), &what),
            6 | 7 if grants > 0 => {
                pair.end(random.usize(..grants), random.u64(..3) == 0, &what);
            }
            // Operations in flight are known, so a limit with any is not dropped.
            8 => {
                let released = kept.release(*now_ns, permits);
                assert_eq!(parted.release(*now_ns, permits), released, "{what}");
            }
            9 => {
                let peeked = kept.peek(*now_ns, permits);
                assert_eq!(parted.peek(*now_ns, permits), peeked, "{what}");
            }
            _ if random.u64(..changes_once_in) == 0 => {
                pair.change(random.choice(policies).unwrap());
            }
            _ => assert_eq!(kept.remaining(*now_ns), parted.remaining(*now_ns), "{what}"),
        }
    }
    [pair.evicted, 80 - pair.evicted]
}

/// Tries, promises and changes of the numbers do not reveal which limit has been dropped: a limit
/// that has been idle for long enough may always be dropped (docs/theory.md, section 6.8).
///
/// Promises are kept, cancelled and started early.
#[test]
fn evicting_grants_no_permit() {
    for kind in KINDS {
        let (mut evicted, mut kept) = (0, 0);
        for seed in 0..3_000 {
            let [dropped, not] = evicts_unnoticed(seed, kind);
            (evicted, kept) = (evicted + dropped, kept + not);
        }
        assert!(evicted > 5_000, "{kind:?}: {evicted}");
        let is_at_an_end = matches!(kind, Kind::BucketAtAnEnd | Kind::WarmUpAtAnEnd);
        assert!(kept > 50_000 || is_at_an_end, "{kind:?}: {kept}");
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
