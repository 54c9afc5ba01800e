//! Changes of a live limit's numbers.

use rategate_core::concurrent::Concurrent;

use crate::{AllOf, AnyPolicy, Ledger, LimitError, Twinned};

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
        twin: Option<&L::Twin>,
        read_ns: impl Fn() -> u64 + Copy,
    ) -> Self::Outcome;
}

impl<P: Twinned> Numbers<Ledger<P>> for P {
    type Outcome = ();

    fn put_into(
        self,
        limit: &mut Ledger<P>,
        twin: Option<&<Ledger<P> as Concurrent>::Twin>,
        read_ns: impl Fn() -> u64 + Copy,
    ) {
        match twin {
            Some(twin) => limit.change(twin, read_ns, self),
            None => limit.reconfigure(read_ns(), self),
        }
    }
}

impl Numbers<AllOf> for &[AnyPolicy] {
    type Outcome = Result<(), LimitError>;

    fn put_into(
        self,
        limit: &mut AllOf,
        twin: Option<&<AllOf as Concurrent>::Twin>,
        read_ns: impl Fn() -> u64 + Copy,
    ) -> Self::Outcome {
        match twin {
            Some(twin) => limit.change(twin, read_ns, self),
            None => limit.reconfigure(read_ns(), self),
        }
    }
}
