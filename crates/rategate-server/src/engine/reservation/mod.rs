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
//! Permits of a counter in this process are a [`Hold`](rategate::charge::Hold) of it, so decisions
//! after a commit are those of a limit to which the cost was known from the start. They are not
//! saved: after a restart what was held counts as used, and the id is unknown.
//!
//! # Limits that come with calls
//!
//! They are held after the rules of this process, each by itself; a denial withdraws what is held
//! before it is answered. A limit keeps its counters for as long as anything is held.
//!
//! # Permits in flight
//!
//! They are held in the memory store that has the leases of their rule, or in the store of the
//! rule, and come back whole at any end. Nothing is charged to them.
//!
//! # Rules in a store
//!
//! * **Requests with an id** count once there, at whichever server: see [`Engine::once`].
//! * **Any server** ends what another holds in the store, also after a restart: the id is known to
//!   the store, of each counter apart. Only of the items in this process this server alone knows.
//! * **First the store, then this process.** The items in the store are held at once, and then the
//!   others at one instant. A refusal withdraws what is held, before it is answered. Until then
//!   other callers may find fewer permits than there are, and never more.
//! * **Without a reply** the item is unavailable, and what others hold is withdrawn. The caller
//!   sends the same again: what the store has done is not done twice. What no caller ends, ends by
//!   its time.
//! * **A caller that stops waiting** leaves what the store has been asked for to its time, or to
//!   the same call again.

mod changes;
mod costs;
mod digests;
mod held_item;
mod here;
mod hold_items;
mod hold_stored;
mod in_progress;
mod late;
mod local_part;
mod once;
mod part;
mod requests;
mod saved;
mod settlements;
mod split;
mod stored;
mod table;
mod times;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::Clock;
use rategate::charge::{Committed, Settled};
use smallvec::SmallVec;

pub(super) use self::settlements::Outcome;
use self::split::IN_PARTS;
use self::table::PartVerdict;
pub use self::table::ReservationCounts;
pub(super) use self::table::Reservations;
use super::Engine;
use super::answer::{Answer, Decided, ItemResult, Verdict};
use super::error::EngineError;
use super::remote::now_or_later;
use super::request::{Item, MAX_ITEMS, Target, Verb};
use super::unique_id::UniqueId;
use crate::rule::{HoldBounds, Usage};

/// The time of a reservation that states none, unless its rules have another.
pub const DEFAULT_TTL: Duration = HoldBounds::DEFAULT.ttl;

/// The maximum time of a reservation, unless its rules have another.
pub const MAX_TTL: Duration = HoldBounds::DEFAULT.max_ttl;

/// The time for which an id is remembered after its reservation has ended.
pub const MEMORY: Duration = Duration::from_secs(600);

/// The true cost of an item.
#[derive(Clone, Copy, Debug)]
pub struct Cost<'a> {
    /// The counter, as its reservation names it.
    pub target: Target<'a>,
    /// The permits that were used; as many as were held if `None`.
    pub permits: Option<u64>,
    /// The units that were used, in place of permits.
    pub usage: Option<Usage<'a>>,
}

