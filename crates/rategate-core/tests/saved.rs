//! Tests of limits as plain data: a restored limit decides as the saved one would have.
//!
//! It is never open sooner where the clock cannot represent it all, and invalid data is
//! refused.

use std::ops::RangeInclusive;
use std::slice;
use std::time::Duration;

use crate::common::limits::{Kind, Scale, limit_of};
use crate::common::{Answer, S, pacer, policy as in_force};
use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::Debt;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::saved::{RestoreContext, RestoreTarget, Saved, SavedError, restore, save_state};
use rategate_core::sliding_log::SlidingLog;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::Verdict;
use rategate_core::warm_up::WarmUp;
use rategate_testkit::oracle::Grants;

/// Kinds of limits among which a change keeps the state, those last that have no promises to cancel.
const KINDS: [&[Kind]; 19] = [
    &[Kind::Bucket, Kind::BucketAtAnEnd],
    &[Kind::Log],
    &[Kind::GridLog],
    &[Kind::CompactLog],
    &[Kind::Window],
    &[Kind::WindowOfFirstCall],
    &[Kind::Batches, Kind::BatchesAtAnEnd, Kind::BoundedBatches],
    &[Kind::Average, Kind::AverageAtAnEnd, Kind::BoundedAverage],
    &[Kind::Damped, Kind::BoundedDamped],
    &[Kind::Burst],
    &[Kind::AverageRamp, Kind::StrictRamp],
    &[Kind::Pool, Kind::PoolWithoutBurst, Kind::PoolByHand],
    &[Kind::Concurrency],
    &[Kind::CommitLog],
    &[Kind::AdaptiveRate],
    &[Kind::WarmUp, Kind::WideWarmUp, Kind::WarmUpAtAnEnd],
    &[Kind::SlowBucket],
    &[Kind::SlowLog],
    &[Kind::SlowDamped, Kind::SlowBurst],
];

/// The calls that charge.
const CHARGES: RangeInclusive<u64> = 18..=19;

/// Returns a policy of some kinds, and how far apart clocks with its grid may be.
fn policy(kinds: &[Kind], random: &mut Rng) -> (AnyPolicy, u64) {
    let policy = limit_of(kinds, Scale::Of(1), random);
    let grid_ns = match policy {
        AnyPolicy::SlidingLog(log) => log.resolution_ns(),
        AnyPolicy::FixedWindow(window) if !window.starts_at_grant() => {
            window.period_ns().unwrap().get()
        }
        AnyPolicy::SlowStart(slow) => match slow.policy() {
            AnyPolicy::SlidingLog(log) => log.resolution_ns(),
            _ => 1,
        },
        _ => 1,
    };
    (policy, grid_ns)
}

/// Returns the kinds of which a seed is.
fn kinds_of(seed: u64, kinds: &'static [&'static [Kind]]) -> &'static [Kind] {
    kinds[usize::try_from(seed).unwrap() % kinds.len()]
}

/// Returns a limit that has been used for a while.
///
/// Its numbers have changed now and then, and its rate may be the rest of a ramp.
fn used(kinds: &[Kind], random: &mut Rng, now_ns: &mut u64) -> (Ledger, u64) {
    let (first, mut grid_ns) = policy(kinds, random);
    let mut limit = Ledger::new(first, *now_ns);
    let step_ns = random.choice([2, 9, 40]).unwrap();
    for _ in 0..random.u64(0..=60) {
        *now_ns = now_ns.saturating_add(random.u64(0..=step_ns));
        if random.u64(..12) == 0 && limit.promised() == 0 {
            let (next, next_grid_ns) = policy(kinds, random);
            limit.reconfigure(*now_ns, next).unwrap();
            grid_ns = next_grid_ns;
            continue;
        }
        let _ = one_call(&mut limit, *now_ns, 0, random.u64(0..=21), random.u64(1..=3));
    }
    // A promise that has not started cannot be released yet, and a pool that is refilled by hand
    // before the start rounds in another order.
    let is_either = matches!(first, AnyPolicy::CommitLog(_) | AnyPolicy::BackfillPool(_));
    if is_either && limit.promised() > 0 {
        *now_ns = now_ns.saturating_add(10_000);
        limit.pass_to(*now_ns);
    }
    (limit, grid_ns)
}

