//! Limiters as bytes: one that is restored decides as the one that was saved, and never more
//! generously. Bytes that are not a state of the policies given are refused.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "a test may panic")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use rategate::charge::Debt;
use rategate::snapshot::{Record, SnapshotReader, SnapshotWriter};
use rategate::{AnyPolicy, Grant, ManualClock};
use rategate_ffi::{
    Begun, Capacity, Clock, Hub, KeyRef, Keyed, Limiter, Policies, RestoreError, SnapshotError,
    Taken,
};

const SECOND: u64 = 1_000_000_000;

/// Limits that time alone restores, the more the later it is.
const MONOTONE: &[&str] = &[
    "policy = 'gcra'\nrate = '7/3s'\nburst = 4",
    "policy = 'sliding-log'\npermits = 5\nperiod = '2s'\nguard = '100ms'",
    "policy = 'pacer'\nrate = '7/3s'\nmin_sleep = '100ms'\ncatch_up = '1s'",
    "policy = 'two-timeline'\nrate = '7/3s'\ncatch_up = '4s'",
    "policy = 'two-timeline'\nrate = '7/3s'\nmode = 'strict'\ncatch_up = '4s'",
    "policy = 'two-timeline'\nrate = '7/3s'\nmode = { damped = 0.25 }\ncatch_up = '4s'",
    "policy = 'two-timeline'\nrate = '7/3s'\nmode = { burst = 1.5 }\ncatch_up = '4s'",
    "policy = 'backfill-pool'\npool = 4\nrate = '7/3s'\nburst_ratio = 1.5",
];

/// Limits whose windows or instants lie on a grid, that slow down with time, or that callers
/// restore.
const OTHERS: &[&str] = &[
    "policy = 'fixed-window'\npermits = 5\nperiod = '2s'\nanchor = 'first-call'",
    "policy = 'sliding-log'\npermits = 5\nperiod = '2s'\nresolution = '250ms'",
    "policy = 'fixed-window'\npermits = 5\nperiod = '2s'",
    "policy = 'warm-up'\nrate = '7/3s'\nperiod = '4s'\nmax_request = 2",
    "policy = 'gcra'\nrate = '7/3s'\nburst = 4\nslow_start = '40s'",
    "policy = 'sliding-log'\npermits = 5\nperiod = '2s'\nslow_start = '40s'",
    "policy = 'backfill-pool'\npool = 4",
    "policy = 'concurrency'\npermits = 4",
    "policy = 'commit-log'\npermits = 4\nperiod = '2s'",
    "policy = 'adaptive'\nceiling = 20\nfirst = 4",
    "policy = 'adaptive-rate'\nceiling = '3/s'\nfloor = '1/s'\nburst = 2",
];

/// Returns each limit alone, and some of them together.
fn tour() -> Vec<Policies> {
    let mut tour: Vec<Policies> = [MONOTONE, OTHERS]
        .concat()
        .iter()
        .map(|table| Policies::from_table(table).unwrap())
        .collect();
    tour.push("4/s burst 2; 9 per any 5s".parse().unwrap());
    let three = tour.iter().take(3).flat_map(|policies| policies.policies().to_vec());
    tour.push(Policies::new(three).unwrap());
    tour
}

fn manual(clock: &ManualClock) -> Clock {
    Clock::Manual(clock.clone())
}

/// Returns a clock that has run for a while, so that nothing lies before its zero.
fn running() -> ManualClock {
    let clock = ManualClock::stepped();
    clock.set(Duration::from_secs(1_000));
    clock
}

/// Makes one random call that leaves nothing open but operations in flight.
fn use_once(limiter: &Limiter, random: &mut Rng) -> String {
    match random.u32(..12) {
        0 => format!("{:?}", limiter.charge(1).map(|charged| (charged.booked, charged.forgiven))),
        1 => format!("{:?}", limiter.refill(1)),
        2 => format!("{:?}", limiter.release(1)),
        // A promise that starts later would be in flight then.
        3 if !limiter.release(0).unwrap() => match limiter.reserve(1, Some(Duration::from_secs(2)))
        {
            Ok(reserved) => shown(&reserved.keep()),
            Err(error) => error.to_string(),
        },
        4 => match limiter.try_hold(1, Duration::from_secs(1)).unwrap() {
            Ok(held) => format!("{:?}", held.commit(random.u64(..3))),
            Err(denial) => format!("{denial:?}"),
        },
        _ => match limiter.try_acquire(random.u64(1..3)) {
            Ok(decision) => {
                decision.granted().map_or_else(|| format!("{decision:?}"), |grant| shown(&grant))
            }
            Err(error) => error.to_string(),
        },
    }
}

