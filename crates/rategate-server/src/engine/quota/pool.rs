//! The permits of one counter, divided among streams by their demand.
//!
//! # Contract
//!
//! * **Sum.** All streams together have at most the total, at any instant. A stream may not have
//!   received its smaller share, so the larger one counts until its time is over ([`Held`]).
//! * **Demand.** Eight ninths of the total are divided by demand, and one ninth evenly, so that a
//!   stream that was idle has permits for its first requests. Without any demand all is even.
//! * **Whole permits.** What rounding leaves goes to streams that would have none, the one that has
//!   waited longest first, and then to the earliest streams. So with fewer permits than streams
//!   each has a permit in turn.
//! * **Steady.** A share stays as it is while it differs by a sixteenth at most from what it should
//!   be: clients begin a changed share with a full bucket.
//! * **Leaving.** A stream that left has what it had until its time is over, and no longer.

use rategate_core::node::Held;

/// Streams that share the permits of one counter.
#[derive(Debug, Default)]
pub(super) struct Pool {
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    stream: u64,
    /// The recent demand in requests per 1000 s, or `None` before it is known.
    demand: Option<u64>,
    held: Held,
    /// The latest share, if any.
    share: Option<u32>,
    /// The instant since when the stream has had no permit.
    waits_since_ns: u64,
    has_left: bool,
}

/// A share of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The number of permits.
    pub(super) permits: u32,
    /// `true` if the stream is to have more as soon as others have less.
    pub(super) is_short: bool,
}

/// The part of the total that is divided by demand: eight parts of nine.
const BY_DEMAND: u128 = 8;
/// The part by which a share may differ from what it should be.
const STEADY: u32 = 16;

impl Pool {
    /// Adds a stream.
    pub(super) fn join(&mut self, now_ns: u64, stream: u64) {
        self.members.push(Member {
            stream,
            demand: None,
            held: Held::default(),
            share: None,
            waits_since_ns: now_ns,
            has_left: false,
        });
    }

    /// Removes a stream, which keeps what it has until its time is over.
    pub(super) fn leave(&mut self, stream: u64) {
        if let Some(member) = self.of(stream) {
            member.has_left = true;
        }
    }

    /// Sets the demand of a stream, in requests per 1000 s.
    pub(super) fn set_demand(&mut self, stream: u64, demand: u64) {
        if let Some(member) = self.of(stream) {
            member.demand = Some(demand);
        }
    }

    /// Returns the share that the stream should have now of `total`. Nothing changes before
    /// [`Self::hold`].
    pub(super) fn share(&mut self, now_ns: u64, stream: u64, total: u32) -> Share {
        self.end_expired(now_ns);
        let Some(index) = self.members.iter().position(|member| member.is(stream)) else {
            return Share { permits: 0, is_short: false };
        };
        let others = self.members.iter().enumerate().filter(|(other, _)| *other != index);
        let others =
            others.fold(0, |sum: u64, (_, other)| sum.saturating_add(other.held.permits()));
        let available = total.saturating_sub(u32::try_from(others).unwrap_or(u32::MAX));
        let target = self.target(index, total);
        let before = self.members.get(index).and_then(|member| member.share);
        if let Some(before) = before.filter(|before| (1..=available).contains(before))
            && before.abs_diff(target).saturating_mul(STEADY) <= before.max(target)
        {
            return Share { permits: before, is_short: false };
        }
        Share { permits: target.min(available), is_short: available < target }
    }

    /// Records that the stream was sent its share, which counts for `length_ns`.
    pub(super) fn hold(&mut self, now_ns: u64, stream: u64, permits: u32, length_ns: u64) {
        let Some(member) = self.of(stream) else { return };
        if permits > 0 || member.share.is_none_or(|share| share > 0) {
            member.waits_since_ns = now_ns;
        }
        member.share = Some(permits);
        member.held.hold(now_ns, permits.into(), length_ns);
    }

    /// Returns the number of permits that all streams may have at `now_ns`.
    #[cfg(test)]
    fn held(&self, now_ns: u64) -> u64 {
        self.members.iter().map(|member| member.held.permits_at(now_ns)).sum()
    }

    /// Returns `true` if no stream has or may have anything of it.
    pub(super) fn is_empty(&mut self, now_ns: u64) -> bool {
        self.end_expired(now_ns);
        self.members.is_empty()
    }

