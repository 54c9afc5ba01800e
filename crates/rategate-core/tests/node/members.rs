//! A world of members that share a total: they join, leave and crash.
//!
//! Their messages are late or lost, and their clocks have other rates. Time is the store's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use rategate_core::node::group::{Group, Heartbeat, HeartbeatReply};
use rategate_core::node::member::{HeartbeatId, Member, MemberConfig};
use rategate_testkit::oracle::Grants;

use crate::node::clock::NodeClock;
use crate::node::n;

/// The parameters of the world.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) total: u64,
    pub(crate) max_members: usize,
    pub(crate) heartbeat_ns: u64,
    pub(crate) drift_ppm: u32,
    pub(crate) delays_ns: (u64, u64),
    pub(crate) loses_one_in: u64,
    pub(crate) budget_ns: u64,
    /// The period of the partitioned limit: at most `total` in any.
    pub(crate) memory_ns: u64,
    /// `true` if members have permits in flight that they cannot release.
    pub(crate) holds_on: bool,
    /// The instant until which members join and leave, and messages are lost.
    pub(crate) quiet_from_ns: u64,
    pub(crate) ends_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Churn,
    Use { name: usize },
    Wake { name: usize },
    AtStore { name: usize, id: Option<HeartbeatId>, at_least: u64 },
    Answer { name: usize, id: HeartbeatId, received: [u64; 4] },
    GivenUp { name: usize, id: HeartbeatId },
}

struct Node {
    clock: NodeClock,
    member: Member,
    is_alive: bool,
    /// The instant before which no message from it or to it arrives.
    cut_off_until_ns: u64,
    log: ShareLog,
    wakes_ns: Option<u64>,
}

/// The simplest log of a limit whose size changes: one instant for each permit, its last use.
#[derive(Clone, Debug, Default)]
struct ShareLog {
    used_ns: Vec<Option<u64>>,
}

impl ShareLog {
    /// Resizes the log.
    ///
    /// Of its gain, `fresh` permits had no user, and the others were used just now. Of a loss, it
    /// releases those used longest ago.
    fn resize(&mut self, now_ns: u64, to: u64, fresh: u64) {
        let (to, fresh) = (usize::try_from(to).unwrap(), usize::try_from(fresh).unwrap());
        self.used_ns.sort_unstable();
        let lost = self.used_ns.len().saturating_sub(to);
        self.used_ns.drain(..lost);
        let gain = to - self.used_ns.len();
        self.used_ns.extend(std::iter::repeat_n(None, fresh.min(gain)));
        self.used_ns.resize(to, Some(now_ns));
    }

    fn take(&mut self, now_ns: u64, period_ns: u64) -> bool {
        let is_free = |used: &&mut Option<u64>| used.is_none_or(|at| at + period_ns <= now_ns);
        let free = self.used_ns.iter_mut().find(is_free);
        free.map(|used| *used = Some(now_ns)).is_some()
    }
}

pub(crate) struct World {
    plan: Plan,
    random: Rng,
    group: Group,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    now_ns: u64,
    pub(crate) used: Grants,
    pub(crate) heartbeats: u64,
    pub(crate) fullest: u64,
    /// The instant since which shares are the total, without a break.
    pub(crate) full_since_ns: Option<u64>,
}