/// Returns the permits of a wait that does not hold an estimate.
fn grant_of(taken: Taken) -> Grant {
    match taken {
        Taken::Granted(grant) => grant,
        Taken::Held(held) => panic!("{held:?}"),
    }
}

/// Returns a grant without its mark of the one limiter that takes it back.
fn shown(grant: &Grant) -> String {
    format!("Grant of {} at {:?}", grant.permits(), grant.released_at())
}

fn numbers(limiter: &Limiter) -> String {
    let peeks = [1, 2, 4].map(|permits| limiter.peek(permits));
    format!("{peeks:?} {:?}", limiter.remaining())
}

/// A limiter that is saved and restored after each step decides as one that is not, for all
/// policies and in every number that it shows.
#[test]
fn a_limiter_that_is_restored_each_time_decides_as_one_that_goes_on() {
    for policies in tour() {
        let mut granted = 0_u32;
        for seed in 0..12 {
            let clock = running();
            let debt = if seed % 2 == 0 { Debt::FORGOTTEN } else { Debt::CARRIED };
            let goes_on = Limiter::new(&policies, manual(&clock)).with_debt(debt);
            let mut restored = Limiter::new(&policies, manual(&clock)).with_debt(debt);
            let mut random = Rng::with_seed(seed);
            for step in 0..40 {
                let mut same = random.clone();
                let (left, right) =
                    (use_once(&goes_on, &mut random), use_once(&restored, &mut same));
                granted += u32::from(left.contains("Grant"));
                let at = || format!("{policies} with seed {seed} at step {step}");
                assert_eq!(left, right, "{}", at());
                let bytes = restored.save().unwrap();
                // What passes while it is saved passes for both.
                clock.advance(Duration::from_nanos(random.u64(..SECOND)));
                restored = Limiter::restore(&policies, manual(&clock), &bytes, None)
                    .unwrap()
                    .with_debt(debt);
                // What is in flight has ended when a limiter is restored.
                goes_on.release(1_000).unwrap();
                assert_eq!(numbers(&goes_on), numbers(&restored), "{}", at());
            }
        }
        assert!(granted > 20, "{policies}: {granted} grants");
    }
}

/// On a clock that shows less, or with less time than has passed, each permit that the restored
/// limiter grants was there in the one that went on, whatever that got back meanwhile.
#[test]
fn a_restored_limiter_is_never_more_generous() {
    let mut granted = [0_u32; 3];
    for table in MONOTONE {
        let policies = Policies::from_table(table).unwrap();
        for seed in 0..60 {
            let mut random = Rng::with_seed(seed);
            let clock = running();
            let goes_on = Limiter::new(&policies, manual(&clock));
            for _ in 0..random.u32(..20) {
                use_once(&goes_on, &mut random);
                clock.advance(Duration::from_nanos(random.u64(..SECOND)));
            }
            // Estimates that are held count as taken, and end for the one that goes on alone.
            let held = goes_on.try_hold(1, Duration::from_secs(9)).unwrap();
            let bytes = goes_on.save().unwrap();
            let away = Duration::from_nanos(random.u64(..2 * SECOND));
            clock.advance(away);
            let kind = random.usize(..3);
            let own = match kind {
                0 => ManualClock::stepped(),
                1 => {
                    let earlier = ManualClock::stepped();
                    earlier.set(
                        clock.now().saturating_sub(Duration::from_nanos(random.u64(..SECOND))),
                    );
                    earlier
                }
                _ => {
                    let right = ManualClock::stepped();
                    right.set(clock.now());
                    right
                }
            };
            let max = (kind == 2).then(|| away / 2);
            let restored = Limiter::restore(&policies, manual(&own), &bytes, max).unwrap();
            // Dropped, it is cancelled: at once, or after all tries.
            let _held = held.ok().filter(|_| random.bool());
            for _ in 0..40 {
                let permits = random.u64(1..3);
                if restored.try_acquire(permits).is_ok_and(|decision| decision.is_granted()) {
                    granted[kind] += 1;
                    let also = goes_on.try_acquire(permits).unwrap();
                    assert!(also.is_granted(), "{table} with seed {seed}: {also:?}");
                }
                let passes = Duration::from_nanos(random.u64(..SECOND));
                clock.advance(passes);
                own.advance(passes);
            }
        }
    }
    assert!(granted.iter().all(|&granted| granted > 500), "{granted:?}");
}

