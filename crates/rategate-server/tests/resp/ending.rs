//! The orderly end of the service.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rategate_server::engine::{Inline, Verb};

use super::client::{Client, Reply, address, line, serve};

#[test]
fn every_decision_is_answered_though_the_end_comes_under_load() {
    let running = serve(|_| ());
    let address = address(&running);
    let engine = running.engine().clone();
    let (answered, is_loaded) = (AtomicI64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = Client::at(address).unwrap();
                let batch = line("CL.THROTTLE k 999999999 1 86400").repeat(50);
                loop {
                    // A batch that was being written at the end may be incomplete, and then has
                    // no answer.
                    let is_sent = client.stream.get_mut().write_all(&batch).is_ok();
                    for _ in 0..50 {
                        match client.try_read() {
                            Ok(reply) => answered.fetch_add(1 - reply.ints()[0], Ordering::Relaxed),
                            Err(_) => return,
                        };
                        is_loaded.store(true, Ordering::Release);
                    }
                    if !is_sent {
                        return;
                    }
                }
            });
        }
        while !is_loaded.load(Ordering::Acquire) {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(200));
        let begun = Instant::now();
        running.stop();
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    });
    let limit = Inline { capacity: 1_000_000_000, count: 1, period_ns: 86_400_000_000_000 };
    let left = engine.inline(limit, b"k", Verb::Peek, 0).unwrap().remaining.unwrap();
    let answered = u64::try_from(answered.into_inner()).unwrap();
    assert!(answered > 1000, "{answered}");
    assert_eq!(1_000_000_000 - left, answered);
}

#[test]
fn idle_connections_end_at_once_and_no_new_ones_come() {
    let running = serve(|_| ());
    let address = address(&running);
    let mut idle: Vec<Client> = (0..20).map(|_| Client::to(&running)).collect();
    for client in &mut idle {
        assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
    }
    assert!(running.is_ready());
    running.drain();
    for client in &mut idle {
        assert_eq!(client.rest(), "");
    }
    drop(idle);
    let begun = Instant::now();
    running.wait();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(Client::at(address).is_err());
}

#[test]
fn who_stays_is_cut_off_when_the_time_is_over() {
    let running = serve(|settings| settings.server.drain = Duration::from_millis(300));
    let mut stubborn = Client::to(&running);
    assert_eq!(stubborn.ask("PING"), Reply::Simple("PONG".into()));
    let begun = Instant::now();
    running.stop();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(stubborn.rest(), "");
}

#[test]
fn a_dropped_service_leaves_nothing() {
    let running = serve(|_| ());
    let address = address(&running);
    let mut client = Client::to(&running);
    assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
    drop(running);
    assert!(client.try_read().is_err());
    assert!(Client::at(address).is_err());
}
