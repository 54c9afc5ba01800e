//! Instructions of one try for each of our engines, counted by valgrind: a busy machine hardly
//! affects them.
//!
//! `cargo bench -p rategate-bench --bench instructions` needs valgrind, and
//! `cargo install gungraun-runner` in the version of the library. If either is missing, it says
//! so and exits.

#![allow(clippy::print_stdout, reason = "it is a program, and prints what is missing")]
#![allow(unused_qualifications, reason = "gungraun's attributes write paths in full")]

use std::env;
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    // The runner starts this program again, under valgrind, with arguments of its own.
    let started_by_runner = env::args().any(|argument| argument.starts_with("--gungraun-run"));
    if !started_by_runner {
        let runner = env::var("GUNGRAUN_RUNNER").unwrap_or_else(|_| "gungraun-runner".to_owned());
        for program in ["valgrind", &runner] {
            if !is_there(program) {
                println!("skipped: {program} is missing");
                return ExitCode::SUCCESS;
            }
        }
    }
    counted::run();
    ExitCode::SUCCESS
}

fn is_there(program: &str) -> bool {
    let mut probe = Command::new(program);
    probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    // The runner has no such option; it is enough that it starts.
    probe.status().is_ok()
}

mod counted {
    use std::hint::black_box;

    use gungraun::{library_benchmark, library_benchmark_group, main};
    use rategate::policy::{LimiterPolicy, Mode};
    use rategate::{AllOf, Gcra, Limiter, SlidingLog, TwoTimeline};
    use rategate_bench::engines::{self, Answer, Made, Shared};

    pub(super) fn run() {
        main();
    }

    const GRANTED: Answer = Answer::Granted;
    const DENIED: Answer = Answer::Denied;

    #[library_benchmark]
    #[bench::granted(warm(engines::gcra(GRANTED)))]
    #[bench::denied(warm(engines::gcra(DENIED)))]
    fn gcra(limiter: Shared<Gcra>) -> Shared<Gcra> {
        once(limiter)
    }

    #[library_benchmark]
    #[bench::granted_100(warm(engines::log(100, GRANTED)))]
    #[bench::denied_100(warm(engines::log(100, DENIED)))]
    #[bench::granted_10_000(warm(engines::log(10_000, GRANTED)))]
    #[bench::denied_10_000(warm(engines::log(10_000, DENIED)))]
    fn sliding_log(limiter: Shared<SlidingLog>) -> Shared<SlidingLog> {
        once(limiter)
    }

    #[library_benchmark]
    #[bench::average_granted(warm(engines::two_timeline(Mode::Average, GRANTED)))]
    #[bench::average_denied(warm(engines::two_timeline(Mode::Average, DENIED)))]
    #[bench::strict_granted(warm(engines::two_timeline(Mode::Strict, GRANTED)))]
    #[bench::strict_denied(warm(engines::two_timeline(Mode::Strict, DENIED)))]
    fn two_timeline(limiter: Shared<TwoTimeline>) -> Shared<TwoTimeline> {
        once(limiter)
    }

    #[library_benchmark]
    #[bench::granted(warm(engines::two_rates(GRANTED)))]
    #[bench::denied(warm(engines::two_rates(DENIED)))]
    fn two_rates(limiter: Limiter<AllOf>) -> Limiter<AllOf> {
        once(limiter)
    }

    /// Makes one try. It returns the limiter, so that dropping it is not counted.
    fn once<P: LimiterPolicy>(limiter: Limiter<P>) -> Limiter<P> {
        black_box(engines::try_one(&limiter));
        limiter
    }

    /// Makes the first thousand tries, which find cold pages and an empty log: no typical calls.
    fn warm<P: LimiterPolicy>(limiter: Made<Limiter<P>>) -> Limiter<P> {
        let limiter = limiter.expect("the limits of the benches are right");
        for _ in 0..1000 {
            engines::try_one(&limiter);
        }
        limiter
    }

    library_benchmark_group!(name = tries; benchmarks = gcra, sliding_log, two_timeline, two_rates);
    main!(library_benchmark_groups = tries);
}
