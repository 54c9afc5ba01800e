//! Commits that charge what was used where the id is unknown.

use rategate::Clock;
use smallvec::SmallVec;

use super::{Cost, Counting, End, Reserved};
use crate::engine::Engine;
use crate::engine::answer::{Decided, Verdict};
use crate::engine::error::EngineError;
use crate::engine::remote::now_or_later;
use crate::engine::request::{Item, OwnedItem, Request, Verb};
use crate::engine::unique_id::UniqueId;

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Ends a reservation of items without usage, as [`Self::commit`] does. Under an id that is
    /// unknown it charges what was used, once: the same again changes nothing.
    ///
    /// Beside an item that takes no charge, which are permits in flight and those leased from a
    /// store, the commit stays unknown, and nothing is charged.
    ///
    /// # Errors
    ///
    /// Those of [`Self::commit`] and [`Self::once`].
    #[must_use]
    pub fn commit_or_charge(&self, id: UniqueId, items: &[Item<'_>]) -> Decided<Reserved> {
        let costs = items.iter().map(|item| {
            let Item { target, permits, .. } = *item;
            Cost { target, permits: Some(permits), usage: None }
        });
        let costs: SmallVec<[Cost<'_>; 2]> = costs.collect();
        let committed = match self.end(id, &costs, (End::Commit, Counting::NoUnknown)) {
            Decided::Now(committed) if is_unknown(&committed) => {
                return self.charge_in_place_of(committed, id, items);
            }
            Decided::Now(committed) => {
                self.count_unknown(&committed);
                return Decided::Now(committed);
            }
            Decided::Later(committed) => committed,
        };
        let engine = self.clone();
        let owned: Vec<OwnedItem> = items.iter().map(OwnedItem::of).collect();
        Decided::Later(Box::pin(async move {
            let committed = committed.await;
            if !is_unknown(&committed) {
                engine.count_unknown(&committed);
                return committed;
            }
            let charged = {
                let lists: Vec<_> = owned.iter().map(OwnedItem::borrowed).collect();
                let items = owned.iter().zip(&lists).map(|(item, lists)| item.item(lists));
                let items: Vec<Item<'_>> = items.collect();
                engine.charge_in_place_of(committed, id, &items)
            };
            charged.answer().await
        }))
    }

    /// Charges items under the id of a commit that is unknown.
    fn charge_in_place_of(
        &self,
        committed: Result<Reserved, EngineError>,
        id: UniqueId,
        items: &[Item<'_>],
    ) -> Decided<Reserved> {
        let charge = Request { verb: Verb::Charge, items, counts_denied: false };
        let engine = self.clone();
        let or_unknown = move |charged: Result<Reserved, EngineError>| {
            // A repetition is counted as one, and as nothing else.
            if !charged.as_ref().is_ok_and(|charged| charged.is_repeated) {
                engine.count_unknown(&committed);
            }
            match charged {
                Err(EngineError::NotFor(_) | EngineError::NotForItem { .. }) => committed,
                charged => charged,
            }
        };
        match self.once(id, &charge) {
            Decided::Now(charged) => Decided::Now(or_unknown(charged)),
            Decided::Later(charged) => {
                now_or_later(Box::pin(async move { or_unknown(charged.await) }))
            }
        }
    }

    /// Counts a commit that is unknown, wholly or in part.
    fn count_unknown(&self, committed: &Result<Reserved, EngineError>) {
        let Ok(Reserved { answer, is_repeated: false, .. }) = committed else { return };
        let verdicts = || answer.results.iter().map(|result| result.verdict);
        if verdicts().any(|it| it == Verdict::Unknown) && !verdicts().any(|it| it.is_unavailable())
        {
            self.inner.reservations.counts.unknown();
        }
    }
}

/// Returns `true` if the id of a commit is of no reservation: it has ended none of its items.
fn is_unknown(committed: &Result<Reserved, EngineError>) -> bool {
    match committed {
        // What was charged under it before is of no reservation either.
        Err(error) => {
            matches!(error, EngineError::OtherItems | EngineError::OtherNumber { .. })
        }
        Ok(Reserved { answer, .. }) => {
            let verdicts = || answer.results.iter().map(|result| result.verdict);
            let has_ended = |verdict| {
                matches!(verdict, Verdict::Committed(_) | Verdict::Cancelled(_) | Verdict::Late(_))
            };
            verdicts().any(|verdict| verdict == Verdict::Unknown)
                && !verdicts().any(|verdict| has_ended(verdict) || verdict.is_unavailable())
        }
    }
}
