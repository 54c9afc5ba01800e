//! Permits borrowed from a store and handed out without asking it: one key on one node.
//!
//! A node *debits* units of a limit at the store, and uses them within the lease's length. Most calls are then decided
//! where they come, and the store hears of a batch.
//!
//! ```text
//!   store          D  debited               D + L
//!   ---------------|--------------------------|-------> time
//!   node     S-----+--A==================U.........
//!         sent        answered   used    |
//!            |<------ L (1 - drift) ---->| no later than this: before D + L, whatever the clocks say
//! ```
//!
//! # Contract
//!
//! * **Never late.** No unit is used once `usable_ns` have passed on the node's clock since the debit was *sent*;
//!   the store can have debited it no sooner, so every use is in `[D, D + L)` (theory 5.1). Where a window of the
//!   store's grid ends, the lease ends with it.
//! * **Never twice.** A debit whose answer is lost is never used, a returned unit is forgotten before the return is
//!   handed out to be sent, and an answer that comes after it was given up is returned, not used.
//! * **Bound.** A node has at most `most_units` at a time, under way included; a call for more borrows what it needs,
//!   and then counts as that many. What the store's limit has to be like for the sum of all nodes' actions to keep
//!   the limit, or by how much they can be over it, says [`guard`](super::guard).
//! * **Ahead.** With steady demand the next debit is sent when half is left, so callers do not wait. A debit is for
//!   what was used in half a lease, or for what calls wait for if that is more, and no more than `most_units`; so the
//!   store is asked once for each half to whole of it. Rare calls debit what they need and nothing ahead.
//! * **Early return.** What is not going to be used goes back: more than twice the demand, from a slot of a quarter of a
//!   lease on; all of it, three slots after the last use; and what is left when a lease ends.
//! * **Given back.** What a caller was granted and had no use for can be granted again, until its lease ends: it goes back to a
//!   lease that ends no later than its own. What no such lease has room for ages out as if it had been used.
//! * **Denials** of the store are remembered. Until the instant the store named, counted from the *sending*, the node
//!   denies by itself: no call is denied for longer than the store said. Callers are told the wait counted
//!   from the *hearing*: nobody comes back too early. After a lease's length it asks again in any case,
//!   because other nodes return permits. With a [pause](Terms::with_pause_ns) both are at least that long, and a debit
//!   that brought less than it asked for counts as a denial too. In a row they [double](Terms::with_longest_pause_ns) it.
//! * **Crash.** What a node had is lost until it ages out of the store: at most its units (theory 5.4).
//! * **Clock.** The node's own, monotonic; a reading older than the newest counts as that one.
//! * **Cost.** A decision is a few comparisons, without allocation. At most [`MAX_LOTS`] leases.
//!
//! # Example
//!
//! ```
//! use core::num::NonZeroU64;
//! use rategate_core::node::{Errand, Leased, Local, Terms};
//!
//! let number = |number| NonZeroU64::new(number).unwrap();
//! let terms = Terms::new(number(1_000_000_000), number(100), 200)?;
//! let mut leased: Leased<&str> = Leased::new(terms);
//!
//! assert_eq!(leased.try_acquire(0, number(1)), Local::Ask);
//! let Some(Errand::Debit { id, units }) = leased.errand(0) else { unreachable!() };
//! assert_eq!(units.get(), 1);
//! // A millisecond later the store has answered.
//! leased.debited(id, 1_000_000, units, None, "receipt");
//! assert_eq!(leased.try_acquire(1_000_000, number(1)), Local::Granted);
//! # Ok::<(), rategate_core::node::TermsError>(())
//! ```

use core::num::NonZeroU64;

use super::demand::Demand;
use super::lots::{Back, Lot, Lots};
use super::terms::{Terms, at_least_ns, at_most_ns};

pub use super::lots::MAX_LOTS;

/// Which debit an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrandId(u64);

/// What a node has to send to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the node counts it as sent"]
pub enum Errand<R> {
    /// As many of these units as pass now. One of [`debited`](Leased::debited), [`denied`](Leased::denied) and
    /// [`lost`](Leased::lost) has to follow.
    Debit {
        /// What its answer is to be reported under.
        id: ErrandId,
        /// How many at most.
        units: NonZeroU64,
    },
    /// Units that were not used and never will be. No answer is needed; lost, they age out.
    Return {
        /// What the debit's answer said.
        receipt: R,
        /// How many of them.
        units: NonZeroU64,
    },
}

impl<R> Errand<R> {
    fn back((receipt, units): Back<R>) -> Self {
        Self::Return { receipt, units }
    }
}

