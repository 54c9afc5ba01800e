//! Rounds: calls that go out in one write, and the delivery of their replies.

use std::pin::pin;
use std::time::{Duration, Instant};

use rategate::store::{Answer, Fault, Gone, Question, Reply, Share};

use super::call::{Call, Shape};
use super::connection::{Connection, Failure, Kit};
use super::item::Item;
use super::manner::Manner;
use super::plan::answer;
use crate::batch;
use crate::command::Command;
use crate::error::ReplyError;
use crate::fault::Fault as Refusal;
use crate::group;
use crate::reply::{self, Value};
use crate::returns;

/// The time a reply is still awaited after all waiters have left, so that late grants can be
/// refunded.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// The result of a call.
pub(crate) enum Outcome {
    /// Every waiter received its reply. The items refund grants that reached no waiter.
    Answered(Vec<Item>),
    /// The store changed nothing, and no waiter was answered yet.
    Refused { fault: Refusal, text: String, items: Vec<Item> },
    /// The effect is unknown, and every waiter received an error. The connection is of no use any
    /// more.
    Lost,
    /// No reply came at all.
    Forgotten,
}

/// Sends all calls of a round in one pipeline, and answers every waiter in time.
pub(crate) async fn run(
    calls: Vec<Call>,
    mut connection: Connection,
    manner: &Manner,
    kit: &Kit,
) -> Vec<Outcome> {
    let (mut asked, mut commands) = (Vec::with_capacity(calls.len()), Vec::new());
    for mut call in calls {
        match manner.command(&call.items, call.shape) {
            Ok(command) => {
                kit.shared.stats.call(call.items.len());
                commands.push((connection.marked(command), call.is_asking));
                asked.push(call);
            }
            Err(error) => {
                for item in &mut call.items {
                    item.hear(Err(Fault::Question(error.to_string())));
                }
            }
        }
    }
    kit.shared.stats.rounds.one();
    let Some(answered) = in_time(&commands, &mut asked, &connection).await else {
        return vec![Outcome::Forgotten];
    };
    let told = asked.into_iter().zip(&commands).zip(answered);
    told.map(|((mut call, (command, _)), answered)| match answered {
        Ok(value) => tell(&mut call.items, call.shape, command, &value, &mut connection, kit),
        Err(Failure::Refused { fault, text }) => {
            Outcome::Refused { fault, text, items: call.items }
        }
        Err(Failure::Lost(why)) => {
            lose(&mut call.items, kit, &Gone::Unreachable(why));
            Outcome::Lost
        }
    })
    .collect()
}

/// Waits for the replies, and answers waiters as late when their budget ends. Returns `None` if
/// no reply comes at all.
async fn in_time(
    commands: &[(Command, bool)],
    asked: &mut [Call],
    connection: &Connection,
) -> Option<Vec<Result<Value, Failure>>> {
    let given_up = Instant::now().checked_add(FORGOTTEN_AFTER);
    let mut asks = connection.clone();
    let mut answered = pin!(asks.call_all(commands));
    loop {
        let items = asked.iter().flat_map(|call| &call.items);
        let next = items.filter(|item| item.is_waited_for()).map(|item| item.until).min();
        let next = next.or(given_up)?;
        tokio::select! {
            biased;
            answered = &mut answered => return Some(answered),
            () = tokio::time::sleep_until(next.into()) => {}
        }
        let now = Instant::now();
        if given_up.is_none_or(|until| until <= now) {
            return None;
        }
        let items = asked.iter_mut().flat_map(|call| &mut call.items);
        for item in items.filter(|item| item.until <= now) {
            connection.observed.falls_silent();
            item.late();
        }
    }
}

fn lose(items: &mut [Item], kit: &Kit, gone: &Gone) {
    for item in items {
        if item.hear(Err(Fault::Gone(gone.clone()))) {
            kit.shared.stats.lost.one();
        }
    }
}