    fn of(&mut self, stream: u64) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.is(stream))
    }

    fn end_expired(&mut self, now_ns: u64) {
        for member in &mut self.members {
            while member.held.end_one(now_ns).is_some() {}
        }
        self.members.retain(|member| !member.has_left || !member.held.is_empty());
    }

    /// Returns the share that a stream should have once all others have theirs.
    fn target(&self, index: usize, total: u32) -> u32 {
        let there = || self.members.iter().filter(|member| !member.has_left);
        let known = there().filter_map(|member| member.demand);
        let (count, sum) = known.fold((0_u64, 0_u128), |(count, sum), demand| {
            (count.saturating_add(1), sum.saturating_add(demand.into()))
        });
        let mean = sum.checked_div(count.into()).unwrap_or(0);
        // Eight times its demand and once the mean of all; alike for all if there is no demand.
        let weight = |member: &Member| match member.demand {
            _ if mean == 0 => 1,
            Some(demand) => u128::from(demand).saturating_mul(BY_DEMAND).saturating_add(mean),
            None => mean.saturating_mul(BY_DEMAND.saturating_add(1)),
        };
        let weights = there().map(weight).fold(0_u128, u128::saturating_add);
        // 32 bits times fewer than 68.
        let floor = |member: &Member| {
            let part = u128::from(total).saturating_mul(weight(member));
            u32::try_from(part.checked_div(weights).unwrap_or(0)).unwrap_or(total)
        };
        let Some(own) = self.members.get(index) else { return 0 };
        let floors = there().map(floor).fold(0, u32::saturating_add);
        let left = total.saturating_sub(floors);
        // The rank among those that rounding cost something: fewer than all of them get one more.
        let rank = |member: &Member| (floor(member) > 0, member.waits_since_ns, member.stream);
        let own_rank = rank(own);
        let before = there().filter(|member| rank(member) < own_rank).count();
        let gets_more = u32::try_from(before).is_ok_and(|before| before < left);
        floor(own).saturating_add(u32::from(gets_more))
    }
}

