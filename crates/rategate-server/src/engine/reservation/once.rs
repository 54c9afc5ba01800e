//! Requests that are made once under an id, some of whose counters are in a store.
//!
//! A take holds its items as a reservation does, all or none, and commits them at once: whatever is
//! lost in between, the same take again goes on from there. Charges and refunds have the id in the
//! store, of each counter apart.

use std::iter;
use std::num::NonZeroU64;

use rategate::Clock;
use rategate::store::{ChargeReply, CreditReply, Pending, ReservationId, StoreError};
use smallvec::SmallVec;

use super::requests::{in_store, status, unavailable};
use super::split::{Split, StoredItem};
use super::{Counting, DEFAULT_TTL, End, Reserved, check_number, stored};
use crate::engine::Engine;
use crate::engine::answer::{Answer, Decided, ItemResult, Verdict};
use crate::engine::counters::ActiveRule;
use crate::engine::error::EngineError;
use crate::engine::remote::{now_or_later, of_store, peeked};
use crate::engine::request::{Request, Verb};
use crate::engine::unique_id::UniqueId;
use crate::rule::{CountedWindow, Limit, Over};

/// A request to a store for one item.
enum Sent {
    Charge(Pending<ChargeReply>),
    Credit(Pending<CreditReply>),
    /// There is nothing to count, which is the verdict.
    Nothing(Verdict),
}

