//! Entries of descriptors that state an operation: `rategate.id`, `rategate.verb` and
//! `rategate.ttl`. A proxy that sends descriptors and nothing else reserves and commits by them.
//!
//! # Contract
//!
//! * Without `[grpc] verbs` the entries are like others. Calls with such entries are counted, and
//!   the first is logged.
//! * The entries are taken out before any rule is looked for. What remains is matched as if they
//!   had never been there.
//! * A call is one operation: its descriptors state equal entries, or none of them states any.
//! * An id has 32 hexadecimal digits, or is a UUID with its four dashes. Both forms of the same
//!   digits are one id.
//! * What is wrong is refused with the name of its entry, and nothing is counted.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rategate_core::span;
use smallvec::SmallVec;

use super::reply::Options;
use super::request::{Descriptor, MalformedRequest};
use crate::engine::UniqueId;

/// The keys of the entries.
const PREFIX: &[u8] = b"rategate.";
pub(super) const ID: &str = "rategate.id";
pub(super) const VERB: &str = "rategate.verb";
pub(super) const TTL: &str = "rategate.ttl";

/// The maximum length of a client's text in errors and in the log, in characters.
const MAX_SHOWN: usize = 64;

/// The problem with an entry of a reservation in another operation.
pub(super) const OF_RESERVE: &str = "it is of the verb `reserve` alone; leave it out";

/// The descriptors of a call.
pub(super) type Descriptors<'a> = SmallVec<[Descriptor<'a>; 2]>;

/// The operation that the descriptors of a call state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stated {
    pub(super) id: Option<UniqueId>,
    pub(super) verb: Option<StatedVerb>,
    pub(super) ttl: Option<Duration>,
}

/// A verb that a descriptor states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatedVerb {
    Take,
    Charge,
    Reserve,
    Commit,
    Cancel,
}

/// Returns what the descriptors state, and the descriptors without it. `None` if they state
/// nothing, which is nearly always so, or if they cannot state anything by the options.
pub(super) fn take_out<'a>(
    domain: &str,
    descriptors: &[Descriptor<'a>],
    options: &Options,
) -> Result<Option<(Stated, Descriptors<'a>)>, MalformedRequest> {
    let is_ours = |descriptor: &Descriptor<'_>| {
        descriptor.entries.iter().any(|(key, _)| key.starts_with(PREFIX))
    };
    if !descriptors.iter().any(is_ours) {
        return Ok(None);
    }
    if !options.verbs {
        ignore(domain, options);
        return Ok(None);
    }
    let mut all = Descriptors::new();
    let mut first = None;
    for (index, descriptor) in descriptors.iter().enumerate() {
        let stated = Stated::of(descriptor, index)?;
        let first = first.get_or_insert(stated);
        if let Some(part) = first.differs_from(&stated) {
            let problem = "it differs from that of descriptor 0; all descriptors of a call state \
                           one operation";
            return Err(wrong(index, part, problem));
        }
        let is_others = |entry: &&(&[u8], &[u8])| !entry.0.starts_with(PREFIX);
        let entries = descriptor.entries.iter().filter(is_others).copied().collect();
        all.push(Descriptor { entries, ..descriptor.clone() });
    }
    Ok(first.map(|stated| (stated, all)))
}

/// Counts a call whose descriptors state an operation that is not executed, and logs the first.
fn ignore(domain: &str, options: &Options) {
    if options.ignored_verbs.fetch_add(1, Ordering::Relaxed) == 0 {
        let domain: String = domain.chars().take(MAX_SHOWN).collect();
        tracing::warn!(
            ?domain,
            "descriptors have entries like `rategate.verb`, and `[grpc] verbs` is off: they are \
             matched like others, and nothing is reserved or committed. Set `verbs = true` under \
             `[grpc]`, or RATEGATE_GRPC_VERBS, if that is meant. Further calls count in \
             rategate_ignored_verbs_total"
        );
    }
}

