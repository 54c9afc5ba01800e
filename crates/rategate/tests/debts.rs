//! A hundred thousand denials in debt for each policy, of a limiter and of a key: at the instant
//! that each names the call passes, and a nanosecond sooner it does not.

use std::time::Duration;

use fastrand::Rng;
use rategate::calendar::CalendarSpec;
use rategate::charge::Debt;
use rategate::keyed::Capacity;
use rategate::policy::Anchor;
use rategate::{
    AllOf, AnyPolicy, Clock as _, FixedWindow, Gcra, Keyed, Limiter, ManualClock, SlidingLog,
};

/// The denials of each policy. `RATEGATE_DENIALS` says how many.
fn denials() -> u64 {
    let said = std::env::var("RATEGATE_DENIALS").ok();
    said.map_or(3_000, |said| said.parse().expect("RATEGATE_DENIALS is a number"))
}

/// The begin of each debt but the first few hundred, so that calendars stay within their years.
const NOW_NS: u64 = 1_790_000_000_123_456_789;
const DEBTS_AT_A_TIME: u64 = 200;
const CAPACITY: u64 = 7;

fn policies() -> Vec<(&'static str, AnyPolicy)> {
    let second = Duration::from_secs(1);
    let calendar = |unit: &str, zone: &str, anchor: &str| -> AnyPolicy {
        let spec = CalendarSpec::new(unit, zone).and_then(|spec| spec.anchored(anchor));
        spec.and_then(|spec| spec.quota(CAPACITY)).unwrap().into()
    };
    vec![
        ("a bucket", Gcra::new("7/3s".parse().unwrap(), CAPACITY).unwrap().into()),
        ("a window", FixedWindow::new(CAPACITY, second, Anchor::Epoch).into()),
        ("days", calendar("day", "America/New_York", "2026-01-01T02:30")),
        ("months", calendar("month", "Europe/Rome", "2026-01-31")),
        ("a log", SlidingLog::new(CAPACITY, second).into()),
        ("a compact log", SlidingLog::new(CAPACITY, second).compact().into()),
    ]
}

/// A limit: its clock, a try, and a charge that returns the debt. One of no permits only reads it.
struct Tried {
    clock: ManualClock,
    wait_ns: Box<dyn Fn(u64) -> Option<u64>>,
    charge: Box<dyn Fn(u64) -> u64>,
}

impl Tried {
    fn limiter(policy: AnyPolicy, debt: Debt) -> Self {
        let clock = clock();
        let limiter = Limiter::with_clock(policy, clock.clone()).with_debt(debt);
        let tries = limiter.clone();
        Self {
            clock,
            wait_ns: Box::new(move |permits| wait_ns(&tries.try_acquire(permits).unwrap())),
            charge: Box::new(move |permits| limiter.charge(permits).unwrap().debt),
        }
    }

    fn several(policies: Vec<AnyPolicy>, debt: Debt) -> Self {
        let clock = clock();
        let limiter = Limiter::with_clock(AllOf::new(policies), clock.clone()).with_debt(debt);
        let tries = limiter.clone();
        Self {
            clock,
            wait_ns: Box::new(move |permits| wait_ns(&tries.try_acquire(permits).unwrap())),
            charge: Box::new(move |permits| limiter.charge(permits).unwrap().debt),
        }
    }

    fn key(policy: AnyPolicy, debt: Debt) -> Self {
        let clock = clock();
        let table: Keyed<u64, _> = Keyed::with_clock(policy, Capacity::default(), clock.clone());
        let table = std::rc::Rc::new(table.with_debt(debt));
        let tries = std::rc::Rc::clone(&table);
        Self {
            clock,
            wait_ns: Box::new(move |permits| wait_ns(&tries.try_acquire(&7, permits).unwrap())),
            charge: Box::new(move |permits| table.charge(&7, permits).unwrap().debt),
        }
    }

    fn set(&self, now_ns: u64) {
        self.clock.set(Duration::from_nanos(now_ns));
    }

    /// Plays some debts, and returns how many calls were denied in debt.
    fn play(&self, name: &str, random: &mut Rng) -> u64 {
        let mut count = 0;
        for _ in 0..DEBTS_AT_A_TIME {
            while (self.charge)(1 + random.u64(..CAPACITY * 2)) == 0 {}
            let permits = 1 + random.u64(..CAPACITY);
            let mut now_ns = self.clock.now_ns();
            let wait = |at_ns: u64| {
                (self.wait_ns)(permits).unwrap_or_else(|| panic!("{name}: granted at {at_ns}"))
            };
            let passes_ns = now_ns + wait(now_ns);
            for _ in 0..4 {
                assert_eq!(now_ns + wait(now_ns), passes_ns, "{name} at {now_ns}");
                count += u64::from((self.charge)(0) > 0);
                now_ns += random.u64(..passes_ns - now_ns);
                self.set(now_ns);
            }
            self.set(passes_ns - 1);
            assert_eq!((self.wait_ns)(permits), Some(1), "{name}: before {passes_ns}");
            self.set(passes_ns);
            assert_eq!((self.wait_ns)(permits), None, "{name}: passes at {passes_ns}");
        }
        count
    }
}

fn clock() -> ManualClock {
    let clock = ManualClock::stepped();
    clock.set(Duration::from_nanos(NOW_NS));
    clock
}

/// Returns the wait of a denial, or `None` for a grant.
fn wait_ns(decision: &rategate::Decision) -> Option<u64> {
    decision.retry_after().map(|wait| u64::try_from(wait.as_nanos()).unwrap())
}

/// Plays limits of a kind until there are enough denials, and returns their number.
fn enough(name: &str, make: impl Fn() -> Tried) -> u64 {
    let (mut random, mut count) = (Rng::with_seed(17), 0);
    while count < denials() {
        let played = make().play(name, &mut random);
        assert!(played > 0, "{name}: no call was denied in debt");
        count += played;
    }
    count
}

#[test]
#[expect(clippy::print_stdout, reason = "the number of comparisons is a result")]
fn denials_in_debt_name_the_instant_at_which_calls_pass() {
    let mut all = 0;
    for debt in [Debt::FORGOTTEN, Debt::CARRIED] {
        for (name, policy) in policies() {
            let name = format!("{name}, {debt:?}");
            all += enough(&format!("{name}, a limiter"), || Tried::limiter(policy, debt));
            all += enough(&format!("{name}, a key"), || Tried::key(policy, debt));
        }
        let three = || policies().into_iter().step_by(2).map(|(_, policy)| policy).collect();
        all += enough("several", || Tried::several(three(), debt));
    }
    println!("{all} denials in debt");
}
