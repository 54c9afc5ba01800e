//! What a store says.

use std::num::NonZeroU64;

/// What a question was answered with, and by what sort of store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The answer itself.
    pub reply: Reply,
    /// For how long this store is known to have lost nothing, in ns, counted down to the safe side. `None` if it
    /// cannot tell: then it may have lost anything a moment ago.
    pub intact_for_ns: Option<u64>,
}

/// The answer itself, by the kind of question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To decide, debit and peek.
    Verdict(Verdict),
    /// How many permits came back, with a grant to show or without; for how many limits of permits in flight the lease was still there,
    /// of release and renew; how many states there were that were not as good as unused, of a reset.
    Count(u64),
    /// To a sign of life.
    Share(Share),
}

/// The answer to one decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a grant that nobody acts on is a permit lost"]
pub enum Verdict {
    /// The permits are the caller's.
    Granted(Grant),
    /// Nothing was taken.
    Denied(Denial),
}

/// Permits handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// How many: as many as were asked for, or fewer of a debit.
    pub permits: u64,
    /// How many one more call could take then; of a peek, how many one call could.
    pub remaining: u64,
    /// Until when, in ns from the decision, they have to be used where a window of the store's grid ends then. `None`
    /// where no limit of the plan is such a window.
    pub window_ends_in_ns: Option<u64>,
    /// What a refund needs.
    pub receipt: Receipt,
}

/// A refusal for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// How long until the same question is granted, if nobody else comes first. `None` where time alone cannot
    /// help.
    pub retry_after_ns: Option<NonZeroU64>,
    /// How many permits a smaller question could take.
    pub remaining: u64,
}

/// What a grant was, in words that only the store reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Receipt {
    words: Box<[u64]>,
}

impl Receipt {
    /// These words, of a store's own.
    #[must_use]
    pub fn new(words: impl Into<Box<[u64]>>) -> Self {
        Self { words: words.into() }
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

/// What a member has of the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its share. All members' together are never more than the total, for as long as each counts its own from
    /// when it sent its sign of life.
    pub permits: u64,
    /// How much of it nobody has had for the time that the limit remembers: those permits are fresh. The others
    /// may have been used until a moment ago.
    pub fresh: u64,
    /// How many members there are.
    pub members: u64,
    /// When the share may grow without anybody's sign of life, in ns: another member's time is over. It is
    /// worth asking again then.
    pub changes_in_ns: Option<NonZeroU64>,
}
