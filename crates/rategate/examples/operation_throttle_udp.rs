//! The operation throttle's benchmark: 1000 datagrams at 2000 a second to a local socket.
//!
//! A throttle sleeps only for at least 10 ms, so up to 10 ms may still be owed at the end: any
//! result in (490, 500] ms is exact. `finish` pays that rest.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "an example computes in plain numbers and prints"
)]

use std::error::Error;
use std::net::UdpSocket;
use std::time::Duration;

use rategate::pace::Throttle;
use rategate::{Clock, MonotonicClock, Rate};

const OPERATIONS: u32 = 1_000;
const PER_SECOND: u64 = 2_000;
const RUNS: u32 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let server = UdpSocket::bind("127.0.0.1:0")?;
    server.set_nonblocking(true)?;
    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.connect(server.local_addr()?)?;

    let ideal = Duration::from_millis(500);
    let mut total = Duration::ZERO;
    for run in 1..=RUNS {
        let clock = MonotonicClock::new();
        let begin_ns = clock.now_ns();
        let since = || Duration::from_nanos(clock.now_ns() - begin_ns);
        // A throttle has a history, so each run makes its own.
        let mut throttle = Throttle::new(Rate::per_second(PER_SECOND), clock);
        for _ in 0..OPERATIONS {
            client.send(b"QOTD")?;
            throttle.wait()?;
            // The receiver only has to keep its buffer from filling up.
            let _ = server.recv(&mut [0; 16]);
        }
        let unpaid = since();
        throttle.finish();
        let paid = since();
        total += unpaid;
        println!("run {run}: {unpaid:?} for {OPERATIONS} operations, {paid:?} with the rest paid");
        // A slow machine may be late, but never early.
        assert!(unpaid + Duration::from_millis(10) > ideal, "more than 10 ms owed: {unpaid:?}");
        assert!(paid >= ideal, "{paid:?} is less than 1000 intervals");
    }
    println!("mean: {:?}, ideal: {ideal:?} less up to 10ms", total / RUNS);
    Ok(())
}
