//! Rounds: calls that go out in one write, and the delivery of their replies.

use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use rategate::store::{Reply, StoreError, StoreReply, StoreRequest, Unavailable};

use super::call::{Call, Shape};
use super::connection::{Connection, Failure, StoreContext};
use super::encoder::Encoder;
use super::item::Item;
use crate::batch;
use crate::charge;
use crate::command::Command;
use crate::error::ReplyError;
use crate::plan::Plan;
use crate::refusal::ServerRefusal as Refusal;
use crate::reply::{self, Decoded, Outcomes, Value};
use crate::reserve;
use crate::returns;

/// The time for which the replies of a round are awaited after it was sent, so that late grants
/// can be refunded.
const ABANDONED_AFTER: Duration = Duration::from_secs(10);

/// The result of a call.
pub(crate) enum Outcome {
    /// Every waiter received its reply. The items refund grants that reached no waiter.
    Answered(Vec<Item>),
    /// The store changed nothing, and no waiter was answered yet.
    Refused { refusal: Refusal, text: String, items: Vec<Item> },
    /// The effect is unknown, and the connection is of no use any more. The items count once under
    /// their ids, so they are sent again; every other waiter received an error.
    Lost(Vec<Item>),
    /// No reply came at all.
    Abandoned,
}

/// Sends all calls of a round in one pipeline, and answers every waiter in time.
pub(crate) async fn run(
    calls: Vec<Call>,
    connection: Connection,
    encoder: &Encoder,
    store_context: &StoreContext,
) -> Vec<Outcome> {
    let (mut sent, mut commands) = (Vec::with_capacity(calls.len()), Vec::new());
    let around_us = connection.observed.time_us(wall_us());
    for mut call in calls {
        match encoder.command(&call.items, call.shape, around_us) {
            Ok(command) => {
                store_context.shared.stats.call(call.items.len());
                commands.push((connection.marked(command), call.is_asking));
                sent.push(call);
            }
            Err(error) => {
                for item in &mut call.items {
                    item.respond(Err(error.into()));
                }
            }
        }
    }
    store_context.shared.stats.rounds.one();
    let Some(answered) = in_time(&commands, &mut sent, &connection).await else {
        return vec![Outcome::Abandoned];
    };
    let result = sent.into_iter().zip(&commands).zip(answered);
    result
        .map(|((mut call, (command, _)), answered)| match answered {
            Ok(value) => {
                deliver(&mut call.items, call.shape, command, &value, &connection, store_context)
            }
            Err(Failure::Refused { refusal, text }) => {
                if let Refusal::OtherTime { now_us } = refusal {
                    connection.observed.shows_us(now_us, wall_us());
                }
                Outcome::Refused { refusal, text, items: call.items }
            }
            Err(Failure::Lost(why)) => {
                let again = split_off_repeatable(&mut call.items);
                lose(&mut call.items, store_context, &Unavailable::Unreachable(why));
                Outcome::Lost(again)
            }
        })
        .collect()
}

/// Waits for the replies, and answers waiters as late when their budget ends. Returns `None` if
/// no reply comes at all.
async fn in_time(
    commands: &[(Command, bool)],
    sent: &mut [Call],
    connection: &Connection,
) -> Option<Vec<Result<Value, Failure>>> {
    let abandon_at = Instant::now().checked_add(ABANDONED_AFTER);
    let sender = connection.clone();
    let mut answered = pin!(sender.call_all(commands));
    loop {
        let items = sent.iter().flat_map(|call| &call.items);
        let next = items.filter(|item| item.is_waited_for()).map(|item| item.until).min();
        let next = next.or(abandon_at)?;
        tokio::select! {
            biased;
            answered = &mut answered => return Some(answered),
            () = tokio::time::sleep_until(next.into()) => {}
        }
        let now = Instant::now();
        if abandon_at.is_none_or(|until| until <= now) {
            return None;
        }
        let items = sent.iter_mut().flat_map(|call| &mut call.items);
        for item in items.filter(|item| item.until <= now) {
            connection.observed.falls_silent();
            item.late();
        }
    }
}

/// Takes out the requests that may be sent again although their effect is unknown.
fn split_off_repeatable(items: &mut Vec<Item>) -> Vec<Item> {
    let now = Instant::now();
    items.extract_if(.., |item| item.counts_once() && item.until > now && item.resend()).collect()
}

fn lose(items: &mut [Item], store_context: &StoreContext, unavailable: &Unavailable) {
    for item in items {
        if item.respond(Err(StoreError::Unavailable(unavailable.clone()))) {
            store_context.shared.stats.lost.one();
        }
    }
}

fn deliver(
    items: &mut [Item],
    shape: Shape,
    command: &Command,
    value: &Value,
    connection: &Connection,
    store_context: &StoreContext,
) -> Outcome {
    let result = match shape {
        Shape::Single => deliver_single(items, command, value, connection, store_context),
        Shape::Refund => deliver_refunds(items, value, connection, store_context),
        Shape::Charge => deliver_charges(items, value, connection, store_context),
        Shape::Reserve => deliver_reserved(items, value, connection, store_context),
        Shape::End => deliver_ended(items, value, connection, store_context),
        Shape::Decide | Shape::Peek => {
            deliver_verdicts(items, shape, value, connection, store_context)
        }
    };
    result.map_or_else(
        |error| {
            lose(items, store_context, &Unavailable::Broken(error.to_string()));
            Outcome::Lost(Vec::new())
        },
        Outcome::Answered,
    )
}

