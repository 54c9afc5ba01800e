//! Reservations in a store: each decision, wait and outcome is that of the core's holds.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::store::{Store, denied, granted, key};
use fastrand::Rng;
use rategate::charge::Debt;
use rategate::store::{EndOutcome, ReservationEnd, ReserveVerdict, Verdict};
use rategate_core::any_policy::AnyPolicy;
use rategate_core::debt::Charged;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::holds::{Committed, Hold, HoldVerdict, Holding as _};
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit as _;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::verdict::Settled;
use rategate_redis::limit::Limit;
use rategate_redis::plan::Plan;

/// A recent instant.
const NOW_US: u64 = 1_790_000_000_123_457;

type Pair = (AnyPolicy, Limit);

fn gcra(rate: &str, burst: u64) -> Pair {
    let policy = Gcra::new(rate.parse().unwrap(), burst).unwrap();
    (policy.into(), Limit::gcra(&policy).unwrap())
}

fn window(permits: u64, period_us: u64) -> Pair {
    let policy = FixedWindow::new(permits, Duration::from_micros(period_us), Anchor::Epoch);
    (policy.into(), Limit::fixed_window(&policy).unwrap())
}

fn log(permits: u64, period_us: u64, grid_us: u64) -> Pair {
    let policy = SlidingLog::new(permits, Duration::from_micros(period_us))
        .with_resolution(Duration::from_micros(grid_us))
        .unwrap();
    (policy.into(), Limit::sliding_log(&policy).unwrap())
}

fn plan_of(limits: &[Pair]) -> Plan {
    let labels = ["a", "b", "c", "d"].into_iter();
    Plan::new(labels.zip(limits.iter().map(|(_, limit)| *limit))).unwrap()
}

/// The limits of one key in the core, and the reservations under their ids. It keeps all of them,
/// and takes each number from the ledgers.
#[derive(Clone)]
struct Core {
    limits: Vec<Ledger<AnyPolicy>>,
    known: BTreeMap<u64, Known>,
}

#[derive(Clone)]
struct Known {
    permits: u64,
    holds: Vec<Hold>,
    outcome: Option<EndOutcome>,
}

impl Core {
    fn new(limits: &[Pair]) -> Self {
        let limits = limits.iter().map(|(policy, _)| Ledger::new(*policy, NOW_US * 1_000));
        Self { limits: limits.collect(), known: BTreeMap::new() }
    }

    /// Returns the wait in microseconds, rounded up.
    fn wait_us(&self, permits: u64, now_ns: u64) -> u64 {
        let waits = self.limits.iter().map(|limit| limit.peek(now_ns, permits).unwrap().unwrap());
        waits.max().unwrap().div_ceil(1_000)
    }

    fn take(&mut self, permits: u64, now_ns: u64) {
        for limit in &mut self.limits {
            let taken = limit.try_acquire(now_ns, permits);
            assert!(matches!(taken, Ok(rategate_core::verdict::Verdict::Granted(_))));
        }
    }

    fn remaining(&self, now_ns: u64) -> u64 {
        self.limits.iter().map(|limit| limit.remaining(now_ns)).min().unwrap()
    }

    fn debt(&self, now_ns: u64) -> u64 {
        self.limits.iter().map(|limit| limit.debt(now_ns)).max().unwrap()
    }

    /// Returns the verdict, and whether the id was known.
    fn reserve(
        &mut self,
        permits: u64,
        (id, ttl_us): (u64, u64),
        now_ns: u64,
    ) -> (ReserveVerdict, bool) {
        if let Some(known) = self.known.get(&id) {
            let ends_in_ns = NonZeroU64::new(known.holds[0].end_ns.saturating_sub(now_ns));
            let verdict = match (ends_in_ns, known.outcome) {
                _ if known.permits != permits => {
                    ReserveVerdict::OtherPermits { permits: known.permits }
                }
                (Some(ends_in_ns), None) => ReserveVerdict::Held { ends_in_ns },
                _ => ReserveVerdict::Ended,
            };
            return (verdict, true);
        }
        let wait_us = self.wait_us(permits, now_ns);
        if let Some(retry_after_ns) = NonZeroU64::new(wait_us * 1_000) {
            return (ReserveVerdict::Denied { retry_after_ns: Some(retry_after_ns) }, false);
        }
        let held = self.limits.iter_mut().map(|limit| {
            let HoldVerdict::Held(hold) = limit.try_hold(now_ns, permits, ttl_us * 1_000).unwrap()
            else {
                panic!("a hold is denied")
            };
            hold
        });
        let holds = held.collect();
        self.known.insert(id, Known { permits, holds, outcome: None });
        (ReserveVerdict::Held { ends_in_ns: NonZeroU64::new(ttl_us * 1_000).unwrap() }, false)
    }

