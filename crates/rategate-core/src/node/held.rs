//! The share of a member, as far as the member may not know yet that it has become smaller.
//!
//! # Contract
//!
//! * **Latest.** After [`Held::hold`] the member may have those permits, until their time is over.
//! * **Larger before.** A reply can be lost or late, so a larger share from before counts until its
//!   own time is over.
//! * **Bound.** At most eight shares are remembered. Further ones are merged, to the safe side.

use alloc::vec::Vec;

/// The maximum number of steps that are recorded.
const MAX_STEPS: usize = 8;

/// The permits that a member may have, and until when.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Fewer and later from one step to the next.
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    permits: u64,
    until_ns: u64,
}

impl Held {
    /// Returns the maximum that the member may have, as of the last call of [`Self::end_one`].
    #[must_use]
    pub fn permits(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.permits)
    }

    /// Returns the maximum that the member may have at `now_ns`.
    #[must_use]
    pub fn permits_at(&self, now_ns: u64) -> u64 {
        let live = self.steps.iter().find(|step| now_ns < step.until_ns);
        live.map_or(0, |step| step.permits)
    }

    /// Returns the instant from which the member has nothing; 0 if it never had anything.
    #[must_use]
    pub fn ends_ns(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.until_ns)
    }

    /// Returns `true` if nothing is held, as of the last call of [`Self::end_one`].
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Ends the first share if its time is over. Returns its excess over the next one, and the
    /// instant at which it ended. To be called until it returns `None`.
    pub fn end_one(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let over = *self.steps.first().filter(|step| step.until_ns <= now_ns)?;
        self.steps.remove(0);
        Some((over.permits.saturating_sub(self.permits()), over.until_ns))
    }

    /// Sets the share from now on, for `length_ns`.
    pub fn hold(&mut self, now_ns: u64, permits: u64, length_ns: u64) {
        let until_ns = now_ns.saturating_add(length_ns).max(self.ends_ns());
        while self.steps.pop_if(|last| last.permits <= permits).is_some() {}
        self.steps.push(Step { permits, until_ns });
        if self.steps.len() > MAX_STEPS {
            // Merged: as many permits as the first, for as long as the second.
            let first = self.steps.remove(0);
            if let Some(second) = self.steps.first_mut() {
                second.permits = first.permits;
            }
        }
    }
}