impl Member {
    fn is(&self, stream: u64) -> bool {
        self.stream == stream && !self.has_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: u64 = 100;

    fn pool_of(demands: &[Option<u64>]) -> Pool {
        let mut pool = Pool::default();
        for (stream, demand) in (0..).zip(demands) {
            pool.join(0, stream);
            if let Some(demand) = demand {
                pool.set_demand(stream, *demand);
            }
        }
        pool
    }

    fn targets(pool: &Pool, total: u32) -> Vec<u32> {
        (0..pool.members.len()).map(|index| pool.target(index, total)).collect()
    }

    #[test]
    fn shares_follow_demand_and_sum_to_the_total() {
        assert_eq!(targets(&pool_of(&[None]), 7), [7]);
        assert_eq!(targets(&pool_of(&[None, None, None]), 10), [4, 3, 3]);
        assert_eq!(targets(&pool_of(&[Some(0), Some(0)]), 10), [5, 5]);
        // Weights of 8 * 30 + 15 and of 15.
        assert_eq!(targets(&pool_of(&[Some(30), Some(0)]), 90), [85, 5]);
        // Weights of 8 * 3 + 2 and 8 * 1 + 2.
        assert_eq!(targets(&pool_of(&[Some(3), Some(1)]), 360), [260, 100]);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2_000 {
            let demands: Vec<_> = (0..random.usize(1..9))
                .map(|_| random.bool().then(|| random.u64(..) >> random.u32(0..64)))
                .collect();
            let pool = pool_of(&demands);
            for total in [0, 1, 5, 1000, u32::MAX] {
                let sum = targets(&pool, total).iter().map(|share| u64::from(*share)).sum::<u64>();
                assert_eq!(sum, u64::from(total), "{demands:?}");
            }
        }
    }

    /// An oracle without memory of its own: all that was ever sent, each until its time is over.
    #[test]
    fn live_shares_never_exceed_the_total() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut pool, mut known) = (Pool::default(), Vec::<(u64, u64)>::new());
            let mut streams: Vec<u64> = Vec::new();
            let (total, mut now, mut next) = (random.u32(1..50), 0, 0);
            for _ in 0..400 {
                now += random.u64(0..30);
                match random.u32(0..12) {
                    0 if streams.len() < 6 => {
                        pool.join(now, next);
                        streams.push(next);
                        next += 1;
                    }
                    1 if !streams.is_empty() => {
                        pool.leave(streams.swap_remove(random.usize(..streams.len())));
                    }
                    _ if streams.is_empty() => {}
                    2..6 => {
                        pool.set_demand(streams[random.usize(..streams.len())], random.u64(..99));
                    }
                    _ => {
                        let stream = streams[random.usize(..streams.len())];
                        let share = pool.share(now, stream, total);
                        pool.hold(now, stream, share.permits, TTL);
                        // A client that never learns of its next share.
                        known.push((stream, now + TTL));
                        known.retain(|(_, until)| *until > now);
                    }
                }
                assert!(pool.held(now) <= total.into(), "seed {seed}");
                assert!(
                    known.len() >= usize::from(pool.held(now) > 0),
                    "nothing outlives its time"
                );
            }
        }
    }

    /// An oracle that has the shares as clients have them: the largest of each until its end.
    #[test]
    fn what_clients_have_never_exceeds_the_total() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut pool = Pool::default();
            let (total, mut now) = (random.u32(1..50), 0);
            let mut known: Vec<(u64, u32, u64)> = Vec::new();
            for stream in 0..4 {
                pool.join(0, stream);
            }
            for _ in 0..400 {
                now += random.u64(0..20);
                let stream = random.u64(0..4);
                pool.set_demand(stream, random.u64(0..1000));
                let share = pool.share(now, stream, total).permits;
                pool.hold(now, stream, share, TTL);
                known.push((stream, share, now + TTL));
                known.retain(|(_, _, until)| *until > now);
                let largest = |stream| {
                    let own = known.iter().filter(|(of, ..)| *of == stream);
                    own.map(|(_, share, _)| *share).max().unwrap_or(0)
                };
                assert!((0..4).map(largest).sum::<u32>() <= total, "seed {seed}");
            }
        }
    }

    #[test]
    fn with_fewer_permits_than_streams_each_has_one_in_turn() {
        let mut pool = pool_of(&[Some(9), Some(9), Some(9)]);
        let mut turns = [0; 3];
        for now in (0..3000).step_by(10) {
            for stream in 0..3 {
                let share = pool.share(now, stream, 1).permits;
                pool.hold(now, stream, share, TTL);
                turns[usize::try_from(stream).unwrap()] += share;
            }
            assert!(pool.held(now) <= 1);
        }
        assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
    }

    #[test]
    fn a_steady_share_is_not_changed() {
        let mut pool = pool_of(&[Some(500), Some(500)]);
        for stream in 0..2 {
            let share = pool.share(0, stream, 100).permits;
            pool.hold(0, stream, share, TTL);
        }
        pool.set_demand(0, 520);
        assert_eq!(pool.share(1, 0, 100), Share { permits: 50, is_short: false });
        pool.set_demand(0, 1000);
        assert_eq!(pool.share(1, 0, 100).permits, 50, "the other has the rest");
        assert!(pool.share(1, 0, 100).is_short);
        assert_eq!(pool.share(1, 1, 100).permits, 35);
    }

    #[test]
    fn a_stream_that_comes_back_begins_beside_what_it_had() {
        let mut pool = pool_of(&[None]);
        pool.hold(0, 0, 10, TTL);
        pool.leave(0);
        pool.join(1, 0);
        assert_eq!(pool.share(2, 0, 10), Share { permits: 0, is_short: true });
        assert_eq!(pool.share(TTL, 0, 10), Share { permits: 10, is_short: false });
    }

    #[test]
    fn what_a_stream_had_is_free_after_its_time() {
        let mut pool = pool_of(&[None, None]);
        pool.leave(1);
        pool.hold(0, 0, 10, TTL);
        pool.leave(0);
        pool.join(1, 2);
        assert_eq!(pool.share(TTL - 1, 2, 10), Share { permits: 0, is_short: true });
        assert_eq!(pool.share(TTL, 2, 10), Share { permits: 10, is_short: false });
        pool.leave(2);
        assert!(pool.is_empty(TTL));
    }
}
