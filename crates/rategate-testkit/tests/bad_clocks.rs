//! Limits on clocks that drift, stall and step: the ceiling holds by the clock's readings, and
//! every caller gets through.

use fastrand::Rng;
use rategate_testkit::clock::VirtualClock;
use rategate_testkit::oracle::Grants;
use rategate_testkit::report::{Outcome, Report};
use rategate_testkit::scenario::Scenario;
use rategate_testkit::world;

/// The limits, each with the most permits it may grant in a window of 100 ms.
const LIMITS: [(&str, u64); 6] = [
    ("policy = \"gcra\"\nrate = \"100/s\"\nburst = 3", 12),
    ("policy = \"sliding-log\"\npermits = 7\nperiod = \"100ms\"", 7),
    ("policy = \"fixed-window\"\npermits = 5\nperiod = \"50ms\"", 15),
    ("policy = \"two-timeline\"\nrate = \"100/s\"\nmode = \"strict\"", 10),
    ("policy = \"two-timeline\"\nrate = \"100/s\"\nmode = { burst = 1.5 }", 16),
    ("policy = \"two-timeline\"\nrate = \"100/s\"\ncatch_up = \"50ms\"", 15),
];

fn scenario(limit: &str, max: u64) -> Scenario {
    let text = format!(
        "[limit]\n{limit}\n[clock]\nstart = \"1h\"\n\
         [[caller]]\nthreads = 3\noperations = 20\nlatency = [\"0ms\", \"7ms\", \"31ms\"]\n\
         [[arrivals]]\nrate = \"80/s\"\ncount = 40\nshape = \"poisson\"\n\
         [[check]]\nwindow = \"100ms\"\nat_most = {max}\n"
    );
    Scenario::parse(&text).unwrap()
}

fn bad_clock(random: &mut Rng) -> VirtualClock {
    let mut below = |max: u64| random.u64(..max);
    let ms = 1_000_000;
    let mut clock = VirtualClock::new(3_600_000 * ms);
    clock = clock.drifting(i64::try_from(below(400_000)).unwrap() - 200_000);
    for _ in 0..below(4) {
        clock = clock.stalled(below(2_000 * ms), below(300 * ms));
        let by_ns = i64::try_from(below(600 * ms)).unwrap() - 300_000_000;
        clock = clock.stepped(below(2_000 * ms), by_ns);
    }
    clock
}

fn promised(report: &Report) -> Grants {
    let operations = report.operations.iter();
    Grants(operations.filter_map(|done| Some((done.promised_ns?, done.permits))).collect())
}

/// S4.8, S4.19, X5.6: on clocks that drift, stall, and step forward or back, ceilings hold.
#[test]
fn no_clock_breaks_a_ceiling_or_loses_a_caller() {
    for seed in 0..60 {
        let clock = bad_clock(&mut Rng::with_seed(seed));
        for (limit, max) in LIMITS {
            let report = world::run_on(&scenario(limit, max), &clock);
            // A schedule promises instants, which lateness does not shift.
            let seen = if limit.contains("catch_up") {
                promised(&report).fullest_window(100_000_000).0
            } else {
                report.checks[0].seen
            };
            assert!(seen <= max, "seed {seed}: {limit}: {seen} in {clock:?}");
            assert_eq!(report.operations.len(), 100, "seed {seed}: {limit}");
            let granted = |done: &&_| {
                matches!(
                    done,
                    rategate_testkit::report::Operation { outcome: Outcome::Granted, .. }
                )
            };
            assert_eq!(
                report.operations.iter().filter(granted).count(),
                100,
                "seed {seed}: {limit}"
            );
        }
    }
}

/// X5.6: a scenario on an exact clock gives the run that it gives by default.
#[test]
fn a_true_clock_changes_nothing() {
    for (limit, max) in LIMITS {
        let scenario = scenario(limit, max);
        let true_clock = VirtualClock::new(scenario.clock_start_ns);
        let (plain, virtual_) = (world::run(&scenario), world::run_on(&scenario, &true_clock));
        assert_eq!(plain.to_json(), virtual_.to_json());
    }
}

/// Sleeps end too early and too late, by up to several windows (docs/theory.md, section 10). Real
/// starts keep the ceiling of every policy that bounds them, and each caller gets through.
#[test]
fn no_sleep_error_breaks_a_ceiling_of_real_starts() {
    let all = "[[limit]]\npolicy = \"gcra\"\nrate = \"100/s\"\nburst = 3\n\
               [[limit]]\npolicy = \"sliding-log\"\npermits = 7\nperiod = \"100ms\"";
    let single = LIMITS[..5].iter().map(|(limit, max)| (format!("[[limit]]\n{limit}"), *max));
    let limits: Vec<_> = single.chain([(all.to_owned(), 7)]).collect();
    let mut late = 0;
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let largest_us = [50, 5_000, 400_000][usize::try_from(seed % 3).unwrap()];
        let errors: Vec<_> = (0..7)
            .map(|_| {
                let error_us = random.u64(..2 * largest_us);
                format!("\"{}us\"", i128::from(error_us) - i128::from(largest_us) / 2)
            })
            .collect();
        for (limit, max) in &limits {
            let text = format!(
                "{limit}\n[clock]\nsleep_error = [{}]\n\
                 [[caller]]\nthreads = 4\noperations = 15\nlatency = [\"0ms\", \"7ms\"]\n\
                 [[caller]]\nthreads = 3\noperations = 10\ncall = \"wait\"\n\
                 [[arrivals]]\nrate = \"80/s\"\ncount = 40\nshape = \"poisson\"\n\
                 [[check]]\nwindow = \"100ms\"\nat_most = {max}\n",
                errors.join(", ")
            );
            let report = world::run(&Scenario::parse(&text).unwrap());
            assert!(report.passed(), "seed {seed}: {text}{:?}", report.checks);
            assert_eq!(report.granted, 130, "seed {seed}: {text}");
            late +=
                report.operations.iter().filter(|done| done.promised_ns < done.start_ns).count();
        }
    }
    assert!(late > 5_000, "{late}");
}
