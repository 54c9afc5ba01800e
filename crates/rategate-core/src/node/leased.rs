//! Permits borrowed from a store in batches and granted locally: one key on one node.
//!
//! A node *debits* units of a limit at the store, and uses them within the lease's length. Most
//! calls are then decided locally, and the store receives one request for a batch.
//!
//! ```text
//!   store          D  debited               D + L
//!   ---------------|--------------------------|-------> time
//!   node     S-----+--A==================U.........
//!         sent        reply      used    |
//!            |<------ L (1 - drift) ---->| no later than this: before D + L, on any clocks
//! ```
//!
//! # Contract
//!
//! * **Never late.** No unit is used once `usable_ns` have passed on the node's clock since the
//!   debit was *sent*. The store can have debited it no sooner, so every use is in `[D, D + L)`
//!   (docs/theory.md, section 5.1). Where a window of the store's grid ends, the lease ends with
//!   it.
//! * **Never twice.** A debit whose reply is lost is never used. A returned unit is removed
//!   before the return is sent. A reply that comes after its debit was abandoned is returned, not
//!   used.
//! * **Bound.** A node has at most `max_units` at a time, including those being requested. A
//!   call for more borrows what it needs, and then counts as that many. The store's limit that
//!   keeps the sum of all nodes' actions within the limit is in [`guard`](super::guard), as is
//!   the excess without it.
//! * **Ahead.** With steady demand the next debit is sent when half is left, so callers do not
//!   wait. A debit is for the units used in half a lease, or for those that calls wait for if
//!   that is more, and for no more than `max_units`. So the store receives one request for each
//!   half to whole of it. Rare calls debit what they need and no more.
//! * **Early return.** Units that will not be used are returned to the store: from a slot of a
//!   quarter of a lease on, those beyond the demand if a node has twice as many; all of them, three
//!   slots after the last use; and what is left when a lease ends.
//! * **Credit.** Permits that a caller was granted but did not use can be granted again until
//!   their lease ends. They are credited to a lease that ends no later than their own. Those that
//!   fit no such lease age out as if they had been used.
//! * **Holds.** Units that are [held](Leased::try_hold) count as used from then on. What turns out
//!   to be unused is credited as above, or returned to the store where its lease has ended.
//! * **Denials** of the store are remembered. Until the instant that the store named, counted
//!   from the *sending*, the node denies locally: no call is denied for longer than the store
//!   said. Callers receive the wait counted from the *reply*, so no caller retries too early.
//!   After a lease's length the node sends a request in any case, because other nodes return
//!   permits. With a [pause](LeaseConfig::with_pause_ns) both are at least that long, and a debit
//!   that brought less than requested counts as a denial too. Denials in a row
//!   [double](LeaseConfig::with_max_pause_ns) the pause.
//! * **Crash.** The units of a crashed node are lost until they age out of the store: at most its
//!   units (docs/theory.md, section 5.4).
//! * **Clock.** The node's own, monotonic; a reading older than the newest counts as that one.
//! * **Cost.** A decision is a few comparisons, without allocation. At most [`MAX_LEASES`] leases.
//!
//! # Example
//!
//! ```
//! use core::num::NonZeroU64;
//! use rategate_core::node::{LeaseAction, Leased, LocalDecision, LeaseConfig};
//!
//! let number = |number| NonZeroU64::new(number).unwrap();
//! let lease_config = LeaseConfig::new(number(1_000_000_000), number(100), 200)?;
//! let mut leased: Leased<&str> = Leased::new(lease_config);
//!
//! assert_eq!(leased.try_acquire(0, number(1)), LocalDecision::NeedsLease);
//! let Some(LeaseAction::Debit { id, units }) = leased.lease_action(0) else { unreachable!() };
//! assert_eq!(units.get(), 1);
//! // A millisecond later the store has replied.
//! leased.debited(id, 1_000_000, units, None, "receipt");
//! assert_eq!(leased.try_acquire(1_000_000, number(1)), LocalDecision::Granted);
//! # Ok::<(), rategate_core::node::NodeConfigError>(())
//! ```

use core::num::NonZeroU64;

use super::demand::Demand;
use super::lease_config::{LeaseConfig, at_least_ns, at_most_ns};
use super::lease_queue::{HeldUnits, Lease, LeaseQueue, LeaseReturn};

pub use super::lease_queue::MAX_LEASES;

/// The identifier of a debit, which its reply refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseActionId(u64);

