//! The JSON request of `POST /v1/check`, and its items.

use std::str::FromStr;
use std::time::Duration;

use rategate::Rate;
use rategate::error::RateError;
use rategate_core::span;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use smallvec::SmallVec;

use super::invalid::{Invalid, quoted};
use super::json::{AtMost, Descriptor, Key, Numbers, Pairs, Text, TimeText, Value, Whole};
use crate::engine::{Inline, MAX_ITEMS, NotAnId, UniqueId};
use crate::net::Right;
use crate::protocol::bounded_list::bounded_list;
use crate::protocol::object;
use crate::units::meant;

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

/// The operation of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
    /// Takes the permits of all items, or none.
    #[default]
    Take,
    /// Returns the result of a take without taking.
    Peek,
    /// Charges permits that have been used already.
    Charge,
    /// Credits permits.
    Refund,
    /// Resets counters.
    Reset,
    /// Takes permits in flight under a name.
    Lease,
    /// Extends a lease.
    Renew,
    /// Ends a lease.
    Release,
    /// Holds estimates under an id.
    Reserve,
    /// Ends a reservation with what was used.
    Commit,
    /// Ends a reservation of which nothing was used.
    Cancel,
}

/// Permits of one counter.
#[derive(Debug)]
pub(super) struct CheckItem<'a> {
    pub(super) counter: Counter<'a>,
    /// Absent if the request leaves them out.
    pub(super) written: Option<u64>,
    /// The maximum number of permits to hold, of which `permits` is the minimum.
    pub(super) at_most: Option<u64>,
    /// The units that were used, in place of permits.
    pub(super) usage: Option<UsageOf<'a>>,
}

/// The usage of a call: the number of each unit, and the model.
#[derive(Debug)]
pub(super) struct UsageOf<'a> {
    pub(super) counts: Numbers<'a>,
    pub(super) model: Option<Text<'a>>,
}

/// The address of a counter.
#[derive(Debug)]
pub(super) enum Counter<'a> {
    /// The counter of a rule.
    Rule { name: Text<'a>, key: Option<Key<'a>> },
    /// The counter of the rule that fits a descriptor best.
    Descriptor { domain: Text<'a>, entries: Pairs<'a> },
    /// The counter of a limit that the caller supplies.
    Inline { limit: Inline, key: Value<'a> },
}

/// The body as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    #[serde(default, deserialize_with = "given_verb")]
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

/// Reads a member whose default would be another request, and so is no null.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(member: D) -> Result<Option<T>, D::Error> {
    T::deserialize(member).map(Some)
}

