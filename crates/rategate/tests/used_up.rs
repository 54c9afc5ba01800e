//! Limits without a lock-free state deny single permits at a gate once they are used up. A ledger
//! alone, which has no gate, decides the same.

use std::num::NonZeroU64;
use std::time::Duration;

use fastrand::Rng;
use rategate::charge::Hold;
use rategate::policy::Mode;
use rategate::policy::{Anchor, Ratio};
use rategate::{
    AdaptiveConcurrency, AdaptiveRate, AllOf, AsyncLimiter, BackfillPool, CommitLog, Concurrency,
    Decision, FixedWindow, Gcra, Grant, Limiter, ManualClock, Rate, SlidingLog, TwoTimeline,
};
use rategate_core::adaptive::Outcome;
use rategate_core::debt::Debt;
use rategate_core::holds::{self, HoldVerdict};
use rategate_core::ledger::Ledger;
use rategate_core::policy::Ending;
use rategate_core::verdict::Verdict;
use rategate_testkit::executor::Task;

const SECOND: Duration = Duration::from_secs(1);

fn limits(random: &mut Rng) -> [AllOf; 10] {
    let permits = random.u64(1..=4);
    let burst = Gcra::per_second(random.u64(1..=9)).burst(permits);
    let window = FixedWindow::new(permits, SECOND, Anchor::Epoch);
    let log = SlidingLog::new(permits, SECOND);
    [
        AllOf::default().and(burst).and(window),
        AllOf::default().and(log).and(Gcra::per_second(5)).and(Concurrency::new(permits)),
        Concurrency::new(permits).into(),
        CommitLog::new(permits, SECOND).into(),
        log.compact().into(),
        TwoTimeline::new(Rate::per_second(5), Mode::Batched { min_sleep_ns: 333_333_333 }, None)
            .into(),
        BackfillPool::new(permits, Ratio::ONE, None).unwrap().into(),
        AdaptiveConcurrency::new(1, 8).into(),
        AdaptiveRate::new(Rate::per_second(1), Rate::per_second(8)).into(),
        AllOf::default().and(AdaptiveConcurrency::new(1, 8)).and(Gcra::per_second(9).burst(3)),
    ]
}

/// Both receive the same calls; most of them try to take one permit.
struct Pair {
    limiter: Limiter<ManualClock>,
    ledger: Ledger,
    clock: ManualClock,
    holds: Vec<(Hold<ManualClock>, holds::Hold)>,
    denied: u32,
}

impl Pair {
    fn new(limits: &AllOf) -> Self {
        let clock = ManualClock::new();
        let limiter = Limiter::with_clock(limits.clone(), clock.clone());
        let ledger = Ledger::new(limits.clone(), 0);
        Self { limiter, ledger, clock, holds: Vec::new(), denied: 0 }
    }

    fn now_ns(&self) -> u64 {
        rategate::Clock::now_ns(&self.clock)
    }

    fn try_acquire(&mut self, permits: u64, what: &str) {
        let ideal = self.ledger.try_acquire(self.now_ns(), permits).ok();
        match (ideal, self.limiter.try_acquire(permits).ok()) {
            (Some(Verdict::Granted(_)), Some(Decision::Granted(_))) | (None, None) => {}
            (Some(Verdict::Denied(ideal)), Some(Decision::Denied(seen))) => {
                let wait_ns = ideal.retry_after_ns.map(NonZeroU64::get);
                assert_eq!(
                    seen.retry_after().map(|wait| wait.as_nanos()),
                    wait_ns.map(u128::from),
                    "{what}"
                );
                self.denied += 1;
            }
            (ideal, seen) => panic!("{what}: {seen:?} for {ideal:?}"),
        }
    }

    fn try_hold(&mut self, ttl_ns: u64, what: &str) {
        let ideal = self.ledger.try_hold(self.now_ns(), 1, ttl_ns).unwrap();
        let seen = self.limiter.try_hold(1, Duration::from_nanos(ttl_ns)).unwrap();
        match (ideal, seen) {
            (HoldVerdict::Held(ideal), Ok(seen)) => self.holds.push((seen, ideal)),
            (HoldVerdict::Denied(_), Err(_)) => {}
            (ideal, seen) => panic!("{what}: {seen:?} for {ideal:?}"),
        }
    }