/// Makes one call of one kind, and returns its result as if the caller's clock were `ahead_ns`
/// behind.
fn one_call(
    limit: &mut Ledger,
    now_ns: u64,
    ahead_ns: u64,
    kind: u64,
    permits: u64,
) -> Option<(u64, u64, u64)> {
    let visible = |answer: Answer| match answer {
        Ok(Verdict::Granted(grant)) => {
            let scheduled_ns = grant.scheduled_ns.saturating_sub(ahead_ns);
            Some((grant.start_ns - ahead_ns, scheduled_ns, 0))
        }
        Ok(Verdict::Denied(denial)) => denial.retry_after_ns.map(|wait| (wait.get(), u64::MAX, 0)),
        Err(error) => Some((error.max, u64::MAX, u64::MAX)),
    };
    match kind {
        0..=12 => {
            let (at_ns, scheduled_ns, _) = visible(match kind {
                0..=8 => limit.try_acquire(now_ns, permits),
                _ => limit.reserve(now_ns, permits, Some(40)),
            })?;
            Some((at_ns, scheduled_ns, limit.remaining(now_ns)))
        }
        13 | 14 => limit.peek(now_ns, permits).ok().flatten().map(|wait_ns| (wait_ns, 0, 0)),
        15 => Some((limit.remaining(now_ns), 0, 0)),
        16 => Some((limit.refill(now_ns, permits).into(), 0, 0)),
        17 => Some((limit.abort(now_ns, 1).into(), 0, 0)),
        18 | 19 => {
            let debt = if kind == *CHARGES.start() { Debt::FORGOTTEN } else { Debt::CARRIED };
            // Promises are in a restored state, so the debts of the two may differ by them.
            let charged = limit.charge(now_ns, 2 * permits, debt).ok()?;
            Some((charged.booked, charged.forgiven, 0))
        }
        _ => Some((limit.release(now_ns, permits).into(), 0, 0)),
    }
}

/// A limit restored after some time decides every call as the saved one does.
///
/// This holds on a clock that continues and on another that is ahead of it.
#[test]
fn what_is_restored_decides_as_what_was_saved() {
    for seed in 0..16_000 {
        let mut random = Rng::with_seed(seed);
        let kinds = kinds_of(seed, &KINDS);
        let mut now_ns = random.choice([0, 3, 5 * S]).unwrap();
        let (mut limit, grid_ns) = used(kinds, &mut random, &mut now_ns);
        let saved = limit.save(now_ns);
        let elapsed_ns = random.u64(0..=90) * random.u64(0..=1);
        let ahead_ns = grid_ns * random.choice([0, 1, 1_000, 7 * S]).unwrap();
        now_ns += elapsed_ns;
        let since = RestoreContext { now_ns: now_ns + ahead_ns, elapsed_ns };
        let mut restored = restore(in_force(&limit), &saved, since).unwrap();
        // Operations in flight have ended.
        limit.release(now_ns, u64::MAX);
        let step_ns = random.choice([2, 9, 40]).unwrap();
        // A saved window has one count, and a slow start one ramp: with promises in it, a charge
        // counts in theirs.
        let in_use = in_force(&limit);
        let is_one = matches!(in_use, AnyPolicy::FixedWindow(_) | AnyPolicy::SlowStart(_));
        let is_charged = limit.promised() == 0 || !is_one;
        for call in 0..60 {
            now_ns += random.u64(0..=step_ns);
            let (what, permits) = (random.u64(0..=21), random.u64(1..=3));
            let what = if CHARGES.contains(&what) && !is_charged { 0 } else { what };
            let ideal = one_call(&mut limit, now_ns, 0, what, permits);
            let seen = one_call(&mut restored, now_ns + ahead_ns, ahead_ns, what, permits);
            let policy = in_force(&limit);
            assert_eq!(
                seen, ideal,
                "seed {seed}, call {call} ({what}, {permits}) at {now_ns}: {policy:?}"
            );
        }
    }
}

/// Permits credited among promises are lost by the restart, and no others are.
///
/// The restored limit is never open sooner, whatever was cancelled.
#[test]
fn a_restart_loses_only_permits_credited_among_promises() {
    for seed in 0..4_000 {
        let mut random = Rng::with_seed(seed);
        let mut now_ns = 10 * S;
        let (mut limit, _) = used(kinds_of(seed, &KINDS[..13]), &mut random, &mut now_ns);
        let mut tickets = Vec::new();
        for _ in 0..random.u64(1..=6) {
            if let Ok(Verdict::Granted(grant)) = limit.reserve(now_ns, random.u64(1..=2), None) {
                tickets.push(grant.ticket);
            }
        }
        if let Some(&ticket) = tickets.get(usize::try_from(random.u64(0..=3)).unwrap()) {
            limit.cancel(now_ns, ticket);
        }
        let since = RestoreContext { now_ns, elapsed_ns: 0 };
        let restored = restore(in_force(&limit), &limit.save(now_ns), since).unwrap();
        limit.release(now_ns, u64::MAX);
        never_sooner(&limit, now_ns, &restored, now_ns, &format!("seed {seed}"));
    }
}

