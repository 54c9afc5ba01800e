//! A test in virtual time: code that waits for minutes is tested on a clock that takes none.

use std::time::Duration;

use rategate::{Clock, Decision, Error, Limiter, ManualClock, SlidingLog};

/// The code under test: sends mails, and returns the instant of each.
fn send_all<C: Clock>(limiter: &Limiter<C>, mails: &[&str]) -> Result<Vec<Duration>, Error> {
    let mut sent = Vec::new();
    for _mail in mails {
        sent.push(limiter.acquire(1)?.released_at());
    }
    Ok(sent)
}

fn main() -> Result<(), Error> {
    let clock = ManualClock::new();
    let two_a_minute = SlidingLog::new(2, Duration::from_secs(60));
    let limiter = Limiter::with_clock(two_a_minute, clock.clone());

    let sent = send_all(&limiter, &["one", "two", "three", "four", "five"])?;
    assert_eq!(sent, [0, 0, 60, 60, 120].map(Duration::from_secs));

    clock.advance(Duration::from_secs(20));
    assert!(limiter.try_acquire(1)?.is_granted());
    let Decision::Denied(denial) = limiter.try_acquire(1)? else { panic!("three do not fit") };
    assert_eq!(denial.retry_after(), Some(Duration::from_secs(40)));
    Ok(())
}
