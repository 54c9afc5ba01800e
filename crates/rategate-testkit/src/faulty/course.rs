//! The fates of requests.

/// The fate of one request and its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// The request and the reply are delivered at once.
    #[default]
    Prompt,
    /// The request and the reply are delayed.
    ///
    /// Past the budget no caller waits any more, and the permits of the reply return to the store.
    Slow {
        /// The time from the request to the store's decision.
        there_ns: u64,
        /// The time from the decision to the caller.
        back_ns: u64,
    },
    /// The request is lost: the store never receives it.
    RequestLost,
    /// The reply is lost: the store has decided, but the caller never learns the result.
    ReplyLost,
    /// The request is delivered twice, and the reply to the first delivery arrives at once.
    ///
    /// Only a request that counts once under its id is: a reservation or its end. Of any other a
    /// driver sends no second one, so it is delivered as if [`Prompt`](Self::Prompt).
    Doubled {
        /// The time from the first delivery to the second.
        again_ns: u64,
    },
    /// There is no connection, which is known at once.
    Unreachable,
    /// The store replies at once that it is unable.
    Unable,
}
