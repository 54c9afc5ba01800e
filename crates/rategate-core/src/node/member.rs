//! A member with a share of a total: a node that sends heartbeats, and uses its share as long as
//! they count.
//!
//! ```text
//!   node    S1 ----------- S2 ----------- S3 ...        a heartbeat each interval
//!           |<---- length (1 - drift) -->|              for so long the reply to S1 can be used
//!   store    D1 ----------- D2                          counts each from its arrival
//!            |<----------- length ------>|
//! ```
//!
//! # Contract
//!
//! * **Never late.** A share is used for `length (1 - drift)` on the node's clock since the
//!   heartbeat was *sent*. The store counts it as taken for the length since the heartbeat
//!   *arrived*. So what it assigns to another member is no longer in use, whatever messages were
//!   lost.
//! * **One at a time.** One heartbeat is in flight at a time. A lost one is sent again an eighth
//!   of an interval later, so several can be lost before the share is.
//! * **Growing.** A [fresh](HeartbeatReply::fresh) gain may be used at once. The rest of a gain
//!   belonged to another member a moment ago, and counts as just used: a log counts it as taken
//!   now, a bucket gains burst but no permits. Then each permit of the total is used at most once
//!   in any window of the limit's memory, whichever member has it. So the actions of all members
//!   are within the total: think of a slot for each permit, which changes owners (docs/theory.md,
//!   section 2.2).
//! * **Buckets.** Of a bucket with rate `r` and burst `b`, a share of `s` permits is a bucket
//!   with burst `s` and rate `r s / b`; its memory is `b / r`, the time it takes to fill.
//! * **A new life has a new name.** A member that has left, or lost its state, must not come back
//!   under its old name: a message of its old life may still be in flight.
//! * **Clock.** The node's own, monotonic; a reading older than the newest counts as that one.
//!
//! # Example
//!
//! ```
//! use core::num::NonZeroU64;
//! use rategate_core::node::{Heartbeat, Group, Member, MemberConfig, Resize};
//!
//! let second = NonZeroU64::new(1_000_000_000).unwrap();
//! let config = MemberConfig::new(second, 200)?;
//! let (mut group, mut member) = (Group::new(), Member::new(config));
//!
//! let id = member.heartbeat(0).expect("it is time");
//! let (length_ns, memory_ns) = (config.length_ns().get(), second.get());
//! let heartbeat = Heartbeat { member: [7; 16], total: 45, at_least: 0, length_ns, memory_ns };
//! // The store has another clock.
//! let received = group.heartbeat(123_456_789, &heartbeat);
//! assert_eq!(member.received(id, 1_000_000, received), Resize { from: 0, to: 45, fresh: 45 });
//! assert_eq!(member.share(1_499_699_999), 45);
//! assert_eq!(member.share(1_499_700_000), 0);
//! # Ok::<(), rategate_core::node::NodeConfigError>(())
//! ```

use core::num::NonZeroU64;

use super::group::HeartbeatReply;
use super::lease_config::{MAX_DRIFT_PPM, NodeConfigError, at_least_ns, at_most_ns};

/// The interval of a member's heartbeats, and the time for which each counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberConfig {
    heartbeat_ns: NonZeroU64,
    length_ns: NonZeroU64,
    usable_ns: NonZeroU64,
    drift_ppm: u32,
}

impl MemberConfig {
    /// Returns a config with a heartbeat each `heartbeat_ns`, which counts for half as long again.
    ///
    /// Of the node's clock and the store's, neither gains on the other more than `drift_ppm`
    /// parts in a million.
    ///
    /// # Errors
    ///
    /// [`NodeConfigError`].
    pub fn new(heartbeat_ns: NonZeroU64, drift_ppm: u32) -> Result<Self, NodeConfigError> {
        let half_ns = heartbeat_ns.get().div_ceil(2);
        Self::with_length(heartbeat_ns, heartbeat_ns.saturating_add(half_ns), drift_ppm)
    }

    /// Returns a config with a heartbeat each `heartbeat_ns`, which counts for `length_ns`.
    ///
    /// # Errors
    ///
    /// [`NodeConfigError`].
    pub fn with_length(
        heartbeat_ns: NonZeroU64,
        length_ns: NonZeroU64,
        drift_ppm: u32,
    ) -> Result<Self, NodeConfigError> {
        if drift_ppm > MAX_DRIFT_PPM {
            return Err(NodeConfigError::Drift);
        }
        let usable_ns = NonZeroU64::new(at_least_ns(length_ns.get(), drift_ppm));
        let usable_ns = usable_ns.ok_or(NodeConfigError::TooShort)?;
        if usable_ns <= heartbeat_ns {
            return Err(NodeConfigError::LengthWithinHeartbeat);
        }
        Ok(Self { heartbeat_ns, length_ns, usable_ns, drift_ppm })
    }

    /// Returns the interval between heartbeats.
    #[must_use]
    pub const fn heartbeat_ns(&self) -> NonZeroU64 {
        self.heartbeat_ns
    }

    /// Returns the time for which a heartbeat counts, on the store's clock.
    #[must_use]
    pub const fn length_ns(&self) -> NonZeroU64 {
        self.length_ns
    }
}

