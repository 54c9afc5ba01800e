//! A client's copy of a limit that a server reports, counted down by what the client sends. Time
//! is an argument.

use std::time::Duration;

use super::hints::{Refill, ServerLimit};
use crate::headers::QuotaUnit;

/// The tokens that a request will take of a language model's limits, as an estimate or a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Those of the prompt.
    pub input: u64,
    /// Those of the reply.
    pub output: u64,
}

/// A number of requests, and the tokens that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    requests: u64,
    tokens: Tokens,
}

impl Cost {
    pub(super) const fn of_request(tokens: Tokens) -> Self {
        Self { requests: 1, tokens }
    }

    pub(super) const fn plus(self, other: Self) -> Self {
        let tokens = Tokens {
            input: self.tokens.input.saturating_add(other.tokens.input),
            output: self.tokens.output.saturating_add(other.tokens.output),
        };
        Self { requests: self.requests.saturating_add(other.requests), tokens }
    }

    pub(super) const fn minus(self, other: Self) -> Self {
        let tokens = Tokens {
            input: self.tokens.input.saturating_sub(other.tokens.input),
            output: self.tokens.output.saturating_sub(other.tokens.output),
        };
        Self { requests: self.requests.saturating_sub(other.requests), tokens }
    }

    /// Returns the amount in a unit; `None` for a unit in which clients do not count.
    pub(super) const fn amount(self, unit: QuotaUnit) -> Option<u64> {
        match unit {
            QuotaUnit::Requests => Some(self.requests),
            QuotaUnit::Tokens => Some(self.tokens.input.saturating_add(self.tokens.output)),
            QuotaUnit::InputTokens => Some(self.tokens.input),
            QuotaUnit::OutputTokens => Some(self.tokens.output),
            QuotaUnit::ContentBytes | QuotaUnit::ConcurrentRequests => None,
        }
    }
}

/// A client's copy of a limit.
///
/// It has what the server had when it last reported, plus what the server adds since. What may be
/// sent is that less the cost of all requests on their way, because the server may have counted
/// none of them. So, as long as no other client takes from the limit, nothing that starts here is
/// over it.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    name: Box<str>,
    unit: QuotaUnit,
    /// The server's amount at `since_ns`. Below zero after requests whose responses had no report.
    amount: i128,
    since_ns: u64,
    max: i128,
    /// The amount that is added from `since_ns` on.
    growth: Option<Rate>,
    /// The distance of starts; `None` if they may come together.
    pace: Option<Rate>,
    /// The changes that are expected until a response says more, the next one last.
    changes: Vec<Change>,
    reset_ns: u64,
    /// The longest time until a reset that was reported.
    longest_ns: u64,
    /// The instants of the report, and of the start of its request.
    reported_ns: u64,
    started_ns: u64,
}

/// An assumption for the time from an instant on.
#[derive(Clone, Copy, Debug)]
struct Change {
    at_ns: u64,
    /// The amount that is added, or that takes the place of the previous one.
    amount: u64,
    is_renewed: bool,
    /// The amount that is added from then on.
    growth: Option<Rate>,
}

/// An amount per time.
#[derive(Clone, Copy, Debug)]
struct Rate {
    amount: u64,
    per_ns: u64,
}

impl Rate {
    /// Returns the time of an amount, rounded up.
    fn time_ns(self, amount: i128) -> u64 {
        let amount = u128::try_from(amount).unwrap_or(0);
        let ns = amount.saturating_mul(self.per_ns.into()).div_ceil(self.amount.max(1).into());
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Returns the amount of a time, rounded down.
    fn amount(self, ns: u64) -> i128 {
        let amount = u128::from(ns).saturating_mul(self.amount.into());
        i128::try_from(amount.checked_div(self.per_ns.into()).unwrap_or(0)).unwrap_or(i128::MAX)
    }
}

impl Allowance {
    /// Creates the copy of a limit that was reported at `now_ns`, in the response to a request that
    /// started at `started_ns`, while other requests that cost `others` were on their way.
    pub(super) fn new(
        limit: &ServerLimit,
        unit: QuotaUnit,
        others: u64,
        [started_ns, now_ns]: [u64; 2],
        spreads: bool,
    ) -> Self {
        let over_ns = ns(limit.reset);
        let reset_ns = now_ns.saturating_add(over_ns);
        let rate = |amount, per_ns| Rate { amount, per_ns };
        let used = limit.quota.unwrap_or(0).saturating_sub(limit.remaining);
        let is_gradual = limit.refill == Refill::Gradual && used > 0;
        // Evenly over the time until the reset: a bucket's whole quota passes by then. Otherwise
        // one gap more than requests, so that the last one does not fall into the next window.
        let paced = if is_gradual {
            limit.quota.unwrap_or(0)
        } else {
            limit.remaining.saturating_sub(others).saturating_add(1)
        };
        let quota = limit.quota.filter(|quota| *quota > 0 && !is_gradual);
        let change = |at_ns, amount, growth| Change { at_ns, amount, is_renewed: false, growth };
        let changes = match quota.zip(limit.window.map(ns)) {
            // The draft's windows may slide: after a reset there is more, and perhaps but one,
            // which the others may take. All that the server had counted is over a window later.
            Some((quota, per_ns)) => {
                let over_ns = now_ns.saturating_add(per_ns).max(reset_ns);
                let passed = used.saturating_sub(others).saturating_sub(1);
                let more = used.min(1).saturating_sub(others);
                vec![
                    change(over_ns, passed, Some(rate(quota, per_ns))),
                    change(reset_ns, more, None),
                ]
            }
            None => Vec::from_iter(quota.map(|quota| {
                let growth = Some(rate(quota, over_ns));
                Change { is_renewed: true, ..change(reset_ns, quota, growth) }
            })),
        };
        Self {
            name: limit.name.clone(),
            unit,
            amount: limit.remaining.into(),
            since_ns: now_ns,
            max: limit.quota.map_or(i128::MAX, i128::from),
            growth: is_gradual.then(|| rate(used, over_ns)),
            pace: spreads.then(|| rate(paced, over_ns)),
            changes,
            reset_ns,
            longest_ns: over_ns,
            reported_ns: now_ns,
            started_ns,
        }
    }