    fn end(&mut self, id: u64, end: ReservationEnd, debt: Debt, now_ns: u64) -> (EndOutcome, bool) {
        let Some(known) = self.known.get_mut(&id) else { return (EndOutcome::Unknown, false) };
        if let Some(outcome) = known.outcome {
            return (outcome, true);
        }
        let used = match end {
            ReservationEnd::Commit { used } => used.unwrap_or(known.permits),
            ReservationEnd::Cancel => 0,
        };
        let each = self.limits.iter_mut().zip(&known.holds);
        let each: Vec<_> =
            each.map(|(limit, hold)| limit.commit(now_ns, *hold, used, debt)).collect();
        let forgiven = each.iter().map(|committed| match committed {
            Committed::Late(charged) => charged.forgiven,
            Committed::InTime(Settled::Owed { forgiven, .. }) => *forgiven,
            Committed::InTime(_) => 0,
        });
        let forgiven = forgiven.max().unwrap();
        let back = each.iter().map(|committed| match committed {
            Committed::InTime(Settled::Back { permits }) => *permits,
            _ => u64::MAX,
        });
        let (back, permits) = (back.min().unwrap(), known.permits);
        let outcome = if matches!(each[0], Committed::Late(_)) {
            let debt = self.limits.iter().map(|limit| limit.debt(now_ns)).max().unwrap();
            EndOutcome::Late(Charged { booked: used - forgiven, forgiven, debt })
        } else {
            match end {
                ReservationEnd::Cancel => EndOutcome::Cancelled(back),
                _ if used < permits => EndOutcome::Committed(Settled::Back { permits: back }),
                _ if used == permits => EndOutcome::Committed(Settled::Even),
                _ => EndOutcome::Committed(Settled::Owed {
                    permits: used - permits - forgiven,
                    forgiven,
                }),
            }
        };
        self.known.get_mut(&id).unwrap().outcome = Some(outcome);
        (outcome, false)
    }
}

/// The shape of a random story.
#[derive(Clone, Copy)]
struct Story {
    steps: u64,
    /// The mean time between calls, in microseconds.
    typical_us: u64,
    /// The maximum number of permits of most calls.
    permits: u64,
    debt: Debt,
}

/// Counts what a story has met, so that none of it is missing.
#[derive(Debug, Default)]
struct Met {
    held: u64,
    denied: u64,
    shortened: u64,
    back: u64,
    owed: u64,
    late: u64,
    repeated: u64,
    expired: u64,
}

