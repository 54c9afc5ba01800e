//! Several limits on a target without 64-bit atomics: always behind their lock.

use core::convert::Infallible;
use core::fmt;

use super::{Concurrent, Locked};
use crate::all_of::AllOfLedger;
use crate::any_policy::AnyPolicy;
use crate::error::LimitError;

impl Concurrent for AllOfLedger {
    type LockFree = Locked;
    /// No seed: several ledgers are kept as they are.
    type Seed = Infallible;

    fn seed(&self, _lock_free: &Self::LockFree) -> Option<Infallible> {
        None
    }

    fn grown(seed: &Infallible) -> Self {
        match *seed {}
    }

    fn fmt_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.policies()).finish()
    }

    fn lock_free(&mut self, _now_ns: u64) -> Locked {
        Locked
    }

    fn seal(&mut self, _lock_free: &Locked) {}

    fn open(&mut self, _lock_free: &Locked, _now_ns: u64) {}
}

impl AllOfLedger {
    /// Puts new numbers for all the policies into force at a reading of `read_ns`.
    ///
    /// # Errors
    ///
    /// Those of [`reconfigure`](Self::reconfigure); nothing changes then.
    pub fn change(
        &mut self,
        _lock_free: &Locked,
        read_ns: impl Fn() -> u64 + Copy,
        policies: &[AnyPolicy],
    ) -> Result<(), LimitError> {
        self.reconfigure(read_ns(), policies)
    }
}
