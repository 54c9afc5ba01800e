//! Reservations: an estimate is held under an id until its end, and then settled.
//!
//! The id has a record of its own beside the states of its key, so both requests may be sent again:
//! what was decided is decided once. The functions end each hold at its instant, when they next
//! read the state.

use std::num::NonZeroU64;

use rategate::store::{
    EndOutcome, EndReply, ReservationEnd, ReservationId, ReserveReply, ReserveVerdict, StoreError,
};
use rategate_core::debt::{Charged, Debt};
use rategate_core::verdict::Settled;

use crate::batch::{MAX_DECISIONS, head, row_number, rows_of};
use crate::charge::{self, DebtBounds, MEMORY_MS};
use crate::command::{Command, Settings, number};
use crate::error::{ReplyError, RequestError};
use crate::key::Key;
use crate::library::Verb;
use crate::limit::{MAX_WINDOW_PERMITS, Row};
use crate::plan::Plan;
use crate::reply::{Decoded, Numbers, Outcomes, Status, Value, foreign_key, outcomes};

/// The maximum time of a reservation, in microseconds: 35 years.
pub const MAX_TTL_US: u64 = 1 << 50;
/// The maximum number of holds of one limit of a key. A denial of one more ends with the first of
/// them.
pub const MAX_HOLDS: u64 = 1_024;

/// The replies to a call's reservations, or what kept the store from one of them.
pub type Reserved = Outcomes<ReserveReply>;
/// The replies to a call's ends, or what kept the store from one of them.
pub type Ended = Outcomes<EndReply>;

/// Estimates for one call. In a cluster their keys must lie in one slot.
#[derive(Debug, Default)]
pub struct Estimates<'a> {
    rows: Vec<Row>,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
    requests: Vec<&'a Plan>,
}

impl<'a> Estimates<'a> {
    /// Creates an empty set of estimates.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a request to hold `permits` of a key under an id for `ttl_ns`, rounded up to whole
    /// microseconds, where as many more as are `spared` would pass.
    ///
    /// # Errors
    ///
    /// [`RequestError::TooLong`], [`RequestError::NoPermits`],
    /// [`RequestError::Exceeds`], [`RequestError::Full`]. The estimates added before are unchanged
    /// then.
    pub fn push(
        &mut self,
        plan: &'a Plan,
        key: &Key,
        (permits, spared): (u64, u64),
        (id, ttl_ns): (ReservationId, NonZeroU64),
    ) -> Result<(), RequestError> {
        if self.requests.len() >= MAX_DECISIONS {
            return Err(RequestError::Full);
        }
        let lasts_us = lasts_us(ttl_ns)?;
        let judged = rows_of(plan, permits.saturating_add(spared))?;
        let rows = rows_of(plan, permits)?;
        self.args.push(count(rows.len()));
        self.args.push(id.0.to_vec());
        self.args.push(number(lasts_us));
        self.args.push(number(lasts_us.div_ceil(1_000).max(MEMORY_MS)));
        self.args.push(number((spared > 0).into()));
        for row in rows.into_iter().chain(judged.into_iter().filter(|_| spared > 0)) {
            self.args.push(number(row_number(&mut self.rows, row)));
        }
        self.keys.extend(keys_of(plan, key, id));
        self.requests.push(plan);
        Ok(())
    }

    /// Returns the command that holds the estimates.
    #[must_use]
    pub fn command(&self, settings: Settings) -> Command {
        let mut args = head(settings, &self.rows);
        args.extend(self.args.iter().cloned());
        Command::new(Verb::Reserve, self.keys.clone(), args)
    }

    /// Reads the reply, in the order of the estimates.
    ///
    /// One of which a key holds data of another kind has
    /// [`Unavailable::Key`](rategate::store::Unavailable::Key). Nothing is held under any of its
    /// limits.
    ///
    /// # Errors
    ///
    /// [`ReplyError`] if the value is not such a reply.
    pub fn read(&self, value: &Value) -> Result<Decoded<Reserved>, ReplyError> {
        read_reserved(value, self.requests.iter().copied())
    }
}

/// Ends of reservations for one call. In a cluster their keys must lie in one slot.
#[derive(Debug, Default)]
pub struct Ends<'a> {
    rows: Vec<Row>,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
    bounds: DebtBounds,
    requests: Vec<(&'a Plan, ReservationEnd)>,
}

impl<'a> Ends<'a> {
    /// Creates an empty set of ends.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the end of a reservation of these limits.
    ///
    /// # Errors
    ///
    /// [`RequestError::CarriedByLog`], [`RequestError::Full`]. The ends added before are unchanged
    /// then.
    pub fn push(
        &mut self,
        plan: &'a Plan,
        key: &Key,
        id: ReservationId,
        end: ReservationEnd,
        debt: Debt,
    ) -> Result<(), RequestError> {
        if self.requests.len() >= MAX_DECISIONS {
            return Err(RequestError::Full);
        }
        check_end(plan, debt)?;
        let rows = rows_of(plan, 1)?;
        self.args.push(count(rows.len()));
        self.args.push(id.0.to_vec());
        let kind = match end {
            ReservationEnd::Commit { .. } => 0,
            ReservationEnd::Cancel => 1,
            ReservationEnd::Withdraw => 2,
        };
        self.args.push(match used_of(end) {
            Some(used) => number(used.min(MAX_WINDOW_PERMITS)),
            None => b"-1".to_vec(),
        });
        self.args.push(number(kind));
        for (row, (_, limit)) in rows.into_iter().zip(plan.limits()) {
            self.args.push(number(row_number(&mut self.rows, row)));
            self.bounds.push(&mut self.args, *limit, debt);
        }
        self.keys.extend(keys_of(plan, key, id));
        self.requests.push((plan, end));
        Ok(())
    }

