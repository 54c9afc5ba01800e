//! What comes back: permits without effect, operations that have ended or go on, keys to be forgotten.

use crate::batch::{LeaseId, head, place_of, rows_of};
use crate::command::{Command, Settings, number};
use crate::error::{ReplyError, RequestError};
use crate::key::Key;
use crate::library::Verb;
use crate::limit::Row;
use crate::plan::Plan;
use crate::reply::{self, Value};
use crate::verdict::{Counts, Receipt};

/// Takes back `permits` of a grant, because they are known to have had no effect and to have none later. Once
/// for each permit. The answer says how many came back: only so many that every limit of the plan is at least as
/// full as if they had never been taken.
///
/// # Errors
///
/// [`RequestError::HeldByLease`] for a plan of operations in flight, [`RequestError::OtherPlan`],
/// [`RequestError::NoPermits`], [`RequestError::Exceeds`].
pub fn refund(
    plan: &Plan,
    key: &Key,
    receipt: &Receipt,
    permits: u64,
    settings: Settings,
) -> Result<Command, RequestError> {
    let mut refunds = Refunds::new();
    refunds.push(plan, key, receipt, permits)?;
    Ok(refunds.command(settings))
}

/// Permits of several grants that come back in one call, whose answer has a count for each. In a cluster their keys are
/// in one slot.
#[derive(Debug, Default)]
pub struct Refunds {
    rows: Vec<Row>,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

impl Refunds {
    /// Nothing so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds permits of a grant.
    ///
    /// # Errors
    ///
    /// As for [`refund`]. The others are as before then.
    pub fn push(
        &mut self,
        plan: &Plan,
        key: &Key,
        receipt: &Receipt,
        permits: u64,
    ) -> Result<(), RequestError> {
        if plan.holds() {
            return Err(RequestError::HeldByLease);
        }
        if receipt.told.len() != plan.limits().len() {
            return Err(RequestError::OtherPlan);
        }
        let rows = rows_of(plan, permits)?;
        self.args.push(number(u64::try_from(rows.len()).unwrap_or(u64::MAX)));
        for (row, told) in rows.into_iter().zip(&receipt.told) {
            self.args.push(number(place_of(&mut self.rows, row)));
            self.args.extend(told.iter().map(|&told| number(told)));
        }
        self.keys.extend(states(plan, key));
        Ok(())
    }

    /// The call that takes them back.
    #[must_use]
    pub fn command(self, settings: Settings) -> Command {
        let mut args = head(settings, &self.rows);
        args.extend(self.args);
        Command::new(Verb::Refund, self.keys, args)
    }
}

/// Takes permits back without a grant to show, up to full: only as many as have been taken of every limit of the plan and not
/// been earned again. The answer says how many came back; of a bucket the last of them may find room for a part of itself only.
/// It is the caller's word: in any window as many more pass as come back in it, and no more.
///
/// # Errors
///
/// [`RequestError::HeldByLease`] for a plan of operations in flight, [`RequestError::NoPermits`], [`RequestError::Exceeds`].
pub fn give_back(
    plan: &Plan,
    key: &Key,
    permits: u64,
    settings: Settings,
) -> Result<Command, RequestError> {
    if plan.holds() {
        return Err(RequestError::HeldByLease);
    }
    let args = head(settings, &rows_of(plan, permits)?);
    Ok(Command::new(Verb::GiveBack, states(plan, key), args))
}

/// Ends a lease of so many permits: they are free again. Releasing twice does nothing the second time.
///
/// # Errors
///
/// [`RequestError::NoLease`] for a plan without operations in flight, [`RequestError::NoPermits`],
/// [`RequestError::Exceeds`].
pub fn release(
    plan: &Plan,
    key: &Key,
    lease: LeaseId,
    permits: u64,
    settings: Settings,
) -> Result<Command, RequestError> {
    of_lease(Verb::Release, plan, key, lease, permits, settings)
}

/// Lets a lease go on for its full length from now. The answer says 0 if it had ended: the permits may be
/// somebody else's by now.
///
/// # Errors
///
/// As for [`release`].
pub fn renew(
    plan: &Plan,
    key: &Key,
    lease: LeaseId,
    permits: u64,
    settings: Settings,
) -> Result<Command, RequestError> {
    of_lease(Verb::Renew, plan, key, lease, permits, settings)
}

/// Forgets what a key has used of all limits of a plan.
#[must_use]
pub fn reset(plan: &Plan, key: &Key) -> Command {
    Command::new(Verb::Reset, states(plan, key), Vec::new())
}

/// Reads the answer to any of these: what comes back and a reset have one count, the others one for each limit of
/// operations in flight.
///
/// # Errors
///
/// [`ReplyError`] if it is none.
pub fn read(plan: &Plan, command: &Command, value: &Value) -> Result<Counts, ReplyError> {
    let expected = match command.verb() {
        Verb::Release | Verb::Renew => plan.limits().filter(|(_, limit)| limit.holds()).count(),
        _ => 1,
    };
    reply::counts(value, expected)
}

fn of_lease(
    verb: Verb,
    plan: &Plan,
    key: &Key,
    lease: LeaseId,
    permits: u64,
    settings: Settings,
) -> Result<Command, RequestError> {
    if !plan.holds() {
        return Err(RequestError::NoLease);
    }
    let mut args = head(settings, &rows_of(plan, permits)?);
    let mut keys = Vec::new();
    for ((label, limit), place) in
        plan.limits().zip(1_u64..).filter(|((_, limit), _)| limit.holds())
    {
        args.push(number(place));
        args.push(lease.0.to_vec());
        keys.push(key.state(label, limit.letter()));
    }
    Ok(Command::new(verb, keys, args))
}

fn states(plan: &Plan, key: &Key) -> Vec<Vec<u8>> {
    plan.limits().map(|(label, limit)| key.state(label, limit.letter())).collect()
}
