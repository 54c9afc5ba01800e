//! The laws of [`Store`](rategate::store::Store), one by one.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rategate::FixedWindow;
use rategate::error::ExceedsCapacity;
use rategate::policy::Anchor;
use rategate::store::{LeaseId, Receipt, Rule, Store as _, StoreError, Verdict};

use super::Arena;
use super::cases::{self, NOW_US, SECOND_NS, window};
use super::client::{StoreClient, denied, granted, wait_us};

/// Returns a bucket that earns one permit in 10 ms and grants `burst` at once.
fn bucket(burst: u64) -> Rule {
    cases::bucket("100/s", burst)
}

fn log(permits: u64) -> Rule {
    cases::log(permits, SECOND_NS, 1)
}

fn per_second(permits: u64) -> Rule {
    cases::bucket(&format!("{permits}/s"), permits)
}

fn in_flight(permits: u64) -> Rule {
    cases::in_flight(permits, SECOND_NS)
}

/// Returns the wait that a denial reports, in microseconds.
fn wait_of(verdict: Verdict) -> Option<u64> {
    wait_us(denied(verdict))
}

/// Runs all laws.
pub fn suite(arena: &impl Arena) {
    all_or_nothing(arena);
    a_denial_takes_nothing(arena);
    a_peek_takes_nothing(arena);
    labels_and_keys_name_states(arena);
    a_debit_takes_what_there_is(arena);
    a_reset_forgets(arena);
    a_change_keeps_what_is_used_or_left(arena);
    windows_say_when_they_end(arena);
    what_comes_back_comes_back_to_all(arena);
    nonsense_is_an_error_with_a_type(arena);
    plans_are_checked(arena);
    threads_share_a_limit(arena);
}

fn client<A: Arena>(arena: &A, rules: &[(&str, Rule)], key: &str) -> StoreClient<A::Store> {
    arena.set_now_us(NOW_US);
    StoreClient::new(&arena.store(), rules, key)
}

/// Checks that a call that one limit denies takes nothing from another.
pub fn all_or_nothing<A: Arena>(arena: &A) {
    arena.set_now_us(NOW_US);
    let store = arena.store();
    let both = StoreClient::new(&store, &[("bucket", bucket(5)), ("log", log(2))], "k");
    let bucket_alone = StoreClient::new(&store, &[("bucket", bucket(5))], "k");
    let log_alone = StoreClient::new(&store, &[("log", log(2))], "k");
    assert_eq!(both.granted(2).remaining, 0);
    assert_eq!(bucket_alone.remaining(), 3);
    for _ in 0..10 {
        assert_eq!(wait_us(both.denied(1)), Some(1_000_000));
    }
    assert_eq!((bucket_alone.remaining(), log_alone.remaining()), (3, 0));
    // The other way round, too.
    arena.set_now_us(NOW_US + 1_000_000);
    bucket_alone.granted(5);
    assert_eq!(wait_us(both.denied(2)), Some(20_000));
    assert_eq!(log_alone.remaining(), 2);
}

/// Checks that repeated denied requests take nothing: the reply stays equal.
pub fn a_denial_takes_nothing(arena: &impl Arena) {
    let rules = [("bucket", bucket(3)), ("log", log(5)), ("window", window(9, SECOND_NS))];
    let client = client(arena, &rules, "k");
    client.granted(3);
    let first = client.denied(2);
    assert_eq!((wait_us(first), first.remaining), (Some(20_000), 0));
    for _ in 0..300 {
        assert_eq!(client.denied(2), first);
    }
    arena.set_now_us(NOW_US + 20_000);
    client.granted(2);
}

/// Checks that a peek agrees with a decision, and takes nothing.
pub fn a_peek_takes_nothing(arena: &impl Arena) {
    let client = client(arena, &[("bucket", bucket(3)), ("log", log(2))], "k");
    for _ in 0..50 {
        let grant = granted(client.peek(2).unwrap());
        assert_eq!((grant.permits, grant.remaining), (2, 2));
    }
    assert_eq!(client.reset().unwrap(), 0, "there is no state yet");
    client.granted(2);
    for _ in 0..50 {
        assert_eq!(wait_of(client.peek(1).unwrap()), Some(1_000_000));
    }
    assert_eq!(client.reset().unwrap(), 2);
}

