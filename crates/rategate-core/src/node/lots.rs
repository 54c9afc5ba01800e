//! The leases that a node has of one key: units that may be used until they end, and what is left of them after that.

use alloc::collections::VecDeque;
use core::num::NonZeroU64;

/// The most leases that a node has of one key. When it needs another, the one that ends first goes back.
pub const MAX_LOTS: usize = 16;

/// Leases; the one that ends first is first.
#[derive(Clone, Debug)]
pub(super) struct Lots<R> {
    queue: VecDeque<Lot<R>>,
    /// Those of which all is used, and may still come back. At most [`MAX_LOTS`].
    used_up: VecDeque<Lot<R>>,
}

/// What one debit brought.
#[derive(Clone, Debug)]
pub(super) struct Lot<R> {
    pub(super) units: u64,
    /// How many of those that are the node's are used: so many can come back.
    pub(super) used: u64,
    /// It may be used before that.
    pub(super) ends_ns: u64,
    /// From then on the next debit does not count on it.
    pub(super) fades_ns: u64,
    /// Before that none of it is given back: those who asked for it are about to come.
    pub(super) kept_until_ns: u64,
    /// Whether there is any use in giving it back once it has ended.
    pub(super) is_returned_at_end: bool,
    pub(super) receipt: R,
}

/// Units that go back: their receipt, and how many.
pub(super) type Back<R> = (R, NonZeroU64);

impl<R> Lot<R> {
    /// One that cannot be used, only given back.
    pub(super) const fn dead(units: u64, receipt: R) -> Self {
        let (used, ends_ns, fades_ns, kept_until_ns) = (0, 0, 0, 0);
        Self { units, used, ends_ns, fades_ns, kept_until_ns, is_returned_at_end: true, receipt }
    }

    /// Uses units, of which there are so many.
    #[inline]
    fn take(&mut self, units: u64) {
        self.units = self.units.saturating_sub(units);
        self.used = self.used.saturating_add(units);
    }

    /// Takes back as many of these as were used. Says how many were not.
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

    /// Takes permits, if there are so many that may be used.
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

    /// Until when what is taken now can be used.
    pub(super) fn ends_ns(&self, now_ns: u64) -> Option<u64> {
        self.queue.iter().map(|lot| lot.ends_ns).find(|&ends_ns| now_ns < ends_ns)
    }

    /// Takes back units that could be used until `until_ns`: into leases that end no later.
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

    /// What may be used.
    pub(super) fn units(&self, now_ns: u64) -> u64 {
        self.sum(|lot| now_ns < lot.ends_ns)
    }

    /// What the next debit can count on.
    pub(super) fn lasting(&self, now_ns: u64) -> u64 {
        self.sum(|lot| now_ns < lot.fades_ns)
    }

    /// What is left of a lease that has ended, and has to go back.
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

    /// At most so many units of the lease that ends last, of those that nobody is about to come for. They are not
    /// there any more from now on.
    pub(super) fn cut(&mut self, now_ns: u64, most: u64) -> Option<Back<R>> {
        let is_settled = |lot: &&mut Lot<R>| lot.units > 0 && lot.kept_until_ns <= now_ns;
        let lot = self.queue.iter_mut().rev().find(is_settled)?;
        let units = NonZeroU64::new(most.min(lot.units))?;
        lot.units = lot.units.saturating_sub(units.get());
        Some((lot.receipt.clone(), units))
    }

    /// What has to go back before there is room for one more.
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

    /// The next instant from which something of what is kept may go back.
    pub(super) fn settles_ns(&self, now_ns: u64) -> Option<u64> {
        let kept = self.queue.iter().map(|lot| lot.kept_until_ns);
        kept.filter(|&at_ns| at_ns > now_ns).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether nothing is left, to be used or to go back.
    pub(super) fn are_used_up(&self) -> bool {
        self.queue.iter().all(|lot| lot.units == 0)
    }

    fn sum(&self, counts: impl Fn(&Lot<R>) -> bool) -> u64 {
        let counted = self.queue.iter().filter(|lot| counts(lot));
        counted.fold(0, |sum, lot| sum.saturating_add(lot.units))
    }
}