/// Reads a verb. An enum of its own would say of null only that a value is expected.
fn given_verb<'de, D: Deserializer<'de>>(member: D) -> Result<Option<Verb>, D::Error> {
    let verb = Option::<Verb>::deserialize(member)?;
    let verb = verb.ok_or_else(|| D::Error::custom("null is no verb; leave it out for a take"));
    verb.map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenItem<'a> {
    #[serde(borrow)]
    rule: Option<Text<'a>>,
    domain: Option<Text<'a>>,
    descriptor: Option<Descriptor<'a>>,
    limit: Option<Text<'a>>,
    burst: Option<Whole>,
    key: Option<Key<'a>>,
    #[serde(default, deserialize_with = "given")]
    permits: Option<Whole>,
    #[serde(default, deserialize_with = "given")]
    at_most: Option<Whole>,
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
            return Ok(Self { verb, items, listed: false, at_most, lease, id, ttl, once });
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

impl Verb {
    /// Returns the right that the verb needs. A release, a commit and a cancellation credit only
    /// permits whose name or id their caller knows.
    pub(super) const fn right(self) -> Right {
        match self {
            Self::Take
            | Self::Peek
            | Self::Charge
            | Self::Lease
            | Self::Renew
            | Self::Release
            | Self::Reserve
            | Self::Commit
            | Self::Cancel => Right::Ask,
            Self::Refund => Right::Credit,
            Self::Reset => Right::Admin,
        }
    }

    /// Returns `true` if items may have a usage in place of permits.
    const fn uses(self) -> bool {
        matches!(
            self,
            Self::Take | Self::Peek | Self::Charge | Self::Refund | Self::Reserve | Self::Commit
        )
    }

    const fn is_of_lease(self) -> bool {
        matches!(self, Self::Lease | Self::Renew | Self::Release)
    }

    /// Parses the lease's name, as the verb requires. A new lease needs none.
    fn lease(self, written: Option<&Text<'_>>) -> Result<Option<UniqueId>, Invalid> {
        let detail = match written {
            Some(_) if !self.is_of_lease() => "only for the verbs `lease`, `renew` and `release`",
            Some(text) => return unique_id(text, "/lease", "a lease's name").map(Some),
            None if matches!(self, Self::Renew | Self::Release) => {
                "missing; write the `name` of the lease from the reply that granted it"
            }
            None => return Ok(None),
        };
        Err(Invalid::at("/lease", detail))
    }

    /// Parses the reservation's id, as the verb requires. A new reservation needs none.
    fn id(self, written: Option<&Text<'_>>) -> Result<Option<UniqueId>, Invalid> {
        let detail = match written {
            Some(_) if !matches!(self, Self::Reserve | Self::Commit | Self::Cancel) => {
                "only for the verbs `reserve`, `commit` and `cancel`"
            }
            Some(text) => return unique_id(text, "/id", "an id").map(Some),
            None if matches!(self, Self::Commit | Self::Cancel) => {
                "missing; write the `id` from the reply that granted the reservation"
            }
            None => return Ok(None),
        };
        Err(Invalid::at("/id", detail))
    }

    fn once(self, written: Option<&Text<'_>>, at_most: bool) -> Result<Option<UniqueId>, Invalid> {
        let Some(text) = written else { return Ok(None) };
        if !matches!(self, Self::Take | Self::Charge | Self::Refund) || at_most {
            let detail = "only for the verbs `take`, `charge` and `refund`, without `at_most`";
            return Err(Invalid::at("/once", detail));
        }
        unique_id(text, "/once", "an id").map(Some)
    }

    fn ttl(self, written: Option<&TimeText<'_>>) -> Result<Option<Duration>, Invalid> {
        let Some(text) = written else { return Ok(None) };
        if self != Self::Reserve {
            return Err(Invalid::at("/ttl", "only for the verb `reserve`"));
        }
        time(&text.0, "/ttl").map(Some)
    }

    /// Returns `true` if a take may take fewer permits of each item, and the maximum number of
    /// permits that the only item of a reservation holds.
    fn at_most(self, written: Option<AtMost>) -> Result<(bool, Option<Whole>), Invalid> {
        let detail = match (self, written) {
            (_, None | Some(AtMost::Any(false))) => return Ok((false, None)),
            (Self::Take, Some(AtMost::Any(true))) => return Ok((true, None)),
            (Self::Reserve, Some(AtMost::Permits(most))) => return Ok((false, Some(Whole(most)))),
            (Self::Take, Some(AtMost::Permits(_))) => {
                "true for the verb `take`; a reserve has a number of permits"
            }
            (Self::Reserve, Some(AtMost::Any(true))) => {
                "a number of permits for the verb `reserve`, of which `permits` is the minimum"
            }
            _ => "only the verbs `take` and `reserve` accept `at_most`",
        };
        Err(Invalid::at("/at_most", detail))
    }
}

/// The members that a verb accepts.
#[derive(Clone, Copy)]
struct Uses {
    usage: bool,
    at_most: bool,
}

/// Parses an id, or the name of a lease.
fn unique_id(text: &Text<'_>, location: &str, what: &str) -> Result<UniqueId, Invalid> {
    text.0.parse().map_err(|NotAnId| {
        let detail = format!("{} is none; {what} is 32 hexadecimal digits", quoted(&text.0));
        Invalid::at(location, detail)
    })
}

/// Parses the time of a reservation.
pub(super) fn time(text: &str, location: &str) -> Result<Duration, Invalid> {
    span::parse(text).map(Duration::from_nanos).map_err(|error| {
        let detail = format!("{}: {error}; write a time like \"30s\" or \"1500ms\"", quoted(text));
        Invalid::at(location, detail)
    })
}

impl<'a> WrittenItem<'a> {
    const fn is_empty(&self) -> bool {
        let Self { rule, domain, descriptor, limit, burst, key, permits, at_most, usage, model } =
            self;
        rule.is_none()
            && domain.is_none()
            && descriptor.is_none()
            && limit.is_none()
            && burst.is_none()
            && key.is_none()
            && permits.is_none()
            && at_most.is_none()
            && usage.is_none()
            && model.is_none()
    }

    fn checked(self, pointer: &str, uses: Uses) -> Result<CheckItem<'a>, Invalid> {
        let Self { rule, domain, descriptor, limit, burst, key, permits, at_most, usage, model } =
            self;
        if at_most.is_some() && (usage.is_some() || !uses.at_most) {
            let detail = if uses.at_most {
                "a range of permits, and a `usage` has one cost; write one without the other"
            } else {
                "only for the verb `reserve`"
            };
            return Err(Invalid::at(format!("{pointer}/at_most"), detail));
        }
        let refusal = match (&usage, &model) {
            (Some(_), _) if !uses.usage => {
                Some("only for takes without `at_most`, peeks, charges, refunds, reserves, commits")
            }
            (Some(_), _) if permits.is_some() => Some("`permits` or `usage`, not both"),
            (Some(_), _) if limit.is_some() => Some("it is for rules with weights or prices"),
            (Some(counts), _) if counts.0.is_empty() => Some(
                "it names no unit; write those that were used, as {\"input\": 120}, or `permits`",
            ),
            _ => None,
        };
        if let Some(detail) = refusal {
            return Err(Invalid::at(format!("{pointer}/usage"), detail));
        }
        let usage = match (usage, model) {
            (Some(counts), model) => Some(UsageOf { counts, model }),
            (None, None) => None,
            (None, Some(_)) => {
                return Err(Invalid::at(format!("{pointer}/model"), "it belongs to a `usage`"));
            }
        };
        let written = permits.map(|permits| permits.0);
        let counter = match (rule, domain, descriptor, limit, burst, key) {
            (Some(name), None, None, None, None, key) => Counter::Rule { name, key },
            (None, Some(domain), Some(descriptor), None, None, None) => {
                if domain.0.is_empty() || descriptor.0.is_empty() {
                    return Err(Invalid::at(pointer, "an empty domain or descriptor"));
                }
                Counter::Descriptor { domain, entries: descriptor.0 }
            }
            (None, None, None, Some(limit), burst, Some(key)) => {
                let Key::One(key) = key else {
                    let detail = "an inline limit has one key: a text, or {\"base64\": a text}";
                    return Err(Invalid::at(format!("{pointer}/key"), detail));
                };
                let limit = inline(&limit.0, burst.map(|burst| burst.0), pointer)?;
                Counter::Inline { limit, key }
            }
            (None, None, Some(_), None, None, None) => {
                let detail = "`domain` is missing beside `descriptor`: the domain of the rule, \
                              \"default\" if the rule gives none";
                return Err(Invalid::at(pointer, detail));
            }
            (None, Some(_), None, None, None, None) => {
                let detail = "`descriptor` is missing beside `domain`: an object like \
                              {\"user\": \"42\"}";
                return Err(Invalid::at(pointer, detail));
            }
            _ => {
                let detail = "an item has `rule` and `key`, or `domain` and `descriptor`, or \
                              `limit`, `burst` and `key`, and no others of these";
                return Err(Invalid::at(pointer, detail));
            }
        };
        Ok(CheckItem { counter, written, at_most: at_most.map(|most| most.0), usage })
    }
}

