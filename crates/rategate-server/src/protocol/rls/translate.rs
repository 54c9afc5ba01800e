//! Translation of Envoy's requests into requests to the engine.

use std::pin::Pin;
use std::time::Duration;

use rategate::Clock;
use rategate_protocol::rls::{Descriptor, MalformedRequest, Metadata, RlsRequest};
use smallvec::SmallVec;

use super::metadata;
use super::reply::{Form, Options};
use super::verbs::{self, Stated, StatedVerb};
use crate::engine::{
    Answer, Cost, Decided, Engine, EngineError, Item, QuotaTerms, Quotas, Request, Reserved,
    Target, UniqueId, Verb, Verdict,
};
use crate::net::RefusalReason;

/// A decider of requests: the engine, or a stand-in for tests.
pub trait Decide {
    /// Decides a request.
    fn decide(&self, request: &Request<'_>) -> Decided;

    /// Decides an operation under an id. By default there are no such operations.
    fn decide_once(
        &self,
        _id: UniqueId,
        _operation: Operation,
        _items: &[Item<'_>],
    ) -> Decided<Reserved> {
        Decided::Now(Err(EngineError::NotFor("nothing is remembered under an id")))
    }

    /// Returns `true` if denied requests count in the limits where they would fit.
    fn counts_denied(&self) -> bool {
        false
    }

    /// Begins the assignments of a stream for a domain, if any are made.
    fn quotas(&self, _domain: &str, _terms: QuotaTerms) -> Option<Box<dyn Quotas>> {
        None
    }
}

/// An operation under an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A request that counts once.
    Once(Verb),
    /// A reservation that ends by itself after this time.
    Reserve(Option<Duration>),
    /// The end of a reservation, with what was used.
    Commit {
        /// The items of which as much was used as is held, whatever they say: bit *n* for item *n*.
        as_held: u64,
    },
    /// The end of a reservation, or a charge of what was used if none has the id.
    CommitOrCharge,
    /// The end of a reservation of which nothing was used.
    Cancel,
}

impl Operation {
    const fn is_commit(self) -> bool {
        matches!(self, Self::Commit { .. } | Self::CommitOrCharge)
    }
}

impl<C: Clock + Clone + 'static> Decide for Engine<C> {
    fn decide(&self, request: &Request<'_>) -> Decided {
        Self::decide(self, request)
    }

    fn decide_once(
        &self,
        id: UniqueId,
        operation: Operation,
        items: &[Item<'_>],
    ) -> Decided<Reserved> {
        match operation {
            Operation::Once(verb) => {
                let counts_denied = self.counts_denied();
                self.once(id, &Request { verb, items, counts_denied })
            }
            Operation::Reserve(ttl) => self.reserve(id, ttl, items),
            Operation::Commit { as_held } => {
                let costs = items.iter().zip(0..).map(|(item, nth)| {
                    let is_as_held = as_held.checked_shr(nth).is_some_and(|bits| bits & 1 == 1);
                    let permits = (!is_as_held).then_some(item.permits);
                    Cost { target: item.target, permits, usage: None }
                });
                self.commit(id, &costs.collect::<SmallVec<[_; 2]>>())
            }
            Operation::CommitOrCharge => self.commit_or_charge(id, items),
            Operation::Cancel => {
                let targets = items.iter().map(|item| item.target);
                self.cancel(id, &targets.collect::<SmallVec<[_; 2]>>())
            }
        }
    }

    fn counts_denied(&self) -> bool {
        self.settings().count_denied
    }

    fn quotas(&self, domain: &str, terms: QuotaTerms) -> Option<Box<dyn Quotas>> {
        Some(Self::quotas(self, domain, terms))
    }
}

/// The reason why a request has no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RlsError {
    /// The request is invalid.
    #[error("{0}")]
    MalformedRequest(#[from] MalformedRequest),
    /// The rules admit no such time or maximum of a reservation.
    #[error("{0}")]
    OfRules(MalformedRequest),
    /// The engine cannot decide it.
    #[error("{0}")]
    EngineError(#[from] EngineError),
    /// The request credits permits, and the call does not show the token.
    #[error("the token is needed to credit permits")]
    NoToken,
    /// No reservation has the id.
    #[error(
        "`rategate.id`: no reservation has this id; it never had one, or ended long ago. Nothing \
         is counted; charge what was used"
    )]
    UnknownId,
    /// A store did not reply to a part of the end.
    #[error(
        "the store is unavailable, so not all is settled; send the same again: what is settled \
         counts once"
    )]
    Unavailable,
    /// The end of a reservation has settled some of its descriptors, and has no effect on others.
    #[error(
        "`rategate.id`: {settled} of the call's descriptors are settled, and counted once however \
         often this is sent. Nothing is counted of the others: {}. Charge what was used of those \
         alone, under another id",
        others.join(", ")
    )]
    PartlySettled {
        /// The number of descriptors that are settled.
        settled: usize,
        /// The others, by their index from 0, and why.
        others: Vec<String>,
    },
    /// The reservation has ended otherwise.
    #[error(
        "`rategate.verb`: the reservation has been {0} before, and stays so. Nothing is counted"
    )]
    Ended(&'static str),
}