/// Counted by hand: what starts in any window of two seconds, with a restart now and then.
#[test]
fn no_window_has_more_than_the_limit_across_restarts() {
    let policies: Policies = "5 per any 2s".parse().unwrap();
    for seed in 0..40 {
        let mut random = Rng::with_seed(seed);
        let (mut own, mut now_ns, mut starts) = (ManualClock::stepped(), 0_u64, Vec::new());
        let mut limiter = Limiter::new(&policies, manual(&own));
        for _ in 0..200 {
            if limiter.try_acquire(1).unwrap().is_granted() {
                starts.push(now_ns);
            }
            if random.u32(..5) == 0 {
                let bytes = limiter.save().unwrap();
                let shown = own.now();
                own = ManualClock::stepped();
                let away_ns = random.u64(..SECOND);
                now_ns += away_ns;
                // Sometimes the new clock knows of the time away, and sometimes it begins at zero.
                if random.bool() {
                    own.set(shown + Duration::from_nanos(away_ns));
                }
                limiter = Limiter::restore(&policies, manual(&own), &bytes, None).unwrap();
            }
            let passes_ns = random.u64(..SECOND / 2);
            now_ns += passes_ns;
            own.advance(Duration::from_nanos(passes_ns));
        }
        assert!(starts.len() > 50, "{}", starts.len());
        for (first, last) in starts.iter().zip(starts.iter().skip(5)) {
            assert!(last - first >= 2 * SECOND, "seed {seed}: {starts:?}");
        }
    }
}

#[test]
fn real_time_continues_and_the_time_away_counts_as_far_as_it_is_trusted() {
    let policies: Policies = "1/h".parse().unwrap();
    let hour = Duration::from_secs(3_600);
    let saved = Limiter::new(&policies, Clock::real());
    assert!(saved.try_acquire(1).unwrap().is_granted());
    let (shown, left) = (saved.now(), saved.peek(1).unwrap().unwrap());
    let bytes = saved.save().unwrap();
    thread::sleep(Duration::from_millis(30));
    let restore = |max| Limiter::restore(&policies, Clock::real(), &bytes, max).unwrap();
    let trusting = restore(None);
    let (trusted, original) = (trusting.peek(1).unwrap().unwrap(), saved.peek(1).unwrap().unwrap());
    // The wall clock may run a little faster than the other one.
    assert!(trusted + Duration::from_millis(1) >= original, "{trusted:?} after {original:?}");
    assert!(trusted < left && trusting.now() >= shown, "{trusted:?}, {left:?}");
    let limiter = restore(Some(Duration::ZERO));
    assert!(limiter.now() >= shown);
    let (now, wait) = (limiter.now(), limiter.peek(1).unwrap().unwrap());
    // The one that trusts the wall clock is ahead by the time away, which the other leaves out.
    assert!(trusting.now() >= now + Duration::from_millis(29), "{now:?}");
    assert!(wait <= hour && now + wait >= shown + left, "{now:?} and {wait:?}");
}

/// Waits of threads and of loops end by the clock that continues.
#[test]
fn callers_wait_on_a_clock_that_continues() {
    let policies: Policies = "5/s burst 1".parse().unwrap();
    let used = Limiter::new(&policies, Clock::real());
    let _ = used.reserve(1, None).unwrap().keep();
    let last = used.reserve(1, None).unwrap().keep().promised_at();
    let bytes = used.save().unwrap();
    let max = Some(Duration::ZERO);
    let restored = Limiter::restore(&policies, Clock::real(), &bytes, max).unwrap();
    let (woken, wakes) = mpsc::channel();
    let hub = Hub::new(move || woken.send(()).unwrap());
    let first = match hub.begin(&restored, 1, None).unwrap() {
        Begun::Waits(_) => {
            wakes.recv_timeout(Duration::from_secs(20)).unwrap();
            grant_of(hub.next().unwrap().end.unwrap())
        }
        // The thread was stopped for so long that it has nothing to wait for.
        Begun::Taken(taken) => grant_of(taken),
    };
    let second = restored.acquire(1, None).unwrap();
    let gap = Duration::from_millis(200);
    assert!(first.released_at() >= last + gap, "{first:?} after {last:?}");
    assert!(second.released_at() >= first.promised_at() + gap, "{second:?} after {first:?}");
}

