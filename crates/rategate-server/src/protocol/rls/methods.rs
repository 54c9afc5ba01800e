//! The methods of Envoy's service and of Kuadrant's: a message becomes an answer, whose reply has
//! the form of the method.
//!
//! * `ShouldRateLimit` takes. `CheckRateLimit` asks for room for one permit and takes nothing.
//!   `Report` charges what was used.
//! * `Reserve` holds an estimate of each descriptor, or of none, under an id that the service
//!   draws.
//! * `Commit` ends that with what was used. Sent again, it counts once. Without an id, or under one
//!   that is not known, it charges what was used; the latter once, too, also in a store.

use rategate_protocol::kuadrant::{CommitRequest, ReserveRequest};
use rategate_protocol::rls::{Descriptor, MalformedRequest, RlsRequest};
use smallvec::SmallVec;

use super::answer::{LaterAnswer, RlsAnswer, answered};
use super::decide::{Decide, Operation};
use super::error::RlsError;
use super::reply::{Form, Options};
use super::translate::{self, ask_for, item_of, operate, refuse_credits};
use super::verbs::{self, Descriptors, Stated, StatedVerb};
use crate::engine::{Decided, Item, Request, UniqueId, Verb, Verdict};

/// A method that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RlsMethod {
    ShouldRateLimit,
    CheckRateLimit,
    Report,
    Reserve,
    Commit,
}

/// An answer that is available now, or after a store has replied.
pub(crate) enum RlsDecided {
    Now(RlsAnswer),
    Later(LaterAnswer),
}

impl RlsDecided {
    fn of(decided: Decided<RlsAnswer, RlsError>) -> Result<Self, RlsError> {
        match decided {
            Decided::Now(answer) => answer.map(Self::Now),
            Decided::Later(answer) => Ok(Self::Later(answer)),
        }
    }
}

impl RlsMethod {
    /// Returns the denial of a request that is too long to be read, for the methods whose callers
    /// may admit requests on errors.
    pub(crate) fn unread(self) -> Option<RlsAnswer> {
        match self {
            Self::ShouldRateLimit | Self::CheckRateLimit => {
                Some(RlsAnswer::unread(Form::RateLimit))
            }
            Self::Reserve => Some(RlsAnswer::unread(Form::Reserved(None))),
            Self::Report | Self::Commit => None,
        }
    }

    /// Answers a message. `may_credit` is `true` if it may credit permits.
    pub(crate) fn answer(
        self,
        engine: &impl Decide,
        message: &[u8],
        options: &Options,
        may_credit: bool,
    ) -> Result<RlsDecided, RlsError> {
        let answered = match self {
            Self::ShouldRateLimit => rate_limit(engine, message, options, Verb::Take, may_credit),
            Self::CheckRateLimit => rate_limit(engine, message, options, Verb::Peek, may_credit),
            Self::Report => rate_limit(engine, message, options, Verb::Charge, may_credit),
            Self::Reserve => reserve(engine, message, options),
            Self::Commit => commit(engine, message, options),
        };
        match (answered, self.unread()) {
            (Err(RlsError::MalformedRequest(MalformedRequest::TooMany { .. })), Some(denial)) => {
                Ok(RlsDecided::Now(denial))
            }
            (answered, _) => answered,
        }
    }
}

/// Answers a `RateLimitRequest`.
fn rate_limit(
    engine: &impl Decide,
    message: &[u8],
    options: &Options,
    verb: Verb,
    may_credit: bool,
) -> Result<RlsDecided, RlsError> {
    let ask = RlsRequest::read(message)?;
    if !may_credit && ask.credits() {
        return Err(RlsError::NoToken);
    }
    let requested = options.requested(&ask);
    match ask_for(engine, &ask, options, verb)? {
        Decided::Now(answer) => Ok(RlsDecided::Now(RlsAnswer::or_denied(answer, requested)?)),
        later @ Decided::Later(_) => Ok(RlsDecided::Later(Box::pin(answered(later, requested)))),
    }
}

