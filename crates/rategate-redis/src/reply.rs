//! Parsing of replies: values of the protocol become verdicts, and no value causes a panic.

use std::num::NonZeroU64;

use rategate::store::{Denial, Grant, Receipt, StoreError, Unavailable, Verdict};

use crate::error::ReplyError;
use crate::limit::Limit;
use crate::plan::{Plan, RECEIPT_WORDS};
pub use crate::value::{BadReply, ReplyParser, Value};

/// The version of replies.
const VERSION: u64 = 1;

/// The content of a reply, and what every reply tells of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<T> {
    /// The store's clock, in microseconds.
    pub now_us: u64,
    /// The number of states that lay too far ahead of the clock, and count as if all permits had
    /// just been taken: the clock went back further than the horizon, or another program wrote
    /// them.
    pub corrected: u64,
    /// `false` if the call named a [marker](crate::marker::Marker) that the store does not have.
    /// Such a store may have lost any state a moment ago.
    pub is_marked: bool,
    /// The content, by the kind of request.
    pub content: T,
}

impl<T> Decoded<T> {
    /// Converts the content.
    #[cfg(feature = "client")]
    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> Decoded<U> {
        let Self { now_us, corrected, is_marked, content } = self;
        Decoded { now_us, corrected, is_marked, content: convert(content) }
    }
}

/// A reader over the numbers of a reply.
#[derive(Debug)]
pub(crate) struct Numbers<'a> {
    left: std::slice::Iter<'a, Value>,
}

impl<'a> Numbers<'a> {
    /// Creates a reader, after checking the version.
    pub(crate) fn of(value: &'a Value) -> Result<Self, ReplyError> {
        let Value::List(values) = value else { return Err(ReplyError::Shape) };
        let mut numbers = Self { left: values.iter() };
        if numbers.count()? != VERSION {
            return Err(ReplyError::Version);
        }
        Ok(numbers)
    }

    pub(crate) fn int(&mut self) -> Result<i64, ReplyError> {
        match self.left.next() {
            Some(Value::Int(number)) => Ok(*number),
            Some(_) => Err(ReplyError::Shape),
            None => Err(ReplyError::Length),
        }
    }

    pub(crate) fn count(&mut self) -> Result<u64, ReplyError> {
        u64::try_from(self.int()?).map_err(|_| ReplyError::Number)
    }

    /// Reads how many states were corrected, and whether the store has its marker.
    ///
    /// A negative number is the complement of the count, and means that the marker is missing.
    pub(crate) fn corrected(&mut self) -> Result<(u64, bool), ReplyError> {
        let number = self.int()?;
        let is_marked = number >= 0;
        let count = if is_marked { number } else { !number };
        Ok((u64::try_from(count).map_err(|_| ReplyError::Number)?, is_marked))
    }

    /// Checks that no value is left.
    pub(crate) fn end(mut self) -> Result<(), ReplyError> {
        if self.left.next().is_some() { Err(ReplyError::Length) } else { Ok(()) }
    }

    /// Reads the verdict about `permits` of a set of limits.
    pub(crate) fn verdict(
        &mut self,
        plan: &Plan,
        permits: u64,
        now_us: u64,
    ) -> Result<Result<Verdict, StoreError>, ReplyError> {
        let (status, number) = (self.count()?, self.int()?);
        let mut words = Vec::with_capacity(plan.limits().len().saturating_mul(RECEIPT_WORDS));
        let (mut remaining, mut debt, mut window_ends_us) = (u64::MAX, 0, None::<u64>);
        let mut passes_us = 0;
        for (_, limit) in plan.limits() {
            let numbers = [self.count()?, self.count()?, self.count()?];
            remaining = remaining.min(limit.remaining(now_us, numbers));
            debt = limit.debt(now_us, numbers).max(debt);
            let ends_us = limit.window_ends_us(numbers);
            window_ends_us = window_ends_us.into_iter().chain(ends_us).min();
            passes_us = limit.passes_us(numbers).unwrap_or(0).max(passes_us);
            words.extend(numbers);
        }
        let retry_after_ns = match (status, u64::try_from(number)) {
            (0, _) => match wait_us(number, passes_us.saturating_sub(now_us)) {
                None => None,
                Some(wait_us) => {
                    let retry_after_ns = NonZeroU64::new(wait_us.saturating_mul(1_000));
                    Some(retry_after_ns.ok_or(ReplyError::Number)?)
                }
            },
            (3, Ok(0)) => return Ok(Err(foreign_key())),
            (1 | 2, Ok(granted)) if granted > 0 && granted <= permits => {
                let window_ends_in_ns = window_ends_us
                    .map(|ends_us| ends_us.saturating_sub(now_us).saturating_mul(1_000));
                return Ok(Ok(Verdict::Granted(Grant {
                    permits: granted,
                    remaining,
                    window_ends_in_ns,
                    is_repeated: status == 2,
                    receipt: Receipt::new(words),
                })));
            }
            _ => return Err(ReplyError::Number),
        };
        Ok(Ok(Verdict::Denied(Denial { retry_after_ns, remaining, debt })))
    }
}

