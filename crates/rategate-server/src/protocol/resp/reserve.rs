//! `RATEGATE.RESERVE`, `.COMMIT` and `.CANCEL`: estimates under an id, until the true cost is
//! known.
//!
//! - `RESERVE id|* ttl_ms|- rule permits [value ...]` holds permits for a time. The id `*` stands
//!   for a new one, and the time `-` for the smallest `ttl` of the rules.
//! - `COMMIT id rule permits [value ...]` ends the reservation, of which as many permits were used.
//! - `CANCEL id rule [value ...]` ends the reservation, of which nothing was used.
//!
//! `SERVED`, `DROPPED` or `IGNORED` before the id of a commit or a cancellation says how the
//! operation has ended, for permits in flight under a limit that follows measurements.
//!
//! Each of them accepts several items, which are held all or none. The word `ITEMS` and a number
//! then stand in the place of the rule, and each item states the number of its values:
//! `ITEMS n (rule permits n_values value ...)...`, for `CANCEL` without `permits`. The word may be
//! in lower case. A rule of that name needs this form, of one item if it is alone.
//!
//! The reply about one rule is that of [`own`](super::own), whose `permits` are those held by a
//! `RESERVE`, with three more fields:
//!
//! - `id`: the id, 32 hexadecimal digits, also if nothing is held under it.
//! - `ends_after_ms`: the time until the reservation ends by itself, rounded down; null unless it
//!   lasts.
//! - `repeated`: true if the operation had been answered before, and changed nothing now.
//!
//! The reply about several items is a map of `allowed`, `id`, `ends_after_ms`, `repeated` and
//! `items`. The last is an array of maps, in the order of the items, with the fields of
//! [`own`](super::own) except `allowed`: that holds for all of them together.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::protocol::resp::{CommandWords, RespWriter};
use rategate::Clock;
use smallvec::{SmallVec, smallvec};

use super::Resp;
use super::number::{integer, put_ends_after, shown, unsigned};
use super::own::{self, Pending};
use super::session::Session;
use crate::engine::{Cost, EngineError, Item, MAX_ITEMS, Reserved, Target, UniqueId};
use crate::net::RefusalReason;

/// The operation of a command on a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReservationVerb {
    Reserve,
    Commit,
    Cancel,
}

/// A parsed command.
struct Call<'a> {
    id: UniqueId,
    /// The time of a new reservation; that of its rules if `None`.
    ttl: Option<Duration>,
    items: SmallVec<[Item<'a>; 2]>,
    /// `true` if the items came in the form for several.
    is_listed: bool,
}

/// The form of a reply.
struct Form {
    id: UniqueId,
    /// The number of items.
    items: usize,
    is_listed: bool,
    /// `true` if it is to a new reservation.
    is_new: bool,
}

/// Consecutive words of a command.
type Words<'a> = &'a [&'a [u8]];

/// The maximum number of an item's words that an error shows.
const MAX_SHOWN: usize = 4;

impl<C: Clock + Clone + 'static> Resp<C> {
    /// Runs `RATEGATE.RESERVE`, `.COMMIT` and `.CANCEL`. The reply is written, or follows later.
    pub(super) fn reserve(
        &self,
        session: &mut Session,
        verb: ReservationVerb,
        words: CommandWords<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Pending> {
        let mut reply = RespWriter::new(out, session.version);
        let first = if verb == ReservationVerb::Reserve { 3 } else { 2 };
        let named: SmallVec<[&[u8]; 8]> = words.skip(first).collect();
        let call = read(verb, words, &named, &mut reply)?;
        let (engine, items) = (self.engine(), call.items.iter());
        let reserved = match verb {
            ReservationVerb::Reserve => engine.reserve(call.id, call.ttl, &call.items),
            ReservationVerb::Commit => {
                let costs = items.map(|item| Cost {
                    target: item.target,
                    permits: Some(item.permits),
                    usage: None,
                });
                engine.commit(call.id, &costs.collect::<SmallVec<[_; 2]>>())
            }
            ReservationVerb::Cancel => {
                let targets = items.map(|item| item.target);
                engine.cancel(call.id, &targets.collect::<SmallVec<[_; 2]>>())
            }
        };
        let form = Form {
            id: call.id,
            items: call.items.len(),
            is_listed: call.is_listed,
            is_new: verb == ReservationVerb::Reserve,
        };
        own::now_or_later(
            reserved,
            move |reserved, reply| form.write(reserved, reply),
            out,
            session,
        )
    }
}

/// Parses a command whose items are `named`, or writes an error and returns `None`.
fn read<'a>(
    verb: ReservationVerb,
    words: CommandWords<'_>,
    named: Words<'a>,
    reply: &mut RespWriter<'_>,
) -> Option<Call<'a>> {
    let is_new = verb == ReservationVerb::Reserve;
    let Some(id) = own::unique_id(words.at(1), is_new) else {
        let or_new = if is_new { ", or * to draw a new one" } else { "" };
        let given = shown(words.at(1));
        reply.error(&format!(
            "ERR the id is {given}; a reservation's id is 32 hexadecimal digits{or_new}"
        ));
        return None;
    };
    let mut ttl = None;
    if is_new && words.at(2) != b"-" {
        let Some(ttl_ms) = unsigned(words.at(2)) else {
            let ttl_ms = shown(words.at(2));
            reply.error(&format!(
                "ERR ttl_ms is {ttl_ms}; write a number of milliseconds from 1 on, or - for the \
                 rules' own"
            ));
            return None;
        };
        ttl = Some(Duration::from_millis(ttl_ms));
    }
    let (items, is_listed) = match named {
        [form, count, listed @ ..]
            if form.eq_ignore_ascii_case(b"ITEMS") && is_of_list(verb, count) =>
        {
            (list(verb, count, listed, reply)?, true)
        }
        _ => (smallvec![own::or_error(item(verb, named, false), reply)?.0], false),
    };
    Some(Call { id, ttl, items, is_listed })
}