impl RlsError {
    /// Names the part of the call that states the time or the maximum of a reservation, if the
    /// error is about one of them.
    pub(super) fn named(self, ttl: impl FnOnce(String) -> MalformedRequest) -> Self {
        match self {
            Self::EngineError(error @ EngineError::Ttl { .. }) => {
                Self::OfRules(ttl(error.to_string()))
            }
            Self::EngineError(error @ EngineError::AtMost { item, .. }) => {
                Self::OfRules(verbs::wrong(item, verbs::AT_MOST, &error.to_string()))
            }
            error => error,
        }
    }

    /// Returns the reason for which the call counts as refused.
    pub(crate) const fn refusal(&self) -> RefusalReason {
        match self {
            Self::MalformedRequest(_) => RefusalReason::Malformed,
            Self::NoToken => RefusalReason::NoToken,
            Self::EngineError(error) => error.refusal(),
            Self::OfRules(_)
            | Self::UnknownId
            | Self::Unavailable
            | Self::PartlySettled { .. }
            | Self::Ended(_) => RefusalReason::EngineError,
        }
    }
}

/// An answer of the engine, with the form and the dynamic metadata of its reply.
#[derive(Debug)]
pub(crate) struct RlsAnswer {
    pub(crate) answer: Answer,
    pub(super) metadata: Option<Metadata>,
    pub(super) form: Form,
    /// The reason for which it was denied without a decision, unless the parts of the answer say
    /// it.
    refusal: Option<RefusalReason>,
}

/// An answer that arrives after a store has replied.
pub(crate) type LaterAnswer = Pin<Box<dyn Future<Output = Result<RlsAnswer, RlsError>> + Send>>;

impl RlsAnswer {
    /// Creates an answer to a request, of which the reply states `requested`.
    pub(crate) fn new(answer: Answer, requested: Option<Metadata>) -> Self {
        let metadata = requested.map(|mut metadata| {
            metadata::add_rules(&mut metadata, &answer);
            metadata
        });
        Self { answer, metadata, form: Form::RateLimit, refusal: None }
    }

    /// Creates an answer whose reply has a form of its own.
    pub(super) fn of_form(answer: Answer, form: Form) -> Self {
        Self { form, ..Self::new(answer, None) }
    }

    /// Creates the denial of a request that is not read.
    pub(crate) fn unread(form: Form) -> Self {
        let refusal = Some(RefusalReason::TooLong);
        Self { refusal, ..Self::of_form(Answer::uncounted_denial(), form) }
    }

    /// Returns the reason for which the call counts as refused, if it does.
    pub(crate) fn refusal(&self) -> Option<RefusalReason> {
        self.refusal.or_else(|| self.answer.refusal())
    }

