//! The lock-free form of a target without 64-bit atomics: always sealed.

use super::{BatchVerdict, LockFreeVerdict, PermitBatch};
use crate::all_of::AllOf;
use crate::debt::{Charged, Debt};
use crate::members::Members;
use crate::refund::RefundEpoch;

/// The lock-free form of a limit.
#[derive(Debug)]
pub struct Fast(());

#[expect(clippy::unused_self, reason = "elsewhere a form has a state")]
impl Fast {
    pub(super) const fn sealed(_limits: &Members) -> Self {
        Self(())
    }

    /// Returns [`LockFreeVerdict::Sealed`].
    pub const fn try_acquire(
        &self,
        _read_ns: impl Fn() -> u64 + Copy,
        _permits: u64,
    ) -> LockFreeVerdict {
        LockFreeVerdict::Sealed
    }

    /// Returns [`LockFreeVerdict::Sealed`].
    pub const fn try_briefly(
        &self,
        _read_ns: impl Fn() -> u64 + Copy,
        _permits: u64,
    ) -> LockFreeVerdict {
        LockFreeVerdict::Sealed
    }

    /// Returns [`BatchVerdict::Unknown`].
    pub const fn take_batch(
        &self,
        _read_ns: impl Fn() -> u64 + Copy,
        _min: u64,
        _max: u64,
    ) -> BatchVerdict {
        BatchVerdict::Unknown
    }

    /// Returns `None`.
    pub const fn charge(
        &self,
        _read_ns: impl Fn() -> u64 + Copy,
        _permits: u64,
        _debt: Debt,
    ) -> Option<Charged> {
        None
    }

    /// Returns `None`.
    #[must_use]
    pub const fn peek(&self, _now_ns: u64, _permits: u64) -> Option<u64> {
        None
    }

    /// Returns `None`.
    #[must_use]
    pub const fn remaining(&self, _now_ns: u64) -> Option<u64> {
        None
    }

    /// Does nothing.
    pub const fn shut_gate(&self, _until_ns: Option<u64>) {}

    pub(super) const fn seal(&self, _limits: &Members) -> Option<(Members, u64)> {
        None
    }

    pub(super) const fn open(&self, _limits: &Members, _epoch: RefundEpoch, _now_ns: u64) {}

    pub(super) const fn change(
        &self,
        _old: &Members,
        _new: &AllOf,
        _read_ns: impl Fn() -> u64 + Copy,
    ) -> Option<u64> {
        None
    }

    pub(super) const fn take_back(
        &self,
        _limits: &Members,
        _batch: PermitBatch,
        _left: u64,
        _now_ns: u64,
        _epoch: RefundEpoch,
    ) -> u64 {
        0
    }

    pub(super) const fn note_epoch(&self, _epoch: RefundEpoch) {}

    pub(super) const fn is_outgrown_by(&self, _limits: &Members) -> bool {
        false
    }

    pub(super) const fn price(&self) -> Option<u64> {
        None
    }
}