/// Checks that the restored limit never has more than the other, and opens no sooner, at many
/// instants.
fn never_sooner(limit: &Ledger, now_ns: u64, restored: &Ledger, restored_ns: u64, visible: &str) {
    for after_ns in [0, 1, 2, 3, 5, 8, 13, 21, 40, 80, 160, 500] {
        let (at_ns, restored_at_ns) = (now_ns + after_ns, restored_ns + after_ns);
        let visible = format!("{visible}, {after_ns} later: {:?}", in_force(limit));
        let mut limit = limit.clone();
        limit.pass_to(at_ns);
        assert!(restored.remaining(restored_at_ns) <= limit.remaining(at_ns), "{visible}");
        // The less late several permits are, the less a damped call for them forfeits.
        let max = if format!("{:?}", in_force(&limit)).contains("Damped") { 1 } else { 3 };
        for permits in 1..=max {
            let (Ok(seen), Ok(ideal)) =
                (restored.peek(restored_at_ns, permits), limit.peek(at_ns, permits))
            else {
                continue;
            };
            let never = u64::MAX;
            assert!(seen.unwrap_or(never) >= ideal.unwrap_or(never), "{permits}, {visible}");
        }
    }
}

/// On a clock that has just started, instants before its zero count as zero, so the limit is
/// never open sooner.
///
/// A ramp returns how much later the clock would have to start, and continues there.
#[test]
fn before_the_clocks_zero_a_limit_is_closed_longer_and_never_opens_sooner() {
    let (mut ramps, mut young) = (0, 0);
    for seed in 0..16_000 {
        let mut random = Rng::with_seed(seed);
        let mut now_ns = random.choice([50, 5 * S]).unwrap();
        let (mut limit, _) = used(kinds_of(seed, &KINDS), &mut random, &mut now_ns);
        let saved = limit.save(now_ns);
        let elapsed_ns = random.u64(0..=60);
        let mut since = RestoreContext { now_ns: random.u64(0..=40), elapsed_ns };
        let restored = match restore(in_force(&limit), &saved, since) {
            Err(SavedError::BeforeClock { short_ns }) => {
                ramps += 1;
                assert!(format!("{:?}", in_force(&limit)).contains("Ramp"), "seed {seed}");
                since.now_ns += short_ns;
                restore(in_force(&limit), &saved, since).unwrap()
            }
            other => other.unwrap(),
        };
        young += 1;
        limit.release(now_ns + elapsed_ns, u64::MAX);
        let visible = format!("seed {seed}");
        never_sooner(&limit, now_ns + elapsed_ns, &restored, since.now_ns, &visible);
    }
    assert!(ramps > 100 && young > 10_000, "{ramps} {young}");
}

/// The ceiling of a log holds across a restart, however young the clock is: no window of real
/// time sees more.
#[test]
fn a_ceiling_holds_across_a_restart() {
    for seed in 0..4_000 {
        let mut random = Rng::with_seed(seed);
        let (policy, permits, window_ns) = {
            let (permits, period_ns) = (random.u64(1..=6), random.u64(2..=60));
            let resolution_ns = random.u64(1..=period_ns);
            let log = SlidingLog::new(permits, Duration::from_nanos(period_ns));
            let policy: AnyPolicy = match seed % 2 {
                0 => log.into(),
                _ => log.with_resolution(Duration::from_nanos(resolution_ns)).unwrap().into(),
            };
            (policy, permits, period_ns)
        };
        let (mut limit, mut real_ns, mut clock_ns) = (Ledger::new(policy, 0), 1_000, 0);
        let mut grants = Grants::default();
        for _ in 0..120 {
            let pass_ns = random.u64(0..=6);
            (real_ns, clock_ns) = (real_ns + pass_ns, clock_ns + pass_ns);
            if random.u64(..20) == 0 {
                let saved = limit.save(clock_ns);
                let passed_ns = random.u64(0..=20);
                real_ns += passed_ns;
                // A wall clock that was set back reports less.
                let elapsed_ns = random.u64(0..=passed_ns);
                clock_ns = random.choice([0, 3, clock_ns + elapsed_ns]).unwrap();
                let since = RestoreContext { now_ns: clock_ns, elapsed_ns };
                limit = restore(policy, &saved, since).unwrap();
            }
            let requested = random.u64(1..=permits);
            if let Verdict::Granted(_) = limit.try_acquire(clock_ns, requested).unwrap() {
                grants.add(real_ns, requested);
            }
        }
        assert!(grants.fullest_window(window_ns).0 <= permits, "seed {seed}: {policy:?}");
    }
}

