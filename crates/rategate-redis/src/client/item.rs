//! A pending request together with the callback of its caller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rategate::store::{Answer, Fault, Gone, Hear, Question, Reply, Verdict};

use super::plan::SharedPlan;
use super::shared::Shared;
use crate::command::Command;
use crate::reply::Value;

/// The time the store may take for requests without a waiter: permits that are refunded.
const RETURN_WITHIN: Duration = Duration::from_secs(2);
/// The maximum number of times a request is sent again, each time after a refusal without effect.
const MAX_RESENT: u8 = 3;

/// The content of a request.
pub(crate) enum Task {
    /// A request of `rategate` about a limit.
    Question(Question<SharedPlan>),
    /// A command of its own, and the slot of its key.
    Command(Command, u16),
}

/// A callback that receives the store's reply to a command.
pub(crate) type HearValue = Box<dyn FnOnce(Result<&Value, Fault>) + Send>;

enum Listener {
    Answer(Hear),
    Value(HearValue),
}

/// A pending request. Its callback runs exactly once, at the latest when the request is dropped.
pub(crate) struct Item {
    shared: Arc<Shared>,
    pub(crate) task: Task,
    hear: Option<Listener>,
    since: Instant,
    /// The instant after which the reply is of no use.
    pub(crate) until: Instant,
    resent: u8,
    /// The request needs a call of its own, because it was refused together with others.
    pub(crate) is_alone: bool,
    /// The request goes to a server that its slot is being moved to, and needs `ASKING`.
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

    /// Creates a request without a waiter.
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

    /// Returns the request about a limit, or `None` for a command.
    pub(crate) const fn question(&self) -> Option<&Question<SharedPlan>> {
        match &self.task {
            Task::Question(question) => Some(question),
            Task::Command(..) => None,
        }
    }

    pub(crate) const fn is_waited_for(&self) -> bool {
        self.hear.is_some()
    }

    /// Counts another attempt, and returns `true` if the request may be sent again.
    pub(crate) fn resend(&mut self) -> bool {
        self.resent = self.resent.saturating_add(1);
        self.resent <= MAX_RESENT
    }

    /// Delivers the reply to the waiter. Returns `false` if there is no waiter any more.
    pub(crate) fn hear(&mut self, answer: Result<Answer, Fault>) -> bool {
        let Some(hear) = self.hear.take() else { return false };
        self.shared.one_less();
        tell(hear, answer);
        true
    }

    /// Delivers the store's reply to the waiter of a command.
    pub(crate) fn hear_value(&mut self, value: &Value) {
        let Some(hear) = self.hear.take() else { return };
        self.shared.one_less();
        if let Listener::Value(hear) = hear {
            let _ = catch_unwind(AssertUnwindSafe(|| hear(Ok(value))));
        }
    }

    /// Returns `true` if more than half of the time is over. A new request is therefore always
    /// sent.
    pub(crate) fn is_past_half(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > self.until.saturating_duration_since(now)
    }

    /// Answers a request for which no reply can come in time. Nothing was sent.
    pub(crate) fn shed(&mut self) {
        self.shared.stats.shed.one();
        self.late();
    }

    pub(crate) fn late(&mut self) {
        if self.hear(Err(Fault::Gone(Gone::Late))) {
            self.shared.stats.late.one();
        }
    }

    /// Returns the request that refunds or releases a grant whose reply reached no waiter.
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
    /// Answers the waiter. A request is dropped without a reply only by a driver that ends or
    /// panics.
    fn drop(&mut self) {
        let fault = if thread::panicking() { Fault::Gone(panicked()) } else { Fault::Closed };
        self.hear(Err(fault));
    }
}

/// Returns the error for requests lost in a panic of the driver.
pub(crate) fn panicked() -> Gone {
    Gone::Broken(
        "the driver of the store panicked and restarts; its stderr names the location".to_owned(),
    )
}

/// Runs a foreign callback. A panic in it is contained, so that the other replies are delivered.
fn tell(hear: Listener, answer: Result<Answer, Fault>) {
    let _ = catch_unwind(AssertUnwindSafe(|| match (hear, answer) {
        (Listener::Answer(hear), answer) => hear(answer),
        (Listener::Value(hear), Err(fault)) => hear(Err(fault)),
        // A command is never answered by a verdict about limits.
        (Listener::Value(hear), Ok(_)) => hear(Err(Fault::Closed)),
    }));
}