/// The identifier of a heartbeat, which its reply refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeartbeatId(u64);

/// The change of a share by a reply. What the member has not used of it by now stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resize {
    /// The share until now; 0 if its time was over.
    pub from: u64,
    /// The share from now on.
    pub to: u64,
    /// The part of the gain that may be used at once. The rest counts as used just now.
    pub fresh: u64,
}

impl Resize {
    /// Returns the part of the gain that counts as used just now.
    #[must_use]
    pub const fn stale(&self) -> u64 {
        self.to.saturating_sub(self.from).saturating_sub(self.fresh)
    }
}

/// A node that has a share of a total.
#[derive(Clone, Debug)]
pub struct Member {
    config: MemberConfig,
    share: u64,
    /// The number of members that the store knew of.
    members: u64,
    /// The instant before which the share may be used.
    ends_ns: u64,
    under_way: Option<PendingHeartbeat>,
    next_ns: u64,
    has_left: bool,
    latest_ns: u64,
    last_id: u64,
}

#[derive(Clone, Copy, Debug)]
struct PendingHeartbeat {
    id: HeartbeatId,
    sent_ns: u64,
}

impl Member {
    /// Returns a node without a share, which joins at once.
    #[must_use]
    pub const fn new(config: MemberConfig) -> Self {
        Self {
            config,
            share: 0,
            members: 0,
            ends_ns: 0,
            under_way: None,
            next_ns: 0,
            has_left: false,
            latest_ns: 0,
            last_id: 0,
        }
    }

    /// Returns the heartbeat to send at `now_ns`, which counts as sent then.
    ///
    /// Returns `None` if it is not time yet, or one is in flight. One of
    /// [`received`](Self::received) and [`lost`](Self::lost) has to follow.
    pub fn heartbeat(&mut self, now_ns: u64) -> Option<HeartbeatId> {
        let now_ns = self.pass_to(now_ns);
        if self.has_left || self.under_way.is_some() || now_ns < self.next_ns {
            return None;
        }
        self.last_id = self.last_id.wrapping_add(1);
        let id = HeartbeatId(self.last_id);
        self.under_way = Some(PendingHeartbeat { id, sent_ns: now_ns });
        Some(id)
    }

    /// Records a reply of the store, which replaces the one before.
    ///
    /// A reply to an abandoned heartbeat changes nothing.
    pub fn received(&mut self, id: HeartbeatId, now_ns: u64, received: HeartbeatReply) -> Resize {
        let now_ns = self.pass_to(now_ns);
        let from = self.share(now_ns);
        let Some(sent) = self.under_way.take_if(|sent| sent.id == id) else {
            return Resize { from, to: from, fresh: 0 };
        };
        let MemberConfig { heartbeat_ns, usable_ns, drift_ppm, .. } = self.config;
        self.share = received.permits;
        self.members = received.members;
        self.ends_ns = sent.sent_ns.saturating_add(usable_ns.get());
        let changes_ns = received.changes_in_ns.map(|ns| at_most_ns(ns.get(), drift_ppm));
        let changes_ns = changes_ns.map(|ns| ns.max(self.soon_ns()));
        let heartbeat_ns = sent.sent_ns.saturating_add(heartbeat_ns.get());
        let changes_ns = changes_ns.map_or(u64::MAX, |ns| now_ns.saturating_add(ns));
        self.next_ns = heartbeat_ns.min(changes_ns);
        let to = self.share(now_ns);
        Resize { from, to, fresh: received.fresh.min(to.saturating_sub(from)) }
    }

    /// Records that no reply came.
    pub fn lost(&mut self, id: HeartbeatId, now_ns: u64) {
        let now_ns = self.pass_to(now_ns);
        if self.under_way.take_if(|sent| sent.id == id).is_some() {
            self.next_ns = now_ns.saturating_add(self.soon_ns());
        }
    }

    /// Releases the share for good. A heartbeat of length zero may inform the store.
    pub const fn leave(&mut self) {
        self.share = 0;
        self.has_left = true;
        self.under_way = None;
    }

    /// Returns the permits that this node may use at `now_ns`: zero once its time is over.
    #[must_use]
    pub fn share(&self, now_ns: u64) -> u64 {
        if now_ns.max(self.latest_ns) < self.ends_ns { self.share } else { 0 }
    }

    /// Returns the instant at which the share ends if no reply comes.
    #[must_use]
    pub const fn ends_ns(&self) -> u64 {
        self.ends_ns
    }

    /// Returns the number of members by the store's last reply; 0 if it never replied.
    #[must_use]
    pub const fn members(&self) -> u64 {
        self.members
    }

    /// Returns when to call [`heartbeat`](Self::heartbeat) again; `None` while a heartbeat is in
    /// flight, and after leaving.
    #[must_use]
    pub fn wakes_at_ns(&self) -> Option<u64> {
        (!self.has_left && self.under_way.is_none()).then_some(self.next_ns)
    }

    /// Returns the shortest time between two heartbeats.
    fn soon_ns(&self) -> u64 {
        (self.config.heartbeat_ns.get() >> 3).max(1)
    }

    fn pass_to(&mut self, now_ns: u64) -> u64 {
        self.latest_ns = self.latest_ns.max(now_ns);
        self.latest_ns
    }
}
