//! The holds of a ledger: what is held until its cost is known.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::num::NonZeroU64;

use super::Ledger;
use super::leads::Leads;
use crate::exact::Exact;
use crate::holds::{Hold, Holding};
use crate::limit::Limit;
use crate::policy::{Bucket, Policy, Taken};
use crate::refund::Refund;
use crate::verdict::{Grant, Opening, Refusal, Ticket};

/// The holds that have not ended, and what else few limits have: it is apart to keep them small.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    /// Those that a bucket takes back exactly.
    leads: Leads,
    /// All others, by their ends, then in the order in which they were made.
    others: BTreeMap<(u64, u64), Held>,
    /// The bucket at the rate that the leads count in, while the limit has none.
    parked: Option<Bucket>,
    /// The serial number below which grants may have started at other instants than their tickets
    /// name.
    pub(super) first_on_time: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    permits: u64,
    ticket: Ticket,
}

impl Holds {
    fn next_end_ns(&self) -> Option<u64> {
        let other_ns = self.others.first_key_value().map(|(&(end_ns, _), _)| end_ns);
        [self.leads.next_end_ns(), other_ns].into_iter().flatten().min()
    }
}

impl<P: Policy> Holding for Ledger<P> {
    fn hold_grant(&mut self, now_ns: u64, grant: &Grant, end_ns: u64) -> Hold {
        self.pass_to(now_ns);
        let (permits, ticket) = (grant.permits, grant.ticket);
        let serial = ticket.serial;
        if permits > 0 {
            let is_newest = serial.saturating_add(1) == self.next_serial;
            let bucket = self.policy.bucket(&self.started).filter(|_| is_newest);
            let holds = self.holds.get_or_insert_default();
            let hold = (serial, permits);
            let leads =
                bucket.is_some_and(|bucket| holds.leads.add(bucket, hold, ticket.start_ns, end_ns));
            if !leads {
                holds.others.insert((end_ns, serial), Held { permits, ticket });
            }
        }
        Hold { serial, permits, end_ns }
    }

    fn end_hold(&mut self, now_ns: u64, hold: Hold, actual: u64) -> Option<u64> {
        self.pass_to(now_ns);
        let now_ns = self.latest_ns;
        let bucket = self.policy.bucket(&self.started);
        let holds = self.holds.as_mut()?;
        let Some(ended) = holds.others.remove(&(hold.end_ns, hold.serial)) else {
            let Some(before) = bucket else {
                // The state cannot take anything back.
                let parked = holds.parked?;
                holds.leads.end(parked, now_ns, hold.serial, u64::MAX)?;
                self.drop_empty_holds();
                return Some(0);
            };
            let (_, after) = holds.leads.end(before, now_ns, hold.serial, actual)?;
            return Some(self.move_back(before, after));
        };
        let unused = ended.permits.saturating_sub(actual);
        if self.policy.counts_in_flight() {
            self.policy.release(&mut self.started, now_ns, ended.permits.min(actual));
            self.policy.abort(&mut self.started, now_ns, unused);
            self.booked = None;
            self.note_return(unused);
            self.drop_empty_holds();
            return Some(unused);
        }
        Some(self.take_back(now_ns, ended, unused))
    }

    fn next_end_ns(&self) -> Option<u64> {
        self.holds.as_ref()?.next_end_ns()
    }
}

impl<P: Policy> Ledger<P> {
    /// Returns this ledger as it is at `now_ns`, if a hold has ended since it was last used.
    pub(super) fn caught_up(&self, now_ns: u64) -> Option<Self> {
        let now_ns = self.clamp(now_ns);
        self.next_end_ns().filter(|&end_ns| end_ns <= now_ns)?;
        let mut copy = self.clone();
        copy.pass_to(now_ns);
        Some(copy)
    }

    /// Returns `true` if anything is held.
    pub(super) fn has_holds(&self) -> bool {
        self.next_end_ns().is_some()
    }

    /// Returns `true` if nothing is held, and no memory of holds is left to free.
    pub(super) fn is_free_of_holds(&self) -> bool {
        self.holds
            .as_ref()
            .is_none_or(|holds| holds.next_end_ns().is_none() && holds.leads.is_free())
    }

    /// Returns the serial number from which on all grants have started when their tickets say.
    pub(super) fn first_on_time(&self) -> u64 {
        self.holds.as_ref().map_or(0, |holds| holds.first_on_time)
    }

    /// Records that all grants so far may have started before their time.
    pub(super) fn note_early_start(&mut self) {
        self.holds.get_or_insert_default().first_on_time = self.next_serial;
    }

