//! The functions, as a store is given them: one library, named with its version, so that binaries of two
//! versions work beside each other on one store.
//!
//! A store without functions (before Redis 7) takes the very same source as one script.

use std::fmt::Write;

use sha1_smol::Sha1;

/// The version of what states and arguments mean. It is in every name: of the library, of its functions, of
/// every key.
pub const VERSION: u32 = 1;

/// Whose time the functions go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum World {
    /// The store's own clock and its own forgetting.
    Live,
    /// Each call says what time it is, and so when keys are over: for tests. Slower, and two keys for one.
    Debug,
}

/// What a function is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Grants or denies, and goes on where the store has reached its `maxmemory`: states are small, and every
    /// one ends.
    Decide,
    /// The same, refused with `OOM` there.
    DecideWithinMemory,
    /// What [`Decide`](Self::Decide) would answer. Writes nothing, so a replica can answer too.
    Peek,
    /// Permits of grants come back.
    Refund,
    /// Permits come back without a grant to show.
    GiveBack,
    /// Operations in flight have ended.
    Release,
    /// They go on, for another lease.
    Renew,
    /// Keys become fresh.
    Reset,
    /// A member of a group is alive, and asks for its share.
    Beat,
    /// Since when the store has lost nothing.
    Hello,
    /// Callers come onto a deny list; as small as it is, even where the store has reached its `maxmemory`.
    List,
    /// Who is on it. Writes nothing.
    Denied,
}

impl Verb {
    const ALL: [Self; 12] = [
        Self::Decide,
        Self::DecideWithinMemory,
        Self::Peek,
        Self::Refund,
        Self::GiveBack,
        Self::Release,
        Self::Renew,
        Self::Reset,
        Self::Beat,
        Self::Hello,
        Self::List,
        Self::Denied,
    ];

    /// As the source calls it, and as a function is called after the library's name.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Decide => ("decide", "decide"),
            Self::DecideWithinMemory => ("decide", "decide_within_memory"),
            Self::Peek => ("peek", "peek"),
            Self::Refund => ("refund", "refund"),
            Self::GiveBack => ("give_back", "give_back"),
            Self::Release => ("release", "release"),
            Self::Renew => ("renew", "renew"),
            Self::Reset => ("reset", "reset"),
            Self::Beat => ("beat", "beat"),
            Self::Hello => ("hello", "hello"),
            Self::List => ("list", "list"),
            Self::Denied => ("denied", "denied"),
        }
    }

    /// How scripts are told of it.
    pub(crate) const fn in_script(self) -> &'static str {
        self.names().0
    }

    /// All but a few write, and may do so whatever the memory: they take none, or were told to.
    const fn flags(self, world: World) -> &'static str {
        match (self, world) {
            (Self::DecideWithinMemory, _) => "",
            (Self::Peek | Self::Denied, World::Live) => "'no-writes'",
            _ => "'allow-oom'",
        }
    }
}

/// The functions of one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Library {
    world: World,
}

impl Library {
    /// What is used.
    pub const LIVE: Self = Self { world: World::Live };
    /// What tests use: each call is told the instant.
    pub const DEBUG: Self = Self { world: World::Debug };

    /// Whose time it goes by.
    #[must_use]
    pub const fn world(self) -> World {
        self.world
    }

    /// The library's name.
    #[must_use]
    pub fn name(self) -> String {
        match self.world {
            World::Live => format!("rategate_v{VERSION}"),
            World::Debug => format!("rategate_v{VERSION}_debug"),
        }
    }

    /// The name of a function.
    #[must_use]
    pub fn function(self, verb: Verb) -> String {
        format!("{}_{}", self.name(), verb.names().1)
    }

    /// The source for `FUNCTION LOAD`.
    #[must_use]
    pub fn source(self) -> String {
        let mut source = format!("#!lua name={}\n{}", self.name(), self.body());
        for verb in Verb::ALL {
            let (callback, flags) = (verb.names().0, verb.flags(self.world));
            let function = self.function(verb);
            // Writing to a text does not fail.
            let _ = writeln!(
                source,
                "redis.register_function{{ function_name = '{function}', callback = verbs.{callback}, \
                 flags = {{ {flags} }} }}"
            );
        }
        source
    }

    /// The same as one script, whose first argument is the verb.
    #[must_use]
    pub fn script(self) -> Script {
        let source = format!("{}return verbs[ARGV[1]](KEYS, ARGV, 2)\n", self.body());
        let sha = Sha1::from(&source).digest().to_string();
        Script { source, sha }
    }

    /// `FUNCTION LOAD`. The same version is the same source, so nobody's work is replaced by another.
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
            include_str!("lua/gcra.lua"),
            include_str!("lua/window.lua"),
            include_str!("lua/log.lua"),
            include_str!("lua/holds.lua"),
            include_str!("lua/verbs.lua"),
            include_str!("lua/group.lua"),
            include_str!("lua/hello.lua"),
            include_str!("lua/denied.lua"),
        ]
        .concat()
    }
}

/// All verbs in a script, for a store without functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    source: String,
    sha: String,
}

impl Script {
    /// The source, for `EVAL` and `SCRIPT LOAD`.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Its SHA-1 in hexadecimal digits, for `EVALSHA`.
    #[must_use]
    pub fn sha(&self) -> &str {
        &self.sha
    }
}

#[cfg(test)]
mod tests {
    use super::{Library, Verb};

    #[test]
    fn every_name_has_the_version_and_no_function_has_two() {
        let names = |library: Library| Verb::ALL.map(|verb| library.function(verb));
        let mut all = [names(Library::LIVE), names(Library::DEBUG)].concat();
        assert!(all.iter().all(|name| name.starts_with("rategate_v1_")));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 24);
        assert!(Library::LIVE.source().starts_with("#!lua name=rategate_v1\n"));
        assert_eq!(Library::LIVE.script().sha().len(), 40);
    }
}