/// Returns the error for a key that holds data of another kind.
pub(crate) fn foreign_key() -> StoreError {
    let why = "a key of this limit holds data of another kind: delete the key, \
               or use another prefix";
    StoreError::Unavailable(Unavailable::Key(why.to_owned()))
}

/// The outcomes of the requests of a call, or what kept the store from one of them.
pub type Outcomes<T> = Vec<Result<T, StoreError>>;

/// Reads the reply to a call of several requests, each of which `one` reads at an instant of the
/// store.
pub(crate) fn outcomes<R, T>(
    value: &Value,
    requests: impl Iterator<Item = R>,
    mut one: impl FnMut(&mut Numbers<'_>, R, u64) -> Result<T, ReplyError>,
) -> Result<Decoded<Vec<T>>, ReplyError> {
    let mut numbers = Numbers::of(value)?;
    let (now_us, (corrected, is_marked)) = (numbers.count()?, numbers.corrected()?);
    let outcomes = requests.map(|request| one(&mut numbers, request, now_us));
    let content = outcomes.collect::<Result<_, _>>()?;
    numbers.end()?;
    Ok(Decoded { now_us, corrected, is_marked, content })
}

/// The status that the numbers of limits tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// The permits that one call could take.
    pub(crate) remaining: u64,
    /// The largest debt.
    pub(crate) debt: u64,
    /// The border at which a denied call passes, if the store does not know it; else 0.
    passes_us: u64,
    now_us: u64,
}

impl Status {
    /// Reads the three numbers of each limit.
    pub(crate) fn of<'a>(
        numbers: &mut Numbers<'_>,
        limits: impl Iterator<Item = (&'a str, &'a Limit)>,
        now_us: u64,
    ) -> Result<Self, ReplyError> {
        let mut status = Self { remaining: u64::MAX, debt: 0, passes_us: 0, now_us };
        for (_, limit) in limits {
            let fields = [numbers.count()?, numbers.count()?, numbers.count()?];
            status.remaining = limit.remaining(now_us, fields).min(status.remaining);
            status.debt = limit.debt(now_us, fields).max(status.debt);
            status.passes_us = limit.passes_us(fields).unwrap_or(0).max(status.passes_us);
        }
        Ok(status)
    }

    /// Returns the time until a denied call may pass, of which the store has told `number`.
    pub(crate) fn wait_us(&self, number: i64) -> Option<u64> {
        wait_us(number, self.passes_us.saturating_sub(self.now_us))
    }
}

/// Returns the time until a denied call may pass, where time alone can help: what the store has told
/// as `wait_until` in its functions writes it, and the time until the borders that it does not know.
fn wait_us(number: i64, borders_us: u64) -> Option<u64> {
    if let Ok(wait_us) = u64::try_from(number) {
        return Some(wait_us.max(borders_us));
    }
    let hold_ends_us = u64::try_from((-2_i64).saturating_sub(number)).ok()?;
    Some(hold_ends_us.min(borders_us))
}

/// Reads the reply to anything but decisions: `expected` counts.
pub(crate) fn counts(value: &Value, expected: usize) -> Result<Decoded<Vec<u64>>, ReplyError> {
    let mut numbers = Numbers::of(value)?;
    let (now_us, corrected) = (numbers.count()?, numbers.count()?);
    let content = (0..expected).map(|_| numbers.count()).collect::<Result<_, _>>()?;
    numbers.end()?;
    Ok(Decoded { now_us, corrected, is_marked: true, content })
}
