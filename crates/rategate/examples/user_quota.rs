//! A quota for each user: three requests in any minute, kept in one table of bounded memory.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use rategate::error::KeyedError;
use rategate::{Decision, Keyed, SlidingLog};

fn main() -> Result<(), KeyedError> {
    // A compact log counts on a grid of a thousandth of its window, and so in little memory.
    let quota: Keyed<str> = Keyed::new(SlidingLog::new(3, Duration::from_secs(60)).compact());

    for user in ["ann", "ann", "bob", "ann", "ann"] {
        match quota.try_acquire(user, 1)? {
            Decision::Granted(_) => println!("{user}: served, {} left", quota.remaining(user)?),
            Decision::Denied(denial) => println!("{user}: again in {:?}", denial.retry_after()),
        }
    }
    assert_eq!(quota.remaining("ann")?, 0);
    assert_eq!(quota.remaining("bob")?, 2);
    assert_eq!(quota.remaining("eve")?, 3);
    Ok(())
}
