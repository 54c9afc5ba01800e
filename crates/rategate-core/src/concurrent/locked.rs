//! Several limits on a target without 64-bit atomics: always behind their lock.

use core::convert::Infallible;
use core::fmt;

use super::{Concurrent, NoTwin};
use crate::all_of::AllOf;
use crate::any_policy::AnyPolicy;
use crate::error::LimitError;

impl Concurrent for AllOf {
    type Twin = NoTwin;
    /// No seed: several ledgers are kept as they are.
    type Seed = Infallible;

    fn seed(&self, _twin: &Self::Twin) -> Option<Infallible> {
        None
    }

    fn grown(seed: &Infallible) -> Self {
        match *seed {}
    }

    fn fmt_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.policies()).finish()
    }

    fn twin(&mut self, _now_ns: u64) -> NoTwin {
        NoTwin
    }

    fn seal(&mut self, _twin: &NoTwin) {}

    fn open(&mut self, _twin: &NoTwin, _now_ns: u64) {}
}

impl AllOf {
    /// Puts new numbers for all the policies into force at a reading of `read_ns`.
    ///
    /// # Errors
    ///
    /// Those of [`reconfigure`](Self::reconfigure); nothing changes then.
    pub fn change(
        &mut self,
        _twin: &NoTwin,
        read_ns: impl Fn() -> u64 + Copy,
        policies: &[AnyPolicy],
    ) -> Result<(), LimitError> {
        self.reconfigure(read_ns(), policies)
    }
}
