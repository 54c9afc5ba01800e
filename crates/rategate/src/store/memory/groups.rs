//! Members that share totals, group by group. Groups are added and evicted as
//! [keys](super::shard) are.

use std::collections::{HashMap, VecDeque};

use rategate_core::node;

use crate::store::{Beat, Fault, Gone, Key, Share};

/// The most groups that the store keeps at once.
pub const MAX_GROUPS: usize = 65_536;
/// The number of groups that each new one examines for eviction.
const LOOKS: usize = 2;

/// The groups of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    live: HashMap<Key, Live>,
    /// All groups, in the order in which they are examined for eviction.
    lap: VecDeque<Key>,
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
    /// [`Gone::Unable`] if the group would be one too many.
    pub(super) fn beat(&mut self, now_ns: u64, beat: &Beat) -> Result<Share, Fault> {
        self.latest_ns = self.latest_ns.max(now_ns);
        if !self.live.contains_key(&beat.group) {
            self.begin(Key::clone(&beat.group))?;
        }
        let Some(live) = self.live.get_mut(&beat.group) else { return Err(full()) };
        live.memory_ns = live.memory_ns.max(beat.memory_ns);
        let &Beat { member, total, at_least, length_ns, memory_ns, .. } = beat;
        let beat = node::Beat { member, total, at_least, length_ns, memory_ns };
        let heard = live.group.beat(self.latest_ns, &beat);
        let node::Heard { permits, fresh, members, changes_in_ns } = heard;
        Ok(Share { permits, fresh, members, changes_in_ns })
    }

    /// Returns to an earlier state, except for the clock, which keeps its reading.
    pub(super) fn rewind(&mut self, past: &Self) {
        *self = Self { latest_ns: self.latest_ns, ..past.clone() };
    }

    fn begin(&mut self, key: Key) -> Result<(), Fault> {
        for _ in 0..LOOKS.min(self.lap.len()) {
            let Some(key) = self.lap.pop_front() else { break };
            let is_over = |live: &Live| live.group.may_be_forgotten(self.latest_ns, live.memory_ns);
            if self.live.get(&key).is_none_or(is_over) {
                self.live.remove(&key);
            } else {
                self.lap.push_back(key);
            }
        }
        if self.live.len() >= MAX_GROUPS {
            return Err(full());
        }
        self.lap.push_back(Key::clone(&key));
        self.live.insert(key, Live { group: node::Group::new(), memory_ns: 0 });
        Ok(())
    }
}

fn full() -> Fault {
    Fault::Gone(Gone::Unable(format!("the store is full: it has {MAX_GROUPS} groups, the maximum")))
}
