//! A total shared out among members that come and go: the store's side.
//!
//! Shares are never more than the total together, at any instant and whatever is lost on the way; once nobody comes or
//! goes they are the total exactly, with the remainder shared out too (theory 5.7).
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
//! * **Sum.** What all members hold is at most the total. A member that is told of a smaller share may not have
//!   heard it, so it holds the larger one until the time of the larger one is over; only then has somebody else more.
//!   Members that say different totals: at most the largest of them.
//! * **Even.** A member's part is `floor(total / members)`, and one more for the first `total mod members` of them in the
//!   order of their names. It has it within two beats of the last coming or going.
//! * **Not below** what a member says it cannot give up yet, of what it holds.
//! * **Fresh.** Of what a member gains, so much was held by nobody for `memory_ns`. The rest may have been used up to a moment
//!   ago.
//! * **Afresh.** A group that nobody was in for `memory_ns` is as good as a new one.
//! * **Clock.** The store's; a reading older than the newest counts as that one.
//! * **Cost.** One step for each member; at most [`MAX_MEMBERS`] of them, and whoever comes then gets nothing.

use alloc::vec::Vec;
use core::num::NonZeroU64;

/// The most members of one group.
pub const MAX_MEMBERS: usize = 65_536;

/// So many different ends of what one member may hold are told apart, and so many different times since which permits
/// are held by nobody. More are joined, to the safe side.
const MAX_STEPS: usize = 8;

/// A sign of life of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Who: a name that nobody else has, and that nobody had before.
    pub member: [u8; 16],
    /// What all members have together.
    pub total: u64,
    /// What the member cannot give up yet, of what it has.
    pub at_least: u64,
    /// For how long this counts; 0 to leave at once.
    pub length_ns: u64,
    /// How long after a member had it for the last time a permit may still matter: the limit's period, and its guard. All
    /// members say the same.
    pub memory_ns: u64,
}

/// What a member is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Its share.
    pub permits: u64,
    /// How much of what it gains nobody has held for so long that it no longer matters.
    pub fresh: u64,
    /// How many members there are.
    pub members: u64,
    /// When it is worth asking again, because somebody else's time is over by then.
    pub changes_in_ns: Option<NonZeroU64>,
}

/// Members and what each of them holds.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// In the order of their names.
    members: Vec<Holder>,
    /// What was given up, and since when: what is left is fresh.
    given_up: Vec<GivenUp>,
    latest_ns: u64,
}

#[derive(Clone, Debug)]
struct Holder {
    name: [u8; 16],
    /// What it may hold, and until when: smaller and later from one step to the next.
    steps: Vec<Step>,
    /// When it is late with its next sign of life.
    late_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    permits: u64,
    until_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct GivenUp {
    permits: u64,
    since_ns: u64,
}

impl Group {
    /// Nobody yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { members: Vec::new(), given_up: Vec::new(), latest_ns: 0 }
    }

    /// A member is alive at `now_ns`, and is told its share.
    pub fn beat(&mut self, now_ns: u64, beat: &Beat) -> Heard {
        self.latest_ns = self.latest_ns.max(now_ns);
        let now_ns = self.latest_ns;
        self.end_what_is_over(now_ns, beat.memory_ns);
        if beat.length_ns == 0 {
            self.leave(now_ns, beat.member);
            return self.nothing();
        }
        let Some(place) = self.place_of(beat.member) else { return self.nothing() };
        let others = self.held_but(place);
        let room = beat.total.saturating_sub(others);
        let part = self.part_of(place, beat.total);
        let held = self.members.get(place).map_or(0, Holder::held);
        let permits = part.min(room).max(beat.at_least.min(held));
        let gained = permits.saturating_sub(held);
        let fresh = self.draw(gained, room.saturating_sub(held));
        if let Some(holder) = self.members.get_mut(place) {
            holder.hold(now_ns, permits, beat.length_ns);
        }
        let changes_in_ns = self.changes_ns(place, permits < part, now_ns);
        let changes_in_ns = changes_in_ns.and_then(|at| NonZeroU64::new(at.saturating_sub(now_ns)));
        Heard { permits, fresh, members: self.count(), changes_in_ns }
    }

    /// What all members may hold at `now_ns`.
    #[must_use]
    pub fn held(&self, now_ns: u64) -> u64 {
        let now_ns = now_ns.max(self.latest_ns);
        let held = self.members.iter().map(|holder| holder.held_at(now_ns));
        held.fold(0, u64::saturating_add)
    }

    /// Whether a new group would do as well at `now_ns`: nobody is in it, and nobody was for so long.
    #[must_use]
    pub fn may_be_forgotten(&self, now_ns: u64, memory_ns: u64) -> bool {
        let now_ns = now_ns.max(self.latest_ns);
        let is_over = |since_ns: u64| since_ns.saturating_add(memory_ns) <= now_ns;
        self.members.iter().all(|holder| is_over(holder.ends_ns()))
            && self.given_up.iter().all(|given_up| is_over(given_up.since_ns))
    }

    fn nothing(&self) -> Heard {
        Heard { permits: 0, fresh: 0, members: self.count(), changes_in_ns: None }
    }

    fn count(&self) -> u64 {
        u64::try_from(self.members.len()).unwrap_or(u64::MAX)
    }

