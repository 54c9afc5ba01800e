//! Per-thread copies of a counter, so that threads do not contend for one cache line.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicUsize;
use std::thread::available_parallelism;

use crate::sync::{AtomicU64, Ordering};

thread_local! {
    /// The number of this thread, from 1, in the order in which threads first counted. Each is
    /// used once.
    static THREAD: Cell<Option<NonZeroUsize>> = const { Cell::new(None) };
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Copies of a value, of which each thread writes to one for life, and readers go through all.
///
/// As many threads as run at once have a copy that no other thread ever writes to. They are the
/// first threads of the process to count, as a rule its workers. As many copies again are
/// shared by later threads.
#[derive(Debug)]
pub struct Lanes<T> {
    /// The copies of single threads, then the shared ones: an equal power of two of each.
    lanes: Box<[Lane<T>]>,
}

/// The copy that a thread writes to.
#[derive(Debug)]
pub struct OwnLane<'a, T> {
    /// The copy.
    pub lane: &'a T,
    /// `true` if no other thread ever writes to it.
    pub is_unshared: bool,
}

/// Numbers that threads add to. They wrap, and an addition orders nothing.
#[derive(Debug)]
pub struct Counters<const N: usize>(Lanes<[AtomicU64; N]>);

/// A value on two cache lines, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Lane<T>(T);

impl<T> Lanes<T> {
    /// Creates two copies for each thread that runs at a time, at most twice `max_lanes`, by
    /// `make`.
    pub fn new(max_lanes: usize, make: impl Fn() -> T) -> Self {
        let threads = available_parallelism().map_or(1, NonZeroUsize::get);
        let lanes = threads.min(max_lanes).next_power_of_two().saturating_mul(2);
        Self { lanes: (0..lanes).map(|_| Lane(make())).collect() }
    }

    /// Returns the copy of the calling thread.
    #[inline]
    pub fn own(&self) -> Option<OwnLane<'_, T>> {
        // A thread that is ending may have lost its number.
        let thread = THREAD.try_with(|thread| thread.get().unwrap_or_else(|| first_use(thread)));
        let thread = thread.map_or(usize::MAX, NonZeroUsize::get);
        let shared = self.lanes.len() >> 1;
        let is_unshared = thread <= shared;
        let at = if is_unshared { 0 } else { shared };
        let at = at | (thread & shared.wrapping_sub(1));
        self.lanes.get(at).map(|Lane(lane)| OwnLane { lane, is_unshared })
    }

    /// Returns all copies.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().map(|lane| &lane.0)
    }
}

impl<const N: usize> Counters<N> {
    /// Creates counters with [lanes](Lanes::new) for so many threads.
    #[must_use]
    pub fn new(max_lanes: usize) -> Self {
        Self(Lanes::new(max_lanes, || std::array::from_fn(|_| AtomicU64::new(0))))
    }

    /// Adds to a counter, and returns its previous value in the lane of the calling thread.
    #[expect(clippy::must_use_candidate, reason = "most callers only count")]
    #[inline]
    pub fn add(&self, at: usize, more: u64) -> u64 {
        let Some(OwnLane { lane, is_unshared }) = self.0.own() else { return 0 };
        let Some(counter) = lane.get(at) else { return 0 };
        if !is_unshared {
            return counter.fetch_add(more, Ordering::Relaxed);
        }
        // As no other thread writes to it, no write can come between the load and the store,
        // which cost less than an atomic addition.
        let before = counter.load(Ordering::Relaxed);
        counter.store(before.wrapping_add(more), Ordering::Relaxed);
        before
    }

    /// Returns the sums. They are read one after another while other threads add.
    #[must_use]
    pub fn sum(&self) -> [u64; N] {
        let mut sums = [0_u64; N];
        for lane in self.0.all() {
            for (sum, counter) in sums.iter_mut().zip(lane) {
                *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

#[cold]
fn first_use(thread: &Cell<Option<NonZeroUsize>>) -> NonZeroUsize {
    let before = THREADS.fetch_add(1, Ordering::Relaxed);
    let mine = NonZeroUsize::MIN.saturating_add(before);
    thread.set(Some(mine));
    mine
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ptr::from_ref;
    use std::sync::{Barrier, Mutex};
    use std::thread;

    use super::*;

    /// The plain additions of [`Counters`] rely on this.
    #[test]
    fn an_unshared_lane_stays_unshared() {
        let lanes = Lanes::new(4, || 0_u8);
        let users: Mutex<HashMap<usize, Vec<bool>>> = Mutex::default();
        thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    let OwnLane { lane, is_unshared } = lanes.own().unwrap();
                    let again = lanes.own().unwrap();
                    assert!(std::ptr::eq(lane, again.lane) && is_unshared == again.is_unshared);
                    let lane = from_ref(lane).addr();
                    users.lock().unwrap().entry(lane).or_default().push(is_unshared);
                });
            }
        });
        let users = users.into_inner().unwrap();
        assert!(users.values().all(|users| users.len() == 1 || !users.contains(&true)));
        assert_eq!(users.values().flatten().count(), 50);
        assert!(users.len() <= lanes.all().count());
    }

    /// No count is lost, even when more threads than lanes count at once.
    #[test]
    fn nothing_is_lost() {
        let (counters, start) = (Counters::<2>::new(4), Barrier::new(16));
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..100_000 {
                        counters.add(1, 3);
                    }
                });
            }
        });
        assert_eq!(counters.sum(), [0, 4_800_000]);
    }
}
