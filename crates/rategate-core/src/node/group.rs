//! A total partitioned among members that join and leave: the store's side.
//!
//! Together, shares are never more than the total, at any instant and whatever messages are lost.
//! Once no member joins or leaves, they are the total exactly, including the remainder
//! (docs/theory.md, section 5.7).
//!
//! ```text
//!   total 10      a: 10          a: 10, then 5       a: 4             a: 5
//!                                b:  0, then 5       b: 3             c: 5
//!                                                    c: 3
//!   members       a              b joins             c joins          b is silent
//! ```
//!
//! # Contract
//!
//! * **Sum.** All members together have at most the total. A member may not have received the
//!   reply with its smaller share, so the larger one counts until its time is over. Only then may
//!   another member have more. Where members state different totals, the bound is the largest of
//!   them.
//! * **Even.** A member's share is `floor(total / members)`, and one more for the first
//!   `total mod members` of them in the order of their names. It has that share within two
//!   heartbeats of the last join or leave.
//! * **Not below** the number of its permits that a member states it cannot release yet.
//! * **Fresh.** The fresh part of a gain had no holder for `memory_ns`. The rest may have been
//!   used up to a moment ago.
//! * **Expiry.** A group that had no member for `memory_ns` is equivalent to a new one.
//! * **Clock.** The store's; a reading older than the newest counts as that one.
//! * **Cost.** One step for each member. There are at most [`MAX_MEMBERS`] of them; a further
//!   member gets no permits.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::held::Held;

/// The maximum number of members of one group.
pub const MAX_MEMBERS: usize = 65_536;

/// The maximum number of released amounts recorded for a group.
///
/// Further ones are merged, to the safe side.
const MAX_GIVEN_UP: usize = 8;

/// A heartbeat of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The member's name, which no other member has or had before.
    pub member: [u8; 16],
    /// The total of all members together.
    pub total: u64,
    /// The number of its permits that the member cannot release yet.
    pub at_least: u64,
    /// The time for which this heartbeat counts; 0 to leave at once.
    pub length_ns: u64,
    /// The time for which a permit may still matter after a member last had it.
    ///
    /// It is the limit's period and its guard. All members state the same time.
    pub memory_ns: u64,
}

/// The reply to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// The member's share.
    pub permits: u64,
    /// The part of its gain that had no holder for so long that it no longer matters.
    pub fresh: u64,
    /// The number of members.
    pub members: u64,
    /// The time until another request is useful, because another member's time is over by then.
    pub changes_in_ns: Option<NonZeroU64>,
}

/// The members of a partitioned limit and the share of each.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The members, in the order of their names.
    members: Vec<Holder>,
    /// The permits that members released, and the times since then. All other free permits are
    /// fresh.
    given_up: Vec<GivenUp>,
    latest_ns: u64,
}

#[derive(Clone, Debug)]
struct Holder {
    name: [u8; 16],
    held: Held,
    /// The instant at which its next heartbeat is late.
    late_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct GivenUp {
    permits: u64,
    since_ns: u64,
}

impl Group {
    /// Returns a group without members.
    #[must_use]
    pub const fn new() -> Self {
        Self { members: Vec::new(), given_up: Vec::new(), latest_ns: 0 }
    }

    /// Records a heartbeat at `now_ns` and returns the member's share.
    pub fn heartbeat(&mut self, now_ns: u64, heartbeat: &Heartbeat) -> HeartbeatReply {
        self.latest_ns = self.latest_ns.max(now_ns);
        let now_ns = self.latest_ns;
        self.end_expired(now_ns, heartbeat.memory_ns);
        if heartbeat.length_ns == 0 {
            self.leave(now_ns, heartbeat.member);
            return self.nothing();
        }
        let Some(index) = self.index_of(heartbeat.member) else { return self.nothing() };
        let others = self.held_by_others(index);
        let available = heartbeat.total.saturating_sub(others);
        let share = self.share_of(index, heartbeat.total);
        let held = self.members.get(index).map_or(0, |holder| holder.held.permits());
        let permits = share.min(available).max(heartbeat.at_least.min(held));
        let gained = permits.saturating_sub(held);
        let fresh = self.take_free(gained, available.saturating_sub(held));
        if let Some(holder) = self.members.get_mut(index) {
            holder.hold(now_ns, permits, heartbeat.length_ns);
        }
        let changes_in_ns = self.changes_ns(index, permits < share, now_ns);
        let changes_in_ns = changes_in_ns.and_then(|at| NonZeroU64::new(at.saturating_sub(now_ns)));
        HeartbeatReply { permits, fresh, members: self.count(), changes_in_ns }
    }

    /// Returns the number of permits that all members may have at `now_ns`.
    #[must_use]
    pub fn held(&self, now_ns: u64) -> u64 {
        let now_ns = now_ns.max(self.latest_ns);
        let held = self.members.iter().map(|holder| holder.held.permits_at(now_ns));
        held.fold(0, u64::saturating_add)
    }

