//! Replies of a store.

use std::num::NonZeroU64;

use rategate_core::debt::Charged;
use rategate_core::verdict::Settled;

/// A store's reply to a request, and how long the store has lost no data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReply {
    /// The verdict, count or outcome.
    pub reply: Reply,
    /// The time for which this store is known to have lost nothing, in ns, rounded down.
    ///
    /// `None` if the store does not know: it may have lost anything a moment ago.
    pub intact_for_ns: Option<u64>,
    /// The instant of the reply on the store's clock, in ns. `None` if it is unknown.
    ///
    /// The window of a calendar is the one around it.
    pub now_ns: Option<u64>,
}

/// A reply, by the kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The verdict of decide, debit and peek.
    Verdict(Verdict),
    /// A count, whose meaning depends on the request.
    ///
    /// For refunds, the permits that came back. For release and renew, the limits of
    /// permits in flight that still had the lease. For a reset, the states that had not fully
    /// recovered.
    Count(u64),
    /// The outcome of a charge.
    Charged(ChargeReply),
    /// The outcome of a credit.
    Credited(CreditReply),
    /// The outcome of a request to hold an estimate.
    Reserved(ReserveReply),
    /// The outcome of the end of a reservation.
    Ended(EndReply),
}

impl StoreReply {
    /// Returns the verdict, if the reply is one.
    #[must_use]
    pub fn verdict(self) -> Option<Verdict> {
        if let Reply::Verdict(verdict) = self.reply { Some(verdict) } else { None }
    }

    /// Returns the count, if the reply is one.
    #[must_use]
    pub fn count(self) -> Option<u64> {
        if let Reply::Count(count) = self.reply { Some(count) } else { None }
    }

    /// Returns the outcome of a charge, if the reply is one.
    #[must_use]
    pub fn charged(self) -> Option<ChargeReply> {
        if let Reply::Charged(charged) = self.reply { Some(charged) } else { None }
    }

    /// Returns the outcome of a credit, if the reply is one.
    #[must_use]
    pub fn credited(self) -> Option<CreditReply> {
        if let Reply::Credited(credited) = self.reply { Some(credited) } else { None }
    }

    /// Returns the outcome of a request to hold an estimate, if the reply is one.
    #[must_use]
    pub fn reserved(self) -> Option<ReserveReply> {
        if let Reply::Reserved(reserved) = self.reply { Some(reserved) } else { None }
    }

    /// Returns the outcome of the end of a reservation, if the reply is one.
    #[must_use]
    pub fn ended(self) -> Option<EndReply> {
        if let Reply::Ended(ended) = self.reply { Some(ended) } else { None }
    }
}

/// The verdict on one request for permits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an unused grant is a lost permit"]
pub enum Verdict {
    /// The permits are the caller's.
    Granted(Grant),
    /// Nothing was taken.
    Denied(Denial),
}

/// Permits that a store has granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The permits granted: those requested, or fewer for a debit.
    pub permits: u64,
    /// The permits that one more call could take then; for a peek, that one call could take.
    pub remaining: u64,
    /// The time from the decision, in ns, within which they must be used.
    ///
    /// A window of the store's grid ends then. `None` where no limit of the set is such a window.
    pub window_ends_in_ns: Option<u64>,
    /// `true` if this repeats an earlier grant to the same lease: nothing more was taken.
    pub is_repeated: bool,
    /// The receipt that a refund needs.
    pub receipt: Receipt,
}

/// A denial, with the time until the same request passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The time until the same request passes if no other call comes first; or until the first
    /// reservation ends, if that is sooner, as the request may pass then. Permits in flight are all
    /// leased or reserved for a time, so of them it is the end after which the request passes.
    ///
    /// `None` where time alone cannot help.
    pub retry_after_ns: Option<NonZeroU64>,
    /// The permits that a smaller request could take.
    pub remaining: u64,
    /// The permits by which the limit is exceeded; the largest number, of several limits.
    pub debt: u64,
}

/// The outcome of a charge in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeReply {
    /// The permits booked and forgiven, and the debt; of the first charge, if this one is repeated.
    pub charged: Charged,
    /// `true` if the charge had been made before under its id: nothing changed.
    pub is_repeated: bool,
    /// The permits that one call could take then.
    pub remaining: u64,
    /// The time until a request for as many permits passes, if no other call comes first.
    ///
    /// 0 if it passes at once, and `None` if it never does. After a charge of no permits, the time
    /// until the limit is not exceeded.
    pub retry_after_ns: Option<u64>,
}

/// The outcome of a credit in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditReply {
    /// The permits that came back; those of the first credit, if this one is repeated.
    pub permits: u64,
    /// `true` if the credit had been made before under its id: nothing changed.
    pub is_repeated: bool,
}

/// The outcome of a request to hold an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveReply {
    /// The verdict.
    pub verdict: ReserveVerdict,
    /// `true` if the id was known: nothing changed.
    pub is_repeated: bool,
    /// The permits that one call could take then.
    pub remaining: u64,
    /// The permits by which the limit is exceeded; the largest number, of several limits.
    pub debt: u64,
}

/// The verdict on a request to hold an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveVerdict {
    /// The permits are held.
    Held {
        /// The time until the reservation ends by itself.
        ends_in_ns: NonZeroU64,
    },
    /// Nothing is held, and the id is still unused.
    Denied {
        /// The time until the same request passes, as of [`Denial::retry_after_ns`].
        retry_after_ns: Option<NonZeroU64>,
    },
    /// The reservation of this id has ended: nothing is held any more.
    Ended,
    /// The id is of a reservation of another number of permits, which is not changed.
    OtherPermits {
        /// The number of permits of that reservation.
        permits: u64,
    },
}

/// The outcome of the end of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndReply {
    /// The outcome; that of the first end, if this one is repeated.
    pub outcome: EndOutcome,
    /// `true` if the reservation had been committed or cancelled before: nothing changed.
    pub is_repeated: bool,
    /// The permits that one call could take then.
    pub remaining: u64,
    /// The permits by which the limit is exceeded; the largest number, of several limits.
    pub debt: u64,
}

/// The effect of the end of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOutcome {
    /// It was committed in time, and the difference was settled.
    Committed(Settled),
    /// It was cancelled in time, and as many permits came back.
    Cancelled(u64),
    /// Its time was over, so all that was used has been charged.
    Late(Charged),
    /// No reservation of this key has the id. Nothing changed.
    Unknown,
}

/// The record of a grant, in words that only the store reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Receipt {
    words: Box<[u64]>,
}

impl Receipt {
    /// Creates a receipt of these words.
    #[must_use]
    pub fn new(words: impl Into<Box<[u64]>>) -> Self {
        Self { words: words.into() }
    }

    /// Returns the words.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}
