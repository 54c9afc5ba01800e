//! Reservations: estimates of a rule's permits under an id, until the true cost is known.
//!
//! # Contract
//!
//! * **All or none.** A reservation holds the estimates of all its items, or of none. A refusal
//!   leaves its id unused.
//! * **Once.** An operation that is repeated under its id changes nothing, and gets the verdicts of
//!   the first. An id is remembered for [`MEMORY`] after its reservation has ended, or for as long
//!   as that could last if that is more.
//! * **It ends by itself** when its time is over, by the engine's clock, looked at or not. A later
//!   commit is *late*: what was used is charged whole, once.
//! * **Known items.** A commit names the items of its reservation again, in their order.
//!
//! The permits are a [`Hold`] of each counter, so decisions after a commit are those of a limit to
//! which the cost was known from the start. Reservations are of rules whose counters are in this
//! process, and are not saved: after a restart what was held counts as used, and the id is
//! unknown.

mod hold_items;
mod table;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::Clock;
use rategate::charge::{Committed, Settled};
use rategate_core::span::whole_ns;
use smallvec::SmallVec;

use self::hold_items::{HeldItem, Holds};
pub use self::table::ReservationCounts;
pub(super) use self::table::Reservations;
use self::table::{Entry, OwnedUsage, PartVerdict, State};
use super::Engine;
use super::answer::{Answer, Decided, ItemResult, Verdict};
use super::error::EngineError;
use super::request::{Item, MAX_ITEMS, Request, Target, Verb};
use super::unique_id::UniqueId;
use crate::rule::{Counts, Usage};

/// The time of a reservation without one of its own.
pub const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// The maximum time of a reservation.
pub const MAX_TTL: Duration = Duration::from_secs(600);

/// The time for which an id is remembered after its reservation has ended.
pub const MEMORY: Duration = Duration::from_secs(600);

/// The true cost of an item.
#[derive(Clone, Copy, Debug)]
pub struct Cost<'a> {
    /// The counter, as its reservation names it.
    pub target: Target<'a>,
    /// The permits that were used; as many as were held if `None`.
    pub permits: Option<u64>,
    /// What was used, in place of permits.
    pub usage: Option<Usage<'a>>,
}

/// The answer to an operation on a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The result of each item.
    pub answer: Answer,
    /// `true` if the operation had been answered before, and changed nothing now.
    pub is_repeated: bool,
    /// The time until the reservation ends by itself, in nanoseconds; `None` unless it lasts.
    pub ends_after_ns: Option<NonZeroU64>,
}

