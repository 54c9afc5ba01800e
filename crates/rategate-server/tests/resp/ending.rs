//! The orderly end of the service.

use std::time::{Duration, Instant};

use super::client::{Client, Reply, address, serve};

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