    /// Returns the command that ends the reservations.
    #[must_use]
    pub fn command(&self, settings: Settings) -> Command {
        let mut args = head(settings, &self.rows);
        args.append(&mut self.bounds.filled(&self.args, settings.time_us()));
        Command::new(Verb::Settle, self.keys.clone(), args)
    }

    /// Reads the reply, in the order of the ends.
    ///
    /// One of which a key holds data of another kind has
    /// [`Unavailable::Key`](rategate::store::Unavailable::Key). Nothing changed in any of its
    /// limits.
    ///
    /// # Errors
    ///
    /// [`ReplyError`] if the value is not such a reply.
    pub fn read(&self, value: &Value) -> Result<Decoded<Ended>, ReplyError> {
        read_ended(value, self.requests.iter().copied())
    }
}

/// Returns the time of a reservation in microseconds, rounded up, or why it is not possible.
pub(crate) fn lasts_us(ttl_ns: NonZeroU64) -> Result<u64, RequestError> {
    let lasts_us = ttl_ns.get().div_ceil(1_000);
    if lasts_us > MAX_TTL_US { Err(RequestError::TooLong) } else { Ok(lasts_us) }
}

/// Checks that limits take such a charge, those of permits in flight aside: nothing is charged to
/// them.
pub(crate) fn check_end(plan: &Plan, debt: Debt) -> Result<(), RequestError> {
    match charge::check(plan, debt) {
        Err(RequestError::CountsInFlight) => Ok(()),
        checked => checked,
    }
}

/// Reads the reply to a call with these estimates.
pub(crate) fn read_reserved<'a>(
    value: &Value,
    plans: impl Iterator<Item = &'a Plan>,
) -> Result<Decoded<Reserved>, ReplyError> {
    outcomes(value, plans, reserved)
}

/// Reads the reply to a call with these ends.
pub(crate) fn read_ended<'a>(
    value: &Value,
    ends: impl Iterator<Item = (&'a Plan, ReservationEnd)>,
) -> Result<Decoded<Ended>, ReplyError> {
    outcomes(value, ends, |numbers, (plan, end), now_us| ended(numbers, plan, end, now_us))
}

type Outcome<T> = Result<Result<T, StoreError>, ReplyError>;

fn reserved(numbers: &mut Numbers<'_>, plan: &Plan, now_us: u64) -> Outcome<ReserveReply> {
    let (status, number) = (numbers.count()?, numbers.int()?);
    let after = Status::of(numbers, plan.limits(), now_us)?;
    let (remaining, debt) = (after.remaining, after.debt);
    let count = u64::try_from(number);
    let in_ns = |us: u64| NonZeroU64::new(us.saturating_mul(1_000)).ok_or(ReplyError::Number);
    let verdict = match (status, count) {
        (1 | 2, Ok(left_us)) => ReserveVerdict::Held { ends_in_ns: in_ns(left_us)? },
        (0, _) => {
            let retry_after_ns = after.wait_us(number).map(in_ns).transpose()?;
            ReserveVerdict::Denied { retry_after_ns }
        }
        (4, _) => ReserveVerdict::Ended,
        (5, Ok(permits)) => ReserveVerdict::OtherPermits { permits },
        (3, _) => return Ok(Err(foreign_key())),
        _ => return Err(ReplyError::Number),
    };
    Ok(Ok(ReserveReply { verdict, is_repeated: !matches!(status, 0 | 1), remaining, debt }))
}

fn ended(
    numbers: &mut Numbers<'_>,
    plan: &Plan,
    end: ReservationEnd,
    now_us: u64,
) -> Outcome<EndReply> {
    let (status, kind) = (numbers.count()?, numbers.count()?);
    let [first, second, third] = [numbers.count()?, numbers.count()?, numbers.count()?];
    let Status { remaining, debt, .. } = Status::of(numbers, plan.limits(), now_us)?;
    // What the store does not count at all.
    let counts_use = plan.limits().any(|(_, limit)| !limit.holds());
    let used = used_of(end).filter(|_| counts_use).unwrap_or(0);
    let forgiven = second.saturating_add(used.saturating_sub(MAX_WINDOW_PERMITS));
    let outcome = match (status, kind) {
        (0, _) => EndOutcome::Unknown,
        (3, _) => return Ok(Err(foreign_key())),
        (1 | 2, 1) => EndOutcome::Committed(Settled::Back { permits: first }),
        (1 | 2, 2) => EndOutcome::Committed(Settled::Owed { permits: first, forgiven }),
        (1 | 2, 3) => EndOutcome::Committed(Settled::Even),
        (1 | 2, 4) => EndOutcome::Cancelled(first),
        (1 | 2, 5) => EndOutcome::Late(Charged { booked: first, forgiven, debt: third }),
        _ => return Err(ReplyError::Number),
    };
    Ok(Ok(EndReply { outcome, is_repeated: status == 2, remaining, debt }))
}

/// Returns the permits that were used, or `None` for all that were held.
const fn used_of(end: ReservationEnd) -> Option<u64> {
    match end {
        ReservationEnd::Commit { used } => used,
        ReservationEnd::Cancel | ReservationEnd::Withdraw => Some(0),
    }
}

fn keys_of(plan: &Plan, key: &Key, id: ReservationId) -> impl Iterator<Item = Vec<u8>> {
    let states = plan.limits().map(|(label, limit)| key.state(label, limit.letter()));
    std::iter::once(key.reservation(id.0)).chain(states)
}

fn count(length: usize) -> Vec<u8> {
    number(u64::try_from(length).unwrap_or(u64::MAX))
}