/// A lease action that a node has to send to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the node counts it as sent"]
pub enum LeaseAction<R> {
    /// A debit of as many of these units as pass now.
    ///
    /// One of [`debited`](Leased::debited), [`denied`](Leased::denied) and [`lost`](Leased::lost)
    /// has to follow.
    Debit {
        /// The identifier with which its reply is reported.
        id: LeaseActionId,
        /// The maximum number of units.
        units: NonZeroU64,
    },
    /// A return of units that were not used and never will be. It needs no reply; if lost, they
    /// age out.
    Return {
        /// The receipt from the debit's reply.
        receipt: R,
        /// The number of units returned.
        units: NonZeroU64,
    },
}

impl<R> LeaseAction<R> {
    fn back((receipt, units): LeaseReturn<R>) -> Self {
        Self::Return { receipt, units }
    }
}

/// A local decision of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum LocalDecision {
    /// The permits were granted and start now.
    Granted,
    /// The store denied a moment ago, and no permits were taken.
    Denied {
        /// The time after which the store would grant a permit if no other caller comes first.
        ///
        /// `None` where time alone cannot help.
        retry_after_ns: Option<NonZeroU64>,
    },
    /// No decision was made and no permits were taken: the store is needed.
    ///
    /// The caller has to send the action that [`lease_action`](Leased::lease_action) returns, and
    /// wait for its reply or that of a debit already sent. Then it has to try again.
    NeedsLease,
}

/// Units that a node holds for work whose cost is known when it is done.
///
/// They are lost unless they are [ended](Leased::end_hold), as those of a crashed node are.
#[derive(Clone, Debug)]
#[must_use = "dropped, its units age out as if they had been used"]
pub struct LeaseHold<R>(HeldUnits<R>);

/// The units that one node has borrowed of one key.
///
/// `R` is the receipt that the store requires when units are returned.
#[derive(Clone, Debug)]
pub struct Leased<R> {
    lease_config: LeaseConfig,
    lease_queue: LeaseQueue<R>,
    under_way: Option<PendingDebit>,
    denial: Option<CachedDenial>,
    /// The number of replies in a row that brought less than requested.
    short_replies: u32,
    demand: Demand,
    /// The permits that calls lacked since the last debit.
    missed: Missed,
    /// The instant before which units are debited only for calls that wait for them.
    calm_until_ns: u64,
    rest: CachedIdle,
    latest_ns: u64,
    last_id: u64,
}

/// A cached result that there is nothing to send, and how long it stays valid.
#[derive(Clone, Copy, Debug, Default)]
struct CachedIdle {
    until_ns: u64,
    /// The units available, and the number down to which the result is valid.
    units: u64,
    low: u64,
}

#[derive(Clone, Copy, Debug)]
struct PendingDebit {
    id: LeaseActionId,
    sent_ns: u64,
    units: u64,
}

/// A denial of the store.
#[derive(Clone, Copy, Debug)]
struct CachedDenial {
    /// The instant until which the node denies locally.
    until_ns: u64,
    /// The instant at which callers may retry.
    retry_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Missed {
    all: u64,
    /// The permits of the largest of these calls.
    largest: u64,
}

impl<R: Clone> Leased<R> {
    /// Returns a node without leases.
    #[must_use]
    pub fn new(lease_config: LeaseConfig) -> Self {
        Self {
            lease_config,
            lease_queue: LeaseQueue::new(),
            under_way: None,
            denial: None,
            short_replies: 0,
            demand: Demand::new(lease_config.usable_ns().get()),
            missed: Missed::default(),
            calm_until_ns: 0,
            rest: CachedIdle::default(),
            latest_ns: 0,
            last_id: 0,
        }
    }

    /// Decides about a call at `now_ns` locally, without a request to the store.
    #[inline]
    pub fn try_acquire(&mut self, now_ns: u64, permits: NonZeroU64) -> LocalDecision {
        let now_ns = self.pass_to(now_ns);
        let wanted = permits.get();
        if self.lease_queue.take(now_ns, wanted) {
            self.rest.units = self.rest.units.saturating_sub(wanted);
            self.demand.count(wanted);
            return LocalDecision::Granted;
        }
        self.without(now_ns, wanted)
    }

    /// Returns the instant until which a [grant](LocalDecision::Granted) made just now can be
    /// [credited](Self::credit).
    #[inline]
    #[must_use]
    pub fn granted_until_ns(&self) -> Option<u64> {
        self.lease_queue.ends_ns(self.latest_ns)
    }

