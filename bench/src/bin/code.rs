//! Calls of limiters beside others and the machine's own steps, timed by criterion.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use governor::clock::QuantaUpkeepClock;
use governor::{DefaultKeyedRateLimiter, Quota};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Zipf};
use rategate::keyed::{Capacity, Hashing};
use rategate::policy::Mode;
use rategate::wait::{CancelToken, Wake};
use rategate::{
    AdaptiveConcurrency, Clock, Concurrency, Gcra, Keyed, Limiter, MonotonicClock, Rate,
    TwoTimeline,
};
use rategate_bench::limits::{self, Answer, granted, nonzero};
use rategate_bench::race::{Contender, Races};
use rategate_bench::report::{Arguments, Report};
use rategate_bench::{Made, limits::PLENTY};
use tokio::sync::Semaphore;

const THREADS: [usize; 2] = [1, 2];
/// The interval at which another thread sets a clock.
const KEPT_EVERY: Duration = Duration::from_millis(1);
/// The number of keys that one call serves, so that what is around them does not count.
const AT_ONCE: usize = 64;
/// The permits that a key has taken before: it stays in use for as many seconds.
const TAKEN: u32 = 1_000;
const HOT_KEYS: u32 = 1_000;

fn main() -> Made<()> {
    let arguments = Arguments::read()?;
    let mut races = Races::new(arguments.quick)?;
    let program = std::env::current_exe()?;
    let profile = program.parent().and_then(|folder| folder.file_name()).unwrap_or_default();
    let name = format!("code, {}", profile.to_string_lossy());
    let header = ["path", "threads", "ours, ns (times the first beside)", "beside, ns"];
    let mut report = Report::new(&arguments, &name, &header);
    limits::settle_clock();
    for threads in THREADS {
        for answer in [Answer::Granted, Answer::Denied] {
            tries(&mut report, &mut races, answer, threads)?;
            several(&mut report, &mut races, answer, threads)?;
        }
        logs(&mut report, &mut races, threads)?;
        in_flight(&mut report, &mut races, threads)?;
    }
    kept_clock(&mut report, &mut races)?;
    keyed(&mut report, &mut races, if arguments.quick { 200_000 } else { 10_000_000 })?;
    report.end()
}

/// Measures tries that are all granted or all denied.
fn tries(report: &mut Report, races: &mut Races, answer: Answer, threads: usize) -> Made<()> {
    let is = move |answered: bool| answered == (answer == Answer::Granted);
    let governor = limits::governor(answer);
    let (ratelimit, leaky) = (limits::ratelimit(answer), limits::leaky_bucket(answer));
    let others = vec![
        Contender::new("governor", || is(governor.check().is_ok())),
        Contender::new("ratelimit", || is(ratelimit.try_wait().is_ok())),
        Contender::new("leaky-bucket", || is(leaky.try_acquire(1))),
        floor(answer),
    ];
    let bucket = limits::bucket(answer);
    let local = Contender::with_state(
        "bucket, local handle",
        1,
        || bucket.local(),
        |handle| {
            let Ok(handle) = handle else { return false };
            is(handle.try_acquire(1).is_ok_and(|decision| decision.is_granted()))
        },
    );
    let ours = vec![
        trying("bucket", limits::bucket(answer), answer),
        trying("average schedule", limits::average(answer), answer),
        trying("fixed window", limits::window(answer), answer),
        local,
    ];
    races.row(report, &format!("try {answer:?}").to_lowercase(), threads, others, ours)
}

/// Measures two rates together beside one of them alone, and beside both behind a mutex.
fn several(report: &mut Report, races: &mut Races, answer: Answer, threads: usize) -> Made<()> {
    let locked = limits::locked_two_rates(answer);
    let others = vec![
        trying("one rate", limits::bucket(answer), answer),
        Contender::new("both in a mutex", move || locked() == (answer == Answer::Granted)),
    ];
    let ours = vec![trying("two rates", limits::two_rates(answer), answer)];
    races.row(report, &format!("two rates, {answer:?}").to_lowercase(), threads, others, ours)
}

/// Measures exact windows beside one written by hand: the other crates have none.
fn logs(report: &mut Report, races: &mut Races, threads: usize) -> Made<()> {
    for slots in [100, 10_000] {
        let others = vec![Contender::new("a log in a mutex", limits::locked_log(slots))];
        let log = limits::log(slots, Answer::Granted);
        let ours = vec![trying("exact log", log, Answer::Granted)];
        races.row(report, &format!("exact log of {slots}, granted"), threads, others, ours)?;
    }
    Ok(())
}

