//! Atomic types, named only here: the core's, or under `--cfg loom` the model checker's.

#[cfg(all(not(loom), target_has_atomic = "64", not(rategate_without_atomics)))]
pub(super) use core::sync::atomic::AtomicU64;
#[cfg(not(loom))]
pub(super) use core::sync::atomic::{Ordering, fence};
#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(all(not(loom), not(all(target_has_atomic = "64", not(rategate_without_atomics)))))]
pub(super) use portable_atomic::AtomicU64;

/// Keeps what one thread writes off the cache lines that other threads only read.
///
/// The alignment is two lines, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

/// Lets the thread that won go ahead: an immediate retry would take the cache line from it.
pub(super) fn back_off() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    for _ in 0..8 {
        core::hint::spin_loop();
    }
}
