//! A rate and a number of operations in flight together: a call passes both limits, or waits.

#![allow(clippy::print_stdout)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rategate::{AcquireError, AllOf, Concurrency, Gcra, Limiter};

fn main() -> Result<(), AcquireError> {
    // At most 50 starts a second, and never more than two operations in flight.
    let both = AllOf::default().and(Gcra::per_second(50).burst(5)).and(Concurrency::new(2));
    let limiter = Limiter::new(both);

    let in_flight = AtomicU32::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(|| work(&limiter, &in_flight))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}

/// Does four operations of 20 ms.
fn work(limiter: &Limiter, in_flight: &AtomicU32) -> Result<(), AcquireError> {
    for _ in 0..4 {
        let permit = limiter.permit(1)?;
        assert!(in_flight.fetch_add(1, Ordering::SeqCst) < 2);
        println!("an operation starts at {:?}", permit.grant().released_at());
        thread::sleep(Duration::from_millis(20));
        in_flight.fetch_sub(1, Ordering::SeqCst);
        // The operation ends here.
        drop(permit);
    }
    Ok(())
}