/// A key's limiter is saved like any, also a window, which is decided without a lock there.
#[test]
fn the_limit_of_a_key_continues_as_a_limiter_of_its_own() {
    for table in [MONOTONE[0], OTHERS[0], OTHERS[2]] {
        let policies = Policies::from_table(table).unwrap();
        let [policy] = *policies.policies() else { panic!("{policies}") };
        let clock = running();
        let keys = Keyed::new(policy, Capacity::for_keys(10), manual(&clock));
        assert!(keys.try_acquire(KeyRef::Number(7), 4).unwrap().is_granted());
        let of_key = keys.limiter(KeyRef::Number(7)).unwrap();
        let bytes = of_key.save().unwrap();
        let restored = Limiter::restore(&policies, manual(&clock), &bytes, None).unwrap();
        assert_eq!(numbers(&of_key), numbers(&restored), "{policies}");
        assert!(restored.peek(4).unwrap() > Some(Duration::ZERO), "{policies}");
    }
}

#[test]
fn waiters_and_operations_in_flight_are_not_saved_and_a_closed_limiter_is() {
    let clock = running();
    let hub = Hub::new(|| {});
    let policies: Policies = "1/s".parse().unwrap();
    let limiter = Limiter::new(&policies, manual(&clock));
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    assert!(matches!(hub.begin(&limiter, 1, None), Ok(Begun::Waits(_))));
    limiter.close();
    let bytes = limiter.save().unwrap();
    let restored = Limiter::restore(&policies, manual(&clock), &bytes, None).unwrap();
    assert!(!restored.is_closed());
    assert_eq!(restored.waiting(), Ok(0));
    assert_eq!(restored.peek(1), Ok(Some(Duration::from_secs(1))));
    let policies = Policies::from_table("policy = 'concurrency'\npermits = 2").unwrap();
    let limiter = Limiter::new(&policies, manual(&clock));
    assert!(limiter.try_acquire(2).unwrap().is_granted());
    let bytes = limiter.save().unwrap();
    let restored = Limiter::restore(&policies, manual(&clock), &bytes, None).unwrap();
    assert_eq!(restored.remaining(), Ok(2));
}

/// The bytes have all grants of before the call, while other threads go on.
#[test]
fn what_was_granted_before_is_saved_while_threads_take() {
    const PERMITS: u64 = 50_000;
    for text in ["1/h burst 50000", "50000 per any hour", "1/h burst 50000; 50000 per any hour"] {
        let policies: Policies = text.parse().unwrap();
        let clock = running();
        let limiter = Limiter::new(&policies, manual(&clock));
        let granted = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while limiter.try_acquire(1).unwrap().is_granted() {
                        granted.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..20 {
                let before = granted.load(Ordering::SeqCst);
                let bytes = limiter.save().unwrap();
                let restored = Limiter::restore(&policies, manual(&clock), &bytes, None).unwrap();
                let left = restored.remaining().unwrap();
                assert!(left <= PERMITS - before, "{text}: {left} after {before}");
            }
        });
        let restored =
            Limiter::restore(&policies, manual(&clock), &limiter.save().unwrap(), None).unwrap();
        assert_eq!((restored.remaining(), granted.into_inner()), (Ok(0), PERMITS), "{text}");
    }
}

#[test]
fn other_numbers_come_into_force_at_the_restart() {
    let clock = running();
    let limiter = Limiter::new(&"10 per any minute".parse().unwrap(), manual(&clock));
    assert!(limiter.try_acquire(8).unwrap().is_granted());
    let bytes = limiter.save().unwrap();
    let fewer = "5 per any minute".parse().unwrap();
    let restored = Limiter::restore(&fewer, manual(&clock), &bytes, None).unwrap();
    assert_eq!(restored.remaining(), Ok(0));
    let more = "12 per any minute".parse().unwrap();
    let restored = Limiter::restore(&more, manual(&clock), &bytes, None).unwrap();
    assert_eq!(restored.remaining(), Ok(4));
}

/// Returns the bytes of a limiter that has been used for a while.
fn bytes_of(policies: &Policies, seed: u64) -> Vec<u8> {
    let (clock, mut random) = (running(), Rng::with_seed(seed));
    let limiter = Limiter::new(policies, manual(&clock));
    for _ in 0..20 {
        use_once(&limiter, &mut random);
        clock.advance(Duration::from_nanos(random.u64(..SECOND)));
    }
    limiter.save().unwrap()
}

fn restore(policies: &Policies, bytes: &[u8]) -> Result<Limiter, RestoreError> {
    Limiter::restore(policies, manual(&running()), bytes, None)
}

