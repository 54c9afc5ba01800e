//! Questions that go out together, and what becomes of them.

use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use rategate::store::{Answer, Fault, Gone, Question, Reply, Share};

use super::item::{Item, Task};
use super::line::{Failure, Kit, Line};
use super::plan::answer;
use crate::batch::{self, Batch, Extra, LeaseId};
use crate::command::{Command, Settings};
use crate::error::{ReplyError, RequestError};
use crate::fault::Fault as Refusal;
use crate::group;
use crate::key::KeySpace;
use crate::reply::Value;
use crate::returns;

/// How long an answer is awaited that nobody waits for any more, but for what would go back.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// Questions that one call carries.
pub(crate) struct Call {
    pub(crate) items: Vec<Item>,
    shape: Shape,
    pub(crate) is_asking: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Shape {
    /// What comes back goes before what is taken: a call each.
    Alone,
    Decide,
    Peek,
}

/// What became of a call.
pub(crate) enum Outcome {
    /// Everybody has heard. Those go back of which nobody did.
    Answered(Vec<Item>),
    /// Nothing was changed, and nobody has heard.
    Refused { fault: Refusal, line: String, items: Vec<Item> },
    /// Nobody knows; everybody has heard that. The connection is of no use any more.
    Lost,
    /// The answer did not come at all.
    Forgotten,
}

/// How calls are made.
#[derive(Clone)]
pub(crate) struct Manner {
    pub(crate) keys: KeySpace,
    pub(crate) settings: Settings,
    pub(crate) is_within_memory: bool,
    pub(crate) is_cluster: bool,
}

impl Call {
    /// Puts questions together that may go together: in a cluster those of one slot.
    pub(crate) fn gather(items: impl Iterator<Item = Item>, manner: &Manner) -> Vec<Self> {
        let mut calls: Vec<Self> = Vec::new();
        let mut places: HashMap<(Shape, u16, bool), usize> = HashMap::new();
        for item in items {
            let shape = match item.question() {
                Some(Question::Decide { .. } | Question::Debit { .. }) => Shape::Decide,
                Some(Question::Peek { .. }) => Shape::Peek,
                _ => Shape::Alone,
            };
            let is_asking = item.is_asking;
            if shape == Shape::Alone || item.is_alone {
                calls.push(Self { items: vec![item], shape, is_asking });
                continue;
            }
            let slot = if manner.is_cluster { manner.slot_of(&item.task) } else { 0 };
            let place = *places.entry((shape, slot, is_asking)).or_insert(calls.len());
            match calls.get_mut(place) {
                Some(call) => call.items.push(item),
                None => calls.push(Self { items: vec![item], shape, is_asking }),
            }
        }
        // What comes back first: it may be what the others want.
        calls.sort_by_key(|call| call.shape != Shape::Alone);
        calls
    }

