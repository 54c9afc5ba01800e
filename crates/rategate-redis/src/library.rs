//! The functions, as a store is given them: one library, named by the hash of its source, so that binaries of two
//! versions work beside each other on one store, each with the functions it was tested with.
//!
//! A store without functions (before Redis 7) takes the very same source as one script.

use std::fmt::Write;

use std::sync::OnceLock;

use sha1_smol::Sha1;

/// The version of what states mean. It is in the name of every key, and apart from the code: functions that
/// read and write the same states share them, whatever else differs.
pub const STATE_VERSION: u32 = 1;

/// Letters of the hash in a library's name: 64 bits.
const HASH_LETTERS: usize = 16;

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

    /// All but a few write, and may do so whatever the memory: they take none, or were told to. Those that look at the
    /// store's marker look into another slot than that of their keys.
    const fn flags(self, world: World) -> &'static str {
        match (self, world) {
            (Self::DecideWithinMemory, _) => "'allow-cross-slot-keys'",
            (Self::Peek, World::Live) => "'no-writes', 'allow-cross-slot-keys'",
            (Self::Denied, World::Live) => "'no-writes'",
            (Self::Decide | Self::Peek | Self::Beat, _) => "'allow-oom', 'allow-cross-slot-keys'",
            _ => "'allow-oom'",
        }
    }

    /// Whether its arguments begin with the store's marker.
    pub(crate) const fn has_marker(self) -> bool {
        matches!(self, Self::Decide | Self::DecideWithinMemory | Self::Peek | Self::Beat)
    }
}

/// The functions of one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Library {
    world: World,
    release: &'static str,
}

impl Library {
    /// What is used.
    pub const LIVE: Self = Self { world: World::Live, release: "" };
    /// What tests use: each call is told the instant.
    pub const DEBUG: Self = Self { world: World::Debug, release: "" };

    /// Whose time it goes by.
    #[must_use]
    pub const fn world(self) -> World {
        self.world
    }

    /// The functions as another release has them: the same decisions under another name. For tests of an upgrade.
    #[must_use]
    pub const fn of_release(self, release: &'static str) -> Self {
        Self { release, ..self }
    }

    /// The library's name, which a source that differs in one letter does not have.
    #[must_use]
    pub fn name(self) -> String {
        static NAMES: [OnceLock<String>; 2] = [OnceLock::new(), OnceLock::new()];
        let named = || {
            let hash = Sha1::from(self.source_of("")).digest().to_string();
            let hash = hash.get(..HASH_LETTERS).unwrap_or(&hash);
            match self.world {
                World::Live => format!("rategate_{hash}"),
                World::Debug => format!("rategate_{hash}_debug"),
            }
        };
        let [live, debug] = &NAMES;
        match (self.release, self.world) {
            ("", World::Live) => live.get_or_init(named).clone(),
            ("", World::Debug) => debug.get_or_init(named).clone(),
            _ => named(),
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
        self.source_of(&self.name())
    }

    fn source_of(self, name: &str) -> String {
        let mut source = format!("#!lua name={name}\n{}", self.body());
        if !self.release.is_empty() {
            let _ = writeln!(source, "-- {}", self.release);
        }
        for verb in Verb::ALL {
            let (callback, flags) = (verb.names().0, verb.flags(self.world));
            let function = verb.names().1;
            // Writing to a text does not fail.
            let _ = writeln!(
                source,
                "redis.register_function{{ function_name = '{name}_{function}', callback = verbs.{callback}, \
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

    /// `FUNCTION LOAD`. The same name is the same source, so what it replaces is the same, or was tampered with.
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
    fn every_name_has_the_hash_and_no_function_has_two() {
        let names = |library: Library| Verb::ALL.map(|verb| library.function(verb));
        let mut all = [names(Library::LIVE), names(Library::DEBUG)].concat();
        assert!(all.iter().all(|name| name.starts_with("rategate_")));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 24);
        let name = Library::LIVE.name();
        assert_eq!(name.len(), "rategate_".len() + 16);
        assert!(Library::LIVE.source().starts_with(&format!("#!lua name={name}\n")));
        assert_ne!(Library::LIVE.of_release("next").name(), name);
        assert_eq!(Library::LIVE.script().sha().len(), 40);
    }
}