/// What a node decides by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Local {
    /// The permits are the caller's, now.
    Granted,
    /// The store has said no a moment ago, and nothing was taken.
    Denied {
        /// After how long the store would grant a permit, if nobody else comes first. `None` where time alone cannot
        /// help.
        retry_after_ns: Option<NonZeroU64>,
    },
    /// Nothing is decided, and nothing taken: what [`errand`](Leased::errand) says has to be sent, and the answer heard, or
    /// that of a debit under way. Then the call has to be tried again.
    Ask,
}

/// What one node has borrowed of one key. `R` is what the store wants to see when units come back.
#[derive(Clone, Debug)]
pub struct Leased<R> {
    terms: Terms,
    lots: Lots<R>,
    under_way: Option<UnderWay>,
    denial: Option<Remembered>,
    /// Answers in a row that brought less than was asked for.
    short_answers: u32,
    demand: Demand,
    /// How much calls wanted since the last debit that there was not.
    missed: Missed,
    /// Before that, nothing is debited but for calls that wait for it.
    calm_until_ns: u64,
    rest: Rest,
    latest_ns: u64,
    last_id: u64,
}

/// Until when there is nothing to send, as it looked the last time.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    until_ns: u64,
    /// What there is, and down to what.
    units: u64,
    low: u64,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    id: ErrandId,
    sent_ns: u64,
    units: u64,
}

/// A denial of the store.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    /// Until then the node denies by itself.
    until_ns: u64,
    /// When callers are told to come back.
    retry_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Missed {
    all: u64,
    /// The largest call among them.
    largest: u64,
}

