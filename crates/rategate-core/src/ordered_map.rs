//! A map of many small entries, which are mostly added at its end.
//!
//! The entries are in chunks, in order: a chunk is full before the next one begins, where a tree
//! of the standard library would leave its nodes half empty. All operations are O(log n), and now
//! and then one moves the list of the chunks.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

/// The maximum number of entries in a chunk.
const CHUNK: usize = 32;

/// Two chunks side by side have no fewer entries than this together.
const JOINED: usize = 16;

/// Entries in the order of their keys.
#[derive(Clone, Debug)]
pub(crate) struct OrderedMap<K, V> {
    /// The chunks before the last one. None is empty.
    chunks: VecDeque<Vec<(K, V)>>,
    /// The last chunk, so that few entries take one allocation.
    last: Vec<(K, V)>,
    len: usize,
}

impl<K, V> Default for OrderedMap<K, V> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), last: Vec::new(), len: 0 }
    }
}

impl<K: Ord + Copy, V> OrderedMap<K, V> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.chunks.iter_mut().flatten().chain(&mut self.last).map(|(_, value)| value)
    }

    pub(crate) fn first_key_value(&self) -> Option<(&K, &V)> {
        let (key, value) = self.chunks.front().unwrap_or(&self.last).first()?;
        Some((key, value))
    }

    pub(crate) fn last_key_value(&self) -> Option<(&K, &V)> {
        let (key, value) = self.last.last().or_else(|| self.chunks.back()?.last())?;
        Some((key, value))
    }

    /// Returns the first entry whose key is not less than this one.
    pub(crate) fn at_or_after(&self, key: K) -> Option<(&K, &V)> {
        let (chunk, at) = self.place(key);
        let (key, value) = self.chunk(chunk).get(at)?;
        Some((key, value))
    }

    /// Returns what [`at_or_after`](Self::at_or_after) does, to be changed.
    pub(crate) fn at_or_after_mut(&mut self, key: K) -> Option<(K, &mut V)> {
        let (chunk, at) = self.place(key);
        let (key, value) = self.chunk_mut(chunk).get_mut(at)?;
        Some((*key, value))
    }

    /// Returns the last entry whose key is less than this one.
    pub(crate) fn before(&self, key: K) -> Option<(&K, &V)> {
        let (chunk, at) = self.place(key);
        let own = at.checked_sub(1).and_then(|at| self.chunk(chunk).get(at));
        let (key, value) = own.or_else(|| self.chunks.get(chunk.checked_sub(1)?)?.last())?;
        Some((key, value))
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.at_or_after(*key).filter(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Inserts an entry, or replaces the value of one that is there.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let (chunk, at) = self.place(key);
        if let Some((found, old)) = self.chunk_mut(chunk).get_mut(at)
            && *found == key
        {
            *old = value;
            return;
        }
        self.len = self.len.saturating_add(1);
        let entries = self.chunk_mut(chunk);
        if entries.len() < CHUNK {
            return entries.insert(at, (key, value));
        }
        // At the end of all entries nothing moves.
        let from = if at == CHUNK { CHUNK } else { CHUNK / 2 };
        let mut rest = entries.split_off(from);
        match at.checked_sub(from) {
            Some(at) => rest.insert(at, (key, value)),
            None => entries.insert(at, (key, value)),
        }
        if chunk == self.chunks.len() {
            self.chunks.push_back(mem::replace(&mut self.last, rest));
        } else {
            self.chunks.insert(chunk.saturating_add(1), rest);
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (chunk, at) = self.place(*key);
        self.chunk(chunk).get(at).filter(|(found, _)| found == key)?;
        Some(self.remove_at(chunk, at).1)
    }

    pub(crate) fn pop_last(&mut self) -> Option<(K, V)> {
        let (&key, _) = self.last_key_value()?;
        let (chunk, at) = self.place(key);
        Some(self.remove_at(chunk, at))
    }

    fn remove_at(&mut self, chunk: usize, at: usize) -> (K, V) {
        self.len = self.len.saturating_sub(1);
        let removed = self.chunk_mut(chunk).remove(at);
        self.join_next(chunk);
        if let Some(before) = chunk.checked_sub(1) {
            self.join_next(before);
        }
        removed
    }

    /// Joins a chunk with the next one, if both together are small.
    fn join_next(&mut self, chunk: usize) {
        let next = chunk.saturating_add(1);
        let Some(own) = self.chunks.get(chunk) else { return };
        if own.len().saturating_add(self.chunk(next).len()) > JOINED && !own.is_empty() {
            return;
        }
        let Some(mut own) = self.chunks.remove(chunk) else { return };
        let next = self.chunk_mut(chunk);
        own.append(next);
        *next = own;
    }

    /// Returns the chunk of the first entry whose key is not less than this one, and its place
    /// there.
    fn place(&self, key: K) -> (usize, usize) {
        let is_before = |chunk: &Vec<(K, V)>| chunk.last().is_some_and(|(last, _)| *last < key);
        // Both ends are the places of nearly all calls.
        let chunk = match (self.chunks.front(), self.chunks.back()) {
            (Some(first), _) if !is_before(first) => 0,
            (_, Some(last)) if !is_before(last) => self.chunks.partition_point(is_before),
            _ => self.chunks.len(),
        };
        (chunk, self.chunk(chunk).partition_point(|(own, _)| *own < key))
    }

    fn chunk(&self, chunk: usize) -> &Vec<(K, V)> {
        self.chunks.get(chunk).unwrap_or(&self.last)
    }

    fn chunk_mut(&mut self, chunk: usize) -> &mut Vec<(K, V)> {
        self.chunks.get_mut(chunk).unwrap_or(&mut self.last)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use super::*;

    /// Compares with the map of the standard library, under inserts mostly at the end, and removals
    /// mostly at the front.
    #[test]
    fn it_is_a_map_in_order() {
        for seed in 1..200_u64 {
            let (mut map, mut expected) = (OrderedMap::default(), BTreeMap::new());
            let mut state = seed;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            for step in 0..2_000_u64 {
                let phase = (step / 500) % 2;
                let key = match random(4) {
                    0 => random(400 + step),
                    _ => 400 + step,
                };
                match random(10) {
                    0..5 if phase == 0 => {
                        map.insert(key, step);
                        expected.insert(key, step);
                    }
                    5 => assert_eq!(map.pop_last(), expected.pop_last()),
                    6 | 7 => {
                        let first = expected.first_key_value().map(|(&key, _)| key);
                        let removed = first.and_then(|key| expected.remove(&key));
                        assert_eq!(first.and_then(|key| map.remove(&key)), removed);
                    }
                    8 => assert_eq!(map.remove(&key), expected.remove(&key)),
                    _ => {
                        let key = random(400 + step);
                        assert_eq!(map.remove(&key), expected.remove(&key));
                    }
                }
                let probe = random(400 + step);
                assert_eq!(map.get(&probe), expected.get(&probe));
                assert_eq!(map.at_or_after(probe), expected.range(probe..).next());
                let found = map.at_or_after_mut(probe).map(|(key, value)| (key, *value));
                assert_eq!(
                    found,
                    expected.range(probe..).next().map(|(&key, &value)| (key, value))
                );
                assert_eq!(map.before(probe), expected.range(..probe).next_back());
                assert_eq!(map.first_key_value(), expected.first_key_value());
                assert_eq!(map.last_key_value(), expected.last_key_value());
                assert_eq!(map.len(), expected.len());
                assert!(map.chunks.iter().all(|chunk| !chunk.is_empty()));
                let sizes: Vec<usize> =
                    map.chunks.iter().chain([&map.last]).map(Vec::len).collect();
                assert!(sizes.windows(2).all(|pair| pair.iter().sum::<usize>() >= JOINED));
            }
            let entries = map.chunks.iter().flatten().chain(&map.last);
            assert!(entries.map(|(key, value)| (key, value)).eq(&expected));
            assert!(map.values_mut().map(|value| *value).eq(expected.values().copied()));
        }
    }

    #[test]
    fn entries_that_are_added_in_order_fill_their_chunks() {
        let mut map = OrderedMap::default();
        (0..1_000).for_each(|key| map.insert(key, ()));
        assert!(map.chunks.iter().all(|chunk| chunk.len() == CHUNK));
    }
}