impl CheckItem<'_> {
    /// Returns the number of permits, of which one is the default.
    pub(super) fn permits(&self) -> u64 {
        self.written.unwrap_or(u64::from(self.usage.is_none()))
    }
}

/// Parses a limit. Without a burst, the burst is the number of permits of one period, and at least
/// 1.
///
/// # Errors
///
/// The fault of the text or of the bucket.
pub(super) fn inline(text: &str, burst: Option<u64>, pointer: &str) -> Result<Inline, Invalid> {
    let invalid_limit = |why: &dyn std::fmt::Display| {
        let (text, like) = (quoted(text), "\"100/min\", \"0.5/s\" or \"1000/10s\"");
        let detail = format!("{text}: {why}; write a limit like {like}");
        Invalid::at(format!("{pointer}/limit"), detail)
    };
    let rate = Rate::from_str(text).map_err(|fault| match meant(text) {
        Some(meant) => invalid_limit(&format_args!("{fault}; did you mean {meant:?}?")),
        // What a rule may say instead, `never` and `unlimited`, is no limit of a call.
        None => match fault {
            RateError::Zero | RateError::Negative => {
                invalid_limit(&"a limit that comes with the call admits more than 0 permits")
            }
            RateError::ZeroPeriod => invalid_limit(&"the period is longer than 0"),
            RateError::Malformed => invalid_limit(&"not a number of permits, a slash and a period"),
            fault => invalid_limit(&fault),
        },
    })?;
    let Some((permits, period_ns)) = rate.fraction() else {
        return Err(invalid_limit(&"only the limit of a rule may be `never` or `unlimited`"));
    };
    // Keeps whole numbers as written, so that the limit equals one from another protocol.
    let number = text.split_once('/').map_or(text, |(number, _)| number);
    let written = number.parse::<u64>().ok();
    let times = written.and_then(|written| written.checked_div(permits)).unwrap_or(1);
    let (count, period_ns) = (permits.saturating_mul(times), period_ns.saturating_mul(times));
    let whole = number.split_once('.').map_or(number, |(whole, _)| whole);
    let in_a_period = whole.parse::<u64>().unwrap_or(1).max(1);
    let limit = Inline { capacity: burst.unwrap_or(in_a_period), count, period_ns };
    match limit.bucket() {
        Ok(_) => Ok(limit),
        Err(fault) => Err(Invalid::at(pointer, fault.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::{CheckRequest, Counter, Verb, inline};

    fn of(text: &str, burst: Option<u64>) -> (u64, u64, u64) {
        let limit = inline(text, burst, "").unwrap();
        (limit.capacity, limit.count, limit.period_ns)
    }

    #[test]
    fn limits_are_as_they_are_written() {
        assert_eq!(of("100/min", Some(20)), (20, 100, 60_000_000_000));
        assert_eq!(of("100/min", None), (100, 100, 60_000_000_000));
        assert_eq!(of("60/min", None), (60, 60, 60_000_000_000));
        assert_eq!(of("1000/10s", None), (1000, 1000, 10_000_000_000));
        assert_eq!(of("0.5/s", None), (1, 1, 2_000_000_000));
        assert_eq!(of("2.5/s", None), (2, 1, 400_000_000));
    }

    #[test]
    fn limits_that_are_none_say_what_would_be_right() {
        for text in ["", "100", "/min", "100/", "-1/s", "0/s", "1/0s", "x/s", "1/fortnight"] {
            let invalid = inline(text, None, "/items/3").unwrap_err();
            assert_eq!(invalid.pointer, "/items/3/limit", "{text}");
            assert!(invalid.detail.contains("100/min"), "{text}: {}", invalid.detail);
        }
        for text in ["unlimited", "never", "NaN/s", "inf/s", "1e3/s", "0/h", "-1/h", "1/0s", "x"] {
            let detail = inline(text, None, "").unwrap_err().detail;
            assert!(detail.starts_with(&format!("{text:?}: ")), "{detail}");
            // Nothing that would be refused is advised.
            assert!(!detail.contains("\"never\"") || text == "never", "{detail}");
            assert!(!detail.contains("\"unlimited\"") || text == "unlimited", "{detail}");
        }
        assert!(inline("1/s", Some(0), "").is_err());
    }

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
            (r#"{"rule":"r","rule":"s"}"#, "", "duplicate field `rule`"),
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
            (r#"{"rule":"r","verb":"steal"}"#, "/verb", "unknown variant `steal`"),
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