impl<'a> Cost<'a> {
    /// Returns the permits and the usage that it states; no permits for as many as were held.
    fn stated(&self) -> (u64, Option<&Usage<'a>>) {
        (self.permits.unwrap_or(0), self.usage.as_ref())
    }
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

/// The rows that an end counts beside what it settles: one operation of a caller counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counting {
    All,
    /// The hold of the same take has counted a repetition.
    NoRepetition,
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Holds the permits of all items under an id, or of none.
    ///
    /// Without a time it is the smallest [`HoldBounds::ttl`] of their rules. An estimate beyond
    /// [`HoldBounds::max_held`] is cut to it. The result of each item says how many are held.
    ///
    /// The same call again takes nothing more and does not prolong the time. Rules of quotas are
    /// decided like others.
    ///
    /// # Errors
    ///
    /// [`EngineError::OtherItems`] if the id is of other items or permits, and
    /// [`EngineError::OtherNumber`] if it is of more or fewer; [`EngineError::Ttl`] for
    /// a time of 0, or beyond the smallest [`HoldBounds::max_ttl`]; [`EngineError::NoPermits`] of a store or in flight; [`EngineError::NotFor`] for an item of
    /// rules that count in this process and others that do not; [`EngineError::DuplicateItem`];
    /// [`EngineError::TooManyReservations`]; and those of a take.
    #[must_use]
    pub fn reserve(
        &self,
        id: UniqueId,
        ttl: impl Into<Option<Duration>>,
        items: &[Item<'_>],
    ) -> Decided<Reserved> {
        let reserved = self.reserve_all(id, ttl.into(), items);
        self.noting_unmatched(reserved, |reserved| &reserved.answer)
    }

    fn reserve_all(
        &self,
        id: UniqueId,
        ttl: Option<Duration>,
        items: &[Item<'_>],
    ) -> Decided<Reserved> {
        let checked = check_number(items.len()).and_then(|()| {
            let ttl = self.inner.ttl_of(ttl, items)?;
            Ok((ttl, self.split(items, Verb::Take)?))
        });
        match checked {
            Ok((ttl, None)) => Decided::Now(self.reserve_here(id, ttl, items)),
            Ok((ttl, Some(split))) => match split.check_estimates() {
                Ok(()) => {
                    let engine = self.clone();
                    now_or_later(Box::pin(async move {
                        stored::reserve(&engine, &split, id, (ttl, false)).await
                    }))
                }
                Err(error) => Decided::Now(Err(error)),
            },
            Err(error) => Decided::Now(Err(error)),
        }
    }

    /// Ends a reservation of which `costs` were used.
    ///
    /// An excess comes back, and a shortfall is charged. A late commit charges all that was used.
    /// An unknown id changes nothing, and the answer is not `allowed`; nor is that to a commit of
    /// what was cancelled, or without the reply of a store.
    ///
    /// # Errors
    ///
    /// [`EngineError::OtherItems`] or [`EngineError::OtherNumber`] unless the items are those of
    /// the reservation.
    #[must_use]
    pub fn commit(&self, id: UniqueId, costs: &[Cost<'_>]) -> Decided<Reserved> {
        self.end(id, costs, (End::Commit, Counting::All))
    }

    /// Ends a reservation of which nothing was used: a commit of 0 for each item.
    ///
    /// # Errors
    ///
    /// Those of [`Self::commit`].
    #[must_use]
    pub fn cancel(&self, id: UniqueId, targets: &[Target<'_>]) -> Decided<Reserved> {
        let costs = targets.iter().map(|&target| Cost { target, permits: Some(0), usage: None });
        self.end(id, &costs.collect::<SmallVec<[_; 4]>>(), (End::Cancel, Counting::All))
    }

    fn end(
        &self,
        id: UniqueId,
        costs: &[Cost<'_>],
        (end, counting): (End, Counting),
    ) -> Decided<Reserved> {
        if let Err(error) = check_number(costs.len()) {
            return Decided::Now(Err(error));
        }
        if !self.has_remotes() {
            return Decided::Now(self.end_here(id, costs, end));
        }
        let items = costs.iter().map(|cost| {
            let item = Item::of(cost.target, cost.permits.unwrap_or(0));
            Item { usage: cost.usage, ..item }
        });
        let items: SmallVec<[Item<'_>; 4]> = items.collect();
        // What is counted is known from the reservation, so a reset stands for the verb.
        match self.split(&items, Verb::Reset) {
            Ok(None) => Decided::Now(self.end_here(id, costs, end)),
            Ok(Some(split)) => {
                let used = match split.used(costs, end) {
                    Ok(used) => used,
                    Err(error) => return Decided::Now(Err(error)),
                };
                let here = costs.iter().map(|cost| cost.permits).collect();
                let engine = self.clone();
                now_or_later(Box::pin(async move {
                    stored::end(&engine, &split, id, (here, used), (end, counting)).await
                }))
            }
            // What was held before a reload put the rules in parts is known here.
            Err(error) if error == IN_PARTS => {
                let ended = self.end_here(id, costs, end);
                let is_unknown = |result: &ItemResult| result.verdict == Verdict::Unknown;
                Decided::Now(match ended {
                    Ok(ended) if ended.answer.results.iter().all(is_unknown) => Err(error),
                    ended => ended,
                })
            }
            Err(error) => Decided::Now(Err(error)),
        }
    }

    /// Returns the number of reservations that were made and ended, by outcome.
    #[must_use]
    pub fn reservation_counts(&self) -> ReservationCounts {
        self.inner.reservations.counts()
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
        self.parts().iter().filter_map(move |part| {
            let (rule, saturated) = (Arc::clone(&part.rule.as_ref()?.name), part.is_saturated());
            Some(PartVerdict { at, rule, verdict: part.verdict, saturated })
        })
    }
}

impl End {
    /// Returns `true` if the end of an item with this verdict is, or was, this one.
    fn has_effect(self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Unknown | Verdict::Unavailable { .. } => false,
            Verdict::Cancelled(_) => self == Self::Cancel,
            Verdict::Committed(_) => self == Self::Commit,
            _ => true,
        }
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
