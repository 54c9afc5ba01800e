//! Controllers: their bounds for any samples, and the tables of the projects they are from.

use std::mem::size_of;

use crate::common::{end, part};
use fastrand::Rng;
use rategate_core::adaptive::{
    Adaptation, AdaptiveConcurrency, Aimd, Bounds, Change, Controller, Knee, Method, Outcome,
    Reason, Sample, State,
};
use rategate_core::error::LimitError;
use rategate_core::ledger::Ledger;
use rategate_core::saved::{RestoreContext, RestoreTarget, save_state};
use rategate_core::verdict::{Grant, Verdict};

const MS: u64 = 1_000_000;

fn sample(latency_ns: u64, in_flight: u32, outcome: Outcome) -> Sample {
    Sample { start_ns: 0, end_ns: latency_ns, in_flight, outcome }
}

/// Returns the limits after each of these served samples.
fn limits<C: Controller>(mut controller: C, served: &[(u64, u32)]) -> Vec<u32> {
    let limit = |&(latency_ns, in_flight): &(u64, u32)| {
        controller.sample(sample(latency_ns, in_flight, Outcome::Served));
        controller.limit()
    };
    served.iter().map(limit).collect()
}

#[test]
fn aimd_has_the_values_of_the_tests_of_concurrency_limits() {
    let aimd = |first, ceiling| Aimd::new(Bounds::new(1, first, ceiling));
    assert_eq!(limits(aimd(20, 200), &[(MS, 10)]), [21]);
    assert_eq!(limits(aimd(21, 21), &[(MS, 10)]), [21]);
    let mut dropping = aimd(30, 200);
    dropping.sample(sample(0, 0, Outcome::Dropped));
    assert_eq!(dropping.limit(), 27);
}

/// Returns the next sample of a sequence, some of which have instants that no clock shows.
fn hostile(rng: &mut Rng, now_ns: &mut u64, limit: u32, is_mad: bool) -> Sample {
    let any = |rng: &mut Rng| match rng.u32(..6) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX - rng.u64(..1_000),
        3 => rng.u64(..1_000),
        4 => 1 << rng.u32(..64),
        _ => rng.u64(..),
    };
    *now_ns = now_ns.saturating_add(rng.u64(..8 * MS));
    let latency_ns = 1 << rng.u32(..30);
    let (start_ns, end_ns) = match rng.u32(..40) {
        0 if is_mad => (any(rng), any(rng)),
        1 => (*now_ns, now_ns.saturating_sub(latency_ns)),
        _ => (now_ns.saturating_sub(latency_ns), *now_ns),
    };
    let in_flight = match rng.u32(..10) {
        0 => 0,
        1 => u32::MAX,
        2..5 => rng.u32(..=limit),
        _ => limit,
    };
    let outcome = match rng.u32(..40) {
        0 => Outcome::Ignored,
        1..4 => Outcome::Dropped,
        _ => Outcome::Served,
    };
    Sample { start_ns, end_ns, in_flight, outcome }
}

/// The sequences of hostile samples. `RATEGATE_SAMPLES` says how many for each controller.
fn sequences() -> u64 {
    let said = std::env::var("RATEGATE_SAMPLES").ok();
    said.map_or(2_000, |said| said.parse().expect("RATEGATE_SAMPLES is a number"))
}

fn ended(controller: &mut impl Controller, sample: Sample, fills_share: bool) {
    if fills_share {
        controller.fill_share(sample.in_flight, sample.start_ns);
    }
    controller.sample(sample);
}

/// Returns how often the limit changed.
fn keeps_its_bounds<C: Controller>(new: impl Fn(Bounds, u64) -> C) -> u64 {
    let mut changes = 0;
    for seed in 0..sequences() {
        let mut rng = Rng::with_seed(seed);
        let mut numbers = [rng.u32(1..50), rng.u32(1..2_000), rng.u32(1..u32::MAX)];
        numbers.sort_unstable();
        let [floor, first, ceiling] = numbers;
        let mut controller = new(Bounds::new(floor, first, ceiling), seed);
        let mut now_ns = rng.u64(..1 << 40);
        let is_mad = rng.bool();
        let mut tape = Vec::new();
        for _ in 0..400 {
            let before = controller.limit();
            let sample = hostile(&mut rng, &mut now_ns, before, is_mad);
            let fills_share = rng.u32(..4) == 0;
            // Doubled, too.
            for _ in 0..rng.u32(1..=2) {
                ended(&mut controller, sample, fills_share);
                let limit = controller.limit();
                tape.push((sample, fills_share, limit));
                assert!((floor..=ceiling).contains(&limit), "seed {seed}: {controller:?}");
            }
            changes += u64::from(controller.limit() != before);
        }
        let mut again = new(Bounds::new(floor, first, ceiling), seed);
        for (sample, fills_share, limit) in tape {
            ended(&mut again, sample, fills_share);
            assert_eq!(again.limit(), limit, "seed {seed}: {sample:?}");
        }
    }
    changes
}

