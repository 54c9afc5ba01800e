//! The commands: their names, the rights they need, and their replies.

use crate::protocol::resp::{CommandWords, RespWriter, Version};
use rategate::Clock;

use self::CommandKind::{Check, Reservation};
use super::Resp;
use super::forms::argument_count_error;
use super::number::integer;
use super::own::Pending;
use super::reserve::ReservationVerb::{self, Cancel, Commit, Reserve};
use super::session::Session;
use super::throttle::Dialect;
use crate::engine::Verb;
use crate::net::{RefusalReason, Right};

/// A command of the table.
#[derive(Debug)]
struct Command {
    /// The name, in capitals.
    name: &'static str,
    what: CommandKind,
    /// The minimum number of words, including the name.
    min_words: usize,
    max_words: usize,
    /// `true` if the word after the name is a key.
    is_keyed: bool,
    /// The right that the command needs; `None` for the commands of authentication and of closing.
    right: Option<Right>,
}

#[derive(Clone, Copy, Debug)]
enum CommandKind {
    Auth,
    Check(Verb),
    Client,
    Command,
    DbSize,
    Echo,
    Explain,
    Hello,
    Info,
    Lease,
    Ping,
    Quit,
    Reservation(ReservationVerb),
    Reset,
    Select,
    Throttle(Dialect),
}

const UNBOUNDED: usize = usize::MAX;

/// The most frequent commands come first.
const COMMANDS: &[Command] = &[
    of("CL.THROTTLE", CommandKind::Throttle(Dialect::Cell), 5, 6, true, Some(Right::Ask)),
    of("THROTTLE", CommandKind::Throttle(Dialect::Crab), 5, 6, true, Some(Right::Ask)),
    of("RATEGATE.CHECK", Check(Verb::Take), 3, UNBOUNDED, false, Some(Right::Ask)),
    of("RATEGATE.PEEK", Check(Verb::Peek), 3, UNBOUNDED, false, Some(Right::Ask)),
    of("RATEGATE.CHARGE", Check(Verb::Charge), 3, UNBOUNDED, false, Some(Right::Ask)),
    of("RATEGATE.REFUND", Check(Verb::Refund), 3, UNBOUNDED, false, Some(Right::Credit)),
    of("RATEGATE.LEASE", CommandKind::Lease, 2, UNBOUNDED, false, Some(Right::Ask)),
    of("RATEGATE.RESERVE", Reservation(Reserve), 5, UNBOUNDED, false, Some(Right::Ask)),
    of("RATEGATE.COMMIT", Reservation(Commit), 4, UNBOUNDED, false, Some(Right::Ask)),
    of("RATEGATE.CANCEL", Reservation(Cancel), 3, UNBOUNDED, false, Some(Right::Ask)),
    of("RATEGATE.RESET", Check(Verb::Reset), 2, UNBOUNDED, false, Some(Right::Admin)),
    of("RATEGATE.EXPLAIN", CommandKind::Explain, 2, 2, false, Some(Right::Ask)),
    of("PING", CommandKind::Ping, 1, 2, false, Some(Right::Ask)),
    of("ECHO", CommandKind::Echo, 2, 2, false, Some(Right::Ask)),
    of("HELLO", CommandKind::Hello, 1, UNBOUNDED, false, None),
    of("AUTH", CommandKind::Auth, 2, UNBOUNDED, false, None),
    of("CLIENT", CommandKind::Client, 2, UNBOUNDED, false, Some(Right::Ask)),
    of("COMMAND", CommandKind::Command, 1, UNBOUNDED, false, Some(Right::Ask)),
    of("SELECT", CommandKind::Select, 2, 2, false, Some(Right::Ask)),
    of("INFO", CommandKind::Info, 1, UNBOUNDED, false, Some(Right::Ask)),
    of("DBSIZE", CommandKind::DbSize, 1, 1, false, Some(Right::Ask)),
    of("QUIT", CommandKind::Quit, 1, UNBOUNDED, false, None),
    of("RESET", CommandKind::Reset, 1, 1, false, None),
];

const fn of(
    name: &'static str,
    what: CommandKind,
    min_words: usize,
    max_words: usize,
    is_keyed: bool,
    right: Option<Right>,
) -> Command {
    Command { name, what, min_words, max_words, is_keyed, right }
}

