//! `/v1/auth`: requests of a proxy before it forwards a request of its client.
//!
//! nginx (`auth_request`), Traefik (`forwardAuth`), Caddy (`forward_auth`) and Envoy's HTTP
//! service for `ext_authz` all send such requests, and evaluate only the status.
//!
//! The *address* of the request comes from the proxy's configuration. Its header fields may come
//! from the client, passed through, so they name nothing unless the address refers to them.
//!
//! With an `id`, the request holds its permits until a commit under that id, or until its `ttl` is
//! over.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode, Uri};
use smallvec::{SmallVec, smallvec};

use super::check_item::{CheckItem, Counter};
use super::check_request::CheckRequest;
use super::check_verb::Verb;
use super::inline_limit::inline;
use super::invalid::{Invalid, quoted};
use super::query;
use super::values::{Key, MAX_VALUES, Value, time};
use crate::engine::UniqueId;
use crate::units::whole;

const RULE: HeaderName = HeaderName::from_static("x-rategate-rule");
const KEY: HeaderName = HeaderName::from_static("x-rategate-key");
const PERMITS: HeaderName = HeaderName::from_static("x-rategate-permits");

/// A request of a proxy.
#[derive(Debug)]
pub(super) struct AuthRequest {
    pub(super) check_request: CheckRequest,
    /// The status of a denied request.
    pub(super) deny: StatusCode,
    /// The status of an allowed request.
    pub(super) pass: StatusCode,
}

