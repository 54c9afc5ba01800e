//! Corrections of the past of a bucket other than ends of holds: refunds of other grants, and
//! a change of the rate.

use super::Leads;
use super::effect::{Effect, parts_of};
use crate::exact::Exact;
use crate::policy::Bucket;

impl Leads {
    /// Follows `back` of the grant `serial` that came back without a hold, and left the bucket as
    /// it is now; zero for an unknown grant.
    ///
    /// What the grants before it would leave falls with it. Of the grants after it, up to the next
    /// hold, only the highest TAT is known, which need not fall: it stays, as far as the bucket
    /// allows. The leads are then small enough.
    pub(in crate::ledger) fn follow_return(
        &mut self,
        bucket: Bucket,
        now_ns: u64,
        serial: u64,
        back: Exact,
    ) {
        let (pace, back) = (bucket.pace, bucket.pace.to_parts(back));
        if self.len == 0 || back == 0 {
            return;
        }
        self.newest = None;
        // What falls by this much may fall below the origin.
        self.lower_origin(back);
        let at = self.last_by(serial);
        match at.and_then(|index| self.leaf_mut(index)) {
            Some(leaf) => leaf.after.shift = { leaf.after.shift }.saturating_sub(back),
            None => self.base = self.base.saturating_sub(back),
        }
        let most = self.since_origin(pace, bucket.tat);
        // No grant left the bucket further on than it is.
        let mut later = 0_u128;
        for leaf in self.chunks.iter_mut().flatten().rev() {
            let mut after = leaf.after;
            after.floor = after.floor.min(most.saturating_sub(later));
            leaf.after = after;
            later = later.saturating_add(after.shift);
            if leaf.is_held(now_ns) {
                let own = parts_of(pace, leaf.permits);
                later = later.saturating_add(own);
                leaf.start = { leaf.start }.min(most.saturating_sub(later));
            }
        }
        self.base = self.base.min(most.saturating_sub(later));
        self.rebuild(pace, now_ns);
    }

    /// Counts all instants from `by` parts before the present origin.
    fn lower_origin(&mut self, by: u128) {
        self.bias = self.bias.saturating_add(by);
        self.base = self.base.saturating_add(by);
        for leaf in self.chunks.iter_mut().flatten() {
            leaf.start = { leaf.start }.saturating_add(by);
            let mut after = leaf.after;
            // An effect without a floor stays one.
            if after.floor > 0 {
                after.floor = after.floor.saturating_add(by);
            }
            leaf.after = after;
        }
    }

    /// Follows a change of the rate. What lies behind the bucket rounds up by less than one part.
    pub(in crate::ledger) fn rescale(&mut self, old: Bucket, new: Bucket, now_ns: u64) {
        if self.len == 0 {
            return;
        }
        self.newest = None;
        let most = self.since_origin(old.pace, old.tat);
        // The distance of an instant behind the bucket takes as many permits as before.
        let scaled = |parts: u128| {
            let length = old.pace.rescale(old.pace.from_parts(parts), new.pace);
            new.pace.to_parts(length)
        };
        let distance = |instant: u128, later: u128| {
            scaled(most.saturating_sub(instant.saturating_add(later))).saturating_sub(1)
        };
        // First the distances of all, from which the instants follow.
        let (mut later, mut scaled_later, mut furthest) = (0_u128, 0_u128, 0_u128);
        for leaf in self.chunks.iter_mut().flatten().rev() {
            let mut after = leaf.after;
            let floor = distance(after.floor, later);
            later = later.saturating_add(after.shift);
            after = Effect { shift: scaled(after.shift), floor };
            leaf.after = after;
            scaled_later = scaled_later.saturating_add(after.shift);
            if leaf.is_held(now_ns) {
                later = later.saturating_add(parts_of(old.pace, leaf.permits));
                scaled_later = scaled_later.saturating_add(parts_of(new.pace, leaf.permits));
                leaf.start = distance(leaf.start, later);
                furthest = furthest.max(leaf.start);
            }
            furthest = furthest.max(floor);
        }
        self.base = distance(self.base, later);
        self.bias = furthest.max(self.base).saturating_add(scaled_later);
        self.origin_ns = u64::try_from(new.tat.ns).unwrap_or(u64::MAX).min(now_ns);
        let most = self.since_origin(new.pace, new.tat);
        let mut later = 0_u128;
        for leaf in self.chunks.iter_mut().flatten().rev() {
            let mut after = leaf.after;
            after.floor = most.saturating_sub(after.floor).saturating_sub(later);
            leaf.after = after;
            later = later.saturating_add(after.shift);
            if leaf.is_held(now_ns) {
                later = later.saturating_add(parts_of(new.pace, leaf.permits));
                leaf.start = most.saturating_sub(leaf.start).saturating_sub(later);
            }
        }
        self.base = most.saturating_sub(self.base).saturating_sub(later);
        self.rebuild(new.pace, now_ns);
    }
}
