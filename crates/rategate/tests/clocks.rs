//! The clocks never wake early, whatever a sleep does, and a cancellation token wakes them at
//! once.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rategate::keyed::Capacity;
use rategate::pace::Throttle;
use rategate::policy::{Anchor, Mode};
use rategate::wait::{CancelToken, Wake};
use rategate::{
    AllOf, Clock, Decision, FixedWindow, Gcra, Keyed, Limiter, ManualClock, MonotonicClock,
    SlidingLog, SlowStart, SystemClock, TwoTimeline,
};
use rategate_testkit::ns;

/// S0.24, S0.26, S0.27: the clock is settable, and a sleep takes as long as the callback says.
#[test]
fn a_manual_clock_sleeps_as_long_as_requested() {
    let requested = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requested);
    let clock = ManualClock::with_sleep(move |requested_ns| {
        seen.lock().unwrap().push(requested_ns);
        requested_ns + Duration::from_nanos(7)
    });
    clock.set(Duration::from_micros(100));
    clock.sleep(1_500);
    assert_eq!(clock.now_ns(), 101_507);
    clock.advance(Duration::from_nanos(3));
    clock.sleep(0);
    assert_eq!(clock.now_ns(), 101_517);
    assert_eq!(*requested.lock().unwrap(), [Duration::from_nanos(1_500), Duration::ZERO]);
}

/// S0.25, S2.3, X3.5, X5.3: the real clock starts when it is made, only goes forward, and its
/// sleep is a real one.
#[test]
fn the_real_clock_goes_forward() {
    let clocks: [&dyn Clock; 2] = [&MonotonicClock::new(), &SystemClock::new()];
    for clock in clocks {
        let before_ns = clock.now_ns();
        assert!(before_ns < 1_000_000_000);
        clock.sleep(2_000_000);
        assert!(clock.now_ns() >= before_ns + 2_000_000);
        assert_eq!(clock.wait(clock.now_ns() + 2_000_000, &CancelToken::new()), Wake::Due);
        assert!(clock.now_ns() >= before_ns + 4_000_000);
        assert_eq!(clock.wait(0, &CancelToken::new()), Wake::Due, "the past is not waited for");
    }
}

/// The clock that reads the processor's counter never goes back, even while it takes over from
/// the system's clock. It keeps to the system's time as far as a busy machine can tell.
#[test]
fn the_monotonic_clock_keeps_to_the_systems_time() {
    let clock = MonotonicClock::new();
    let (origin, origin_ns) = (Instant::now(), clock.now_ns());
    let mut newest_ns = 0;
    loop {
        let before = origin.elapsed();
        let now_ns = clock.now_ns();
        let after = origin.elapsed();
        assert!(now_ns >= newest_ns, "{now_ns} after {newest_ns}");
        newest_ns = now_ns;
        let passed = Duration::from_nanos(now_ns - origin_ns);
        assert!(passed + Duration::from_millis(1) >= before, "{passed:?} {before:?}");
        assert!(passed <= after + Duration::from_millis(1), "{passed:?} {after:?}");
        if after > Duration::from_secs(2) {
            break;
        }
        thread::sleep(Duration::from_micros(50));
    }
}

/// X1.6, X2.7, X5.6: a caller woken early sleeps again, however short the rest; none starts
/// before its instant.
#[test]
fn undersleeping_wakes_no_waiter_early() {
    let clock = ManualClock::with_sleep(|requested_ns| requested_ns / 3);
    let limiter = Limiter::with_clock(SlidingLog::new(2, Duration::from_micros(1)), clock.clone());
    let starts: Vec<u64> = (0..9).map(|_| ns(limiter.acquire(1).unwrap().released_at())).collect();
    assert_eq!(starts, [0, 0, 1_000, 1_000, 2_000, 2_000, 3_000, 3_000, 4_000]);
}