/// Compares the store with the core in a random story, call by call.
fn agrees(
    store: &mut Store,
    name: &str,
    limits: &[Pair],
    story: Story,
    (seed, met): (u64, &mut Met),
) {
    let (plan, key, mut core) =
        (plan_of(limits), key(&format!("{name} {seed}")), Core::new(limits));
    let maximum = limits.iter().map(|(_, limit)| limit.maximum()).min().unwrap();
    let (mut random, mut now_us) = (Rng::with_seed(seed), NOW_US);
    let mut next_id = 0_u64;
    for step in 0..story.steps {
        now_us += match random.u64(..8) {
            0..3 => 0,
            3 => 1,
            7 => random.u64(..=story.typical_us * 8),
            _ => random.u64(..=story.typical_us * 2),
        };
        let permits = match random.u64(..10) {
            0 => 1 + random.u64(..maximum),
            _ => 1 + random.u64(..maximum.min(story.permits)),
        };
        let now_ns = now_us * 1_000;
        let about = format!("{name} seed {seed}, step {step} at {now_us}");
        let mut waits_us = 0;
        match random.u64(..10) {
            0..3 => {
                let is_old = next_id > 0 && random.u64(..8) == 0;
                let id = if is_old { next_id - 1 - random.u64(..next_id.min(9)) } else { next_id };
                let permits = match core.known.get(&id) {
                    Some(known) if random.u64(..4) > 0 => known.permits,
                    _ => permits,
                };
                let ttl_us = 1 + random.u64(..story.typical_us * 30);
                let (verdict, is_repeated) = core.reserve(permits, (id, ttl_us), now_ns);
                let reply = store.reserve(&plan, &key, permits, (id, ttl_us), now_us);
                assert_eq!((reply.verdict, reply.is_repeated), (verdict, is_repeated), "{about}");
                assert_eq!(reply.remaining, core.remaining(now_ns), "{about}, {permits}");
                assert_eq!(reply.debt, core.debt(now_ns), "{about}");
                match verdict {
                    ReserveVerdict::Held { .. } if !is_repeated => {
                        next_id += 1;
                        met.held += 1;
                    }
                    ReserveVerdict::Denied { retry_after_ns } => {
                        waits_us = retry_after_ns.unwrap().get() / 1_000;
                    }
                    _ => met.repeated += 1,
                }
            }
            3..7 if next_id > 0 => {
                let open = core.known.iter().rev().take(20);
                let open: Vec<u64> =
                    open.filter(|(_, known)| known.outcome.is_none()).map(|(id, _)| *id).collect();
                let id = match random.u64(..12) {
                    0 => next_id,
                    1 => next_id - 1,
                    _ => random.choice(open).unwrap_or(next_id - 1),
                };
                let held = core.known.get(&id).map_or(1, |known| known.permits);
                let end = match random.u64(..6) {
                    0 => ReservationEnd::Cancel,
                    1 => ReservationEnd::Commit { used: None },
                    2 => ReservationEnd::Commit { used: Some(held + 1 + random.u64(..3)) },
                    _ => ReservationEnd::Commit { used: Some(random.u64(..=held)) },
                };
                let (outcome, is_repeated) = core.end(id, end, story.debt, now_ns);
                let reply = store.end(&plan, &key, (id, end), story.debt, now_us);
                assert_eq!(
                    (reply.outcome, reply.is_repeated),
                    (outcome, is_repeated),
                    "{about}: {end:?}"
                );
                assert_eq!(reply.remaining, core.remaining(now_ns), "{about}: {end:?} {outcome:?}");
                assert_eq!(reply.debt, core.debt(now_ns), "{about}");
                match outcome {
                    _ if is_repeated => met.repeated += 1,
                    EndOutcome::Committed(Settled::Back { permits })
                    | EndOutcome::Cancelled(permits) => met.back += permits.min(1),
                    EndOutcome::Committed(Settled::Owed { .. }) => met.owed += 1,
                    EndOutcome::Late(_) => met.late += 1,
                    _ => {}
                }
            }
            7 => {
                let permits = permits.min(story.permits);
                let charged: Vec<_> = core
                    .limits
                    .iter_mut()
                    .map(|limit| limit.charge(now_ns, permits, story.debt).unwrap())
                    .collect();
                let reply =
                    store.charge(&plan, &key, (permits, story.debt), now_us).content.unwrap();
                let booked = charged.iter().map(|charged| charged.booked).min().unwrap();
                assert_eq!(reply.charged.booked, booked, "{about}: charged");
                assert_eq!(reply.remaining, core.remaining(now_ns), "{about}: charged");
                let wait_ns = core.wait_us(permits, now_ns) * 1_000;
                assert_eq!(reply.retry_after_ns, Some(wait_ns), "{about}: charged {permits}");
            }
            _ => {
                let wait_us = core.wait_us(permits, now_ns);
                let peeked = store.peek(&plan, &key, permits, now_us);
                let verdict = store.try_acquire(&plan, &key, permits, now_us);
                match (verdict, wait_us) {
                    (Verdict::Granted(grant), 0) => {
                        core.take(permits, now_ns);
                        assert_eq!(grant.remaining, core.remaining(now_ns), "{about}");
                        granted(peeked);
                    }
                    (Verdict::Denied(denial), _) => {
                        assert_eq!(peeked, Verdict::Denied(denial), "{about}");
                        let got_us = denial.retry_after_ns.unwrap().get() / 1_000;
                        assert_eq!(got_us, wait_us, "{about}: {permits}");
                        assert_eq!(denial.remaining, core.remaining(now_ns), "{about}");
                        waits_us = wait_us;
                    }
                    (verdict, _) => panic!("{about}: {verdict:?} instead of a wait of {wait_us}"),
                }
            }
        }
        if waits_us > 0 {
            met.denied += 1;
            let mut without = core.clone();
            let ends =
                |core: &Core| core.limits.iter().filter_map(|limit| limit.next_end_ns()).min();
            if ends(&without).is_some_and(|end_ns| end_ns <= now_ns + waits_us * 1_000) {
                met.shortened += 1;
            }
            if random.u64(..3) == 0 && waits_us < story.typical_us * 20 {
                let sooner = store.peek(&plan, &key, permits, now_us + waits_us - 1);
                assert_eq!(denied(sooner).retry_after_ns.unwrap().get(), 1_000, "{about}");
                now_us += waits_us;
                granted(store.peek(&plan, &key, permits, now_us));
                without.take(permits, now_us * 1_000);
            }
        }
        met.expired += u64::from(
            core.known
                .values()
                .any(|known| known.outcome.is_none() && known.holds[0].end_ns <= now_us * 1_000),
        );
    }
}