impl<C: Clock + Clone + 'static> Resp<C> {
    /// Runs a command, and counts it if it is refused. Its reply is appended to `out`, or follows
    /// later.
    pub(super) fn run(
        &self,
        session: &mut Session,
        words: CommandWords<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Pending> {
        let start = out.len();
        session.refusal = None;
        let pending = self.answer(session, words, out);
        let is_error = out.get(start) == Some(&b'-');
        let from_error = || reason(words.at(0), out.get(start..)?).filter(|_| is_error);
        if let Some(reason) = session.refusal.take().or_else(from_error) {
            session.refused(reason);
        }
        pending
    }

    fn answer(
        &self,
        session: &mut Session,
        words: CommandWords<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Pending> {
        let name = words.at(0);
        let mut reply = RespWriter::new(out, session.version);
        let Some(command) =
            COMMANDS.iter().find(|known| name.eq_ignore_ascii_case(known.name.as_bytes()))
        else {
            // A browser that was made to send a form here would go on to send the contents of its
            // page.
            if name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"HOST:") {
                session.is_over = true;
            } else if session.is_unauthenticated() {
                reply.error(NO_AUTH);
            } else {
                unknown(words, &mut reply);
            }
            return None;
        };
        if command.right.is_some_and(|right| !self.may(session, right)) {
            reply.error(NO_AUTH);
            return None;
        }
        if words.len() < command.min_words || words.len() > command.max_words {
            argument_count_error(command.name, &mut reply);
            return None;
        }
        match command.what {
            CommandKind::Throttle(dialect) => self.throttle(session, dialect, words, reply),
            Check(verb) => return self.check(session, verb, words, out),
            Reservation(verb) => return self.reserve(session, verb, words, out),
            CommandKind::Lease => return self.lease(session, words, out),
            CommandKind::Explain => self.explain(session, words, reply),
            CommandKind::Ping => match words.get(1) {
                Some(message) => reply.bulk(message),
                None => reply.simple("PONG"),
            },
            CommandKind::Echo => reply.bulk(words.at(1)),
            CommandKind::Hello => self.hello(session, words, out),
            CommandKind::Auth => self.auth(session, words, &mut reply),
            CommandKind::Client => client(session, words, &mut reply),
            CommandKind::Command => command_about(words, &mut reply),
            CommandKind::Select => select(session, words.at(1), &mut reply),
            CommandKind::Info => reply.bulk(self.info().as_bytes()),
            CommandKind::DbSize => {
                reply.unsigned(u64::try_from(self.engine().keys()).unwrap_or(u64::MAX));
            }
            CommandKind::Quit => {
                reply.ok();
                session.is_over = true;
            }
            CommandKind::Reset => {
                session.reset();
                RespWriter::new(out, session.version).simple("RESET");
            }
        }
        None
    }

    /// Returns `true` if a connection has a right, by the token that it has shown.
    pub(super) fn may(&self, session: &Session, right: Right) -> bool {
        self.access().permits(right, session.token(), session.token_required).is_ok()
    }

    fn hello(&self, session: &mut Session, words: CommandWords<'_>, out: &mut Vec<u8>) {
        let version = match words.get(1).map(integer) {
            None => session.version,
            Some(Some(2)) => Version::Two,
            Some(Some(3)) => Version::Three,
            Some(Some(_)) => {
                return RespWriter::new(out, session.version)
                    .error("NOPROTO unsupported protocol version");
            }
            Some(None) => {
                return RespWriter::new(out, session.version)
                    .error("ERR Protocol version is not an integer or out of range");
            }
        };
        let mut reply = RespWriter::new(out, session.version);
        let mut options = words.skip(2);
        let mut name = None;
        while let Some(option) = options.next() {
            if option.eq_ignore_ascii_case(b"AUTH") && options.len() >= 2 {
                let (_user, password) = (options.next(), options.next());
                if self.access().is_guarded() && !self.access().admits(password.unwrap_or_default())
                {
                    return reply.error(WRONG_PASS);
                }
                if self.access().is_guarded() {
                    session.admitted();
                }
            } else if option.eq_ignore_ascii_case(b"SETNAME") && options.len() >= 1 {
                name = options.next();
            } else {
                let option = option.get(..SHOWN).unwrap_or(option);
                let option = String::from_utf8_lossy(option);
                return reply.error(&format!("ERR Syntax error in HELLO option '{option}'"));
            }
        }
        if session.is_unauthenticated() {
            return reply.error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                 HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                 select the RESP protocol version at the same time",
            );
        }
        if let Some(name) = name
            && !set_name(session, name)
        {
            return reply.error(BAD_NAME);
        }
        session.version = version;
        let mut reply = RespWriter::new(out, version);
        reply.map(7);
        reply.bulk(b"server");
        reply.bulk(b"rategate");
        reply.bulk(b"version");
        reply.bulk(env!("CARGO_PKG_VERSION").as_bytes());
        reply.bulk(b"proto");
        reply.integer(if version == Version::Three { 3 } else { 2 });
        reply.bulk(b"id");
        reply.integer(session.id);
        reply.bulk(b"mode");
        reply.bulk(b"standalone");
        reply.bulk(b"role");
        reply.bulk(b"master");
        reply.bulk(b"modules");
        reply.array(0);
    }

    fn auth(&self, session: &mut Session, words: CommandWords<'_>, reply: &mut RespWriter<'_>)
    where
        C: Clock + Clone + 'static,
    {
        if words.len() > 3 {
            return reply.error("ERR syntax error");
        }
        let password = words.at(words.len().saturating_sub(1));
        if !self.access().is_guarded() {
            // In Redis, a user without a password can log in by name. There are no users here.
            session.refusal = Some(RefusalReason::EngineError);
            return match words.len() {
                2 => reply.error(
                    "ERR AUTH <password> called without any password configured for the default user. \
                     Are you sure your configuration is correct?",
                ),
                _ => reply.error(WRONG_PASS),
            };
        }
        if self.access().admits(password) {
            session.admitted();
            reply.ok();
        } else {
            reply.error(WRONG_PASS);
        }
    }

    /// Returns the text of `INFO`. The Redis version is the one whose clients are supported.
    fn info(&self) -> String {
        let rules = self.engine().rules();
        let (rules, hash) = rules.as_ref().map_or((0, ""), |set| (set.rules.len(), &*set.hash));
        format!(
            "# Server\r\nredis_version:7.4.0\r\nredis_mode:standalone\r\nrategate_version:{}\r\n\
             process_id:{}\r\nuptime_in_seconds:{}\r\n\r\n# Clients\r\nconnected_clients:{}\r\n\r\n\
             # Rules\r\nrules:{rules}\r\nrules_hash:{hash}\r\nkeys:{}\r\n\r\n\
             # Replication\r\nrole:master\r\nconnected_slaves:0\r\n",
            env!("CARGO_PKG_VERSION"),
            std::process::id(),
            self.started().elapsed().as_secs(),
            self.open(),
            self.engine().keys(),
        )
    }
}

