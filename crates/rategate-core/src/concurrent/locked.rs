//! Several limits on a target without 64-bit atomics: always behind their lock.

use super::{Concurrent, NoTwin};
use crate::all_of::AllOf;
use crate::any_policy::AnyPolicy;
use crate::error::LimitError;

impl Concurrent for AllOf {
    type Twin = NoTwin;

    fn twin(&mut self, _now_ns: u64) -> NoTwin {
        NoTwin
    }

    fn seal(&mut self, _twin: &NoTwin) {}

    fn open(&mut self, _twin: &NoTwin, _now_ns: u64) {}
}

impl AllOf {
    /// Puts new numbers for all the policies into force at `now_ns`.
    ///
    /// # Errors
    ///
    /// Those of [`reconfigure`](Self::reconfigure); nothing changes then.
    pub fn change(
        &mut self,
        _twin: &NoTwin,
        now_ns: u64,
        policies: &[AnyPolicy],
    ) -> Result<(), LimitError> {
        self.reconfigure(now_ns, policies)
    }
}