/// Other numbers take effect as by a change of a live limit; another policy does not.
#[test]
fn other_numbers_come_as_by_a_change() {
    for seed in 0..12_000 {
        let mut random = Rng::with_seed(seed);
        let (kinds, mut now_ns) = (kinds_of(seed, &KINDS), 5 * S);
        let (mut limit, _) = used(kinds, &mut random, &mut now_ns);
        let elapsed_ns = random.u64(0..=40);
        if limit.promised() > 0 {
            now_ns += 10_000;
            limit.pass_to(now_ns);
        }
        let saved = limit.save(now_ns);
        now_ns += elapsed_ns;
        let (next, _) = policy(kinds, &mut random);
        let mut restored = restore(next, &saved, RestoreContext { now_ns, elapsed_ns }).unwrap();
        limit.release(now_ns, u64::MAX);
        if in_force(&limit) != next {
            limit.reconfigure(now_ns, next).unwrap();
        }
        for call in 0..30 {
            now_ns += random.u64(0..=9);
            let (what, permits) = (random.u64(0..=21), random.u64(1..=3));
            let ideal = one_call(&mut limit, now_ns, 0, what, permits);
            let seen = one_call(&mut restored, now_ns, 0, what, permits);
            assert_eq!(seen, ideal, "seed {seed}, call {call}: {next:?}");
        }
        let other = policy(kinds_of(seed + 5, &KINDS), &mut random).0;
        let refused = restore(other, &saved, RestoreContext { now_ns, elapsed_ns });
        if other.can_follow(&next).is_err() {
            let saved = saved[0].policy.name();
            assert_eq!(refused.unwrap_err(), SavedError::OtherPolicy { saved }, "seed {seed}");
        }
    }
}

/// A change while promises are pending starts when the last of them has started.
///
/// No window contains more than the old limit promised.
#[test]
fn a_change_comes_behind_all_promises() {
    let window = FixedWindow::new(2, Duration::from_nanos(100), Anchor::Epoch);
    let mut limit = Ledger::new(window, 0);
    for start_ns in [0, 100, 200] {
        let Verdict::Granted(grant) = limit.reserve(0, 2, None).unwrap() else { unreachable!() };
        assert_eq!(grant.start_ns, start_ns);
    }
    let next = FixedWindow::new(3, Duration::from_nanos(100), Anchor::Epoch);
    let restored =
        restore(next, &limit.save(0), RestoreContext { now_ns: 50, elapsed_ns: 50 }).unwrap();
    assert_eq!(restored.peek(50, 1), Ok(Some(150)), "one more in the last window of a promise");
    assert_eq!(restored.peek(50, 2), Ok(Some(250)));
}

/// On a young clock, expired permits are not retained, and the others are, to the nanosecond.
#[test]
fn what_is_over_is_over_on_a_young_clock() {
    let policies: [AnyPolicy; 3] = [
        SlidingLog::new(1, Duration::from_nanos(100)).into(),
        FixedWindow::new(1, Duration::from_nanos(100), Anchor::Epoch).into(),
        FixedWindow::new(1, Duration::from_nanos(100), Anchor::FirstCall).into(),
    ];
    for policy in policies {
        let mut limit = Ledger::new(policy, 500);
        let _ = limit.try_acquire(500, 1).unwrap();
        let saved = limit.save(510);
        for (elapsed_ns, left) in [(89, 0), (90, 1), (100_000, 1)] {
            let restored =
                restore(policy, &saved, RestoreContext { now_ns: 3, elapsed_ns }).unwrap();
            assert_eq!(restored.remaining(3), left, "{elapsed_ns} later: {policy:?}");
        }
    }
}