/// A value of the key, as the address states it.
enum KeyComponent<'a> {
    /// The value itself.
    Value(Cow<'a, [u8]>),
    /// The source of the value.
    From(Cow<'a, [u8]>),
}

/// The parameters of the address. Each may occur once, except those of the key.
#[derive(Default)]
struct Given<'a> {
    rule: Option<Cow<'a, [u8]>>,
    keys: SmallVec<[KeyComponent<'a>; 2]>,
    limit: Option<Cow<'a, [u8]>>,
    burst: Option<Cow<'a, [u8]>>,
    permits: Option<Cow<'a, [u8]>>,
    deny: Option<Cow<'a, [u8]>>,
    pass: Option<Cow<'a, [u8]>>,
    id: Option<Cow<'a, [u8]>>,
    ttl: Option<Cow<'a, [u8]>>,
}

impl AuthRequest {
    /// Parses a request. `client` returns the name of the client, as trusted proxies report it.
    pub(super) fn read(
        uri: &Uri,
        headers: &HeaderMap,
        client: impl Fn() -> Option<String>,
    ) -> Result<Self, Invalid> {
        let mut given = Given::read(uri.query().unwrap_or_default())?;
        let mut from_field = false;
        if given.rule.is_none() && given.limit.is_none() {
            let rule = field(headers, &RULE)?;
            let detail = "no rule; write /v1/auth?rule=NAME, or let the proxy set X-Rategate-Rule";
            given.rule = Some(rule.ok_or_else(|| Invalid::at("?rule", detail))?.into());
            from_field = field(headers, &KEY)?.is_some();
            if given.permits.is_none() {
                given.permits = field(headers, &PERMITS)?.map(Cow::Borrowed);
            }
        }
        let permits = number(given.permits.as_deref(), "?permits")?.unwrap_or(1);
        let deny = status(given.deny.as_deref(), "?deny", &[429, 403, 401, 503])?;
        let pass = status(given.pass.as_deref(), "?pass", &[204, 200])?;
        let keys = given.values(headers, from_field, client)?;
        let counter = match (given.rule, given.limit) {
            (Some(rule), None) => {
                let name = text(rule, "?rule")?.into_owned();
                let values = keys.into_iter().map(|key| Value(key.into_owned()));
                Counter::Rule { name, key: Some(Key::Many(values.collect())) }
            }
            (None, Some(limit)) => {
                let burst = number(given.burst.as_deref(), "?burst")?;
                let at = |member: &str| format!("?{member}");
                let limit = inline(&text(limit, "?limit")?, burst, at)?;
                let mut keys = keys.into_iter();
                let (Some(key), None) = (keys.next(), keys.next()) else {
                    return Err(Invalid::at("?key", "several keys; a limit has one"));
                };
                Counter::Inline { limit, key: Value(key.into_owned()) }
            }
            _ => return Err(Invalid::at("?rule", "both a rule and a limit; write one of them")),
        };
        let item = CheckItem { counter, written: Some(permits), usage: None };
        let mut check_request = CheckRequest { items: smallvec![item], ..CheckRequest::default() };
        if let Some((id, ttl)) = reservation(given.id, given.ttl, headers)? {
            (check_request.verb, check_request.id) = (Verb::Reserve, Some(id));
            check_request.ttl = ttl;
        }
        Ok(Self { check_request, deny, pass })
    }
}

impl<'a> Given<'a> {
    fn read(text: &'a str) -> Result<Self, Invalid> {
        if !query::is_well_formed(text) {
            let detail = "a % without two hexadecimal digits behind it; write % itself as %25";
            return Err(Invalid::at("?", detail));
        }
        let mut given = Self::default();
        for (name, value) in query::pairs(text) {
            let location = match &*name {
                b"key" => {
                    given.push(KeyComponent::Value(value))?;
                    continue;
                }
                b"from" => {
                    given.push(KeyComponent::From(value))?;
                    continue;
                }
                b"rule" => &mut given.rule,
                b"limit" => &mut given.limit,
                b"burst" => &mut given.burst,
                b"permits" => &mut given.permits,
                b"deny" => &mut given.deny,
                b"pass" => &mut given.pass,
                b"id" => &mut given.id,
                b"ttl" => &mut given.ttl,
                _ => {
                    let detail = "an unknown name; there are rule, key, from, limit, burst, \
                                  permits, deny, pass, id and ttl. A value with & in it has to be \
                                  percent-encoded, or left in a header field that `from` names";
                    return Err(Invalid::at("?", detail));
                }
            };
            if location.replace(value).is_some() {
                return Err(Invalid::at("?", "a name that comes twice; only `key` and `from` may"));
            }
        }
        Ok(given)
    }

    fn push(&mut self, component: KeyComponent<'a>) -> Result<(), Invalid> {
        if self.keys.len() == MAX_VALUES {
            return Err(Invalid::at("?key", "more keys than a rule can have"));
        }
        self.keys.push(component);
        Ok(())
    }

    /// Returns the values of the key, in the order of the address's parameters.
    fn values(
        &mut self,
        headers: &'a HeaderMap,
        from_field: bool,
        client: impl Fn() -> Option<String>,
    ) -> Result<SmallVec<[Cow<'a, [u8]>; 2]>, Invalid> {
        // All clients without a value share one counter.
        let of_field =
            |name: &HeaderName| Ok(Cow::Borrowed(field(headers, name)?.unwrap_or_default()));
        let of_address = || Cow::Owned(client().unwrap_or_default().into_bytes());
        let keys = std::mem::take(&mut self.keys);
        match keys.as_slice() {
            [] if from_field => return Ok(smallvec![of_field(&KEY)?]),
            [] => return Ok(smallvec![of_address()]),
            [KeyComponent::From(from)] if **from == *b"none" => return Ok(SmallVec::new()),
            _ => {}
        }
        let value = |component| match component {
            KeyComponent::Value(value) => Ok(value),
            KeyComponent::From(from) => match &*from {
                b"address" => Ok(of_address()),
                b"header" => of_field(&KEY),
                b"none" => Err(Invalid::at("?from", "none, and a key besides; write one of them")),
                other => {
                    let name = other.strip_prefix(b"header:");
                    let name = name.and_then(|name| HeaderName::from_bytes(name).ok());
                    let detail = "not understood; write address, none, header or header:NAME";
                    of_field(&name.ok_or_else(|| Invalid::at("?from", detail))?)
                }
            },
        };
        keys.into_iter().map(value).collect()
    }
}

/// Returns the id and the time of a reservation, if the address makes one.
fn reservation(
    id: Option<Cow<'_, [u8]>>,
    ttl: Option<Cow<'_, [u8]>>,
    headers: &HeaderMap,
) -> Result<Option<(UniqueId, Option<Duration>)>, Invalid> {
    let Some(id) = id else {
        let detail = "only beside `id`, under which a commit ends the reservation";
        return if ttl.is_some() { Err(Invalid::at("?ttl", detail)) } else { Ok(None) };
    };
    let named = match id.strip_prefix(b"header:") {
        None => Some(&*id),
        Some(name) => {
            let detail = "not understood; write 32 hexadecimal digits, or header:NAME";
            let name = HeaderName::from_bytes(name).map_err(|_| Invalid::at("?id", detail))?;
            field(headers, &name)?
        }
    };
    let parsed = named.and_then(|id| str::from_utf8(id).ok()?.parse().ok());
    let id = parsed.ok_or_else(|| {
        let given = named.map(|id| quoted(&String::from_utf8_lossy(id)));
        let given = given.unwrap_or_else(|| "a field that is missing".to_owned());
        let right = "an id is 32 hexadecimal digits, in the address or in the field that it names";
        Invalid::at("?id", format!("{given} is none; {right}"))
    })?;
    let invalid_ttl = |detail: String| Invalid::at("?ttl", detail);
    let ttl = ttl.map(|ttl| time(&text(ttl, "?ttl")?).map_err(invalid_ttl)).transpose()?;
    Ok(Some((id, ttl)))
}

/// Returns the value of a field that occurs once. Of two fields, it would be unknown which one the
/// proxy has set.
fn field<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Invalid> {
    let mut values = headers.get_all(name).into_iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Invalid::at("", "a field that names a rule or a key comes twice"));
    }
    Ok(first.map(http::HeaderValue::as_bytes))
}

fn text<'a>(bytes: Cow<'a, [u8]>, location: &str) -> Result<Cow<'a, str>, Invalid> {
    let invalid = || Invalid::at(location, "not UTF-8");
    match bytes {
        Cow::Borrowed(bytes) => str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| invalid()),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| invalid()),
    }
}

fn number(bytes: Option<&[u8]>, location: &str) -> Result<Option<u64>, Invalid> {
    let Some(bytes) = bytes else { return Ok(None) };
    let detail = "no whole number from 0 to 18446744073709551615";
    whole(bytes).map(Some).ok_or_else(|| Invalid::at(location, detail))
}

/// Parses one of the `known` statuses; the first is the default.
fn status(bytes: Option<&[u8]>, location: &str, known: &[u16]) -> Result<StatusCode, Invalid> {
    let number = number(bytes, location)?;
    let mut known_ones = known.iter().copied();
    let found = match number {
        None => known_ones.next(),
        Some(number) => known_ones.find(|one| u64::from(*one) == number),
    };
    let found = found.and_then(|status| StatusCode::from_u16(status).ok());
    let names = || known.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| Invalid::at(location, format!("not one of {}", names())))
}
