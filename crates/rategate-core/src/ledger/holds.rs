//! The holds of a ledger: what is held until its cost is known.

use alloc::boxed::Box;

use super::Ledger;
use super::leads::Leads;
use crate::exact::Exact;
use crate::holds::{Hold, Holding};
use crate::limit::Limit;
use crate::ordered_map::OrderedMap;
use crate::policy::{Bucket, Policy, Taken};
use crate::refund::{Refund, RefundBasis, RefundEpoch};
use crate::verdict::{Grant, Ticket};

/// The bytes that a hold counts, and those that the first one counts besides: no fewer than it
/// takes where chunks have just grown, as with the seventeenth.
const BYTES: usize = 96;
const FIRST_BYTES: usize = 512;

/// The holds that have not ended, and what else few limits have: it is apart to keep them small.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    /// The permits of holds whose place the leads know, since nothing had been granted between the
    /// grant and the hold; by their ends, then in the order in which they were made.
    pub(super) led: OrderedMap<Place, u64>,
    /// All others.
    pub(super) others: OrderedMap<Place, Held>,
    pub(super) leads: Leads,
    /// The serial number below which grants may have started at other instants than their tickets
    /// name.
    pub(super) first_on_time: u64,
}

/// The end of a hold, and its serial number.
type Place = (u64, u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) permits: u64,
    /// The start, and the count of returns, as its ticket has them.
    pub(super) start_ns: u64,
    pub(super) epoch: RefundEpoch,
    /// The basis of a refund: until when, or parts and the number of parts in one permit.
    pub(super) rest: (u64, u64),
}

/// A hold that ends.
struct Ended {
    serial: u64,
    permits: u64,
    /// `None` if the leads know its place.
    refund: Option<Held>,
}

impl Holds {
    /// Returns the place of the hold that ends first.
    fn first(&self) -> Option<Place> {
        let firsts = (self.led.first_key_value(), self.others.first_key_value());
        match firsts {
            (Some((&led, _)), Some((&other, _))) => Some(led.min(other)),
            (led, other) => led.map(|(&at, _)| at).or_else(|| other.map(|(&at, _)| at)),
        }
    }

    fn remove(&mut self, place: Place) -> Option<Ended> {
        let (_, serial) = place;
        if let Some(permits) = self.led.remove(&place) {
            return Some(Ended { serial, permits, refund: None });
        }
        let held = self.others.remove(&place)?;
        Some(Ended { serial, permits: held.permits, refund: Some(held) })
    }

    fn len(&self) -> usize {
        self.led.len().saturating_add(self.others.len())
    }
}

impl Held {
    const fn new(permits: u64, ticket: Ticket) -> Self {
        let rest = match ticket.rest {
            RefundBasis::BusyUntil(until_ns) => (until_ns, 0),
            RefundBasis::Leftover { parts, parts_per_permit } => (parts, parts_per_permit),
        };
        Self { permits, start_ns: ticket.start_ns, epoch: ticket.epoch, rest }
    }

    /// Returns the refund of `permits` at `now_ns`, where the limit's count is `epoch`.
    pub(super) fn refund(&self, now_ns: u64, permits: u64, epoch: RefundEpoch) -> Refund {
        let rest = match self.rest {
            (until_ns, 0) => RefundBasis::BusyUntil(until_ns),
            (parts, parts_per_permit) => RefundBasis::Leftover { parts, parts_per_permit },
        };
        let (start_ns, granted) = (self.start_ns, self.permits);
        let returned = epoch.returned_since(self.epoch);
        Refund { now_ns, start_ns, granted, permits, rest, returned }
    }
}

impl<P: Policy> Holding for Ledger<P> {
    fn hold_grant(&mut self, now_ns: u64, grant: &Grant, end_ns: u64) -> Hold {
        self.pass_to(now_ns);
        let (permits, ticket) = (grant.permits, grant.ticket);
        let serial = ticket.serial;
        if permits > 0 {
            let is_newest = serial.saturating_add(1) == self.next_serial;
            let is_led = is_newest && self.policy.is_bucket();
            let holds = self.holds.get_or_insert_default();
            if is_led {
                holds.leads.add(serial);
                holds.led.insert((end_ns, serial), permits);
            } else {
                holds.others.insert((end_ns, serial), Held::new(permits, ticket));
            }
        }
        Hold { serial, permits, end_ns }
    }

    fn end_hold(&mut self, now_ns: u64, hold: Hold, actual: u64) -> Option<u64> {
        self.pass_to(now_ns);
        let ended = self.holds.as_mut()?.remove((hold.end_ns, hold.serial))?;
        let unused = ended.permits.saturating_sub(actual);
        let now_ns = self.latest_ns;
        if self.policy.counts_in_flight() {
            self.policy.release(&mut self.started, now_ns, ended.permits.min(actual));
            self.policy.abort(&mut self.started, now_ns, unused);
            self.booked = None;
            self.note_return(unused);
            self.drop_empty_holds();
            return Some(unused);
        }
        Some(self.take_back(now_ns, &ended, unused))
    }