/// Returns `true` if a word behind `ITEMS` is to be a number of items: it is a number, or can be
/// neither permits nor a value of a rule of that name.
fn is_of_list(verb: ReservationVerb, word: &[u8]) -> bool {
    integer(word).is_some() || verb != ReservationVerb::Cancel
}

/// Parses as many items as a number says, and no words behind them.
fn list<'a>(
    verb: ReservationVerb,
    count: &[u8],
    mut words: Words<'a>,
    reply: &mut RespWriter<'_>,
) -> Option<SmallVec<[Item<'a>; 2]>> {
    let number = unsigned(count).and_then(|count| usize::try_from(count).ok());
    let Some(count @ 1..=MAX_ITEMS) = number else {
        let count = shown(count);
        reply.error(&format!(
            "ERR the number of items is {count}; write a whole number from 1 to {MAX_ITEMS}"
        ));
        return None;
    };
    let mut items = SmallVec::new();
    for index in 0..count {
        let parsed = item(verb, words, true).map_err(|error| of_item(index, &error));
        let (next, behind) = own::or_error(parsed, reply)?;
        items.push(next);
        words = behind;
    }
    if !words.is_empty() {
        let sent = shown_start(words);
        reply.error(&format!("ERR words behind the last item: {sent}; none are accepted"));
        return None;
    }
    Some(items)
}

/// Returns an error with the number of its item.
fn of_item(index: usize, error: &str) -> String {
    format!("item {index}, counted from 0: {error}")
}

/// Parses an item, and returns the words behind it. All words are of the item, unless it is listed
/// and states the number of its values.
fn item(
    verb: ReservationVerb,
    words: Words<'_>,
    is_listed: bool,
) -> Result<(Item<'_>, Words<'_>), String> {
    let (head, form) = match verb {
        ReservationVerb::Cancel => (1, "rule n_values value ..."),
        _ => (2, "rule permits n_values value ..."),
    };
    let parts = words.split_at_checked(head).and_then(|(head, rest)| {
        let (values, behind) = if is_listed {
            let (count, rest) = rest.split_first()?;
            rest.split_at_checked(unsigned(count)?.try_into().ok()?)?
        } else {
            (rest, Words::default())
        };
        Some((head, values, behind))
    });
    let Some((head, values, behind)) = parts else {
        let sent = shown_start(words);
        return Err(format!("it is {sent}; write `{form}`, as many values as n_values says"));
    };
    let name = own::rule_name(head.first().copied().unwrap_or_default())?;
    let permits = head.get(1).map_or(Ok(0), |word| own::permits(word))?;
    Ok((Item::of(Target::Rule { name, values }, permits), behind))
}

/// Returns the first of some words for an error, and the number of the others.
fn shown_start(words: Words<'_>) -> String {
    if words.is_empty() {
        return "missing".to_owned();
    }
    let start: Vec<String> = words.iter().take(MAX_SHOWN).map(|word| shown(word)).collect();
    let start = start.join(" ");
    match words.len().saturating_sub(MAX_SHOWN) {
        0 => start,
        1 => format!("{start} and 1 word more"),
        more => format!("{start} and {more} words more"),
    }
}

impl Form {
    /// Writes a reply. Returns the reason for which the command counts as refused, if it does.
    fn write(
        self,
        reserved: Result<Reserved, EngineError>,
        reply: &mut RespWriter<'_>,
    ) -> Option<RefusalReason> {
        let reserved = match reserved {
            // That no more ids can be known is a fault that says so.
            Err(error @ EngineError::TooManyReservations { .. }) => Err(error),
            reserved if self.is_new => Reserved::or_denied(reserved, self.items),
            reserved => reserved,
        };
        match reserved {
            Ok(reserved) => {
                self.write_reserved(&reserved, reply);
                reserved.answer.refusal()
            }
            Err(error) => {
                let text = match error {
                    EngineError::NoPermits { item, .. } if self.is_listed => {
                        of_item(item, &error.to_string())
                    }
                    _ => error.to_string(),
                };
                reply.error(&format!("ERR {text}"));
                Some(error.refusal())
            }
        }
    }

    fn write_reserved(&self, reserved: &Reserved, reply: &mut RespWriter<'_>) {
        let allowed = reserved.answer.allowed;
        let write_reservation = |reply: &mut RespWriter<'_>| {
            reply.bulk(b"id");
            reply.bulk(self.id.to_string().as_bytes());
            put_ends_after(reserved.ends_after_ns.map(NonZeroU64::get), reply);
            reply.bulk(b"repeated");
            reply.truth(reserved.is_repeated);
        };
        if self.is_listed {
            reply.map(5);
            reply.bulk(b"allowed");
            reply.truth(allowed);
            write_reservation(reply);
            reply.bulk(b"items");
            reply.array(self.items);
        }
        for result in &reserved.answer.results {
            // Nothing is held of an item that fits if another denies the reservation.
            let held = result.held().unwrap_or(0);
            reply.map(if self.is_listed { 8 } else { 12 });
            own::write_fields(result, (!self.is_listed).then_some(allowed), held, reply);
        }
        if !self.is_listed {
            write_reservation(reply);
        }
    }
}