/// The results of items with their indices, and `true` if all of them are repeated.
type Counted = (Vec<(usize, ItemResult)>, bool);

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Decides a request once: the same again under its id changes nothing, and gets the verdicts
    /// of the first. A denied one leaves its id unused.
    ///
    /// Without the reply of a store the item is unavailable, and not `allowed`: the caller sends
    /// the same again.
    ///
    /// # Errors
    ///
    /// [`EngineError::OtherItems`] or [`EngineError::OtherNumber`] if the id is of another request
    /// or a reservation;
    /// [`EngineError::NotFor`] if an item is of a rule that counts permits in flight;
    /// [`EngineError::NoPermits`] of a take in a store; [`EngineError::TooManyReservations`]; and
    /// those of the request.
    #[must_use]
    pub fn once(&self, id: UniqueId, request: &Request<'_>) -> Decided<Reserved> {
        self.noting_unmatched(self.once_all(id, request), |made| &made.answer)
    }

    fn once_all(&self, id: UniqueId, request: &Request<'_>) -> Decided<Reserved> {
        let Request { verb, items, counts_denied } = *request;
        let split = check_number(items.len()).and_then(|()| self.split(items, verb));
        let split = match split {
            Ok(None) => {
                let made = self.once_here(id, request);
                if made.as_ref().is_ok_and(|made| made.is_repeated) {
                    self.inner.reservations.counts.repeated();
                }
                return Decided::Now(made);
            }
            Ok(Some(split)) => split,
            Err(error) => return Decided::Now(Err(error)),
        };
        if let Err(error) = split.check_once(verb) {
            return Decided::Now(Err(error));
        }
        let split = split.whole();
        if verb == Verb::Take
            && let Err(error) = split.check_estimates()
        {
            return Decided::Now(Err(error));
        }
        let engine = self.clone();
        now_or_later(Box::pin(async move {
            match verb {
                Verb::Take => engine.take_once(&split, id).await,
                _ => engine.count_once(&split, id, (verb, counts_denied)).await,
            }
        }))
    }

    /// Takes the permits of all items, or of none.
    async fn take_once(&self, split: &Split<C>, id: UniqueId) -> Result<Reserved, EngineError> {
        let held = stored::reserve(self, split, id, (DEFAULT_TTL, true)).await?;
        // What is repeated and not held has been made before, and is none of these.
        if held.answer.results.iter().any(|result| result.verdict.is_over()) {
            return self.not_taken(split, held).await;
        }
        let used = (split.items.iter().map(|_| None).collect(), vec![None; split.stored.len()]);
        let ended =
            stored::end(self, split, id, used, (End::Commit, Counting::NoRepetition)).await?;
        let taken = |(held, ended): (ItemResult, ItemResult)| match (held.verdict, ended.verdict) {
            // What is not enforced was not held, or is denied beside what was taken before.
            (Verdict::Unavailable { .. } | Verdict::Denied { .. }, _) => held,
            (_, Verdict::Committed(_) | Verdict::Late(_)) => {
                let mut taken = ItemResult { verdict: Verdict::Granted, ..ended };
                taken.set_verdicts(|_| Some(Verdict::Granted), Verdict::Granted);
                taken
            }
            (_, Verdict::Unavailable { .. } | Verdict::Unknown) => {
                ItemResult { verdict: unavailable(false), ..ended }
            }
            // What is not counted.
            _ => held,
        };
        let both = held.answer.results.into_iter().zip(ended.answer.results);
        let results: SmallVec<[ItemResult; 1]> = both.map(taken).collect();
        let allowed = !results.iter().any(|result| result.verdict.is_over());
        let (answer, is_repeated) = (Answer { allowed, results }, held.is_repeated);
        Ok(Reserved { answer, is_repeated, ends_after_ns: None })
    }

    /// Returns the answer to a take of which nothing is taken.
    async fn not_taken(&self, split: &Split<C>, held: Reserved) -> Result<Reserved, EngineError> {
        let Reserved { mut answer, .. } = held;
        let own = |result| iter::once(result).chain(ItemResult::parts(result));
        let verdicts = || answer.results.iter().flat_map(own).map(|result| result.verdict);
        let is_denied = verdicts().any(|it| matches!(it, Verdict::Denied { enforced: true, .. }));
        // Without a reply it may be held, and is taken when the same take comes again.
        if is_denied && !verdicts().any(|verdict| verdict.is_unavailable()) {
            self.charge_denied(split).await?;
        }
        for result in &mut answer.results {
            let parts = result.detail.iter_mut().flat_map(|detail| &mut detail.parts);
            for verdict in parts.map(|part| &mut part.verdict).chain([&mut result.verdict]) {
                // It was held once, for the same take, which was not made.
                if matches!(verdict, Verdict::Late(_)) {
                    *verdict = Verdict::Granted;
                }
            }
        }
        Ok(Reserved { answer, is_repeated: false, ends_after_ns: None })
    }

    /// Charges the items of a denied take whose rules count what they deny. As the take leaves its
    /// id unused, the same take again counts again.
    async fn charge_denied(&self, split: &Split<C>) -> Result<(), EngineError> {
        let mut charges = Vec::new();
        for item in &split.stored {
            let (ruled, remote) = split.remote(item)?;
            let permits = NonZeroU64::new(counted(ruled, item));
            if let Some(permits) = permits.filter(|_| counts_denied(ruled)) {
                charges.push(remote.charge(&in_store(ruled, item), permits));
            }
        }
        for charge in charges {
            // Without a reply the outcome is unknown, as that of a take without an id is.
            let _ = charge.await;
        }
        Ok(())
    }

    /// Charges or refunds each item.
    async fn count_once(
        &self,
        split: &Split<C>,
        id: UniqueId,
        (verb, counts_denied): (Verb, bool),
    ) -> Result<Reserved, EngineError> {
        let _operation = self.inner.reservations.in_progress.begin(id).await;
        let (mut results, mut is_repeated) = self.count_stored(split, id, verb).await?;
        if !split.here.is_empty() {
            let own = split
                .with_here(|items| self.once_here(id, &Request { verb, items, counts_denied }))?;
            is_repeated &= own.is_repeated || !split.counts_here;
            results.extend(split.here.iter().copied().zip(own.answer.results));
        }
        if is_repeated {
            self.inner.reservations.counts.repeated();
        }
        let results = split.gathered(results);
        let allowed = !results.iter().any(|result| result.verdict.is_over());
        Ok(Reserved { answer: Answer { allowed, results }, is_repeated, ends_after_ns: None })
    }

    /// Charges or refunds the items in the store, all at once.
    async fn count_stored(
        &self,
        split: &Split<C>,
        id: UniqueId,
        verb: Verb,
    ) -> Result<Counted, EngineError> {
        let mut sent = Vec::with_capacity(split.stored.len());
        for item in &split.stored {
            sent.push(split.send(item, ReservationId(id.0), verb)?);
        }
        let (mut results, mut is_repeated) = (Vec::with_capacity(sent.len()), true);
        for (item, sent) in split.stored.iter().zip(sent) {
            let (result, repeats) = self.counted(split, item, sent).await?;
            is_repeated &= repeats;
            results.push((item.at, result));
        }
        Ok((results, is_repeated))
    }

    /// Waits for the outcome of a charge or a refund. Returns `true` if it is repeated.
    async fn counted(
        &self,
        split: &Split<C>,
        item: &StoredItem,
        sent: Sent,
    ) -> Result<(ItemResult, bool), EngineError> {
        let (ruled, _) = split.remote(item)?;
        let inner = &*self.inner;
        let peek = async |verdict| peeked(inner, &split.live, &item.counter, verdict).await;
        let (mut result, is_repeated) = match sent {
            Sent::Charge(charge) => match charge.await {
                Ok(ChargeReply { charged, is_repeated, remaining, .. }) => {
                    let verdict = Verdict::Charged(charged.booked);
                    (status(inner, ruled, verdict, (remaining, charged.debt)), is_repeated)
                }
                Err(error) => return no_reply(ruled, &error),
            },
            Sent::Credit(credit) => match credit.await {
                Ok(CreditReply { permits, is_repeated }) => {
                    (peek(Verdict::Refunded(permits)).await?, is_repeated)
                }
                Err(error) => return no_reply(ruled, &error),
            },
            Sent::Nothing(verdict) => return Ok((peek(verdict).await?, true)),
        };
        result.note_saturation(item.requested);
        if !is_repeated {
            split.notify(inner, item, item.requested, &result);
        }
        Ok((item.with_cost(result), is_repeated))
    }
}

