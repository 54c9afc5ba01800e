//! Membership: the size of this node's partition, its recent changes, and calls before the
//! first reply.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rategate_core::node::{HeartbeatId, Member, MemberConfig, Resize};

use super::deadline::Deadline;
use super::decision::{DecisionFuture, DecisionSender};
use super::inner::{BackgroundWork, Inner, Strategy};
use super::partitioned::Partitioned;
use super::watch::CheckedReply;
use crate::clock::Clock;
use crate::random::random_id;
use crate::store::{Heartbeat, Key, Reply, Store, StoreError, StoreReply, StoreRequest};

/// A node's membership in the group of those that partition a limit.
pub(super) struct Membership {
    group: Key,
    me: [u8; 16],
    length_ns: u64,
    total: u64,
    /// The time for which a grant matters, in ns.
    memory_ns: u64,
    state: Mutex<State>,
}

struct State {
    machine: Member,
    /// The partition before the oldest of the changes, and the instant since which it has lasted
    /// at least.
    first: Change,
    /// The changes that still matter, the oldest first.
    changes: VecDeque<Change>,
    waiting: Vec<Waiting>,
    has_reply: bool,
}

struct Waiting {
    caller: DecisionSender,
    key: Key,
    permits: NonZeroU64,
}

/// The current partition of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentShare {
    pub(super) share: u64,
    /// The number of the latest change.
    pub(super) number: u64,
    /// `true` if it had a partition that has expired.
    pub(super) is_lapsed: bool,
}

/// A change that [`since`](Membership::since) shows, to be applied to a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyChange {
    /// The key was not used for so long that it counts as new.
    StartsFresh(Change),
    /// The partition changed its size.
    Resized(Change),
}

/// A change of the partition's size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// The number of the change, counted from 1.
    pub(super) number: u64,
    pub(super) at_ns: u64,
    /// The size before, or 0 if it had lapsed.
    pub(super) from: u64,
    pub(super) share: u64,
    /// The gained permits that count as unused.
    pub(super) fresh: u64,
}

impl Membership {
    pub(super) fn new(label: &str, config: MemberConfig, total: u64, memory_ns: u64) -> Self {
        let first = Change { number: 0, at_ns: 0, from: 0, share: 0, fresh: 0 };
        let state = State {
            machine: Member::new(config),
            first,
            changes: VecDeque::new(),
            waiting: Vec::new(),
            has_reply: false,
        };
        Self {
            group: Key::from(label.as_bytes()),
            me: random_id(),
            length_ns: config.length_ns().get(),
            total,
            memory_ns,
            state: Mutex::new(state),
        }
    }

    /// Returns the current partition of this node.
    pub(super) fn now(&self, now_ns: u64) -> CurrentShare {
        let state = self.state();
        let is_lapsed = state.has_reply && state.machine.ends_ns() <= now_ns;
        CurrentShare {
            share: state.machine.share(now_ns),
            number: state.newest().number,
            is_lapsed,
        }
    }

    /// Returns the change that an unknown key starts from, before all that [`since`](Self::since)
    /// shows.
    pub(super) fn first(&self) -> Change {
        self.state().first
    }

    /// Shows the changes after `number`, in order.
    ///
    /// Those that no longer matter are shown as the one that a new key starts from.
    pub(super) fn since(&self, number: u64, mut show: impl FnMut(KeyChange)) {
        let state = self.state();
        if number < state.first.number {
            show(KeyChange::StartsFresh(state.first));
        }
        for change in state.changes.iter().filter(|change| change.number > number) {
            show(KeyChange::Resized(*change));
        }
    }

    /// Waits for the first reply, with the deadline of `call`. Returns `None` if that has come.
    pub(super) fn wait_for_word(
        &self,
        key: &[u8],
        permits: NonZeroU64,
        call: impl FnOnce() -> Arc<dyn Deadline>,
    ) -> Option<DecisionFuture> {
        let mut state = self.state();
        if state.has_reply {
            return None;
        }
        let (caller, deciding) = DecisionFuture::later(call());
        state.waiting.push(Waiting { caller, key: Key::from(key), permits });
        Some(deciding)
    }

