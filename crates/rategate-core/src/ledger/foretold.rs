//! A ledger as it will be once holds have ended, found without a copy of them.
//!
//! A denial says when the same call passes if every hold runs to its end, and a status when the
//! limit has recovered. Most calls need few of the ends. So the state is taken further from end to
//! end, and of a bucket found for a number of ends, which is doubled and then halved.
//!
//! Where promises or waiters have to be considered too, a copy is taken through all ends.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::Ledger;
use super::holds::Holds;
use crate::any_policy::Member;
use crate::members::Members;
use crate::policy::Bucket;
use crate::verdict::{Opening, Refusal};

/// The number of ends that are tried in turn before all of them together.
const FEW: usize = 16;

impl Ledger {
    /// Returns the first opening for a try, where each hold runs to its end.
    pub(super) fn opening_foretold(
        &self,
        now_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let now_ns = self.clamp(now_ns);
        let opening = |limits: &Members, from_ns: u64| {
            let opening = limits.opening(None, from_ns, None, permits);
            opening.map_err(|refusal| refusal.seen_from(from_ns.saturating_sub(now_ns)))
        };
        let found = self.after_ends(now_ns, opening, |opening, end_ns| match opening {
            Ok(opening) => opening.opens_ns <= end_ns,
            // Nothing that comes back makes a limit larger.
            Err(refusal) => matches!(refusal, Refusal::Exceeds(_)),
        });
        found.unwrap_or_else(|| self.opening_after_ends(now_ns, permits))
    }

    /// Returns what [`fresh_at_ns`](Self::fresh_at_ns) does, where each hold runs to its end.
    pub(super) fn fresh_foretold_ns(&self, now_ns: u64) -> Option<u64> {
        if let Some(caught_up) = self.caught_up(now_ns) {
            return caught_up.fresh_at_ns(now_ns);
        }
        let is_by =
            |fresh_ns: &Option<u64>, end_ns| fresh_ns.is_some_and(|fresh_ns| fresh_ns <= end_ns);
        let fresh = |limits: &Members, from_ns| Some(limits.fresh_at_ns()?.max(from_ns));
        if let Some(fresh_ns) = self.after_ends(now_ns, fresh, is_by) {
            return fresh_ns;
        }
        // One copy for all ends: each takes as long as there are holds.
        let mut after = None;
        loop {
            let limit = after.as_ref().unwrap_or(self);
            let fresh_ns = limit.fresh_while_held_ns(now_ns);
            let Some(end_ns) = limit.next_end_ns() else { return fresh_ns };
            if is_by(&fresh_ns, end_ns) {
                return fresh_ns;
            }
            after.get_or_insert_with(|| self.clone()).pass_to(end_ns);
        }
    }

    /// Returns what `find` does in the state now, or after the first end from which on no other
    /// changes it: `is_by` tells that of what was found and the instant of the next end. Nothing
    /// has ended at `now_ns`. `None` where more than the state and the holds has to be considered.
    fn after_ends<T>(
        &self,
        now_ns: u64,
        find: impl Fn(&Members, u64) -> T,
        is_by: impl Fn(&T, u64) -> bool,
    ) -> Option<T> {
        let (now_ns, holds) = (self.clamp(now_ns), self.holds.as_ref()?);
        let is_plain = self.promises.is_empty() && self.held == 0 && self.floor_ns() <= now_ns;
        let only = self.started.only().filter(|_| is_plain)?;
        match only.bucket() {
            Some(bucket) if holds.others.is_empty() => {
                Some(self.bucket_after_ends((holds, bucket), now_ns, find, is_by))
            }
            None if holds.led.is_empty() => {
                Some(self.state_after_ends((holds, only), now_ns, find, is_by))
            }
            _ => None,
        }
    }

    fn state_after_ends<T>(
        &self,
        (holds, only): (&Holds, &Member),
        now_ns: u64,
        find: impl Fn(&Members, u64) -> T,
        is_by: impl Fn(&T, u64) -> bool,
    ) -> T {
        let mut found = find(&self.started, now_ns);
        let (mut after, mut epoch) = (None, self.epoch);
        for (&(end_ns, _), held) in holds.others.iter() {
            if is_by(&found, end_ns) {
                return found;
            }
            let limits = after.get_or_insert_with(|| Members::from(only.clone()));
            let [limit] = limits.as_mut_slice() else { break };
            if limit.policy().counts_in_flight() {
                limit.release(end_ns, held.permits);
            } else {
                let refund = held.refund(end_ns, held.permits, epoch);
                let back = limit.refund(refund).min(held.permits);
                epoch = epoch.and_returned(back);
            }
            found = find(limits, end_ns);
        }
        found
    }

