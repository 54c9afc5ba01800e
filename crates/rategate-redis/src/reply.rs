//! Parsing of replies: values of the protocol become verdicts, and no value causes a panic.

use std::num::NonZeroU64;

pub use rategate_protocol::resp::Value;

use crate::error::ReplyError;
use crate::plan::Plan;
use crate::verdict::{Counts, Denial, Grant, Receipt, Verdict};

/// The version of replies.
const VERSION: u64 = 1;

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

    fn int(&mut self) -> Result<i64, ReplyError> {
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

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], ReplyError> {
        match self.left.next() {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            Some(_) => Err(ReplyError::Shape),
            None => Err(ReplyError::Length),
        }
    }

    /// Returns `true` if no value is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.len() == 0
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
    ) -> Result<Verdict, ReplyError> {
        let (status, number) = (self.count()?, self.int()?);
        let mut fields = Vec::with_capacity(plan.limits().len());
        let mut remaining = u64::MAX;
        for (_, limit) in plan.limits() {
            let numbers = [self.count()?, self.count()?, self.count()?];
            remaining = remaining.min(limit.remaining(now_us, numbers));
            fields.push(numbers);
        }
        match (status, u64::try_from(number)) {
            (0, Err(_)) => Ok(Verdict::Denied(Denial { retry_after_ns: None, remaining })),
            (0, Ok(wait_us)) => {
                let retry_after_ns = NonZeroU64::new(wait_us.saturating_mul(1_000));
                let retry_after_ns = Some(retry_after_ns.ok_or(ReplyError::Number)?);
                Ok(Verdict::Denied(Denial { retry_after_ns, remaining }))
            }
            (3, Ok(0)) => Ok(Verdict::WrongType),
            (1 | 2, Ok(granted)) if granted > 0 && granted <= permits => {
                let (is_repeated, receipt) = (status == 2, Receipt { fields });
                Ok(Verdict::Granted(Grant { permits: granted, remaining, is_repeated, receipt }))
            }
            _ => Err(ReplyError::Number),
        }
    }
}

/// Reads the reply to anything but decisions: `expected` counts.
pub(crate) fn counts(value: &Value, expected: usize) -> Result<Counts, ReplyError> {
    let mut numbers = Numbers::of(value)?;
    let (now_us, corrected) = (numbers.count()?, numbers.count()?);
    let counts = (0..expected).map(|_| numbers.count()).collect::<Result<_, _>>()?;
    numbers.end()?;
    Ok(Counts { now_us, corrected, counts })
}
