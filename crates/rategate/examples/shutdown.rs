//! The end of a program while threads wait: a token ends one wait, closing the limiter ends all.

#![allow(clippy::print_stdout)]

use std::thread;
use std::time::Duration;

use rategate::wait::CancelToken;
use rategate::{AcquireError, Error, Gcra, Limiter};

fn main() -> Result<(), Error> {
    let limiter = Limiter::new(Gcra::per_hour(1));
    limiter.acquire(1)?; // The next permit is an hour away.

    let (one, cancel) = (limiter.clone(), CancelToken::new());
    let token = cancel.clone();
    let one = thread::spawn(move || one.acquire_unless(1, &token));
    let others: Vec<_> = (0..3)
        .map(|_| {
            let limiter = limiter.clone();
            thread::spawn(move || limiter.acquire(1))
        })
        .collect();
    while limiter.waiting()? < 4 {
        thread::sleep(Duration::from_millis(1));
    }

    cancel.cancel();
    assert_eq!(one.join().expect("no panic"), Err(AcquireError::Interrupted));
    assert_eq!(limiter.waiting()?, 3);

    limiter.close();
    for other in others {
        let error = other.join().expect("no panic").expect_err("nothing was granted");
        println!("a waiter ends: {error}");
        assert_eq!(error, AcquireError::Closed);
    }
    Ok(())
}