    /// Asks, and tells everybody in time.
    pub(crate) async fn run(self, mut line: Line, manner: Manner, kit: &Kit) -> Outcome {
        let Self { mut items, shape, is_asking } = self;
        let command = match manner.command(&items, shape) {
            Ok(command) => command,
            Err(error) => {
                for item in &mut items {
                    item.hear(Err(Fault::Question(error.to_string())));
                }
                return Outcome::Answered(Vec::new());
            }
        };
        kit.shared.stats.call(items.len());
        let given_up = Instant::now().checked_add(FORGOTTEN_AFTER);
        let answered = {
            let command = command.clone();
            let mut asked = line.clone();
            let mut answered = pin!(async move { asked.call(command, is_asking).await });
            loop {
                let next =
                    items.iter().filter(|item| item.is_waited_for()).map(|item| item.until).min();
                let Some(next) = next.or(given_up) else { return Outcome::Forgotten };
                tokio::select! {
                    biased;
                    answered = &mut answered => break answered,
                    () = tokio::time::sleep_until(next.into()) => {}
                }
                let now = Instant::now();
                if given_up.is_none_or(|until| until <= now) {
                    return Outcome::Forgotten;
                }
                for item in items.iter_mut().filter(|item| item.until <= now) {
                    line.falls_silent();
                    item.late();
                }
            }
        };
        match answered {
            Ok(value) => tell(&mut items, shape, &command, &value, &mut line, kit),
            Err(Failure::Refused { fault, line }) => Outcome::Refused { fault, line, items },
            Err(Failure::Lost(why)) => {
                lose(&mut items, kit, &Gone::Unreachable(why));
                Outcome::Lost
            }
        }
    }
}

fn lose(items: &mut [Item], kit: &Kit, gone: &Gone) {
    for item in items {
        if item.hear(Err(Fault::Gone(gone.clone()))) {
            kit.shared.stats.lost();
        }
    }
}

fn tell(
    items: &mut [Item],
    shape: Shape,
    command: &Command,
    value: &Value,
    line: &mut Line,
    kit: &Kit,
) -> Outcome {
    let told = match shape {
        Shape::Alone => tell_one(items, command, value, line, kit),
        Shape::Decide | Shape::Peek => tell_all(items, shape, value, line, kit),
    };
    told.map_or_else(
        |error| {
            lose(items, kit, &Gone::Broken(error.to_string()));
            Outcome::Lost
        },
        Outcome::Answered,
    )
}

/// Tells verdicts. Says what goes back.
fn tell_all(
    items: &mut [Item],
    shape: Shape,
    value: &Value,
    line: &Line,
    kit: &Kit,
) -> Result<Vec<Item>, ReplyError> {
    let said = batch::read(value, items.iter().filter_map(asked))?;
    let intact_for_ns = line.intact_for_ns(said.now_us, said.is_marked);
    kit.shared.stats.corrected(said.corrected);
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

fn tell_one(
    items: &mut [Item],
    command: &Command,
    value: &Value,
    line: &Line,
    kit: &Kit,
) -> Result<Vec<Item>, ReplyError> {
    for item in items {
        let Some(question) = item.question() else {
            item.hear_value(value);
            continue;
        };
        let (reply, now_us, is_marked) = match question {
            Question::Refund { plan, .. }
            | Question::GiveBack { plan, .. }
            | Question::Release { plan, .. }
            | Question::Renew { plan, .. }
            | Question::Reset { plan, .. } => {
                let counts = returns::read(&plan.plan, command, value)?;
                kit.shared.stats.corrected(counts.corrected);
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
        let told: Answer = answer(reply, line.intact_for_ns(now_us, is_marked));
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

impl Manner {
    /// The slot that all keys of a question are in.
    pub(crate) fn slot_of(&self, task: &Task) -> u16 {
        let question = match task {
            Task::Question(question) => question,
            Task::Command(_, slot) => return *slot,
        };
        match question {
            Question::Decide { key, .. }
            | Question::Debit { key, .. }
            | Question::Peek { key, .. }
            | Question::Refund { key, .. }
            | Question::GiveBack { key, .. }
            | Question::Release { key, .. }
            | Question::Renew { key, .. }
            | Question::Reset { key, .. } => self.keys.key(key).slot(),
            Question::Beat(beat) => self.keys.slot_of_group(&beat.group),
        }
    }

    fn command(&self, items: &[Item], shape: Shape) -> Result<Command, RequestError> {
        let mut batch = Batch::new();
        for item in items {
            let question = match &item.task {
                Task::Question(question) => question,
                Task::Command(command, _) => return Ok(command.clone()),
            };
            match question {
                Question::Decide { plan, key, permits, lease } => {
                    let lease = lease.map(|lease| LeaseId(lease.0));
                    let extra = Extra { request: None, lease };
                    batch.try_acquire(&plan.plan, &self.keys.key(key), permits.get(), extra)?;
                }
                Question::Debit { plan, key, permits } => {
                    let key = self.keys.key(key);
                    batch.debit(&plan.plan, &key, permits.get(), Extra::default())?;
                }
                Question::Peek { plan, key, permits } => {
                    // A look holds nothing, so any name will do.
                    let extra = Extra { request: None, lease: Some(LeaseId([0; 16])) };
                    batch.try_acquire(&plan.plan, &self.keys.key(key), permits.get(), extra)?;
                }
                other => return self.alone(other),
            }
        }
        Ok(match shape {
            Shape::Peek => batch.peek(self.settings),
            _ if self.is_within_memory => batch.decide(self.settings).within_memory(),
            _ => batch.decide(self.settings),
        })
    }

    fn alone(&self, question: &Question<super::SharedPlan>) -> Result<Command, RequestError> {
        match question {
            Question::Refund { plan, key, receipt, permits } => {
                let receipt = plan.receipt(receipt).ok_or(RequestError::OtherPlan)?;
                let key = self.keys.key(key);
                returns::refund(&plan.plan, &key, &receipt, permits.get(), self.settings)
            }
            Question::GiveBack { plan, key, permits } => {
                let most = plan.plan.limits().map(|(_, limit)| limit.most()).min().unwrap_or(0);
                let permits = permits.get().min(most);
                returns::give_back(&plan.plan, &self.keys.key(key), permits, self.settings)
            }
            Question::Release { plan, key, permits, lease } => {
                let (key, lease) = (self.keys.key(key), LeaseId(lease.0));
                returns::release(&plan.plan, &key, lease, permits.get(), self.settings)
            }
            Question::Renew { plan, key, permits, lease } => {
                let (key, lease) = (self.keys.key(key), LeaseId(lease.0));
                returns::renew(&plan.plan, &key, lease, permits.get(), self.settings)
            }
            Question::Reset { plan, key } => Ok(returns::reset(&plan.plan, &self.keys.key(key))),
            Question::Beat(beat) => {
                let told = group::Beat {
                    member: beat.member,
                    total: beat.total,
                    at_least: beat.at_least,
                    // For the store rather too long than too short.
                    length_us: beat.length_ns.div_ceil(1_000),
                    memory_us: beat.memory_ns.div_ceil(1_000),
                };
                Ok(group::beat(&self.keys, &beat.group, told))
            }
            _ => Err(RequestError::NoPermits),
        }
    }
}
