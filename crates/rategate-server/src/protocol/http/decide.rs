//! Translation of JSON requests into requests to the engine, and of its errors.

use std::num::NonZeroU64;

use rategate::Clock;
use smallvec::{SmallVec, smallvec};

use super::Checks;
use super::check_item::{CheckItem, Counter, UsageOf};
use super::check_request::CheckRequest;
use super::check_verb::Verb;
use super::invalid::Invalid;
use super::refused::Refused;
use super::values::{Key, Value};
use crate::engine::{
    self, Answer, Cost, Decided, EngineError, Item, Lease, LeaseVerb, Request, Reserved, Target,
    UniqueId, Verdict,
};
use crate::rule::Usage;

/// A result of the engine, with additions for the reply.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) answer: Answer,
    /// The name of the lease of the request.
    pub(super) lease: Option<UniqueId>,
    /// `true` if the operation under the request's id had been answered before.
    pub(super) repeated: Option<bool>,
    /// The reservation of the request.
    pub(super) reservation: Option<Reservation>,
}

/// A reservation of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    pub(super) id: UniqueId,
    /// The operation on it.
    pub(super) verb: Verb,
    /// The time until it ends by itself, unless it has ended.
    pub(super) ends_after_ns: Option<NonZeroU64>,
}

impl<C: Clock + Clone + 'static> Checks<C> {
    /// Decides a request.
    pub(super) async fn decide(&self, check_request: &CheckRequest) -> Result<Outcome, Refused> {
        let verb = match check_request.verb {
            Verb::Take => engine::Verb::Take,
            Verb::Peek => engine::Verb::Peek,
            Verb::Charge => engine::Verb::Charge,
            Verb::Refund => engine::Verb::Refund,
            Verb::Reset => engine::Verb::Reset,
            Verb::Lease => return self.lease(check_request, LeaseVerb::Take).await,
            Verb::Renew => return self.lease(check_request, LeaseVerb::Renew).await,
            Verb::Release => return self.lease(check_request, LeaseVerb::Release).await,
            Verb::Reserve | Verb::Commit | Verb::Cancel => {
                return self.reservation(check_request).await;
            }
        };
        if let Some(id) = check_request.once {
            return self.once(check_request, id, verb).await;
        }
        let answer = answered(self.ask(check_request, verb)?, check_request).await?;
        Ok(Outcome::of(answer))
    }

    /// Takes, renews or releases the lease of one rule.
    async fn lease(
        &self,
        check_request: &CheckRequest,
        verb: LeaseVerb,
    ) -> Result<Outcome, Refused> {
        let name = check_request.lease.unwrap_or_else(UniqueId::random);
        let decided = match check_request.items.as_slice() {
            [item @ CheckItem { counter: Counter::Rule { name: rule, .. }, .. }] => {
                let KeyValues { values, .. } = self.key_values_of(check_request, 0, item)?;
                let permits = item.permits();
                let lease = Lease { name, rule, values: &values, permits };
                self.engine.lease(verb, &lease)
            }
            // Parsing refuses such requests.
            _ => Decided::Now(Err(EngineError::NotFor("a lease is of one rule"))),
        };
        let answer = answered(decided, check_request).await?;
        Ok(Outcome { lease: Some(name), ..Outcome::of(answer) })
    }

    /// Makes, commits or cancels a reservation.
    async fn reservation(&self, check_request: &CheckRequest) -> Result<Outcome, Refused> {
        let id = check_request.id.unwrap_or_else(UniqueId::random);
        let key_values = self.key_values(check_request)?;
        let items = check_request.engine_items(&key_values);
        let reserved = match check_request.verb {
            Verb::Commit => {
                let with_permits = items.zip(check_request.items.iter().map(|item| item.written));
                let costs = with_permits.map(|(Item { target, usage, .. }, permits)| Cost {
                    target,
                    permits,
                    usage,
                });
                self.engine.commit(id, &costs.collect::<SmallVec<[_; 2]>>())
            }
            Verb::Cancel => {
                let targets = items.map(|item| item.target);
                self.engine.cancel(id, &targets.collect::<SmallVec<[_; 2]>>())
            }
            _ => {
                let items = items.collect::<SmallVec<[_; 2]>>();
                self.engine.reserve(id, check_request.ttl, &items)
            }
        };
        let reserved = or_denied(reserved.answer().await, check_request)?;
        let Reserved { answer, is_repeated, ends_after_ns } = reserved;
        let verb = check_request.verb;
        let reservation = Some(Reservation { id, verb, ends_after_ns });
        Ok(Outcome { repeated: Some(is_repeated), reservation, ..Outcome::of(answer) })
    }

    /// Decides a request that is made once.
    async fn once(
        &self,
        check_request: &CheckRequest,
        id: UniqueId,
        verb: engine::Verb,
    ) -> Result<Outcome, Refused> {
        let key_values = self.key_values(check_request)?;
        let items: SmallVec<[Item<'_>; 1]> = check_request.engine_items(&key_values).collect();
        let request = Request { verb, items: &items, counts_denied: false };
        let made = self.engine.once(id, &request);
        let made = or_denied(made.answer().await, check_request)?;
        Ok(Outcome { repeated: Some(made.is_repeated), ..Outcome::of(made.answer) })
    }

    /// Submits all items.
    fn ask(&self, check_request: &CheckRequest, verb: engine::Verb) -> Result<Decided, Refused> {
        let key_values = self.key_values(check_request)?;
        let items: SmallVec<[Item<'_>; 1]> = check_request.engine_items(&key_values).collect();
        Ok(self.engine.decide(&Request { verb, items: &items, counts_denied: false }))
    }

    /// Returns the values or the entries of all items.
    fn key_values<'a>(
        &self,
        check_request: &'a CheckRequest,
    ) -> Result<SmallVec<[KeyValues<'a>; 1]>, Refused> {
        let items = check_request.items.iter().enumerate();
        items.map(|(index, item)| self.key_values_of(check_request, index, item)).collect()
    }

    /// Returns the values or the entries of the item at an index, in the engine's form.
    fn key_values_of<'a>(
        &self,
        check_request: &CheckRequest,
        index: usize,
        item: &'a CheckItem,
    ) -> Result<KeyValues<'a>, Refused> {
        let mut key_values = KeyValues::default();
        match &item.counter {
            Counter::Rule { name, key: Some(key) } => {
                key_values.values = match key {
                    Key::One(value) => smallvec![&*value.0],
                    Key::Many(values) => values.iter().map(|value| &*value.0).collect(),
                    Key::Named(named) => {
                        self.in_order(name, named, || check_request.pointer(index))?
                    }
                };
            }
            Counter::Descriptor { entries, .. } => {
                let pairs = entries.iter().map(|(name, value)| (name.as_bytes(), &*value.0));
                key_values.entries = pairs.collect();
            }
            Counter::Rule { key: None, .. } | Counter::Inline { .. } => {}
        }
        if let Some(UsageOf { counts, .. }) = &item.usage {
            key_values.usage = counts.iter().map(|(unit, count)| (&**unit, *count)).collect();
        }
        Ok(key_values)
    }

    /// Returns values that are given by name in the order of the rule's entries.
    fn in_order<'a>(
        &self,
        name: &str,
        named: &'a [(String, Value)],
        pointer: impl Fn() -> String,
    ) -> Result<SmallVec<[&'a [u8]; 2]>, Refused> {
        let Some(rule) = self.engine.rule_named(name) else {
            let fault = self.engine.no_such_rule(name);
            let pointer =
                if fault == EngineError::NotLoaded { String::new() } else { pointer() + "/rule" };
            return Err(Refused::EngineError(fault, pointer));
        };
        let entries = || rule.entries.iter().filter(|entry| entry.value.varies());
        let find = |key: &str| named.iter().find(|(name, _)| name == key);
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
}

