//! The leases that a node has of one key: units usable until they end, and their remains after
//! that.

use alloc::collections::VecDeque;
use core::num::NonZeroU64;

/// The maximum number of leases that a node has of one key.
///
/// When it needs another, the one that ends first is returned.
pub const MAX_LOTS: usize = 16;

/// The leases of a key, ordered by their ends.
#[derive(Clone, Debug)]
pub(super) struct Lots<R> {
    queue: VecDeque<Lot<R>>,
    /// Leases whose units are all used and may still be credited. At most [`MAX_LOTS`].
    used_up: VecDeque<Lot<R>>,
}

/// A lease: the units that one debit brought.
#[derive(Clone, Debug)]
pub(super) struct Lot<R> {
    pub(super) units: u64,
    /// The number of the node's units that are used, which is the maximum credit.
    pub(super) used: u64,
    /// The instant at which the lease ends. Units may be used before it.
    pub(super) ends_ns: u64,
    /// The instant from which the next debit does not count on this lease.
    pub(super) fades_ns: u64,
    /// The instant before which no unit is returned: the callers that it was debited for are
    /// about to retry.
    pub(super) kept_until_ns: u64,
    /// `true` if units are still worth returning once the lease has ended.
    pub(super) is_returned_at_end: bool,
    pub(super) receipt: R,
}

/// A return: the receipt, and the number of units.
pub(super) type Back<R> = (R, NonZeroU64);

impl<R> Lot<R> {
    /// Returns a lease that cannot be used, only returned.
    pub(super) const fn dead(units: u64, receipt: R) -> Self {
        let (used, ends_ns, fades_ns, kept_until_ns) = (0, 0, 0, 0);
        Self { units, used, ends_ns, fades_ns, kept_until_ns, is_returned_at_end: true, receipt }
    }

    /// Uses units, of which there must be that many.
    #[inline]
    fn take(&mut self, units: u64) {
        self.units = self.units.saturating_sub(units);
        self.used = self.used.saturating_add(units);
    }

    /// Credits at most as many units as were used. Returns how many could not be credited.
    fn untake(&mut self, units: u64) -> u64 {
        let back = units.min(self.used);
        self.units = self.units.saturating_add(back);
        self.used = self.used.saturating_sub(back);
        units.saturating_sub(back)
    }

    fn into_back(self) -> Option<Back<R>> {
        NonZeroU64::new(self.units).map(|units| (self.receipt, units))
    }
}

impl<R: Clone> Lots<R> {
    pub(super) const fn new() -> Self {
        Self { queue: VecDeque::new(), used_up: VecDeque::new() }
    }

    pub(super) fn add(&mut self, lot: Lot<R>) {
        let sooner = self.queue.iter().take_while(|other| other.ends_ns <= lot.ends_ns).count();
        self.queue.insert(sooner, lot);
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
        for lot in self.queue.iter_mut().filter(|lot| now_ns < lot.ends_ns) {
            let taken = left.min(lot.units);
            lot.take(taken);
            left = left.saturating_sub(taken);
        }
        true
    }

    /// Returns the instant until which units taken now can be used.
    pub(super) fn ends_ns(&self, now_ns: u64) -> Option<u64> {
        self.queue.iter().map(|lot| lot.ends_ns).find(|&ends_ns| now_ns < ends_ns)
    }

    /// Credits units that could be used until `until_ns`, to leases that end no later.
    pub(super) fn give_back(&mut self, now_ns: u64, units: u64, until_ns: u64) {
        let fits = |lot: &Lot<R>| now_ns < lot.ends_ns && lot.ends_ns <= until_ns;
        let mut left = units;
        for lot in self.queue.iter_mut().rev().filter(|lot| fits(lot)) {
            left = lot.untake(left);
        }
        while left > 0
            && let Some(place) = self.used_up.iter().rposition(fits)
            && let Some(mut lot) = self.used_up.remove(place)
        {
            left = lot.untake(left);
            self.add(lot);
        }
    }

    /// Returns the number of usable units.
    pub(super) fn units(&self, now_ns: u64) -> u64 {
        self.sum(|lot| now_ns < lot.ends_ns)
    }

    /// Returns the units on which the next debit can count.
    pub(super) fn lasting(&self, now_ns: u64) -> u64 {
        self.sum(|lot| now_ns < lot.fades_ns)
    }

    /// Removes a lease that has ended. Returns its units, if they have to be returned.
    pub(super) fn over(&mut self, now_ns: u64) -> Option<Back<R>> {
        let is_over = |lot: &Lot<R>| lot.units == 0 || lot.ends_ns <= now_ns;
        while self.queue.front().is_some_and(is_over) {
            let lot = self.queue.pop_front()?;
            if lot.units == 0 {
                self.keep_used_up(lot, now_ns);
            } else if lot.is_returned_at_end {
                return lot.into_back();
            }
        }
        None
    }

    fn keep_used_up(&mut self, lot: Lot<R>, now_ns: u64) {
        self.used_up.retain(|lot| now_ns < lot.ends_ns);
        if now_ns < lot.ends_ns {
            if self.used_up.len() >= MAX_LOTS {
                self.used_up.pop_front();
            }
            self.used_up.push_back(lot);
        }
    }

    /// Removes at most `most` units from the lease that ends last, except those that callers are
    /// about to use.
    pub(super) fn cut(&mut self, now_ns: u64, most: u64) -> Option<Back<R>> {
        let is_settled = |lot: &&mut Lot<R>| lot.units > 0 && lot.kept_until_ns <= now_ns;
        let lot = self.queue.iter_mut().rev().find(is_settled)?;
        let units = NonZeroU64::new(most.min(lot.units))?;
        lot.units = lot.units.saturating_sub(units.get());
        Some((lot.receipt.clone(), units))
    }

    /// Returns the lease that must be returned before one more fits.
    pub(super) fn too_many(&mut self) -> Option<Back<R>> {
        if self.queue.len() < MAX_LOTS {
            return None;
        }
        self.queue.retain(|lot| lot.units > 0);
        if self.queue.len() < MAX_LOTS {
            return None;
        }
        self.queue.pop_front().and_then(Lot::into_back)
    }

    pub(super) fn first(&self) -> Option<&Lot<R>> {
        self.queue.front()
    }

    /// Returns the next instant from which some of the retained units may be returned.
    pub(super) fn settles_ns(&self, now_ns: u64) -> Option<u64> {
        let kept = self.queue.iter().map(|lot| lot.kept_until_ns);
        kept.filter(|&at_ns| at_ns > now_ns).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns `true` if no units are left, to use or to return.
    pub(super) fn are_used_up(&self) -> bool {
        self.queue.iter().all(|lot| lot.units == 0)
    }

    fn sum(&self, counts: impl Fn(&Lot<R>) -> bool) -> u64 {
        let counted = self.queue.iter().filter(|lot| counts(lot));
        counted.fold(0, |sum, lot| sum.saturating_add(lot.units))
    }
}