    fn step(&mut self, random: &mut Rng, what: &str) {
        let now_ns = self.now_ns();
        match random.u64(..24) {
            0 => self.try_acquire(2, what),
            1 => {
                let _ = self.ledger.credit(now_ns, 1);
                let _ = self.limiter.credit(1);
            }
            2 => {
                self.ledger.release(now_ns, 1);
                self.limiter.release(1).unwrap();
            }
            8 => {
                let (start_ns, outcome) =
                    (now_ns / 2, [Outcome::Served, Outcome::Dropped][random.usize(..2)]);
                self.ledger.end(now_ns, 1, Ending::Of { start_ns, outcome });
                let grant = Grant::from_words([start_ns, start_ns, start_ns, 1]);
                self.limiter.release_with_outcome(&grant, outcome).unwrap();
            }
            3 => {
                self.ledger.refill(now_ns, 1);
                self.limiter.refill(1).unwrap();
            }
            4 => self.try_hold(random.u64(1..1_500_000_000), what),
            5 if !self.holds.is_empty() => {
                let (seen, ideal) = self.holds.swap_remove(random.usize(..self.holds.len()));
                let used = random.u64(..=1);
                let _ = self.ledger.commit(now_ns, ideal, used, Debt::FORGOTTEN);
                let _ = seen.commit(used);
            }
            6 => {
                assert_eq!(Ok(self.ledger.remaining(now_ns)), self.limiter.remaining(), "{what}");
            }
            7 => {
                let charged = self.ledger.charge(now_ns, 1, Debt::FORGOTTEN);
                assert_eq!(charged.is_ok(), self.limiter.charge(1).is_ok(), "{what}");
            }
            9..14 => self.clock.advance(Duration::from_nanos(random.u64(..400_000_000))),
            _ => self.try_acquire(1, what),
        }
    }
}

#[test]
fn a_limit_denies_at_its_gate_as_it_does_behind_its_lock() {
    let mut denied = [0; 10];
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let (now, later) = (limits(&mut random), limits(&mut random));
        for (at, (now, later)) in now.iter().zip(&later).enumerate() {
            let mut pair = Pair::new(now);
            for step in 0..150 {
                let what = format!("seed {seed}, step {step} at {}: {now:?}", pair.now_ns());
                if random.u64(..60) == 0 {
                    let limits = if random.bool() { later } else { now };
                    let ideal = pair.ledger.reconfigure(pair.now_ns(), limits.clone());
                    assert_eq!(
                        ideal.is_ok(),
                        pair.limiter.reconfigure(limits.clone()).is_ok(),
                        "{what}"
                    );
                }
                pair.step(&mut random, &what);
            }
            denied[at] += pair.denied;
        }
    }
    assert!(denied.iter().all(|&denied| denied > 3_000), "{denied:?}");
}

/// A denial behind waiters says when all of them will have passed. It holds until one leaves.
#[test]
fn a_waiter_that_leaves_changes_what_a_denial_says() {
    let both = AllOf::default().and(Gcra::per_second(1)).and(Gcra::per_second(9));
    let limiter = AsyncLimiter::with_clock(both, ManualClock::stepped());
    let denied = || limiter.try_acquire(1).unwrap().retry_after();
    assert_eq!(denied(), None);
    let mut waiting = [(); 2].map(|()| Task::new(limiter.acquire(1)));
    waiting.iter_mut().for_each(Task::run);
    assert_eq!(denied(), Some(3 * SECOND));
    let [_first, second] = waiting;
    drop(second);
    assert_eq!(denied(), Some(2 * SECOND));
}

/// A larger limit grants at once, also while a grant has not reached its waiter.
#[test]
fn a_change_opens_the_gate_beside_a_grant_on_its_way() {
    let limiter = AsyncLimiter::with_clock(Concurrency::new(1), ManualClock::stepped());
    let first = limiter.try_permit(1).unwrap().unwrap();
    let mut waiting = Task::new(limiter.permit(1));
    waiting.run();
    drop(first);
    assert!(!limiter.try_acquire(1).unwrap().is_granted(), "it is the waiter's");
    limiter.reconfigure(Concurrency::new(2)).unwrap();
    assert!(limiter.try_acquire(1).unwrap().is_granted());
}
