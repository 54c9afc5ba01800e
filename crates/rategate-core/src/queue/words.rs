//! What a queue is asked and answers, and what it says to those who pass it on.

use crate::fair::ClassId;
use crate::verdict::{self, Refusal};

/// Whoever passes a queue's word on to those who wait.
pub trait Wakes<W> {
    /// This one waits no more: its [outcome](super::Queue::collect) is there.
    fn settled(&mut self, waiter: W);

    /// This one was turned away, which its caller is told. It is handed over for nothing but to be
    /// dropped where that does no harm.
    fn turned_away(&mut self, _waiter: W) {}

    /// This one's start, which it may have been told, has become another.
    fn moved(&mut self, waiter: &W);

    /// This one is the head of the queue, and its start is near: see [`rouse`](super::Queue::rouse).
    fn roused(&mut self, _waiter: &W) {}
}

/// What somebody asks for who may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How many permits.
    pub permits: u64,
    /// The longest wait that the caller accepts.
    pub max_wait_ns: Option<u64>,
    /// The class whose line to stand in.
    pub class: ClassId,
}

impl Request {
    /// For `permits`, however long it takes, in the first class.
    #[must_use]
    pub const fn of(permits: u64) -> Self {
        Self { permits, max_wait_ns: None, class: ClassId::FIRST }
    }

    /// The same within `max_wait_ns`, if that is given.
    #[must_use]
    pub const fn within(self, max_wait_ns: Option<u64>) -> Self {
        Self { max_wait_ns, ..self }
    }

    /// The same in another class.
    #[must_use]
    pub const fn in_class(self, class: ClassId) -> Self {
        Self { class, ..self }
    }
}

/// A place in the queue. Its holder has to [collect](super::Queue::collect) what came of it or to
/// [leave](super::Queue::leave).
#[derive(Debug, PartialEq, Eq)]
pub struct Place(pub(super) u32);

/// What became of a call that may wait.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Joined {
    /// It starts at once.
    Granted(verdict::Grant),
    /// It stands in line.
    Waits(Place),
}

/// Why a call may not wait. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The queue is full.
    Full,
    /// The limit will never grant it.
    Refused(Refusal),
    /// It would be granted, but past its deadline.
    TooLong {
        /// How long it would have to wait.
        wait_ns: u64,
        /// How long until the same call would be accepted, if nobody else comes: exact; with several
        /// classes enough, but not always the least.
        retry_after_ns: u64,
    },
}

/// How a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The permits are the caller's.
    Granted(verdict::Grant),
    /// The deadline has come, or can no longer be met.
    DeadlinePassed,
    /// The queue was full, and somebody newer has the place.
    Evicted,
    /// The limit has changed, and will never grant it.
    Refused(Refusal),
    /// The queue was closed.
    Closed,
}

/// What had become of a place when its holder left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left<W> {
    /// Its start had come, and it had not taken its permits: all that it held has gone back.
    Untaken,
    /// It was still waiting, with this to wake it by; all that it held has gone back.
    InTime(W),
    /// It had been settled. If it was granted, the permits are spent.
    Settled(Outcome),
}