    /// Returns `true` if the group is equivalent to a new one: no member is in it, or was for
    /// `memory_ns`.
    #[must_use]
    pub fn may_be_evicted(&self, now_ns: u64, memory_ns: u64) -> bool {
        let now_ns = now_ns.max(self.latest_ns);
        let is_over = |since_ns: u64| since_ns.saturating_add(memory_ns) <= now_ns;
        self.members.iter().all(|holder| is_over(holder.held.ends_ns()))
            && self.given_up.iter().all(|given_up| is_over(given_up.since_ns))
    }

    fn nothing(&self) -> HeartbeatReply {
        HeartbeatReply { permits: 0, fresh: 0, members: self.count(), changes_in_ns: None }
    }

    fn count(&self) -> u64 {
        u64::try_from(self.members.len()).unwrap_or(u64::MAX)
    }

    /// Releases shares whose time is over, and drops those released long ago.
    fn end_expired(&mut self, now_ns: u64, memory_ns: u64) {
        let Self { members, given_up, .. } = self;
        for holder in &mut *members {
            while let Some((permits, since_ns)) = holder.held.end_one(now_ns) {
                give_up(given_up, GivenUp { permits, since_ns });
            }
        }
        members.retain(|holder| !holder.held.is_empty());
        given_up.retain(|given_up| now_ns.saturating_sub(given_up.since_ns) < memory_ns);
    }

    fn leave(&mut self, now_ns: u64, name: [u8; 16]) {
        if let Ok(index) = self.members.binary_search_by_key(&name, |holder| holder.name) {
            let permits = self.members.remove(index).held.permits();
            give_up(&mut self.given_up, GivenUp { permits, since_ns: now_ns });
        }
    }

    /// Returns a member's index, adding it if it is new. Returns `None` if there are too many
    /// members.
    fn index_of(&mut self, name: [u8; 16]) -> Option<usize> {
        match self.members.binary_search_by_key(&name, |holder| holder.name) {
            Ok(index) => Some(index),
            Err(_) if self.members.len() >= MAX_MEMBERS => None,
            Err(index) => {
                self.members.insert(index, Holder { name, held: Held::default(), late_ns: 0 });
                Some(index)
            }
        }
    }

    /// Returns a member's even share of a total.
    fn share_of(&self, index: usize, total: u64) -> u64 {
        let count = self.count();
        let each = total.checked_div(count).unwrap_or(0);
        let left = total.checked_rem(count).unwrap_or(0);
        let is_among_first = u64::try_from(index).is_ok_and(|index| index < left);
        each.saturating_add(u64::from(is_among_first))
    }

    /// Returns the permits that all other members have.
    fn held_by_others(&self, index: usize) -> u64 {
        let others = self.members.iter().enumerate().filter(|&(other, _)| other != index);
        others.fold(0, |sum, (_, holder)| sum.saturating_add(holder.held.permits()))
    }

    /// Takes permits from the `free` ones that no member has. Returns how many of them are fresh.
    fn take_free(&mut self, permits: u64, free: u64) -> u64 {
        let sum = |sum: u64, given_up: &GivenUp| sum.saturating_add(given_up.permits);
        let stale = self.given_up.iter().fold(0, sum);
        let fresh = permits.min(free.saturating_sub(stale));
        let mut left = permits.saturating_sub(fresh);
        for given_up in &mut self.given_up {
            let taken = left.min(given_up.permits);
            given_up.permits = given_up.permits.saturating_sub(taken);
            left = left.saturating_sub(taken);
        }
        self.given_up.retain(|given_up| given_up.permits > 0);
        fresh
    }

    /// Returns when another member has less than now: a late one, or any one if this member's
    /// share is short.
    fn changes_ns(&self, index: usize, is_short: bool, now_ns: u64) -> Option<u64> {
        let others = self.members.iter().enumerate().filter(|&(other, _)| other != index);
        let changes = others.filter_map(|(_, holder)| holder.changes_ns(is_short, now_ns));
        changes.min()
    }
}

impl Holder {
    fn hold(&mut self, now_ns: u64, permits: u64, length_ns: u64) {
        self.held.hold(now_ns, permits, length_ns);
        self.late_ns = now_ns.saturating_add(length_ns.div_ceil(3).saturating_mul(2));
    }

    fn changes_ns(&self, is_short: bool, now_ns: u64) -> Option<u64> {
        let (until_ns, is_falling) = self.held.next_change()?;
        ((is_falling && is_short) || self.late_ns <= now_ns).then_some(until_ns)
    }
}

fn give_up(given_up: &mut Vec<GivenUp>, over: GivenUp) {
    if over.permits == 0 {
        return;
    }
    let is_full = given_up.len() >= MAX_GIVEN_UP;
    match given_up.last_mut() {
        Some(last) if is_full => {
            last.permits = last.permits.saturating_add(over.permits);
            last.since_ns = last.since_ns.max(over.since_ns);
        }
        _ => given_up.push(over),
    }
}
