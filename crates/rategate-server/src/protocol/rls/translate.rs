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
    Answer, Cost, DEFAULT_TTL, Decided, Engine, EngineError, Item, QuotaTerms, Quotas, Request,
    Reserved, Target, UniqueId, Verb, Verdict,
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
    Reserve(Duration),
    /// The end of a reservation, with what was used.
    Commit {
        /// `true` if as much was used as is held, whatever the items say.
        as_held: bool,
    },
    /// The end of a reservation of which nothing was used.
    Cancel,
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
                let costs = items.iter().map(|item| {
                    let permits = (!as_held).then_some(item.permits);
                    Cost { target: item.target, permits, usage: None }
                });
                self.commit(id, &costs.collect::<SmallVec<[_; 2]>>())
            }
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
    /// The reservation has ended otherwise.
    #[error(
        "`rategate.verb`: the reservation has been {0} before, and stays so. Nothing is counted"
    )]
    Ended(&'static str),
}

impl RlsError {
    /// Returns the reason for which the call counts as refused.
    pub(crate) const fn refusal(&self) -> RefusalReason {
        match self {
            Self::MalformedRequest(_) => RefusalReason::Malformed,
            Self::NoToken => RefusalReason::NoToken,
            Self::EngineError(_) | Self::UnknownId | Self::Unavailable | Self::Ended(_) => {
                RefusalReason::EngineError
            }
        }
    }
}

/// An answer of the engine, with the form and the dynamic metadata of its reply.
#[derive(Debug)]
pub(crate) struct RlsAnswer {
    pub(crate) answer: Answer,
    pub(super) metadata: Option<Metadata>,
    pub(super) form: Form,
    /// `true` if the request was not read, since it is too long.
    is_unread: bool,
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
        Self { answer, metadata, form: Form::RateLimit, is_unread: false }
    }

    /// Creates an answer whose reply has a form of its own.
    pub(super) fn of_form(answer: Answer, form: Form) -> Self {
        Self { form, ..Self::new(answer, None) }
    }

    /// Creates the denial of a request that is not read.
    pub(crate) fn unread(form: Form) -> Self {
        Self { is_unread: true, ..Self::of_form(Answer::uncounted_denial(), form) }
    }

    /// Returns the reason for which the call counts as refused, if it does.
    pub(crate) fn refusal(&self) -> Option<RefusalReason> {
        if self.is_unread { Some(RefusalReason::TooLong) } else { self.answer.refusal() }
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
    if options.verbs
        && let Some((stated, descriptors)) = verbs::take_out(&ask.descriptors)?
    {
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
    if stated.ttl.is_some() && stated_verb != StatedVerb::Reserve {
        let problem = "it is of the verb `reserve` alone; leave it out";
        return Err(verbs::wrong(0, verbs::TTL, problem).into());
    }
    let verb = if stated_verb == StatedVerb::Charge { Verb::Charge } else { Verb::Take };
    let Some(id) = stated.id else { return plain(engine, ask, options, verb) };
    let is_unstated = |descriptor: &Descriptor<'_>| descriptor.hits.is_none();
    let as_held = ask.hits == 0 && ask.descriptors.iter().all(is_unstated);
    let operation = match stated_verb {
        StatedVerb::Take | StatedVerb::Charge => Operation::Once(verb),
        StatedVerb::Reserve => Operation::Reserve(stated.ttl.unwrap_or(DEFAULT_TTL)),
        StatedVerb::Commit => Operation::Commit { as_held },
        StatedVerb::Cancel => Operation::Cancel,
    };
    if stated_verb != StatedVerb::Take {
        refuse_credits(&ask.descriptors)?;
    }
    let items: SmallVec<[Item<'_>; 2]> = items(ask, options.quota, verb).collect();
    Ok(operate(engine, id, operation, &items).then(|reserved| Ok(reserved?.answer)))
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
    let is_end = matches!(operation, Operation::Commit { .. } | Operation::Cancel);
    let may_deny = !is_end && operation != Operation::Once(Verb::Charge);
    let reserved = if may_deny { Reserved::or_denied(reserved, 0)? } else { reserved? };
    if is_end && !reserved.answer.allowed {
        let verdicts = reserved.answer.results.iter().map(|result| result.verdict);
        if verdicts.clone().any(|verdict| verdict.is_unavailable()) {
            return Err(RlsError::Unavailable);
        }
        return Err(verdicts
            .into_iter()
            .find_map(why_without_effect)
            .unwrap_or(RlsError::UnknownId));
    }
    Ok(reserved)
}

/// Returns why the end of a reservation has no effect, if the verdict says it.
const fn why_without_effect(verdict: Verdict) -> Option<RlsError> {
    match verdict {
        Verdict::Unknown => Some(RlsError::UnknownId),
        Verdict::Cancelled(_) => Some(RlsError::Ended("cancelled")),
        Verdict::Committed(_) => Some(RlsError::Ended("committed")),
        _ => None,
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
        Item { permits, refund, ..item_of(ask.domain, descriptor, quota) }
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
    Ok(RlsAnswer::new(or_denied(decided.answer().await)?, requested))
}

/// Denies a request that a full table cannot count, without a status for each descriptor.
pub(crate) fn or_denied(answer: Result<Answer, RlsError>) -> Result<Answer, RlsError> {
    match answer {
        Err(RlsError::EngineError(error)) => Ok(Answer::or_denied(Err(error), 0)?),
        answer => answer,
    }
}
