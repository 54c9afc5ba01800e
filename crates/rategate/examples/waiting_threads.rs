//! Threads that wait for permits: four workers share one limit of 50 starts a second.

#![allow(clippy::print_stdout)]

use std::thread;
use std::time::Duration;

use rategate::{AcquireError, Gcra, Limiter};

fn main() -> Result<(), AcquireError> {
    let limiter = Limiter::new(Gcra::per_second(50));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let limiter = limiter.clone();
            thread::spawn(move || work(worker, &limiter))
        })
        .collect();

    let mut starts = Vec::new();
    for worker in workers {
        starts.extend(worker.join().expect("a worker does not panic")?);
    }
    starts.sort_unstable();
    let spacing = Duration::from_millis(20);
    assert!(starts.is_sorted_by(|first, next| next.saturating_sub(*first) >= spacing));
    Ok(())
}

/// Does five jobs, each as soon as the limiter lets it start.
fn work(worker: usize, limiter: &Limiter) -> Result<Vec<Duration>, AcquireError> {
    let mut starts = Vec::new();
    for job in 0..5 {
        let grant = limiter.acquire(1)?;
        println!("worker {worker}: job {job} after a wait of {:?}", grant.wait());
        starts.push(grant.released_at());
    }
    Ok(starts)
}
