//! Oracles for the results: a policy alone, called by one thread after the other.

use std::num::NonZeroU64;

use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::ledger::Ledger;
use rategate_core::policy::{Correction, Policy, Taken};
use rategate_core::refund::Refund;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::two_timeline::{Mode, TwoTimeline};

use crate::model::{Event, History, Observed};

/// A limit that is too simple to be wrong.
pub(crate) trait Oracle: Clone {
    fn new(policies: &[AnyPolicy], story: &History) -> Self;

    /// Applies the event now. Returns `true` if its result is right.
    fn explains(&mut self, event: &Event) -> bool;

    /// Returns `true` if the ledger is in the same state, as far as decisions can show.
    fn ends_as(&self, ledger: &Ledger) -> bool;
}

/// Returns when each number of permits could start from `from_ns` on.
fn openings(limit: &Member, from_ns: u64) -> Vec<Option<u64>> {
    let opening = |permits| limit.opening(from_ns, NonZeroU64::new(permits).unwrap()).ok();
    (1..=4).map(|permits| opening(permits).map(|opening| opening.start_ns)).collect()
}

/// Returns the only limit of a ledger.
fn limit_of(ledger: &Ledger) -> &Member {
    ledger.limits().only().unwrap()
}

fn latest_ns(story: &History) -> u64 {
    story.events().map(|event| event.at_ns).max().unwrap_or(0)
}

/// A policy and its state.
///
/// The lock keeps its clock from going back; a lock-free form takes readings as they come.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    policies: Vec<AnyPolicy>,
    limit: Member,
    locked_ns: u64,
    end_ns: u64,
    may_lose: bool,
    /// All readings of any thread: a cached clock may show each of them.
    readings_ns: Vec<u64>,
}

/// Returns `true` if a start may be reported by another thread's reading.
fn is_cached(limit: &Member) -> bool {
    matches!(limit, Member::TwoTimeline(policy, _)
        if **policy == TwoTimeline::new(policy.rate(), Mode::Average, None))
}

impl Plain {
    fn grants(&mut self, event: &Event, observed: (u64, u64), now_ns: u64) -> bool {
        let (start_ns, scheduled_ns) = observed;
        let permits = NonZeroU64::new(event.permits).unwrap();
        let is_cached = is_cached(&self.limit) && !event.locked;
        let is_read = start_ns == now_ns || (is_cached && self.readings_ns.contains(&start_ns));
        let Ok(opening) = self.limit.opening(start_ns, permits) else {
            return false;
        };
        let scheduled = opening.scheduled_ns.unwrap_or(start_ns);
        if !is_read || opening.opens_ns > start_ns || scheduled != scheduled_ns {
            return false;
        }
        self.limit.take(Taken { from_ns: start_ns, start_ns, permits });
        true
    }

    /// Takes permits at `start_ns`, if they may start then.
    fn take(&mut self, start_ns: u64, permits: u64) -> bool {
        let Some(permits) = NonZeroU64::new(permits) else { return true };
        let opening = self.limit.opening(start_ns, permits);
        let passes = opening.is_ok_and(|opening| opening.opens_ns <= start_ns);
        self.limit.take(Taken { from_ns: start_ns, start_ns, permits });
        passes
    }

    fn wait_ns(&self, now_ns: u64, permits: u64) -> Option<u64> {
        let permits = NonZeroU64::new(permits)?;
        let opening = self.limit.opening(now_ns, permits).ok()?;
        Some(opening.opens_ns.max(now_ns) - now_ns)
    }
}

impl Oracle for Plain {
    fn new(policies: &[AnyPolicy], story: &History) -> Self {
        Self {
            policies: policies.to_vec(),
            limit: Member::fresh(policies[0], story.start_ns),
            locked_ns: story.start_ns,
            end_ns: latest_ns(story),
            may_lose: story.may_lose,
            readings_ns: story.events().map(|event| event.at_ns).collect(),
        }
    }

    fn explains(&mut self, event: &Event) -> bool {
        let mut now_ns = event.at_ns;
        if event.locked {
            now_ns = now_ns.max(self.locked_ns);
            self.locked_ns = now_ns;
        }
        match event.observed {
            Observed::Granted { start_ns, scheduled_ns } => {
                self.grants(event, (start_ns, scheduled_ns), now_ns)
            }
            Observed::Denied { retry_ns } => {
                retry_ns > 0 && self.wait_ns(now_ns, event.permits) == Some(retry_ns)
            }
            Observed::Wait { wait_ns } => self.wait_ns(now_ns, event.permits) == Some(wait_ns),
            Observed::Left { permits } => self.limit.remaining(now_ns) == permits,
            Observed::SectionDone => true,
            Observed::Set { policy } => {
                self.limit.change(self.policies[policy], now_ns);
                true
            }
            // Of a bucket alone; see `Batches`.
            Observed::PermitBatch { .. } | Observed::Back { .. } => false,
        }
    }

    fn ends_as(&self, ledger: &Ledger) -> bool {
        let end_ns = ledger.clamp(self.end_ns);
        let ideal = openings(&self.limit, end_ns);
        let seen = openings(limit_of(ledger), end_ns);
        seen == ideal || (self.may_lose && seen > ideal)
    }
}

