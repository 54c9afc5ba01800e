//! A question on its way, and whoever waits for the answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
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
    shared: Arc<Shared>,
    pub(crate) task: Task,
    hear: Option<Listener>,
    since: Instant,
    /// Until when the answer is of use.
    pub(crate) until: Instant,
    resent: u8,
    /// In a call of its own: it was refused together with others.
    pub(crate) is_alone: bool,
    /// To where its slot is moved, which has to be told so.
    pub(crate) is_asking: bool,
}

impl Item {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        question: Question<SharedPlan>,
        hear: Hear,
        budget: Duration,
    ) -> Self {
        let hear = Some(Listener::Answer(hear));
        Self::of(Arc::clone(shared), Task::Question(question), hear, Instant::now(), budget)
    }

    pub(crate) fn command(
        shared: &Arc<Shared>,
        command: Command,
        slot: u16,
        hear: HearValue,
        budget: Duration,
    ) -> Self {
        let hear = Some(Listener::Value(hear));
        Self::of(Arc::clone(shared), Task::Command(command, slot), hear, Instant::now(), budget)
    }

    /// Nobody waits for it.
    fn silent(&self, question: Question<SharedPlan>, now: Instant) -> Self {
        Self::of(Arc::clone(&self.shared), Task::Question(question), None, now, RETURN_WITHIN)
    }

    fn of(
        shared: Arc<Shared>,
        task: Task,
        hear: Option<Listener>,
        since: Instant,
        budget: Duration,
    ) -> Self {
        let until = since.checked_add(budget).unwrap_or(since);
        Self { shared, since, task, hear, until, resent: 0, is_alone: false, is_asking: false }
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
    pub(crate) fn hear(&mut self, answer: Result<Answer, Fault>) -> bool {
        let Some(hear) = self.hear.take() else { return false };
        self.shared.one_less();
        tell(hear, answer);
        true
    }

    /// Tells whoever waits for what the store says to a command.
    pub(crate) fn hear_value(&mut self, value: &Value) {
        let Some(hear) = self.hear.take() else { return };
        self.shared.one_less();
        if let Listener::Value(hear) = hear {
            let _ = catch_unwind(AssertUnwindSafe(|| hear(Ok(value))));
        }
    }

    /// Whether more than half of its time is over: a question that has just come is always sent.
    pub(crate) fn is_past_half(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > self.until.saturating_duration_since(now)
    }

    /// Tells that no answer can come in time. Nothing was sent.
    pub(crate) fn shed(&mut self) {
        self.shared.stats.shed.one();
        self.late();
    }

    pub(crate) fn late(&mut self) {
        if self.hear(Err(Fault::Gone(Gone::Late))) {
            self.shared.stats.late.one();
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
        Some(self.silent(question, now))
    }
}

impl Drop for Item {
    /// Nothing is dropped without an answer but by a driver that ends, or one that panics and starts again.
    fn drop(&mut self) {
        let fault = if thread::panicking() { Fault::Gone(panicked()) } else { Fault::Closed };
        self.hear(Err(fault));
    }
}

/// The answer to questions that a panic of the driver's took with it.
pub(crate) fn panicked() -> Gone {
    Gone::Broken(
        "the driver of the store panicked, and starts again; its stderr says where".to_owned(),
    )
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