/// Returns the reason of an error by its first word. An error without a reason of its own counts
/// as malformed, but for those of abilities that clients probe for when they connect, and go on
/// without: they are no refused calls.
fn reason(command: &[u8], error: &[u8]) -> Option<RefusalReason> {
    let is_probe = || {
        let probes: [&[u8]; 2] = [b"-ERR unknown subcommand", b"-ERR Unrecognized option"];
        command.eq_ignore_ascii_case(b"CLIENT")
            && probes.into_iter().any(|probe| error.starts_with(probe))
    };
    if error.starts_with(b"-NOAUTH") {
        Some(RefusalReason::NoToken)
    } else if error.starts_with(b"-WRONGPASS") {
        Some(RefusalReason::InvalidToken)
    } else {
        (!is_probe()).then_some(RefusalReason::Malformed)
    }
}

pub(super) const NO_AUTH: &str = "NOAUTH Authentication required.";
const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// The number of bytes of an unknown command that an error shows, as in Redis.
const SHOWN: usize = 128;

fn unknown(words: CommandWords<'_>, reply: &mut RespWriter<'_>) {
    let name = words.at(0);
    let name = String::from_utf8_lossy(name.get(..SHOWN).unwrap_or(name)).into_owned();
    let mut text = format!("ERR unknown command '{name}', with args beginning with: ");
    let mut left = SHOWN;
    for word in words.skip(1) {
        let shown = word.get(..left).unwrap_or(word);
        text.push('\'');
        text.push_str(&String::from_utf8_lossy(shown));
        text.push_str("' ");
        left = left.saturating_sub(shown.len().saturating_add(3));
        if left == 0 {
            break;
        }
    }
    reply.error(&text);
}

const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

/// The maximum length of a connection's name, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Sets the connection's name, and returns `false` if the name is not allowed.
fn set_name(session: &mut Session, name: &[u8]) -> bool {
    let may_be = name.len() <= MAX_NAME_BYTES && name.iter().all(u8::is_ascii_graphic);
    if may_be {
        session.name = name.into();
    }
    may_be
}

