//! Batches of decisions that a store makes in one call.
//!
//! Each decision is made on its own, in order and at the same instant, as if it had come in a
//! call of its own. The store reads each state once, however many decisions of the batch use it.
//! In a cluster all keys of one call must lie in one slot; see [`Key::slot`].

use std::ops::Range;

use rategate::store::{LeaseId, Verdict};
use rategate_core::error::ExceedsCapacity;

use crate::command::{Command, HORIZON_US, Settings, number};
use crate::error::{ReplyError, RequestError};
use crate::key::Key;
use crate::library::Verb;
use crate::limit::Row;
use crate::plan::Plan;
use crate::reply::{Decoded, Outcomes, Value, outcomes};

/// The maximum number of decisions in one call. The store does nothing else meanwhile.
pub const MAX_DECISIONS: usize = 1_024;

/// The identity of a request that is decided once, however often it is sent.
///
/// A repetition within `keep_ms` is answered with the first grant again. The record costs a key
/// of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// An identifier of 128 bits that no other request has.
    pub id: [u8; 16],
    /// The time the store keeps the record, in ms; longer than any retry of the request takes.
    pub keep_ms: u64,
}

/// Optional parts of a decision besides its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// The identity that makes the request safe to send again. Without one, no record is sent or
    /// kept.
    pub request: Option<RequestId>,
    /// The name under which permits in flight are held. A second grant to the same name repeats
    /// the first.
    pub lease: Option<LeaseId>,
}

/// The verdicts of a call, or what kept the store from one of them.
pub type Verdicts = Outcomes<Verdict>;

/// A batch of decisions for one call.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    rows: Vec<Row>,
    keys: Vec<Vec<u8>>,
    groups: Vec<Group>,
    requests: Vec<(&'a Plan, u64)>,
}

/// A run of decisions that differ in their keys only, or not at all.
#[derive(Debug)]
struct Group {
    often: u64,
    is_same: bool,
    is_partial: bool,
    keep_ms: Option<u64>,
    /// The numbers of the rows of this run, counted from 1.
    rows: Vec<u64>,
    /// The range of the keys of the newest decision.
    newest: Range<usize>,
    /// A lease name for each limit of operations in flight.
    leases: Vec<LeaseId>,
}

impl<'a> Batch<'a> {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a request for `permits` of a key under all limits of a limit set; all are granted or
    /// none.
    ///
    /// # Errors
    ///
    /// [`RequestError::Exceeds`], [`RequestError::NoPermits`], [`RequestError::NoLease`],
    /// [`RequestError::Full`]. The batch is unchanged then.
    pub fn try_acquire(
        &mut self,
        plan: &'a Plan,
        key: &Key,
        permits: u64,
        extra: Extra,
    ) -> Result<(), RequestError> {
        self.push(plan, key, permits, extra, false)
    }

    /// Adds a request for as many of `permits` as pass now, at least one.
    ///
    /// A node takes the units of a lease this way, which it then grants on its own. A denial says
    /// when one permit passes.
    ///
    /// # Errors
    ///
    /// As for [`try_acquire`](Self::try_acquire), and [`RequestError::HeldByLease`] for limits of
    /// operations in flight, which are taken all or none.
    pub fn debit(
        &mut self,
        plan: &'a Plan,
        key: &Key,
        permits: u64,
        extra: Extra,
    ) -> Result<(), RequestError> {
        if plan.holds() {
            return Err(RequestError::HeldByLease);
        }
        self.push(plan, key, permits, extra, true)
    }

    /// Returns the number of decisions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns `true` if there are no decisions, and so nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the command that makes the decisions.
    #[must_use]
    pub fn decide(&self, settings: Settings) -> Command {
        Command::new(Verb::Decide, self.keys.clone(), self.args(settings))
    }

    /// Returns the command that only reads: each decision is answered as if it were the only one.
    #[must_use]
    pub fn peek(&self, settings: Settings) -> Command {
        Command::new(Verb::Peek, self.keys.clone(), self.args(settings))
    }

    /// Reads the reply to [`decide`](Self::decide) or [`peek`](Self::peek): verdicts in the order
    /// of the requests.
    ///
    /// A waiting time ends at the first microsecond of the store's clock at which the request
    /// passes; one sooner it is still denied. Where permits are held, it ends with leases that are
    /// not renewed. A request of which a key holds data of another kind has
    /// [`Unavailable::Key`](rategate::store::Unavailable::Key) in place of a verdict. It took and
    /// wrote nothing.
    ///
    /// # Errors
    ///
    /// [`ReplyError`] if the value is not such a reply.
    pub fn read(&self, value: &Value) -> Result<Decoded<Verdicts>, ReplyError> {
        read(value, self.requests.iter().copied())
    }

