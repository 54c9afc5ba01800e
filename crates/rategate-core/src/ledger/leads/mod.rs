//! The leads of the holds of a token bucket: how far the bucket moves back when they end.
//!
//! A grant at `s` of permits that take `a` moves the TAT to `max(TAT, s) + a`. Any row of grants
//! does the same with other numbers: an [`Effect`] is `max(TAT + shift, floor)`. So the bucket is
//! one effect of all grants, applied to the TAT before the first hold. A hold that ends leaves
//! nothing of its own effect, and one that is committed the effect of what was used. The bucket is
//! then where it would be if that had been taken in the first place, by definition.
//!
//! ```text
//!   TAT before      hold    grants   hold    grants    TAT now
//!   the first   ---( e1 )---( g1 )---( e2 )---( g2 )--->
//!   hold            leaf             leaf
//! ```
//!
//! Leaves are in the order of their grants, and sixteen have a node with their effect together, as
//! sixteen nodes have. Each knows its effect once all its holds have ended, too. So a million holds
//! that end at one instant are a few nodes, of which none is looked into; those that end in the
//! order of their grants are a few more. A commit computes one node of each level anew.
//!
//! All lengths are in the parts of a nanosecond that the rate counts in, where no sum rounds. They
//! saturate for a row of grants beyond 2^128 parts, and then nothing comes back.

mod corrections;
mod effect;
mod tree;

use alloc::vec::Vec;

use self::effect::{Effect, Leaf, Node, parts_of};
use crate::exact::{Exact, Pace};
use crate::policy::Bucket;

/// The number of leaves or nodes under a node.
const FAN: usize = 16;
/// The number of leaves that are allocated together.
const CHUNK: usize = FAN * FAN;
/// The number of leaves from which on those that have ended are looked for.
const FEW: usize = 32;
/// The number of chunks that a call frees.
const FREED: usize = 8;

/// The leads of all holds of one bucket. A hold is named by its serial number.
#[derive(Clone, Debug, Default)]
pub(super) struct Leads {
    /// The instant from which instants are counted, and what it counts as.
    origin_ns: u64,
    bias: u128,
    /// The TAT before the first hold.
    base: u128,
    chunks: Vec<Vec<Leaf>>,
    /// The number of leaves.
    len: usize,
    /// The nodes of each level, of full rows only; the last leaf is under none.
    levels: Vec<Vec<Node>>,
    next_end_ns: Option<u64>,
    /// The grant that was followed last, while nothing else has been.
    newest: Option<Newest>,
    /// The number of leaves from which on the ended ones are dropped.
    compact_at: usize,
    /// Leaves of ended holds, freed a few at a time.
    retired: Vec<Vec<Leaf>>,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    start: u128,
    permits: u64,
    /// The effect of the grants before it, since the last hold.
    before: Effect,
}

impl Leads {
    pub(super) const fn next_end_ns(&self) -> Option<u64> {
        self.next_end_ns
    }

    /// Returns `true` if no memory is left to free.
    pub(super) const fn is_free(&self) -> bool {
        self.retired.is_empty()
    }

    /// Follows a grant at `start`, before the bucket takes it.
    pub(super) fn follow(&mut self, bucket: Bucket, start: Exact, permits: u64) {
        let start = self.since_origin(bucket.pace, start);
        let Some(last) = self.chunks.last_mut().and_then(|chunk| chunk.last_mut()) else { return };
        self.newest = Some(Newest { start, permits, before: last.after });
        last.after = last.after.then(Effect::of(start, parts_of(bucket.pace, permits)));
    }

    /// Follows a charge at `now`, which moved the bucket from `before` to `after`.
    pub(super) fn follow_charge(&mut self, before: Bucket, after: Bucket, now: Exact) {
        let pace = after.pace;
        let (start, used) =
            (self.since_origin(pace, now), pace.to_parts(pace.sub(after.tat, before.tat.max(now))));
        let Some(last) = self.chunks.last_mut().and_then(|chunk| chunk.last_mut()) else { return };
        last.after = last.after.then(Effect::of(start, used));
        self.newest = None;
    }

    /// Adds a hold of the grant that was taken last. Returns `false` if it cannot be told from
    /// what came after it.
    pub(super) fn add(
        &mut self,
        bucket: Bucket,
        hold: (u64, u64),
        start_ns: u64,
        end_ns: u64,
    ) -> bool {
        let Bucket { tat, pace } = bucket;
        let (serial, permits) = hold;
        let mut start = 0;
        if self.len == 0 {
            let found = pace.sub(tat, pace.time_of(permits));
            let origin_ns = u64::try_from(found.ns).unwrap_or(u64::MAX).min(start_ns);
            let (retired, next_end_ns) = (core::mem::take(&mut self.retired), None);
            *self = Self { origin_ns, retired, next_end_ns, compact_at: FEW, ..Self::default() };
            self.base = self.since_origin(pace, found);
        } else {
            let is_it = |newest: &Newest| newest.permits == permits;
            let Some(newest) = self.newest.take().filter(is_it) else { return false };
            start = newest.start;
            if let Some(last) = self.chunks.last_mut().and_then(|chunk| chunk.last_mut()) {
                last.after = newest.before;
            }
            if self.len >= self.compact_at {
                self.compact(pace);
            }
        }
        self.complete_rows(pace);
        let leaf = Leaf { serial, end_ns, permits, start, after: Effect::NONE };
        match self.chunks.last_mut() {
            Some(chunk) if !self.len.is_multiple_of(CHUNK) => chunk.push(leaf),
            _ => {
                let mut chunk = Vec::with_capacity(if self.len == 0 { 1 } else { CHUNK });
                chunk.push(leaf);
                self.chunks.push(chunk);
            }
        }
        self.len = self.len.saturating_add(1);
        let is_first = |next_ns: u64| next_ns.min(end_ns);
        self.next_end_ns = Some(self.next_end_ns.map_or(end_ns, is_first));
        true
    }

