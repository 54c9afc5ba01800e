//! A table with fewer slots than there are keys, so that keys are evicted and inserted all the
//! time, get a limiter and lose it, and their numbers change. No key is ever granted more than
//! its law allows.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use rategate::error::KeyedError;
use rategate::keyed::{Capacity, Hashing, Overflow};
use rategate::{AnyPolicy, Clock, Decision, Gcra, Keyed, ManualClock, MonotonicClock, SlidingLog};

use super::{Law, MAX_GRANTS, Round, Start, US, bucket_law, gcra, log, log_law, next_of};

/// The number of keys, for fewer slots.
const KEYS: u64 = 6;

/// The starts of one thread, by key.
type Starts = Vec<Vec<Start>>;

/// Plays a round with `policies`, as `play` does for one limiter, on a real clock or one that the
/// threads advance.
fn play<P, C>(
    round: Round,
    max_keys: usize,
    policies: &[P],
    law: Law<P>,
    clock: &C,
    step: impl Fn() + Sync,
) where
    P: Into<AnyPolicy> + Copy + Sync,
    C: Clock + Clone + Send + Sync + 'static,
{
    let origin_ns = clock.now_ns();
    let capacity = Capacity::for_keys(max_keys).or_else(Overflow::Refuse);
    let keyed: Keyed<u64, C> =
        Keyed::with_hashing(policies[0], capacity, Hashing::Fast, clock.clone());
    let barrier = Barrier::new(usize::try_from(round.threads).unwrap());
    let per_thread: Vec<Starts> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=round.threads)
            .map(|thread| {
                let (keyed, barrier, step) = (&keyed, &barrier, &step);
                scope.spawn(move || {
                    let mut random = Rng::with_seed(round.seed * 64 + thread);
                    let mut starts: Starts = (0..KEYS).map(|_| Vec::new()).collect();
                    barrier.wait();
                    for _ in 0..round.actions.min(MAX_GRANTS.try_into().unwrap()) {
                        step();
                        act(keyed, policies, &mut random, &mut starts);
                    }
                    starts
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(keyed.len() <= max_keys, "{round:?}");
    let mut granted = 0;
    for key in 0..usize::try_from(KEYS).unwrap() {
        let of_key = per_thread.iter().flat_map(|starts| starts[key].iter().copied());
        let mut of_key: Vec<Start> = of_key.collect();
        of_key.sort_unstable();
        granted += of_key.len();
        law(&policies[0], origin_ns, &of_key);
    }
    assert!(granted > 0, "{round:?}");
}

/// Makes one random call. Most are single tries.
fn act<P, C>(keyed: &Keyed<u64, C>, policies: &[P], random: &mut Rng, starts: &mut Starts)
where
    P: Into<AnyPolicy> + Copy,
    C: Clock + Clone + 'static,
{
    let key = random.u64(..KEYS);
    let starts = &mut starts[usize::try_from(key).unwrap()];
    let mut note = |decision: Decision| {
        let Decision::Granted(grant) = decision else { return None };
        starts.push(Start::of(&grant));
        Some(grant)
    };
    let tried = |result: Result<Decision, KeyedError>| match result {
        Ok(decision) => Some(decision),
        Err(KeyedError::TableFull) => None,
        Err(error) => panic!("{error}"),
    };
    match random.u64(..400) {
        0..=3 => {
            if let Ok(limiter) = keyed.limiter(&key) {
                note(limiter.try_acquire(1).unwrap());
            }
        }
        4..=7 => match keyed.try_hold(&key, 1, Duration::MAX) {
            Ok(held) => drop(held),
            Err(KeyedError::TableFull) => {}
            Err(error) => panic!("{error}"),
        },
        8..=9 => {
            let _ = keyed.release(&key, 1);
        }
        10 => {
            if let Some(next) = next_of(policies, random) {
                keyed.reconfigure(*next).unwrap();
            }
        }
        11..=30 => {
            let _ = (keyed.remaining(&key), keyed.peek(&key, 1));
        }
        _ => {
            tried(keyed.try_acquire(&key, 1)).and_then(&mut note);
        }
    }
}

/// Plays buckets in slots and logs behind locks, in real time and in time that the threads
/// advance.
pub(crate) fn play_all(round: Round) {
    let bucket: [Gcra; 1] = [gcra(1, 100, 10)];
    let buckets = [gcra(1, 100, 10), gcra(1, 1_000, 1), gcra(1, 300, 4)];
    let logs: [SlidingLog; 1] = [log(8, 10 * US)];
    for max_keys in [1, 3] {
        let clock = MonotonicClock::new();
        play(round, max_keys, &bucket, bucket_law, &clock, || {});
        play(round, max_keys, &buckets, bucket_law, &clock, || {});
        play(round, max_keys, &logs, log_law, &clock, || {});
        // This time is so slow that threads meet at the very instants at which keys can be
        // evicted.
        let clock = ManualClock::new();
        let step = || clock.advance(Duration::from_nanos(25));
        play(round, max_keys, &bucket, bucket_law, &clock, step);
        play(round, max_keys, &buckets, bucket_law, &clock, step);
        play(round, max_keys, &logs, log_law, &clock, step);
    }
}
