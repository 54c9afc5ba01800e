//! Changes of a live limit's numbers.

use rategate_core::concurrent::Concurrent;

use crate::{AllOf, AnyPolicy, HasLockFree, Ledger, LimitError};

/// The numbers that a limit is changed to.
///
/// This is a trait, not a closure: rustc 1.95 ends with an internal error where it inlines a
/// closure whose signature names the lock-free form of a generic limit.
pub(crate) trait Numbers<L: Concurrent> {
    type Outcome;

    /// Puts them into force at a reading of `read_ns`, in the lock-free form too if it is given.
    fn put_into(
        self,
        limit: &mut L,
        lock_free: Option<&L::LockFree>,
        read_ns: impl Fn() -> u64 + Copy,
    ) -> Self::Outcome;
}

impl<P: HasLockFree> Numbers<Ledger<P>> for P {
    type Outcome = ();

    fn put_into(
        self,
        limit: &mut Ledger<P>,
        lock_free: Option<&<Ledger<P> as Concurrent>::LockFree>,
        read_ns: impl Fn() -> u64 + Copy,
    ) {
        match lock_free {
            Some(lock_free) => limit.change(lock_free, read_ns, self),
            None => limit.reconfigure(read_ns(), self),
        }
    }
}

impl Numbers<AllOf> for &[AnyPolicy] {
    type Outcome = Result<(), LimitError>;

    fn put_into(
        self,
        limit: &mut AllOf,
        lock_free: Option<&<AllOf as Concurrent>::LockFree>,
        read_ns: impl Fn() -> u64 + Copy,
    ) -> Self::Outcome {
        match lock_free {
            Some(lock_free) => limit.change(lock_free, read_ns, self),
            None => limit.reconfigure(read_ns(), self),
        }
    }
}
