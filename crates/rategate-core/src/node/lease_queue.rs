//! The leases that a node has of one key: units usable until they end, and their remains after
//! that.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU64;

/// The maximum number of leases that a node has of one key.
///
/// When it needs another, the one that ends first is returned.
pub const MAX_LEASES: usize = 16;

/// The leases of a key, ordered by their ends.
#[derive(Clone, Debug)]
pub(super) struct LeaseQueue<R> {
    queue: VecDeque<Lease<R>>,
    /// Leases whose units are all used and may still be credited. At most [`MAX_LEASES`].
    used_up: VecDeque<Lease<R>>,
}

/// A lease: the units that one debit brought.
#[derive(Clone, Debug)]
pub(super) struct Lease<R> {
    pub(super) units: u64,
    /// The number of its units that the node has used, which is the maximum credit.
    pub(super) used: u64,
    /// The instant at which the lease ends. Units may be used before it.
    pub(super) ends_ns: u64,
    /// The instant from which the next debit does not count on this lease.
    pub(super) expires_soon_ns: u64,
    /// The instant before which no unit is returned: the callers that it was debited for are
    /// about to retry.
    pub(super) reserved_until_ns: u64,
    /// `true` if units are still worth returning once the lease has ended.
    pub(super) is_returned_at_end: bool,
    pub(super) receipt: R,
}

/// Units of several leases that are used, or will not be.
pub(super) type HeldUnits<R> = Vec<Lease<R>>;

/// A return: the receipt, and the number of units.
pub(super) type LeaseReturn<R> = (R, NonZeroU64);

impl<R> Lease<R> {
    /// Returns a lease that cannot be used, only returned.
    pub(super) const fn dead(units: u64, receipt: R) -> Self {
        let (used, ends_ns, expires_soon_ns, reserved_until_ns) = (0, 0, 0, 0);
        Self {
            units,
            used,
            ends_ns,
            expires_soon_ns,
            reserved_until_ns,
            is_returned_at_end: true,
            receipt,
        }
    }

    /// Uses units, of which there must be that many.
    #[inline]
    fn take(&mut self, units: u64) {
        self.units = self.units.saturating_sub(units);
        self.used = self.used.saturating_add(units);
    }

    /// Credits at most as many units as were used. Returns how many could not be credited.
    fn undo_take(&mut self, units: u64) -> u64 {
        let back = units.min(self.used);
        self.units = self.units.saturating_add(back);
        self.used = self.used.saturating_sub(back);
        units.saturating_sub(back)
    }

    fn into_back(self) -> Option<LeaseReturn<R>> {
        NonZeroU64::new(self.units).map(|units| (self.receipt, units))
    }
}

impl<R: Clone> LeaseQueue<R> {
    pub(super) const fn new() -> Self {
        Self { queue: VecDeque::new(), used_up: VecDeque::new() }
    }

    pub(super) fn add(&mut self, lease: Lease<R>) {
        let sooner = self.queue.iter().take_while(|other| other.ends_ns <= lease.ends_ns).count();
        self.queue.insert(sooner, lease);
    }

    /// Takes permits if that many are usable. Returns `true` if they were taken.
    #[inline]
    pub(super) fn take(&mut self, now_ns: u64, permits: u64) -> bool {
        let Some(first) = self.queue.front_mut() else { return false };
        if now_ns < first.ends_ns && permits <= first.units {
            first.take(permits);
            return true;
        }
        self.take_from_several(now_ns, permits)
    }

    fn take_from_several(&mut self, now_ns: u64, permits: u64) -> bool {
        if self.units(now_ns) < permits {
            return false;
        }
        let mut left = permits;
        for lease in self.queue.iter_mut().filter(|lease| now_ns < lease.ends_ns) {
            let taken = left.min(lease.units);
            lease.take(taken);
            left = left.saturating_sub(taken);
        }
        true
    }

    /// Takes permits if that many are usable, and returns them lease by lease, by their ends.
    pub(super) fn hold(&mut self, now_ns: u64, permits: u64) -> Option<HeldUnits<R>> {
        if self.units(now_ns) < permits {
            return None;
        }
        let mut left = permits;
        let mut held = Vec::new();
        for lease in self.queue.iter_mut().filter(|lease| now_ns < lease.ends_ns) {
            let units = left.min(lease.units);
            if units > 0 {
                lease.take(units);
                left = left.saturating_sub(units);
                held.push(Lease { units, ..lease.clone() });
            }
        }
        Some(held)
    }