impl World {
    pub(crate) fn new(plan: Plan, seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            plan,
            group: Group::new(),
            nodes: Vec::new(),
            events: BinaryHeap::new(),
            count: 0,
            now_ns: 0,
            used: Grants::default(),
            heartbeats: 0,
            fullest: 0,
            full_since_ns: None,
        }
    }

    pub(crate) fn run(mut self) -> Self {
        self.at(0, Event::Churn);
        while let Some(Reverse((at_ns, _, event))) = self.events.pop() {
            if at_ns > self.plan.ends_ns {
                break;
            }
            self.check_until(at_ns);
            self.now_ns = at_ns;
            self.happen(event);
        }
        self
    }

    /// Returns the permits that all members may use by their own clocks, at an instant.
    ///
    /// A member's clock alone ends its share when its messages are late.
    fn shares(&self, at_ns: u64) -> u64 {
        let alive = self.nodes.iter().filter(|node| node.is_alive);
        alive.map(|node| node.member.share(node.clock.at(at_ns))).sum()
    }

    /// Checks the sum of shares until the next event.
    ///
    /// Between two events shares only end, so the sum after the last one is the maximum. It is
    /// also checked just before the next.
    fn check_until(&mut self, next_ns: u64) {
        let sum = self.shares(self.now_ns);
        assert!(sum <= self.plan.total, "{sum} at {}: {:?}", self.now_ns, self.plan);
        self.fullest = self.fullest.max(sum);
        let held = self.group.held(self.now_ns);
        assert!(sum <= held && held <= self.plan.total, "{sum} used, {held} held");
        let is_full = sum == self.plan.total && self.shares(next_ns.max(1) - 1) == sum;
        self.full_since_ns = if is_full { self.full_since_ns.or(Some(self.now_ns)) } else { None };
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at_ns, self.count, event)));
    }

    fn is_quiet(&self) -> bool {
        self.now_ns >= self.plan.quiet_from_ns
    }

    fn send(&mut self, name: usize, event: Event) {
        if self.now_ns < self.nodes[name].cut_off_until_ns && !self.is_quiet() {
            return;
        }
        let one_in = self.plan.loses_one_in;
        if one_in > 0 && !self.is_quiet() && self.random.u64(..one_in) == 0 {
            return;
        }
        let (low_ns, high_ns) = self.plan.delays_ns;
        let mut delay_ns = self.random.u64(low_ns..=high_ns);
        // Some arrive after their sender has abandoned them.
        if one_in > 0 && !self.is_quiet() && self.random.u64(..12) == 0 {
            delay_ns = self.random.u64(high_ns..=self.plan.heartbeat_ns * 2);
        }
        self.at(self.now_ns + delay_ns, event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Churn => self.churn(),
            Event::Use { name } => self.use_up(name),
            Event::Wake { name } => {
                if self.nodes[name].wakes_ns.take_if(|at| *at == self.now_ns).is_some() {
                    self.heartbeat(name);
                }
            }
            Event::AtStore { name, id, at_least } => self.at_store(name, id, at_least),
            Event::Answer { name, id, received } => self.answer(name, id, received),
            Event::GivenUp { name, id } => {
                let local_ns = self.nodes[name].clock.at(self.now_ns);
                self.nodes[name].member.lost(id, local_ns);
                self.heartbeat(name);
            }
        }
    }

    /// Lets a member join, leave or fall silent.
    fn churn(&mut self) {
        let alive: Vec<usize> =
            (0..self.nodes.len()).filter(|&at| self.nodes[at].is_alive).collect();
        let comes = alive.is_empty() || self.random.u64(..2) == 0;
        if comes && alive.len() < self.plan.max_members {
            let config = MemberConfig::new(n(self.plan.heartbeat_ns), self.plan.drift_ppm).unwrap();
            self.nodes.push(Node {
                clock: NodeClock::any(&mut self.random, self.plan.drift_ppm),
                member: Member::new(config),
                is_alive: true,
                cut_off_until_ns: 0,
                log: ShareLog::default(),
                wakes_ns: None,
            });
            let name = self.nodes.len() - 1;
            self.heartbeat(name);
            self.at(self.now_ns, Event::Use { name });
        } else if self.plan.loses_one_in > 0 && !alive.is_empty() && self.random.u64(..2) == 0 {
            let name = self.random.choice(&alive).copied().unwrap();
            let length_ns = self.random.u64(0..=self.plan.heartbeat_ns * 4);
            self.nodes[name].cut_off_until_ns = self.now_ns + length_ns;
        } else if alive.len() > 1 {
            let name = self.random.choice(&alive).copied().unwrap();
            self.nodes[name].is_alive = false;
            if self.random.u64(..2) == 0 {
                self.nodes[name].member.leave();
                self.send(name, Event::AtStore { name, id: None, at_least: 0 });
            }
        }
        let next_ns = self.now_ns + self.random.u64(1..=self.plan.heartbeat_ns * 3);
        if next_ns < self.plan.quiet_from_ns {
            self.at(next_ns, Event::Churn);
        }
    }

    fn use_up(&mut self, name: usize) {
        let node = &mut self.nodes[name];
        if !node.is_alive {
            return;
        }
        let share = node.member.share(node.clock.at(self.now_ns));
        if share > 0 {
            assert_eq!(node.log.used_ns.len(), usize::try_from(share).unwrap());
            while node.log.take(self.now_ns, self.plan.memory_ns) {
                self.used.add(self.now_ns, 1);
            }
        }
        let next_ns =
            self.now_ns + self.random.u64(1..=self.plan.memory_ns.min(self.plan.heartbeat_ns));
        self.at(next_ns, Event::Use { name });
    }

    fn heartbeat(&mut self, name: usize) {
        let node = &mut self.nodes[name];
        if !node.is_alive {
            return;
        }
        let local_ns = node.clock.at(self.now_ns);
        if let Some(id) = node.member.heartbeat(local_ns) {
            let share = node.member.share(local_ns);
            let at_least = if self.plan.holds_on { self.random.u64(0..=share) } else { 0 };
            let gives_up_ns = node.clock.first(local_ns + self.plan.budget_ns);
            self.at(gives_up_ns, Event::GivenUp { name, id });
            self.send(name, Event::AtStore { name, id: Some(id), at_least });
        }
        let node = &mut self.nodes[name];
        let Some(wakes_ns) = node.member.wakes_at_ns() else { return };
        let wakes_ns = node.clock.first(wakes_ns).max(self.now_ns + 1);
        if node.wakes_ns != Some(wakes_ns) {
            node.wakes_ns = Some(wakes_ns);
            self.at(wakes_ns, Event::Wake { name });
        }
    }

    fn at_store(&mut self, name: usize, id: Option<HeartbeatId>, at_least: u64) {
        self.heartbeats += 1;
        // Names in another order than that of joining.
        let scrambled = u64::try_from(name).unwrap().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut member = [0; 16];
        member[..8].copy_from_slice(&scrambled.to_be_bytes());
        let length_ns = self.plan.heartbeat_ns + self.plan.heartbeat_ns.div_ceil(2);
        let heartbeat = Heartbeat {
            member,
            total: self.plan.total,
            at_least,
            length_ns: if id.is_some() { length_ns } else { 0 },
            memory_ns: self.plan.memory_ns,
        };
        let HeartbeatReply { permits, fresh, members, changes_in_ns } =
            self.group.heartbeat(self.now_ns, &heartbeat);
        if let Some(id) = id {
            let received = [permits, fresh, members, changes_in_ns.map_or(0, u64::from)];
            self.send(name, Event::Answer { name, id, received });
        }
    }

    fn answer(&mut self, name: usize, id: HeartbeatId, received: [u64; 4]) {
        let node = &mut self.nodes[name];
        if !node.is_alive {
            return;
        }
        let local_ns = node.clock.at(self.now_ns);
        let [permits, fresh, members, changes_in_ns] = received;
        let changes_in_ns = std::num::NonZeroU64::new(changes_in_ns);
        let received = HeartbeatReply { permits, fresh, members, changes_in_ns };
        let resize = node.member.received(id, local_ns, received);
        if resize.from == 0 {
            node.log = ShareLog::default();
        }
        node.log.resize(self.now_ns, resize.to, resize.fresh);
        self.heartbeat(name);
    }

    /// Returns the shares of the present members, from the smallest.
    pub(crate) fn shares_now(&self) -> Vec<u64> {
        let alive = self.nodes.iter().filter(|node| node.is_alive);
        let share = |node: &Node| node.member.share(node.clock.at(self.now_ns));
        let mut shares: Vec<u64> = alive.map(share).collect();
        shares.sort_unstable();
        shares
    }
}