/// On a young clock, each border that lies before its zero has paid for a window of a carried debt,
/// and a debt that is forgotten has ended with the first.
#[test]
fn borders_before_the_clocks_zero_have_paid() {
    let window = FixedWindow::new(1, Duration::from_nanos(100), Anchor::FirstCall);
    for (debt, wait_ns) in [(Debt::CARRIED, 190), (Debt::FORGOTTEN, 0)] {
        let mut limit = Ledger::new(window, 500);
        limit.charge(500, 3, debt).unwrap();
        // The window ends at 600, which is 7 ns before the new clock's zero.
        let since = RestoreContext { now_ns: 3, elapsed_ns: 100 };
        let restored = restore(window, &limit.save(510), since).unwrap();
        assert_eq!(restored.peek(3, 1), Ok(Some(wait_ns)), "{debt:?}");
    }
}

/// Operations in flight end when the limit is restored, and promised ones when the last has
/// started: their effects come no later.
#[test]
fn operations_in_flight_have_ended_and_their_effects_count_from_then() {
    let mut slots = Ledger::new(CommitLog::new(2, Duration::from_micros(1)), 0);
    for now_ns in [0, 100] {
        let _ = slots.try_acquire(now_ns, 1).unwrap();
    }
    slots.release(200, 1);
    let since = RestoreContext { now_ns: 5_000, elapsed_ns: 300 };
    let restored = restore(in_force(&slots), &slots.save(600), since).unwrap();
    assert_eq!(restored.peek(5_000, 1), Ok(Some(300)), "committed 700 ago");
    assert_eq!(restored.peek(5_000, 2), Ok(Some(1_000)), "held, and committed now");
    let Verdict::Granted(grant) = slots.reserve(600, 1, None).unwrap() else { unreachable!() };
    assert_eq!(grant.start_ns, 1_200);
    let restored = restore(in_force(&slots), &slots.save(600), since).unwrap();
    assert_eq!(restored.peek(5_000, 1), Ok(Some(300 + 1_000)), "starts in 300, and commits then");

    let mut oven = Ledger::new(Concurrency::new(2), 0);
    let _ = oven.try_acquire(0, 2).unwrap();
    let restored = restore(in_force(&oven), &oven.save(0), since).unwrap();
    assert_eq!(restored.remaining(5_000), 2);
}

/// Several limits are saved and restored together, each on its own.
#[test]
fn several_limits_are_restored_together() {
    let policies: Vec<AnyPolicy> = vec![
        Gcra::new("1/10ns".parse().unwrap(), 3).unwrap().into(),
        SlidingLog::new(5, Duration::from_nanos(100)).into(),
    ];
    let mut limit = Ledger::new(policies.as_slice(), 0);
    for now_ns in [0, 15, 30] {
        assert!(matches!(limit.try_acquire(now_ns, 1), Ok(Verdict::Granted(_))));
    }
    let saved = limit.save(40);
    let since = RestoreContext { now_ns: 50, elapsed_ns: 10 };
    let mut restored = restore(policies.as_slice(), &saved, since).unwrap();
    for now_ns in (50..400).step_by(7) {
        assert_eq!(restored.peek(now_ns, 2), limit.peek(now_ns, 2));
        let answers = [&mut limit, &mut restored].map(|limit| one_call(limit, now_ns, 0, 0, 1));
        assert_eq!(answers[0], answers[1], "at {now_ns}");
    }
    let fewer = restore(&policies[..1], &saved, since);
    assert_eq!(fewer.unwrap_err(), SavedError::OtherCount { found: 2 });
    let reversed: Vec<AnyPolicy> = policies.iter().rev().copied().collect();
    let refused = restore(reversed, &saved, since);
    assert_eq!(refused.unwrap_err(), SavedError::OtherPolicy { saved: "gcra" });
}

/// A table's states are restored without a ledger, and are the same.
#[test]
fn a_bare_state_is_restored_without_a_ledger() {
    let log = SlidingLog::new(10, Duration::from_millis(1)).compact();
    let mut limit = Ledger::new(log, 0);
    for now_ns in [10, 5_000, 700_000] {
        let _ = limit.try_acquire(now_ns, 2).unwrap();
    }
    let mut bytes = vec![7];
    let member = limit.limits().only().unwrap().clone();
    save_state(&member, 800_000, &mut bytes);
    assert_eq!(bytes[0], 7, "they are added to those that are there");
    let target = RestoreTarget::new(member.policy(), member.policy()).unwrap();
    let since = RestoreContext { now_ns: 800_000, elapsed_ns: 0 };
    assert_eq!(target.state(&bytes[1..], since), Ok(member));
    // With a promise it takes a ledger.
    let _ = limit.reserve(800_000, 10, None).unwrap();
    let promised = target.state(&limit.save(800_000)[0].state, since);
    assert_eq!(promised.unwrap_err(), SavedError::Malformed);
    assert!(target.limit(&limit.save(800_000)[0].state, since).is_ok());
}

