//! The leaves of holds, and the nodes that know the effect of many.

use alloc::vec::Vec;

use super::effect::{Effect, Leaf, Node};
use super::{CHUNK, FAN, FEW, Leads};
use crate::exact::Pace;

/// The number of levels: enough for 2^32 holds.
const MAX_LEVELS: usize = 8;

impl Leads {
    /// Returns the rows of nodes that together cover each leaf once, from the front: each level,
    /// and the index from which on no higher level covers it. The level of the leaves is `None`.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Option<usize>, usize)> + use<> {
        let counts: [usize; MAX_LEVELS] =
            core::array::from_fn(|level| self.levels.get(level).map_or(0, Vec::len));
        (0..=self.levels.len()).rev().map(move |above| {
            let covered = counts.get(above).copied().unwrap_or(0).saturating_mul(FAN);
            (above.checked_sub(1), covered)
        })
    }

    pub(super) fn node(&self, level: usize, index: usize) -> Option<Node> {
        self.levels.get(level)?.get(index).copied()
    }

    pub(super) fn leaf_mut(&mut self, index: usize) -> Option<&mut Leaf> {
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    /// Returns at most one row of leaves, from the row's first on.
    pub(super) fn leaves_from(&self, index: usize) -> &[Leaf] {
        let chunk = self.chunks.get(index / CHUNK);
        let row = chunk.and_then(|chunk| chunk.get(index % CHUNK..)).unwrap_or_default();
        row.get(..FAN).unwrap_or(row)
    }

    /// Returns the index of the newest hold up to a serial number.
    pub(super) fn last_by(&self, serial: u64) -> Option<usize> {
        let is_by = |chunk: &Vec<Leaf>| chunk.first().is_some_and(|leaf| leaf.serial <= serial);
        let chunk = self.chunks.partition_point(is_by).checked_sub(1)?;
        let within = self.chunks.get(chunk)?.partition_point(|leaf| leaf.serial <= serial);
        Some(chunk.saturating_mul(CHUNK).saturating_add(within.checked_sub(1)?))
    }

    pub(super) fn index_of(&self, serial: u64) -> Option<usize> {
        let index = self.last_by(serial)?;
        let leaf = self.chunks.get(index / CHUNK)?.get(index % CHUNK)?;
        (leaf.serial == serial).then_some(index)
    }

    /// Returns the effect of a node at an instant not before that of the last call.
    pub(super) fn effect_at(&self, pace: Pace, level: usize, index: usize, then_ns: u64) -> Effect {
        let Some(node) = self.node(level, index) else { return Effect::NONE };
        match node.ends_ns {
            Some((first_ns, last_ns)) if first_ns <= then_ns => {
                if last_ns <= then_ns {
                    return node.ended;
                }
            }
            _ => return node.now,
        }
        let from = index.saturating_mul(FAN);
        match level.checked_sub(1) {
            None => self
                .leaves_from(from)
                .iter()
                .fold(Effect::NONE, |effect, leaf| effect.then(leaf.effect(pace, then_ns))),
            Some(below) => (from..from.saturating_add(FAN)).fold(Effect::NONE, |effect, child| {
                effect.then(self.effect_at(pace, below, child, then_ns))
            }),
        }
    }

    /// Ends the holds of a node whose time is over.
    pub(super) fn advance(&mut self, pace: Pace, level: usize, index: usize, now_ns: u64) {
        let Some(node) = self.levels.get_mut(level).and_then(|nodes| nodes.get_mut(index)) else {
            return;
        };
        match node.ends_ns {
            Some((first_ns, _)) if first_ns > now_ns => {}
            None => {}
            Some((_, last_ns)) if last_ns <= now_ns => {
                node.now = node.ended;
                node.ends_ns = None;
            }
            Some(_) => {
                let computed = self.computed(pace, level, index, now_ns);
                if let Some(node) =
                    self.levels.get_mut(level).and_then(|nodes| nodes.get_mut(index))
                {
                    *node = computed;
                }
            }
        }
    }

    /// Computes a node from what is under it.
    fn computed(&mut self, pace: Pace, level: usize, index: usize, now_ns: u64) -> Node {
        let from = index.saturating_mul(FAN);
        let mut node = Node::NONE;
        match level.checked_sub(1) {
            None => {
                for leaf in self.leaves_from(from) {
                    node = node.then(leaf.node(pace, now_ns));
                }
            }
            Some(below) => {
                for child in from..from.saturating_add(FAN) {
                    self.advance(pace, below, child, now_ns);
                    if let Some(child) = self.node(below, child) {
                        node = node.then(child);
                    }
                }
            }
        }
        node
    }

    /// Computes the nodes above a leaf.
    pub(super) fn refresh(&mut self, pace: Pace, now_ns: u64, leaf: usize) {
        let mut index = leaf;
        for level in 0..self.levels.len() {
            index /= FAN;
            if self.node(level, index).is_none() {
                break;
            }
            let computed = self.computed(pace, level, index, now_ns);
            if let Some(node) = self.levels.get_mut(level).and_then(|nodes| nodes.get_mut(index)) {
                *node = computed;
            }
        }
    }

    /// Adds the nodes of the rows that are full, before another leaf comes.
    pub(super) fn complete_rows(&mut self, pace: Pace) {
        let mut count = self.len;
        for level in 0..MAX_LEVELS {
            if count == 0 || !count.is_multiple_of(FAN) {
                break;
            }
            count /= FAN;
            if self.levels.len() <= level {
                self.levels.push(Vec::new());
            }
            // Nothing has ended since the last call.
            let computed = self.computed(pace, level, count.saturating_sub(1), 0);
            if let Some(nodes) = self.levels.get_mut(level) {
                nodes.push(computed);
            }
        }
    }

    /// Drops the chunks in front of which no leaf is held, once they are half of all.
    pub(super) fn drop_front(&mut self, pace: Pace, now_ns: u64) {
        const LEVEL: usize = 1;
        // Looks at one in the middle first: most calls find that one in use.
        let half = self.chunks.len() / 2;
        if !self.is_over(pace, LEVEL, half, now_ns) {
            return;
        }
        let mut over = 0_usize;
        while self.is_over(pace, LEVEL, over, now_ns) {
            over = over.saturating_add(1);
        }
        if over < half {
            return;
        }
        let Some(nodes) = self.levels.get_mut(LEVEL) else { return };
        self.base = nodes.drain(..over).fold(self.base, |tat, node| node.now.apply(tat));
        if let Some(nodes) = self.levels.first_mut() {
            nodes.drain(..over.saturating_mul(FAN).min(nodes.len()));
        }
        let front = self.chunks.drain(..over).collect();
        self.retire(front);
        self.len = self.len.saturating_sub(over.saturating_mul(CHUNK));
        self.levels.truncate(LEVEL.saturating_add(1));
        self.raise(pace, now_ns);
    }

    /// Returns `true` if there is such a node, and nothing under it is held.
    fn is_over(&mut self, pace: Pace, level: usize, index: usize, now_ns: u64) -> bool {
        self.advance(pace, level, index, now_ns);
        self.node(level, index).is_some_and(|node| node.ends_ns.is_none())
    }

    /// Adds the levels above the second.
    fn raise(&mut self, pace: Pace, now_ns: u64) {
        for level in 2..MAX_LEVELS {
            let rows = self.levels.last().map_or(0, Vec::len) / FAN;
            if rows == 0 {
                break;
            }
            let nodes = (0..rows).map(|index| self.computed(pace, level, index, now_ns));
            let nodes: Vec<Node> = nodes.collect();
            self.levels.push(nodes);
        }
    }

    /// Drops the leaves of holds that have ended, and keeps their effects. The others get the
    /// nodes that they would have if they had been added one after the other.
    pub(super) fn compact(&mut self, pace: Pace) {
        // All that has ended is known to have.
        let now_ns = self.next_end_ns.map_or(u64::MAX, |next_ns| next_ns.saturating_sub(1));
        let chunks = core::mem::take(&mut self.chunks);
        self.len = 0;
        let mut kept: Vec<Vec<Leaf>> = Vec::new();
        for leaf in chunks.iter().flatten() {
            if leaf.is_held(now_ns) {
                match kept.last_mut() {
                    Some(chunk) if !self.len.is_multiple_of(CHUNK) => chunk.push(*leaf),
                    _ => kept.push(alloc::vec![*leaf]),
                }
                self.len = self.len.saturating_add(1);
            } else if let Some(last) = kept.last_mut().and_then(|chunk| chunk.last_mut()) {
                last.after = last.after.then(leaf.after);
            } else {
                self.base = leaf.after.apply(self.base);
            }
        }
        self.chunks = kept;
        self.compact_at = self.len.saturating_mul(2).max(FEW);
        self.rebuild(pace, now_ns);
    }

    /// Computes all nodes anew.
    pub(super) fn rebuild(&mut self, pace: Pace, now_ns: u64) {
        // The last leaf is under no node.
        let mut count = self.len.saturating_sub(1) / FAN;
        self.levels.clear();
        for level in 0..MAX_LEVELS {
            if count == 0 {
                break;
            }
            let nodes: Vec<Node> =
                (0..count).map(|index| self.computed(pace, level, index, now_ns)).collect();
            self.levels.push(nodes);
            count /= FAN;
        }
    }
}
