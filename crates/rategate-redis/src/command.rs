//! Calls as commands for a connection: of a function, or of the script for stores without
//! functions.

use crate::key::KeySpace;
use crate::library::{Library, Script, Verb};
use crate::marker::Marker;

/// A verb with its keys and arguments, to be sent over any connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    verb: Verb,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

impl Command {
    pub(crate) const fn new(verb: Verb, keys: Vec<Vec<u8>>, args: Vec<Vec<u8>>) -> Self {
        Self { verb, keys, args }
    }

    /// Returns the command that queries since when the store has lost nothing.
    ///
    /// `run` names the run of the server. A store without a record of that run counts as intact from
    /// now on: it is new, was emptied, or took over. `slot` is one of the server's, in a cluster. The
    /// reply has one count, an instant of the store's clock; read it as one of
    /// [`returns`](crate::returns).
    #[must_use]
    pub fn hello(keys: &KeySpace, slot: Option<u16>, run: &str) -> Self {
        Self::new(Verb::Hello, vec![keys.marker(slot)], vec![run.as_bytes().to_vec()])
    }

    /// Returns the operation that the call performs.
    #[must_use]
    pub const fn verb(&self) -> Verb {
        self.verb
    }

    /// Makes the store refuse the call where it has reached its `maxmemory` and the call would
    /// take memory.
    #[must_use]
    pub fn within_memory(self) -> Self {
        let verb = match self.verb {
            Verb::Decide => Verb::DecideWithinMemory,
            Verb::Charge => Verb::ChargeWithinMemory,
            Verb::Reserve => Verb::ReserveWithinMemory,
            verb => verb,
        };
        Self { verb, ..self }
    }

    /// Adds the [marker](crate::marker::Marker) of the store. The reply then says whether the store
    /// still has it.
    #[must_use]
    pub fn with_marker(mut self, marker: &Marker) -> Self {
        if let ([name, known, ..], true) = (self.args.as_mut_slice(), self.verb.has_marker()) {
            name.clone_from(&marker.name);
            known.clone_from(&marker.known);
        }
        self
    }

    /// Adds the instant, in microseconds, that [`Library::DEBUG`] decides at.
    #[must_use]
    pub fn at_us(mut self, now_us: u64) -> Self {
        self.args.insert(0, now_us.to_string().into_bytes());
        self
    }

    /// Returns the keys, which lie in one slot if all decisions are about one key.
    #[must_use]
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// Returns the words that call the function. A call that writes nothing has the form that
    /// replicas accept.
    #[must_use]
    pub fn fcall(&self, library: Library) -> Vec<Vec<u8>> {
        self.words(Callee::Function(library))
    }

    /// Returns the words that call the script by its hash.
    #[must_use]
    pub fn evalsha(&self, script: &Script) -> Vec<Vec<u8>> {
        self.words(Callee::Hash(script))
    }

    /// Returns the words that call the script by its source, after which the store knows it.
    #[must_use]
    pub fn eval(&self, script: &Script) -> Vec<Vec<u8>> {
        self.words(Callee::Source(script))
    }

    fn words(&self, callee: Callee<'_>) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        self.each_word(callee, |word| words.push(word.to_vec()));
        words
    }

    /// Passes the words of a call to `emit`, one after the other.
    pub(crate) fn each_word(&self, callee: Callee<'_>, mut emit: impl FnMut(&[u8])) {
        match callee {
            Callee::Function(library) => {
                let reads = self.verb == Verb::Peek;
                let reads = reads && library == Library::LIVE;
                emit(if reads { b"FCALL_RO" } else { b"FCALL" });
                emit(library.function(self.verb).as_bytes());
            }
            Callee::Hash(script) => {
                emit(b"EVALSHA");
                emit(script.sha().as_bytes());
            }
            Callee::Source(script) => {
                emit(b"EVAL");
                emit(script.source().as_bytes());
            }
        }
        emit(self.keys.len().to_string().as_bytes());
        self.keys.iter().for_each(|key| emit(key));
        if !matches!(callee, Callee::Function(_)) {
            emit(self.verb.in_script().as_bytes());
        }
        self.args.iter().for_each(|arg| emit(arg));
    }
}

/// The target of a call: a function, or a script by its hash or its source.
#[derive(Clone, Copy)]
pub(crate) enum Callee<'a> {
    Function(Library),
    Hash(&'a Script),
    Source(&'a Script),
}

/// The settings that all calls share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    around_us: u64,
}

/// How far a state may lie ahead of the store's clock, besides what its limit allows, and still be
/// trusted: one minute. The clocks of servers that succeed each other are closer.
pub const HORIZON_US: u64 = 60_000_000;

impl Settings {
    /// Returns settings with the caller's time, in microseconds since 1970. Calls have the borders of
    /// calendar quotas around it.
    ///
    /// It decides nothing. If it is wrong by more than a window, the store [says its
    /// time](crate::refusal::ServerRefusal::OtherTime). Other limits do not need it.
    #[must_use]
    pub const fn around_us(around_us: u64) -> Self {
        Self { around_us }
    }

    pub(crate) const fn time_us(self) -> u64 {
        self.around_us
    }
}

/// Returns a whole number as an argument.
pub(crate) fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}
