//! Which of several copies a thread writes to, so that workers do not wait for one cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// The most copies of anything.
const MOST: usize = 64;

thread_local! {
    /// From 0 on in the order in which threads had something to note.
    static THREAD: Cell<Option<usize>> = const { Cell::new(None) };
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Copies of something: as many as threads run at a time, each of which has one for life. With more threads than
/// copies some share theirs, so whatever is in a copy has to stand that.
#[derive(Debug)]
pub(super) struct Lanes<T>(Box<[Lane<T>]>);

/// Two lines, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Lane<T>(T);

impl<T> Lanes<T> {
    /// A copy for each thread that runs at a time, at most 64, each as `make` makes it.
    pub(super) fn new(make: impl Fn() -> T) -> Self {
        let threads = available_parallelism().map_or(1, usize::from).min(MOST);
        Self((0..threads.next_power_of_two()).map(|_| Lane(make())).collect())
    }

    /// The copy of the calling thread.
    #[inline]
    pub(super) fn own(&self) -> Option<&T> {
        // A thread that is going away may have forgotten which it was.
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
