//! Members that share totals, group by group. Groups are added and evicted as
//! [keys](super::shard) are.

use std::collections::{HashMap, VecDeque};

use rategate_core::node;

use crate::store::{Heartbeat, HeartbeatReply, Key, StoreError, Unavailable};

/// The most groups that the store keeps at once.
pub const MAX_GROUPS: usize = 65_536;
/// The number of groups that each new one examines for eviction.
const CHECKS: usize = 2;

/// The groups of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    live: HashMap<Key, Live>,
    /// All groups, in the order in which they are examined for eviction.
    sweep_queue: VecDeque<Key>,
    latest_ns: u64,
}

#[derive(Clone, Debug)]
struct Live {
    group: node::Group,
    memory_ns: u64,
}

impl Groups {
    /// Records a heartbeat of a member, and returns its partition.
    ///
    /// # Errors
    ///
    /// [`Unavailable::Unable`] if the group would be one too many.
    pub(super) fn heartbeat(
        &mut self,
        now_ns: u64,
        group: &Key,
        heartbeat: &Heartbeat,
    ) -> Result<HeartbeatReply, StoreError> {
        self.latest_ns = self.latest_ns.max(now_ns);
        if !self.live.contains_key(group) {
            self.begin(Key::clone(group))?;
        }
        let Some(live) = self.live.get_mut(group) else { return Err(full()) };
        live.memory_ns = live.memory_ns.max(heartbeat.memory_ns);
        Ok(live.group.heartbeat(self.latest_ns, heartbeat))
    }

    /// Returns to an earlier state, except for the clock, which keeps its reading.
    pub(super) fn rewind(&mut self, epoch: &Self) {
        *self = Self { latest_ns: self.latest_ns, ..epoch.clone() };
    }

    fn begin(&mut self, key: Key) -> Result<(), StoreError> {
        for _ in 0..CHECKS.min(self.sweep_queue.len()) {
            let Some(key) = self.sweep_queue.pop_front() else { break };
            let is_over = |live: &Live| live.group.may_be_evicted(self.latest_ns, live.memory_ns);
            if self.live.get(&key).is_none_or(is_over) {
                self.live.remove(&key);
            } else {
                self.sweep_queue.push_back(key);
            }
        }
        if self.live.len() >= MAX_GROUPS {
            return Err(full());
        }
        self.sweep_queue.push_back(Key::clone(&key));
        self.live.insert(key, Live { group: node::Group::new(), memory_ns: 0 });
        Ok(())
    }
}

fn full() -> StoreError {
    StoreError::Unavailable(Unavailable::Unable(format!(
        "the store is full: it has {MAX_GROUPS} groups, the maximum"
    )))
}
