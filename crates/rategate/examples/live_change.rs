//! A limit that changes while a thread waits for it: from 2 to 100 starts a second.

#![allow(clippy::print_stdout)]

use std::thread;
use std::time::Duration;

use rategate::{Error, Gcra, Limiter};

fn main() -> Result<(), Error> {
    let limiter = Limiter::new("2/s burst 1".parse::<Gcra>()?);

    let worker = limiter.clone();
    let worker = thread::spawn(move || {
        for job in 0..20 {
            let grant = worker.acquire(1)?;
            println!("job {job} starts at {:?}", grant.released_at());
        }
        Ok::<_, Error>(())
    });

    thread::sleep(Duration::from_millis(600));
    limiter.reconfigure("100/s burst 5".parse::<Gcra>()?)?;
    println!("the limit is {limiter:?} now");
    worker.join().expect("the worker does not panic")?;

    // By the old limit, 20 jobs would have taken more than nine seconds.
    assert!(limiter.now() < Duration::from_secs(5));
    Ok(())
}
