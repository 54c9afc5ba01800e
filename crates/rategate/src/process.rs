//! Values that belong to one process, and their replacements in a forked child.
//!
//! A fork copies the memory of a process and only one of its threads. In the child, a queue that
//! a thread of the parent serves is without that thread, and a lock that another thread held
//! stays locked for ever. So such values record the process that made them, and are neither used
//! nor dropped in another.
//!
//! A process is identified by its id, whose reading is a system call of some 50 ns. It is read
//! where a wait begins or a request leaves the process, never where a permit is available. A
//! descendant may get the id of an ancestor that has ended, and then takes the ancestor's value
//! for its own. Ids return only after all others were used, but each namespace of process ids
//! counts from 1: the first process of a new one, forked by the first process of a container, has
//! its parent's id. Such a child has to recreate its limiters and stores, or to start another
//! program.

use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::process;
use std::sync::OnceLock;

/// A value that only the process that made it uses.
///
/// In a forked child there is [none](Self::get). Dropped there, the value is leaked instead: its
/// drop might wait for a lock, or for a thread, that the child does not have.
pub struct ProcessBound<T> {
    id: u32,
    /// Present until the drop.
    value: Option<T>,
}

impl<T> ProcessBound<T> {
    /// Creates a value of this process.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { id: process::id(), value: Some(value) }
    }

    /// Returns the value, in the process that made it.
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_ours())
    }

    /// Returns the value for changes, in the process that made it.
    #[must_use]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        let is_ours = self.is_ours();
        self.value.as_mut().filter(|_| is_ours)
    }

    fn is_ours(&self) -> bool {
        self.id == process::id()
    }
}

impl<T> Drop for ProcessBound<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            mem::forget(self.value.take());
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for ProcessBound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessBound").field("value", &self.get()).finish_non_exhaustive()
    }
}

/// A value that each process makes on first use; a forked child does not get its parent's.
///
/// A [`Store`](crate::store::Store) that sends requests from a thread of its own keeps here what
/// it shares with that thread.
///
/// ```
/// use rategate::store::PerProcess;
///
/// static IDS: PerProcess<u32> = PerProcess::new();
/// assert_eq!(*IDS.get_or_init(std::process::id), std::process::id());
/// ```
#[derive(Debug)]
pub struct PerProcess<T> {
    /// The value of the first process, and behind it those of the children that forked from it.
    ///
    /// Only the last can be of this process.
    first: OnceLock<Box<Made<T>>>,
}

#[derive(Debug)]
struct Made<T> {
    value: ProcessBound<T>,
    next: PerProcess<T>,
}

impl<T> PerProcess<T> {
    /// Creates an empty cell.
    #[must_use]
    pub const fn new() -> Self {
        Self { first: OnceLock::new() }
    }

    /// Returns the value of this process, and makes it if there is none.
    ///
    /// Concurrent threads may each make a value; the first is kept, and the others are dropped.
    pub fn get_or_init(&self, make: impl Fn() -> T) -> &T {
        match self.get_or_try_init(|| Ok::<_, Infallible>(make())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// Returns the value of this process. If there is none, makes one, which may fail.
    ///
    /// # Errors
    ///
    /// The error of `make`. The next call tries again.
    pub fn get_or_try_init<E>(&self, make: impl Fn() -> Result<T, E>) -> Result<&T, E> {
        let mut entry = self;
        loop {
            let Some(known) = entry.first.get() else {
                let fresh = Made { value: ProcessBound::new(make()?), next: Self::new() };
                // Nothing is made under the cell's own lock, so that it is hardly ever held at a
                // fork. Where another thread was first, its value is kept.
                drop(entry.first.set(Box::new(fresh)));
                continue;
            };
            match known.value.get() {
                Some(value) => return Ok(value),
                None => entry = &known.next,
            }
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_makes_its_value_once() {
        let values = PerProcess::new();
        assert_eq!(values.get_or_try_init(|| Err::<u32, _>("no thread")), Err("no thread"));
        assert_eq!(values.get_or_init(|| 1), &1);
        assert_eq!(values.get_or_init(|| 2), &1);
    }

    /// Threads that make a value at once all get the same one, and the others are dropped.
    #[test]
    fn threads_agree_on_one_value() {
        use std::sync::{Arc, Barrier};

        let values = PerProcess::new();
        let (tracked, barrier) = (Arc::new(()), Barrier::new(4));
        let first = |_| {
            barrier.wait();
            Arc::as_ptr(values.get_or_init(|| Arc::new(Arc::clone(&tracked)))).addr()
        };
        let seen: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || first(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.windows(2).all(|two| two[0] == two[1]), "{seen:?}");
        assert_eq!(Arc::strong_count(&tracked), 2, "ours, and the one that was kept");
    }
}
