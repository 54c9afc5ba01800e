//! Commands of rategate, which address rules by their names.
//!
//! Replies are a map, in RESP2 an array of alternating names and values, always in this order:
//!
//! - `rule`: the rule's name.
//! - `allowed`: true if the caller may proceed; a boolean, in RESP2 1 or 0.
//! - `verdict`: `granted`, `denied`, `shadowed` (over, and not enforced), `unlimited`, `unmatched`,
//!   `replaced`, `charged`, `refunded`, `reset`, or `unavailable` (the store is unavailable, and
//!   the rule's fallback decides); for the end of a reservation `committed`, `cancelled`, `late` or
//!   `unknown`.
//! - `permits`: the number of permits taken, held, charged or credited.
//! - `limit`: the maximum that can be taken at once.
//! - `remaining`: the number that could be taken now; null where only a store knows it.
//! - `debt`: the number by which the limit is exceeded; more than 0 only after a charge.
//! - `retry_after_ms`: the time until the same call fits, rounded up; -1 if it fits now or never
//!   will.
//! - `reset_after_ms`: the time until nothing is in use, rounded up; -1 if that never happens.

use std::future::Future;
use std::pin::Pin;

use crate::protocol::resp::{CommandWords, RespWriter};
use rategate::Clock;
use rategate::charge::Settled;
use rategate_core::span;
use smallvec::SmallVec;

use super::Resp;
use super::forms::argument_count_error;
use super::lease;
use super::number::{put_or_minus_one, shown, unsigned};
use super::session::Session;
use crate::engine::{
    Answer, Decided, EngineError, Item, ItemResult, Request, Reserved, Target, UniqueId, Verb,
    Verdict,
};
use crate::net::RefusalReason;
use crate::rule::{CounterLocation, Enforcement, HoldBounds, Limit, Rule, Value, threshold};
use crate::units::whole_ms;

/// A reply that waits for a decision: its bytes, and the reason for which the command counts as
/// refused, if it does.
pub(super) type Pending = Pin<Box<dyn Future<Output = (Vec<u8>, Option<RefusalReason>)> + Send>>;

/// The request behind a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandRequest {
    pub(super) verb: Verb,
    pub(super) permits: u64,
    /// The lease of the request, if it concerns one.
    pub(super) lease: Option<UniqueId>,
    /// Of a request that is made once: `true` if it had been made before.
    pub(super) repeated: Option<bool>,
}