#[test]
fn no_samples_move_a_limit_beyond_its_bounds() {
    assert!(keeps_its_bounds(Knee::new) > 2 * sequences());
    assert!(keeps_its_bounds(|bounds, _| Aimd::new(bounds)) > 2 * sequences());
}

/// The limits after some samples are the same on every machine, and in every version until a rule
/// is changed.
#[test]
fn the_limits_of_a_tape_are_these() {
    let mut knee = Knee::new(Bounds::new(1, 20, 1_000), 7);
    let (mut random, mut now_ns, mut sum) = (1_u64, 0, 0_u64);
    for _ in 0..20_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        now_ns += random >> 42;
        let latency_ns = (random >> 40) % (40 * MS);
        let in_flight = u32::try_from(random >> 60).unwrap() * knee.limit() / 15;
        let end_ns = now_ns + latency_ns;
        knee.sample(Sample { start_ns: now_ns, end_ns, in_flight, outcome: Outcome::Served });
        sum = sum.wrapping_mul(31).wrapping_add(knee.limit().into());
    }
    assert_eq!((knee.limit(), sum), (35, 17_473_044_112_285_731_654));
}

/// A sample of a wrong clock, however far ahead, delays what follows by some samples only.
#[test]
fn an_instant_of_the_future_does_not_stop_a_controller() {
    for ahead_ns in [3_600_000 * MS, u64::MAX - 10_000 * MS] {
        let mut knee = Knee::new(Bounds::new(1, 200, 1_000), 3);
        let mut limits = Vec::new();
        let mut now_ns = 1_000 * MS;
        for nth in 0..20_000_u64 {
            now_ns += MS;
            let wrong_ns = if nth == 500 { ahead_ns } else { 0 };
            // A queue from then on: 300 ms in place of 10.
            let latency_ns = if nth < 500 { 10 * MS } else { 300 * MS };
            let (start_ns, end_ns) = (now_ns - latency_ns, now_ns + wrong_ns);
            let in_flight = knee.limit();
            knee.sample(Sample { start_ns, end_ns, in_flight, outcome: Outcome::Served });
            limits.push(knee.limit());
        }
        limits.dedup();
        assert!(limits.len() > 5, "{ahead_ns}: {limits:?}");
    }
}

/// Few operations are no reason for more, not even after a time in which the limit was reached.
#[test]
fn a_limit_that_is_not_reached_does_not_grow() {
    fn stays<C: Controller>(mut controller: C, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let (mut now_ns, mut quiet, mut max) = (0, 0, u32::MAX);
        for nth in 0..6_000 {
            let is_reached = nth < 2_000;
            let limit = controller.limit();
            let in_flight = if is_reached { limit } else { rng.u32(..=(limit - 1) / 2) };
            now_ns += rng.u64(..4 * MS);
            let end_ns = now_ns + rng.u64(MS..30 * MS);
            let outcome = if rng.u32(..20) == 0 { Outcome::Dropped } else { Outcome::Served };
            controller.sample(Sample { start_ns: now_ns, end_ns, in_flight, outcome });
            quiet = if is_reached { 0 } else { quiet + 1 };
            // The windows in which it was reached, and a probe, are over after a second.
            if quiet > 600 {
                assert!(controller.limit() <= max, "seed {seed}: {controller:?}");
                max = controller.limit();
            }
        }
    }
    for seed in 0..100 {
        let bounds = Bounds::new(1, 40, 1_000);
        stays(Knee::new(bounds, seed), seed);
        stays(Aimd::new(bounds), seed);
    }
}

#[test]
fn where_all_is_dropped_the_limit_falls_by_a_fifth_a_window() {
    let mut knee = Knee::new(Bounds::new(1, 500, 1000), 1);
    let mut now_ns = 0;
    while knee.limit() > 1 {
        now_ns += 4 * MS;
        let (start_ns, end_ns) = (now_ns, now_ns + 2 * MS);
        knee.sample(Sample { start_ns, end_ns, in_flight: 1, outcome: Outcome::Dropped });
        // ln 500 / ln 1.25 = 27.9 windows, of 33 samples each: one ends it, and 32 are in it.
        assert!(now_ns <= 29 * 33 * 4 * MS, "{knee:?}");
    }
}

#[test]
fn bounds_are_checked() {
    for (floor, first, ceiling) in [(0, 1, 1), (2, 1, 3), (1, 3, 2), (0, 0, 0)] {
        assert_eq!(Bounds::try_new(floor, first, ceiling), Err(LimitError::Bounds));
    }
    let bounds = Bounds::new(1, 1, u32::MAX);
    assert_eq!((bounds.floor(), bounds.first(), bounds.ceiling()), (1, 1, u32::MAX));
}