    fn heartbeat<P>(&self, length_ns: u64) -> StoreRequest<P> {
        let Self { me: member, total, memory_ns, .. } = *self;
        let heartbeat = Heartbeat { member, total, at_least: 0, length_ns, memory_ns };
        StoreRequest::Heartbeat { group: Arc::clone(&self.group), heartbeat }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn newest(&self) -> Change {
        self.changes.back().copied().unwrap_or(self.first)
    }

    /// Records a change, and folds those that are older than the limit's memory.
    fn record_change(&mut self, now_ns: u64, resize: Resize, memory_ns: u64) {
        let newest = self.newest();
        if resize.to != newest.share || resize.from != newest.share {
            let number = newest.number.saturating_add(1);
            // A time without a partition is a change of its own: the whole new partition is
            // gained.
            let Resize { from, to: share, fresh } = resize;
            self.changes.push_back(Change { number, at_ns: now_ns, from, share, fresh });
        }
        let is_over = |change: &Change| change.at_ns.saturating_add(memory_ns) <= now_ns;
        while self.changes.front().is_some_and(is_over) {
            self.first = self.changes.pop_front().unwrap_or(self.first);
        }
    }
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    /// Sends a heartbeat, if it is due.
    pub(super) fn heartbeat(self: &Arc<Self>, shared: &Partitioned) {
        let member = &shared.membership;
        let mut state = member.state();
        let requested_ns = self.clock.now_ns();
        let sent = state.machine.heartbeat(requested_ns);
        let wakes_ns = state.machine.wakes_at_ns();
        drop(state);
        if let Some(at_ns) = wakes_ns {
            self.rounds.add(at_ns, BackgroundWork::Heartbeat);
        }
        let Some(id) = sent else { return };
        let inner = Arc::clone(self);
        self.store.submit(
            member.heartbeat(member.length_ns),
            Box::new(move |answer| inner.receive_heartbeat_reply(id, requested_ns, answer)),
        );
    }

    fn receive_heartbeat_reply(
        self: &Arc<Self>,
        id: HeartbeatId,
        requested_ns: u64,
        answer: Result<StoreReply, StoreError>,
    ) {
        let Strategy::Partitioned(shared) = &self.strategy else { return };
        let member = &shared.membership;
        let now_ns = self.clock.now_ns();
        let backend = self.store.backend_of(&member.group);
        let (checked_reply, change) = self.watch.received(backend, requested_ns, now_ns, answer);
        self.report_change(change);
        let mut state = member.state();
        let for_ns = match checked_reply {
            CheckedReply::Usable(Reply::Share(share), _) => {
                let resize = state.machine.received(id, now_ns, share);
                state.record_change(now_ns, resize, member.memory_ns);
                None
            }
            CheckedReply::None { for_ns } => {
                state.machine.lost(id, now_ns);
                for_ns
            }
            CheckedReply::Usable(..) | CheckedReply::StoreError(_) => {
                state.machine.lost(id, now_ns);
                None
            }
        };
        state.has_reply = true;
        let waiting = std::mem::take(&mut state.waiting);
        let wakes_ns = state.machine.wakes_at_ns();
        drop(state);
        if let Some(at_ns) = wakes_ns {
            self.rounds.add(at_ns, BackgroundWork::Heartbeat);
        }
        for Waiting { caller, key, permits } in waiting {
            let decision = self.share_decides(shared, &key, permits, for_ns);
            self.reply_to(caller, Ok(decision));
        }
    }

    /// Leaves the group, so that its partition goes to the other members at once.
    pub(super) fn leave_group(self: &Arc<Self>, shared: &Partitioned) {
        let member = &shared.membership;
        member.state().machine.leave();
        self.store.submit(member.heartbeat(0), Box::new(|_| ()));
    }
}