    fn bucket_after_ends<T>(
        &self,
        (holds, bucket): (&Holds, Bucket),
        now_ns: u64,
        find: impl Fn(&Members, u64) -> T,
        is_by: impl Fn(&T, u64) -> bool,
    ) -> T {
        let first = find(&self.started, now_ns);
        if holds.led.first_key_value().is_none_or(|(&(end_ns, _), _)| is_by(&first, end_ns)) {
            return first;
        }
        let (all, mut rest, mut ends) = (holds.led.len(), holds.led.iter(), Vec::new());
        // Finds after so many ends, and returns `true` with it if no other end changes it.
        let mut found_after = |count: usize| {
            let missing = count.saturating_add(1).saturating_sub(ends.len());
            let more = rest.by_ref().take(missing);
            ends.extend(more.map(|(&(end_ns, serial), &permits)| (end_ns, (serial, permits))));
            let ended = ends.get(..count).unwrap_or(&ends);
            let at_ns = ended.last().map_or(now_ns, |&(end_ns, _)| end_ns);
            let mut grants: Vec<(u64, u64)> = ended.iter().map(|&(_, grant)| grant).collect();
            grants.sort_unstable();
            let mut limits = self.started.clone();
            if let ([limit], [leads]) = (limits.as_mut_slice(), holds.leads.as_slice()) {
                limit.set_bucket(leads.after_ends(bucket, &grants));
            }
            let found = find(&limits, at_ns);
            let is_last = ends.get(count).is_none_or(|&(end_ns, _)| is_by(&found, end_ns));
            (found, is_last)
        };
        // What is found by one end is found by all later ones.
        let (mut low, mut high, mut has_tried_all) = (0_usize, 0_usize, false);
        let (mut found, mut is_last) = (first, false);
        while !is_last {
            low = high.saturating_add(1);
            // A bucket that is used far beyond all ends needs each of them.
            if low > FEW && !has_tried_all {
                has_tried_all = true;
                if !found_after(all.saturating_sub(1)).1 {
                    return found_after(all).0;
                }
            }
            high = low.saturating_mul(2).min(all);
            (found, is_last) = found_after(high);
        }
        while low < high {
            let middle = low.midpoint(high);
            match found_after(middle) {
                (earlier, true) => (high, found) = (middle, earlier),
                (_, false) => low = middle.saturating_add(1),
            }
        }
        found
    }

    /// Returns how long until a reservation is accepted, where each hold runs to its end, at most
    /// `at_latest_ns`.
    pub(super) fn soonest_after_ends(
        &self,
        now_ns: u64,
        at_latest_ns: u64,
        permits: NonZeroU64,
        max_wait_ns: u64,
    ) -> u64 {
        let mut best_ns = at_latest_ns;
        let is_sooner = |end_ns: u64, best_ns| end_ns.saturating_sub(now_ns) < best_ns;
        if !self.next_end_ns().is_some_and(|end_ns| is_sooner(end_ns, best_ns)) {
            return best_ns;
        }
        let mut after = self.clone();
        while let Some(end_ns) = after.next_end_ns().filter(|&end_ns| is_sooner(end_ns, best_ns)) {
            after.pass_to(end_ns);
            let Ok(opening) = after.opening(end_ns, permits) else { continue };
            let too_long_ns = opening.start_ns.saturating_sub(end_ns).saturating_sub(max_wait_ns);
            let more_ns = too_long_ns.min(opening.opens_ns.saturating_sub(end_ns));
            best_ns = best_ns.min(end_ns.saturating_sub(now_ns).saturating_add(more_ns));
        }
        best_ns
    }

    /// Returns the first opening for a try, where each hold runs to its end, on copies.
    fn opening_after_ends(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        let mut best = self.opening(now_ns, permits);
        // Nothing that comes back makes a limit larger.
        let is_hopeless = matches!(best, Err(Refusal::Exceeds(_)));
        let opens_by = |best: &Result<Opening, Refusal>, end_ns| {
            best.is_ok_and(|best| best.opens_ns <= end_ns)
        };
        let Some(end_ns) = self.next_end_ns() else { return best };
        if is_hopeless || opens_by(&best, end_ns) {
            return best;
        }
        let mut after = self.clone();
        while let Some(end_ns) = after.next_end_ns().filter(|&end_ns| !opens_by(&best, end_ns)) {
            after.pass_to(end_ns);
            let opening = after.opening(end_ns, permits);
            best = opening.map_err(|refusal| refusal.seen_from(end_ns.saturating_sub(now_ns)));
        }
        best
    }
}