#[test]
fn a_controller_is_small() {
    assert!(size_of::<Knee>() <= 288, "{}", size_of::<Knee>());
}

/// A limit from 1 to 200 that begins with 20.
fn limit_by(method: Method) -> Ledger {
    let adaptation = Adaptation::new(Bounds::new(1, 20, 200)).with_method(method);
    Ledger::new(AdaptiveConcurrency::following(adaptation), 0)
}

/// Starts as many operations as fit, and ends them after `latency_ns`.
fn fill(limit: &mut Ledger, now_ns: u64, latency_ns: u64, outcome: Outcome) {
    let mut grants: Vec<Grant> = Vec::new();
    while let Ok(Verdict::Granted(grant)) = limit.try_acquire(now_ns, 1) {
        grants.push(grant);
    }
    for grant in &grants {
        end(limit, now_ns + latency_ns, grant, outcome);
    }
}

fn last(limit: &Ledger) -> Change {
    part::<State>(&limit).changes().1.unwrap()
}

#[test]
fn a_change_has_a_reason() {
    for method in [Method::Knee, Method::Aimd] {
        let mut limit = limit_by(method);
        assert_eq!(part::<State>(&limit).changes(), (0, None), "{method:?}");
        for turn in 0..10 {
            fill(&mut limit, turn * 20 * MS, 20 * MS, Outcome::Served);
        }
        let (count, grew) = part::<State>(&limit).changes();
        let grew = grew.unwrap();
        assert_eq!(grew.reason, Reason::Reached, "{method:?}");
        assert!(grew.from < grew.to && count > 0, "{method:?}: {grew:?}");
        let known = (method == Method::Knee).then_some(20 * MS);
        assert_eq!(part::<State>(&limit).base_ns(), known, "{method:?}");
        for turn in 1..=10 {
            fill(&mut limit, turn * 300 * MS, 200 * MS, Outcome::Dropped);
        }
        let cut = last(&limit);
        assert!(cut.from > cut.to && cut.reason == Reason::Dropped, "{method:?}: {cut:?}");
        assert_eq!(u64::from(cut.to), limit.max_in_flight(4_000 * MS).unwrap(), "{method:?}");
        // Ten minutes later it begins anew.
        fill(&mut limit, 700_000 * MS, MS, Outcome::Ignored);
        let restart = Change { reason: Reason::Restart, from: cut.to, to: 20 };
        assert_eq!(last(&limit), restart, "{method:?}");
        let narrow = Adaptation::new(Bounds::new(1, 5, 7)).with_method(method);
        limit.reconfigure(700_000 * MS, AdaptiveConcurrency::following(narrow)).unwrap();
        assert_eq!(last(&limit), Change { reason: Reason::Bounds, from: 20, to: 7 }, "{method:?}");
    }
}

/// Returns the limit after a restart.
fn restarted(limit: &Ledger, now_ns: u64) -> u64 {
    let member = limit.limits().only().unwrap();
    let policy = member.policy();
    let mut bytes = Vec::new();
    save_state(member, now_ns, &mut bytes);
    let target = RestoreTarget::new(policy, policy).unwrap();
    let since = RestoreContext { now_ns, elapsed_ns: MS };
    let member = target.state(&bytes, since).unwrap();
    Ledger::with_state(member, now_ns).max_in_flight(now_ns).unwrap()
}

/// Where each operation takes longer the more there are, a queue stands, and a probe comes first.
#[test]
fn the_knee_says_that_it_probes_and_that_a_queue_stands() {
    let (mut limit, mut now_ns) = (limit_by(Method::Knee), 0);
    let mut reasons = Vec::new();
    for _ in 0..2_000 {
        let in_flight = limit.max_in_flight(now_ns).unwrap();
        let latency_ns = 10 * MS * in_flight.max(10) / 10;
        fill(&mut limit, now_ns, latency_ns, Outcome::Served);
        now_ns += latency_ns;
        let Some(change) = part::<State>(&limit).changes().1 else { continue };
        if change.reason == Reason::Queue {
            assert!(change.to < change.from, "a queue cuts: {change:?}");
        }
        if change.reason == Reason::Probe && change.to < change.from {
            // A restart in a probe goes on with the limit before it.
            assert_eq!(restarted(&limit, now_ns), u64::from(change.from), "{change:?}");
        }
        reasons.push(change.reason);
    }
    reasons.dedup();
    for reason in [Reason::Reached, Reason::Probe, Reason::Queue] {
        assert!(reasons.contains(&reason), "{reason:?}: {reasons:?}");
    }
}