impl<C: Clock + Clone + 'static> Resp<C> {
    /// Runs `RATEGATE.CHECK`, `.PEEK`, `.CHARGE`, `.REFUND` and `.RESET`. The reply is written, or
    /// follows later.
    ///
    /// `RATEGATE.CHARGE once|- rule permits [value ...]` is a charge under an id, or `-` for none.
    /// `RATEGATE.CHECK` and `RATEGATE.REFUND` are so too. The reply has one more field under an
    /// id, `repeated`.
    pub(super) fn check(
        &self,
        session: &mut Session,
        verb: Verb,
        words: CommandWords<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Pending> {
        let mut reply = RespWriter::new(out, session.version);
        let counts_once = matches!(verb, Verb::Take | Verb::Charge | Verb::Refund);
        let once = if counts_once { once(words) } else { None };
        if counts_once && once.is_none() && lacks_permits(words) {
            argument_count_error(&String::from_utf8_lossy(words.at(0)), &mut reply);
            return None;
        }
        let rule = 1_usize.saturating_add(once.is_some().into());
        let first = rule.saturating_add(1);
        let (permits, first) = if verb == Verb::Reset {
            (0, first)
        } else {
            let permits = or_error(permits(words.at(first)), &mut reply)?;
            (permits, first.saturating_add(1))
        };
        let name = or_error(rule_name(words.at(rule)), &mut reply)?;
        let values: SmallVec<[&[u8]; 8]> = words.skip(first).collect();
        let items = [Item::of(Target::Rule { name, values: &values }, permits)];
        let request = Request { verb, items: &items, counts_denied: false };
        let form = CommandRequest { verb, permits, lease: None, repeated: None };
        let Some(id) = once.flatten() else {
            return reply_now_or_later(self.engine().decide(&request), form, out, session);
        };
        let write_made = move |made: Result<Reserved, EngineError>, reply: &mut RespWriter<'_>| {
            let repeated = made.as_ref().ok().map(|made| made.is_repeated);
            write(made.map(|made| made.answer), CommandRequest { repeated, ..form }, reply)
        };
        now_or_later(self.engine().once(id, &request), write_made, out, session)
    }

    /// Runs `RATEGATE.EXPLAIN rule`, which describes a rule in force.
    ///
    /// The reply is a map of `rule`, `domain`, `limit`, `enforcement`, `place`, `written`,
    /// `entries`, `ttl`, `max_ttl`, `max_held`. All values are texts but `entries`,
    /// which is an array of texts.
    pub(super) fn explain(
        &self,
        session: &mut Session,
        words: CommandWords<'_>,
        mut reply: RespWriter<'_>,
    ) where
        C: Clock + Clone + 'static,
    {
        let Some(name) = or_error(rule_name(words.at(1)), &mut reply) else { return };
        let rule = self.engine().rule_named(name);
        let Some(rule) = rule.as_deref() else {
            session.refusal = Some(RefusalReason::EngineError);
            return reply.error(&format!("ERR {}", self.engine().no_such_rule(name)));
        };
        let texts = [
            ("rule", rule.name.to_string()),
            ("domain", rule.domain.to_string()),
            ("limit", limit(rule)),
            ("enforcement", enforcement(rule.enforcement).to_owned()),
            ("place", location(rule.location)),
            ("written", rule.origin.to_string()),
        ];
        let HoldBounds { ttl, max_ttl, max_held } = rule.hold_bounds;
        let [ttl, max_ttl] = [ttl, max_ttl].map(|time| span::Text(span::whole_ns(time)));
        let of_reservations = [
            ("ttl", ttl.to_string()),
            ("max_ttl", max_ttl.to_string()),
            ("max_held", threshold(max_held.unwrap_or(10_000))),
        ];
        reply.map(texts.len().saturating_add(1).saturating_add(of_reservations.len()));
        put_texts(texts, &mut reply);
        reply.bulk(b"entries");
        reply.array(rule.entries.len());
        for entry in &rule.entries {
            let text = match &entry.value {
                Value::Any => format!("{}", entry.key),
                Value::Exact(value) => format!("{}={value}", entry.key),
                Value::OneOf(values) => format!("{}={}", entry.key, values.join("|")),
                Value::Pattern { text, .. } => format!("{}={text}", entry.key),
            };
            reply.bulk(text.as_bytes());
        }
        put_texts(of_reservations, &mut reply);
    }
}

fn put_texts<const N: usize>(texts: [(&str, String); N], reply: &mut RespWriter<'_>) {
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
}

/// Parses a number of permits.
pub(super) fn permits(word: &[u8]) -> Result<u64, String> {
    unsigned(word).ok_or_else(|| {
        format!(
            "permits is not an integer or out of range: {}; write a whole number from 0 to {}",
            shown(word),
            u64::MAX
        )
    })
}

/// Parses a rule's name.
pub(super) fn rule_name(word: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(word).map_err(|_| "a rule's name is text in UTF-8".to_owned())
}

/// Writes the error of a word that could not be parsed.
pub(super) fn or_error<T>(parsed: Result<T, String>, reply: &mut RespWriter<'_>) -> Option<T> {
    parsed.map_err(|error| reply.error(&format!("ERR {error}"))).ok()
}

/// Parses an id. Where one `may_be_new`, `*` draws it.
pub(super) fn unique_id(word: &[u8], may_be_new: bool) -> Option<UniqueId> {
    match word {
        b"*" if may_be_new => Some(UniqueId::random()),
        word => std::str::from_utf8(word).ok()?.parse().ok(),
    }
}