#[test]
fn a_state_of_another_policy_is_refused_with_both_in_the_message() {
    let tour = tour();
    let name = |policies: &Policies| match policies.policies() {
        [AnyPolicy::SlowStart(slow)] => {
            format!("slow {:?}", std::mem::discriminant(&slow.policy()))
        }
        [policy] => format!("{:?}", std::mem::discriminant(policy)),
        several => format!("{} policies", several.len()),
    };
    for saved in &tour {
        let bytes = bytes_of(saved, 3);
        for other in &tour {
            let result = restore(other, &bytes);
            assert_eq!(result.is_ok(), name(saved) == name(other), "{saved} as {other}");
            if let Err(error) = result {
                assert!(error.to_string().contains(&other.to_string()), "{error}");
            }
        }
    }
    let bucket = bytes_of(&"10/s".parse().unwrap(), 1);
    let log: Policies = "10 per any second".parse().unwrap();
    assert_eq!(
        restore(&log, &bucket).unwrap_err().to_string(),
        format!("`{log}` cannot continue from these bytes: the limit is of another policy, gcra")
    );
    let two: Policies = "10/s; 10 per any minute".parse().unwrap();
    let error = restore(&two, &bucket).unwrap_err();
    assert!(
        matches!(error.found(), SnapshotError::OtherCount { found: 1, policies: 2 }),
        "{error}"
    );
}

#[test]
fn bytes_that_are_not_whole_are_refused() {
    for policies in tour() {
        let bytes = bytes_of(&policies, 5);
        restore(&policies, &bytes).unwrap();
        for len in 0..bytes.len() {
            restore(&policies, bytes.get(..len).unwrap()).unwrap_err();
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                *changed.get_mut(at).unwrap() ^= 1 << bit;
                assert!(
                    restore(&policies, &changed).is_err(),
                    "{policies}: bit {bit} of byte {at}"
                );
            }
        }
        let error = restore(&policies, &[bytes.as_slice(), &[0]].concat()).unwrap_err();
        let at = u64::try_from(bytes.len()).unwrap();
        assert!(
            matches!(error.found(), SnapshotError::Malformed { at_byte } if *at_byte == at),
            "{error}"
        );
        let twice = [bytes.as_slice(), &bytes].concat();
        restore(&policies, &twice).unwrap_err();
    }
    let mut random = Rng::with_seed(1);
    let policies = "10/s".parse().unwrap();
    for _ in 0..5_000 {
        let noise: Vec<u8> = (0..random.usize(..80)).map(|_| random.u8(..)).collect();
        restore(&policies, &noise).unwrap_err();
    }
}

/// States that no limiter has written, in bytes whose checksums are right.
#[test]
fn wrong_states_are_a_limit_or_an_error_and_no_panic() {
    let (mut random, mut refused, mut limits) = (Rng::with_seed(9), 0_u32, 0_u32);
    for policies in tour() {
        let bytes = bytes_of(&policies, 2);
        for _ in 0..150 {
            let changed = changed(&bytes, &mut random);
            let run = || match restore(&policies, &changed) {
                Ok(limiter) => {
                    let _ = limiter.try_acquire(1);
                    let _ = limiter.peek(2);
                    limiter.save().unwrap();
                    true
                }
                Err(error) => error.to_string().is_empty(),
            };
            let is_limit = catch_unwind(AssertUnwindSafe(run))
                .unwrap_or_else(|_| panic!("{policies}: {changed:02x?}"));
            limits += u32::from(is_limit);
            refused += u32::from(!is_limit);
        }
    }
    assert!(refused > 300 && limits > 300, "{refused}, {limits}");
}

/// Returns the bytes with one byte of a state changed, and new checksums.
fn changed(bytes: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut reader = SnapshotReader::new(bytes).unwrap();
    let header = reader.header().clone();
    let mut records: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
    let record = random.usize(..records.len());
    let state = &mut records.get_mut(record).unwrap().state;
    let byte = random.usize(..=state.len());
    let value = match random.u32(..3) {
        0 => random.u8(..),
        1 => u8::MAX - random.u8(..3),
        _ => random.u8(..3),
    };
    match state.get_mut(byte) {
        Some(_) if random.u32(..8) == 0 => drop(state.remove(byte)),
        Some(old) => *old = value,
        None => state.push(value),
    }
    let mut writer = SnapshotWriter::new(Vec::new(), header).unwrap();
    for record in &records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap()
}
