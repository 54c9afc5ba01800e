//! The decisions of a store, as values.

use std::num::NonZeroU64;

/// The decision about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a grant that is not acted on is a lost permit"]
pub enum Verdict {
    /// The permits were granted.
    Granted(Grant),
    /// The request was denied, and nothing was taken.
    Denied(Denial),
    /// A key of the decision holds data of another kind. Nothing was taken or written, and the
    /// other decisions of the call were made.
    WrongType,
}

/// Permits that the store has granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The number of permits: all requested ones, or fewer for a
    /// [debit](crate::batch::Batch::debit).
    pub permits: u64,
    /// The number of permits another request could take then.
    pub remaining: u64,
    /// The request was granted before, and this repeats that grant: nothing more was taken.
    pub is_repeated: bool,
    /// The receipt, which a refund needs.
    pub receipt: Receipt,
}

/// A denial, with the time until the same request passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The time until the same request passes, if no other request comes first.
    ///
    /// It ends at the first microsecond of the store's clock at which the request passes; one
    /// sooner it is still denied. `None` where time alone cannot help. Where permits are held, it
    /// is the end of leases that are not renewed.
    pub retry_after_ns: Option<NonZeroU64>,
    /// The number of permits a smaller request could take.
    pub remaining: u64,
}

/// Three numbers for each limit of a set, by which a refund is judged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub(crate) fields: Vec<[u64; 3]>,
}

/// The decisions of all requests of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchReply {
    /// The store's clock, in microseconds.
    pub now_us: u64,
    /// The number of states that lay too far ahead of the clock, and count as if all permits had
    /// just been taken: the clock went back further than the horizon, or another program wrote
    /// them.
    pub corrected: u64,
    /// The store still has the [marker](crate::group::Marker) that the call named, if it named
    /// one. Without it the store may have lost any state a moment ago.
    pub is_marked: bool,
    /// The verdicts, in the order of the requests.
    pub verdicts: Vec<Verdict>,
}

/// The numbers in the reply to any other call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The store's clock, in microseconds.
    pub now_us: u64,
    /// The number of corrected states, as in [`BatchReply::corrected`].
    pub corrected: u64,
    /// The counts, in the order of the requests: permits that came back, or 1 for each lease that
    /// existed and 0 for others. A reset has one count, the number of states there were.
    pub counts: Vec<u64>,
}