/// Measures an operation in flight, which takes a permit and ends.
fn in_flight(report: &mut Report, races: &mut Races, threads: usize) -> Made<()> {
    let semaphore = Semaphore::new(1_000);
    let semaphore = Contender::new("tokio's semaphore", move || semaphore.try_acquire().is_ok());
    let ours = vec![
        served("fixed limit", Limiter::new(Concurrency::new(1_000))),
        served("adaptive", Limiter::new(AdaptiveConcurrency::new(1, 1_000))),
    ];
    races.row(report, "in flight", threads, vec![semaphore], ours)
}

/// Measures a schedule on a clock that another thread keeps.
fn kept_clock(report: &mut Report, races: &mut Races) -> Made<()> {
    let clock = QuantaUpkeepClock::from_interval(KEPT_EVERY)?;
    let quota = Quota::per_second(nonzero(4_000_000_000));
    let governor = governor::RateLimiter::direct_with_clock(quota, clock);
    let others = vec![Contender::new("governor, upkeep clock", || governor.check().is_ok())];
    let policy = TwoTimeline::new(Rate::per_second(PLENTY), Mode::Average, None);
    let limiter = Limiter::with_clock(policy, KeptClock::start());
    let ours = vec![Contender::new("average schedule", || granted(&limiter))];
    races.row(report, "try granted, on a kept clock", 1, others, ours)
}

fn trying<'a>(name: &str, limiter: Limiter, answer: Answer) -> Contender<'a>
where
    Limiter: Send + Sync,
{
    Contender::new(name, move || granted(&limiter) == (answer == Answer::Granted))
}

fn served<'a>(name: &str, limiter: Limiter) -> Contender<'a>
where
{
    Contender::new(name, move || match limiter.try_permit(1) {
        Ok(Ok(permit)) => {
            permit.served();
            true
        }
        _ => false,
    })
}

/// Returns the least that a try can take: the time, and for a grant a mark on a shared line.
fn floor<'a>(answer: Answer) -> Contender<'a> {
    let (clock, line) = (quanta::Clock::new(), Line::default());
    match answer {
        Answer::Granted => {
            Contender::new("a counter and a swap", move || swap(&line.0, clock.raw()))
        }
        Answer::Denied => Contender::new("a counter", move || black_box(clock.raw()) != 0),
    }
}

/// A counter alone on its cache lines, including the one that is prefetched with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

fn swap(word: &AtomicU64, step: u64) -> bool {
    let mut seen = word.load(Ordering::Acquire);
    while let Err(newer) = word.compare_exchange_weak(
        seen,
        seen.wrapping_add(step | 1),
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        seen = newer;
    }
    true
}

/// A clock that another thread sets, so that reading it costs a load.
#[derive(Clone, Debug)]
struct KeptClock(Arc<AtomicU64>);

impl KeptClock {
    fn start() -> Self {
        let now_ns = Arc::new(AtomicU64::new(0));
        let (kept, from): (Weak<AtomicU64>, _) = (Arc::downgrade(&now_ns), Instant::now());
        thread::spawn(move || {
            while let Some(now_ns) = kept.upgrade() {
                now_ns.store(from.elapsed().as_nanos() as u64, Ordering::Relaxed);
                thread::sleep(KEPT_EVERY);
            }
        });
        Self(now_ns)
    }
}

impl Clock for KeptClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn may_go_back(&self) -> bool {
        false
    }

    fn wait(&self, until_ns: u64, _cancel: &CancelToken) -> Wake {
        thread::sleep(Duration::from_nanos(until_ns.saturating_sub(self.now_ns())));
        Wake::Due
    }
}

