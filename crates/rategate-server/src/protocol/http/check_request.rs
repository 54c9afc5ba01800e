//! The JSON request of `POST /v1/check`.

use std::time::Duration;

use serde::Deserialize;
use smallvec::{SmallVec, smallvec};

use super::check_item::{CheckItem, Counter, WrittenItem};
use super::check_verb::Verb;
use super::invalid::Invalid;
use super::values::{Descriptor, Key, Pairs, given, id, ttl};
use crate::engine::{MAX_ITEMS, UniqueId};
use crate::protocol::json::{self, Bounded};

/// A request, checked as far as possible without the rules.
#[derive(Debug, Default)]
pub(super) struct CheckRequest {
    /// The operation on all items.
    pub(super) verb: Verb,
    /// The items, at least one.
    pub(super) items: SmallVec<[CheckItem; 1]>,
    /// `true` if the items came in a list, which determines the pointer of an error.
    pub(super) listed: bool,
    /// The lease of the request.
    pub(super) lease: Option<UniqueId>,
    /// The id of the reservation.
    pub(super) id: Option<UniqueId>,
    /// The time of a new reservation; that of its rules if `None`.
    pub(super) ttl: Option<Duration>,
    /// The id under which the request counts once.
    pub(super) once: Option<UniqueId>,
}

/// The body as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, deserialize_with = "json::word")]
    verb: Verb,
    #[serde(default, deserialize_with = "id")]
    lease: Option<UniqueId>,
    #[serde(default, deserialize_with = "id")]
    id: Option<UniqueId>,
    #[serde(default, deserialize_with = "ttl")]
    ttl: Option<Duration>,
    #[serde(default, deserialize_with = "id")]
    once: Option<UniqueId>,
    items: Option<Bounded<WrittenItem>>,
    rule: Option<String>,
    domain: Option<String>,
    descriptor: Option<Descriptor>,
    limit: Option<String>,
    burst: Option<u64>,
    key: Option<Key>,
    #[serde(default, deserialize_with = "given")]
    permits: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    usage: Option<Pairs<u64>>,
    model: Option<String>,
}

impl CheckRequest {
    /// Parses a body.
    ///
    /// # Errors
    ///
    /// The pointer to the fault, the fault, and an accepted form.
    pub(super) fn read(body: &[u8]) -> Result<Self, Invalid> {
        let written: Written = json::read(body)?;
        let verb = written.verb;
        written.check()?;
        let Written { lease, id, ttl, once, items, rule, domain, descriptor, .. } = written;
        let Written { limit, burst, key, permits, usage, model, .. } = written;
        let single =
            WrittenItem { rule, domain, descriptor, limit, burst, key, permits, usage, model };
        let listed = items.is_some();
        let items = match items {
            None => {
                let item = single.checked("", verb.has_usage())?;
                if verb.is_of_lease() && !matches!(item.counter, Counter::Rule { .. }) {
                    return Err(Invalid::at("", ONE_RULE));
                }
                smallvec![item]
            }
            Some(_) if verb.is_of_lease() => return Err(Invalid::at("/items", ONE_RULE)),
            Some(_) if single != WrittenItem::default() => {
                let detail = "`items` and fields of a single item; use one or the other";
                return Err(Invalid::at("", detail));
            }
            Some(Bounded(list)) if (1..=MAX_ITEMS).contains(&list.len()) => {
                let items = list.into_iter().enumerate();
                let items = items.map(|(index, item)| {
                    item.checked(&format!("/items/{index}"), verb.has_usage())
                });
                items.collect::<Result<_, _>>()?
            }
            Some(_) => {
                let detail = format!("the list has from 1 to {MAX_ITEMS} items");
                return Err(Invalid::at("/items", detail));
            }
        };
        Ok(Self { verb, items, listed, lease, id, ttl, once })
    }

    /// Returns the JSON pointer of an item.
    pub(super) fn pointer(&self, index: usize) -> String {
        if self.listed { format!("/items/{index}") } else { String::new() }
    }
}

impl Written {
    /// Checks that the verb goes with the members that are given. A new lease or reservation needs
    /// no name.
    fn check(&self) -> Result<(), Invalid> {
        use Verb::{Cancel, Charge, Commit, Refund, Release, Renew, Reserve, Take};
        let Self { verb, lease, id, ttl, once, .. } = self;
        let (has_lease, has_id) = (lease.is_some(), id.is_some());
        let is_of_id = matches!(verb, Reserve | Commit | Cancel);
        let counts_once = matches!(verb, Take | Charge | Refund);
        for (is_wrong, pointer, detail) in [
            (
                has_lease && !verb.is_of_lease(),
                "/lease",
                "only for the verbs `lease`, `renew` and `release`",
            ),
            (
                !has_lease && matches!(verb, Renew | Release),
                "/lease",
                "missing; write the `name` of the lease from the reply that granted it",
            ),
            (has_id && !is_of_id, "/id", "only for the verbs `reserve`, `commit` and `cancel`"),
            (
                !has_id && matches!(verb, Commit | Cancel),
                "/id",
                "missing; write the `id` from the reply that granted the reservation",
            ),
            (ttl.is_some() && *verb != Reserve, "/ttl", "only for the verb `reserve`"),
            (
                once.is_some() && !counts_once,
                "/once",
                "only for the verbs `take`, `charge` and `refund`",
            ),
        ] {
            if is_wrong {
                return Err(Invalid::at(pointer, detail));
            }
        }
        Ok(())
    }
}

/// The error for a lease of anything but one rule.
const ONE_RULE: &str = "a lease is of one rule: `rule`, `key` and `permits`";