fn tell(
    items: &mut [Item],
    shape: Shape,
    command: &Command,
    value: &Value,
    connection: &mut Connection,
    kit: &Kit,
) -> Outcome {
    let told = match shape {
        Shape::Alone => tell_one(items, command, value, connection, kit),
        Shape::Refund => tell_refunds(items, value, connection, kit),
        Shape::Decide | Shape::Peek => tell_all(items, shape, value, connection, kit),
    };
    told.map_or_else(
        |error| {
            lose(items, kit, &Gone::Broken(error.to_string()));
            Outcome::Lost
        },
        Outcome::Answered,
    )
}

/// Delivers verdicts, and returns the refunds of grants that reached no waiter.
fn tell_all(
    items: &mut [Item],
    shape: Shape,
    value: &Value,
    connection: &Connection,
    kit: &Kit,
) -> Result<Vec<Item>, ReplyError> {
    let said = batch::read(value, items.iter().filter_map(asked))?;
    let intact_for_ns = connection.observed.intact_for_ns(said.now_us, said.is_marked);
    kit.shared.stats.corrected.add(said.corrected);
    let (mut back, now) = (Vec::new(), Instant::now());
    for (item, verdict) in items.iter_mut().zip(said.verdicts) {
        let Some(
            Question::Decide { plan, .. }
            | Question::Debit { plan, .. }
            | Question::Peek { plan, .. },
        ) = item.question()
        else {
            continue;
        };
        let told = plan.verdict(verdict, said.now_us);
        let told = told.map(|verdict| answer(Reply::Verdict(verdict), intact_for_ns));
        match (item.is_waited_for(), told) {
            (true, told) => {
                item.hear(told);
            }
            (false, Ok(told)) if shape == Shape::Decide => back.extend(item.give_back(&told, now)),
            (false, _) => {}
        }
    }
    Ok(back)
}

/// Delivers how many permits came back of each grant.
fn tell_refunds(
    items: &mut [Item],
    value: &Value,
    connection: &Connection,
    kit: &Kit,
) -> Result<Vec<Item>, ReplyError> {
    let said = reply::counts(value, items.len())?;
    kit.shared.stats.corrected.add(said.corrected);
    let intact_for_ns = connection.observed.intact_for_ns(said.now_us, true);
    for (item, count) in items.iter_mut().zip(said.counts) {
        item.hear(Ok(answer(Reply::Count(count), intact_for_ns)));
    }
    Ok(Vec::new())
}

fn tell_one(
    items: &mut [Item],
    command: &Command,
    value: &Value,
    connection: &Connection,
    kit: &Kit,
) -> Result<Vec<Item>, ReplyError> {
    for item in items {
        let Some(question) = item.question() else {
            item.hear_value(value);
            continue;
        };
        let (reply, now_us, is_marked) = match question {
            Question::GiveBack { plan, .. }
            | Question::Release { plan, .. }
            | Question::Renew { plan, .. }
            | Question::Reset { plan, .. } => {
                let counts = returns::read(&plan.plan, command, value)?;
                kit.shared.stats.corrected.add(counts.corrected);
                let count = counts.counts.iter().fold(0_u64, |sum, &one| sum.saturating_add(one));
                (Reply::Count(count), counts.now_us, true)
            }
            _ => {
                let share = group::read(value)?;
                let changes_in_ns = share.changes_in_us.map(|us| us.saturating_mul(1_000));
                let changes_in_ns = changes_in_ns.and_then(std::num::NonZeroU64::new);
                let group::Share { permits, fresh, members, now_us, is_marked, .. } = share;
                (Reply::Share(Share { permits, fresh, members, changes_in_ns }), now_us, is_marked)
            }
        };
        let told: Answer = answer(reply, connection.observed.intact_for_ns(now_us, is_marked));
        item.hear(Ok(told));
    }
    Ok(Vec::new())
}

fn asked(item: &Item) -> Option<(&crate::plan::Plan, u64)> {
    match item.question()? {
        Question::Decide { plan, permits, .. }
        | Question::Debit { plan, permits, .. }
        | Question::Peek { plan, permits, .. } => Some((&plan.plan, permits.get())),
        _ => None,
    }
}