/// Compares several stories, which together meet everything.
fn agree(store: &mut Store, name: &str, limits: &[Pair], story: Story) {
    let mut met = Met::default();
    for seed in 0..4 {
        agrees(store, name, limits, story, (seed, &mut met));
    }
    let Met { held, denied, shortened, back, owed, late, repeated, expired } = met;
    let counts = [held, denied, shortened, back, owed, late, repeated, expired];
    assert!(counts.iter().all(|&count| count > 8), "{name}: {met:?}");
}

const FORGOTTEN: Story =
    Story { steps: 600, typical_us: 400_000, permits: 4, debt: Debt::FORGOTTEN };

#[test]
fn buckets_hold_as_the_core_does() {
    for mut store in Store::each() {
        for (rate, burst, typical_us) in [
            ("10/s", 12, 150_000),
            ("3/s", 9, 500_000),
            ("7/11s", 20, 2_000_000),
            ("1000/s", 50, 2_500),
            ("1000000007/1000003s", 40, 2_000),
        ] {
            let story = Story { typical_us, ..FORGOTTEN };
            agree(&mut store, rate, &[gcra(rate, burst)], story);
        }
    }
}

#[test]
fn windows_hold_as_the_core_does() {
    for mut store in Store::each() {
        for (permits, period_us, typical_us) in
            [(9, 1_000_000, 120_000), (30, 7_919_000, 300_000), (5, 10_000, 4_000)]
        {
            for (name, debt) in [("window", Debt::FORGOTTEN), ("carried", Debt::CARRIED)] {
                let story = Story { typical_us, debt, ..FORGOTTEN };
                let name = format!("{name} {permits}");
                agree(&mut store, &name, &[window(permits, period_us)], story);
            }
        }
    }
}

#[test]
fn logs_hold_as_the_core_does() {
    for mut store in Store::each() {
        for (permits, period_us, grid_us, typical_us) in [
            (9, 1_000_000, 1, 120_000),
            (200, 1_000_000, 1, 20_000),
            (40, 1_000_000, 10_000, 30_000),
            (300, 2_000_000, 50_000, 40_000),
        ] {
            let story = Story { typical_us, permits: 1 + permits / 8, ..FORGOTTEN };
            let limits = [log(permits, period_us, grid_us)];
            agree(&mut store, &format!("log {permits}"), &limits, story);
        }
    }
}

#[test]
fn several_limits_hold_all_or_nothing() {
    for mut store in Store::each() {
        let three = [gcra("10/s", 10), log(12, 2_000_000, 1), window(40, 10_000_000)];
        let four = [
            gcra("3/s", 20),
            gcra("50/min", 20),
            log(25, 30_000_000, 1_000),
            window(29, 10_000_000),
        ];
        let story = Story { typical_us: 300_000, ..FORGOTTEN };
        agree(&mut store, "three", &three, story);
        agree(&mut store, "four", &four, Story { typical_us: 1_500_000, ..story });
    }
}