    /// Lets go of what nobody holds any more, and forgets what was let go long ago.
    fn end_what_is_over(&mut self, now_ns: u64, memory_ns: u64) {
        let Self { members, given_up, .. } = self;
        for holder in &mut *members {
            while let Some(over) = holder.end_one(now_ns) {
                give_up(given_up, over);
            }
        }
        members.retain(|holder| !holder.steps.is_empty());
        given_up.retain(|given_up| now_ns.saturating_sub(given_up.since_ns) < memory_ns);
    }

    fn leave(&mut self, now_ns: u64, name: [u8; 16]) {
        if let Ok(place) = self.members.binary_search_by_key(&name, |holder| holder.name) {
            let permits = self.members.remove(place).held();
            give_up(&mut self.given_up, GivenUp { permits, since_ns: now_ns });
        }
    }

    /// Where a member stands, which comes to stand there if it is new. `None` if there are too many.
    fn place_of(&mut self, name: [u8; 16]) -> Option<usize> {
        match self.members.binary_search_by_key(&name, |holder| holder.name) {
            Ok(place) => Some(place),
            Err(_) if self.members.len() >= MAX_MEMBERS => None,
            Err(place) => {
                self.members.insert(place, Holder { name, steps: Vec::new(), late_ns: 0 });
                Some(place)
            }
        }
    }

    /// What is a member's part of a total.
    fn part_of(&self, place: usize, total: u64) -> u64 {
        let count = self.count();
        let each = total.checked_div(count).unwrap_or(0);
        let left = total.checked_rem(count).unwrap_or(0);
        let is_among_first = u64::try_from(place).is_ok_and(|place| place < left);
        each.saturating_add(u64::from(is_among_first))
    }

    /// What all others hold.
    fn held_but(&self, place: usize) -> u64 {
        let others = self.members.iter().enumerate().filter(|&(other, _)| other != place);
        others.fold(0, |sum, (_, holder)| sum.saturating_add(holder.held()))
    }

    /// Takes from what nobody holds, of which there is so much. Says how much of that is fresh.
    fn draw(&mut self, permits: u64, free: u64) -> u64 {
        let sum = |sum: u64, given_up: &GivenUp| sum.saturating_add(given_up.permits);
        let stale = self.given_up.iter().fold(0, sum);
        let fresh = permits.min(free.saturating_sub(stale));
        let mut left = permits.saturating_sub(fresh);
        for given_up in &mut self.given_up {
            let drawn = left.min(given_up.permits);
            given_up.permits = given_up.permits.saturating_sub(drawn);
            left = left.saturating_sub(drawn);
        }
        self.given_up.retain(|given_up| given_up.permits > 0);
        fresh
    }

    /// When somebody else holds less than now: one who is late, or, for one who has not got its part, anybody.
    fn changes_ns(&self, place: usize, is_short: bool, now_ns: u64) -> Option<u64> {
        let others = self.members.iter().enumerate().filter(|&(other, _)| other != place);
        let changes = others.filter_map(|(_, holder)| holder.changes_ns(is_short, now_ns));
        changes.min()
    }
}

impl Holder {
    /// The most that it may hold now.
    fn held(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.permits)
    }

    fn held_at(&self, now_ns: u64) -> u64 {
        let live = self.steps.iter().find(|step| now_ns < step.until_ns);
        live.map_or(0, |step| step.permits)
    }

    fn ends_ns(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.until_ns)
    }

    /// Takes off the first step that is over: what it was higher than the next.
    fn end_one(&mut self, now_ns: u64) -> Option<GivenUp> {
        let over = *self.steps.first().filter(|step| step.until_ns <= now_ns)?;
        self.steps.remove(0);
        let permits = over.permits.saturating_sub(self.held());
        Some(GivenUp { permits, since_ns: over.until_ns })
    }

    /// Holds so much from now on, besides what it may still hold without having heard of it.
    fn hold(&mut self, now_ns: u64, permits: u64, length_ns: u64) {
        let until_ns = now_ns.saturating_add(length_ns).max(self.ends_ns());
        while self.steps.pop_if(|last| last.permits <= permits).is_some() {}
        self.steps.push(Step { permits, until_ns });
        if self.steps.len() > MAX_STEPS {
            // Of the first two, as much as the one and as long as the other.
            let first = self.steps.remove(0);
            if let Some(second) = self.steps.first_mut() {
                second.permits = first.permits;
            }
        }
        self.late_ns = now_ns.saturating_add(length_ns.div_ceil(3).saturating_mul(2));
    }

    fn changes_ns(&self, is_short: bool, now_ns: u64) -> Option<u64> {
        let next = self.steps.first()?;
        let is_falling = self.steps.len() > 1 && is_short;
        (is_falling || self.late_ns <= now_ns).then_some(next.until_ns)
    }
}

fn give_up(given_up: &mut Vec<GivenUp>, over: GivenUp) {
    if over.permits == 0 {
        return;
    }
    let is_full = given_up.len() >= MAX_STEPS;
    match given_up.last_mut() {
        Some(last) if is_full => {
            last.permits = last.permits.saturating_add(over.permits);
            last.since_ns = last.since_ns.max(over.since_ns);
        }
        _ => given_up.push(over),
    }
}