/// X1.6, X5.6: a late caller counts from its real start, so that real starts keep the bound.
/// Where promised starts are requested, the rate is kept instead.
#[test]
fn oversleeping_keeps_the_bound_or_the_rate() {
    let played = |is_promised: bool| {
        let clock =
            ManualClock::with_sleep(|requested_ns| requested_ns + Duration::from_nanos(100));
        let limiter =
            Limiter::with_clock(SlidingLog::new(1, Duration::from_micros(1)), clock.clone());
        let limiter = if is_promised { limiter.with_promised_starts() } else { limiter };
        let grants = (0..5).map(|_| limiter.acquire(1).unwrap());
        grants.map(|grant| (ns(grant.promised_at()), ns(grant.released_at()))).collect::<Vec<_>>()
    };
    assert_eq!(
        played(false),
        [(0, 0), (1_000, 1_100), (2_100, 2_200), (3_200, 3_300), (4_300, 4_400)]
    );
    assert_eq!(
        played(true),
        [(0, 0), (1_000, 1_100), (2_000, 2_100), (3_000, 3_100), (4_000, 4_100)]
    );
}

/// X5.6: a sleep that takes no time at all still comes to its end.
#[test]
fn sleepless_sleep_ends() {
    let clock = ManualClock::with_sleep(|_| Duration::ZERO);
    assert_eq!(clock.wait(50, &CancelToken::new()), Wake::Due);
    assert_eq!(clock.now_ns(), 50);
}

/// X4.6: a cancellation token ends a wait on every clock, before it and during it.
#[test]
fn a_cancel_token_ends_every_wait() {
    let clocks: [&dyn Clock; 4] =
        [&MonotonicClock::new(), &SystemClock::new(), &ManualClock::new(), &ManualClock::stepped()];
    for clock in clocks {
        let cancel = CancelToken::new();
        cancel.cancel();
        assert_eq!(clock.wait(u64::MAX, &cancel), Wake::Cancelled);
    }
    for clock in [clocks[0], clocks[1], clocks[3]] {
        let cancel = CancelToken::new();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| clock.wait(u64::MAX, &cancel));
            thread::sleep(Duration::from_millis(5));
            cancel.cancel();
            assert_eq!(waiting.join().unwrap(), Wake::Cancelled);
        });
    }
}

/// A child token is cancelled with its parent, and not the other way round.
#[test]
fn a_child_token_is_cancelled_by_its_parent() {
    let above = CancelToken::new();
    let child = above.child();
    child.cancel();
    assert!(child.is_cancelled() && !above.is_cancelled());
    let child = above.child();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| MonotonicClock::new().wait(u64::MAX, &child));
        thread::sleep(Duration::from_millis(5));
        above.cancel();
        assert_eq!(waiting.join().unwrap(), Wake::Cancelled);
    });
}

/// A token is cancelled with any of its ancestors, and with none of its descendants.
#[test]
fn cancel_tokens_can_be_nested() {
    let top = CancelToken::new();
    let middle = top.child();
    let low = middle.child();
    let lowest = low.child();
    low.cancel();
    assert!(lowest.is_cancelled() && !middle.is_cancelled() && !top.is_cancelled());
    let another = CancelToken::new();
    let far_below = another.child().child().child();
    another.cancel();
    assert!(far_below.is_cancelled() && !top.is_cancelled());
    let low = middle.child();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| MonotonicClock::new().wait(u64::MAX, &low));
        thread::sleep(Duration::from_millis(5));
        top.cancel();
        assert_eq!(waiting.join().unwrap(), Wake::Cancelled);
    });
}