/// Returns the id under which a request is made once, or `None` inside for none. The form without
/// an id has a number in the place of the rule's name.
#[expect(clippy::option_option, reason = "an id, none, or another form")]
fn once(words: CommandWords<'_>) -> Option<Option<UniqueId>> {
    // An id as the name of a rule has the number of permits behind it.
    if unsigned(words.get(3)?).is_none() && unsigned(words.at(2)).is_some() {
        return None;
    }
    match words.at(1) {
        b"-" => Some(None),
        word => unique_id(word, false).map(Some),
    }
}

/// Returns `true` for an id and a rule's name without permits, which are the last of the words.
fn lacks_permits(words: CommandWords<'_>) -> bool {
    let is_id = |word: &[u8]| word == b"-" || unique_id(word, false).is_some();
    words.len() == 3 && unsigned(words.at(2)).is_none() && is_id(words.at(1))
}

/// Writes the reply to a decision that is made already.
pub(super) fn reply_now_or_later(
    decided: Decided,
    request: CommandRequest,
    out: &mut Vec<u8>,
    session: &mut Session,
) -> Option<Pending> {
    now_or_later(decided, move |answer, reply| write(answer, request, reply), out, session)
}

/// Writes the reply to a decision that is made already, by `write`.
pub(super) fn now_or_later<A: 'static>(
    decided: Decided<A>,
    write: impl FnOnce(Result<A, EngineError>, &mut RespWriter<'_>) -> Option<RefusalReason>
    + Send
    + 'static,
    out: &mut Vec<u8>,
    session: &mut Session,
) -> Option<Pending> {
    let version = session.version;
    match decided {
        Decided::Now(answer) => {
            session.refusal = write(answer, &mut RespWriter::new(out, version));
            None
        }
        Decided::Later(answer) => Some(Box::pin(async move {
            let (answer, mut bytes) = (answer.await, Vec::new());
            let refusal = write(answer, &mut RespWriter::new(&mut bytes, version));
            (bytes, refusal)
        })),
    }
}

/// Writes a reply. Returns the reason for which the command counts as refused, if it does.
///
/// If a full table cannot count a request, taking is denied. A credit grants nothing, so its
/// error is reported.
pub(super) fn write(
    answer: Result<Answer, EngineError>,
    request: CommandRequest,
    reply: &mut RespWriter<'_>,
) -> Option<RefusalReason> {
    let answer = match request.verb {
        // That no more ids can be known is a fault that says so.
        _ if matches!(answer, Err(EngineError::TooManyReservations { .. })) => answer,
        Verb::Take | Verb::Peek => Answer::or_denied(answer, 1),
        Verb::Charge | Verb::Refund | Verb::Reset => answer,
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(fault) => {
            reply.error(&format!("ERR {fault}"));
            return Some(fault.refusal());
        }
    };
    let Some(result) = answer.results.first() else {
        reply.error("ERR the engine returned no result");
        return Some(RefusalReason::EngineError);
    };
    reply.map(match (request.lease, request.repeated) {
        (Some(_), _) => 11,
        (None, Some(_)) => 10,
        (None, None) => 9,
    });
    let taken = if request.verb == Verb::Take { request.permits } else { 0 };
    write_fields(result, Some(answer.allowed), taken, reply);
    if let Some(name) = request.lease {
        lease::write_fields(name, answer.held_ns(), reply);
    }
    if let Some(repeated) = request.repeated {
        reply.bulk(b"repeated");
        reply.truth(repeated);
    }
    answer.refusal()
}

