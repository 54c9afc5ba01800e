//! Instructions of one try, ours and governor's, counted by valgrind: a busy machine hardly affects
//! them. It needs valgrind, and `cargo install gungraun-runner` in the version of the library.

#![allow(missing_docs, reason = "gungraun's macros make items without any")]

use std::hint::black_box;

use governor::DefaultDirectRateLimiter;
use gungraun::{library_benchmark, library_benchmark_group, main};
use rategate::Limiter;
use rategate_bench::limits::{self, Answer, granted};

const GRANTED: Answer = Answer::Granted;
const DENIED: Answer = Answer::Denied;

#[library_benchmark]
#[bench::granted(warm(limits::bucket(GRANTED)))]
#[bench::denied(warm(limits::bucket(DENIED)))]
fn bucket(limiter: Limiter) -> Limiter {
    once(limiter)
}

#[library_benchmark]
#[bench::granted(warm(limits::average(GRANTED)))]
#[bench::denied(warm(limits::average(DENIED)))]
fn average(limiter: Limiter) -> Limiter {
    once(limiter)
}

#[library_benchmark]
#[bench::granted(warm(limits::window(GRANTED)))]
#[bench::denied(warm(limits::window(DENIED)))]
fn window(limiter: Limiter) -> Limiter {
    once(limiter)
}

#[library_benchmark]
#[bench::granted_100(warm(limits::log(100, GRANTED)))]
#[bench::denied_100(warm(limits::log(100, DENIED)))]
fn log(limiter: Limiter) -> Limiter {
    once(limiter)
}

#[library_benchmark]
#[bench::granted(warm(limits::two_rates(GRANTED)))]
#[bench::denied(warm(limits::two_rates(DENIED)))]
fn two_rates(limiter: Limiter) -> Limiter {
    once(limiter)
}

#[library_benchmark]
#[bench::granted(warm_governor(GRANTED))]
#[bench::denied(warm_governor(DENIED))]
fn of_governor(limiter: DefaultDirectRateLimiter) -> DefaultDirectRateLimiter {
    black_box(limiter.check().is_ok());
    limiter
}

/// Makes one try. It returns the limiter, so that dropping it is not counted.
fn once(limiter: Limiter) -> Limiter {
    black_box(granted(&limiter));
    limiter
}

/// Makes the first thousand tries, which find cold pages and an empty log: no typical calls.
fn warm(limiter: Limiter) -> Limiter {
    for _ in 0..1_000 {
        granted(&limiter);
    }
    limiter
}

fn warm_governor(answer: Answer) -> DefaultDirectRateLimiter {
    let limiter = limits::governor(answer);
    for _ in 0..1_000 {
        let _ = limiter.check();
    }
    limiter
}

library_benchmark_group!(
    name = tries;
    benchmarks = of_governor, bucket, average, window, log, two_rates
);
main!(library_benchmark_groups = tries);