/// A stepped clock holds its waiters until their own instants, and reports how many there are.
#[test]
fn a_stepped_clock_wakes_whom_it_makes_due() {
    let clock = ManualClock::stepped();
    thread::scope(|scope| {
        let waits = [10, 30, 20].map(|until_ns| {
            let clock = &clock;
            scope.spawn(move || (clock.wait(until_ns, &CancelToken::new()), clock.now_ns()))
        });
        while clock.waiting() < 3 {
            thread::yield_now();
        }
        clock.advance(Duration::from_nanos(9));
        assert_eq!(clock.waiting(), 3);
        assert_eq!(clock.step(), Some(Duration::from_nanos(10)));
        assert_eq!(clock.waiting(), 2);
        clock.set(Duration::from_nanos(30));
        for wait in waits {
            assert_eq!(wait.join().unwrap().0, Wake::Due);
        }
    });
    assert_eq!(clock.step(), None);
}

/// S4.18, S4.19: at the end of 64 bits, and when the clock goes back, nothing wraps, no wait is
/// negative, and nothing is granted twice.
#[test]
fn the_end_of_the_clock_and_a_clock_going_back_are_harmless() {
    let clock = ManualClock::new();
    clock.set(Duration::from_nanos(u64::MAX - 1_500));
    let limiter = Limiter::with_clock(SlidingLog::new(1, Duration::from_micros(1)), clock.clone());
    assert_eq!(ns(limiter.acquire(1).unwrap().released_at()), u64::MAX - 1_500);
    clock.set(Duration::from_nanos(5));
    assert!(!limiter.try_acquire(1).unwrap().is_granted(), "going back earns nothing");
    clock.set(Duration::from_nanos(u64::MAX - 1_500));
    assert_eq!(ns(limiter.acquire(1).unwrap().released_at()), u64::MAX - 500);
    let past_end = limiter.acquire(1).unwrap_err().to_string();
    assert!(past_end.ends_with("past the end of the clock"), "{past_end}");
    let late = limiter.acquire_within(1, Duration::from_nanos(1)).unwrap_err().to_string();
    assert!(late.contains("past the deadline"), "{late}");
    assert!(!limiter.try_acquire(1).unwrap().is_granted());
    clock.advance(Duration::from_nanos(u64::MAX));
    assert!(!limiter.try_acquire(1).unwrap().is_granted());

    let clock = ManualClock::new();
    clock.set(Duration::from_nanos(u64::MAX));
    let limiter = Limiter::with_clock(Gcra::new("1/s".parse().unwrap(), 1).unwrap(), clock.clone());
    assert!(limiter.acquire(1).is_ok() && limiter.acquire(1).is_err());
    let mut throttle = Throttle::new("1/s".parse().unwrap(), clock);
    assert!(throttle.wait().is_err());
}

