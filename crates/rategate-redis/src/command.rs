//! A call as words for a connection: of a function, or of the script for stores without functions.

use std::num::NonZeroU64;

use crate::group::Marker;
use crate::library::{Library, Script, Verb};

/// A verb with its keys and arguments, for whoever sends it.
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

    /// What it asks for.
    #[must_use]
    pub const fn verb(&self) -> Verb {
        self.verb
    }

    /// The same where the store has reached its `maxmemory`: refused, if it would take memory.
    #[must_use]
    pub fn within_memory(self) -> Self {
        let verb = if self.verb == Verb::Decide { Verb::DecideWithinMemory } else { self.verb };
        Self { verb, ..self }
    }

    /// The same for a store that is known by a [marker](crate::group::Marker): the answer says whether it still has it.
    #[must_use]
    pub fn with_marker(mut self, marker: &Marker) -> Self {
        if let ([name, known, ..], true) = (self.args.as_mut_slice(), self.verb.has_marker()) {
            name.clone_from(&marker.name);
            known.clone_from(&marker.known);
        }
        self
    }

    /// The same for [`Library::DEBUG`], at an instant in microseconds.
    #[must_use]
    pub fn at_us(mut self, now_us: u64) -> Self {
        self.args.insert(0, now_us.to_string().into_bytes());
        self
    }

    /// The keys, which lie in one slot if the decisions are of one key.
    #[must_use]
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// A call of the function; one that writes nothing in the form that replicas answer.
    #[must_use]
    pub fn fcall(&self, library: Library) -> Vec<Vec<u8>> {
        let reads = matches!(self.verb, Verb::Peek | Verb::Denied) && library == Library::LIVE;
        let word: &[u8] = if reads { b"FCALL_RO" } else { b"FCALL" };
        self.words(word, library.function(self.verb).into_bytes(), None)
    }

    /// A call of the script by its hash.
    #[must_use]
    pub fn evalsha(&self, script: &Script) -> Vec<Vec<u8>> {
        self.words(b"EVALSHA", script.sha().as_bytes().to_vec(), Some(self.verb))
    }

    /// A call of the script by its source, after which the store knows it.
    #[must_use]
    pub fn eval(&self, script: &Script) -> Vec<Vec<u8>> {
        self.words(b"EVAL", script.source().as_bytes().to_vec(), Some(self.verb))
    }

    fn words(&self, word: &[u8], callee: Vec<u8>, verb: Option<Verb>) -> Vec<Vec<u8>> {
        let all = self.keys.len().saturating_add(self.args.len()).saturating_add(4);
        let mut words = Vec::with_capacity(all);
        words.push(word.to_vec());
        words.push(callee);
        words.push(self.keys.len().to_string().into_bytes());
        words.extend_from_slice(&self.keys);
        words.extend(verb.map(|verb| verb.in_script().as_bytes().to_vec()));
        words.extend_from_slice(&self.args);
        words
    }
}

/// How calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    horizon_us: u64,
}

/// A minute: clocks of servers that follow each other are closer.
pub const DEFAULT_HORIZON_US: u64 = 60_000_000;
/// 35 years.
const MAX_HORIZON_US: u64 = 1 << 50;

impl Settings {
    /// How far a state may lie ahead of the store's clock, besides what its limit allows, and still be
    /// believed: as far as the clock of a server that takes over may be behind. Up to 35 years.
    #[must_use]
    pub fn with_horizon_us(self, horizon_us: NonZeroU64) -> Self {
        Self { horizon_us: horizon_us.get().min(MAX_HORIZON_US) }
    }

    pub(crate) const fn horizon_us(self) -> u64 {
        self.horizon_us
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { horizon_us: DEFAULT_HORIZON_US }
    }
}

/// A whole number as an argument.
pub(crate) fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}
