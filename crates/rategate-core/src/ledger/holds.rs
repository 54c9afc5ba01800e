//! The holds of a ledger: what is held until its cost is known.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::Ledger;
use super::leads::Leads;
use crate::any_policy::Member;
use crate::debt::{Charged, Debt};
use crate::error::ExceedsCapacity;
use crate::exact::Exact;
use crate::holds::{Committed, Hold, HoldVerdict};
use crate::ordered_map::OrderedMap;
use crate::policy::{Bucket, Correction, Ended, Ending, Taken};
use crate::refund::{Refund, RefundEpoch};
use crate::verdict::{Grant, Settled, Ticket, Verdict};

/// The bytes that a hold counts, and those that the first one counts besides: no fewer than it
/// takes where chunks have just grown, as with the seventeenth.
const BYTES: usize = 112;
const FIRST_BYTES: usize = 512;

/// The holds that have not ended. They are apart, as few limits have any.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    /// The permits of holds of buckets alone whose place the leads know; by their ends, then in the
    /// order in which they were made.
    pub(super) led: OrderedMap<Place, u64>,
    /// All others.
    pub(super) others: OrderedMap<Place, Held>,
    /// Those of each limit, in order. Only buckets have any.
    pub(super) leads: Vec<Leads>,
}

/// The end of a hold, and its serial number.
type Place = (u64, u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) permits: u64,
    /// The start, the count of returns, and the basis of a refund, as its ticket has them.
    pub(super) start_ns: u64,
    pub(super) epoch: RefundEpoch,
    pub(super) busy_until_ns: u64,
    /// Set if the leads know its place, since nothing had been granted between the grant and the
    /// hold.
    is_led: bool,
}

/// A hold that ends.
struct EndedHold {
    serial: u64,
    permits: u64,
    /// `None` of buckets alone, whose leads know its place.
    refund: Option<Held>,
}

impl EndedHold {
    const fn is_led(&self) -> bool {
        match &self.refund {
            None => true,
            Some(held) => held.is_led,
        }
    }
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

    /// Returns the first end after `now_ns`.
    fn first_after(&self, now_ns: u64) -> Option<u64> {
        let from = (now_ns.saturating_add(1), 0);
        let led = self.led.at_or_after(from).map(|(&(end_ns, _), _)| end_ns);
        let other = self.others.at_or_after(from).map(|(&(end_ns, _), _)| end_ns);
        [led, other].into_iter().flatten().min()
    }

    /// Returns the end of the last.
    pub(super) fn last_end_ns(&self) -> Option<u64> {
        let led = self.led.last_key_value().map(|(&(end_ns, _), _)| end_ns);
        let other = self.others.last_key_value().map(|(&(end_ns, _), _)| end_ns);
        led.max(other)
    }

    fn remove(&mut self, place: Place) -> Option<EndedHold> {
        let (_, serial) = place;
        if let Some(permits) = self.led.remove(&place) {
            return Some(EndedHold { serial, permits, refund: None });
        }
        let held = self.others.remove(&place)?;
        Some(EndedHold { serial, permits: held.permits, refund: Some(held) })
    }

    fn len(&self) -> usize {
        self.led.len().saturating_add(self.others.len())
    }
}

impl Held {
    const fn new(permits: u64, ticket: Ticket, is_led: bool) -> Self {
        let Ticket { start_ns, epoch, busy_until_ns, .. } = ticket;
        Self { permits, start_ns, epoch, busy_until_ns, is_led }
    }

    /// Returns the refund of `permits` at `now_ns`, where the limit's count is `epoch`.
    pub(super) fn refund(&self, now_ns: u64, permits: u64, epoch: RefundEpoch) -> Refund {
        let Self { start_ns, permits: granted, busy_until_ns, .. } = *self;
        let returned = epoch.returned_since(self.epoch);
        Refund { now_ns, start_ns, granted, permits, busy_until_ns, returned }
    }
}

impl Ledger {
    /// Holds the permits of a grant that has started, until `end_ns`.
    ///
    /// Of the newest grant everything can come back. If others have been granted since, its excess
    /// comes back as by a [refund](Self::refund).
    pub fn hold_grant(&mut self, now_ns: u64, grant: &Grant, end_ns: u64) -> Hold {
        self.pass_to(now_ns);
        let (permits, ticket) = (grant.permits, grant.ticket);
        let serial = ticket.serial;
        if permits > 0 {
            let is_led = serial.saturating_add(1) == self.next_serial;
            let are_buckets = self.started.are_buckets();
            let limits = self.policies().len();
            let holds = self.holds.get_or_insert_default();
            if is_led {
                holds.leads.reserve_exact(limits.saturating_sub(holds.leads.len()));
                holds.leads.resize(limits, Leads::default());
                for (limit, leads) in self.started.as_slice().iter().zip(&mut holds.leads) {
                    if limit.policy().is_bucket() {
                        leads.add(serial);
                    }
                }
            }
            if is_led && are_buckets {
                holds.led.insert((end_ns, serial), permits);
            } else {
                holds.others.insert((end_ns, serial), Held::new(permits, ticket, is_led));
            }
        }
        Hold { serial, permits, end_ns }
    }

