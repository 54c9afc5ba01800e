//! The store: the core's own limiter on one exact clock, and the replica that may take over
//! without the newest state.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit as _;
use rategate_core::node::{Group, Heartbeat, HeartbeatReply};
use rategate_core::verdict::{Grant, Verdict};

use super::limit::Limit;
use super::plan::Plan;
use super::tally::Tally;

/// A request to the store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// A request for all these permits, or none.
    Decide { permits: NonZeroU64 },
    /// A request for as many of these permits as pass now.
    Debit { units: NonZeroU64 },
    /// A return of units that will not be used.
    Return { receipt: Grant, units: NonZeroU64 },
    /// A request for the number of free permits; nothing is taken.
    Peek,
    /// A heartbeat of a member.
    Heartbeat(Heartbeat),
    /// A report of permits that were used in any case.
    Record { permits: u64 },
}

/// The store's result for a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// A grant of permits.
    Granted { units: NonZeroU64, window_ends_in_ns: Option<u64>, receipt: Grant },
    /// A denial.
    Denied { retry_after_ns: Option<NonZeroU64> },
    /// The number of free permits, as the reply to a peek or a report.
    Free { permits: u64 },
    /// The share of a member, as the reply to a heartbeat.
    Share(HeartbeatReply),
    /// The number of units credited, as the reply to a return.
    Returned { units: u64 },
}

/// A reply: the result, and the time since the store that gives it took over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) answer: Answer,
    /// The instant of the decision, for the oracle.
    pub(super) decided_ns: u64,
    pub(super) intact_for_ns: u64,
}

/// The store that replies, and the state of its replica.
#[derive(Debug)]
pub(super) struct Store {
    books: StoreState,
    /// The state that the replica has read so far, if there will be one.
    replica: Option<Replica>,
    /// The instant at which this state took over. `None` for the first store, which lacks
    /// nothing.
    intact_since_ns: Option<u64>,
}

#[derive(Debug)]
struct Replica {
    books: StoreState,
    /// The requests that it has not read, each with the permits it took.
    unread: VecDeque<(u64, Request, u64)>,
    /// The maximum lag.
    behind_ns: u64,
}

/// The whole state of a store.
#[derive(Clone, Debug)]
struct StoreState {
    limit: Limit,
    ledger: Option<Ledger<AnyPolicy>>,
    group: Group,
    usage: UsageWindow,
}

/// The permits reported as used in any case, within the last window.
#[derive(Clone, Debug)]
struct UsageWindow {
    window_ns: u64,
    inside: VecDeque<(u64, u64)>,
    sum: u64,
}

impl Store {
    pub(super) fn new(plan: &Plan) -> Self {
        let books = StoreState::new(plan);
        let replica = plan.has_failover().then(|| Replica {
            books: books.clone(),
            unread: VecDeque::new(),
            behind_ns: plan.max_loss_ns(),
        });
        Self { books, replica, intact_since_ns: None }
    }

    /// Decides a request at an instant of its clock, no sooner than the one before.
    pub(super) fn handle(&mut self, now_ns: u64, request: Request, tally: &mut Tally) -> Reply {
        let (answer, taken) = self.books.handle(now_ns, request);
        if taken > 0 {
            tally.lend(now_ns, taken);
        }
        if let (Answer::Returned { units }, Request::Return { .. }) = (answer, request) {
            tally.counts.returned = tally.counts.returned.saturating_add(units);
        }
        if let Some(replica) = &mut self.replica {
            replica.unread.push_back((now_ns, request, taken));
            replica.read_until(now_ns.saturating_sub(replica.behind_ns));
        }
        let intact_for_ns =
            self.intact_since_ns.map_or(u64::MAX, |since| now_ns.saturating_sub(since));
        Reply { answer, decided_ns: now_ns, intact_for_ns }
    }