    fn next_end_ns(&self) -> Option<u64> {
        self.holds.as_ref()?.first().map(|(end_ns, _)| end_ns)
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

    /// Returns the approximate bytes of what is held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let count = self.holds.as_ref().map_or(0, |holds| holds.len());
        if count == 0 { 0 } else { count.saturating_mul(BYTES).saturating_add(FIRST_BYTES) }
    }

    /// Returns `true` if anything is held.
    pub(super) fn has_holds(&self) -> bool {
        self.holds.as_ref().is_some_and(|holds| holds.len() > 0)
    }

    /// Returns the serial number from which on all grants have started when their tickets say.
    pub(super) fn first_on_time(&self) -> u64 {
        self.holds.as_ref().map_or(0, |holds| holds.first_on_time)
    }

    /// Records that all grants so far may have started before their time.
    pub(super) fn note_early_start(&mut self) {
        self.holds.get_or_insert_default().first_on_time = self.next_serial;
    }

    /// Ends the hold that ends first, at its instant.
    pub(super) fn expire_first(&mut self) {
        let Some(holds) = &mut self.holds else { return };
        let Some(place) = holds.first() else { return };
        let Some(held) = holds.remove(place) else { return };
        let (end_ns, _) = place;
        if self.policy.counts_in_flight() {
            // Its operation may have had its effect.
            self.policy.release(&mut self.started, end_ns, held.permits);
            self.note_return(held.permits);
            self.drop_empty_holds();
        } else {
            self.take_back(end_ns, &held, held.permits);
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
            holds.leads.follow(bucket, if keeps_fraction { start.min(bucket.tat) } else { start });
        }
        self.policy.take(&mut self.started, taken);
    }

    /// Follows a charge at the newest instant, which found the bucket as `before`.
    pub(super) fn note_charge(&mut self, before: Option<Bucket>) {
        if let (Some(holds), Some(before)) = (&mut self.holds, before) {
            holds.leads.follow(before, Exact::at(self.latest_ns.into()));
        }
    }

    /// Returns the bucket, where there are holds.
    pub(super) fn bucket_with_holds(&self) -> Option<Bucket> {
        self.holds.as_ref()?;
        self.policy.bucket(&self.started)
    }

    /// Follows a credit at the newest instant, which found the bucket as `before`.
    pub(super) fn note_credit(&mut self, before: Option<Bucket>) {
        let after = self.bucket_with_holds();
        if let (Some(holds), Some(before), Some(after)) = (&mut self.holds, before, after) {
            let back = before.pace.sub(before.tat, after.tat);
            holds.leads.follow_credit(before, Exact::at(self.latest_ns.into()), back);
        }
    }

    /// Follows permits that came back without a hold, of the grant `serial` or of an unknown one.
    pub(super) fn note_refund(&mut self, before: Option<Bucket>, serial: Option<u64>) {
        // No later term would have to stay where it is.
        let is_newest = serial.is_some_and(|serial| serial.saturating_add(1) == self.next_serial);
        let after = self.bucket_with_holds();
        if let (Some(holds), Some(before), Some(after)) = (&mut self.holds, before, after)
            && !is_newest
        {
            // Grants of the lock-free form were made before all holds.
            let known = serial.filter(|&serial| serial < self.next_serial);
            let back = after.pace.sub(before.tat, after.tat);
            holds.leads.follow_return(after.pace, known.unwrap_or(0), back);
        }
    }

    /// Follows a change of the numbers, which found the bucket as `before`.
    pub(super) fn note_rebase(&mut self, before: Option<Bucket>) {
        let after = self.bucket_with_holds();
        let Some(holds) = &mut self.holds else { return };
        match (before, after) {
            (Some(before), Some(after)) if before.pace != after.pace => {
                holds.leads.rescale(before.pace, after.pace);
            }
            _ => {}
        }
    }

    /// Takes back `unused` permits of a hold that ends at `now_ns`. Returns how many came back.
    fn take_back(&mut self, now_ns: u64, ended: &Ended, unused: u64) -> u64 {
        let serial = ended.serial;
        let bucket = self.policy.bucket(&self.started);
        let back = if let Some(bucket) = bucket.filter(|_| ended.refund.is_none())
            && let Some(holds) = &mut self.holds
        {
            let after = holds.leads.end(bucket, serial, bucket.pace.time_of(unused));
            let back = bucket.pace.sub(bucket.tat, after.tat);
            self.policy.set_bucket(&mut self.started, after);
            // A part of the last permit may have been earned.
            u64::try_from(bucket.pace.permits_begun_in(back)).unwrap_or(u64::MAX)
        } else {
            let refund = match &ended.refund {
                Some(held) => held.refund(now_ns, unused, self.epoch),
                // Its bucket is none any more: all comes back, or nothing.
                None => Refund { returned: None, ..Refund::proven(now_ns, unused) },
            };
            let back = match unused {
                0 => 0,
                _ => self.policy.refund(&mut self.started, refund).min(unused),
            };
            self.note_refund(bucket, Some(serial));
            back
        };
        self.note_return(back);
        self.drop_empty_holds();
        back
    }

    fn drop_empty_holds(&mut self) {
        if !self.has_holds() {
            let first_on_time = self.first_on_time();
            let is_needed = first_on_time > 0;
            self.holds = is_needed.then(|| Box::new(Holds { first_on_time, ..Holds::default() }));
        }
    }
}
