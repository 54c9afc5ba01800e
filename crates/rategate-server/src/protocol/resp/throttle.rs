//! `CL.THROTTLE` and `THROTTLE`: a token bucket whose numbers come with the call.
//!
//! Both are one decision of the engine. They differ in the meaning of their first number, and in
//! the order of their replies:
//!
//! - `CL.THROTTLE key max_burst count period [quantity]` has a capacity of `max_burst` + 1. It
//!   replies limited, limit, remaining, retry after, reset after.
//! - `THROTTLE key max_burst count period [quantity]` has a capacity of `max_burst`. It replies
//!   allowed, limit, remaining, reset after, retry after.
//!
//! These commands never wait, allocate nothing, and use no store.

use crate::protocol::resp::{CommandWords, RespWriter};
use rategate::Clock;

use super::Resp;
use super::commands::NO_AUTH;
use super::number::{integer, nanoseconds, put_or_minus_one};
use super::session::Session;
use crate::engine::{Inline, ItemResult, Verb, Verdict};
use crate::net::{RefusalReason, Right};
use crate::units::seconds;

/// The command that a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `CL.THROTTLE`, of redis-cell.
    Cell,
    /// `THROTTLE`, of throttlecrab.
    Crab,
}

/// A parsed call.
struct Call<'a> {
    key: &'a [u8],
    limit: Inline,
    verb: Verb,
    permits: u64,
}

/// The reason why a call cannot be parsed.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("ERR Couldn't parse as integer: {0}")]
    NoInteger(String),
    #[error("ERR Zero rates are not supported")]
    ZeroRate,
    #[error("ERR {0} must not be negative")]
    Negative(&'static str),
    #[error("ERR max_burst must be at least 1")]
    NoBurst,
    #[error("ERR period is too long: at most 18446744073 seconds")]
    Period,
}

/// The maximum number of bytes of an invalid number that an error shows.
const SHOWN: usize = 32;

impl<C: Clock + Clone + 'static> Resp<C> {
    /// Runs `CL.THROTTLE` or `THROTTLE`.
    pub(super) fn throttle(
        &self,
        session: &mut Session,
        dialect: Dialect,
        words: CommandWords<'_>,
        mut reply: RespWriter<'_>,
    ) {
        let extra = u64::from(dialect == Dialect::Cell);
        let Some(result) = self.decide(session, words, extra, &mut reply) else { return };
        // redis-cell writes -1 for a call that fits now, too.
        let (is_denied, retry_after) = match (result.verdict, dialect) {
            (Verdict::Denied { retry_after_ns, .. }, _) => {
                (true, retry_after_ns.map(|ns| seconds(ns.get())))
            }
            (_, Dialect::Cell) => (false, None),
            (_, Dialect::Crab) => (false, Some(0)),
        };
        let reset_after = Some(seconds(result.reset_after_ns));
        let (first, times) = match dialect {
            Dialect::Cell => (is_denied, [retry_after, reset_after]),
            Dialect::Crab => (!is_denied, [reset_after, retry_after]),
        };
        reply.array(5);
        reply.integer(first.into());
        reply.unsigned(result.limit);
        reply.unsigned(result.remaining.unwrap_or_default());
        for time in times {
            put_or_minus_one(time, &mut reply);
        }
    }

    /// Decides a call, or writes an error and returns `None`.
    fn decide(
        &self,
        session: &mut Session,
        words: CommandWords<'_>,
        extra: u64,
        reply: &mut RespWriter<'_>,
    ) -> Option<ItemResult> {
        let call = match read(words, extra) {
            Ok(call) => call,
            Err(error) => {
                reply.error(&error.to_string());
                return None;
            }
        };
        if call.verb == Verb::Refund && !self.may(session, Right::Credit) {
            reply.error(NO_AUTH);
            return None;
        }
        match self.engine().inline(call.limit, call.key, call.verb, call.permits) {
            Ok(result) => Some(result),
            Err(fault) if fault.is_out_of_capacity() && call.verb == Verb::Take => {
                session.refusal = Some(RefusalReason::NoCapacity);
                Some(ItemResult { limit: call.limit.capacity, ..ItemResult::WITHOUT_CAPACITY })
            }
            Err(fault) => {
                session.refusal = Some(RefusalReason::EngineError);
                reply.error(&format!("ERR {fault}"));
                None
            }
        }
    }
}

fn read(words: CommandWords<'_>, extra: u64) -> Result<Call<'_>, Unreadable> {
    let number = |index| {
        let text = words.at(index);
        integer(text).ok_or_else(|| Unreadable::NoInteger(shown(text)))
    };
    let (max_burst, count, period) = (number(2)?, number(3)?, number(4)?);
    let quantity = match words.get(5) {
        Some(_) => number(5)?,
        None => 1,
    };
    if count == 0 || period == 0 {
        return Err(Unreadable::ZeroRate);
    }
    let max_burst = u64::try_from(max_burst).map_err(|_| Unreadable::Negative("max_burst"))?;
    let count = u64::try_from(count).map_err(|_| Unreadable::Negative("count"))?;
    if period < 0 {
        return Err(Unreadable::Negative("period"));
    }
    let period_ns = nanoseconds(period).ok_or(Unreadable::Period)?;
    let capacity = max_burst.saturating_add(extra);
    if capacity == 0 {
        return Err(Unreadable::NoBurst);
    }
    let verb = match quantity {
        ..0 => Verb::Refund,
        _ => Verb::Take,
    };
    let limit = Inline { capacity, count, period_ns };
    Ok(Call { key: words.at(1), limit, verb, permits: quantity.unsigned_abs() })
}

fn shown(text: &[u8]) -> String {
    text.get(..SHOWN).unwrap_or(text).escape_ascii().to_string()
}
