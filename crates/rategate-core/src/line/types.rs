//! Requests to a wait queue, its outcomes, and the wake-ups that it reports.

use crate::fair::ClassId;
use crate::verdict::{self, Refusal};

/// The receiver of a queue's wake-ups, which passes them on to the waiters.
pub trait Wakes<W> {
    /// Reports that a wait has ended or its start has come, so that its
    /// [outcome](super::Line::collect) can be collected or its permits
    /// [taken](super::Line::take).
    fn settled(&mut self, waiter: W);

    /// Passes back the handle of a caller that was refused, only to be dropped where that does no
    /// harm.
    ///
    /// The caller itself receives an error.
    fn rejected(&mut self, _waiter: W) {}

    /// Reports that a waiter's start, which may have been reported to it, has changed.
    fn moved(&mut self, waiter: &W);

    /// Reports that a waiter is the head of the queue and its start is near: see
    /// [`rouse`](super::Line::rouse).
    fn roused(&mut self, _waiter: &W) {}
}

/// A request for permits by a caller that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of permits.
    pub permits: u64,
    /// The longest wait that the caller accepts, in nanoseconds.
    pub max_wait_ns: Option<u64>,
    /// The class in whose queue to wait.
    pub class: ClassId,
    /// `true` if a start at once is provisional too, so that the waiter takes it when it runs.
    pub is_provisional: bool,
}

impl Request {
    /// Returns a request for `permits` in the first class, without a deadline.
    #[must_use]
    pub const fn of(permits: u64) -> Self {
        Self { permits, max_wait_ns: None, class: ClassId::FIRST, is_provisional: false }
    }

    /// Returns this request with a maximum wait of `max_wait_ns`, if given.
    #[must_use]
    pub const fn within(self, max_wait_ns: Option<u64>) -> Self {
        Self { max_wait_ns, ..self }
    }

    /// Returns this request in another class.
    #[must_use]
    pub const fn in_class(self, class: ClassId) -> Self {
        Self { class, ..self }
    }

    /// Returns this request for a caller that runs later than it joins.
    ///
    /// It waits even if it could start at once, and [takes](super::Line::take) when it runs.
    #[must_use]
    pub const fn provisionally(self) -> Self {
        Self { is_provisional: true, ..self }
    }
}

/// The identifier of a waiter slot in the queue.
///
/// Its owner has to [collect](super::Line::collect) the outcome or [leave](super::Line::leave).
#[derive(Debug, PartialEq, Eq)]
pub struct WaiterId(pub(super) u32);

/// The result of joining a wait queue.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Joined {
    /// The request starts at once.
    Granted(verdict::Grant),
    /// The request waits in the queue.
    Waits(WaiterId),
}

/// A reason for which a caller may not wait. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRejection {
    /// The queue is full.
    Full,
    /// The limit will never grant it.
    Refused(Refusal),
    /// The request would be granted, but past its deadline.
    TooLong {
        /// The wait until its start.
        wait_ns: u64,
        /// The time until the same call would be accepted if no other caller comes.
        ///
        /// It is exact with one class. With several classes it is sufficient, but not always the
        /// minimum.
        retry_after_ns: u64,
    },
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The permits were granted.
    Granted(verdict::Grant),
    /// The deadline has come, or can no longer be met.
    DeadlinePassed,
    /// The queue was full, and a newer waiter took the slot.
    Evicted,
    /// The limit has changed, and will never grant the request.
    Refused(Refusal),
    /// The queue was closed.
    Closed,
}

/// The state of a waiter slot when its owner left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveOutcome<W> {
    /// The start had come, but its permits were not taken: everything set aside for it is free
    /// again.
    Untaken,
    /// The waiter was still waiting and had this handle: everything set aside for it is free
    /// again.
    InTime(W),
    /// The wait had ended. If it was granted, the permits stay taken.
    Settled(Outcome),
}
