//! Translation of Envoy's requests into requests to the engine.

use smallvec::SmallVec;

use super::decide::{Decide, Operation};
use super::error::RlsError;
use super::reply::Options;
use super::request::{Descriptor, MalformedRequest, RlsRequest};
use super::verbs::{self, Stated, StatedVerb};
use crate::engine::{
    Answer, Decided, EngineError, Item, Request, Reserved, Target, UniqueId, Verb, Verdict,
};

/// Submits a request to the engine. The parts of the reply match the descriptors, in their order.
///
/// # Errors
///
/// [`RlsError`] at once, for an invalid request. Errors of decisions are in [`Decided`].
pub fn ask(
    engine: &(impl Decide + ?Sized),
    ask: &RlsRequest<'_>,
    options: &Options,
) -> Result<Decided<Answer, RlsError>, RlsError> {
    if ask.domain.is_empty() {
        return Err(MalformedRequest::NoDomain.into());
    }
    if ask.descriptors.is_empty() {
        return Err(MalformedRequest::NoDescriptors.into());
    }
    let taken = verbs::take_out(ask.domain, &ask.descriptors, options)?;
    if let Some((stated, descriptors)) = taken {
        let ask = RlsRequest { descriptors, ..*ask };
        return ask_stated(engine, &ask, options, stated);
    }
    plain(engine, ask, options, Verb::Take)
}

/// Submits a request without an id.
fn plain(
    engine: &(impl Decide + ?Sized),
    ask: &RlsRequest<'_>,
    options: &Options,
    verb: Verb,
) -> Result<Decided<Answer, RlsError>, RlsError> {
    let items: SmallVec<[Item<'_>; 2]> = items(ask, options.quota).collect();
    if verb == Verb::Charge {
        refuse_credits(&ask.descriptors)?;
    }
    let request = Request { verb, items: &items, counts_denied: engine.counts_denied() };
    Ok(engine.decide(&request).then(|answer| Ok(answer?)))
}

/// Submits a request that states an operation.
fn ask_stated(
    engine: &(impl Decide + ?Sized),
    ask: &RlsRequest<'_>,
    options: &Options,
    stated: Stated,
) -> Result<Decided<Answer, RlsError>, RlsError> {
    let stated_verb = stated.verb.unwrap_or(StatedVerb::Take);
    if stated.ttl.is_some() && stated_verb != StatedVerb::Reserve {
        return Err(verbs::wrong(0, verbs::TTL, verbs::OF_RESERVE).into());
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
    let items: SmallVec<[Item<'_>; 2]> = items(ask, options.quota).collect();
    Ok(operate(engine, id, operation, &items).then(|reserved| {
        let named =
            reserved.map_err(|error| error.named(|problem| verbs::wrong(0, verbs::TTL, &problem)));
        Ok(named?.answer)
    }))
}

/// Decides an operation under an id. An end without an effect is [`RlsError::UnknownId`] or
/// [`RlsError::Ended`].
fn operate(
    engine: &(impl Decide + ?Sized),
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
fn refuse_credits(descriptors: &[Descriptor<'_>]) -> Result<(), MalformedRequest> {
    match descriptors.iter().position(|descriptor| descriptor.refund) {
        Some(index) => {
            let problem = "permits are credited by ShouldRateLimit without another verb";
            Err(verbs::wrong(index, "is_negative_hits", problem))
        }
        None => Ok(()),
    }
}

fn items<'a>(ask: &'a RlsRequest<'_>, quota: bool) -> impl Iterator<Item = Item<'a>> {
    let hits = u64::from(ask.hits.max(1));
    ask.descriptors.iter().map(move |descriptor| {
        let (entries, limit) = (&*descriptor.entries, descriptor.limit);
        let target = Target::Descriptor { domain: ask.domain, entries, limit };
        let permits = descriptor.hits.unwrap_or(hits);
        Item { quota, refund: descriptor.refund, ..Item::of(target, permits) }
    })
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