/// Checks that under changed numbers used permits stay used, and the rest of the new allowance is
/// free at once; a bucket keeps what it has left instead.
pub fn a_change_keeps_what_is_used_or_left<A: Arena>(arena: &A) {
    arena.set_now_us(NOW_US - NOW_US % 1_000_000);
    let store = arena.store();
    let kinds: [fn(u64) -> Rule; 4] =
        [per_second, log, |permits| window(permits, SECOND_NS), in_flight];
    for (key, rule) in ["bucket", "log", "window", "in flight"].into_iter().zip(kinds) {
        let of = |permits| StoreClient::new(&store, &[("changes", rule(permits))], key);
        let hold = |client: &StoreClient<A::Store>, permits| match rule(1) {
            Rule::InFlight(..) => {
                client.hold(permits, LeaseId([u8::try_from(permits).unwrap(); 16]))
            }
            _ => client.decide(permits),
        };
        assert_eq!(granted(hold(&of(5), 4).unwrap()).remaining, 1, "{key}");
        if matches!(rule(1), Rule::Bucket(_)) {
            assert_eq!((of(12).remaining(), of(3).remaining()), (1, 1), "{key}");
            assert_eq!(granted(of(12).decide(1).unwrap()).remaining, 0, "{key}");
            let denial = denied(of(2).decide(1).unwrap());
            assert_eq!(wait_us(denial), Some(500_000), "one permit at the new rate");
            continue;
        }
        assert_eq!(of(12).remaining(), 8, "{key}");
        assert_eq!(granted(hold(&of(12), 3).unwrap()).remaining, 5, "{key}");
        assert_eq!(of(8).remaining(), 1, "{key}");
        let _ = denied(hold(&of(7), 1).unwrap());
        assert_eq!(of(20).remaining(), 13, "{key}");
    }
}

/// Checks that a state is found by key and label, through any plan.
pub fn labels_and_keys_name_states<A: Arena>(arena: &A) {
    arena.set_now_us(NOW_US);
    let store = arena.store();
    let one = StoreClient::new(&store, &[("a", log(2)), ("b", log(9))], "k");
    let other = StoreClient::new(&store, &[("a", log(2)), ("c", log(9))], "k");
    one.granted(2);
    other.denied(1);
    other.with_key("l").granted(2);
    other.with_key("").granted(2);
    other.with_key("k\0").granted(2);
    one.with_key("l").denied(1);
    // Another kind of limit under the same label is another state.
    StoreClient::new(&store, &[("a", bucket(2))], "k").granted(2);
    one.denied(1);
    StoreClient::new(&store, &[("a", bucket(2))], "k").denied(1);
    assert!(store.backends() > 0 && store.backend_of(&b"k"[..].into()) < store.backends());
}

/// Checks that a debit takes as many permits as pass, or reports when one will pass.
pub fn a_debit_takes_what_there_is(arena: &impl Arena) {
    let client = client(arena, &[("bucket", bucket(9)), ("log", log(7))], "k");
    let some = |permits| granted(client.debit(permits).unwrap());
    assert_eq!((some(5).permits, some(5).permits), (5, 2));
    assert_eq!(wait_of(client.debit(7).unwrap()), Some(1_000_000));
    arena.set_now_us(NOW_US + 999_999);
    assert_eq!(wait_of(client.debit(7).unwrap()), Some(1));
    arena.set_now_us(NOW_US + 1_000_000);
    assert_eq!(some(6).permits, 6);
    assert_eq!((some(7).permits, client.remaining()), (1, 0));
}

/// Checks that a reset key has used nothing, and that the reply is the number of its states.
pub fn a_reset_forgets(arena: &impl Arena) {
    let rules = [("bucket", bucket(3)), ("log", log(3)), ("window", window(3, SECOND_NS))];
    let client = client(arena, &rules, "k");
    assert_eq!(client.reset().unwrap(), 0);
    client.granted(3);
    client.with_key("l").granted(3);
    client.denied(1);
    assert_eq!(client.reset().unwrap(), 3);
    assert_eq!(client.granted(3).remaining, 0);
    client.with_key("l").denied(1);
    // A state that has fully recovered does not count.
    arena.set_now_us(NOW_US + 3_000_000);
    assert_eq!(client.reset().unwrap(), 0);
}

/// Checks that grants of a fixed window report when the window ends.
pub fn windows_say_when_they_end<A: Arena>(arena: &A) {
    let start_us = NOW_US - NOW_US % 6_000_000;
    arena.set_now_us(start_us + 1_250_000);
    let store = arena.store();
    let of = |rules: &[(&str, Rule)]| StoreClient::new(&store, rules, "k");
    let (two, three) = (window(9, 2 * SECOND_NS), window(9, 3 * SECOND_NS));
    assert_eq!(of(&[("b", bucket(9)), ("l", log(9))]).granted(1).window_ends_in_ns, None);
    let ends_in = |client: StoreClient<A::Store>| client.granted(1).window_ends_in_ns;
    assert_eq!(ends_in(of(&[("b", bucket(9)), ("t", three)])), Some(1_750_000_000));
    assert_eq!(ends_in(of(&[("t", three), ("w", two)])), Some(750_000_000));
    arena.set_now_us(start_us + 2_000_000);
    let debit = granted(of(&[("t", three), ("w", two)]).debit(3).unwrap());
    assert_eq!(debit.window_ends_in_ns, Some(1_000_000_000));
}

