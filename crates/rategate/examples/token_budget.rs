//! A budget of tokens that calls share: each holds an estimate, and commits the true cost later.

#![allow(clippy::print_stdout)]

use std::thread;
use std::time::Duration;

use rategate::charge::{Committed, Settled};
use rategate::{Error, Gcra, Limiter};

/// A call holds this many tokens until its answer has been counted.
const ESTIMATE: u64 = 400;
/// A call that has not come back by then holds nothing any more.
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> Result<(), Error> {
    // A model answers with 2000 tokens a second, and 1000 at once.
    let tokens = Limiter::new(Gcra::per_second(2000).burst(1000));
    let questions = ["a long story", "yes or no", "a title", "another title"];

    // Two of them fit at once. The others start as tokens come back, or are earned.
    thread::scope(|scope| {
        let calls: Vec<_> = questions
            .into_iter()
            .map(|question| scope.spawn(|| one_call(&tokens, question)))
            .collect();
        calls.into_iter().try_for_each(|call| call.join().expect("no call panics"))
    })?;

    // Of 2301 tokens, the call that started last found at least 801 used. It needed 400 more, and
    // a thousand were there: 201 had to be earned first.
    assert!(tokens.now() >= Duration::from_millis(100));
    Ok(())
}

fn one_call(tokens: &Limiter, question: &str) -> Result<(), Error> {
    let hold = tokens.hold(ESTIMATE, TIMEOUT)?;
    let answer = ask(question);
    match hold.commit(answer)? {
        Committed::InTime(Settled::Even) => println!("{question}: as estimated"),
        Committed::InTime(Settled::Back { permits }) => {
            println!("{question}: {permits} tokens come back");
        }
        Committed::InTime(Settled::Owed { permits, .. }) => {
            println!("{question}: {permits} tokens more are owed");
        }
        Committed::Late(_) => println!("{question}: all {answer} tokens are charged now"),
    }
    Ok(())
}

/// Returns the number of tokens that an answer took.
fn ask(question: &str) -> u64 {
    match question {
        "a long story" => 1500,
        "yes or no" => 1,
        _ => ESTIMATE,
    }
}
