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
    bounds: Bounds,
    requests: Vec<(&'a Plan, u64)>,
}

/// The bounds of debts among the arguments of a call: that of a calendar depends on the time.
#[derive(Debug, Default)]
pub(crate) struct Bounds(Vec<(usize, Limit, Debt)>);

impl Bounds {
    /// Adds the arguments for the debt of a limit: its bound, and whether it is carried.
    pub(crate) fn push(&mut self, args: &mut Vec<Vec<u8>>, limit: Limit, debt: Debt) {
        self.0.push((args.len(), limit, debt));
        args.push(Vec::new());
        args.push(number(debt.is_carried().into()));
    }

    /// Returns the arguments with the bounds around an instant.
    pub(crate) fn filled(&self, args: &[Vec<u8>], around_us: u64) -> Vec<Vec<u8>> {
        let mut args = args.to_vec();
        for &(at, limit, debt) in &self.0 {
            let bound = limit.charge_bound(debt, around_us).unwrap_or(0);
            if let Some(arg) = args.get_mut(at) {
                *arg = number(bound);
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
        check(plan, debt)?;
        // Whether more permits than the smallest limit pass later is known without the store.
        let rows = charged(plan)
            .map(|(_, limit)| limit.row(permits.min(plan.maximum())))
            .collect::<Result<Vec<_>, _>>()
            .map_err(RequestError::Exceeds)?;
        self.args.push(number(u64::try_from(rows.len()).unwrap_or(u64::MAX)));
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

/// Checks that all charged limits of a set take such a charge, and that there is one.
pub(crate) fn check(plan: &Plan, debt: Debt) -> Result<(), RequestError> {
    if charged(plan).next().is_none() {
        return Err(RequestError::CountsInFlight);
    }
    let takes = |(_, limit): (&str, &Limit)| limit.charge_bound(debt, 0).is_some();
    if charged(plan).all(takes) { Ok(()) } else { Err(RequestError::CarriedByLog) }
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
    let (mut booked, mut debt, mut remaining, mut passes_us) = (permits, 0, u64::MAX, 0);
    for (_, limit) in charged(plan) {
        booked = booked.min(numbers.count()?);
        let fields = [numbers.count()?, numbers.count()?, numbers.count()?];
        debt = limit.debt(now_us, fields).max(debt);
        remaining = limit.remaining(now_us, fields).min(remaining);
        passes_us = limit.passes_us(fields).unwrap_or(0).max(passes_us);
    }
    match status {
        1 => {}
        3 => return Ok(Err(foreign_key())),
        _ => return Err(ReplyError::Number),
    }
    let wait_us = u64::try_from(wait_us).ok().filter(|_| permits <= plan.maximum());
    let wait_us = wait_us.map(|wait_us| wait_us.max(passes_us.saturating_sub(now_us)));
    let charged = Charged { booked, forgiven: permits.saturating_sub(booked), debt };
    let retry_after_ns = wait_us.map(|wait_us| wait_us.saturating_mul(1_000));
    Ok(Ok(ChargeReply { charged, remaining, retry_after_ns }))
}

/// Returns the limits that take charges, with their labels.
fn charged(plan: &Plan) -> impl Iterator<Item = (&str, &Limit)> {
    plan.limits().filter(|(_, limit)| !limit.holds())
}