fn client(session: &mut Session, words: CommandWords<'_>, reply: &mut RespWriter<'_>) {
    let sub = words.at(1);
    let is = |name: &str| sub.eq_ignore_ascii_case(name.as_bytes());
    match words.len() {
        2 if is("ID") => reply.integer(session.id),
        2 if is("GETNAME") && session.name.is_empty() => reply.null(),
        2 if is("GETNAME") => reply.bulk(&session.name),
        2 if is("INFO") => {
            let name = String::from_utf8_lossy(&session.name);
            let version = if session.version == Version::Three { 3 } else { 2 };
            reply.bulk(format!("id={} name={name} db=0 resp={version}\n", session.id).as_bytes());
        }
        3 if is("SETNAME") && set_name(session, words.at(2)) => reply.ok(),
        3 if is("SETNAME") => reply.error(BAD_NAME),
        // The library's name and version are accepted and ignored.
        4 if is("SETINFO") => match words.at(2) {
            what if what.eq_ignore_ascii_case(b"LIB-NAME")
                || what.eq_ignore_ascii_case(b"LIB-VER") =>
            {
                reply.ok();
            }
            what => {
                let what = what.get(..SHOWN).unwrap_or(what);
                let what = String::from_utf8_lossy(what);
                reply.error(&format!("ERR Unrecognized option '{what}'"));
            }
        },
        3 if is("NO-EVICT") || is("NO-TOUCH") => reply.ok(),
        _ if ["ID", "GETNAME", "INFO", "SETNAME", "SETINFO", "NO-EVICT", "NO-TOUCH"]
            .into_iter()
            .any(is) =>
        {
            let sub = String::from_utf8_lossy(sub).to_lowercase();
            reply.error(&format!("ERR wrong number of arguments for 'client|{sub}' command"));
        }
        _ => unknown_sub(sub, "CLIENT", reply),
    }
}

/// Writes the error for an unknown subcommand, as Redis does.
pub(super) fn unknown_sub(sub: &[u8], command: &str, reply: &mut RespWriter<'_>) {
    let sub = String::from_utf8_lossy(sub.get(..SHOWN).unwrap_or(sub));
    reply.error(&format!("ERR unknown subcommand '{sub}'. Try {command} HELP."));
}

fn command_about(words: CommandWords<'_>, reply: &mut RespWriter<'_>) {
    let sub = words.at(1);
    let is = |name: &str| sub.eq_ignore_ascii_case(name.as_bytes());
    if words.len() == 1 || (words.len() == 2 && is("INFO")) {
        reply.array(COMMANDS.len());
        for command in COMMANDS {
            about(command, reply);
        }
    } else if is("COUNT") && words.len() == 2 {
        reply.unsigned(u64::try_from(COMMANDS.len()).unwrap_or(u64::MAX));
    } else if is("DOCS") {
        reply.map(0);
    } else if is("LIST") && words.len() == 2 {
        reply.array(COMMANDS.len());
        for command in COMMANDS {
            reply.bulk(command.name.to_ascii_lowercase().as_bytes());
        }
    } else if is("INFO") {
        reply.array(words.len().saturating_sub(2));
        for name in words.skip(2) {
            match COMMANDS.iter().find(|known| name.eq_ignore_ascii_case(known.name.as_bytes())) {
                Some(command) => about(command, reply),
                None => reply.null(),
            }
        }
    } else {
        unknown_sub(sub, "COMMAND", reply);
    }
}

/// Describes a command: name, number of words (negative for a minimum), flags, first key, last
/// key, step.
fn about(command: &Command, reply: &mut RespWriter<'_>) {
    let min_words = i64::try_from(command.min_words).unwrap_or(i64::MAX);
    let is_fixed = command.min_words == command.max_words;
    let key = i64::from(command.is_keyed);
    reply.array(6);
    reply.bulk(command.name.to_ascii_lowercase().as_bytes());
    reply.integer(if is_fixed { min_words } else { min_words.saturating_neg() });
    reply.array(1);
    reply.simple(if command.is_keyed { "write" } else { "fast" });
    for number in [key, key, key] {
        reply.integer(number);
    }
}

fn select(session: &mut Session, index: &[u8], reply: &mut RespWriter<'_>) {
    match integer(index) {
        Some(0) => reply.ok(),
        Some(_) => {
            session.refusal = Some(RefusalReason::EngineError);
            reply.error("ERR DB index is out of range");
        }
        None => reply.error("ERR value is not an integer or out of range"),
    }
}
