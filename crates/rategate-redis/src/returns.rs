//! Refunds, credits, releases, renewals and resets.

use rategate::store::{CreditReply, LeaseId, Receipt, ReservationId, StoreError};

use crate::batch::{head, row_number, rows_of};
use crate::charge::MEMORY_MS;
use crate::command::{Command, Settings, number};
use crate::error::{ReplyError, RequestError};
use crate::key::Key;
use crate::library::Verb;
use crate::limit::{MAX_WINDOW_PERMITS, Row};
use crate::plan::{Plan, RECEIPT_WORDS};
use crate::reply::{self, Decoded, Outcomes, Value, foreign_key, outcomes};

/// Returns the command that refunds `permits` of a grant.
///
/// The permits must have had no effect, and must have none later; each can be refunded once. The
/// reply says how many came back: only so many that no limit of the set then has more free
/// permits than if they had never been taken.
///
/// # Errors
///
/// [`RequestError::HeldByLease`] for limits of operations in flight, [`RequestError::OtherPlan`],
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

/// Refunds of several grants in one call, whose reply has a count for each. In a cluster their
/// keys must lie in one slot.
#[derive(Debug, Default)]
pub struct Refunds {
    rows: Vec<Row>,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

impl Refunds {
    /// Creates an empty set of refunds.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the refund of `permits` of a grant.
    ///
    /// # Errors
    ///
    /// As for [`refund`]. The refunds added before are unchanged then.
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
        if !plan.is_receipt_of(receipt) {
            return Err(RequestError::OtherPlan);
        }
        let rows = rows_of(plan, permits)?;
        self.args.push(number(u64::try_from(rows.len()).unwrap_or(u64::MAX)));
        for (row, words) in rows.into_iter().zip(receipt.words().chunks_exact(RECEIPT_WORDS)) {
            self.args.push(number(row_number(&mut self.rows, row)));
            self.args.extend(words.iter().map(|&word| number(word)));
        }
        self.keys.extend(states(plan, key));
        Ok(())
    }

    /// Returns the command that makes the refunds.
    #[must_use]
    pub fn command(self, settings: Settings) -> Command {
        let mut args = head(settings, &self.rows);
        args.extend(self.args);
        Command::new(Verb::Refund, self.keys, args)
    }
}

/// Returns the command that credits permits without a grant, at most those in use.
///
/// Only permits that were taken of every limit of the set, and not earned again, come back. The
/// reply says how many did; a bucket may have capacity for only a part of the last one. The
/// caller vouches for the credit: in any window as many more pass as are credited in it, and no
/// more. One with an id counts once, for ten minutes.
///
/// # Errors
///
/// [`RequestError::HeldByLease`] for limits of operations in flight, [`RequestError::NoPermits`].
pub fn credit(
    plan: &Plan,
    key: &Key,
    permits: u64,
    once: Option<ReservationId>,
    settings: Settings,
) -> Result<Command, RequestError> {
    if plan.holds() {
        return Err(RequestError::HeldByLease);
    }
    let mut args = head(settings, &rows_of(plan, permits.min(plan.maximum()))?);
    args.push(number(if once.is_some() { MEMORY_MS } else { 0 }));
    args.push(number(permits.min(MAX_WINDOW_PERMITS)));
    let record = once.map(|id| key.reservation(id.0));
    let keys = record.into_iter().chain(states(plan, key)).collect();
    Ok(Command::new(Verb::Credit, keys, args))
}

/// Reads the reply to a credit, which is one.
///
/// # Errors
///
/// [`ReplyError`] if the value is not such a reply.
pub fn read_credit(value: &Value) -> Result<Decoded<Outcomes<CreditReply>>, ReplyError> {
    outcomes(value, std::iter::once(()), |numbers, (), _| {
        let (status, permits) = (numbers.count()?, numbers.count()?);
        Ok(match status {
            1 | 2 => Ok(CreditReply { permits, is_repeated: status == 2 }),
            3 => Err(foreign_key()),
            5 => Err(StoreError::OtherRequest),
            _ => return Err(ReplyError::Number),
        })
    })
}

/// Returns the command that ends a lease and frees its `permits`. A second release does nothing.
///
/// # Errors
///
/// [`RequestError::NoLease`] for limits without operations in flight,
/// [`RequestError::NoPermits`], [`RequestError::Exceeds`].
pub fn release(
    plan: &Plan,
    key: &Key,
    lease: LeaseId,
    permits: u64,
    settings: Settings,
) -> Result<Command, RequestError> {
    of_lease(Verb::Release, plan, key, lease, permits, settings)
}

/// Returns the command that renews a lease for its full length from now.
///
/// The reply says 0 if the lease had ended: its permits may have been granted to another caller
/// since.
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

/// Returns the command that resets all limits of a set for a key.
#[must_use]
pub fn reset(plan: &Plan, key: &Key) -> Command {
    Command::new(Verb::Reset, states(plan, key), Vec::new())
}

/// Reads the reply to any of these commands but a credit.
///
/// Refunds have one count, the permits that came back; resets the number of states
/// that there were. The others have one count for each limit of operations in flight: 1 if the
/// lease existed.
///
/// # Errors
///
/// [`ReplyError`] if the value is not such a reply.
pub fn read(
    plan: &Plan,
    command: &Command,
    value: &Value,
) -> Result<Decoded<Vec<u64>>, ReplyError> {
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
    for ((label, limit), position) in
        plan.limits().zip(1_u64..).filter(|((_, limit), _)| limit.holds())
    {
        args.push(number(position));
        args.push(lease.0.to_vec());
        keys.push(key.state(label, limit.letter()));
    }
    Ok(Command::new(verb, keys, args))
}

fn states(plan: &Plan, key: &Key) -> Vec<Vec<u8>> {
    plan.limits().map(|(label, limit)| key.state(label, limit.letter())).collect()
}
