//! What a store answers, as values.

use std::num::NonZeroU64;

/// The answer to one decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a grant that nobody acts on is a permit lost"]
pub enum Verdict {
    /// The permits are the caller's.
    Granted(Grant),
    /// Nothing was taken.
    Denied(Denial),
    /// A key of the decision holds something else's data: nothing was taken or written, and the call's other
    /// decisions were made.
    WrongType,
}

/// Permits handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// How many: as many as were asked for, or fewer where a [debit](crate::batch::Batch::debit) takes what
    /// there is.
    pub permits: u64,
    /// How many one more request could take then.
    pub remaining: u64,
    /// The request was granted before, and this is that answer again: nothing more was taken.
    pub is_repeated: bool,
    /// What a refund of it needs.
    pub receipt: Receipt,
}

/// A refusal for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// How long until the same request passes, if nobody else comes first: the first microsecond of the store's
    /// clock, so one sooner it is still denied. `None` where time alone cannot help. Where permits are held, it is
    /// the end of leases that nobody renews.
    pub retry_after_ns: Option<NonZeroU64>,
    /// How many permits a smaller request could take.
    pub remaining: u64,
}

/// Three numbers of each limit of a plan, which a refund is judged by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub(crate) told: Vec<[u64; 3]>,
}

/// The answers to all decisions of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The store's clock, in microseconds.
    pub now_us: u64,
    /// States that lay too far ahead of the clock, and count as if everything had just been taken: the clock
    /// went back further than the horizon, or somebody else wrote there.
    pub corrected: u64,
    /// Whether the store still has the [marker](crate::group::Marker) that the call named, if it named one. A store
    /// that has not may have lost any state a moment ago.
    pub is_marked: bool,
    /// In the order of asking.
    pub verdicts: Vec<Verdict>,
}

/// The numbers that a call of another kind is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The store's clock, in microseconds.
    pub now_us: u64,
    /// As in [`Answer::corrected`].
    pub corrected: u64,
    /// In the order of asking: permits that came back; 1 for each lease that was still there, 0 for others. Of
    /// a reset one number, how many states there were.
    pub counts: Vec<u64>,
}