/// Answers a `ReserveRequest`.
fn reserve(
    engine: &impl Decide,
    message: &[u8],
    options: &Options,
) -> Result<RlsDecided, RlsError> {
    let request = ReserveRequest::read(message)?;
    let (stated, descriptors) =
        stated(request.domain, request.descriptors, options, StatedVerb::Reserve)?;
    let ttl = request.ttl.or(stated.ttl);
    let id = stated.id.unwrap_or_else(UniqueId::random);
    let mut items = items(request.domain, &descriptors, request.amount, options);
    items.iter_mut().for_each(|item| item.at_most = stated.at_most);
    let reserved = operate(engine, id, Operation::Reserve(ttl), &items);
    RlsDecided::of(reserved.then(move |reserved| {
        let ttl = |problem| MalformedRequest::Field { field: "ttl", problem };
        let answer = reserved.map(|reserved| reserved.answer).map_err(|error| error.named(ttl));
        let mut answer = RlsAnswer::or_denied(answer, None)?;
        answer.form = Form::Reserved(Some(id).filter(|_| answer.answer.allowed));
        Ok(answer)
    }))
}

/// Answers a `CommitRequest`.
fn commit(engine: &impl Decide, message: &[u8], options: &Options) -> Result<RlsDecided, RlsError> {
    let request = CommitRequest::read(message)?;
    let (stated, descriptors) =
        stated(request.domain, request.descriptors, options, StatedVerb::Commit)?;
    let id = match request.reservation_id {
        "" => stated.id,
        text => Some(verbs::id_of(text.as_bytes()).ok_or_else(|| MalformedRequest::Field {
            field: "reservation_id",
            problem: verbs::not_an_id(),
        })?),
    };
    let items = items(request.domain, &descriptors, request.actual_amount, options);
    let Some(id) = id else { return charge(engine, &items) };
    let committed = operate(engine, id, Operation::CommitOrCharge, &items);
    RlsDecided::of(committed.then(|committed| {
        let answer = committed?.answer;
        let mut verdicts = answer.results.iter().map(|result| result.verdict);
        let is_charged = |verdict| matches!(verdict, Verdict::Late(_) | Verdict::Charged(_));
        let released = !verdicts.any(is_charged);
        Ok(RlsAnswer::of_form(answer, Form::Committed { released }))
    }))
}

/// Charges what was used without a reservation.
fn charge(engine: &impl Decide, items: &[Item<'_>]) -> Result<RlsDecided, RlsError> {
    let form = Form::Committed { released: false };
    let request = Request { verb: Verb::Charge, items, counts_denied: false };
    RlsDecided::of(
        engine.decide(&request).then(move |answer| Ok(RlsAnswer::of_form(answer?, form))),
    )
}

/// Checks the descriptors of a method with a verb of its own, and takes out what they state.
fn stated<'a>(
    domain: &str,
    descriptors: Descriptors<'a>,
    options: &Options,
    own: StatedVerb,
) -> Result<(Stated, Descriptors<'a>), RlsError> {
    translate::check(domain, &descriptors)?;
    refuse_credits(&descriptors)?;
    match verbs::take_out(domain, &descriptors, options)? {
        Some((stated, _)) if stated.verb.is_some_and(|verb| verb != own) => {
            let problem = "the method has a verb of its own; send it to ShouldRateLimit";
            Err(verbs::wrong(0, verbs::VERB, problem).into())
        }
        Some(taken) => Ok(taken),
        None => Ok((Stated::default(), descriptors)),
    }
}

/// Returns items of the same number of permits.
fn items<'a>(
    domain: &'a str,
    descriptors: &'a [Descriptor<'_>],
    permits: u64,
    options: &Options,
) -> SmallVec<[Item<'a>; 2]> {
    let quota = options.quota;
    let item = |descriptor| Item { permits, ..item_of(domain, descriptor, quota) };
    descriptors.iter().map(item).collect()
}