    /// Returns `true` if both are copies of one limit.
    pub(super) fn is_same_limit(&self, other: &Self) -> bool {
        (self.unit, &self.name) == (other.unit, &other.name)
    }

    pub(super) const fn unit(&self) -> QuotaUnit {
        self.unit
    }

    pub(super) const fn reset_ns(&self) -> u64 {
        self.reset_ns
    }

    /// Advances to `now_ns`. Returns `false` if nothing is known of the limit any more.
    pub(super) fn advance(&mut self, now_ns: u64) -> bool {
        while self.until_ns() <= now_ns {
            self.since_ns = self.until_ns();
            let Some(change) = self.changes.pop() else { return false };
            let kept = if change.is_renewed { 0 } else { self.amount };
            self.amount = kept.saturating_add(change.amount.into());
            // A window is at least as long as the longest reset.
            self.growth = change.growth.map(|rate| {
                let shortest_ns = if change.is_renewed { self.longest_ns } else { 0 };
                Rate { per_ns: rate.per_ns.max(shortest_ns), ..rate }
            });
            self.pace = self.pace.and(self.growth);
        }
        if self.now(now_ns) >= self.max {
            (self.amount, self.since_ns) = (self.max, now_ns);
        }
        true
    }

    /// Returns the instant up to which the amounts are those of the last change.
    fn until_ns(&self) -> u64 {
        match self.changes.last() {
            Some(change) => change.at_ns,
            None if self.growth.is_some() => u64::MAX,
            None => self.reset_ns,
        }
    }

    /// Returns the server's amount, as far as known.
    fn now(&self, now_ns: u64) -> i128 {
        let grown = self.growth.map_or(0, |rate| rate.amount(now_ns.saturating_sub(self.since_ns)));
        self.amount.saturating_add(grown)
    }

    /// Counts a request whose response had no report.
    pub(super) fn count(&mut self, amount: u64) {
        self.amount = self.amount.saturating_sub(amount.into());
    }

    /// Replaces the copy by that of a new report.
    ///
    /// Reports arrive in any order. One is surely newer than another if its request started after
    /// the other had arrived. Otherwise it only lowers the amount.
    pub(super) fn replace(&mut self, new: Self) {
        let longest_ns = self.longest_ns.max(new.longest_ns);
        if new.started_ns >= self.reported_ns {
            *self = new;
        } else {
            let now_ns = new.since_ns;
            (self.amount, self.since_ns) = (new.amount.min(self.now(now_ns)), now_ns);
        }
        self.longest_ns = longest_ns;
    }

    /// Returns the start of a request that costs `own`, behind waiting ones that cost `ahead` and
    /// those on their way that cost `in_flight`. It is never later than the next change.
    pub(super) fn start_ns(
        &self,
        [own, ahead, in_flight]: [u64; 3],
        last_start_ns: Option<u64>,
        hold_until_ns: u64,
    ) -> u64 {
        // A request that costs more than the quota waits until all of it is available.
        let needed = i128::from(own).min(self.max).saturating_add(ahead.into());
        let missing = needed.saturating_add(in_flight.into()).saturating_sub(self.amount);
        let by_amount = match self.growth {
            _ if missing <= 0 => 0,
            Some(growth) => self.since_ns.saturating_add(growth.time_ns(missing)),
            None => u64::MAX,
        };
        let by_pace = self.pace.zip(last_start_ns).map_or(0, |(pace, last_ns)| {
            let next_ns = last_ns.saturating_add(pace.time_ns(own.into())).max(hold_until_ns);
            next_ns.saturating_add(pace.time_ns(ahead.into()))
        });
        by_amount.max(by_pace).min(self.until_ns())
    }
}

pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