    /// Ends the store. Its replica has read all but the last `loses_ns`, and never reads the
    /// rest.
    pub(super) fn fail(&mut self, now_ns: u64, loses_ns: u64, tally: &mut Tally) {
        let Some(replica) = &mut self.replica else { return };
        replica.read_until(now_ns.saturating_sub(loses_ns));
        let forgotten =
            replica.unread.drain(..).fold(0_u64, |sum, (_, _, taken)| sum.saturating_add(taken));
        tally.counts.forgotten = tally.counts.forgotten.saturating_add(forgotten);
        self.books = replica.books.clone();
    }

    /// Makes the replica the store.
    pub(super) fn take_over(&mut self, now_ns: u64) {
        self.intact_since_ns = Some(now_ns);
    }
}

impl Replica {
    /// Reads the requests up to this instant. Equal requests at equal instants have equal
    /// replies.
    fn read_until(&mut self, until_ns: u64) {
        while let Some(&(at_ns, request, _)) = self.unread.front() {
            if at_ns > until_ns {
                break;
            }
            let _ = self.books.handle(at_ns, request);
            self.unread.pop_front();
        }
    }
}

impl StoreState {
    fn new(plan: &Plan) -> Self {
        let limit = plan.limit_of_store();
        let policy = plan.policy_of_store();
        let ledger = policy.map(|policy| Ledger::new(policy, 0));
        let window_ns = limit.memory_ns();
        let group = Group::new();
        Self {
            limit,
            ledger,
            group,
            usage: UsageWindow { window_ns, inside: VecDeque::new(), sum: 0 },
        }
    }

    /// Returns the result, and the number of permits that it took.
    fn handle(&mut self, now_ns: u64, request: Request) -> (Answer, u64) {
        match request {
            Request::Decide { permits } => self.take(now_ns, permits),
            Request::Debit { units } => {
                let free = self.ledger.as_ref().map_or(0, |ledger| ledger.remaining(now_ns));
                let units = NonZeroU64::new(units.get().min(free)).unwrap_or(NonZeroU64::MIN);
                self.take(now_ns, units)
            }
            Request::Return { receipt, units } => {
                let ledger = self.ledger.as_mut();
                let units = ledger.map_or(0, |ledger| ledger.refund(now_ns, &receipt, units.get()));
                (Answer::Returned { units }, 0)
            }
            Request::Heartbeat(heartbeat) => {
                (Answer::Share(self.group.heartbeat(now_ns, &heartbeat)), 0)
            }
            Request::Peek => {
                (Answer::Free { permits: self.usage.free(now_ns, self.limit.total()) }, 0)
            }
            Request::Record { permits } => {
                self.usage.record(now_ns, permits);
                (Answer::Free { permits: self.usage.free(now_ns, self.limit.total()) }, permits)
            }
        }
    }

    fn take(&mut self, now_ns: u64, permits: NonZeroU64) -> (Answer, u64) {
        let window_ends_in_ns = match self.limit {
            Limit::Window { period_ns, .. } => {
                now_ns.checked_rem(period_ns).map(|into_ns| period_ns.saturating_sub(into_ns))
            }
            _ => None,
        };
        match self.ledger.as_mut().map(|ledger| ledger.try_acquire(now_ns, permits.get())) {
            Some(Ok(Verdict::Granted(receipt))) => {
                (Answer::Granted { units: permits, window_ends_in_ns, receipt }, permits.get())
            }
            Some(Ok(Verdict::Denied(denial))) => {
                (Answer::Denied { retry_after_ns: denial.retry_after_ns }, 0)
            }
            _ => (Answer::Denied { retry_after_ns: None }, 0),
        }
    }
}

impl UsageWindow {
    fn record(&mut self, now_ns: u64, permits: u64) {
        self.inside.push_back((now_ns, permits));
        self.sum = self.sum.saturating_add(permits);
    }

    fn free(&mut self, now_ns: u64, total: u64) -> u64 {
        while let Some(&(at_ns, expired)) = self.inside.front() {
            if now_ns.saturating_sub(at_ns) < self.window_ns {
                break;
            }
            self.sum = self.sum.saturating_sub(expired);
            self.inside.pop_front();
        }
        total.saturating_sub(self.sum)
    }
}