    /// Creates the denial of a request that cannot be counted, since a table is full or too many
    /// reservations are known; without a status for each descriptor. The reply states `requested`.
    ///
    /// # Errors
    ///
    /// Any other error, unchanged.
    pub(crate) fn or_denied(
        answer: Result<Answer, RlsError>,
        requested: Option<Metadata>,
    ) -> Result<Self, RlsError> {
        let (answer, refusal) = match answer {
            Err(RlsError::EngineError(error)) => {
                let is_of_ids = matches!(error, EngineError::TooManyReservations { .. });
                let refusal = is_of_ids.then(|| error.refusal());
                (Answer::or_denied(Err(error), 0)?, refusal)
            }
            answer => (answer?, None),
        };
        Ok(Self { refusal, ..Self::new(answer, requested) })
    }
}

/// Submits a request to the engine. The parts of the reply match the descriptors, in their order.
///
/// # Errors
///
/// [`RlsError`] at once, for an invalid request. Errors of decisions are in [`Decided`].
pub fn ask(
    engine: &impl Decide,
    ask: &RlsRequest<'_>,
    options: &Options,
) -> Result<Decided<Answer, RlsError>, RlsError> {
    ask_for(engine, ask, options, Verb::Take)
}

/// Submits a request whose method has this verb. A peek asks for room for one permit.
pub(super) fn ask_for(
    engine: &impl Decide,
    ask: &RlsRequest<'_>,
    options: &Options,
    verb: Verb,
) -> Result<Decided<Answer, RlsError>, RlsError> {
    check(ask.domain, &ask.descriptors)?;
    let taken = verbs::take_out(ask.domain, &ask.descriptors, options)?;
    if let Some((stated, descriptors)) = taken {
        let ask = RlsRequest { descriptors, ..*ask };
        return ask_stated(engine, &ask, options, verb, stated);
    }
    plain(engine, ask, options, verb)
}