/// A part of the data is no limit, and neither is data with an excess.
#[test]
fn data_is_whole_or_refused() {
    for seed in 0..1_600 {
        let mut random = Rng::with_seed(seed);
        let mut now_ns = 5 * S;
        let (limit, _) = used(kinds_of(seed, &KINDS), &mut random, &mut now_ns);
        let [saved] = &limit.save(now_ns)[..] else { unreachable!("one limit") };
        let since = RestoreContext { now_ns, elapsed_ns: 0 };
        let of = |state: &[u8]| {
            let saved = Saved { state: state.to_vec(), ..saved.clone() };
            restore(in_force(&limit), &[saved], since).map(|_| ())
        };
        assert_eq!(of(&saved.state), Ok(()));
        for bytes in 0..saved.state.len() {
            assert_eq!(of(&saved.state[..bytes]), Err(SavedError::Malformed), "seed {seed}");
        }
        assert_eq!(of(&[&saved.state, &[1][..]].concat()), Err(SavedError::Malformed));
        let whole = postcard::to_allocvec(saved).unwrap();
        assert_eq!(postcard::from_bytes::<Saved>(&whole).as_ref(), Ok(saved), "seed {seed}");
        for bytes in 0..whole.len() {
            assert!(postcard::from_bytes::<Saved>(&whole[..bytes]).is_err(), "seed {seed}");
        }
    }
}