/// The name of a form of a limit, and a call that tries for one permit.
type Form = (&'static str, Box<dyn Fn() -> Decision>);

/// Ten permits at one instant, in each form in which a limiter or a table keeps a limit.
fn forms_of_ten(clock: &ManualClock) -> Vec<Form> {
    let bucket = || Gcra::new("1000/s".parse().unwrap(), 10).unwrap();
    let log = || SlidingLog::new(10, Duration::from_millis(10));
    let period = Duration::from_millis(10);
    let catch_up = Some(Duration::from_millis(9));
    let limits: [(_, AllOf); 6] = [
        ("a bucket", bucket().into()),
        ("a log", log().into()),
        ("a window", FixedWindow::new(10, period, Anchor::FirstCall).into()),
        ("a schedule", TwoTimeline::new("1000/s".parse().unwrap(), Mode::Average, catch_up).into()),
        ("a slow start", SlowStart::new(bucket(), Duration::from_nanos(1)).unwrap().into()),
        ("two limits", AllOf::from(bucket()).and(log())),
    ];
    let mut forms: Vec<Form> = Vec::new();
    for (form, limit) in limits {
        let limiter = Limiter::with_clock(limit, clock.clone());
        forms.push((form, Box::new(move || limiter.try_acquire(1).unwrap())));
    }
    let keyed = Keyed::<u64, _>::with_clock(bucket(), Capacity::for_keys(9), clock.clone());
    forms.push(("a key's slot", Box::new(move || keyed.try_acquire(&7, 1).unwrap())));
    let keyed = Keyed::<u64, _>::with_clock(log(), Capacity::for_keys(9), clock.clone());
    forms.push(("a key's log", Box::new(move || keyed.try_acquire(&7, 1).unwrap())));
    let keyed = Keyed::<u64, _>::with_clock(bucket(), Capacity::for_keys(9), clock.clone());
    let limiter = keyed.limiter(&7).unwrap();
    forms.push(("a key's limiter", Box::new(move || limiter.try_acquire(1).unwrap())));
    forms
}

/// A clock that steps back denies nobody who has not used up the limit, and its denials say how
/// long by the newest reading.
#[test]
fn a_clock_that_steps_back_denies_nobody_under_the_burst() {
    let (far, before) = (Duration::from_secs(60), Duration::from_secs(49));
    let forms = forms_of_ten(&ManualClock::new()).len();
    for at in 0..forms {
        let clock = ManualClock::new();
        let (form, try_one) = forms_of_ten(&clock).swap_remove(at);
        clock.set(far);
        for call in 0..10 {
            // By more than any form of a limit looks back.
            if call == 3 {
                clock.set(before);
            }
            assert!(try_one().is_granted(), "{form}: call {call}");
        }
        let Decision::Denied(denial) = try_one() else { panic!("{form}: granted the eleventh") };
        let wait = denial.retry_after().unwrap();
        clock.set(far + wait.saturating_sub(Duration::from_nanos(1)));
        assert!(!try_one().is_granted(), "{form}: {wait:?} is too long");
        clock.set(far + wait);
        assert!(try_one().is_granted(), "{form}: {wait:?} is too short");
    }
}

/// A key's limiter that is dropped leaves the newest reading to the table.
#[test]
fn a_table_goes_on_from_the_readings_of_a_keys_limiter() {
    let clock = ManualClock::new();
    let bucket = Gcra::new("1000/s".parse().unwrap(), 10).unwrap();
    let keyed = Keyed::<u64, _>::with_clock(bucket, Capacity::for_keys(9), clock.clone());
    let limiter = keyed.limiter(&7).unwrap();
    clock.set(Duration::from_secs(60));
    assert!((0..3).all(|_| limiter.try_acquire(1).unwrap().is_granted()));
    clock.set(Duration::from_secs(49));
    drop(limiter);
    assert!((0..7).all(|_| keyed.try_acquire(&7, 1).unwrap().is_granted()));
    assert!(!keyed.try_acquire(&7, 1).unwrap().is_granted());
}

/// A clock that is up to 20 ms off at each reading denies nobody at a fifth of the rate.
#[test]
fn a_clock_that_trembles_denies_nobody_under_the_rate() {
    let mut random = fastrand::Rng::with_seed(1);
    let forms = forms_of_ten(&ManualClock::new()).len();
    for at in 0..forms {
        let clock = ManualClock::new();
        let (form, try_one) = forms_of_ten(&clock).swap_remove(at);
        for call in 0..2_000_u64 {
            let off = Duration::from_micros(random.u64(..20_000));
            clock.set(Duration::from_millis(call * 5) + off);
            assert!(try_one().is_granted(), "{form}: call {call}");
        }
    }
}

/// Threads that read the clock without a pause agree with the system's, while it is calibrated
/// anew. The bound is generous: no second is skipped, and none comes twice.
#[test]
fn many_readers_skip_no_second() {
    let (clock, system) = (MonotonicClock::new(), SystemClock::new());
    let apart_ns = clock.now_ns().abs_diff(system.now_ns());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while system.now_ns() < 4_500_000_000 {
                    let before_ns = system.now_ns();
                    let now_ns = clock.now_ns();
                    let slack_ns = 500_000_000 + apart_ns;
                    assert!(now_ns + slack_ns > before_ns, "{now_ns} after {before_ns}");
                    assert!(now_ns < system.now_ns() + slack_ns, "{now_ns} from {before_ns}");
                }
            });
        }
    });
}
