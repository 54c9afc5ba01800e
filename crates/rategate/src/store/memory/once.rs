//! Requests that count once under an id: charges and credits.

use std::num::NonZeroU64;

use rategate_core::debt::Debt;

use super::entry::Entry;
use super::entry::reservations::OnceOutcome;
use super::plan::{Labelled, MemoryPlan};
use super::shard::Shard;
use super::{MemoryStore, refuse_if};
use crate::clock::Clock;
use crate::store::{ChargeReply, CreditReply, Key, Reply, ReservationId, StoreError};

/// A charge of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge<'a> {
    pub(super) plan: &'a MemoryPlan,
    pub(super) permits: u64,
    pub(super) debt: Debt,
    pub(super) once: Option<ReservationId>,
}

/// An id that is not known yet, and the permits of its request.
#[derive(Clone, Copy, Debug)]
struct NewId {
    id: ReservationId,
    permits: NonZeroU64,
}

impl<C: Clock> MemoryStore<C> {
    pub(super) fn charge(&self, key: &Key, charge: Charge<'_>) -> Result<Reply, StoreError> {
        let Charge { plan, permits, debt, once } = charge;
        if plan.limits().iter().all(Labelled::holds) {
            return Err(StoreError::CountsInFlight);
        }
        // What charges nothing changes nothing, however often it comes.
        let new = NonZeroU64::new(permits).and_then(|permits| Some(NewId { id: once?, permits }));
        self.count_once(key, new, |entry, now_ns, known| match known {
            Some(OnceOutcome::Credited(_)) => Err(StoreError::OtherRequest),
            Some(OnceOutcome::Charged(charged)) => {
                let reply = entry.charge_reply(plan, permits, charged, now_ns);
                let reply = ChargeReply { is_repeated: true, ..reply };
                Ok((Reply::Charged(reply), None))
            }
            None => {
                let reply = entry.charge(plan, (permits, debt), now_ns);
                let outcome = (permits > 0).then_some(OnceOutcome::Charged(reply.charged));
                Ok((Reply::Charged(reply), outcome))
            }
        })
    }

    pub(super) fn credit(
        &self,
        key: &Key,
        plan: &MemoryPlan,
        (permits, once): (NonZeroU64, Option<ReservationId>),
    ) -> Result<Reply, StoreError> {
        refuse_if(plan.holds(), "permits in flight are released, not credited")?;
        let new = once.map(|id| NewId { id, permits });
        self.count_once(key, new, |entry, now_ns, known| {
            let (permits, is_repeated) = match known {
                Some(OnceOutcome::Charged(_)) => return Err(StoreError::OtherRequest),
                Some(OnceOutcome::Credited(permits)) => (permits, true),
                None => (entry.credit(plan, permits.get().min(plan.capacity()), now_ns), false),
            };
            let is_new = !is_repeated && (once.is_some() || permits > 0);
            let reply = Reply::Credited(CreditReply { permits, is_repeated });
            Ok((reply, is_new.then_some(OnceOutcome::Credited(permits))))
        })
    }

    /// Makes a request, with what is known under its id. Remembers the key if it has an outcome.
    fn count_once(
        &self,
        key: &Key,
        new: Option<NewId>,
        request: impl FnOnce(
            &mut Entry,
            u64,
            Option<OnceOutcome>,
        ) -> Result<(Reply, Option<OnceOutcome>), StoreError>,
    ) -> Result<Reply, StoreError> {
        if new.is_some() && self.ids.is_full() {
            self.forget_ids();
        }
        let (mut shard, now_ns) = self.shard(key);
        let mut known = None;
        if let Some(NewId { id, permits }) = new {
            shard.forget_over(key, id, &self.ids);
            known = shard.entry(key).map_or(Ok(None), |entry| entry.outcome_once(id, permits))?;
        }
        let new = new.filter(|_| known.is_none());
        if new.is_some() && !self.ids.take() {
            return Err(self.too_many_ids());
        }
        let counted = Self::count_in(&mut shard, key, |entry| {
            let (reply, outcome) = request(entry, now_ns, known)?;
            let noted = new.zip(outcome).map(|(NewId { id, permits }, outcome)| {
                (id, entry.remember_once(id, permits, outcome, now_ns))
            });
            Ok((reply, noted, outcome.is_some()))
        });
        match counted {
            Ok((reply, noted)) => {
                if let Some((id, due_ns)) = noted {
                    shard.note_id(key, id, due_ns);
                }
                Ok(reply)
            }
            Err(error) => {
                self.ids.replace(usize::from(new.is_some()), 0);
                Err(error)
            }
        }
    }

    /// Changes the entry of a key, which is added if it is new and has changed.
    fn count_in<N>(
        shard: &mut Shard,
        key: &Key,
        change: impl FnOnce(&mut Entry) -> Result<(Reply, N, bool), StoreError>,
    ) -> Result<(Reply, N), StoreError> {
        if let Some(entry) = shard.entry(key) {
            let (reply, noted, _) = change(entry)?;
            return Ok((reply, noted));
        }
        let mut entry = shard.unused();
        let (reply, noted, has_changed) = change(&mut entry)?;
        if has_changed {
            shard.remember(Key::clone(key), entry)?;
        }
        Ok((reply, noted))
    }
}