impl Stated {
    /// Reads the entries of the descriptor at an index.
    fn of(descriptor: &Descriptor<'_>, index: usize) -> Result<Self, MalformedRequest> {
        let mut stated = Self::default();
        for (key, value) in descriptor.entries.iter().filter(|(key, _)| key.starts_with(PREFIX)) {
            let (part, is_repeated, read) = match *key {
                b"rategate.id" => (ID, stated.id.is_some(), stated.read_id(value)),
                b"rategate.verb" => (VERB, stated.verb.is_some(), stated.read_verb(value)),
                b"rategate.ttl" => (TTL, stated.ttl.is_some(), stated.read_ttl(value)),
                other => {
                    let key = String::from_utf8_lossy(other);
                    let problem = "there are rategate.id, rategate.verb and rategate.ttl";
                    return Err(wrong(index, &key, problem));
                }
            };
            if is_repeated {
                return Err(wrong(index, part, "it is there twice; state it once"));
            }
            read.map_err(|problem| wrong(index, part, &problem))?;
        }
        stated.check().map_err(|(part, problem)| wrong(index, part, problem))?;
        Ok(stated)
    }

    fn read_id(&mut self, value: &[u8]) -> Result<(), String> {
        self.id = Some(id_of(value).ok_or_else(not_an_id)?);
        Ok(())
    }

    fn read_verb(&mut self, value: &[u8]) -> Result<(), String> {
        self.verb = Some(match value {
            b"take" => StatedVerb::Take,
            b"charge" => StatedVerb::Charge,
            b"reserve" => StatedVerb::Reserve,
            b"commit" => StatedVerb::Commit,
            b"cancel" => StatedVerb::Cancel,
            _ => return Err("it is one of take, charge, reserve, commit and cancel".to_owned()),
        });
        Ok(())
    }

    fn read_ttl(&mut self, value: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(value).map_err(|_| not_a_ttl())?;
        let ttl = Duration::from_nanos(span::parse(text).map_err(|_| not_a_ttl())?);
        self.ttl = Some(ttl);
        Ok(())
    }

    /// Checks that the entries belong together.
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        use StatedVerb::{Cancel, Commit, Reserve};
        if self.id.is_none() && matches!(self.verb, Some(Reserve | Commit | Cancel)) {
            return Err((ID, "it is missing; a reservation has an id, such as `x-request-id`"));
        }
        if self.ttl.is_some() && !matches!(self.verb, Some(Reserve) | None) {
            return Err((TTL, OF_RESERVE));
        }
        Ok(())
    }

    /// Returns the entry in which two descriptors differ.
    fn differs_from(&self, other: &Self) -> Option<&'static str> {
        match other {
            other if self.id != other.id => Some(ID),
            other if self.verb != other.verb => Some(VERB),
            other if self.ttl != other.ttl => Some(TTL),
            _ => None,
        }
    }
}

/// Returns the id of a text: 32 hexadecimal digits, or a UUID.
pub(super) fn id_of(value: &[u8]) -> Option<UniqueId> {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let digits: SmallVec<[u8; 36]> = if value.len() == 36 {
        let is_dash = |at: &usize| value.get(*at) == Some(&b'-');
        let digits = value.iter().enumerate().filter(|(at, _)| !DASHES.contains(at));
        DASHES.iter().all(is_dash).then(|| digits.map(|(_, digit)| *digit).collect())?
    } else {
        value.into()
    };
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

pub(super) fn not_an_id() -> String {
    "it has 32 hexadecimal digits, or is a UUID".to_owned()
}

fn not_a_ttl() -> String {
    "it is a time like \"30s\", longer than 0, and at most the `max_ttl` of its rules".to_owned()
}

/// Creates the error for a part of a descriptor.
pub(super) fn wrong(descriptor: usize, part: &str, problem: &str) -> MalformedRequest {
    let part = part.chars().take(MAX_SHOWN).collect();
    MalformedRequest::Descriptor { descriptor, part, problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_id_are_one() {
        let plain = id_of(b"0123456789abcdef0123456789ABCDEF").unwrap();
        assert_eq!(id_of(b"01234567-89ab-cdef-0123-456789abcdef"), Some(plain));
        assert_eq!(plain.to_string(), "0123456789abcdef0123456789abcdef");
        for text in [
            "",
            "0123456789abcdef0123456789abcde",
            "0123456789abcdef0123456789abcdef0",
            "0123456-789ab-cdef-0123-456789abcdef",
            "01234567-89ab-cdef-0123-456789abcde-",
            "0123456789abcdef0123456789abcdef----",
            "{123456789abcdef0123456789abcdef}",
            "01234567-89ab-cdef-0123-456789abcdeg",
        ] {
            assert_eq!(id_of(text.as_bytes()), None, "{text}");
        }
    }
}