    fn push(
        &mut self,
        plan: &'a Plan,
        key: &Key,
        permits: u64,
        extra: Extra,
        is_partial: bool,
    ) -> Result<(), RequestError> {
        if self.requests.len() >= MAX_DECISIONS {
            return Err(RequestError::Full);
        }
        let found = rows_of(plan, permits)?;
        let lease = match (plan.holds(), extra.lease) {
            (true, None) => return Err(RequestError::NoLease),
            (true, lease) => lease,
            (false, _) => None,
        };
        let rows: Vec<u64> = found.into_iter().map(|row| row_number(&mut self.rows, row)).collect();
        let held_limits = plan.limits().filter(|(_, limit)| limit.holds()).count();
        let leases = lease.into_iter().flat_map(|lease| std::iter::repeat_n(lease, held_limits));
        let keys = plan.limits().map(|(label, limit)| key.state(label, limit.letter()));
        let record = extra.request.map(|request| key.record(request.id));
        let keys: Vec<Vec<u8>> = record.into_iter().chain(keys).collect();
        let keep_ms = extra.request.map(|request| request.keep_ms.max(1));
        self.requests.push((plan, permits));
        self.join(
            Group {
                often: 1,
                is_same: false,
                is_partial,
                keep_ms,
                rows,
                newest: 0..0,
                leases: leases.collect(),
            },
            keys,
        );
        Ok(())
    }

    /// Adds a decision to the newest group, or starts another group.
    fn join(&mut self, one: Group, keys: Vec<Vec<u8>>) {
        let until = self.keys.len().saturating_add(keys.len());
        let (all_keys, newest) = (&mut self.keys, self.groups.last_mut());
        if let Some(group) = newest.filter(|group| group.is_like(&one)) {
            let is_same =
                group.keep_ms.is_none() && all_keys.get(group.newest.clone()) == Some(&keys);
            if is_same == group.is_same || group.often == 1 {
                group.often = group.often.saturating_add(1);
                group.is_same = is_same;
                group.leases.extend(one.leases);
                if !is_same {
                    group.newest = all_keys.len()..until;
                    all_keys.extend(keys);
                }
                return;
            }
        }
        let newest = all_keys.len()..until;
        all_keys.extend(keys);
        self.groups.push(Group { newest, ..one });
    }

    fn args(&self, settings: Settings) -> Vec<Vec<u8>> {
        let mut args = head(settings, &self.rows);
        for group in &self.groups {
            args.push(number(group.often));
            args.push(group.modes());
            args.push(number(group.keep_ms.unwrap_or(0)));
            args.push(number(u64::try_from(group.rows.len()).unwrap_or(u64::MAX)));
            args.extend(group.rows.iter().map(|&row| number(row)));
            args.extend(group.leases.iter().map(|lease| lease.0.to_vec()));
        }
        args
    }
}

impl Group {
    fn is_like(&self, other: &Self) -> bool {
        self.rows == other.rows
            && self.is_partial == other.is_partial
            && self.keep_ms == other.keep_ms
    }

    fn modes(&self) -> Vec<u8> {
        let letters =
            [(self.is_same, b's'), (self.keep_ms.is_some(), b'o'), (self.is_partial, b'p')];
        let modes: Vec<u8> =
            letters.iter().filter(|(is, _)| *is).map(|(_, letter)| *letter).collect();
        if modes.is_empty() { vec![b'-'] } else { modes }
    }
}

/// Reads the reply to a call with these decisions.
pub(crate) fn read<'a>(
    value: &Value,
    requests: impl Iterator<Item = (&'a Plan, u64)>,
) -> Result<Decoded<Verdicts>, ReplyError> {
    outcomes(value, requests, |numbers, (plan, permits), now_us| {
        numbers.verdict(plan, permits, now_us)
    })
}

/// Returns the rows of all limits of a limit set for `permits`.
pub(crate) fn rows_of(plan: &Plan, permits: u64) -> Result<Vec<Row>, RequestError> {
    if permits == 0 {
        return Err(RequestError::NoPermits);
    }
    let rows = plan.limits().map(|(_, limit)| limit.row(permits));
    let rows: Result<_, ExceedsCapacity> = rows.collect();
    rows.map_err(RequestError::Exceeds)
}

/// Returns the number of a row, from 1, and adds the row if it is missing. Calls are alike, so
/// the search starts at the newest row.
pub(crate) fn row_number(rows: &mut Vec<Row>, row: Row) -> u64 {
    let at = rows.iter().rposition(|other| *other == row).unwrap_or_else(|| {
        rows.push(row);
        rows.len().saturating_sub(1)
    });
    u64::try_from(at).unwrap_or(u64::MAX).saturating_add(1)
}

/// Returns the arguments that every call begins with.
pub(crate) fn head(settings: Settings, rows: &[Row]) -> Vec<Vec<u8>> {
    let mut args = vec![Vec::new(), Vec::new(), number(HORIZON_US)];
    args.push(number(u64::try_from(rows.len()).unwrap_or(u64::MAX)));
    for row in rows {
        args.push(vec![row.letter]);
        args.extend(row.numbers(settings.time_us()).map(number));
    }
    args
}