    /// Returns what [`fresh_at_ns`](Self::fresh_at_ns) does, where each hold runs to its end.
    pub(super) fn fresh_after_ends_ns(&self, now_ns: u64) -> Option<u64> {
        let by =
            |fresh_ns: &Option<u64>, end_ns| fresh_ns.is_some_and(|fresh_ns| fresh_ns <= end_ns);
        let fresh_in = |state: &P::State, from_ns| {
            Some(self.policy.fresh_at_ns(state)?.max(self.floor_ns).max(from_ns))
        };
        if let Some(fresh_ns) = self.after_ends(now_ns, fresh_in, by) {
            return fresh_ns;
        }
        // One copy for all ends: each takes as long as there are holds.
        let mut after = self.caught_up(now_ns);
        loop {
            let limit = after.as_ref().unwrap_or(self);
            let fresh_ns = limit.fresh_while_held_ns(now_ns);
            let Some(end_ns) = limit.next_end_ns() else { return fresh_ns };
            if by(&fresh_ns, end_ns) {
                return fresh_ns;
            }
            after.get_or_insert_with(|| self.clone()).pass_to(end_ns);
        }
    }

    /// Returns the first opening for a try, where each hold runs to its end. `None` unless all
    /// holds are of a bucket, and nothing else has to be considered.
    pub(super) fn opening_after_leads(
        &self,
        now_ns: u64,
        permits: NonZeroU64,
    ) -> Option<Result<Opening, Refusal>> {
        let now_ns = self.clamp(now_ns);
        let opening = |state: &P::State, from_ns: u64| {
            let opening = self.policy.opening(state, from_ns, permits);
            opening.map_err(|refusal| refusal.seen_from(from_ns.saturating_sub(now_ns)))
        };
        self.after_ends(now_ns, opening, |opening, end_ns| match opening {
            Ok(opening) => opening.opens_ns <= end_ns,
            // Nothing that comes back makes a limit larger.
            Err(refusal) => matches!(refusal, Refusal::Exceeds(_)),
        })
    }

    /// Returns what `find` does in the first state from which on no end changes it: now, or after
    /// the end of a hold, as `is_by` finds for the instant of the next end. What is found by one
    /// end is found by all later ones. `None` unless all holds are of a bucket, and nothing else
    /// has to be considered.
    fn after_ends<T>(
        &self,
        now_ns: u64,
        find: impl Fn(&P::State, u64) -> T,
        is_by: impl Fn(&T, u64) -> bool,
    ) -> Option<T> {
        let now_ns = self.clamp(now_ns);
        let holds = self.holds.as_ref()?;
        let is_plain = holds.others.is_empty() && self.promises.is_empty();
        if !is_plain || self.held > 0 || self.floor_ns > now_ns {
            return None;
        }
        let bucket = self.policy.bucket(&self.started)?;
        let found_at = |then_ns| {
            let mut state = self.started.clone();
            self.policy.set_bucket(&mut state, holds.leads.bucket_at(bucket, then_ns));
            find(&state, then_ns)
        };
        let first = found_at(now_ns);
        if holds.leads.next_end_ns().is_some_and(|end_ns| end_ns > now_ns && is_by(&first, end_ns))
        {
            return Some(first);
        }
        let ends = holds.leads.ends_ns(now_ns);
        let Some(&end_ns) = ends.first() else { return Some(first) };
        if is_by(&first, end_ns) {
            return Some(first);
        }
        // The last end has no other after it.
        let (mut low, mut high) = (0, ends.len().saturating_sub(1));
        let at = |index: usize| ends.get(index).copied().unwrap_or(u64::MAX);
        while low < high {
            let middle = low.midpoint(high);
            if is_by(&found_at(at(middle)), at(middle.saturating_add(1))) {
                high = middle;
            } else {
                low = middle.saturating_add(1);
            }
        }
        Some(found_at(at(low)))
    }

    /// Returns the state at `now_ns` where holds of a bucket have ended since it was last used.
    /// `None` if nothing has ended, or if that is not all that has to be considered.
    pub(super) fn state_after_ends(&self, now_ns: u64) -> Option<P::State> {
        let (now_ns, holds) = (self.clamp(now_ns), self.holds.as_ref()?);
        let is_due = holds.leads.next_end_ns().is_some_and(|end_ns| end_ns <= now_ns);
        if !is_due || !holds.others.is_empty() || !self.promises.is_empty() {
            return None;
        }
        let bucket = self.policy.bucket(&self.started)?;
        let mut state = self.started.clone();
        self.policy.set_bucket(&mut state, holds.leads.bucket_at(bucket, now_ns));
        Some(state)
    }

    /// Ends the holds whose time is over at `end_ns`, the first end, and of a bucket all those
    /// until `now_ns` if nothing else happens until then.
    pub(super) fn expire(&mut self, end_ns: u64, now_ns: u64) {
        let Some(holds) = &mut self.holds else { return };
        if holds.leads.next_end_ns().is_none_or(|first_ns| first_ns > end_ns) {
            return self.expire_other();
        }
        let other_ns = holds.others.first_key_value().map(|(&(end_ns, _), _)| end_ns);
        let is_alone = self.promises.is_empty() && other_ns.is_none_or(|end_ns| end_ns > now_ns);
        let until_ns = if is_alone { now_ns } else { end_ns };
        self.latest_ns = self.latest_ns.max(until_ns);
        if let Some(before) = self.policy.bucket(&self.started) {
            let after = holds.leads.expire(before, until_ns);
            self.move_back(before, after);
        } else {
            if let Some(parked) = holds.parked {
                holds.leads.expire_used(parked, until_ns);
            }
            self.drop_empty_holds();
        }
    }

