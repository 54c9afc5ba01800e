//! The function library that stores load, named by the hash of its source.
//!
//! Binaries of two versions therefore work on one store side by side, each with the functions it
//! was tested with. A store without functions (before Redis 7) takes the same source as one
//! script.

use std::fmt::Write;

use std::sync::OnceLock;

use sha1_smol::Sha1;

/// The version of the meaning of states, which is part of the name of every key.
///
/// It is independent of the code: libraries that read and write the same states share them,
/// whatever else differs.
pub const STATE_VERSION: u32 = 1;

/// The number of hexadecimal digits of the hash in a library's name: 64 bits.
const HASH_LETTERS: usize = 16;

/// The clock that the functions read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum World {
    /// The store's own clock and its own expiry.
    Live,
    /// A clock set by each call, which also decides when keys expire. For tests: slower, and two
    /// keys for one.
    Debug,
}

/// The operation that a function performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Grants or denies, even where the store has reached its `maxmemory`: states are small, and
    /// each expires.
    Decide,
    /// Grants or denies, but is refused with `OOM` where the store has reached its `maxmemory`.
    DecideWithinMemory,
    /// Returns what [`Decide`](Self::Decide) would. Writes nothing, so a replica can answer too.
    Peek,
    /// Refunds permits of grants.
    Refund,
    /// Credits permits without a grant.
    Credit,
    /// Charges permits that were used already, even where the store has reached its `maxmemory`.
    Charge,
    /// Charges permits, but is refused with `OOM` where the store has reached its `maxmemory`.
    ChargeWithinMemory,
    /// Holds estimates, even where the store has reached its `maxmemory`.
    Reserve,
    /// Holds estimates, but is refused with `OOM` where the store has reached its `maxmemory`.
    ReserveWithinMemory,
    /// Ends reservations. That frees memory, so it works even where there is none.
    Settle,
    /// Releases operations in flight that have ended.
    Release,
    /// Renews leases of operations in flight.
    Renew,
    /// Resets keys to fresh.
    Reset,
    /// Returns since when the store has lost nothing.
    Hello,
}

impl Verb {
    const ALL: [Self; 14] = [
        Self::Decide,
        Self::DecideWithinMemory,
        Self::Peek,
        Self::Refund,
        Self::Credit,
        Self::Charge,
        Self::ChargeWithinMemory,
        Self::Reserve,
        Self::ReserveWithinMemory,
        Self::Settle,
        Self::Release,
        Self::Renew,
        Self::Reset,
        Self::Hello,
    ];

    /// Returns the name in the source, and the suffix of the function's name after the library's.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Decide => ("decide", "decide"),
            Self::DecideWithinMemory => ("decide", "decide_within_memory"),
            Self::Peek => ("peek", "peek"),
            Self::Refund => ("refund", "refund"),
            Self::Credit => ("give_back", "give_back"),
            Self::Charge => ("charge", "charge"),
            Self::ChargeWithinMemory => ("charge", "charge_within_memory"),
            Self::Reserve => ("reserve", "reserve"),
            Self::ReserveWithinMemory => ("reserve", "reserve_within_memory"),
            Self::Settle => ("settle", "settle"),
            Self::Release => ("release", "release"),
            Self::Renew => ("renew", "renew"),
            Self::Reset => ("reset", "reset"),
            Self::Hello => ("hello", "hello"),
        }
    }

    /// Returns the name that scripts select the operation by.
    pub(crate) const fn in_script(self) -> &'static str {
        self.names().0
    }

    /// Returns the flags of the function.
    ///
    /// All but a few operations write. They may do so whatever the memory, because they take none
    /// or were configured to. Those that check the store's marker read another slot than that of
    /// their keys.
    const fn flags(self, world: World) -> &'static str {
        match (self, world) {
            (
                Self::DecideWithinMemory | Self::ChargeWithinMemory | Self::ReserveWithinMemory,
                _,
            ) => "'allow-cross-slot-keys'",
            (Self::Peek, World::Live) => "'no-writes', 'allow-cross-slot-keys'",
            (Self::Decide | Self::Peek | Self::Charge | Self::Reserve | Self::Settle, _) => {
                "'allow-oom', 'allow-cross-slot-keys'"
            }
            _ => "'allow-oom'",
        }
    }

    /// Returns `true` if the arguments begin with the store's marker.
    pub(crate) const fn has_marker(self) -> bool {
        matches!(
            self,
            Self::Decide
                | Self::DecideWithinMemory
                | Self::Peek
                | Self::Charge
                | Self::ChargeWithinMemory
                | Self::Reserve
                | Self::ReserveWithinMemory
                | Self::Settle
        )
    }
}