    /// Credits a grant that had no effect, so that its permits can be granted again.
    ///
    /// `until_ns` is the instant that [`granted_until_ns`](Self::granted_until_ns) returned with
    /// the grant.
    pub fn credit(&mut self, now_ns: u64, permits: NonZeroU64, until_ns: u64) {
        let now_ns = self.pass_to(now_ns);
        self.rest = CachedIdle::default();
        let _aged_out = self.lease_queue.credit(now_ns, permits.get(), until_ns);
    }

    /// Holds permits locally, if the node has as many units.
    ///
    /// Otherwise they are counted as demand, so that the next debit brings units for such calls.
    pub fn try_hold(&mut self, now_ns: u64, permits: NonZeroU64) -> Option<LeaseHold<R>> {
        let now_ns = self.pass_to(now_ns);
        self.demand.count(permits.get());
        self.rest = CachedIdle::default();
        self.lease_queue.hold(now_ns, permits.get()).map(LeaseHold)
    }

    /// Ends a hold of which `used` units were used, at most all of them. Returns how many of the
    /// others are not lost.
    pub fn end_hold(&mut self, now_ns: u64, hold: LeaseHold<R>, used: u64) -> u64 {
        let now_ns = self.pass_to(now_ns);
        self.rest = CachedIdle::default();
        let (mut used, mut back) = (used, 0_u64);
        for mut held in hold.0 {
            // Those of leases that end first count as used: the others are of use for longer.
            let kept = held.units.min(used);
            used = used.saturating_sub(kept);
            held.units = held.units.saturating_sub(kept);
            if held.units > 0 {
                back = back.saturating_add(self.lease_queue.end_hold(now_ns, held));
            }
        }
        back
    }

    /// Uses as many units as there are for permits that were used already. Returns their number.
    pub fn charge(&mut self, now_ns: u64, permits: u64) -> u64 {
        let now_ns = self.pass_to(now_ns);
        let units = permits.min(self.lease_queue.units(now_ns));
        if units > 0 && self.lease_queue.take(now_ns, units) {
            self.rest.units = self.rest.units.saturating_sub(units);
            self.demand.count(units);
        }
        units
    }

    /// Adds permits to the next debit for a caller that waits behind one that needs the
    /// [store](LocalDecision::NeedsLease).
    ///
    /// Call this again after each reply, for the callers that still wait.
    pub fn note_waiting(&mut self, permits: u64) {
        self.missed.all = self.missed.all.saturating_add(permits);
        self.missed.largest = self.missed.largest.max(permits);
    }

    /// Returns the next action to send at `now_ns`, which counts as sent then.
    ///
    /// Call this until it returns `None`, after each of the other calls and at
    /// [`wakes_at_ns`](Self::wakes_at_ns). As a rule, three comparisons show that there is
    /// nothing to send.
    #[inline]
    pub fn lease_action(&mut self, now_ns: u64) -> Option<LeaseAction<R>> {
        let now_ns = self.pass_to(now_ns);
        let CachedIdle { until_ns, units, low } = self.rest;
        if now_ns < until_ns && units > low && self.missed.all == 0 {
            return None;
        }
        if self.lease_queue.is_empty() && (self.under_way.is_some() || self.denies(now_ns)) {
            return None;
        }
        self.rest = CachedIdle::default();
        let lease_action = self.next_lease_action(now_ns);
        if lease_action.is_none() {
            self.rest = self.cached_idle_from(now_ns);
        }
        lease_action
    }

    /// Records that the store has debited these units, at most those requested.
    ///
    /// Where a window of its grid ends, `window_ends_in_ns` is the time until then, from the
    /// store's decision. The units of an abandoned debit are returned by the next
    /// [`lease_action`](Self::lease_action).
    pub fn debited(
        &mut self,
        id: LeaseActionId,
        now_ns: u64,
        units: NonZeroU64,
        window_ends_in_ns: Option<u64>,
        receipt: R,
    ) {
        let now_ns = self.pass_to(now_ns);
        self.rest = CachedIdle::default();
        let Some(request) = self.answered(id) else {
            self.lease_queue.add(Lease::dead(units.get(), receipt));
            return;
        };
        self.denial = None;
        if units.get() < request.units {
            self.calm_until_ns = now_ns.saturating_add(self.demand.slot_ns());
            self.note_shortfall();
            self.pause(request.sent_ns, now_ns, 0);
        } else {
            // The store may soon have too few again, so pauses shorten as gradually as they grew.
            self.short_replies = self.short_replies.saturating_sub(1);
            if self.short_replies > 0 {
                self.pause(request.sent_ns, now_ns, 0);
            }
        }
        let usable_ns = self.lease_config.usable_ns().get();
        let window_ns = window_ends_in_ns.map(|ns| at_least_ns(ns, self.lease_config.drift_ppm()));
        let window_ns = window_ns.filter(|&ns| ns < usable_ns);
        let expires_soon_ns = window_ns.unwrap_or_else(|| usable_ns.saturating_sub(usable_ns >> 3));
        self.lease_queue.add(Lease {
            units: units.get().min(request.units),
            used: 0,
            ends_ns: request.sent_ns.saturating_add(window_ns.unwrap_or(usable_ns)),
            expires_soon_ns: request.sent_ns.saturating_add(expires_soon_ns),
            reserved_until_ns: now_ns.saturating_add(self.demand.slot_ns()),
            is_returned_at_end: window_ns.is_none(),
            receipt,
        });
    }

