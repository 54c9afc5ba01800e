//! Refusals of a store, and the remedy for each, as data: the owner of the connection decides how
//! often and how long to retry.
//!
//! None of these has changed a state, except that [`ServerRefusal::Other`] may be anything. So the
//! request may be sent again where the remedy says so.

use std::error::Error;
use std::fmt;

/// A refusal, by its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerRefusal {
    /// The store does not have the library, or lost it: it is new, was flushed, or replicates
    /// another one.
    FunctionMissing,
    /// The store does not have the script.
    ScriptMissing,
    /// The store is too old for functions.
    NoFunctions,
    /// The server is a replica, and may have been the primary before.
    ReadOnly,
    /// The store has just started and reads its data.
    Loading,
    /// The server is a replica that has lost its primary and does not answer.
    MasterDown,
    /// The cluster lacks some of its slots.
    ClusterDown,
    /// Keys of the call are being moved to another node.
    TryAgain,
    /// The slot belongs to another node.
    Moved {
        /// The number of the slot.
        slot: u16,
        /// The owner, `host:port`; an empty host means the server that replied.
        address: String,
    },
    /// The slot is being moved, and this key may have moved already.
    Ask {
        /// The number of the slot.
        slot: u16,
        /// The node the slot is moved to, `host:port`.
        address: String,
    },
    /// The keys of one call lie in several slots.
    CrossSlot,
    /// The store has reached its `maxmemory` and drops nothing.
    OutOfMemory,
    /// A key holds data of another kind.
    WrongType,
    /// A script of another client has run for too long.
    Busy,
    /// The store does not write: its disk is full, or replicas are missing.
    NotWritable,
    /// The store does not know this name and password, or does not allow the user this call.
    NotAllowed,
    /// The store has no database of this number.
    NoDatabase,
    /// The store has its maximum number of connections.
    TooManyClients,
    /// The store's clock is in none of the calendar's windows that the call names. It counts from
    /// 1970, in microseconds: send the borders [around](crate::command::Settings::around_us) it.
    OtherTime {
        /// The time of the store.
        now_us: u64,
    },
    /// The functions refused the call itself: the store's clock is out of range, or a request is
    /// not of their version.
    Refused,
    /// Any other error.
    Other,
}

/// The remedy for a [`ServerRefusal`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Load the library, then send the request once more.
    LoadThenRetry,
    /// Send the source of the script instead, once.
    SendScript,
    /// Use scripts from now on.
    UseScripts,
    /// Find the primary, or the owner of the slot, then send the request once more.
    RefreshThenRetry,
    /// Send the request to another server, and remember that server for the slot.
    GoTo {
        /// The server, `host:port`.
        address: String,
        /// Precede the request with `ASKING`, and do not remember the server.
        asking: bool,
    },
    /// Send the request once more soon, within the time there is, then act as for
    /// [`FallBack`](Self::FallBack).
    RetrySoon,
    /// Use the fallback, since the store will not answer for a while.
    FallBack,
    /// Report the error to the operator, who alone can help; meanwhile act as for
    /// [`FallBack`](Self::FallBack).
    Report,
}

impl ServerRefusal {
    /// Parses the line of an error, without the leading `-`.
    #[must_use]
    pub fn of(line: &str) -> Self {
        let mut words = line.split_ascii_whitespace();
        let code = words.next().unwrap_or("");
        match code {
            "NOSCRIPT" => Self::ScriptMissing,
            "READONLY" => Self::ReadOnly,
            "LOADING" => Self::Loading,
            "MASTERDOWN" => Self::MasterDown,
            "CLUSTERDOWN" => Self::ClusterDown,
            "TRYAGAIN" => Self::TryAgain,
            "CROSSSLOT" => Self::CrossSlot,
            "OOM" => Self::OutOfMemory,
            "WRONGTYPE" => Self::WrongType,
            "BUSY" => Self::Busy,
            "MISCONF" | "NOREPLICAS" => Self::NotWritable,
            "NOAUTH" | "NOPERM" | "WRONGPASS" => Self::NotAllowed,
            "MOVED" | "ASK" => {
                match (words.next().and_then(|slot| slot.parse().ok()), words.next()) {
                    (Some(slot), Some(address)) if code == "ASK" => {
                        Self::Ask { slot, address: address.to_owned() }
                    }
                    (Some(slot), Some(address)) => {
                        Self::Moved { slot, address: address.to_owned() }
                    }
                    _ => Self::Other,
                }
            }
            _ => Self::of_text(line),
        }
    }

    /// Classifies an error without a code of its own, or one that a script of an older store has
    /// wrapped.
    fn of_text(line: &str) -> Self {
        let lower = line.to_ascii_lowercase();
        let has = |text: &str| lower.contains(text);
        if has("function not found") {
            Self::FunctionMissing
        } else if has("unknown command") && (has("fcall") || has("function")) {
            Self::NoFunctions
        } else if let Some((_, time)) = lower.split_once("rategate other time ") {
            let now_us = time.split_ascii_whitespace().next().and_then(|us| us.parse().ok());
            now_us.map_or(Self::Refused, |now_us| Self::OtherTime { now_us })
        } else if has("rategate ") {
            Self::Refused
        } else if has("db index") {
            Self::NoDatabase
        } else if has("without any password configured") {
            Self::NotAllowed
        } else if has("max number of clients") {
            Self::TooManyClients
        } else if has("wrongtype ") || has("wrong kind of value") {
            Self::WrongType
        } else if has("oom command") || has("used memory > 'maxmemory'") {
            Self::OutOfMemory
        } else if has("-readonly ") || has("read only replica") {
            Self::ReadOnly
        } else {
            Self::Other
        }
    }