/// The function library, for one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Library {
    world: World,
}

impl Library {
    /// The library for production use.
    pub const LIVE: Self = Self { world: World::Live };
    /// The library for tests, in which each call sets the instant.
    pub const DEBUG: Self = Self { world: World::Debug };

    /// Returns the clock that the library reads.
    #[must_use]
    pub const fn world(self) -> World {
        self.world
    }

    /// Returns the library's name, which differs for any other source.
    #[must_use]
    pub fn name(self) -> String {
        static NAMES: [OnceLock<String>; 2] = [OnceLock::new(), OnceLock::new()];
        let [live, debug] = &NAMES;
        let name = match self.world {
            World::Live => live,
            World::Debug => debug,
        };
        let named = || {
            let hash = Sha1::from(self.source_of("")).digest().to_string();
            let hash = hash.get(..HASH_LETTERS).unwrap_or(&hash);
            match self.world {
                World::Live => format!("rategate_{hash}"),
                World::Debug => format!("rategate_{hash}_debug"),
            }
        };
        name.get_or_init(named).clone()
    }

    /// Returns the full name of a function.
    #[must_use]
    pub fn function(self, verb: Verb) -> String {
        format!("{}_{}", self.name(), verb.names().1)
    }

    /// Returns the source for `FUNCTION LOAD`.
    #[must_use]
    pub fn source(self) -> String {
        self.source_of(&self.name())
    }

    fn source_of(self, name: &str) -> String {
        let mut source = format!("#!lua name={name}\n{}", self.body());
        for verb in Verb::ALL {
            let (callback, flags) = (verb.names().0, verb.flags(self.world));
            let function = verb.names().1;
            // Writing to a `String` does not fail.
            let _ = writeln!(
                source,
                "redis.register_function{{ function_name = '{name}_{function}', \
                 callback = verbs.{callback}, flags = {{ {flags} }} }}"
            );
        }
        source
    }

    /// Returns the library as one script, whose first argument is the verb.
    #[must_use]
    pub fn script(self) -> Script {
        let source = format!("{}return verbs[ARGV[1]](KEYS, ARGV, 2)\n", self.body());
        let sha = Sha1::from(&source).digest().to_string();
        Script { source, sha }
    }

    /// Returns the command `FUNCTION LOAD REPLACE`. Equal names mean equal sources, so it
    /// replaces the same library, or one that was tampered with.
    #[must_use]
    pub fn load(self) -> Vec<Vec<u8>> {
        let words = ["FUNCTION", "LOAD", "REPLACE"].map(|word| word.as_bytes().to_vec());
        let mut words = Vec::from(words);
        words.push(self.source().into_bytes());
        words
    }

    fn body(self) -> String {
        let world = match self.world {
            World::Live => include_str!("lua/live.lua"),
            World::Debug => include_str!("lua/debug.lua"),
        };
        [
            include_str!("lua/numbers.lua"),
            world,
            include_str!("lua/kinds.lua"),
            include_str!("lua/estimates.lua"),
            include_str!("lua/leads.lua"),
            include_str!("lua/gcra.lua"),
            include_str!("lua/window.lua"),
            include_str!("lua/calendar.lua"),
            include_str!("lua/log.lua"),
            include_str!("lua/holds.lua"),
            include_str!("lua/alone.lua"),
            include_str!("lua/verbs.lua"),
            include_str!("lua/reserve.lua"),
            include_str!("lua/charge.lua"),
            include_str!("lua/hello.lua"),
        ]
        .concat()
    }
}

/// A script with all verbs, for a store without functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    source: String,
    sha: String,
}

impl Script {
    /// Returns the source, for `EVAL` and `SCRIPT LOAD`.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the SHA-1 of the source in hexadecimal digits, for `EVALSHA`.
    #[must_use]
    pub fn sha(&self) -> &str {
        &self.sha
    }
}

#[cfg(test)]
mod tests {
    use super::{Library, Verb};

    #[test]
    fn every_name_has_the_hash_and_no_function_has_two() {
        let names = |library: Library| Verb::ALL.map(|verb| library.function(verb));
        let mut all = [names(Library::LIVE), names(Library::DEBUG)].concat();
        assert!(all.iter().all(|name| name.starts_with("rategate_")));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 28);
        let name = Library::LIVE.name();
        assert_eq!(name.len(), "rategate_".len() + 16);
        assert!(Library::LIVE.source().starts_with(&format!("#!lua name={name}\n")));
        assert_eq!(Library::LIVE.script().sha().len(), 40);
    }
}