/// A bucket from which batches are taken, of which some permits are returned.
///
/// A second bucket has never seen the returns. A call that it would refuse must not pass, and in
/// the end both are the same.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    real: Plain,
    /// The bucket with all permits except those returned.
    used: Plain,
}

impl Oracle for Batches {
    fn new(policies: &[AnyPolicy], story: &History) -> Self {
        let real = Plain::new(policies, story);
        Self { used: real.clone(), real }
    }

    fn explains(&mut self, event: &Event) -> bool {
        match event.observed {
            Observed::PermitBatch { start_ns, back } => {
                let passes = self.real.take(start_ns, event.permits);
                passes && self.used.take(start_ns, event.permits - back)
            }
            Observed::Back { permits } => {
                self.real.locked_ns = self.real.locked_ns.max(event.at_ns);
                self.used.locked_ns = self.real.locked_ns;
                let back = Refund::proven(self.real.locked_ns, permits);
                self.real.limit.correct(Correction::Back(back)) == Some(permits)
            }
            // The real bucket has less left, so both grant. A denial is the real one's.
            Observed::Granted { start_ns, .. } => {
                self.real.explains(event) && self.used.take(start_ns, event.permits)
            }
            Observed::Set { .. } => self.real.explains(event) && self.used.explains(event),
            _ => self.real.explains(event),
        }
    }

    fn ends_as(&self, ledger: &Ledger) -> bool {
        self.real.ends_as(ledger) && self.used.ends_as(ledger)
    }
}

/// The log as N slots used in order, each free again when its permit has left.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    policies: Vec<SlidingLog>,
    policy: SlidingLog,
    /// The instants at which the slots are free, the one to use next first.
    releases_ns: Vec<u64>,
    locked_ns: u64,
    end_ns: u64,
}

fn log_of(policy: &AnyPolicy) -> SlidingLog {
    let AnyPolicy::SlidingLog(log) = *policy else { panic!("no log: {policy:?}") };
    log
}

impl Slots {
    /// Returns the permits held at `now_ns`, oldest first.
    fn held(&self, now_ns: u64) -> Vec<u64> {
        let mut held = self.releases_ns.clone();
        held.retain(|&release_ns| release_ns > now_ns);
        held.sort_unstable();
        held
    }

    /// Sorts the slots, as sealing and opening does.
    fn reorder(&mut self, now_ns: u64) {
        let held = self.held(now_ns);
        let slots = usize::try_from(self.policy.permits()).unwrap();
        self.releases_ns = vec![0; slots.saturating_sub(held.len())];
        self.releases_ns.extend(held);
    }

    /// Returns when the next one may start: while more are held than there are slots, more must
    /// leave.
    fn next_ns(&self) -> u64 {
        let slots = usize::try_from(self.policy.permits()).unwrap();
        self.releases_ns[self.releases_ns.len() - slots]
    }

    fn take(&mut self, start_ns: u64) {
        self.releases_ns.remove(0);
        self.releases_ns.push(start_ns + self.policy.held_for_ns());
    }
}

impl Oracle for Slots {
    fn new(policies: &[AnyPolicy], story: &History) -> Self {
        let policies: Vec<SlidingLog> = policies.iter().map(log_of).collect();
        let slots = usize::try_from(policies[0].permits()).unwrap();
        Self {
            policy: policies[0],
            policies,
            releases_ns: vec![0; slots],
            locked_ns: story.start_ns,
            end_ns: latest_ns(story),
        }
    }

    fn explains(&mut self, event: &Event) -> bool {
        let mut now_ns = event.at_ns;
        if event.locked {
            now_ns = now_ns.max(self.locked_ns);
            self.locked_ns = now_ns;
            self.reorder(now_ns);
        }
        let wait_ns = self.next_ns().saturating_sub(now_ns);
        let fits = match event.observed {
            Observed::Granted { start_ns, .. } => {
                self.take(now_ns);
                start_ns == now_ns && wait_ns == 0
            }
            Observed::Denied { retry_ns } => retry_ns > 0 && retry_ns == wait_ns,
            Observed::Wait { wait_ns: reported_ns } => reported_ns == wait_ns,
            // Counted slot by slot, so at no one instant.
            Observed::Left { permits } => permits <= self.policy.permits(),
            Observed::SectionDone => true,
            Observed::Set { policy } => {
                let was_ns = self.policy.held_for_ns();
                self.releases_ns = self.held(now_ns);
                self.policy = self.policies[policy];
                for release_ns in &mut self.releases_ns {
                    *release_ns = *release_ns - was_ns + self.policy.held_for_ns();
                }
                true
            }
            Observed::PermitBatch { .. } | Observed::Back { .. } => false,
        };
        if event.locked {
            self.reorder(now_ns);
        }
        fits
    }

    fn ends_as(&self, ledger: &Ledger) -> bool {
        let end_ns = ledger.clamp(self.end_ns);
        let mut plain = Ledger::new(self.policy, 0);
        let held_ns = self.policy.held_for_ns();
        for release_ns in self.held(end_ns) {
            let start_ns = release_ns.saturating_sub(held_ns);
            let one = NonZeroU64::MIN;
            plain.book(start_ns, start_ns, one);
        }
        openings(limit_of(&plain), end_ns) == openings(limit_of(ledger), end_ns)
    }
}
