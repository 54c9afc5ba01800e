//! A cost that is known only afterwards: calls take an estimate, and settle the true cost later.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use rategate::charge::Settled;
use rategate::{Error, Gcra, Limiter};

/// A call takes this many tokens until its answer has been counted.
const ESTIMATE: u64 = 400;

fn main() -> Result<(), Error> {
    // A model answers with 2000 tokens a second, and 1000 at once.
    let tokens = Limiter::new(Gcra::per_second(2000).burst(1000));

    for question in ["a long story", "yes or no", "a title"] {
        let grant = tokens.acquire(ESTIMATE)?;
        let answer = ask(question);
        match tokens.settle(&grant, answer)? {
            Settled::Even => println!("{question}: as estimated"),
            Settled::Back { permits } => println!("{question}: {permits} tokens come back"),
            Settled::Owed { permits, .. } => println!("{question}: {permits} tokens more are owed"),
        }
    }
    // After 1500 of 1000 tokens, the next 400 are there when 900 have been earned.
    assert!(tokens.now() >= Duration::from_millis(450));
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