/// Writes the fields of one item; `allowed` only if it is given. `taken` is the number of permits
/// that a grant has taken.
pub(super) fn write_fields(
    result: &ItemResult,
    allowed: Option<bool>,
    taken: u64,
    reply: &mut RespWriter<'_>,
) {
    let permits = match result.verdict {
        Verdict::Granted => taken,
        Verdict::Charged(permits)
        | Verdict::Refunded(permits)
        | Verdict::Committed(Settled::Back { permits } | Settled::Owed { permits, .. })
        | Verdict::Cancelled(permits)
        | Verdict::Late(permits) => permits,
        _ => 0,
    };
    reply.bulk(b"rule");
    match &result.rule {
        Some(rule) => reply.bulk(rule.name.as_bytes()),
        None => reply.null(),
    }
    if let Some(allowed) = allowed {
        reply.bulk(b"allowed");
        reply.truth(allowed);
    }
    reply.bulk(b"verdict");
    let word = if result.is_soft() { result.word() } else { word(result.verdict) };
    reply.bulk(word.as_bytes());
    reply.bulk(b"permits");
    reply.unsigned(permits);
    reply.bulk(b"limit");
    reply.unsigned(result.limit);
    reply.bulk(b"remaining");
    match result.remaining {
        Some(remaining) => reply.unsigned(remaining),
        None => reply.null(),
    }
    reply.bulk(b"debt");
    reply.unsigned(result.debt);
    reply.bulk(b"retry_after_ms");
    put_or_minus_one(result.verdict.retry_after_ns().map(|ns| whole_ms(ns.get())), reply);
    reply.bulk(b"reset_after_ms");
    put_or_minus_one(result.reset_after().map(whole_ms), reply);
}

/// Returns the word for a verdict. No other field states whether the rule is enforced.
const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Denied { enforced: false, .. } => "shadowed",
        Verdict::Unavailable { .. } => "unavailable",
        verdict => verdict.word(),
    }
}

fn limit(rule: &Rule) -> String {
    match rule.limit {
        Limit::Unlimited => "unlimited".to_owned(),
        Limit::Exempt => "exempt".to_owned(),
        Limit::Nothing => "nothing".to_owned(),
        Limit::Policy(_) | Limit::Counted(_) => rule.display_limit.to_string(),
    }
}

const fn enforcement(enforcement: Enforcement) -> &'static str {
    match enforcement {
        Enforcement::All => "all",
        Enforcement::Shadow => "shadow",
        Enforcement::Soft => "soft",
    }
}

fn location(location: CounterLocation) -> String {
    match location {
        CounterLocation::Here => "here".to_owned(),
        CounterLocation::StoreExact => "store".to_owned(),
        CounterLocation::StoreLeased { lease_ns } => {
            format!("store, leased for {} ms", whole_ms(lease_ns))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::resp::Version;

    use super::*;

    #[test]
    fn two_words_are_of_this_protocol_alone() {
        let denied = |enforced| word(Verdict::Denied { retry_after_ns: None, enforced });
        assert_eq!((denied(true), denied(false)), ("denied", "shadowed"));
        assert_eq!(
            word(Verdict::Unavailable { admitted: true, retry_after_ns: None }),
            "unavailable"
        );
        assert_eq!(
            word(Verdict::Unavailable { admitted: false, retry_after_ns: None }),
            "unavailable"
        );
        assert_eq!(word(Verdict::Unlimited), "unlimited");
    }

    fn written(result: ItemResult) -> String {
        let answer = Answer { allowed: true, results: smallvec::smallvec![result] };
        let mut out = Vec::new();
        let request = CommandRequest { verb: Verb::Take, permits: 3, lease: None, repeated: None };
        write(Ok(answer), request, &mut RespWriter::new(&mut out, Version::Two));
        String::from_utf8(out).unwrap().replace("\r\n", " ")
    }

    /// Fractions of a millisecond count as one more, so that a client that waits for that time
    /// does not return too early.
    #[test]
    fn waits_are_rounded_up() {
        let denied = Verdict::Denied { retry_after_ns: 1_000_001.try_into().ok(), enforced: true };
        let result = ItemResult {
            verdict: denied,
            remaining: None,
            reset_after_ns: 2_000_001,
            ..ItemResult::WITHOUT_CAPACITY
        };
        let text = written(result.clone());
        assert!(text.starts_with("*18 $4 rule $-1 $7 allowed :1 $7 verdict $6 denied "), "{text}");
        let rest = "$9 remaining $-1 $4 debt :0 $14 retry_after_ms :2 $14 reset_after_ms :3 ";
        assert!(text.ends_with(rest), "{text}");
        let never = ItemResult { reset_after_ns: u64::MAX, ..result };
        assert!(written(never).ends_with("reset_after_ms :-1 "));
    }
}