/// Delivers verdicts, and returns the refunds of grants that reached no waiter.
fn deliver_verdicts(
    items: &mut [Item],
    shape: Shape,
    value: &Value,
    connection: &Connection,
    store_context: &StoreContext,
) -> Result<Vec<Item>, ReplyError> {
    let decoded = batch::read(value, items.iter().filter_map(sent))?;
    let intact_for_ns = connection.observed.intact_for_ns(decoded.now_us, decoded.is_marked);
    store_context.shared.stats.corrected.add(decoded.corrected);
    let (mut back, now, now_us) = (Vec::new(), Instant::now(), decoded.now_us);
    for (item, verdict) in items.iter_mut().zip(decoded.content) {
        let result = verdict.map(|verdict| answer(Reply::Verdict(verdict), intact_for_ns, now_us));
        match (item.is_waited_for(), result) {
            (true, result) => {
                item.respond(result);
            }
            (false, Ok(result)) if shape == Shape::Decide => {
                back.extend(item.return_request(&result, now));
            }
            (false, _) => {}
        }
    }
    Ok(back)
}

/// Delivers how many permits came back of each grant.
fn deliver_refunds(
    items: &mut [Item],
    value: &Value,
    connection: &Connection,
    store_context: &StoreContext,
) -> Result<Vec<Item>, ReplyError> {
    let decoded = reply::counts(value, items.len())?;
    store_context.shared.stats.corrected.add(decoded.corrected);
    let intact_for_ns = connection.observed.intact_for_ns(decoded.now_us, true);
    for (item, count) in items.iter_mut().zip(decoded.content) {
        item.respond(Ok(answer(Reply::Count(count), intact_for_ns, decoded.now_us)));
    }
    Ok(Vec::new())
}

/// Delivers the outcomes of charges. What no caller waits for any more stays charged.
fn deliver_charges(
    items: &mut [Item],
    value: &Value,
    connection: &Connection,
    store_context: &StoreContext,
) -> Result<Vec<Item>, ReplyError> {
    let decoded = charge::read(value, items.iter().filter_map(sent))?;
    deliver_each(items, decoded, Reply::Charged, connection, store_context);
    Ok(Vec::new())
}

/// Delivers the verdicts on estimates. What no caller waits for any more stays held until its end.
fn deliver_reserved(
    items: &mut [Item],
    value: &Value,
    connection: &Connection,
    store_context: &StoreContext,
) -> Result<Vec<Item>, ReplyError> {
    let plans = items.iter().filter_map(|item| match &item.request {
        StoreRequest::Reserve { plan, .. } => Some(&**plan),
        _ => None,
    });
    let decoded = reserve::read_reserved(value, plans)?;
    deliver_each(items, decoded, Reply::Reserved, connection, store_context);
    Ok(Vec::new())
}

/// Delivers the outcomes of ends.
fn deliver_ended(
    items: &mut [Item],
    value: &Value,
    connection: &Connection,
    store_context: &StoreContext,
) -> Result<Vec<Item>, ReplyError> {
    let ends = items.iter().filter_map(|item| match &item.request {
        StoreRequest::End { plan, end, .. } => Some((&**plan, *end)),
        _ => None,
    });
    let decoded = reserve::read_ended(value, ends)?;
    deliver_each(items, decoded, Reply::Ended, connection, store_context);
    Ok(Vec::new())
}

/// Delivers outcomes that are not returned where no caller waits for them.
fn deliver_each<T>(
    items: &mut [Item],
    decoded: Decoded<Outcomes<T>>,
    reply: impl Fn(T) -> Reply,
    connection: &Connection,
    store_context: &StoreContext,
) {
    let intact_for_ns = connection.observed.intact_for_ns(decoded.now_us, decoded.is_marked);
    store_context.shared.stats.corrected.add(decoded.corrected);
    let now_us = decoded.now_us;
    for (item, outcome) in items.iter_mut().zip(decoded.content) {
        item.respond(outcome.map(|outcome| answer(reply(outcome), intact_for_ns, now_us)));
    }
}

fn deliver_single(
    items: &mut [Item],
    command: &Command,
    value: &Value,
    connection: &Connection,
    store_context: &StoreContext,
) -> Result<Vec<Item>, ReplyError> {
    for item in items {
        if let StoreRequest::Credit { .. } = item.request {
            let decoded = returns::read_credit(value)?;
            let one = std::slice::from_mut(item);
            deliver_each(one, decoded, Reply::Credited, connection, store_context);
            continue;
        }
        let (StoreRequest::Release { plan, .. }
        | StoreRequest::Renew { plan, .. }
        | StoreRequest::Reset { plan, .. }) = &item.request
        else {
            continue;
        };
        let sum = |counts: Vec<u64>| counts.into_iter().fold(0, u64::saturating_add);
        let decoded = returns::read(plan, command, value)?.map(|counts| Reply::Count(sum(counts)));
        store_context.shared.stats.corrected.add(decoded.corrected);
        let intact_for_ns = connection.observed.intact_for_ns(decoded.now_us, decoded.is_marked);
        item.respond(Ok(answer(decoded.content, intact_for_ns, decoded.now_us)));
    }
    Ok(Vec::new())
}

/// Combines a reply with the time for which the store has lost nothing, and the store's time.
const fn answer(reply: Reply, intact_for_ns: Option<u64>, now_us: u64) -> StoreReply {
    StoreReply { reply, intact_for_ns, now_ns: Some(now_us.saturating_mul(1_000)) }
}

/// Returns the time of this machine's clock, in microseconds since 1970.
fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn sent(item: &Item) -> Option<(&Plan, u64)> {
    match &item.request {
        StoreRequest::Decide { plan, permits, .. }
        | StoreRequest::Debit { plan, permits, .. }
        | StoreRequest::Peek { plan, permits, .. } => Some((&**plan, permits.get())),
        StoreRequest::Charge { plan, permits, .. } => Some((&**plan, *permits)),
        _ => None,
    }
}
