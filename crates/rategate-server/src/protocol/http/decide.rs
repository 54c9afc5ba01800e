//! What was asked in JSON as the engine is asked it, and what is wrong with it by the rules.

use rategate::Clock;
use smallvec::{SmallVec, smallvec};

use super::asked::{Asked, AskedItem, Counter, Verb};
use super::invalid::Invalid;
use super::json::{Key, Pairs};
use super::problem::Refused;
use crate::engine::{self, Answer, Decided, Engine, Fault, Item, Request, Target};

/// An answer, and how many permits a lease came to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) answer: Answer,
    pub(super) leased: Option<u64>,
}

/// How often a lease is tried for fewer permits, while others take them.
const LEASE_TRIES: usize = 4;

/// Decides what was asked.
pub(super) async fn decide<C>(engine: &Engine<C>, asked: &Asked<'_>) -> Result<Outcome, Refused>
where
    C: Clock + Clone + 'static,
{
    let verb = match asked.verb {
        Verb::Take => engine::Verb::Take,
        Verb::Peek => engine::Verb::Peek,
        Verb::Refund => engine::Verb::Refund,
        Verb::Reset => engine::Verb::Reset,
        Verb::Lease => return lease(engine, asked).await,
    };
    let answer = ask(engine, asked, verb, None)?.answer().await;
    let answer = answer.map_err(|fault| refused(fault, asked))?;
    Ok(Outcome { answer, leased: None })
}

/// Takes as many permits as there are: of each item the same, and no more than any of them asks for.
async fn lease<C>(engine: &Engine<C>, asked: &Asked<'_>) -> Result<Outcome, Refused>
where
    C: Clock + Clone + 'static,
{
    let mut permits = asked.items.iter().map(|item| item.permits).min().unwrap_or(0);
    for _ in 1..LEASE_TRIES {
        let answer = ask(engine, asked, engine::Verb::Take, Some(permits))?.answer().await;
        let answer = answer.map_err(|fault| refused(fault, asked))?;
        let over = answer.parts.iter().filter(|part| part.verdict.is_over());
        let fewer = over.filter_map(|part| part.remaining).min().unwrap_or(0);
        if answer.allowed || fewer == 0 {
            let leased = if answer.allowed { permits } else { 0 };
            return Ok(Outcome { answer, leased: Some(leased) });
        }
        permits = fewer.min(permits.saturating_sub(1));
    }
    let answer = ask(engine, asked, engine::Verb::Take, Some(permits))?.answer().await;
    let answer = answer.map_err(|fault| refused(fault, asked))?;
    let leased = if answer.allowed { permits } else { 0 };
    Ok(Outcome { answer, leased: Some(leased) })
}

/// The names and values of an item as the engine has them.
enum Parts<'a> {
    Values(SmallVec<[&'a [u8]; 2]>),
    Entries(SmallVec<[(&'a [u8], &'a [u8]); 2]>),
    None,
}

/// Asks for all items, each for its own permits or for as many as are given.
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

/// Values by name, in the order of the rule's entries.
fn in_order<'a, C>(
    engine: &Engine<C>,
    name: &str,
    named: &'a Pairs<'_>,
    pointer: impl Fn() -> String,
) -> Result<SmallVec<[&'a [u8]; 2]>, Refused>
where
    C: Clock + Clone + 'static,
{
    let Some(rules) = engine.rules() else {
        return Err(Refused::Fault(Fault::NotLoaded, String::new()));
    };
    let Some(rule) = rules.rules.iter().find(|rule| *rule.name == *name) else {
        return Err(Refused::Fault(Fault::NoSuchRule(name.into()), pointer()));
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

/// A fault, and the first item that it can be about.
fn refused(fault: Fault, asked: &Asked<'_>) -> Refused {
    let is_about = |item: &AskedItem<'_>| match (&fault, &item.counter) {
        (Fault::NoSuchRule(rule), Counter::Rule { name, .. }) => name.0.starts_with(&**rule),
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
        Fault::NoSuchRule(_) => "/rule",
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