/// The values of an item that names a rule, or the entries of its descriptor; and its usage.
#[derive(Default)]
struct KeyValues<'a> {
    usage: Vec<(&'a str, u64)>,
    values: SmallVec<[&'a [u8]; 2]>,
    entries: SmallVec<[(&'a [u8], &'a [u8]); 2]>,
}

impl CheckRequest {
    /// Returns the items in the engine's form.
    fn engine_items<'a, 'b: 'a>(
        &'a self,
        all: &'a [KeyValues<'b>],
    ) -> impl Iterator<Item = Item<'a>> {
        let items = self.items.iter().zip(all);
        items.map(move |(item, KeyValues { values, entries, usage })| {
            let target = match &item.counter {
                Counter::Rule { name, .. } => Target::Rule { name, values },
                Counter::Descriptor { domain, .. } => {
                    Target::Descriptor { domain, entries, limit: None }
                }
                Counter::Inline { limit, key } => Target::Inline { limit: *limit, key: &key.0 },
            };
            let usage =
                item.usage.as_ref().map(|of| Usage { counts: usage, model: of.model.as_deref() });
            Item { usage, ..Item::of(target, item.permits()) }
        })
    }
}

impl Reservation {
    /// Returns `true` if an item with this verdict lets its caller proceed: it is held, or has this
    /// end.
    pub(super) const fn allows(&self, verdict: Verdict) -> bool {
        let has_ended =
            matches!(verdict, Verdict::Committed(_) | Verdict::Cancelled(_) | Verdict::Late(_));
        match (self.verb, verdict) {
            (_, Verdict::Unknown)
            | (Verb::Commit, Verdict::Cancelled(_))
            | (Verb::Cancel, Verdict::Committed(_)) => false,
            (Verb::Commit | Verb::Cancel, verdict) => !verdict.is_over(),
            (_, verdict) => !has_ended && !verdict.is_over(),
        }
    }
}