    /// Ends the hold of no bucket that ends first, at its instant.
    fn expire_other(&mut self) {
        let first = self.holds.as_mut().and_then(|holds| holds.others.pop_first());
        let Some(((end_ns, _), held)) = first else { return };
        if self.policy.counts_in_flight() {
            // Its operation may have had its effect.
            self.policy.release(&mut self.started, end_ns, held.permits);
            self.note_return(held.permits);
            self.drop_empty_holds();
        } else {
            self.take_back(end_ns, held, held.permits);
        }
    }

    /// Takes a grant that starts, in front of what comes back later.
    pub(super) fn take_started(&mut self, taken: Taken) {
        if let Some(holds) = &mut self.holds
            && let Some(bucket) = self.policy.bucket(&self.started)
        {
            let start = Exact::at(taken.start_ns.into());
            let keeps_fraction =
                taken.is_promise() && bucket.tat.rounds_up_to_at_least(taken.start_ns.into());
            let start = if keeps_fraction { start.min(bucket.tat) } else { start };
            holds.leads.follow(bucket, start, taken.permits.get());
        }
        self.policy.take(&mut self.started, taken);
    }

    /// Follows a charge at the newest instant, which found the bucket as `before`.
    pub(super) fn note_charge(&mut self, before: Option<Bucket>) {
        let after = self.bucket_with_holds();
        if let (Some(holds), Some(before), Some(after)) = (&mut self.holds, before, after) {
            holds.leads.follow_charge(before, after, Exact::at(self.latest_ns.into()));
        }
    }

    /// Returns the bucket, where there are holds.
    pub(super) fn bucket_with_holds(&self) -> Option<Bucket> {
        self.holds.as_ref()?;
        self.policy.bucket(&self.started)
    }

    /// Follows permits that came back without a hold, of the grant `serial` or of an unknown one.
    pub(super) fn note_refund(&mut self, before: Option<Bucket>, serial: Option<u64>) {
        let after = self.bucket_with_holds();
        if let (Some(holds), Some(before), Some(after)) = (&mut self.holds, before, after) {
            // Grants of the lock-free form were made before all holds.
            let known = serial.filter(|&serial| serial < self.next_serial).unwrap_or(0);
            let back = after.pace.sub(before.tat, after.tat);
            holds.leads.follow_return(after, self.latest_ns, known, back);
        }
    }

    /// Follows a change of the numbers, which found the bucket as `before`.
    pub(super) fn note_rebase(&mut self, before: Option<Bucket>) {
        let after = self.bucket_with_holds();
        let Some(holds) = &mut self.holds else { return };
        let before = before.or(holds.parked);
        holds.parked = if after.is_none() { before } else { None };
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            holds.leads.rescale(before, after, self.latest_ns);
        }
    }

    /// Moves the bucket back to `after`. Returns how many permits came back.
    fn move_back(&mut self, before: Bucket, after: Bucket) -> u64 {
        let back = before.pace.sub(before.tat, after.tat);
        self.policy.set_bucket(&mut self.started, after);
        let count = |permits: u128| u64::try_from(permits).unwrap_or(u64::MAX);
        self.note_return(count(before.pace.permits_begun_in(back)));
        self.drop_empty_holds();
        count(before.pace.permits_in(back))
    }

    /// Takes back `unused` permits of a hold of no bucket that ends at `now_ns`. Returns how many
    /// came back.
    fn take_back(&mut self, now_ns: u64, held: Held, unused: u64) -> u64 {
        let Ticket { start_ns, serial, rest, epoch } = held.ticket;
        let before = self.bucket_with_holds();
        let (granted, permits) = (held.permits, unused);
        let returned = self.epoch.returned_since(epoch);
        let refund = Refund { now_ns, start_ns, granted, permits, rest, returned };
        let back = match unused {
            0 => 0,
            _ => self.policy.refund(&mut self.started, refund).min(unused),
        };
        self.note_refund(before, Some(serial));
        self.note_return(back);
        self.drop_empty_holds();
        back
    }

    /// Drops what nothing needs any more, a little of it with each call.
    pub(super) fn drop_empty_holds(&mut self) {
        let Some(holds) = &mut self.holds else { return };
        holds.leads.tidy();
        if self.is_free_of_holds() {
            let first_on_time = self.first_on_time();
            let is_needed = first_on_time > 0;
            self.holds = is_needed.then(|| Box::new(Holds { first_on_time, ..Holds::default() }));
        }
    }
}