    /// Records that the store denied the debit, and has no unit for `retry_after_ns` from its
    /// decision on.
    ///
    /// `None` where time alone cannot help.
    pub fn denied(&mut self, id: LeaseActionId, now_ns: u64, retry_after_ns: Option<NonZeroU64>) {
        let now_ns = self.pass_to(now_ns);
        let Some(request) = self.answered(id) else { return };
        if let Some(ns) = retry_after_ns {
            self.note_shortfall();
            self.pause(request.sent_ns, now_ns, ns.get());
            return;
        }
        let max_ns =
            at_least_ns(self.lease_config.length_ns().get(), self.lease_config.drift_ppm());
        let until_ns = request.sent_ns.saturating_add(max_ns);
        self.denial = Some(CachedDenial { until_ns, retry_ns: None });
    }

    /// Records that no reply came. The store may have debited the units or not, so they are never
    /// used.
    pub fn lost(&mut self, id: LeaseActionId, now_ns: u64) {
        let now_ns = self.pass_to(now_ns);
        if self.answered(id).is_some() {
            self.calm_until_ns = now_ns.saturating_add(self.demand.slot_ns());
        }
    }

    /// Returns when to call [`lease_action`](Self::lease_action) again if no call comes first.
    ///
    /// By then a lease may have ended, or have to be returned or followed by another. `None`
    /// where there is no lease.
    #[must_use]
    pub fn wakes_at_ns(&self) -> Option<u64> {
        let mut demand = self.demand;
        demand.pass_to(self.latest_ns);
        let first = self.lease_queue.first()?;
        let is_fading = self.under_way.is_none() && demand.is_ongoing();
        let expires_soon_ns = first.expires_soon_ns;
        let expires_soon_ns = Some(expires_soon_ns).filter(|&ns| is_fading && ns > self.latest_ns);
        let wakes_ns = first.ends_ns.min(demand.slot_ends_ns());
        Some(wakes_ns.min(expires_soon_ns.unwrap_or(u64::MAX)))
    }

    /// Returns `true` if this node is equivalent to a new one and can be evicted.
    ///
    /// It then has no leases, no debit in flight, no remembered denial, and no demand.
    #[must_use]
    pub fn may_be_evicted(&self, now_ns: u64) -> bool {
        let now_ns = now_ns.max(self.latest_ns);
        let mut demand = self.demand;
        demand.pass_to(now_ns);
        self.lease_queue.are_used_up()
            && self.under_way.is_none()
            && self.denial.is_none_or(|denial| denial.until_ns <= now_ns)
            && demand.lately() == 0
    }

    /// Returns how many permits can be granted at `now_ns` without a request to the store.
    #[must_use]
    pub fn units(&self, now_ns: u64) -> u64 {
        self.lease_queue.units(now_ns.max(self.latest_ns))
    }

    /// Returns the lease config.
    #[must_use]
    pub const fn lease_config(&self) -> &LeaseConfig {
        &self.lease_config
    }

    fn next_lease_action(&mut self, now_ns: u64) -> Option<LeaseAction<R>> {
        let back = self.lease_queue.over(now_ns).or_else(|| self.surplus(now_ns));
        if back.is_some() {
            return back.map(LeaseAction::back);
        }
        let units = NonZeroU64::new(self.lacking(now_ns))?;
        if let Some(first) = self.lease_queue.take_surplus() {
            return Some(LeaseAction::back(first));
        }
        Some(self.debit(now_ns, units))
    }