/// A number that no state of the policy could have is refused.
#[test]
fn a_number_out_of_its_range_is_refused() {
    fn bytes(state: &impl serde::Serialize) -> Vec<u8> {
        postcard::to_allocvec(&(5_u64, 0_u64, state)).unwrap()
    }
    let rate: Rate = "3/10ns".parse().unwrap();
    let bucket = |part: u64| bytes(&((5_u128, part), None::<(u64, u64)>));
    let frozen = |part: u64| bytes(&((5_u128, part), Some((3_u64, 10_u64))));
    let log = |entries: &[(u64, u64)]| bytes(&entries);
    let window = |used: u64| bytes(&(0_u64, 100_u64, used, false));
    let pool = |per_permit: u64, carry: u128| bytes(&(per_permit, 0_u128, 0_u128, carry, 0_u64));
    let cold = |began: u128, coldness: u128, rests: u8| {
        bytes(&((0_u128, 0_u64), began, coldness, rests, 0_u64))
    };
    let of = |policy| -> AnyPolicy {
        let period = Duration::from_nanos(100);
        match policy {
            "bucket" => Gcra::new(rate, 2).unwrap().into(),
            "frozen" => Gcra::new(Rate::NEVER, 2).unwrap().into(),
            "log" => SlidingLog::new(2, period).into(),
            "window" => FixedWindow::new(2, period, Anchor::Epoch).into(),
            "pool" => BackfillPool::new(2, Ratio::new(5, 4).unwrap(), Some(rate)).unwrap().into(),
            "warm-up" => WarmUp::new("1/s".parse().unwrap(), period).unwrap().into(),
            "never" => WarmUp::new(Rate::NEVER, period).unwrap().into(),
            _ => TwoTimeline::new(rate, Mode::Average, None).into(),
        }
    };
    // A state of the policy, and one that is none.
    let cases = [
        ("bucket", bucket(2), bucket(3)),
        ("log", log(&[]), log(&[(3, u64::MAX)])),
        ("log", log(&[(3, 1), (4, 1)]), log(&[(3, 1), (u64::MAX, 1)])),
        ("frozen", frozen(2), frozen(3)),
        ("window", window(u64::MAX >> 1), window(1 << 63)),
        ("pool", pool(10, 3), pool(10, 4)),
        ("pool", pool(10, 0), pool(11, 0)),
        ("warm-up", cold(8, 8, 0), cold(8, 9, 0)),
        ("warm-up", cold(8, 8, 0), cold(1 << 100, 8, 0)),
        ("warm-up", cold(8, 8, 0), cold(8, 8, 1)),
        ("never", cold(8, 8, 1), cold(8, 101, 1)),
        ("never", cold(8, 8, 1), cold(8, 8, 0)),
    ];
    let since = RestoreContext { now_ns: 5, elapsed_ns: 0 };
    let read = |policy, state| restore(policy, &[Saved { policy, state }], since).map(|_| ());
    for (policy, own, other) in cases {
        assert_eq!(read(of(policy), own), Ok(()), "{policy}");
        assert_eq!(read(of(policy), other), Err(SavedError::Malformed), "{policy}");
    }
    // Both timelines of an average rate are one piece, which never ends, at 3 permits in 10 ns.
    let constant = |permits: u64| (0_u8, 1_u8, permits, 10_u64);
    let paced = |part: u64| (0_u8, (7_u128, part), (3_u64, 10_u64));
    let both = |track: Vec<u8>| {
        let gate = postcard::to_allocvec(&(0_u128, 0_u128)).unwrap();
        [vec![5, 0, 1], track.clone(), track, gate].concat()
    };
    let track =
        |pieces: &[Vec<u8>]| [vec![u8::try_from(pieces.len()).unwrap()], pieces.concat()].concat();
    let piece = |schedule, since_ns: u128, course: &[u8], left: Option<u64>| {
        let head = postcard::to_allocvec(&(schedule, since_ns)).unwrap();
        [head, course.to_vec(), postcard::to_allocvec(&left).unwrap()].concat()
    };
    let course = |part| postcard::to_allocvec(&paced(part)).unwrap();
    let stopped =
        |numerator: u64| postcard::to_allocvec(&(3_u8, 0_u128, numerator, 3_u64)).unwrap();
    let ramp = postcard::to_allocvec(&(1_u8, (0_u8, 0_u8, 9_u64), 0_u128, 0_u128)).unwrap();
    let open = piece(constant(3), 0, &course(2), None);
    let before = |since_ns, left| piece(constant(3), since_ns, &course(2), left);
    let own = [
        vec![open.clone()],
        vec![before(0, Some(4)), open.clone()],
        vec![piece(constant(1), 0, &stopped(2), Some(0)), open.clone()],
    ];
    for pieces in own {
        assert_eq!(read(of("average"), both(track(&pieces))), Ok(()), "{pieces:?}");
    }
    let others = [
        vec![],
        vec![open.clone(), open.clone()],
        vec![before(0, Some(4))],
        vec![before(1, Some(4)), open.clone()],
        vec![piece(constant(1), 0, &course(2), None)],
        vec![piece(constant(3), 0, &course(3), None)],
        vec![piece(constant(1), 0, &stopped(3), Some(0)), open.clone()],
        vec![piece(constant(3), 0, &ramp, Some(0)), open.clone()],
        [vec![before(0, Some(1)); 64], vec![open.clone()]].concat(),
    ];
    let alone = |track: Vec<u8>| [vec![5, 0, 0], track, vec![0, 0]].concat();
    let batched = pacer(rate, Duration::ZERO, None).into();
    assert_eq!(read(batched, alone(track(slice::from_ref(&open)))), Ok(()));
    assert_eq!(read(batched, both(track(slice::from_ref(&open)))), Err(SavedError::Malformed));
    assert_eq!(
        read(of("average"), alone(track(slice::from_ref(&open)))),
        Err(SavedError::Malformed)
    );
    for pieces in others {
        let refused = read(of("average"), both(track(&pieces)));
        assert_eq!(refused, Err(SavedError::Malformed), "{pieces:?}");
    }
}

