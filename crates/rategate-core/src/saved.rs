//! Limits as plain data, so that a limit can continue after a restart or on another clock.
//!
//! A saved limit is its policy and its state, for whatever format serde has; the state is in bytes
//! of its own. It knows the instant at which it was saved. So the clock on which it is restored
//! need not be the one by which it was saved:
//!
//! ```text
//!   the old clock   ---g-----g--g---|saved        ages: 10, 4, 1
//!   the new clock          ---g-----g--g---|......|restored
//!                          0               elapsed
//! ```
//!
//! # Contract
//!
//! * **The same decisions.** A restored state is the saved one, moved onto the new clock. Every
//!   later decision is the same, as long as nothing lies before the new clock's zero.
//! * **Before zero.** An instant there counts as if it were at zero: permits that are still in
//!   their window stay in it longer, and time to be caught up on is forfeited. So starts may come
//!   later than they would have, and there are never more of them. A clock that continues from
//!   the instant of saving has nothing before its zero. A ramp has no later form that is never
//!   faster, so one that began before zero is [refused](SavedError::BeforeClock).
//! * **Promises.** Permits promised and not yet started count as taken; no new call starts before
//!   them.
//! * **Holds.** What is held counts as taken, and the hold is unknown to the restored limit.
//! * **In flight.** Operations in flight have ended when the limit is restored. Permits of a
//!   [`Concurrency`](crate::concurrency::Concurrency) are free. Slots of a
//!   [`CommitLog`](crate::commit_log::CommitLog) commit then, or when the last promise has
//!   started, which is late enough for any effect before.
//! * **Any data.** What is no limit is an error of the format or a [`SavedError`]. Nothing causes
//!   a panic, or takes more memory than some hundred times its own.
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::ledger::Ledger;
//! use rategate_core::saved::{RestoreContext, restore};
//! use rategate_core::sliding_log::SlidingLog;
//!
//! let log = SlidingLog::new(2, Duration::from_nanos(1_000));
//! let mut limit = Ledger::new(log, 0);
//! limit.try_acquire(700, 2)?;
//! let saved = limit.save(900);
//!
//! // 300 ns later, on a clock that shows 5000.
//! let limit = restore(log, &saved, RestoreContext { now_ns: 5_000, elapsed_ns: 300 })?;
//! assert_eq!(limit.peek(5_000, 1)?, Some(500));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::all_of::AllOf;
use crate::any_policy::{AnyPolicy, Member};
use crate::ledger::Ledger;

use crate::portable::Shift;
pub use crate::portable::{RestoreContext, SavedError};

/// A limit as it is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The policy in force.
    pub policy: AnyPolicy,
    /// The state, the instant of saving, and the time for which no new call may start after it.
    pub state: Vec<u8>,
}

/// Appends a key's state at `now_ns` to `bytes`.
///
/// Many states may be saved for one instant, one after the other, while calls continue. A table's
/// key has no pending promise.
pub fn save_state(limit: &Member, now_ns: u64, bytes: &mut Vec<u8>) {
    *bytes = limit.save(now_ns, Shift::begin(now_ns, 0, core::mem::take(bytes)));
}

impl Ledger {
    /// Returns each of its limits as it is at `now_ns`.
    ///
    /// Promised permits count as taken; the owner of a promise cannot cancel it in the restored
    /// limit. Several ledgers may be saved for one instant, one after the other, while calls
    /// continue: decisions made after `now_ns` are saved as well.
    #[must_use]
    pub fn save(&self, now_ns: u64) -> Vec<Saved> {
        let (limits, floor_ns) = self.with_promises();
        let lead_ns = floor_ns.saturating_sub(now_ns);
        let saved = limits.as_slice().iter().map(|limit| Saved {
            policy: limit.policy(),
            state: limit.save(now_ns, Shift::begin(now_ns, lead_ns, Vec::new())),
        });
        saved.collect()
    }
}

/// Restores saved limits, under these numbers from now on: see [`RestoreTarget`].
///
/// # Errors
///
/// [`SavedError`] for data that is not a limit, and if the limits differ in number or policy.
pub fn restore(
    limits: impl Into<AllOf>,
    saved: &[Saved],
    since: RestoreContext,
) -> Result<Ledger, SavedError> {
    let limits = limits.into();
    if limits.policies().len() != saved.len() {
        return Err(SavedError::OtherCount { found: saved.len() });
    }
    let mut floor_ns = since.now_ns;
    let members = limits.into_iter().zip(saved).map(|(policy, saved)| {
        let target = RestoreTarget::new(policy, saved.policy)?;
        let (member, own_ns) = target.read(&saved.state, since)?;
        floor_ns = floor_ns.max(own_ns);
        Ok(member)
    });
    let members = members.collect::<Result<_, SavedError>>()?;
    Ok(Ledger::with_floor(members, floor_ns, since.now_ns))
}

/// A restore target: a policy that continues from states saved under numbers of the same kind.
///
/// It serves tables, where many states have the same numbers. If its own numbers differ, it
/// follows the saved ones as by a change of a live limit. That change happens at the instant of
/// restoring, or when the last promise has started, if there are any.
#[derive(Clone, Copy, Debug)]
pub struct RestoreTarget {
    policy: AnyPolicy,
    /// The numbers that were saved, if they differ.
    saved: Option<AnyPolicy>,
}

impl RestoreTarget {
    /// Returns a restore target for limits that were saved under a policy.
    ///
    /// # Errors
    ///
    /// [`SavedError::OtherPolicy`] if that is another one, whatever its numbers.
    pub fn new(policy: AnyPolicy, saved: AnyPolicy) -> Result<Self, SavedError> {
        if !policy.is_like(&saved) {
            return Err(SavedError::OtherPolicy { saved: saved.name() });
        }
        // One that was saved may know less than the one with the same numbers.
        let saved = (!policy.is_same_as(&saved)).then_some(saved);
        Ok(Self { policy, saved })
    }

    /// Restores the limit with this state.
    ///
    /// # Errors
    ///
    /// [`SavedError`] if it is not a state.
    pub fn limit(&self, state: &[u8], since: RestoreContext) -> Result<Ledger, SavedError> {
        let (member, floor_ns) = self.read(state, since)?;
        Ok(Ledger::with_floor(member.into(), floor_ns, since.now_ns))
    }

    /// Restores a state saved by [`save_state`], for a limit that gives no promises.
    ///
    /// # Errors
    ///
    /// [`SavedError`] if it is not a state, or an earlier promise is still to start.
    pub fn state(&self, state: &[u8], since: RestoreContext) -> Result<Member, SavedError> {
        match self.read(state, since)? {
            (member, floor_ns) if floor_ns <= since.now_ns => Ok(member),
            _ => Err(SavedError::Malformed),
        }
    }

    /// Returns the limit, and the instant before which no new call may start.
    fn read(&self, state: &[u8], since: RestoreContext) -> Result<(Member, u64), SavedError> {
        let numbers = self.saved.unwrap_or(self.policy);
        let (since, state) = Shift::read(state, since)?;
        let (mut member, floor_ns) = (Member::load(numbers, state, since)?, since.settled_ns());
        if self.saved.is_some() {
            member.change(self.policy, floor_ns);
        }
        Ok((member, floor_ns))
    }
}