    /// Returns how long there is nothing to do if no reply comes, no call misses permits, and
    /// half is left.
    fn cached_idle_from(&self, now_ns: u64) -> CachedIdle {
        let held_off = [Some(self.calm_until_ns), self.denial.map(|denial| denial.until_ns)];
        let held_off = held_off.into_iter().flatten().filter(|&at_ns| at_ns > now_ns);
        let until_ns = held_off.chain(self.lease_queue.settles_ns(now_ns)).min();
        let until_ns = until_ns.unwrap_or(u64::MAX).min(self.wakes_at_ns().unwrap_or(0));
        let units = self.lease_queue.units(now_ns);
        // Demand may grow meanwhile, so it is checked again whenever half has been used.
        let low =
            (self.demand.lately().min(self.lease_config.max_units().get()) >> 1).max(units >> 1);
        let low = if self.under_way.is_some() { 0 } else { low };
        CachedIdle { until_ns, units, low }
    }

    #[inline]
    fn pass_to(&mut self, now_ns: u64) -> u64 {
        self.latest_ns = self.latest_ns.max(now_ns);
        self.demand.pass_to(self.latest_ns);
        self.latest_ns
    }

    /// Decides about a call for which there are not enough units.
    fn without(&mut self, now_ns: u64, wanted: u64) -> LocalDecision {
        if let Some(denial) = self.denial.filter(|denial| now_ns < denial.until_ns) {
            let retry_after_ns = denial.retry_ns.map(|at_ns| at_ns.saturating_sub(now_ns));
            return LocalDecision::Denied {
                retry_after_ns: retry_after_ns.and_then(NonZeroU64::new),
            };
        }
        self.note_waiting(wanted);
        LocalDecision::NeedsLease
    }

    /// Returns the units beyond the expected use once they are at least half of all, from the
    /// lease that ends last.
    fn surplus(&mut self, now_ns: u64) -> Option<LeaseReturn<R>> {
        let held = self.lease_queue.units(now_ns);
        let surplus = held.saturating_sub(self.demand.lately());
        if surplus == 0 || surplus < held.div_ceil(2) || self.missed.all > 0 {
            return None;
        }
        self.lease_queue.cut(now_ns, surplus)
    }

    /// Returns how many units to debit now.
    fn lacking(&self, now_ns: u64) -> u64 {
        if self.under_way.is_some() || self.denies(now_ns) {
            return 0;
        }
        let max = self.lease_config.max_units().get().max(self.missed.largest);
        let Missed { all: missed, .. } = self.missed;
        let lasting = self.lease_queue.lasting(now_ns);
        let good = self.demand.lately().max(missed).min(max);
        let is_ahead =
            self.demand.is_ongoing() && now_ns >= self.calm_until_ns && lasting <= good >> 1;
        if missed == 0 && !is_ahead {
            return 0;
        }
        good.saturating_sub(lasting).min(max.saturating_sub(self.lease_queue.units(now_ns)))
    }

    /// Returns `true` if the store would deny, by its last reply.
    fn denies(&self, now_ns: u64) -> bool {
        self.denial.is_some_and(|denial| now_ns < denial.until_ns)
    }

    fn debit(&mut self, now_ns: u64, units: NonZeroU64) -> LeaseAction<R> {
        self.missed = Missed::default();
        self.last_id = self.last_id.wrapping_add(1);
        let id = LeaseActionId(self.last_id);
        self.under_way = Some(PendingDebit { id, sent_ns: now_ns, units: units.get() });
        LeaseAction::Debit { id, units }
    }

    /// Counts a reply that brought less than requested, up to the number at which pauses are
    /// longest.
    fn note_shortfall(&mut self) {
        let max_ns = self.lease_config.pause_after_ns(u32::MAX);
        if self.lease_config.pause_after_ns(self.short_replies) < max_ns || self.short_replies == 0
        {
            self.short_replies = self.short_replies.saturating_add(1);
        }
    }

    /// Denies for as long as the store has no units, for at least a pause and at most a lease.
    fn pause(&mut self, sent_ns: u64, now_ns: u64, retry_after_ns: u64) {
        let retry_after_ns =
            retry_after_ns.max(self.lease_config.pause_after_ns(self.short_replies));
        if retry_after_ns == 0 {
            return;
        }
        let drift_ppm = self.lease_config.drift_ppm();
        let denies_for_ns = retry_after_ns.min(self.lease_config.length_ns().get());
        self.denial = Some(CachedDenial {
            until_ns: sent_ns.saturating_add(at_least_ns(denies_for_ns, drift_ppm)),
            retry_ns: Some(now_ns.saturating_add(at_most_ns(retry_after_ns, drift_ppm))),
        });
    }

    /// Records that the debit in flight has ended, if it is this one.
    fn answered(&mut self, id: LeaseActionId) -> Option<PendingDebit> {
        let request = self.under_way.take_if(|request| request.id == id)?;
        self.rest = CachedIdle::default();
        // Callers that wait for the reply try again.
        self.missed = Missed::default();
        Some(request)
    }
}
