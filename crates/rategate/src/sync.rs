//! The locks and atomics by which threads and tasks wait for each other.
//!
//! They are the standard library's, or under `--cfg loom` the model checker's. A condition
//! variable of the model checker never times out, so a lost wake is a deadlock there, which it
//! finds. An `Arc` is the standard library's in either case: nothing here relies on the order of
//! its reference counts.

#[cfg(loom)]
pub(crate) use self::once::{OnceLock, PerProcess};
#[cfg(loom)]
pub(crate) use self::tried::TryMutex;
#[cfg(not(loom))]
pub(crate) use crate::process::PerProcess;
#[cfg(all(feature = "keyed", loom))]
pub(crate) use loom::sync::atomic::fence;
#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread_local,
};
#[cfg(all(feature = "keyed", not(loom)))]
pub(crate) use std::sync::atomic::fence;
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{
        Condvar, Mutex, Mutex as TryMutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread_local,
};

/// Allocates `words` zeroed words, if there is memory. The system maps pages at their first use.
#[cfg(all(feature = "keyed", not(loom)))]
pub(crate) fn zeroed(words: usize) -> Option<Box<[AtomicU64]>> {
    bytemuck::try_zeroed_slice_box(words).ok()
}
#[cfg(all(feature = "keyed", loom))]
pub(crate) fn zeroed(words: usize) -> Option<Box<[AtomicU64]>> {
    Some((0..words).map(|_| AtomicU64::new(0)).collect())
}

/// A cell that is set once, for the model checker, which has none.
///
/// The model checker has to see that the value that a thread makes is visible to those that find
/// it.
#[cfg(loom)]
mod once {
    use std::sync;

    use super::{AtomicBool, Mutex, Ordering};

    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        value: sync::OnceLock<T>,
        is_made: AtomicBool,
        making: Mutex<()>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            let (is_made, making) = (AtomicBool::new(false), Mutex::new(()));
            Self { value: sync::OnceLock::new(), is_made, making }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            self.value.get().filter(|_| self.is_made.load(Ordering::Acquire))
        }

        pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            self.get().unwrap_or_else(|| {
                let _making = self.making.lock();
                let value = self.value.get_or_init(make);
                self.is_made.store(true, Ordering::Release);
                value
            })
        }
    }

    /// A value of the one process that a model has.
    #[derive(Debug)]
    pub(crate) struct PerProcess<T>(OnceLock<T>);

    impl<T> PerProcess<T> {
        pub(crate) fn new() -> Self {
            Self(OnceLock::new())
        }

        pub(crate) fn get_or_init(&self, make: impl Fn() -> T) -> &T {
            self.0.get_or_init(make)
        }
    }

    impl<T> Default for PerProcess<T> {
        fn default() -> Self {
            Self::new()
        }
    }
}

/// A mutex for `try_lock` under the model checker.
///
/// The model checker does not count an unlock as a step of its own. That is right for threads
/// that wait for the lock, but a thread that only tries can see whether the unlock has come yet.
#[cfg(loom)]
mod tried {
    use std::ops::{Deref, DerefMut};
    use std::sync::{TryLockError, TryLockResult};
    use std::thread::panicking;

    use super::{AtomicBool, Mutex, MutexGuard, Ordering};

    #[derive(Debug, Default)]
    pub(crate) struct TryMutex<T> {
        mutex: Mutex<T>,
        step: AtomicBool,
    }

    pub(crate) struct TryGuard<'a, T> {
        guard: MutexGuard<'a, T>,
        step: &'a AtomicBool,
    }

    impl<T> TryMutex<T> {
        pub(crate) fn try_lock(&self) -> TryLockResult<TryGuard<'_, T>> {
            self.step.fetch_or(false, Ordering::Relaxed);
            let guard = self.mutex.try_lock().map_err(|_| TryLockError::WouldBlock)?;
            Ok(TryGuard { guard, step: &self.step })
        }
    }

    impl<T> Drop for TryGuard<'_, T> {
        fn drop(&mut self) {
            // A model that has failed takes no more steps.
            if !panicking() {
                self.step.fetch_or(false, Ordering::Relaxed);
            }
        }
    }

    impl<T> Deref for TryGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.guard
        }
    }

    impl<T> DerefMut for TryGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.guard
        }
    }
}
