//! Copies of shared state for each thread, so that workers do not contend for a cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// The maximum number of copies.
const MAX_LANES: usize = 64;

thread_local! {
    /// The number of this thread, counted from 0 in the order of the threads' first use.
    static THREAD: Cell<Option<usize>> = const { Cell::new(None) };
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Copies of a value: as many as threads run at a time. Each thread uses one for its lifetime. If
/// there are more threads than copies, some share theirs, so the value must support that.
#[derive(Debug)]
pub(super) struct Lanes<T>(Box<[Lane<T>]>);

/// Two cache lines, since processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Lane<T>(T);

impl<T> Lanes<T> {
    /// Creates a copy with `make` for each thread that runs at a time, at most 64.
    pub(super) fn new(make: impl Fn() -> T) -> Self {
        let threads = available_parallelism().map_or(1, usize::from).min(MAX_LANES);
        Self((0..threads.next_power_of_two()).map(|_| Lane(make())).collect())
    }

    /// Returns the copy of the calling thread.
    #[inline]
    pub(super) fn own(&self) -> Option<&T> {
        // The number may be unavailable while the thread ends.
        let thread = THREAD.try_with(|thread| thread.get().unwrap_or_else(|| first_use(thread)));
        let at = thread.unwrap_or(0) & self.0.len().wrapping_sub(1);
        self.0.get(at).map(|lane| &lane.0)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|lane| &lane.0)
    }
}

#[cold]
fn first_use(thread: &Cell<Option<usize>>) -> usize {
    let mine = THREADS.fetch_add(1, Ordering::Relaxed);
    thread.set(Some(mine));
    mine
}