/// Checks that a refund credits as many permits as every limit can take back, to all alike.
pub fn what_comes_back_comes_back_to_all<A: Arena>(arena: &A) {
    let start_us = NOW_US - NOW_US % 1_000_000;
    arena.set_now_us(start_us);
    let store = arena.store();
    let slow = cases::bucket("1/s", 5);
    let both = StoreClient::new(&store, &[("b", slow), ("w", window(5, SECOND_NS))], "k");
    let grant = both.granted(4);
    // The bucket could take three back, but the window is another one by now.
    arena.set_now_us(start_us + 1_000_000);
    assert_eq!(both.refund(&grant.receipt, 3).unwrap(), 0);
    arena.set_now_us(start_us + 1_000_001);
    let grant = both.granted(2);
    assert_eq!(both.refund(&grant.receipt, 2).unwrap(), 2);
    assert_eq!(both.granted(2).remaining, 0);
    // A key that was never used, or has fully recovered, takes nothing back.
    assert_eq!(both.with_key("never").refund(&grant.receipt, 1).unwrap(), 0);
    arena.set_now_us(start_us + 60_000_000);
    let _ = both.refund(&grant.receipt, 1).unwrap();
    assert_eq!(both.granted(5).remaining, 0);
    both.denied(1);
}

/// Checks that an invalid request is an error of the client, and takes nothing.
pub fn nonsense_is_an_error_with_a_type<A: Arena>(arena: &A) {
    arena.set_now_us(NOW_US);
    let store = arena.store();
    let paced = StoreClient::new(&store, &[("b", bucket(5)), ("l", log(3))], "k");
    let held = StoreClient::new(&store, &[("b", bucket(5)), ("f", in_flight(2))], "k");
    let (name, receipt) = (LeaseId([7; 16]), paced.granted(1).receipt);
    let too_many = |max_permits| Some(StoreError::Exceeds(ExceedsCapacity::new(4, max_permits)));
    assert_eq!(paced.decide(4).err(), too_many(3));
    assert_eq!(paced.debit(4).err(), too_many(3));
    assert_eq!(paced.peek(4).err(), too_many(3));
    assert_eq!(held.hold(4, name).err(), too_many(2));
    assert_eq!(held.release(4, name).err(), too_many(2));
    let is_nonsense = |fault: Option<StoreError>| {
        assert!(
            matches!(&fault, Some(StoreError::InvalidRequest(why)) if !why.is_empty()),
            "{fault:?}"
        );
    };
    is_nonsense(held.decide(1).err());
    is_nonsense(held.debit(1).err());
    is_nonsense(held.refund(&receipt, 1).err());
    is_nonsense(paced.release(1, name).err());
    is_nonsense(paced.renew(1, name).err());
    is_nonsense(paced.refund(&Receipt::default(), 1).err());
    let single = StoreClient::new(&store, &[("b", bucket(5))], "k");
    is_nonsense(single.refund(&receipt, 1).err());
    assert_eq!((paced.remaining(), single.remaining()), (2, 4), "nothing was taken");
}

/// Checks that a plan has 1 to 16 limits, each with its own label, and no grid that a first call
/// lays, since such a grid cannot be shared.
pub fn plans_are_checked(arena: &impl Arena) {
    arena.set_now_us(NOW_US);
    let store = arena.store();
    let fails = |rules: &[(&str, Rule)], label: Option<&str>| {
        let Err(error) = store.plan(rules) else { panic!("{rules:?} is a plan") };
        assert!(!error.why.is_empty());
        if label.is_some() {
            assert_eq!(error.label.as_deref(), label, "{error}");
        }
    };
    fails(&[], None);
    let names: Vec<String> = (0..17).map(|number| format!("l{number}")).collect();
    let many: Vec<(&str, Rule)> = names.iter().map(|name| (name.as_str(), log(1))).collect();
    fails(&many, None);
    assert!(store.plan(&many[..16]).is_ok());
    fails(&[("a", log(1)), ("a", bucket(1))], None);
    fails(&[("", log(1))], None);
    fails(&[("a b", log(1))], None);
    let first_call = FixedWindow::new(1, Duration::from_nanos(SECOND_NS), Anchor::FirstCall);
    fails(&[("a", log(1)), ("w", first_call.into())], Some("w"));
}

/// Checks that concurrent threads all receive replies, and together take exactly what is free.
pub fn threads_share_a_limit<A: Arena>(arena: &A) {
    arena.set_now_us(NOW_US);
    let store = arena.store();
    let client = Arc::new(StoreClient::new(&store, &[("b", bucket(300)), ("l", log(250))], "k"));
    let threads = (0..4).map(|_| {
        let client = Arc::clone(&client);
        thread::spawn(move || {
            let grants = (0..100).filter(|_| {
                matches!(client.decide(1).unwrap(), Verdict::Granted(grant) if grant.permits == 1)
            });
            grants.count()
        })
    });
    let threads: Vec<_> = threads.collect();
    let granted: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(granted, 250);
}