    /// Returns the remedy for this refusal.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::FunctionMissing => Remedy::LoadThenRetry,
            Self::ScriptMissing => Remedy::SendScript,
            Self::NoFunctions => Remedy::UseScripts,
            Self::ReadOnly => Remedy::RefreshThenRetry,
            Self::Moved { address, .. } => Remedy::GoTo { address: address.clone(), asking: false },
            Self::Ask { address, .. } => Remedy::GoTo { address: address.clone(), asking: true },
            Self::TryAgain | Self::OtherTime { .. } => Remedy::RetrySoon,
            Self::Loading
            | Self::MasterDown
            | Self::ClusterDown
            | Self::OutOfMemory
            | Self::Busy
            | Self::NotWritable
            | Self::TooManyClients
            | Self::Other => Remedy::FallBack,
            Self::CrossSlot
            | Self::WrongType
            | Self::NotAllowed
            | Self::NoDatabase
            | Self::Refused => Remedy::Report,
        }
    }
}

impl fmt::Display for ServerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FunctionMissing => "the store does not have the functions",
            Self::ScriptMissing => "the store does not have the script",
            Self::NoFunctions => "the store is too old for functions",
            Self::ReadOnly => "the store is a replica",
            Self::Loading => "the store is starting",
            Self::MasterDown => "the replica has lost its primary",
            Self::ClusterDown => "the cluster is incomplete",
            Self::TryAgain => "the keys are being moved to another node",
            Self::Moved { slot, address } => return write!(f, "slot {slot} is at {address}"),
            Self::Ask { slot, address } => return write!(f, "slot {slot} is moving to {address}"),
            Self::CrossSlot => "the keys of the call are in several slots",
            Self::OutOfMemory => "the store has reached its maxmemory",
            Self::WrongType => "a key holds data of another kind",
            Self::Busy => "a script has run in the store for too long",
            Self::NotWritable => "the store does not write",
            Self::NotAllowed => "the store does not allow this user",
            Self::NoDatabase => "the store has no database of this number",
            Self::TooManyClients => "the store has its maximum number of connections",
            Self::OtherTime { now_us } => {
                return write!(f, "the store's clock is at another time, {now_us} us since 1970");
            }
            Self::Refused => "the functions refuse the call",
            Self::Other => "the store replies with an unknown error",
        })
    }
}

impl Error for ServerRefusal {}

#[cfg(test)]
mod tests {
    use super::{Remedy, ServerRefusal};

    #[test]
    fn error_replies_are_classified() {
        let table = [
            ("ERR Function not found", ServerRefusal::FunctionMissing, Remedy::LoadThenRetry),
            (
                "NOSCRIPT No matching script. Please use EVAL.",
                ServerRefusal::ScriptMissing,
                Remedy::SendScript,
            ),
            (
                "ERR unknown command 'FCALL', with args beginning with: 'x'",
                ServerRefusal::NoFunctions,
                Remedy::UseScripts,
            ),
            (
                "ERR unknown command `FUNCTION`, with args",
                ServerRefusal::NoFunctions,
                Remedy::UseScripts,
            ),
            (
                "READONLY You can't write against a read only replica.",
                ServerRefusal::ReadOnly,
                Remedy::RefreshThenRetry,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                ServerRefusal::Loading,
                Remedy::FallBack,
            ),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                ServerRefusal::TryAgain,
                Remedy::RetrySoon,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                ServerRefusal::OutOfMemory,
                Remedy::FallBack,
            ),
            ("CLUSTERDOWN Hash slot not served", ServerRefusal::ClusterDown, Remedy::FallBack),
            ("MASTERDOWN Link with MASTER is down", ServerRefusal::MasterDown, Remedy::FallBack),
            (
                "CROSSSLOT Keys in request don't hash to the same slot",
                ServerRefusal::CrossSlot,
                Remedy::Report,
            ),
            ("WRONGTYPE Operation against a key", ServerRefusal::WrongType, Remedy::Report),
            ("ERR DB index is out of range", ServerRefusal::NoDatabase, Remedy::Report),
            ("ERR invalid DB index", ServerRefusal::NoDatabase, Remedy::Report),
            (
                "ERR AUTH <password> called without any password configured for the default user.",
                ServerRefusal::NotAllowed,
                Remedy::Report,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:3: WRONGTYPE Operation",
                ServerRefusal::WrongType,
                Remedy::Report,
            ),
            (
                "ERR user_function:9: RATEGATE the clock is out of range",
                ServerRefusal::Refused,
                Remedy::Report,
            ),
            (
                "ERR user_function:9: RATEGATE OTHER TIME 1790000000000001 script: f, on @user",
                ServerRefusal::OtherTime { now_us: 1_790_000_000_000_001 },
                Remedy::RetrySoon,
            ),
            ("ERR RATEGATE OTHER TIME soon", ServerRefusal::Refused, Remedy::Report),
            ("", ServerRefusal::Other, Remedy::FallBack),
            ("MOVED x y", ServerRefusal::Other, Remedy::FallBack),
            ("MOVED 99999999 a:1", ServerRefusal::Other, Remedy::FallBack),
        ];
        for (line, refusal, remedy) in table {
            assert_eq!(ServerRefusal::of(line), refusal, "{line}");
            assert_eq!(refusal.remedy(), remedy, "{line}");
        }
        let moved = ServerRefusal::of("MOVED 3999 127.0.0.1:6381");
        assert_eq!(
            moved,
            ServerRefusal::Moved { slot: 3_999, address: "127.0.0.1:6381".to_owned() }
        );
        let address = "h:1".to_owned();
        assert_eq!(ServerRefusal::of("ASK 1 h:1").remedy(), Remedy::GoTo { address, asking: true });
    }
}