/// The end of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    Cancel,
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Holds the permits of all items under an id, or of none.
    ///
    /// The same call again takes nothing more and does not prolong the time. Rules of quotas are
    /// decided like others.
    ///
    /// # Errors
    ///
    /// [`EngineError::OtherItems`] if the id is of other items or permits; [`EngineError::Ttl`];
    /// [`EngineError::NotFor`] unless each item is of a rule whose counters are in this process;
    /// [`EngineError::DuplicateItem`]; [`EngineError::NoCapacity`]; and those of a take.
    pub fn reserve(
        &self,
        id: UniqueId,
        ttl: Duration,
        items: &[Item<'_>],
    ) -> Result<Reserved, EngineError> {
        check_number(items.len())?;
        if ttl.is_zero() || ttl > MAX_TTL {
            return Err(EngineError::Ttl { max: MAX_TTL });
        }
        let reservations = &self.inner.reservations;
        let names = reservations.digest(None, items.iter().map(|item| &item.target));
        let estimates = items.iter().map(|item| item.permits);
        let usages = OwnedUsage::of_all(items.iter().map(|item| item.usage));
        let now_ns = self.inner.clock.now_ns();
        let mut shard = reservations.lock(id);
        if let Some(entry) = shard.entry(id, now_ns) {
            let is_same = entry.permits.iter().copied().eq(estimates) && entry.usages == usages;
            if entry.names != names || !is_same {
                return Err(EngineError::OtherItems);
            }
            let (verdicts, ends_after_ns) = entry.repeated_reserve(now_ns);
            let verdicts = (verdicts, entry.parts.clone());
            drop(shard);
            reservations.counts.repeated();
            let targets = items.iter().map(|item| item.target);
            let answer = self.status(targets, ends_after_ns.is_some(), &verdicts);
            return Ok(Reserved { answer, is_repeated: true, ends_after_ns });
        }
        reservations.check_capacity()?;
        let (answer, holds) = self.inner.hold_items(items, ttl)?;
        if !answer.allowed {
            drop(shard);
            reservations.counts.denied();
            return Ok(Reserved { answer, is_repeated: false, ends_after_ns: None });
        }
        // Where nothing is counted the reservation lasts as long as it would otherwise.
        let last_ns = holds.iter().map(|(_, hold, _)| whole_ns(hold.ends_at())).max();
        let end_ns = last_ns.unwrap_or_else(|| now_ns.saturating_add(whole_ns(ttl)));
        let estimates = (estimates.collect(), usages);
        let ttl_ns = whole_ns(ttl);
        reservations.add(&mut shard, id, Entry::open(names, estimates, holds, end_ns, ttl_ns));
        drop(shard);
        reservations.counts.held();
        // The holds have read the clock after `now_ns`.
        let left_ns = end_ns.saturating_sub(self.inner.clock.now_ns());
        Ok(Reserved { answer, is_repeated: false, ends_after_ns: NonZeroU64::new(left_ns) })
    }

    /// Ends a reservation of which `costs` were used.
    ///
    /// An excess comes back, and a shortfall is charged. A late commit charges all that was used.
    /// An unknown id changes nothing, and the answer is not `allowed`; nor is that to a commit of
    /// what was cancelled.
    ///
    /// # Errors
    ///
    /// [`EngineError::OtherItems`] unless the items are those of the reservation.
    pub fn commit(&self, id: UniqueId, costs: &[Cost<'_>]) -> Result<Reserved, EngineError> {
        self.end(id, costs, End::Commit)
    }

    /// Ends a reservation of which nothing was used: a commit of 0 for each item.
    ///
    /// # Errors
    ///
    /// Those of [`Self::commit`].
    pub fn cancel(&self, id: UniqueId, targets: &[Target<'_>]) -> Result<Reserved, EngineError> {
        let costs = targets.iter().map(|&target| Cost { target, permits: Some(0), usage: None });
        self.end(id, &costs.collect::<SmallVec<[_; 4]>>(), End::Cancel)
    }

    /// Decides a request once: the same again under its id changes nothing, and gets the verdicts
    /// of the first. A denied one leaves its id unused.
    ///
    /// # Errors
    ///
    /// [`EngineError::OtherItems`] if the id is of another request or a reservation;
    /// [`EngineError::NotFor`] if an item is of a rule whose counters are in a store;
    /// [`EngineError::NoCapacity`]; and those of the request.
    pub fn once(&self, id: UniqueId, request: &Request<'_>) -> Result<Reserved, EngineError> {
        let Request { verb, items, .. } = *request;
        check_number(items.len())?;
        let reservations = &self.inner.reservations;
        let targets = || items.iter().map(|item| item.target);
        let names = reservations.digest(Some(verb), items.iter().map(|item| &item.target));
        let permits = items.iter().map(|item| item.permits);
        let usages = OwnedUsage::of_all(items.iter().map(|item| item.usage));
        let now_ns = self.inner.clock.now_ns();
        let mut shard = reservations.lock(id);
        if let Some(entry) = shard.entry(id, now_ns) {
            let is_same = entry.names == names
                && entry.permits.iter().copied().eq(permits)
                && entry.usages == usages;
            let State::Settled(verdicts) = &entry.state else {
                return Err(EngineError::OtherItems);
            };
            if !is_same {
                return Err(EngineError::OtherItems);
            }
            let verdicts = (verdicts.clone(), entry.parts.clone());
            drop(shard);
            reservations.counts.repeated();
            let answer = self.status(targets(), true, &verdicts);
            return Ok(Reserved { answer, is_repeated: true, ends_after_ns: None });
        }
        reservations.check_capacity()?;
        let answer = self.inner.decide_here(request)?;
        if answer.allowed {
            let verdicts = answer.results.iter().map(|result| result.verdict).collect();
            let parts = answer.results.iter().enumerate();
            let parts = parts.flat_map(|(at, result)| result.part_verdicts(at)).collect();
            let permits = (permits.collect(), usages);
            let entry = Entry::made(names, permits, (verdicts, parts), now_ns);
            reservations.add(&mut shard, id, entry);
        }
        Ok(Reserved { answer, is_repeated: false, ends_after_ns: None })
    }

    /// Returns the number of reservations that were made and ended, by outcome.
    #[must_use]
    pub fn reservation_counts(&self) -> ReservationCounts {
        self.inner.reservations.counts()
    }

    fn end(&self, id: UniqueId, costs: &[Cost<'_>], end: End) -> Result<Reserved, EngineError> {
        check_number(costs.len())?;
        let reservations = &self.inner.reservations;
        let names = reservations.digest(None, costs.iter().map(|cost| &cost.target));
        let now_ns = self.inner.clock.now_ns();
        let targets = || costs.iter().map(|cost| cost.target);
        let mut shard = reservations.lock(id);
        let (verdicts, is_repeated) = match shard.entry(id, now_ns) {
            None => {
                reservations.counts.unknown();
                ((costs.iter().map(|_| Verdict::Unknown).collect(), Vec::new()), false)
            }
            Some(entry) if entry.names != names => return Err(EngineError::OtherItems),
            Some(Entry { state: State::Settled(verdicts), parts, .. }) => {
                reservations.counts.repeated();
                ((verdicts.clone(), parts.clone()), true)
            }
            Some(entry) => {
                let verdicts = self.settle(entry, costs, end)?;
                shard.settled(id, verdicts.clone(), now_ns);
                (verdicts, false)
            }
        };
        drop(shard);
        let has_effect = !verdicts.0.iter().any(|verdict| match verdict {
            Verdict::Unknown => true,
            Verdict::Cancelled(_) => end == End::Commit,
            Verdict::Committed(_) => end == End::Cancel,
            _ => false,
        });
        let mut answer = self.status(targets(), has_effect, &verdicts);
        if !is_repeated {
            answer.results.iter_mut().for_each(ItemResult::warn_of_settled);
            self.inner.notify_settled(costs, &answer);
        }
        Ok(Reserved { answer, is_repeated, ends_after_ns: None })
    }

    /// Ends a reservation that is open, or was when its time ended.
    fn settle(
        &self,
        entry: &mut Entry<C>,
        costs: &[Cost<'_>],
        end: End,
    ) -> Result<Verdicts, EngineError> {
        let mut parts: Vec<PartVerdict> = Vec::new();
        let was_open = matches!(entry.state, State::Open { .. });
        let verdicts: SmallVec<[Verdict; 1]> = match &mut entry.state {
            State::Open { holds, .. } => {
                // Nothing is settled unless all costs are known.
                let used: Vec<u64> = end.used(holds, costs)?;
                let is_several = holds.len() > costs.len();
                let mut verdicts: SmallVec<[Verdict; 1]> =
                    costs.iter().map(|_| end.verdict(Committed::InTime(Settled::Even))).collect();
                for ((at, hold, rule), used) in std::mem::take(holds).into_iter().zip(used) {
                    // The limiter of a key is never closed.
                    let Ok(committed) = hold.commit(used) else { continue };
                    if is_several {
                        parts.push((at, Arc::clone(&rule.name), end.verdict(committed)));
                    }
                    if let Some(verdict) = verdicts.get_mut(at) {
                        *verdict = end.verdict(committed).or_later(*verdict);
                    }
                }
                verdicts
            }
            State::Ended { counted } => {
                let (usages, permits) = (&entry.usages, &entry.permits);
                let usages =
                    usages.iter().map(|own| Some((own.as_ref()?.counts(), own.as_ref()?.model())));
                let usages: Vec<_> = usages.collect();
                let (mut targets, mut at) = (Vec::new(), Vec::new());
                for (nth, cost) in costs.iter().enumerate().filter(|(at, _)| counted.contains(at)) {
                    let is_as_held = cost.permits.is_none() && cost.usage.is_none();
                    let held = usages.get(nth).and_then(Option::as_ref).filter(|_| is_as_held);
                    let held = held.map(|(counts, model)| Usage { counts, model: *model });
                    let estimate = permits.get(nth).copied().unwrap_or(0);
                    let item = Item::of(cost.target, cost.permits.unwrap_or(estimate));
                    targets.push(Item { usage: cost.usage.or(held), ..item });
                    at.push(nth);
                }
                let charge = Request { verb: Verb::Charge, items: &targets, counts_denied: false };
                let charged = self.inner.decide_here(&charge)?;
                let mut verdicts: SmallVec<[Verdict; 1]> =
                    costs.iter().map(|_| Verdict::Late(0)).collect();
                for (at, result) in at.into_iter().zip(charged.results) {
                    let charged = result.part_verdicts(at).map(|(at, rule, verdict)| {
                        let verdict = match verdict {
                            Verdict::Charged(permits) => Verdict::Late(permits),
                            verdict => verdict,
                        };
                        (at, rule, verdict)
                    });
                    parts.extend(charged);
                    if let (Some(verdict), Verdict::Charged(permits)) =
                        (verdicts.get_mut(at), result.verdict)
                    {
                        *verdict = Verdict::Late(permits);
                    }
                }
                verdicts
            }
            State::Settled(verdicts) => return Ok((verdicts.clone(), entry.parts.clone())),
        };
        let is_late = verdicts.iter().any(|verdict| matches!(verdict, Verdict::Late(_)));
        self.inner.reservations.counts.ended(end == End::Commit, is_late, was_open);
        Ok((verdicts, parts))
    }

    /// Returns the status of each counter, with the verdicts of an operation that has been made.
    /// Of rules that exist no longer there is none.
    fn status<'a>(
        &self,
        targets: impl Iterator<Item = Target<'a>>,
        allowed: bool,
        (verdicts, parts): &Verdicts,
    ) -> Answer {
        let result = |(at, (target, &verdict)): (usize, (Target<'_>, &Verdict))| {
            let items = [Item::of(target, 0)];
            let request = Request { verb: Verb::Peek, items: &items, counts_denied: false };
            let status = match self.decide(&request) {
                Decided::Now(Ok(answer)) => answer.results.into_iter().next(),
                _ => None,
            };
            let status = status.unwrap_or(ItemResult { remaining: None, ..ItemResult::UNMATCHED });
            let is_counted = !matches!(
                status.verdict,
                Verdict::Unmatched | Verdict::Unlimited | Verdict::Replaced
            );
            // What is not counted has no other verdict, unless nothing is known.
            let keeps_own = !is_counted && matches!(verdict, Verdict::Granted | NOT_HELD);
            let verdict = if keeps_own { status.verdict } else { verdict };
            let mut result = ItemResult { verdict, ..status };
            result.set_verdicts(|rule| {
                let own = parts.iter().find(|(of, name, _)| *of == at && *name == rule.name);
                Some(own.map_or_else(|| verdict.of_nothing(), |(.., verdict)| *verdict))
            });
            result
        };
        Answer { allowed, results: targets.zip(verdicts).enumerate().map(result).collect() }
    }
}

/// The verdict on an item of which nothing is held, since its rule is not enforced.
const NOT_HELD: Verdict = Verdict::Denied { retry_after_ns: None, enforced: false };

impl Reserved {
    /// Denies what a full table cannot count.
    ///
    /// # Errors
    ///
    /// Any other fault, unchanged.
    pub(crate) fn or_denied(
        reserved: Result<Self, EngineError>,
        items: usize,
    ) -> Result<Self, EngineError> {
        reserved.or_else(|fault| {
            let answer = Answer::or_denied(Err(fault), items)?;
            Ok(Self { answer, is_repeated: false, ends_after_ns: None })
        })
    }
}

/// The verdicts on the items of an operation, and those of the rules of items under several.
type Verdicts = (SmallVec<[Verdict; 1]>, Vec<PartVerdict>);

impl ItemResult {
    /// Returns the verdicts of its parts, for the item at an index.
    fn part_verdicts(&self, at: usize) -> impl Iterator<Item = PartVerdict> {
        let of = move |part: &Self| Some((at, Arc::clone(&part.rule.as_ref()?.name), part.verdict));
        self.parts().iter().filter_map(of)
    }
}

impl End {
    /// Returns what was used of each hold. A commit leaves the request that was reserved, however
    /// little was used.
    fn used<C: Clock>(self, holds: &Holds<C>, costs: &[Cost<'_>]) -> Result<Vec<u64>, EngineError> {
        let used = |(at, hold, rule): &HeldItem<C>| {
            let cost = costs.get(*at);
            let (permits, usage) = cost.map_or((None, None), |cost| (cost.permits, cost.usage));
            match (self, permits, usage) {
                (Self::Cancel, ..) => Ok(0),
                (Self::Commit, None, None) => Ok(hold.permits()),
                (Self::Commit, ..) if rule.counts == Counts::Requests => Ok(1),
                (Self::Commit, permits, usage) => {
                    let alone = holds.iter().filter(|(other, ..)| other == at).count() == 1;
                    let amount = rule.counts.amount(permits.unwrap_or(0), usage.as_ref(), alone);
                    amount.map_err(|why| rule.cost_error(why))
                }
            }
        };
        holds.iter().map(used).collect()
    }

    const fn verdict(self, committed: Committed) -> Verdict {
        match (self, committed) {
            (_, Committed::Late(charged)) => Verdict::Late(charged.booked),
            (Self::Commit, Committed::InTime(settled)) => Verdict::Committed(settled),
            (Self::Cancel, Committed::InTime(Settled::Back { permits })) => {
                Verdict::Cancelled(permits)
            }
            (Self::Cancel, Committed::InTime(_)) => Verdict::Cancelled(0),
        }
    }
}

impl Verdict {
    /// Returns the verdict on an item of several counters, of which the others have got `before`:
    /// late, if any of them is.
    const fn or_later(self, before: Self) -> Self {
        // A request that stays as it was says less than what was settled beside it.
        if let (Self::Committed(Settled::Even), Self::Committed(_)) = (self, before) {
            return before;
        }
        match before {
            Self::Late(_) => before,
            _ => self,
        }
    }
}

impl Verdict {
    /// Returns the verdict on a rule of which nothing was held.
    const fn of_nothing(self) -> Self {
        match self {
            Self::Committed(_) => Self::Committed(Settled::Even),
            Self::Cancelled(_) => Self::Cancelled(0),
            Self::Late(_) => Self::Late(0),
            verdict => verdict,
        }
    }
}

const fn check_number(given: usize) -> Result<(), EngineError> {
    if given > MAX_ITEMS {
        return Err(EngineError::TooManyItems { given, max: MAX_ITEMS });
    }
    Ok(())
}