/// Numbers that no constructor accepts are refused where they are read.
#[test]
fn numbers_of_no_limit_are_refused() {
    let texts = [
        r#"{"SlidingLog":{"permits":1,"period_ns":9,"guard_ns":0,"resolution_ns":9}}"#,
        r#"{"SlidingLog":{"permits":1,"period_ns":9,"guard_ns":0,"resolution_ns":10}}"#,
        r#"{"SlidingLog":{"permits":1,"period_ns":9,"guard_ns":18446744073709551615,"resolution_ns":1}}"#,
        r#"{"CommitLog":{"log":{"permits":4294967296,"period_ns":9,"guard_ns":0,"resolution_ns":1}}}"#,
        r#"{"Gcra":{"rate":"Never","burst":0}}"#,
        r#"{"WarmUp":{"rate":"Never","period_ns":9,"cold_factor":{"numerator":1,"denominator":2},"max_request":1}}"#,
        r#"{"AdaptiveConcurrency":{"adaptation":{"bounds":{"floor":3,"first":2,"ceiling":4},"method":"Knee","seed":0}}}"#,
        r#"{"AdaptiveRate":{"bounds":{"floor":3,"ceiling":2},"burst":1}}"#,
        r#"{"SlowStart":{"policy":{"FixedWindow":{"permits":1,"windows":{"Even":{"period_ns":9,"anchor":"Epoch"}}}},"period_ns":9,"first":10}}"#,
        r#"{"SlowStart":{"policy":{"Gcra":{"rate":"Never","burst":1}},"period_ns":9,"first":101}}"#,
        r#"{"TwoTimeline":{"schedule":{"Ramp":["Never","Never",5]},"mode":"Strict","catch_up_ns":null}}"#,
        r#"{"TwoTimeline":{"schedule":{"Constant":"Never"},"mode":{"Damped":{"shift":64}},"catch_up_ns":null}}"#,
    ];
    let read = |text: &str| serde_json::from_str::<AnyPolicy>(text);
    assert!(read(texts[0]).is_ok());
    for text in &texts[1..] {
        let refused = read(text).expect_err(text).to_string();
        assert!(!refused.contains("missing field") && !refused.contains("unknown"), "{refused}");
    }
    // A fraction is reduced, as by its constructor.
    let text = r#"{"Gcra":{"rate":{"Paced":{"permits":4,"period_ns":8}},"burst":1}}"#;
    assert_eq!(read(text).unwrap(), Gcra::spaced("1/2ns".parse().unwrap()).into());
}

/// Returns the numbers that bytes consist of, as postcard writes them: seven bits in each byte.
fn numbers_in(bytes: &[u8]) -> Vec<u128> {
    let parts = bytes.split_inclusive(|byte| byte & 0x80 == 0);
    let number = |part: &[u8]| {
        part.iter().rev().fold(0_u128, |number, byte| number << 7 | u128::from(byte & 0x7f))
    };
    parts.map(number).collect()
}

fn bytes_of_number(number: u128) -> Vec<u8> {
    postcard::to_allocvec(&number).unwrap()
}

/// Arbitrary data is a limit or refused, and a limit that it is makes decisions.
#[test]
fn any_data_is_a_limit_or_refused() {
    let (mut limits, mut refused) = (0, 0);
    for seed in 0..24_000 {
        let mut random = Rng::with_seed(seed);
        let mut now_ns = random.choice([0, 5 * S, u64::MAX - 10_000]).unwrap();
        let (limit, _) = used(kinds_of(seed, &KINDS), &mut random, &mut now_ns);
        let mut numbers = numbers_in(&postcard::to_allocvec(&limit.save(now_ns)[0]).unwrap());
        for _ in 0..random.u64(1..=3) {
            let at = random.usize(..numbers.len());
            let strange =
                [0, 1, 2, 3, 127, 255, 1 << 32, 1 << 63, u64::MAX.into(), 1 << 64, u128::MAX];
            numbers[at] = match random.u64(0..=2) {
                0 => random.choice(strange).unwrap(),
                1 => numbers[at] ^ (1 << random.u8(0..=63)),
                _ => numbers[at].saturating_add(random.u128(0..=4)).saturating_sub(2),
            };
        }
        let bytes: Vec<u8> = numbers.into_iter().flat_map(bytes_of_number).collect();
        let elapsed_ns = random.choice([0, 50, u64::MAX]).unwrap();
        let since =
            RestoreContext { now_ns: random.choice([0, now_ns, u64::MAX]).unwrap(), elapsed_ns };
        let next = policy(kinds_of(seed, &KINDS), &mut random).0;
        let Ok(saved) = postcard::from_bytes::<Saved>(&bytes) else {
            refused += 1;
            continue;
        };
        let policy = random.choice([next, saved.policy]).unwrap();
        match restore(policy, &[saved], since) {
            Ok(mut limit) => {
                limits += 1;
                for call in 0..20 {
                    let at_ns = since.now_ns.saturating_add(call * random.u64(0..=40));
                    let _ = one_call(&mut limit, at_ns, 0, call, random.u64(1..=3));
                }
                let _ = limit.limits().heap_bytes();
                let _ = limit.reconfigure(since.now_ns, next);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(limits > 5_000 && refused > 5_000, "{limits} {refused}");
}