/// Measures tables of more keys than the caches hold, and of a few hot ones.
fn keyed(report: &mut Report, races: &mut Races, keys: u32) -> Made<()> {
    let draws = 1 << if races.is_quick() { 20 } else { 23 };
    let mut random = SmallRng::seed_from_u64(1);
    let zipf = Zipf::new(f64::from(keys), 0.99)?;
    let tables = Tables::filled(keys)?;
    let millions = f64::from(keys) / 1e6;
    let uniform: Vec<u64> = (0..draws).map(|_| key(random.random_range(..keys))).collect();
    let skewed: Vec<u64> = (0..draws).map(|_| key(zipf.sample(&mut random) as u32 - 1)).collect();
    for threads in THREADS {
        for (law, draws) in [("uniform", &uniform), ("Zipf 0.99", &skewed)] {
            tables.row(report, races, &format!("{millions} M keys, {law}"), threads, draws)?;
        }
    }
    drop(tables);
    let tables = Tables::filled(HOT_KEYS)?;
    let hot: Vec<u64> = (0..draws).map(|_| key(random.random_range(..HOT_KEYS))).collect();
    for threads in THREADS {
        tables.row(report, races, "1000 hot keys", threads, &hot)?;
    }
    Ok(())
}

/// Returns the key of a number: all are different, and neighbours are far apart.
const fn key(number: u32) -> u64 {
    (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Tables with the same keys, whose buckets of 30 million always have a permit.
struct Tables {
    safe: Keyed<u64>,
    fast: Keyed<u64>,
    governor: DefaultKeyedRateLimiter<u64>,
    /// As much memory as twenty bytes for each key take.
    words: Box<[AtomicU64]>,
}

impl Tables {
    fn filled(keys: u32) -> Made<Self> {
        let policy = Gcra::new(Rate::per_second(1), 30_000_000)?;
        let ours = |hashing| {
            let capacity = Capacity::for_keys(keys as usize);
            Keyed::with_hashing(policy, capacity, hashing, MonotonicClock::new())
        };
        let quota = Quota::per_second(nonzero(1)).allow_burst(nonzero(30_000_000));
        let governor = governor::RateLimiter::keyed(quota);
        let words = (0..keys as usize * 20 / 8 + 8).map(|word| AtomicU64::new(word as u64));
        let (safe, fast) = (ours(Hashing::FloodSafe), ours(Hashing::Fast));
        for key in (0..keys).map(key) {
            let took = safe.try_acquire(&key, TAKEN.into())?.is_granted()
                && fast.try_acquire(&key, TAKEN.into())?.is_granted()
                && matches!(governor.check_key_n(&key, nonzero(TAKEN)), Ok(Ok(())));
            if !took {
                return Err("a table denied a try while it was filled".into());
            }
        }
        Ok(Self { safe, fast, governor, words: words.collect() })
    }

    fn row(
        &self,
        report: &mut Report,
        races: &mut Races,
        path: &str,
        threads: usize,
        draws: &[u64],
    ) -> Made<()> {
        let one = |table: &Keyed<u64>, key: &u64| {
            table.try_acquire(key, 1).is_ok_and(|decision| decision.is_granted())
        };
        let clock = quanta::Clock::new();
        let lines = (self.words.len() / 8) as u64;
        let others = vec![
            drawn("governor", draws, |keys| {
                keys.iter().all(|key| self.governor.check_key(key).is_ok())
            }),
            drawn("a counter and a far swap", draws, |keys| {
                keys.iter().all(|key| {
                    // The upper half of a key is as good as random.
                    let line = ((key >> 32) * lines) >> 32;
                    swap(&self.words[line as usize * 8], clock.raw())
                })
            }),
        ];
        let ours = vec![
            drawn("keyed", draws, |keys| keys.iter().all(|key| one(&self.safe, key))),
            drawn("keyed, fast hash", draws, |keys| keys.iter().all(|key| one(&self.fast, key))),
            drawn("keyed, try each", draws, |keys| {
                let mut all = true;
                self.safe.try_each(keys.iter().map(|key| (key, 1)), |decision| {
                    all &= decision.is_ok_and(|decision| decision.is_granted());
                });
                all
            }),
        ];
        races.row(report, path, threads, others, ours)
    }
}

/// Returns a contender whose threads read the keys from places of their own.
fn drawn<'a>(
    name: &str,
    draws: &'a [u64],
    call: impl Fn(&[u64]) -> bool + Sync + 'a,
) -> Contender<'a> {
    let begins = AtomicU64::new(0);
    let step = (draws.len() / 7 * 3 + AT_ONCE) as u64;
    Contender::with_state(
        name,
        AT_ONCE as u32,
        move || begins.fetch_add(step, Ordering::Relaxed) as usize % (draws.len() - AT_ONCE),
        move |at| {
            if *at + AT_ONCE > draws.len() {
                *at = 0;
            }
            let keys = &draws[*at..*at + AT_ONCE];
            *at += AT_ONCE;
            call(keys)
        },
    )
}
