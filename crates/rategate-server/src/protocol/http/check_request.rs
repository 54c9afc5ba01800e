//! The JSON request of `POST /v1/check`.

use std::time::Duration;

use serde::Deserialize;
use smallvec::SmallVec;

use super::check_item::{CheckItem, Counter, Uses, WrittenItem};
use super::check_verb::Verb;
use super::invalid::Invalid;
use super::json::{AtMost, Descriptor, Key, Numbers, Text, TimeText, Whole, given};
use crate::engine::{MAX_ITEMS, UniqueId};
use crate::protocol::bounded_list::bounded_list;
use crate::protocol::object;

/// A request, checked as far as possible without the rules.
#[derive(Debug)]
pub(super) struct CheckRequest<'a> {
    /// The operation on all items.
    pub(super) verb: Verb,
    /// The items, at least one.
    pub(super) items: SmallVec<[CheckItem<'a>; 1]>,
    /// `true` if the items came in a list, which determines the pointer of an error.
    pub(super) listed: bool,
    /// `true` if a take may take fewer permits.
    pub(super) at_most: bool,
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
struct Written<'a> {
    #[serde(default, deserialize_with = "given")]
    verb: Option<Verb>,
    #[serde(default, deserialize_with = "given")]
    at_most: Option<AtMost>,
    #[serde(borrow, default, deserialize_with = "given")]
    lease: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "given")]
    id: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "given")]
    ttl: Option<TimeText<'a>>,
    #[serde(borrow, default, deserialize_with = "given")]
    once: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "bounded_list")]
    items: Option<Vec<WrittenItem<'a>>>,
    rule: Option<Text<'a>>,
    domain: Option<Text<'a>>,
    descriptor: Option<Descriptor<'a>>,
    limit: Option<Text<'a>>,
    burst: Option<Whole>,
    key: Option<Key<'a>>,
    #[serde(default, deserialize_with = "given")]
    permits: Option<Whole>,
    #[serde(default, deserialize_with = "given")]
    usage: Option<Numbers<'a>>,
    model: Option<Text<'a>>,
}

impl<'a> CheckRequest<'a> {
    /// Parses a body.
    ///
    /// # Errors
    ///
    /// The pointer to the fault, the fault, and an accepted form.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Invalid> {
        if body.trim_ascii().is_empty() {
            let detail =
                "the body is empty; write JSON like {\"rule\": \"api\", \"key\": \"alice\"}";
            return Err(Invalid::at("", detail));
        }
        let written = object::read::<Written<'a>>(body)
            .map_err(|fault| Invalid::json::<Written<'_>>(body, &fault))?;
        let verb = written.verb.unwrap_or_default();
        let (at_most, most) = verb.at_most(written.at_most)?;
        let lease = verb.lease(written.lease.as_ref())?;
        let id = verb.id(written.id.as_ref())?;
        let ttl = verb.ttl(written.ttl.as_ref())?;
        let once = verb.once(written.once.as_ref(), at_most)?;
        let Written { rule, domain, descriptor, limit, burst, key, permits, usage, model, .. } =
            written;
        let single = WrittenItem {
            rule,
            domain,
            descriptor,
            limit,
            burst,
            key,
            permits,
            at_most: most,
            usage,
            model,
        };
        let uses = Uses { usage: verb.uses() && !at_most, at_most: verb == Verb::Reserve };
        let Some(list) = written.items else {
            let item = single.checked("", uses)?;
            if verb.is_of_lease() && !matches!(item.counter, Counter::Rule { .. }) {
                return Err(Invalid::at("", ONE_RULE));
            }
            let items = SmallVec::from_iter([item]);
            let listed = false;
            return Ok(Self { verb, items, listed, at_most, lease, id, ttl, once });
        };
        if verb.is_of_lease() {
            return Err(Invalid::at("/items", ONE_RULE));
        }
        if !single.is_empty() {
            return Err(Invalid::at(
                "",
                "`items` and fields of a single item; use one or the other",
            ));
        }
        if list.is_empty() {
            let detail = format!("the list is empty; give 1 to {MAX_ITEMS} items");
            return Err(Invalid::at("/items", detail));
        }
        let items = list.into_iter().enumerate();
        let items = items.map(|(index, item)| item.checked(&format!("/items/{index}"), uses));
        let items = items.collect::<Result<_, _>>()?;
        Ok(Self { verb, items, listed: true, at_most, lease, id, ttl, once })
    }

