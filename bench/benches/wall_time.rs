//! Wall time of one try on one thread, for each of our engines. Run
//! `cargo bench -p rategate-bench`.

#![allow(missing_docs, reason = "criterion's macros make functions without any")]

use criterion::{Criterion, criterion_group, criterion_main};
use rategate::Limiter;
use rategate::policy::LimiterPolicy;
use rategate_bench::engines::{self, Answer, Engine, Made};

fn tries(criterion: &mut Criterion) {
    for answer in [Answer::Granted, Answer::Denied] {
        for engine in Engine::ALL {
            let timed = match engine {
                Engine::Gcra => time(criterion, engine, answer, engines::gcra(answer)),
                Engine::Log(slots) => time(criterion, engine, answer, engines::log(slots, answer)),
                Engine::TwoTimeline(mode) => {
                    time(criterion, engine, answer, engines::two_timeline(mode, answer))
                }
                Engine::TwoRates => time(criterion, engine, answer, engines::two_rates(answer)),
            };
            timed.expect("the limits of the benches are right");
        }
    }
}

fn time<P: LimiterPolicy>(
    criterion: &mut Criterion,
    engine: Engine,
    answer: Answer,
    limiter: Made<Limiter<P>>,
) -> Made<()> {
    let limiter = limiter?;
    let id = format!("try {}: {}", answer.name(), engine.name());
    criterion.bench_function(&id, |bencher| bencher.iter(|| engines::try_one(&limiter)));
    Ok(())
}

criterion_group!(benches, tries);
criterion_main!(benches);