    /// Takes back held units of which none was used: into leases that last, or to be returned.
    ///
    /// Returns how many are not lost.
    pub(super) fn end_hold(&mut self, now_ns: u64, unused: Lease<R>) -> u64 {
        let Lease { units, ends_ns, is_returned_at_end, receipt, .. } = unused;
        let left = self.credit(now_ns, units, ends_ns);
        if left == 0 || !is_returned_at_end {
            return units.saturating_sub(left);
        }
        self.add(Lease::dead(left, receipt));
        units
    }

    /// Returns the instant until which units taken now can be used.
    pub(super) fn ends_ns(&self, now_ns: u64) -> Option<u64> {
        self.queue.iter().map(|lease| lease.ends_ns).find(|&ends_ns| now_ns < ends_ns)
    }

    /// Credits units that could be used until `until_ns`, to leases that end no later. Returns how
    /// many fit none.
    pub(super) fn credit(&mut self, now_ns: u64, units: u64, until_ns: u64) -> u64 {
        let fits = |lease: &Lease<R>| now_ns < lease.ends_ns && lease.ends_ns <= until_ns;
        let mut left = units;
        for lease in self.queue.iter_mut().rev().filter(|lease| fits(lease)) {
            left = lease.undo_take(left);
        }
        while left > 0
            && let Some(index) = self.used_up.iter().rposition(fits)
            && let Some(mut lease) = self.used_up.remove(index)
        {
            left = lease.undo_take(left);
            self.add(lease);
        }
        left
    }

    /// Returns the number of usable units.
    pub(super) fn units(&self, now_ns: u64) -> u64 {
        self.sum(|lease| now_ns < lease.ends_ns)
    }

    /// Returns the units on which the next debit can count.
    pub(super) fn lasting(&self, now_ns: u64) -> u64 {
        self.sum(|lease| now_ns < lease.expires_soon_ns)
    }

    /// Removes the leases at the front that have ended or are used up. Stops at the first whose
    /// units have to be returned, and returns them.
    pub(super) fn over(&mut self, now_ns: u64) -> Option<LeaseReturn<R>> {
        let is_over = |lease: &Lease<R>| lease.units == 0 || lease.ends_ns <= now_ns;
        while self.queue.front().is_some_and(is_over) {
            let lease = self.queue.pop_front()?;
            if lease.units == 0 {
                self.keep_used_up(lease, now_ns);
            } else if lease.is_returned_at_end {
                return lease.into_back();
            }
        }
        None
    }

    fn keep_used_up(&mut self, lease: Lease<R>, now_ns: u64) {
        self.used_up.retain(|lease| now_ns < lease.ends_ns);
        if now_ns < lease.ends_ns {
            if self.used_up.len() >= MAX_LEASES {
                self.used_up.pop_front();
            }
            self.used_up.push_back(lease);
        }
    }

    /// Removes at most `max` units from the lease that ends last, except those that callers are
    /// about to use.
    pub(super) fn cut(&mut self, now_ns: u64, max: u64) -> Option<LeaseReturn<R>> {
        let is_settled =
            |lease: &&mut Lease<R>| lease.units > 0 && lease.reserved_until_ns <= now_ns;
        let lease = self.queue.iter_mut().rev().find(is_settled)?;
        let units = NonZeroU64::new(max.min(lease.units))?;
        lease.units = lease.units.saturating_sub(units.get());
        Some((lease.receipt.clone(), units))
    }

    /// Removes the lease that must be returned before one more fits, if there is one.
    pub(super) fn take_surplus(&mut self) -> Option<LeaseReturn<R>> {
        if self.queue.len() < MAX_LEASES {
            return None;
        }
        self.queue.retain(|lease| lease.units > 0);
        if self.queue.len() < MAX_LEASES {
            return None;
        }
        self.queue.pop_front().and_then(Lease::into_back)
    }

    pub(super) fn first(&self) -> Option<&Lease<R>> {
        self.queue.front()
    }

    /// Returns the next instant from which units that are reserved now may be returned.
    pub(super) fn settles_ns(&self, now_ns: u64) -> Option<u64> {
        let reserved_until = self.queue.iter().map(|lease| lease.reserved_until_ns);
        reserved_until.filter(|&at_ns| at_ns > now_ns).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns `true` if no units are left, to use or to return.
    pub(super) fn are_used_up(&self) -> bool {
        self.queue.iter().all(|lease| lease.units == 0)
    }

    fn sum(&self, counts: impl Fn(&Lease<R>) -> bool) -> u64 {
        let counted = self.queue.iter().filter(|lease| counts(lease));
        counted.fold(0, |sum, lease| sum.saturating_add(lease.units))
    }
}