impl<C: Clock + Clone + 'static> Split<C> {
    /// Returns the items with the permits that were asked for: no share bounds a take.
    fn whole(mut self) -> Self {
        for item in &mut self.stored {
            item.permits = item.requested;
            item.is_cut = false;
        }
        self
    }

    /// Sends the charge or the refund of an item.
    fn send(&self, item: &StoredItem, id: ReservationId, verb: Verb) -> Result<Sent, EngineError> {
        let (ruled, remote) = self.remote(item)?;
        let key = in_store(ruled, item);
        let is_charge = verb == Verb::Charge;
        Ok(match NonZeroU64::new(counted(ruled, item)) {
            Some(permits) if is_charge => Sent::Charge(remote.charge_once(&key, permits, id)),
            Some(permits) => Sent::Credit(remote.credit_once(&key, permits, id)),
            None if is_charge => Sent::Nothing(Verdict::Charged(0)),
            None => Sent::Nothing(Verdict::Refunded(0)),
        })
    }
}

/// Returns the permits that the store counts of an item.
fn counted<C: Clock + Clone>(ruled: &ActiveRule<C>, item: &StoredItem) -> u64 {
    match ruled.rule.limit {
        Limit::Counted(_) => CountedWindow::counted_in_store(item.requested),
        _ => item.requested,
    }
}

/// Returns `true` for a rule that counts what it denies.
fn counts_denied<C: Clock + Clone>(ruled: &ActiveRule<C>) -> bool {
    ruled.rule.over == Over::Charge || matches!(ruled.rule.limit, Limit::Counted(_))
}

/// Returns the result of an item without the reply of a store.
fn no_reply<C: Clock + Clone>(
    ruled: &ActiveRule<C>,
    error: &StoreError,
) -> Result<(ItemResult, bool), EngineError> {
    match error {
        StoreError::Unavailable(_) => {
            let result = ruled.result(unavailable(false));
            Ok((ItemResult { remaining: None, ..result }, false))
        }
        error => Err(of_store(error)),
    }
}
