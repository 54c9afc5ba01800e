//! Charges: permits that were used already are counted, whether they fit or not.
//!
//! A charge has no receipt, and no identity: sent twice, it counts twice.

use rategate::store::{ChargeReply, Unavailable};
use rategate_core::debt::{Charged, Debt};

use crate::batch::{MAX_DECISIONS, head, row_number};
use crate::command::{Command, Settings, number};
use crate::error::{ReplyError, RequestError};
use crate::key::Key;
use crate::library::Verb;
use crate::limit::{Limit, MAX_WINDOW_PERMITS, Row};
use crate::plan::Plan;
use crate::reply::{Decoded, Numbers, Value, foreign_key};

/// The outcomes of a call's charges, or what kept the store from one of them.
pub type Outcomes = Vec<Result<ChargeReply, Unavailable>>;

/// Charges for one call. In a cluster their keys must lie in one slot.
#[derive(Debug, Default)]
pub struct Charges<'a> {
    rows: Vec<Row>,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
    requests: Vec<(&'a Plan, u64)>,
}

impl<'a> Charges<'a> {
    /// Creates an empty set of charges.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a charge of each limit of a set that does not count operations in flight.
    ///
    /// # Errors
    ///
    /// [`RequestError::CountsInFlight`], [`RequestError::CarriedByLog`], [`RequestError::Full`].
    /// The charges added before are unchanged then.
    pub fn push(
        &mut self,
        plan: &'a Plan,
        key: &Key,
        permits: u64,
        debt: Debt,
    ) -> Result<(), RequestError> {
        if self.requests.len() >= MAX_DECISIONS {
            return Err(RequestError::Full);
        }
        let bounds = bounds_of(plan, debt)?;
        // Whether more permits than the smallest limit pass later is known without the store.
        let rows = charged(plan)
            .map(|(_, limit)| limit.row(permits.min(plan.maximum())))
            .collect::<Result<Vec<_>, _>>()
            .map_err(RequestError::Exceeds)?;
        self.args.push(number(u64::try_from(rows.len()).unwrap_or(u64::MAX)));
        for (row, bound) in rows.into_iter().zip(bounds) {
            self.args.push(number(row_number(&mut self.rows, row)));
            self.args.push(number(permits.min(MAX_WINDOW_PERMITS)));
            self.args.push(number(bound));
            self.args.push(number(debt.is_carried().into()));
        }
        self.keys.extend(charged(plan).map(|(label, limit)| key.state(label, limit.letter())));
        self.requests.push((plan, permits));
        Ok(())
    }

    /// Returns the command that makes the charges.
    #[must_use]
    pub fn command(&self, settings: Settings) -> Command {
        let mut args = head(settings, &self.rows);
        args.extend(self.args.iter().cloned());
        Command::new(Verb::Charge, self.keys.clone(), args)
    }

    /// Reads the reply: outcomes in the order of the charges.
    ///
    /// A charge of which a key holds data of another kind has [`Unavailable::Key`] in place of an
    /// outcome. Nothing was booked in any of its limits.
    ///
    /// # Errors
    ///
    /// [`ReplyError`] if the value is not such a reply.
    pub fn read(&self, value: &Value) -> Result<Decoded<Outcomes>, ReplyError> {
        read(value, self.requests.iter().copied())
    }
}

/// Returns the bound of each charged limit, or the reason why a limit takes no such charge.
pub(crate) fn bounds_of(plan: &Plan, debt: Debt) -> Result<Vec<u64>, RequestError> {
    let bounds = charged(plan).map(|(_, limit)| limit.charge_bound(debt));
    let bounds: Option<Vec<u64>> = bounds.collect();
    match bounds {
        Some(bounds) if bounds.is_empty() => Err(RequestError::CountsInFlight),
        Some(bounds) => Ok(bounds),
        None => Err(RequestError::CarriedByLog),
    }
}

/// Reads the reply to a call with these charges.
pub(crate) fn read<'a>(
    value: &Value,
    requests: impl Iterator<Item = (&'a Plan, u64)>,
) -> Result<Decoded<Outcomes>, ReplyError> {
    let mut numbers = Numbers::of(value)?;
    let (now_us, (corrected, is_marked)) = (numbers.count()?, numbers.corrected()?);
    let outcomes = requests.map(|(plan, permits)| outcome(&mut numbers, plan, permits, now_us));
    let content = outcomes.collect::<Result<_, _>>()?;
    numbers.end()?;
    Ok(Decoded { now_us, corrected, is_marked, content })
}

/// Reads the outcome of a charge of `permits`.
fn outcome(
    numbers: &mut Numbers<'_>,
    plan: &Plan,
    permits: u64,
    now_us: u64,
) -> Result<Result<ChargeReply, Unavailable>, ReplyError> {
    let (status, wait_us) = (numbers.count()?, numbers.int()?);
    let (mut booked, mut debt, mut remaining) = (permits, 0, u64::MAX);
    for (_, limit) in charged(plan) {
        booked = booked.min(numbers.count()?);
        let fields = [numbers.count()?, numbers.count()?, numbers.count()?];
        debt = limit.debt(now_us, fields).max(debt);
        remaining = limit.remaining(now_us, fields).min(remaining);
    }
    match status {
        1 => {}
        3 => return Ok(Err(foreign_key())),
        _ => return Err(ReplyError::Number),
    }
    let wait_us = u64::try_from(wait_us).ok().filter(|_| permits <= plan.maximum());
    let charged = Charged { booked, forgiven: permits.saturating_sub(booked), debt };
    let retry_after_ns = wait_us.map(|wait_us| wait_us.saturating_mul(1_000));
    Ok(Ok(ChargeReply { charged, remaining, retry_after_ns }))
}

/// Returns the limits that take charges, with their labels.
fn charged(plan: &Plan) -> impl Iterator<Item = (&str, &Limit)> {
    plan.limits().filter(|(_, limit)| !limit.holds())
}
