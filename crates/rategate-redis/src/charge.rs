//! Charges: permits that were used already are counted, whether they fit or not.
//!
//! A charge has no receipt. Sent twice it counts twice, unless it has an id, whose record lies
//! beside the states of its key.

use rategate::store::{ChargeReply, ReservationId, StoreError};
use rategate_core::debt::{self, Debt};

use crate::batch::{MAX_DECISIONS, head, row_number};
use crate::command::{Command, Settings, number};
use crate::error::{ReplyError, RequestError};
use crate::key::Key;
use crate::library::Verb;
use crate::limit::{Bounds, Limit, MAX_WINDOW_PERMITS, Row};
use crate::plan::Plan;
use crate::reply::{Decoded, Numbers, Outcomes, Status, Value, foreign_key, outcomes};

/// The time for which an id is remembered after its end, unless its reservation could last longer.
pub(crate) const MEMORY_MS: u64 = 600_000;

/// The outcomes of a call's charges, or what kept the store from one of them.
pub type Charged = Outcomes<ChargeReply>;

/// Charges for one call. In a cluster their keys must lie in one slot.
#[derive(Debug, Default)]
pub struct Charges<'a> {
    rows: Vec<Row>,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
    bounds: DebtBounds,
    requests: Vec<(&'a Plan, u64)>,
}

/// The bounds of debts among the arguments of a call: those of a calendar depend on the time.
#[derive(Debug, Default)]
pub(crate) struct DebtBounds(Vec<(usize, Limit, Debt)>);

impl DebtBounds {
    /// Adds the arguments for the debt of a limit: its bounds, and whether it is carried.
    pub(crate) fn push(&mut self, args: &mut Vec<Vec<u8>>, limit: Limit, debt: Debt) {
        self.0.push((args.len(), limit, debt));
        args.push(Vec::new());
        args.push(number(debt.is_carried().into()));
    }

    /// Returns the arguments with the bounds around an instant.
    pub(crate) fn filled(&self, args: &[Vec<u8>], around_us: u64) -> Vec<Vec<u8>> {
        let mut args = args.to_vec();
        for &(at, limit, debt) in &self.0 {
            let bounds = limit.charge_bounds(debt, around_us).unwrap_or(Bounds::One(0));
            if let Some(arg) = args.get_mut(at) {
                *arg = match bounds {
                    Bounds::One(bound) => number(bound),
                    Bounds::OfWindows(bounds) => bounds.map(number).join(&b':'),
                };
            }
        }
        args
    }
}

impl<'a> Charges<'a> {
    /// Creates an empty set of charges.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a charge of each limit of a set that does not count operations in flight. One with an
    /// id counts once, for ten minutes.
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
        (debt, once): (Debt, Option<ReservationId>),
    ) -> Result<(), RequestError> {
        if self.requests.len() >= MAX_DECISIONS {
            return Err(RequestError::Full);
        }
        check(plan, debt)?;
        // Whether more permits than the smallest limit pass later is known without the store.
        let rows = charged(plan)
            .map(|(_, limit)| limit.row(permits.min(plan.maximum())))
            .collect::<Result<Vec<_>, _>>()
            .map_err(RequestError::Exceeds)?;
        // What charges nothing changes nothing, however often it comes.
        let once = once.filter(|_| permits > 0);
        self.args.push(number(u64::try_from(rows.len()).unwrap_or(u64::MAX)));
        self.args.push(number(if once.is_some() { MEMORY_MS } else { 0 }));
        self.keys.extend(once.map(|id| key.reservation(id.0)));
        for (row, (_, limit)) in rows.into_iter().zip(charged(plan)) {
            self.args.push(number(row_number(&mut self.rows, row)));
            self.args.push(number(permits.min(MAX_WINDOW_PERMITS)));
            self.bounds.push(&mut self.args, *limit, debt);
        }
        self.keys.extend(charged(plan).map(|(label, limit)| key.state(label, limit.letter())));
        self.requests.push((plan, permits));
        Ok(())
    }

    /// Returns the command that makes the charges.
    #[must_use]
    pub fn command(&self, settings: Settings) -> Command {
        let mut args = head(settings, &self.rows);
        args.append(&mut self.bounds.filled(&self.args, settings.time_us()));
        Command::new(Verb::Charge, self.keys.clone(), args)
    }

    /// Reads the reply: outcomes in the order of the charges.
    ///
    /// A charge of which a key holds data of another kind has
    /// [`Unavailable::Key`](rategate::store::Unavailable::Key) in place of an outcome, and one with
    /// the id of another request [`StoreError::OtherRequest`]. Nothing was booked in any of its
    /// limits.
    ///
    /// # Errors
    ///
    /// [`ReplyError`] if the value is not such a reply.
    pub fn read(&self, value: &Value) -> Result<Decoded<Charged>, ReplyError> {
        read(value, self.requests.iter().copied())
    }
}

/// Checks that all charged limits of a set take such a charge, and that there is one.
pub(crate) fn check(plan: &Plan, debt: Debt) -> Result<(), RequestError> {
    if charged(plan).next().is_none() {
        return Err(RequestError::CountsInFlight);
    }
    let takes = |(_, limit): (&str, &Limit)| limit.charge_bounds(debt, 0).is_some();
    if charged(plan).all(takes) { Ok(()) } else { Err(RequestError::CarriedByLog) }
}

/// Reads the reply to a call with these charges.
pub(crate) fn read<'a>(
    value: &Value,
    requests: impl Iterator<Item = (&'a Plan, u64)>,
) -> Result<Decoded<Charged>, ReplyError> {
    outcomes(value, requests, outcome)
}

/// Reads the outcome of a charge of `permits`.
fn outcome(
    numbers: &mut Numbers<'_>,
    (plan, permits): (&Plan, u64),
    now_us: u64,
) -> Result<Result<ChargeReply, StoreError>, ReplyError> {
    let (status, number) = (numbers.count()?, numbers.int()?);
    let (booked, debt_then) = (numbers.count()?, numbers.count()?);
    let after = Status::of(numbers, charged(plan), now_us)?;
    let (is_repeated, debt) = match status {
        1 => (false, after.debt),
        2 => (true, debt_then),
        3 => return Ok(Err(foreign_key())),
        5 => return Ok(Err(StoreError::OtherRequest)),
        _ => return Err(ReplyError::Number),
    };
    let wait_us = after.wait_us(number).filter(|_| permits <= plan.maximum());
    let retry_after_ns = wait_us.map(|wait_us| wait_us.saturating_mul(1_000));
    let forgiven = permits.saturating_sub(booked);
    let charged = debt::Charged { booked, forgiven, debt };
    let remaining = after.remaining;
    Ok(Ok(ChargeReply { charged, is_repeated, remaining, retry_after_ns }))
}

/// Returns the limits that take charges, with their labels.
fn charged(plan: &Plan) -> impl Iterator<Item = (&str, &Limit)> {
    plan.limits().filter(|(_, limit)| !limit.holds())
}
