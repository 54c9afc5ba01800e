//! `RATEGATE.LEASE`: permits in flight under a name.
//!
//! - `TAKE name rule permits [value ...]` takes permits. The name `*` stands for a new one. Under a
//!   name in use, the command renews the permits.
//! - `RENEW name rule permits [value ...]` extends their time to its full length from now.
//! - `RELEASE [SERVED|DROPPED|IGNORED] name rule permits [value ...]` releases them. The word says
//!   how the operation has ended, for a limit that follows measurements: ignored by default.
//! - `HELP` lists the subcommands.
//!
//! The values are those of the rule's variable entries, in order. The reply is that of
//! [`own`](super::own), with two more fields:
//!
//! - `lease`: the lease's name, 32 hexadecimal digits; null if there is no lease.
//! - `ends_after_ms`: the time until the lease ends unless it is renewed, rounded down; null if
//!   there is no lease.

use crate::protocol::resp::{CommandWords, RespWriter};
use rategate::Clock;
use smallvec::SmallVec;

use super::Resp;
use super::commands::unknown_sub;
use super::forms::argument_count_error;
use super::number::{put_ends_after, shown};
use super::own::{self, CommandRequest, Pending};
use super::session::Session;
use crate::engine::{Lease, LeaseVerb, UniqueId, Verb};

/// The subcommands, each with the verb whose reply it has.
const VERBS: [(&str, LeaseVerb, Verb); 3] = [
    ("TAKE", LeaseVerb::Take, Verb::Take),
    ("RENEW", LeaseVerb::Renew, Verb::Take),
    ("RELEASE", LeaseVerb::Release, Verb::Refund),
];

const HELP: [&str; 8] = [
    "RATEGATE.LEASE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "TAKE <name>|* <rule> <permits> [<value> ...]",
    "    Take permits of a rule with the algorithm concurrency, under a name of 32 hexadecimal \
         digits or a new one.",
    "RENEW <name> <rule> <permits> [<value> ...]",
    "    Extend their time to its full length from now.",
    "RELEASE <name> <rule> <permits> [<value> ...]",
    "    Release them.",
    "HELP",
];

impl<C: Clock + Clone + 'static> Resp<C> {
    /// Runs `RATEGATE.LEASE`. Its reply is appended to `out`, or follows later.
    pub(super) fn lease(
        &self,
        session: &mut Session,
        words: CommandWords<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Pending> {
        let mut reply = RespWriter::new(out, session.version);
        let sub = words.at(1);
        let found = VERBS.iter().find(|(name, ..)| sub.eq_ignore_ascii_case(name.as_bytes()));
        let Some(&(sub_name, verb, reply_verb)) = found else {
            if sub.eq_ignore_ascii_case(b"HELP") && words.len() == 2 {
                reply.array(HELP.len());
                for line in HELP {
                    reply.simple(line);
                }
            } else {
                unknown_sub(sub, "RATEGATE.LEASE", &mut reply);
            }
            return None;
        };
        if words.len() < 5 {
            argument_count_error(&format!("rategate.lease|{sub_name}"), &mut reply);
            return None;
        }
        let Some(name) = own::unique_id(words.at(2), verb == LeaseVerb::Take) else {
            let or_new = match verb {
                LeaseVerb::Take => ", or * to take a new one",
                LeaseVerb::Renew | LeaseVerb::Release => "",
            };
            let given = shown(words.at(2));
            reply.error(&format!(
                "ERR the name is {given}; a lease's name is 32 hexadecimal digits{or_new}"
            ));
            return None;
        };
        let rule = own::or_error(own::rule_name(words.at(3)), &mut reply)?;
        let permits = own::or_error(own::permits(words.at(4)), &mut reply)?;
        let values: SmallVec<[&[u8]; 8]> = words.skip(5).collect();
        let decided = self.engine().lease(verb, &Lease { name, rule, values: &values, permits });
        own::reply_now_or_later(
            decided,
            CommandRequest { verb: reply_verb, permits, lease: Some(name), repeated: None },
            out,
            session,
        )
    }
}

/// Writes the two fields that only the reply about a lease has.
pub(super) fn write_fields(name: UniqueId, held_ns: Option<u64>, reply: &mut RespWriter<'_>) {
    reply.bulk(b"lease");
    match held_ns {
        Some(_) => reply.bulk(name.to_string().as_bytes()),
        None => reply.null(),
    }
    put_ends_after(held_ns, reply);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::resp::Version;

    /// Rounded down, so that a client that follows it releases in time.
    #[test]
    fn the_end_of_a_lease_is_rounded_down() {
        let name: UniqueId = "00112233445566778899aabbccddeeff".parse().unwrap();
        for (held_ns, ends) in [(Some(1_999_999), ":1"), (Some(999_999), ":0"), (None, "$-1")] {
            let mut out = Vec::new();
            write_fields(name, held_ns, &mut RespWriter::new(&mut out, Version::Two));
            let expected = format!("$13\r\nends_after_ms\r\n{ends}\r\n");
            assert!(String::from_utf8(out).unwrap().ends_with(&expected), "{held_ns:?}");
        }
    }
}