    /// Ends a hold of which `actual` permits were used, at most all of them. Returns how many came
    /// back, or `None` if it has ended before. Of several limits each takes back on its own, and the
    /// fewest are returned.
    pub fn end_hold(&mut self, now_ns: u64, hold: Hold, actual: u64) -> Option<u64> {
        self.pass_to(now_ns);
        let ended = self.holds.as_mut()?.remove((hold.end_ns, hold.serial))?;
        let unused = ended.permits.saturating_sub(actual);
        let released = ended.permits.saturating_sub(unused);
        Some(self.take_back(self.latest_ns, &ended, unused, released))
    }

    /// Returns the instant at which the next hold ends by itself.
    #[must_use]
    pub fn next_end_ns(&self) -> Option<u64> {
        self.holds.as_ref()?.first().map(|(end_ns, _)| end_ns)
    }

    /// Returns how long until the first hold ends that has not ended by `now_ns`.
    #[must_use]
    pub fn hold_ends_in_ns(&self, now_ns: u64) -> Option<u64> {
        let now_ns = self.clamp(now_ns);
        self.holds.as_ref()?.first_after(now_ns)?.checked_sub(now_ns)
    }

    /// Holds `permits` for `ttl_ns`, or denies them.
    ///
    /// A hold of zero permits always succeeds, and leaves no trace.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] for more permits than could ever pass together.
    pub fn try_hold(
        &mut self,
        now_ns: u64,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<HoldVerdict, ExceedsCapacity> {
        Ok(match self.try_acquire(now_ns, permits)? {
            Verdict::Granted(grant) => {
                let end_ns = grant.start_ns.saturating_add(ttl_ns);
                HoldVerdict::Held(self.hold_grant(now_ns, &grant, end_ns))
            }
            Verdict::Denied(denial) => HoldVerdict::Denied(denial),
        })
    }

    /// Ends a hold that turned out to cost `actual` permits.
    ///
    /// Less comes back as far as the limit allows, more is [charged](Self::charge). A limit that
    /// counts operations in flight, and nothing else, charges nothing.
    pub fn commit(&mut self, now_ns: u64, hold: Hold, actual: u64, debt: Debt) -> Committed {
        let back = if hold.permits == 0 {
            (self.clamp(now_ns) < hold.end_ns).then_some(0)
        } else {
            self.end_hold(now_ns, hold, actual.min(hold.permits))
        };
        let Some(permits) = back else {
            return Committed::Late(self.charge(now_ns, actual, debt).unwrap_or_default());
        };
        Committed::InTime(match actual.checked_sub(hold.permits).and_then(NonZeroU64::new) {
            None if actual == hold.permits => Settled::Even,
            None => Settled::Back { permits },
            Some(short) => match self.charge(now_ns, short.get(), debt) {
                Ok(Charged { booked: permits, forgiven, .. }) => {
                    Settled::Owed { permits, forgiven }
                }
                Err(_) => Settled::Even,
            },
        })
    }

    /// Ends a hold of which nothing was used. Returns how many permits came back, or `None` if it
    /// has ended before.
    pub fn cancel_hold(&mut self, now_ns: u64, hold: Hold) -> Option<u64> {
        self.end_hold(now_ns, hold, 0)
    }

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

    /// Ends the hold that ends first, at its instant.
    pub(super) fn expire_first(&mut self) {
        let Some(holds) = &mut self.holds else { return };
        let Some(place) = holds.first() else { return };
        let Some(ended) = holds.remove(place) else { return };
        let (end_ns, _) = place;
        // Its operation may have had its effect: one in flight is released, not aborted.
        self.take_back(end_ns, &ended, ended.permits, ended.permits);
    }

    /// Takes a grant that starts, by all limits or by one of them, in front of what comes back
    /// later.
    pub(super) fn take_started(&mut self, only: Option<usize>, taken: Taken) {
        if let Some(holds) = &mut self.holds {
            let start = Exact::at(taken.start_ns.into());
            for (leads, limit) in holds.leads.iter_mut().zip(self.started.as_slice()) {
                let Some(bucket) = limit.bucket() else { continue };
                let keeps_fraction =
                    taken.is_promise() && bucket.tat.rounds_up_to_at_least(taken.start_ns.into());
                leads.follow(bucket, if keeps_fraction { start.min(bucket.tat) } else { start });
            }
        }
        self.started.take(only, taken);
    }

    /// Follows a charge of one limit at the newest instant, which found the buckets as `before`.
    pub(super) fn note_charge(&mut self, at: usize, before: &[Option<Bucket>]) {
        if let Some(holds) = &mut self.holds
            && let (Some(leads), Some(Some(before))) = (holds.leads.get_mut(at), before.get(at))
        {
            leads.follow(*before, Exact::at(self.latest_ns.into()));
        }
    }

    /// Returns the buckets, where there are holds: `None` for each other limit.
    pub(super) fn buckets_with_holds(&self) -> Vec<Option<Bucket>> {
        match self.holds {
            None => Vec::new(),
            Some(_) => self.started.as_slice().iter().map(Member::bucket).collect(),
        }
    }

    /// Follows a credit at the newest instant, which found the buckets as `before`.
    pub(super) fn note_credit(&mut self, before: &[Option<Bucket>]) {
        let now = Exact::at(self.latest_ns.into());
        self.follow_buckets(before, |leads, before, after| {
            leads.follow_credit(before, now, before.pace.sub(before.tat, after.tat));
        });
    }

    /// Follows permits that came back without a hold, of the grant `serial` or of an unknown one.
    pub(super) fn note_refund(&mut self, before: &[Option<Bucket>], serial: Option<u64>) {
        // No later term would have to stay where it is.
        if serial.is_some_and(|serial| serial.saturating_add(1) == self.next_serial) {
            return;
        }
        // Grants of the lock-free form were made before all holds.
        let known = serial.filter(|&serial| serial < self.next_serial).unwrap_or(0);
        self.follow_buckets(before, |leads, before, after| {
            leads.follow_return(after.pace, known, after.pace.sub(before.tat, after.tat));
        });
    }

    /// Follows a change of the numbers, which found the buckets as `before`.
    pub(super) fn note_rebase(&mut self, before: &[Option<Bucket>]) {
        self.follow_buckets(before, |leads, before, after| {
            if before.pace != after.pace {
                leads.rescale(before.pace, after.pace);
            }
        });
    }

    fn follow_buckets(
        &mut self,
        before: &[Option<Bucket>],
        follow: impl Fn(&mut Leads, Bucket, Bucket),
    ) {
        let Some(holds) = &mut self.holds else { return };
        let limits = self.started.as_slice().iter().zip(before);
        for (leads, (limit, before)) in holds.leads.iter_mut().zip(limits) {
            if let (Some(before), Some(after)) = (*before, limit.bucket()) {
                follow(leads, before, after);
            }
        }
    }

    /// Takes back the `unused` permits of a hold that ends at `now_ns`. Returns how many came back
    /// to every limit. In limits on operations in flight, so many are released, and the others
    /// aborted.
    fn take_back(&mut self, now_ns: u64, ended: &EndedHold, unused: u64, released: u64) -> u64 {
        let serial = ended.serial;
        // Without one its bucket is none any more, and nothing comes back.
        let refund = ended.refund.map(|held| held.refund(now_ns, unused, self.epoch));
        let known = Some(serial).filter(|serial| serial.saturating_add(1) != self.next_serial);
        let (mut fewest, mut most) = (unused, 0);
        let mut leads = self.holds.as_deref_mut().map(|holds| holds.leads.iter_mut());
        for limit in self.started.as_mut_slice() {
            let leads = leads.as_mut().and_then(Iterator::next);
            let back = if limit.policy().counts_in_flight() {
                let aborted = ended.permits.saturating_sub(released);
                for (permits, how) in [(released, Ending::Released), (aborted, Ending::Aborted)] {
                    limit.correct(Correction::End(Ended { now_ns, permits, how }));
                }
                unused
            } else {
                match (limit.bucket(), leads) {
                    (Some(bucket), Some(leads)) if ended.is_led() => {
                        let after = leads.end(bucket, serial, bucket.pace.time_of(unused));
                        limit.set_bucket(after);
                        let back = bucket.pace.sub(bucket.tat, after.tat);
                        // A part of the last permit may have been earned.
                        u64::try_from(bucket.pace.permits_begun_in(back)).unwrap_or(u64::MAX)
                    }
                    (before, leads) => {
                        let back = refund.filter(|_| unused > 0).map(Correction::Back);
                        let back = back.and_then(|back| limit.correct(back)).unwrap_or(0);
                        let back = back.min(unused);
                        if let (Some(leads), Some(known), Some(before), Some(after)) =
                            (leads, known, before, limit.bucket())
                        {
                            let back = after.pace.sub(before.tat, after.tat);
                            leads.follow_return(after.pace, known, back);
                        }
                        back
                    }
                }
            };
            fewest = fewest.min(back);
            most = most.max(back);
        }
        if self.counts_in_flight() {
            self.booked = None;
        }
        self.note_return(most);
        self.drop_empty_holds();
        fewest
    }

    /// Follows the change of a limit to another policy, under which nothing of the holds so far
    /// comes back: their permits may have left the limit before.
    pub(super) fn note_other_policy(&mut self, at: usize) {
        let Some(holds) = &mut self.holds else { return };
        for held in holds.others.values_mut() {
            held.is_led = false;
        }
        if let Some(leads) = holds.leads.get_mut(at) {
            *leads = Leads::made_up_to(self.next_serial.saturating_sub(1));
        }
    }

    fn drop_empty_holds(&mut self) {
        if !self.has_holds() {
            self.holds = None;
        }
    }
}