    /// Makes a request that takes permits one that reserves them.
    pub(super) fn reserving(self, id: UniqueId, ttl: Option<Duration>) -> Self {
        Self { verb: Verb::Reserve, id: Some(id), ttl, ..self }
    }

    /// Creates a request that takes one item.
    pub(super) const fn take(items: SmallVec<[CheckItem<'a>; 1]>) -> Self {
        let (verb, ttl) = (Verb::Take, None);
        let (lease, id, once) = (None, None, None);
        Self { verb, items, listed: false, at_most: false, lease, id, ttl, once }
    }

    /// Returns the JSON pointer of an item.
    pub(super) fn pointer(&self, index: usize) -> String {
        if self.listed { format!("/items/{index}") } else { String::new() }
    }
}

/// The error for a lease of anything but one rule.
const ONE_RULE: &str = "a lease is of one rule: `rule`, `key` and `permits`";

#[cfg(test)]
mod tests {
    use super::{CheckRequest, Counter, Verb};

    #[test]
    fn one_item_or_several() {
        let one =
            CheckRequest::read(br#"{"rule":"r","key":"42","permits":3,"verb":"peek"}"#).unwrap();
        assert_eq!((one.verb, one.items.len(), one.listed), (Verb::Peek, 1, false));
        assert_eq!(one.items[0].permits(), 3);
        assert!(matches!(&one.items[0].counter, Counter::Rule { name, .. } if name.0 == "r"));
        let two = br#"{"items":[{"limit":"1/s","key":"a"},{"domain":"d","descriptor":{"k":"v"}}]}"#;
        let two = CheckRequest::read(two).unwrap();
        assert_eq!((two.verb, two.items.len(), two.listed), (Verb::Take, 2, true));
    }

    #[test]
    fn invalid_bodies_name_the_pointer() {
        let table: [(&str, &str, &str); 54] = [
            (r#"{"rule":"r","verb":"reserve","at_most":-1}"#, "/at_most", "a whole number"),
            (r#"{"rule":"r","verb":"reserve","at_most":1.5}"#, "/at_most", "a whole number"),
            (r#"{"rule":"r","verb":"reserve","at_most":"9"}"#, "/at_most", "a whole number"),
            (r#"{"rule":"r","verb":"reserve","at_most":null}"#, "/at_most", "a whole number"),
            (r#"{"rule":"r","verb":"reserve","at_most":1e99}"#, "/at_most", "a whole number"),
            (r#"{"rule":"r","verb":"reserve","at_most":true}"#, "/at_most", "a number of permits"),
            (r#"{"rule":"r","at_most":5}"#, "/at_most", "true for the verb `take`"),
            (
                r#"{"rule":"r","verb":"commit","id":"00112233445566778899aabbccddeeff","at_most":5}"#,
                "/at_most",
                "only the verbs `take` and `reserve`",
            ),
            (
                r#"{"verb":"peek","items":[{"rule":"r","at_most":5}]}"#,
                "/items/0/at_most",
                "only for the verb `reserve`",
            ),
            (
                r#"{"verb":"reserve","items":[{"rule":"r","at_most":true}]}"#,
                "/items/0/at_most",
                "a whole number",
            ),
            (
                r#"{"verb":"reserve","rule":"r","at_most":5,"usage":{"output":1}}"#,
                "/at_most",
                "write one without the other",
            ),
            (r#"{"verb":"reserve","rule":"r","usage":{}}"#, "/usage", "it names no unit"),
            (
                r#"{"verb":"reserve","items":[{"rule":"r"}],"at_most":5}"#,
                "",
                "use one or the other",
            ),
            (r#"{"rule":"r","verb":null}"#, "/verb", "null"),
            (r#"{"rule":"r","permits":null}"#, "/permits", "a whole number"),
            (r#"{"items":[{"rule":"r","permits":null}]}"#, "/items/0/permits", "a whole number"),
            (r#"{"rule":"r","verb":"reserve","id":null}"#, "/id", "null"),
            (r#"{"rule":"r","verb":"charge","once":null}"#, "/once", "null"),
            (r#"{"rule":"r","verb":"reserve","ttl":null}"#, "/ttl", "null, expected a text with"),
            ("", "", "the body is empty"),
            ("\n ", "", "the body is empty"),
            (r#"{"descriptor":{"user":"a"}}"#, "", "`domain` is missing"),
            (r#"{"items":[{"domain":"d"}]}"#, "/items/0", "`descriptor` is missing"),
            (r#"{"rule":"r","permits":18446744073709551616}"#, "/permits", "too large a number"),
            ("[]", "", "invalid type: sequence, expected an object with named members"),
            ("null", "", "invalid type: null, expected an object with named members"),
            ("5", "", "invalid type: integer `5`, expected an object with named members"),
            (r#"["take"]"#, "", "invalid type: sequence, expected an object"),
            (r#"{"items":[["r"]]}"#, "/items/0", "invalid type: sequence, expected an object"),
            (r#"{"items":[{"rule":"r"},null]}"#, "/items/1", "null, expected an object"),
            (r#"{"rule":"r","verb":"charge","usage":null}"#, "/usage", "null, expected an object"),
            (r#"{"items":[{"rule":"r","usage":null}]}"#, "/items/0/usage", "null, expected an"),
            (r#"{"rule":"r","verb":"reserve","id":"x1"}"#, "/id", "\"x1\" is none; an id is 32"),
            (r#"{"rule":"r","verb":"renew","lease":"x1"}"#, "/lease", "\"x1\" is none; a lease's"),
            (r#"{"rule":"r","once":"x1"}"#, "/once", "\"x1\" is none; an id is 32"),
            (r#"{"limit":"0/h","key":"a"}"#, "/limit", "\"0/h\": a limit that comes with the call"),
            ("{}", "", "an item has `rule`"),
            (r#"{"rule":"r","rule":"s"}"#, "/rule", "duplicate field `rule`"),
            (r#"{"rule":"r","permit":1}"#, "/permit", "unknown field `permit`"),
            (r#"{"rule":"r","permits":-1}"#, "/permits", "a whole number"),
            (r#"{"rule":"r","permits":1.5}"#, "/permits", "a whole number"),
            (r#"{"rule":"r","permits":NaN}"#, "/permits", "column 23: `NaN`; write a whole"),
            (r#"{"rule":"r","permits":1e400}"#, "/permits", ": `1e400`; write a whole number"),
            (r#"{"rule":"r","usage":{"in":-NaN}}"#, "/usage/in", "`-NaN`; write a whole number"),
            (
                r#"{"rule":"r","verb":"reserve","ttl":30}"#,
                "/ttl",
                "integer `30`, expected a text with",
            ),
            (r#"{"rule":"r","verb":"reserve","ttl":0}"#, "/ttl", "like \"30s\""),
            (r#"{"rule":7}"#, "/rule", "a text"),
            (r#"{"rule":"r","verb":"steal"}"#, "/verb", "\"steal\" is not a verb: `take`"),
            (r#"{"items":[]}"#, "/items", "1 to 64"),
            (r#"{"items":[{"rule":"r"}],"key":"k"}"#, "", "use one or the other"),
            (r#"{"items":[{"rule":"r"},{"rule":"s","permits":-1}]}"#, "/items/1/permits", "whole"),
            (r#"{"items":[{"rule":"r"},{}]}"#, "/items/1", "an item has `rule`"),
            (r#"{"limit":"1/s","key":["a"]}"#, "/key", "one key"),
            (r#"{"rule":"r","limit":"1/s","key":"a"}"#, "", "no others of these"),
        ];
        for (body, pointer, detail) in table {
            let invalid = CheckRequest::read(body.as_bytes()).unwrap_err();
            assert_eq!(invalid.pointer, pointer, "{body}: {}", invalid.detail);
            assert!(invalid.detail.contains(detail), "{body}: {}", invalid.detail);
        }
    }
}
