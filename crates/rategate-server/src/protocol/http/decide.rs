//! Translation of JSON requests into requests to the engine, and of its errors.

use rategate::Clock;
use smallvec::{SmallVec, smallvec};

use super::asked::{Asked, AskedItem, Counter, Verb};
use super::invalid::Invalid;
use super::json::{Key, Pairs};
use super::problem::Refused;
use crate::engine::{
    self, Answer, Decided, Engine, Fault, Item, Lease, LeaseName, LeaseVerb, Request, Target,
};

/// A result of the engine, with additions for the reply.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) answer: Answer,
    /// The number of permits taken of each item, for requests that accept fewer.
    pub(super) taken: Option<u64>,
    /// The name of the lease of the request.
    pub(super) lease: Option<LeaseName>,
}

/// The maximum number of tries to take fewer permits while other callers take them.
const MOST_TRIES: usize = 4;

/// Decides a request.
pub(super) async fn decide<C>(engine: &Engine<C>, asked: &Asked<'_>) -> Result<Outcome, Refused>
where
    C: Clock + Clone + 'static,
{
    let verb = match asked.verb {
        Verb::Take if asked.at_most => return take_at_most(engine, asked).await,
        Verb::Take => engine::Verb::Take,
        Verb::Peek => engine::Verb::Peek,
        Verb::Refund => engine::Verb::Refund,
        Verb::Reset => engine::Verb::Reset,
        Verb::Lease => return lease(engine, asked, LeaseVerb::Take).await,
        Verb::Renew => return lease(engine, asked, LeaseVerb::Renew).await,
        Verb::Release => return lease(engine, asked, LeaseVerb::Release).await,
    };
    let answer = answered(ask(engine, asked, verb, None)?, asked).await?;
    Ok(Outcome { answer, taken: None, lease: None })
}

/// Waits for the decision. Where a full table cannot count a request, taking is denied. A credit
/// grants nothing, so its error is reported.
async fn answered(decided: Decided, asked: &Asked<'_>) -> Result<Answer, Refused> {
    let answer = decided.answer().await;
    let answer = match asked.verb {
        Verb::Take | Verb::Peek | Verb::Lease => Answer::or_denied(answer, asked.items.len()),
        Verb::Refund | Verb::Reset | Verb::Renew | Verb::Release => answer,
    };
    answer.map_err(|fault| refused(fault, asked))
}

/// Takes as many permits as available: the same number of each item, and at most the smallest
/// number requested.
async fn take_at_most<C>(engine: &Engine<C>, asked: &Asked<'_>) -> Result<Outcome, Refused>
where
    C: Clock + Clone + 'static,
{
    let mut permits = asked.items.iter().map(|item| item.permits).min().unwrap_or(0);
    let mut tries = 1_usize;
    loop {
        let decided = ask(engine, asked, engine::Verb::Take, Some(permits))?;
        let answer = answered(decided, asked).await?;
        let over = answer.parts.iter().filter(|part| part.verdict.is_over());
        let fewer = over.filter_map(|part| part.remaining).min().unwrap_or(0);
        if answer.allowed || fewer == 0 || tries >= MOST_TRIES {
            let taken = if answer.allowed { permits } else { 0 };
            return Ok(Outcome { answer, taken: Some(taken), lease: None });
        }
        permits = fewer.min(permits.saturating_sub(1));
        tries = tries.saturating_add(1);
    }
}

/// Takes, renews or releases the lease of one rule.
async fn lease<C>(
    engine: &Engine<C>,
    asked: &Asked<'_>,
    verb: LeaseVerb,
) -> Result<Outcome, Refused>
where
    C: Clock + Clone + 'static,
{
    let name = asked.lease.unwrap_or_else(|| engine.new_lease());
    let decided = match asked.items.as_slice() {
        [item @ AskedItem { counter: Counter::Rule { name: rule, .. }, permits }] => {
            let parts = parts_of(engine, item, || asked.pointer(0))?;
            let values = if let Parts::Values(values) = &parts { values.as_slice() } else { &[] };
            engine.lease(verb, &Lease { name, rule: &rule.0, values, permits: *permits })
        }
        // Parsing refuses such requests.
        _ => Decided::Now(Err(Fault::NotFor("a lease is of one rule"))),
    };
    let answer = answered(decided, asked).await?;
    Ok(Outcome { answer, taken: None, lease: Some(name) })
}

/// The names and values of an item, in the engine's form.
enum Parts<'a> {
    Values(SmallVec<[&'a [u8]; 2]>),
    Entries(SmallVec<[(&'a [u8], &'a [u8]); 2]>),
    None,
}

/// Submits all items, each with its own permits or with the given number.
fn ask<C>(
    engine: &Engine<C>,
    asked: &Asked<'_>,
    verb: engine::Verb,
    permits: Option<u64>,
) -> Result<Decided, Refused>
where
    C: Clock + Clone + 'static,
{
    if let ([item], engine::Verb::Take | engine::Verb::Peek) = (asked.items.as_slice(), verb)
        && let Counter::Inline { limit, key } = &item.counter
    {
        let permits = permits.unwrap_or(item.permits);
        let part = engine.inline(*limit, &key.0, verb, permits);
        return Ok(Decided::Now(
            part.map(|part| Answer { allowed: !part.verdict.is_over(), parts: smallvec![part] }),
        ));
    }
    let mut parts = SmallVec::<[Parts<'_>; 1]>::new();
    for (place, item) in asked.items.iter().enumerate() {
        parts.push(parts_of(engine, item, || asked.pointer(place))?);
    }
    let items = asked.items.iter().zip(&parts).map(|(item, parts)| {
        let target = match (&item.counter, parts) {
            (Counter::Rule { name, .. }, Parts::Values(values)) => {
                Target::Rule { name: &name.0, values }
            }
            (Counter::Rule { name, .. }, _) => Target::Rule { name: &name.0, values: &[] },
            (Counter::Descriptor { domain, .. }, Parts::Entries(entries)) => {
                Target::Descriptor { domain: &domain.0, entries, limit: None }
            }
            (Counter::Descriptor { domain, .. }, _) => {
                Target::Descriptor { domain: &domain.0, entries: &[], limit: None }
            }
            (Counter::Inline { limit, key }, _) => Target::Inline { limit: *limit, key: &key.0 },
        };
        Item::of(target, permits.unwrap_or(item.permits))
    });
    let items: SmallVec<[Item<'_>; 1]> = items.collect();
    Ok(engine.decide(&Request { verb, items: &items, counts_denied: false }))
}

fn parts_of<'a, C>(
    engine: &Engine<C>,
    item: &'a AskedItem<'_>,
    pointer: impl Fn() -> String,
) -> Result<Parts<'a>, Refused>
where
    C: Clock + Clone + 'static,
{
    Ok(match &item.counter {
        Counter::Rule { key: Some(Key::One(value)), .. } => Parts::Values(smallvec![&*value.0]),
        Counter::Rule { key: Some(Key::Many(values)), .. } => {
            Parts::Values(values.iter().map(|value| &*value.0).collect())
        }
        Counter::Rule { name, key: Some(Key::Named(named)) } => {
            Parts::Values(in_order(engine, &name.0, named, pointer)?)
        }
        Counter::Descriptor { entries, .. } => {
            let pairs = entries.iter().map(|(name, value)| (name.0.as_bytes(), &*value.0));
            Parts::Entries(pairs.collect())
        }
        Counter::Rule { key: None, .. } | Counter::Inline { .. } => Parts::None,
    })
}

/// Returns values that are given by name in the order of the rule's entries.
fn in_order<'a, C>(
    engine: &Engine<C>,
    name: &str,
    named: &'a Pairs<'_>,
    pointer: impl Fn() -> String,
) -> Result<SmallVec<[&'a [u8]; 2]>, Refused>
where
    C: Clock + Clone + 'static,
{
    let Some(rule) = engine.rule_named(name) else {
        let fault = engine.no_such_rule(name);
        let pointer = if fault == Fault::NotLoaded { String::new() } else { pointer() + "/rule" };
        return Err(Refused::Fault(fault, pointer));
    };
    let entries = || rule.entries.iter().filter(|entry| entry.value.varies());
    let find = |key: &str| named.iter().find(|(name, _)| name.0 == key);
    let values = entries().map(|entry| find(&entry.key).map(|(_, value)| &*value.0));
    match values.collect::<Option<SmallVec<_>>>() {
        Some(values) if values.len() == named.len() => Ok(values),
        _ => {
            let keys: Vec<&str> = entries().map(|entry| &*entry.key).collect();
            let detail = format!("a key of this rule has these names: {}", keys.join(", "));
            Err(Invalid::at(format!("{}/key", pointer()), detail).into())
        }
    }
}

/// Returns a fault with the pointer of the first item that it can concern.
fn refused(fault: Fault, asked: &Asked<'_>) -> Refused {
    let is_about = |item: &AskedItem<'_>| match (&fault, &item.counter) {
        (Fault::NoSuchRule { name: rule }, Counter::Rule { name, .. }) => {
            name.0.starts_with(&**rule)
        }
        (
            Fault::Values { rule, .. } | Fault::OtherValue { rule, .. },
            Counter::Rule { name, .. },
        ) => *name.0 == **rule,
        (Fault::Limit(_) | Fault::Rate(_), Counter::Inline { limit, .. }) => {
            limit.bucket().is_err()
        }
        _ => false,
    };
    let member = match &fault {
        Fault::NoSuchRule { .. } => "/rule",
        Fault::Values { .. } | Fault::OtherValue { .. } => "/key",
        Fault::Limit(_) | Fault::Rate(_) => "/limit",
        _ => "",
    };
    let place = match &fault {
        Fault::AskedTwice { second, .. } => Some(*second),
        _ => asked.items.iter().position(is_about),
    };
    let pointer = place.map(|place| asked.pointer(place) + member);
    Refused::Fault(fault, pointer.unwrap_or_default())
}
