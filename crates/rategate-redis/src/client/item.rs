//! A question on its way, and whoever waits for the answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rategate::store::{Answer, Fault, Gone, Hear, Question, Reply, Verdict};

use super::plan::SharedPlan;
use super::shared::Shared;
use crate::command::Command;
use crate::reply::Value;

/// How long the store may take for what nobody waits for: permits that go back.
const RETURN_WITHIN: Duration = Duration::from_secs(2);
/// How often a question goes out again, each time because it was refused without effect.
const MAX_RESENT: u8 = 3;

/// What is asked.
pub(crate) enum Task {
    /// A question of the library's, about a limit.
    Question(Question<SharedPlan>),
    /// A command that stands for itself, and the slot of its key.
    Command(Command, u16),
}

/// Who hears what the store says to a command.
pub(crate) type HearValue = Box<dyn FnOnce(Result<&Value, Fault>) + Send>;

enum Listener {
    Answer(Hear),
    Value(HearValue),
}

/// A question on its way. Whoever waits hears exactly once: at the latest when it is dropped.
pub(crate) struct Item {
    pub(crate) task: Task,
    hear: Option<Listener>,
    /// Until when the answer is of use.
    pub(crate) until: Instant,
    resent: u8,
    /// In a call of its own: it was refused together with others.
    pub(crate) is_alone: bool,
    /// To where its slot is moved, which has to be told so.
    pub(crate) is_asking: bool,
}

impl Item {
    pub(crate) fn new(question: Question<SharedPlan>, hear: Hear, until: Instant) -> Self {
        Self::of(Task::Question(question), Some(Listener::Answer(hear)), until)
    }

    pub(crate) fn command(command: Command, slot: u16, hear: HearValue, until: Instant) -> Self {
        Self::of(Task::Command(command, slot), Some(Listener::Value(hear)), until)
    }

    /// Nobody waits for it.
    fn silent(question: Question<SharedPlan>, now: Instant) -> Self {
        let until = now.checked_add(RETURN_WITHIN).unwrap_or(now);
        Self::of(Task::Question(question), None, until)
    }

    const fn of(task: Task, hear: Option<Listener>, until: Instant) -> Self {
        Self { task, hear, until, resent: 0, is_alone: false, is_asking: false }
    }

    /// The question about a limit that it is, if it is one.
    pub(crate) const fn question(&self) -> Option<&Question<SharedPlan>> {
        match &self.task {
            Task::Question(question) => Some(question),
            Task::Command(..) => None,
        }
    }

    pub(crate) const fn is_waited_for(&self) -> bool {
        self.hear.is_some()
    }

    /// Whether it may go out once more.
    pub(crate) fn resend(&mut self) -> bool {
        self.resent = self.resent.saturating_add(1);
        self.resent <= MAX_RESENT
    }

    /// Tells whoever waits, if somebody still does.
    pub(crate) fn hear(&mut self, shared: &Shared, answer: Result<Answer, Fault>) -> bool {
        let Some(hear) = self.hear.take() else { return false };
        shared.one_less();
        tell(hear, answer);
        true
    }

    /// Tells the caller that no driver takes the item.
    pub(crate) fn refuse(mut self, why: String) {
        if let Some(hear) = self.hear.take() {
            tell(hear, Err(Fault::Gone(Gone::Unable(why))));
        }
    }

    /// Tells whoever waits for what the store says to a command.
    pub(crate) fn hear_value(&mut self, shared: &Shared, value: &Value) {
        let Some(hear) = self.hear.take() else { return };
        shared.one_less();
        if let Listener::Value(hear) = hear {
            let _ = catch_unwind(AssertUnwindSafe(|| hear(Ok(value))));
        }
    }

    pub(crate) fn late(&mut self, shared: &Shared) {
        if self.hear(shared, Err(Fault::Gone(Gone::Late))) {
            shared.stats.late();
        }
    }

    /// What goes back if nobody heard of this answer.
    pub(crate) fn give_back(&self, answer: &Answer, now: Instant) -> Option<Self> {
        let Reply::Verdict(Verdict::Granted(grant)) = &answer.reply else { return None };
        let permits = std::num::NonZeroU64::new(grant.permits)?;
        let question = match self.question()? {
            Question::Decide { plan, key, lease: Some(lease), .. } if plan.plan.holds() => {
                let (plan, key, lease) = (plan.clone(), key.clone(), *lease);
                Question::Release { plan, key, permits, lease }
            }
            Question::Decide { plan, key, .. } | Question::Debit { plan, key, .. } => {
                let (plan, key, receipt) = (plan.clone(), key.clone(), grant.receipt.clone());
                Question::Refund { plan, key, receipt, permits }
            }
            _ => return None,
        };
        Some(Self::silent(question, now))
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        if let Some(hear) = self.hear.take() {
            tell(hear, Err(Fault::Closed));
        }
    }
}

/// Foreign code, whose panic is its own: the other answers go on.
fn tell(hear: Listener, answer: Result<Answer, Fault>) {
    let _ = catch_unwind(AssertUnwindSafe(|| match (hear, answer) {
        (Listener::Answer(hear), answer) => hear(answer),
        (Listener::Value(hear), Err(fault)) => hear(Err(fault)),
        // Nobody answers a command in words of limits.
        (Listener::Value(hear), Ok(_)) => hear(Err(Fault::Closed)),
    }));
}
