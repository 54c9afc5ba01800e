//! Conversion of requests to commands, and the slots they belong to.

use rategate::store::Question;

use super::call::Shape;
use super::item::{Item, Task};
use crate::batch::{Batch, Extra, LeaseId};
use crate::command::{Command, Settings};
use crate::error::RequestError;
use crate::group;
use crate::key::KeySpace;
use crate::returns::{self, Refunds};

/// The settings that all calls of a driver share.
pub(crate) struct Manner {
    pub(crate) keys: KeySpace,
    pub(crate) settings: Settings,
    pub(crate) is_within_memory: bool,
    pub(crate) is_cluster: bool,
}

impl Manner {
    /// Returns the slot that all keys of a request are in.
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

    pub(crate) fn command(&self, items: &[Item], shape: Shape) -> Result<Command, RequestError> {
        if shape == Shape::Refund {
            return self.refunds(items);
        }
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
                    // A peek holds nothing, so any name will do.
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

    fn refunds(&self, items: &[Item]) -> Result<Command, RequestError> {
        let mut refunds = Refunds::new();
        for question in items.iter().filter_map(Item::question) {
            let Question::Refund { plan, key, receipt, permits } = question else { continue };
            let receipt = plan.receipt(receipt).ok_or(RequestError::OtherPlan)?;
            refunds.push(&plan.plan, &self.keys.key(key), &receipt, permits.get())?;
        }
        Ok(refunds.command(self.settings))
    }

    fn alone(&self, question: &Question<super::SharedPlan>) -> Result<Command, RequestError> {
        match question {
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
                    // Rounded up: for the store a longer membership is safe, a shorter one is
                    // not.
                    length_us: beat.length_ns.div_ceil(1_000),
                    memory_us: beat.memory_ns.div_ceil(1_000),
                };
                Ok(group::beat(&self.keys, &beat.group, told))
            }
            _ => Err(RequestError::NoPermits),
        }
    }
}