impl Outcome {
    /// Returns `true` if a limit denies the request. An operation on a reservation may have no
    /// effect for other reasons.
    pub(super) fn is_denial(&self) -> bool {
        let is_over = self.answer.results.iter().any(|result| result.verdict.is_over());
        !self.answer.allowed && (is_over || self.reservation.is_none())
    }

    const fn of(answer: Answer) -> Self {
        Self { answer, lease: None, repeated: None, reservation: None }
    }
}

/// Denies what a full table cannot count. That no more reservations can be known is a fault that
/// says so.
fn or_denied(
    decided: Result<Reserved, EngineError>,
    check_request: &CheckRequest,
) -> Result<Reserved, Refused> {
    let decided = match (check_request.verb, &decided) {
        (Verb::Charge | Verb::Refund, _) | (_, Err(EngineError::TooManyReservations { .. })) => {
            decided
        }
        _ => Reserved::or_denied(decided, check_request.items.len()),
    };
    decided.map_err(|fault| refused(fault, check_request))
}

/// Waits for the decision. Where a full table cannot count a request, taking is denied. A credit
/// grants nothing, so its error is reported.
async fn answered(decided: Decided, check_request: &CheckRequest) -> Result<Answer, Refused> {
    let answer = decided.answer().await;
    let answer = match check_request.verb {
        Verb::Take | Verb::Peek | Verb::Lease => {
            Answer::or_denied(answer, check_request.items.len())
        }
        _ => answer,
    };
    answer.map_err(|fault| refused(fault, check_request))
}

/// Returns a fault with the pointer of the first item that it can concern.
fn refused(fault: EngineError, check_request: &CheckRequest) -> Refused {
    let is_about = |item: &CheckItem| match (&fault, &item.counter) {
        (EngineError::NoSuchRule { name: rule, .. }, Counter::Rule { name, .. }) => {
            name.starts_with(&**rule)
        }
        (
            EngineError::Values { rule, .. } | EngineError::OtherValue { rule, .. },
            Counter::Rule { name, .. },
        ) => **name == **rule,
        (EngineError::Limit(_) | EngineError::Rate(_), Counter::Inline { limit, .. }) => {
            limit.bucket().is_err()
        }
        _ => false,
    };
    let member = match &fault {
        EngineError::NoSuchRule { .. } => "/rule",
        EngineError::Values { .. } | EngineError::OtherValue { .. } => "/key",
        EngineError::Limit(_) | EngineError::Rate(_) => "/limit",
        EngineError::Cost { .. } => "/usage",
        EngineError::NoPermits { .. } => "/permits",
        EngineError::OtherItems | EngineError::OtherNumber { .. } => {
            let member = if check_request.once.is_some() { "/once" } else { "/id" };
            return Refused::EngineError(fault, member.to_owned());
        }
        EngineError::Ttl { .. } => return Refused::EngineError(fault, "/ttl".to_owned()),
        _ => "",
    };
    let index = match &fault {
        EngineError::DuplicateItem { second, .. } => Some(*second),
        EngineError::Cost { item, .. }
        | EngineError::NoPermits { item, .. }
        | EngineError::NotForItem { item, .. } => Some(*item),
        _ => check_request.items.iter().position(is_about),
    };
    let member = match (&fault, index.and_then(|index| check_request.items.get(index))) {
        (EngineError::NotForItem { .. }, Some(CheckItem { counter, .. })) => match counter {
            Counter::Descriptor { .. } => "/descriptor",
            Counter::Rule { .. } | Counter::Inline { .. } => "/rule",
        },
        _ => member,
    };
    let pointer = index.map(|index| check_request.pointer(index) + member);
    Refused::EngineError(fault, pointer.unwrap_or_default())
}