    /// Ends a hold of which `actual` permits were used, at most all. Returns the number held, and
    /// the bucket as if no more had been taken. `None` if it is not held at `now_ns`.
    pub(super) fn end(
        &mut self,
        bucket: Bucket,
        now_ns: u64,
        serial: u64,
        actual: u64,
    ) -> Option<(u64, Bucket)> {
        let pace = bucket.pace;
        let index = self.index_of(serial)?;
        if !self.leaf_mut(index)?.is_held(now_ns) {
            return None;
        }
        self.newest = None;
        let leaf = self.leaf_mut(index)?;
        let held = leaf.permits;
        leaf.permits = 0;
        if actual > 0 {
            leaf.after = Effect::of(leaf.start, parts_of(pace, actual.min(held))).then(leaf.after);
        }
        self.refresh(pace, now_ns, index);
        Some((held, self.settled(bucket, now_ns)))
    }

    /// Ends the holds whose time is over at `now_ns`. Returns the bucket as if they had never been
    /// taken.
    pub(super) fn expire(&mut self, bucket: Bucket, now_ns: u64) -> Bucket {
        self.settled(bucket, now_ns)
    }

    /// Ends the holds whose time is over at `now_ns`, of which all has been used.
    pub(super) fn expire_used(&mut self, bucket: Bucket, now_ns: u64) {
        let pace = bucket.pace;
        for leaf in self.chunks.iter_mut().flatten().filter(|leaf| leaf.permits > 0) {
            if leaf.end_ns <= now_ns {
                leaf.use_all(pace);
            }
        }
        self.rebuild(pace, now_ns);
        self.settled(bucket, now_ns);
    }

    /// Returns the bucket as it will be at `then_ns`, if no calls come.
    pub(super) fn bucket_at(&self, bucket: Bucket, then_ns: u64) -> Bucket {
        let mut tat = self.base;
        for (level, from) in self.rows() {
            let Some(level) = level else {
                for leaf in self.leaves_from(from) {
                    tat = leaf.effect(bucket.pace, then_ns).apply(tat);
                }
                break;
            };
            let nodes = self.levels.get(level).map_or(0, Vec::len);
            for index in from..nodes {
                tat = self.effect_at(bucket.pace, level, index, then_ns).apply(tat);
            }
        }
        self.moved_back(bucket, tat)
    }

    /// Returns the ends of all holds after `now_ns`, in order.
    pub(super) fn ends_ns(&self, now_ns: u64) -> Vec<u64> {
        let held = self.chunks.iter().flatten().filter(|leaf| leaf.is_held(now_ns));
        let mut ends_ns: Vec<u64> = held.map(|leaf| leaf.end_ns).collect();
        ends_ns.sort_unstable();
        ends_ns.dedup();
        ends_ns
    }

    /// Drops the leaves of which none is held, and frees some of those that were dropped before.
    pub(super) fn tidy(&mut self) {
        if self.len > 0 && self.next_end_ns.is_none() {
            let retired = core::mem::take(&mut self.retired);
            let chunks = core::mem::take(&mut self.chunks);
            *self = Self { retired, ..Self::default() };
            self.retire(chunks);
        }
        let kept = self.retired.len().saturating_sub(FREED);
        self.retired.truncate(kept);
        if kept == 0 {
            self.retired = Vec::new();
        }
    }

    fn retire(&mut self, mut chunks: Vec<Vec<Leaf>>) {
        if self.retired.is_empty() {
            self.retired = chunks;
        } else {
            self.retired.append(&mut chunks);
        }
    }

    /// Returns the bucket at `now_ns`, as its grants and holds leave it.
    fn settled(&mut self, bucket: Bucket, now_ns: u64) -> Bucket {
        let (mut tat, mut next_end_ns) = (self.base, None);
        let earlier = |first: Option<u64>, end_ns: u64| {
            Some(first.map_or(end_ns, |first_ns| first_ns.min(end_ns)))
        };
        for (level, from) in self.rows() {
            let Some(level) = level else {
                for leaf in self.leaves_from(from) {
                    tat = leaf.effect(bucket.pace, now_ns).apply(tat);
                    if leaf.is_held(now_ns) {
                        next_end_ns = earlier(next_end_ns, leaf.end_ns);
                    }
                }
                break;
            };
            let nodes = self.levels.get(level).map_or(0, Vec::len);
            for index in from..nodes {
                self.advance(bucket.pace, level, index, now_ns);
                let Some(node) = self.node(level, index) else { continue };
                tat = node.now.apply(tat);
                if let Some((first_ns, _)) = node.ends_ns {
                    next_end_ns = earlier(next_end_ns, first_ns);
                }
            }
        }
        self.next_end_ns = next_end_ns;
        let settled = self.moved_back(bucket, tat);
        self.drop_front(bucket.pace, now_ns);
        settled
    }

    /// Returns the bucket moved back to `tat`.
    fn moved_back(&self, bucket: Bucket, tat: u128) -> Bucket {
        let Bucket { tat: before, pace } = bucket;
        let back = self.since_origin(pace, before).saturating_sub(tat);
        Bucket { tat: pace.sub(before, pace.from_parts(back)), pace }
    }

    /// Returns an instant in parts since the origin.
    pub(super) fn since_origin(&self, pace: Pace, at: Exact) -> u128 {
        let origin = Exact::at(self.origin_ns.into());
        pace.to_parts(pace.sub(at, origin)).saturating_add(self.bias)
    }
}