impl<R: Clone> Leased<R> {
    /// A node that has nothing yet.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            lots: Lots::new(),
            under_way: None,
            denial: None,
            short_answers: 0,
            demand: Demand::new(terms.usable_ns().get()),
            missed: Missed::default(),
            calm_until_ns: 0,
            rest: Rest::default(),
            latest_ns: 0,
            last_id: 0,
        }
    }

    /// Decides about a call that comes at `now_ns`, without asking anybody.
    #[inline]
    pub fn try_acquire(&mut self, now_ns: u64, permits: NonZeroU64) -> Local {
        let now_ns = self.pass_to(now_ns);
        let wanted = permits.get();
        if self.lots.take(now_ns, wanted) {
            self.rest.units = self.rest.units.saturating_sub(wanted);
            self.demand.count(wanted);
            return Local::Granted;
        }
        self.without(now_ns, wanted)
    }

    /// Until when what was [granted](Local::Granted) just now can be [given back](Self::give_back).
    #[inline]
    #[must_use]
    pub fn granted_until_ns(&self) -> Option<u64> {
        self.lots.ends_ns(self.latest_ns)
    }

    /// A grant had no effect and will have none: its permits can be granted again, until the instant that was said with it.
    pub fn give_back(&mut self, now_ns: u64, permits: NonZeroU64, until_ns: u64) {
        let now_ns = self.pass_to(now_ns);
        self.rest = Rest::default();
        self.lots.give_back(now_ns, permits.get(), until_ns);
    }

    /// Somebody waits for so many permits behind a call that has to [ask](Local::Ask), so the next debit is for them too.
    /// To be said again after each answer, for those who still wait.
    pub fn waits_for(&mut self, permits: u64) {
        self.missed.all = self.missed.all.saturating_add(permits);
        self.missed.largest = self.missed.largest.max(permits);
    }

    /// What has to be sent at `now_ns`, and counts as sent then. To be asked until there is nothing more, after each of the
    /// other verbs, and at [`wakes_at_ns`](Self::wakes_at_ns). As a rule, three comparisons say that there is nothing.
    #[inline]
    pub fn errand(&mut self, now_ns: u64) -> Option<Errand<R>> {
        let now_ns = self.pass_to(now_ns);
        let Rest { until_ns, units, low } = self.rest;
        if now_ns < until_ns && units > low && self.missed.all == 0 {
            return None;
        }
        if self.lots.is_empty() && (self.under_way.is_some() || self.denies(now_ns)) {
            return None;
        }
        self.rest = Rest::default();
        let errand = self.next_errand(now_ns);
        if errand.is_none() {
            self.rest = self.rest_from(now_ns);
        }
        errand
    }

    /// The store has debited these units, at most those that were asked for; where a window of its grid ends, in so
    /// much time from its decision.
    ///
    /// An answer to a debit that was given up is returned by the next [`errand`](Self::errand).
    pub fn debited(
        &mut self,
        id: ErrandId,
        now_ns: u64,
        units: NonZeroU64,
        window_ends_in_ns: Option<u64>,
        receipt: R,
    ) {
        let now_ns = self.pass_to(now_ns);
        self.rest = Rest::default();
        let Some(asked) = self.answered(id) else {
            self.lots.add(Lot::dead(units.get(), receipt));
            return;
        };
        self.denial = None;
        if units.get() < asked.units {
            self.calm_until_ns = now_ns.saturating_add(self.demand.slot_ns());
            self.falls_short();
            self.pause(asked.sent_ns, now_ns, 0);
        } else {
            // What was too little a moment ago may be again: the pauses end as they have begun.
            self.short_answers = self.short_answers.saturating_sub(1);
            if self.short_answers > 0 {
                self.pause(asked.sent_ns, now_ns, 0);
            }
        }
        let usable_ns = self.terms.usable_ns().get();
        let window_ns = window_ends_in_ns.map(|ns| at_least_ns(ns, self.terms.drift_ppm()));
        let window_ns = window_ns.filter(|&ns| ns < usable_ns);
        let fades_ns = window_ns.unwrap_or_else(|| usable_ns.saturating_sub(usable_ns >> 3));
        self.lots.add(Lot {
            units: units.get().min(asked.units),
            used: 0,
            ends_ns: asked.sent_ns.saturating_add(window_ns.unwrap_or(usable_ns)),
            fades_ns: asked.sent_ns.saturating_add(fades_ns),
            kept_until_ns: now_ns.saturating_add(self.demand.slot_ns()),
            is_returned_at_end: window_ns.is_none(),
            receipt,
        });
    }

    /// The store has no unit to give before so much time from its decision; `None` where time alone cannot help.
    pub fn denied(&mut self, id: ErrandId, now_ns: u64, retry_after_ns: Option<NonZeroU64>) {
        let now_ns = self.pass_to(now_ns);
        let Some(asked) = self.answered(id) else { return };
        if let Some(ns) = retry_after_ns {
            self.falls_short();
            self.pause(asked.sent_ns, now_ns, ns.get());
            return;
        }
        let longest_ns = at_least_ns(self.terms.length_ns().get(), self.terms.drift_ppm());
        let until_ns = asked.sent_ns.saturating_add(longest_ns);
        self.denial = Some(Remembered { until_ns, retry_ns: None });
    }

    /// No answer came, and the store may have debited or not: those units are never used.
    pub fn lost(&mut self, id: ErrandId, now_ns: u64) {
        let now_ns = self.pass_to(now_ns);
        if self.answered(id).is_some() {
            self.calm_until_ns = now_ns.saturating_add(self.demand.slot_ns());
        }
    }

    /// When [`errand`](Self::errand) has to be asked again though nobody calls: a lease ends, or is not going to be
    /// used. `None` where there is nothing.
    #[must_use]
    pub fn wakes_at_ns(&self) -> Option<u64> {
        let mut demand = self.demand;
        demand.pass_to(self.latest_ns);
        let first = self.lots.first()?;
        let is_fading = self.under_way.is_none() && demand.goes_on();
        let fades_ns = first.fades_ns;
        let fades_ns = Some(fades_ns).filter(|&ns| is_fading && ns > self.latest_ns);
        let wakes_ns = first.ends_ns.min(demand.turns_at_ns());
        Some(wakes_ns.min(fades_ns.unwrap_or(u64::MAX)))
    }

    /// Whether a new one would do as well: nothing is borrowed, nothing under way, no denial remembered, and no demand.
    #[must_use]
    pub fn may_be_forgotten(&self, now_ns: u64) -> bool {
        let now_ns = now_ns.max(self.latest_ns);
        let mut demand = self.demand;
        demand.pass_to(now_ns);
        self.lots.are_used_up()
            && self.under_way.is_none()
            && self.denial.is_none_or(|denial| denial.until_ns <= now_ns)
            && demand.lately() == 0
    }

    /// How many permits can be handed out at `now_ns` without asking.
    #[must_use]
    pub fn units(&self, now_ns: u64) -> u64 {
        self.lots.units(now_ns.max(self.latest_ns))
    }

    /// Whether a debit waits for its answer.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// On which terms.
    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    fn next_errand(&mut self, now_ns: u64) -> Option<Errand<R>> {
        let back = self.lots.over(now_ns).or_else(|| self.surplus(now_ns));
        if back.is_some() {
            return back.map(Errand::back);
        }
        let units = NonZeroU64::new(self.lacking(now_ns))?;
        if let Some(first) = self.lots.too_many() {
            return Some(Errand::back(first));
        }
        Some(self.debit(now_ns, units))
    }

    /// Until when there is nothing to do, as long as nothing is heard, nobody misses anything, and half is left.
    fn rest_from(&self, now_ns: u64) -> Rest {
        let held_off = [Some(self.calm_until_ns), self.denial.map(|denial| denial.until_ns)];
        let held_off = held_off.into_iter().flatten().filter(|&at_ns| at_ns > now_ns);
        let until_ns = held_off.chain(self.lots.settles_ns(now_ns)).min();
        let until_ns = until_ns.unwrap_or(u64::MAX).min(self.wakes_at_ns().unwrap_or(0));
        let units = self.lots.units(now_ns);
        // Demand may grow meanwhile, so it is looked at again whenever half is gone.
        let low = (self.demand.lately().min(self.terms.most_units().get()) >> 1).max(units >> 1);
        let low = if self.under_way.is_some() { 0 } else { low };
        Rest { until_ns, units, low }
    }

    #[inline]
    fn pass_to(&mut self, now_ns: u64) -> u64 {
        self.latest_ns = self.latest_ns.max(now_ns);
        self.demand.pass_to(self.latest_ns);
        self.latest_ns
    }

    /// Decides about a call for which there is not enough.
    fn without(&mut self, now_ns: u64, wanted: u64) -> Local {
        if let Some(denial) = self.denial.filter(|denial| now_ns < denial.until_ns) {
            let retry_after_ns = denial.retry_ns.map(|at_ns| at_ns.saturating_sub(now_ns));
            return Local::Denied { retry_after_ns: retry_after_ns.and_then(NonZeroU64::new) };
        }
        self.waits_for(wanted);
        Local::Ask
    }

    /// What is more than twice as much as is going to be used, from the lease that ends last.
    fn surplus(&mut self, now_ns: u64) -> Option<Back<R>> {
        let held = self.lots.units(now_ns);
        let surplus = held.saturating_sub(self.demand.lately());
        if surplus == 0 || surplus < held.div_ceil(2) || self.missed.all > 0 {
            return None;
        }
        self.lots.cut(now_ns, surplus)
    }

    /// How much is worth a debit now.
    fn lacking(&self, now_ns: u64) -> u64 {
        if self.under_way.is_some() || self.denies(now_ns) {
            return 0;
        }
        let most = self.terms.most_units().get().max(self.missed.largest);
        let Missed { all: missed, .. } = self.missed;
        let lasting = self.lots.lasting(now_ns);
        let good = self.demand.lately().max(missed).min(most);
        let is_ahead =
            self.demand.goes_on() && now_ns >= self.calm_until_ns && lasting <= good >> 1;
        if missed == 0 && !is_ahead {
            return 0;
        }
        good.saturating_sub(lasting).min(most.saturating_sub(self.lots.units(now_ns)))
    }

    /// Whether the store would say no, as far as it has said.
    fn denies(&self, now_ns: u64) -> bool {
        self.denial.is_some_and(|denial| now_ns < denial.until_ns)
    }

    fn debit(&mut self, now_ns: u64, units: NonZeroU64) -> Errand<R> {
        self.missed = Missed::default();
        self.last_id = self.last_id.wrapping_add(1);
        let id = ErrandId(self.last_id);
        self.under_way = Some(UnderWay { id, sent_ns: now_ns, units: units.get() });
        Errand::Debit { id, units }
    }

    /// Takes note of an answer that brought less than was asked for; pauses that are the longest count no further.
    fn falls_short(&mut self) {
        let longest_ns = self.terms.pause_after_ns(u32::MAX);
        if self.terms.pause_after_ns(self.short_answers) < longest_ns || self.short_answers == 0 {
            self.short_answers = self.short_answers.saturating_add(1);
        }
    }

    /// Denies for as long as the store has nothing, at least a pause and at most a lease.
    fn pause(&mut self, sent_ns: u64, now_ns: u64, retry_after_ns: u64) {
        let retry_after_ns = retry_after_ns.max(self.terms.pause_after_ns(self.short_answers));
        if retry_after_ns == 0 {
            return;
        }
        let drift_ppm = self.terms.drift_ppm();
        let denies_for_ns = retry_after_ns.min(self.terms.length_ns().get());
        self.denial = Some(Remembered {
            until_ns: sent_ns.saturating_add(at_least_ns(denies_for_ns, drift_ppm)),
            retry_ns: Some(now_ns.saturating_add(at_most_ns(retry_after_ns, drift_ppm))),
        });
    }

    /// Takes note that the debit under way has ended, if it is this one.
    fn answered(&mut self, id: ErrandId) -> Option<UnderWay> {
        let asked = self.under_way.take_if(|asked| asked.id == id)?;
        self.rest = Rest::default();
        // Whoever waits for the answer tries again.
        self.missed = Missed::default();
        Some(asked)
    }
}