/// Checks that a request has a domain and descriptors.
pub(super) fn check(domain: &str, descriptors: &[Descriptor<'_>]) -> Result<(), MalformedRequest> {
    if domain.is_empty() {
        return Err(MalformedRequest::NoDomain);
    }
    if descriptors.is_empty() {
        return Err(MalformedRequest::NoDescriptors);
    }
    Ok(())
}

/// Submits a request without an id.
fn plain(
    engine: &impl Decide,
    ask: &RlsRequest<'_>,
    options: &Options,
    verb: Verb,
) -> Result<Decided<Answer, RlsError>, RlsError> {
    let items: SmallVec<[Item<'_>; 2]> = items(ask, options.quota, verb).collect();
    if verb == Verb::Charge {
        refuse_credits(&ask.descriptors)?;
    }
    let request = Request { verb, items: &items, counts_denied: engine.counts_denied() };
    Ok(engine.decide(&request).then(|answer| Ok(answer?)))
}

/// Submits a request that states an operation.
fn ask_stated(
    engine: &impl Decide,
    ask: &RlsRequest<'_>,
    options: &Options,
    verb: Verb,
    stated: Stated,
) -> Result<Decided<Answer, RlsError>, RlsError> {
    let stated_verb = match (verb, stated.verb) {
        (Verb::Take, None) => StatedVerb::Take,
        (Verb::Take, Some(stated)) => stated,
        // Nothing is remembered of a peek.
        (Verb::Peek, None | Some(StatedVerb::Take)) => return plain(engine, ask, options, verb),
        (Verb::Charge, None | Some(StatedVerb::Charge)) => StatedVerb::Charge,
        _ => {
            let problem = "the method has a verb of its own; send it to ShouldRateLimit";
            return Err(verbs::wrong(0, verbs::VERB, problem).into());
        }
    };
    let of_reserve =
        [(verbs::TTL, stated.ttl.is_some()), (verbs::AT_MOST, stated.at_most.is_some())];
    for (part, _) in of_reserve.into_iter().filter(|(_, is_stated)| *is_stated) {
        if stated_verb != StatedVerb::Reserve {
            return Err(verbs::wrong(0, part, verbs::OF_RESERVE).into());
        }
    }
    let verb = if stated_verb == StatedVerb::Charge { Verb::Charge } else { Verb::Take };
    let Some(id) = stated.id else { return plain(engine, ask, options, verb) };
    let without_hits = ask.descriptors.iter().zip(0..).filter_map(|(descriptor, nth)| {
        let is_unstated = ask.hits == 0 && descriptor.hits.is_none();
        is_unstated.then(|| 1_u64.checked_shl(nth)).flatten()
    });
    let as_held = without_hits.fold(0, |all, bit| all | bit);
    let operation = match stated_verb {
        StatedVerb::Take | StatedVerb::Charge => Operation::Once(verb),
        StatedVerb::Reserve => Operation::Reserve(stated.ttl),
        StatedVerb::Commit => Operation::Commit { as_held },
        StatedVerb::Cancel => Operation::Cancel,
    };
    if stated_verb != StatedVerb::Take {
        refuse_credits(&ask.descriptors)?;
    }
    let items = items(ask, options.quota, verb);
    let items: SmallVec<[Item<'_>; 2]> =
        items.map(|item| Item { at_most: stated.at_most, ..item }).collect();
    Ok(operate(engine, id, operation, &items).then(|reserved| {
        let named =
            reserved.map_err(|error| error.named(|problem| verbs::wrong(0, verbs::TTL, &problem)));
        Ok(named?.answer)
    }))
}

/// Decides an operation under an id. An end without an effect is [`RlsError::UnknownId`] or
/// [`RlsError::Ended`].
pub(super) fn operate(
    engine: &impl Decide,
    id: UniqueId,
    operation: Operation,
    items: &[Item<'_>],
) -> Decided<Reserved, RlsError> {
    engine.decide_once(id, operation, items).then(move |reserved| operated(operation, reserved))
}

/// Returns the outcome of an operation under an id.
fn operated(
    operation: Operation,
    reserved: Result<Reserved, EngineError>,
) -> Result<Reserved, RlsError> {
    let is_end = operation.is_commit() || operation == Operation::Cancel;
    let reserved = reserved?;
    if is_end && !reserved.answer.allowed {
        let verdicts = reserved.answer.results.iter().map(|result| result.verdict);
        if verdicts.clone().any(|verdict| verdict.is_unavailable()) {
            return Err(RlsError::Unavailable);
        }
        return Err(without_effect(operation, &verdicts.collect::<SmallVec<[_; 2]>>()));
    }
    Ok(reserved)
}

/// Returns why the end of a reservation has no effect, or an effect on some of its descriptors.
fn without_effect(operation: Operation, verdicts: &[Verdict]) -> RlsError {
    let others = verdicts.iter().enumerate();
    let others = others.filter_map(|(index, verdict)| {
        let why = match (operation, verdict) {
            (_, Verdict::Unknown) => "no reservation of it has the id",
            (operation, Verdict::Cancelled(_)) if operation.is_commit() => {
                "it has been cancelled before"
            }
            (Operation::Cancel, Verdict::Committed(_)) => "it has been committed before",
            _ => return None,
        };
        Some(format!("descriptor {index}, {why}"))
    });
    let others: Vec<String> = others.collect();
    // What no rule limits is neither settled nor another.
    let is_settled = |verdict: &&Verdict| match verdict {
        Verdict::Committed(_) => operation.is_commit(),
        Verdict::Cancelled(_) => operation == Operation::Cancel,
        verdict => matches!(verdict, Verdict::Late(_)),
    };
    match verdicts.iter().filter(is_settled).count() {
        0 => {
            let first = |verdict: &&Verdict| {
                matches!(verdict, Verdict::Unknown | Verdict::Cancelled(_) | Verdict::Committed(_))
            };
            match verdicts.iter().find(first) {
                Some(Verdict::Cancelled(_)) => RlsError::Ended("cancelled"),
                Some(Verdict::Committed(_)) => RlsError::Ended("committed"),
                _ => RlsError::UnknownId,
            }
        }
        settled => RlsError::PartlySettled { settled, others },
    }
}

/// Refuses negative hits where only a take has them.
pub(super) fn refuse_credits(descriptors: &[Descriptor<'_>]) -> Result<(), MalformedRequest> {
    match descriptors.iter().position(|descriptor| descriptor.refund) {
        Some(index) => {
            let problem = "permits are credited by ShouldRateLimit without another verb";
            Err(verbs::wrong(index, "is_negative_hits", problem))
        }
        None => Ok(()),
    }
}

fn items<'a>(ask: &'a RlsRequest<'_>, quota: bool, verb: Verb) -> impl Iterator<Item = Item<'a>> {
    let hits = u64::from(ask.hits.max(1));
    ask.descriptors.iter().map(move |descriptor| {
        let (permits, refund) = match verb {
            Verb::Peek => (1, false),
            _ => (descriptor.hits.unwrap_or(hits), descriptor.refund),
        };
        let admits = verb == Verb::Peek;
        Item { permits, refund, admits, ..item_of(ask.domain, descriptor, quota) }
    })
}

/// Returns an item of no permits.
pub(super) fn item_of<'a>(
    domain: &'a str,
    descriptor: &'a Descriptor<'_>,
    quota: bool,
) -> Item<'a> {
    let (entries, limit) = (&*descriptor.entries, descriptor.limit);
    let target = Target::Descriptor { domain, entries, limit };
    Item { quota, ..Item::of(target, 0) }
}

/// Waits for the decision, which a store may delay. The reply states `requested`.
///
/// # Errors
///
/// [`RlsError`].
pub(crate) async fn answered(
    decided: Decided<Answer, RlsError>,
    requested: Option<Metadata>,
) -> Result<RlsAnswer, RlsError> {
    RlsAnswer::or_denied(decided.answer().await, requested)
}

#[cfg(test)]
mod tests {
    use rategate::charge::Settled;

    use super::*;
    use crate::engine::ItemResult;

    fn ended(operation: Operation, verdicts: &[Verdict]) -> RlsError {
        let result = |&verdict: &Verdict| ItemResult { verdict, ..ItemResult::WITHOUT_CAPACITY };
        let answer = Answer { allowed: false, results: verdicts.iter().map(result).collect() };
        let reserved = Reserved { answer, is_repeated: false, ends_after_ns: None };
        operated(operation, Ok(reserved)).unwrap_err()
    }

    /// A caller that is told that nothing is known charges all of it: what is settled would count
    /// twice.
    #[test]
    fn an_end_with_an_effect_on_some_descriptors_says_so() {
        let commit = Operation::Commit { as_held: 0 };
        let even = Verdict::Committed(Settled::Even);
        let mixed = ended(commit, &[even, Verdict::Unknown, Verdict::Late(3)]);
        let RlsError::PartlySettled { settled: 2, others } = &mixed else { panic!("{mixed:?}") };
        assert_eq!(others, &["descriptor 1, no reservation of it has the id"]);
        assert!(mixed.to_string().contains("2 of the call's descriptors are settled"));
        let mixed = ended(commit, &[Verdict::Cancelled(1), even]);
        assert!(matches!(mixed, RlsError::PartlySettled { settled: 1, .. }), "{mixed:?}");
        let mixed = ended(Operation::Cancel, &[Verdict::Cancelled(1), even]);
        assert!(matches!(mixed, RlsError::PartlySettled { settled: 1, .. }), "{mixed:?}");
        let unavailable = Verdict::Unavailable { admitted: false, retry_after_ns: None };
        assert_eq!(ended(commit, &[even, unavailable, Verdict::Unknown]), RlsError::Unavailable);
        assert_eq!(ended(commit, &[Verdict::Unknown; 2]), RlsError::UnknownId);
        assert_eq!(ended(commit, &[Verdict::Cancelled(2)]), RlsError::Ended("cancelled"));
        assert_eq!(ended(Operation::Cancel, &[even]), RlsError::Ended("committed"));
        let neither = ended(commit, &[Verdict::Unknown, Verdict::Cancelled(2)]);
        assert_eq!(neither, RlsError::UnknownId);
        // What no rule limits is not settled.
        let unlimited = ended(commit, &[Verdict::Unmatched, Verdict::Unknown]);
        assert_eq!(unlimited, RlsError::UnknownId);
        let unlimited = ended(commit, &[Verdict::Unmatched, Verdict::Cancelled(2)]);
        assert_eq!(unlimited, RlsError::Ended("cancelled"));
    }
}
