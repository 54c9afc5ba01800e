//! Identifies keys: numbers of up to 64 bits as they are, all others by a keyed hash of 128
//! bits.

#[cfg(not(loom))]
use std::collections::hash_map::RandomState;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use siphasher::sip128::{Hasher128, SipHasher13};

/// A type that can be a key of a [`Keyed`](super::Keyed) table.
///
/// A table keeps no keys, only the [`id`](Self::id) of each. Integers of up to 64 bits, `char`,
/// `bool` and `Ipv4Addr` are kept as they are, in 8 bytes. Every other key is kept as a hash of
/// 128 bits, however long it is. Among `n` keys, two share a hash with a probability of `n^2 /
/// 2^129`: one in 10^24 at ten million keys. Without the seeds, no client can cause such a
/// collision.
///
/// An implementation for an application's own type:
///
/// ```
/// use rategate::keyed::{HashedId, Key, Seeds};
/// use rategate::{Gcra, Keyed};
///
/// #[derive(Hash)]
/// struct Caller {
///     tenant: u32,
///     route: String,
/// }
///
/// impl Key for Caller {
///     type Id = HashedId;
///
///     fn id(&self, seeds: &Seeds) -> HashedId {
///         seeds.hashed(self)
///     }
/// }
///
/// let keyed: Keyed<Caller> = Keyed::new(Gcra::per_second(1));
/// let caller = Caller { tenant: 7, route: "/search".to_owned() };
/// assert!(keyed.try_acquire(&caller, 1)?.is_granted());
/// assert!(!keyed.try_acquire(&caller, 1)?.is_granted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Key {
    /// The id by which the table stores the key.
    type Id: Id;

    /// Returns the id: equal for equal keys, and in practice different for different ones.
    fn id(&self, seeds: &Seeds) -> Self::Id;
}

/// The id of a key in a table: [`NumberId`] or [`HashedId`].
pub trait Id: private::Words {}

/// The id of a key that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NumberId(u64);

/// The id of a key that is stored by its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HashedId([u64; 2]);

impl NumberId {
    /// Returns the number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl From<u64> for NumberId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl HashedId {
    /// Creates an id from a key's 128-bit hash, for callers that have computed it already.
    ///
    /// The hash needs a secret key of its own, unknown to attackers, and every bit of it must be
    /// well mixed.
    #[must_use]
    pub const fn from_hash(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// Returns the 128 bits.
    #[must_use]
    pub const fn words(self) -> [u64; 2] {
        self.0
    }
}

impl Id for NumberId {}
impl Id for HashedId {}

pub(crate) mod private {
    use super::{Debug, Hash, HashedId, NumberId, Seeds};

    /// The representation of a key as words of a table.
    pub trait Words: Copy + Debug + Eq + Hash + Send + Sync + 'static {
        /// The number of words.
        const WORDS: usize;

        /// Returns the word at `index`; any index beyond the last returns an arbitrary word.
        fn word(self, index: usize) -> u64;

        /// Builds the id from its words.
        fn of(words: [u64; 2]) -> Self;

        /// Returns the hash that decides the key's shard and slot.
        fn home(self, seeds: &Seeds) -> u64;
    }

    impl Words for NumberId {
        const WORDS: usize = 1;

        #[inline]
        fn word(self, _index: usize) -> u64 {
            self.0
        }

        fn of([number, _]: [u64; 2]) -> Self {
            Self(number)
        }

        #[inline]
        fn home(self, seeds: &Seeds) -> u64 {
            seeds.home_of(self.0)
        }
    }

    impl Words for HashedId {
        const WORDS: usize = 2;

        #[inline]
        fn word(self, index: usize) -> u64 {
            let [first, second] = self.0;
            if index == 0 { first } else { second }
        }

        fn of(words: [u64; 2]) -> Self {
            Self(words)
        }

        #[inline]
        fn home(self, _seeds: &Seeds) -> u64 {
            self.word(0)
        }
    }
}

/// The hash functions for keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hashing {
    /// SipHash-1-3 with random seeds for each table.
    ///
    /// Without the seeds, no client can make keys that collide or that fill one shard. For keys
    /// that come from outside.
    #[default]
    FloodSafe,
    /// foldhash, some 10 ns faster, for keys that no attacker can choose.
    Fast,
}

/// The secret seeds of a table's hashes.
///
/// A client that knows them can make keys that collide.
#[derive(Clone)]
pub struct Seeds {
    hashing: Hashing,
    words: [u64; 2],
    fast: SeedableRandomState,
}

impl Seeds {
    /// Creates new secret seeds.
    #[must_use]
    #[cfg(loom)]
    pub fn random(hashing: Hashing) -> Self {
        // A model must be the same at each run.
        Self::from_words(hashing, [1, 2])
    }

    /// Creates new secret seeds.
    #[must_use]
    #[cfg(not(loom))]
    pub fn random(hashing: Hashing) -> Self {
        // The standard library's source of seeds, twice.
        let random = || RandomState::new().build_hasher().finish();
        Self::from_words(hashing, [random(), random()])
    }

    #[cfg(feature = "serde")]
    pub(super) const fn words(&self) -> [u64; 2] {
        self.words
    }

    #[cfg(feature = "serde")]
    pub(super) const fn hashing(&self) -> Hashing {
        self.hashing
    }

    /// Recreates the seeds of a table that is being restored.
    pub(crate) fn from_words(hashing: Hashing, words: [u64; 2]) -> Self {
        let [first, second] = words;
        let fast = SeedableRandomState::with_seed(first, SharedSeed::global_fixed());
        let mixed = fast.hash_one(second);
        let fast = SeedableRandomState::with_seed(first ^ mixed, SharedSeed::global_fixed());
        Self { hashing, words, fast }
    }

    /// Returns the id of a key that is not a number.
    pub fn hashed<T: Hash + ?Sized>(&self, key: &T) -> HashedId {
        match self.hashing {
            Hashing::FloodSafe => {
                let mut hasher = self.sip();
                key.hash(&mut hasher);
                let hash = hasher.finish128();
                HashedId([hash.h1, hash.h2])
            }
            Hashing::Fast => {
                let first = self.fast.hash_one(key);
                // A second state, so that keys that collide in one hash need not collide in the
                // other.
                let mut hasher = self.fast.build_hasher();
                hasher.write_u64(self.words[1]);
                key.hash(&mut hasher);
                HashedId([first, hasher.finish()])
            }
        }
    }

    #[inline]
    fn home_of(&self, number: u64) -> u64 {
        match self.hashing {
            Hashing::FloodSafe => {
                let mut hasher = self.sip();
                hasher.write_u64(number);
                hasher.finish128().h1
            }
            Hashing::Fast => self.fast.hash_one(number),
        }
    }

    #[inline]
    fn sip(&self) -> SipHasher13 {
        let [first, second] = self.words;
        SipHasher13::new_with_keys(first, second)
    }
}

impl Debug for Seeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seeds").field("hashing", &self.hashing).finish_non_exhaustive()
    }
}

impl<K: Key + ?Sized> Key for &K {
    type Id = K::Id;

    #[inline]
    fn id(&self, seeds: &Seeds) -> K::Id {
        (**self).id(seeds)
    }
}

/// Implements `Key` for types that are stored as numbers.
macro_rules! numbers {
    ($($type:ty: $number:expr;)*) => {
        $(impl Key for $type {
            type Id = NumberId;

            #[inline]
            fn id(&self, _seeds: &Seeds) -> NumberId {
                let number: fn($type) -> u64 = $number;
                NumberId(number(*self))
            }
        })*
    };
}

numbers! {
    u8: u64::from;
    u16: u64::from;
    u32: u64::from;
    u64: |number| number;
    // No target has more than 64 bits today.
    usize: |number| u64::try_from(number).unwrap_or(u64::MAX);
    i8: |number| u64::from(number.cast_unsigned());
    i16: |number| u64::from(number.cast_unsigned());
    i32: |number| u64::from(number.cast_unsigned());
    i64: i64::cast_unsigned;
    char: |letter| u64::from(u32::from(letter));
    bool: u64::from;
    Ipv4Addr: |address| u64::from(address.to_bits());
}

/// Implements `Key` for types that are stored by their hash.
macro_rules! hashed {
    ($(($($name:ident),*) $type:ty;)*) => {
        $(impl<$($name: Hash),*> Key for $type {
            type Id = HashedId;

            #[inline]
            fn id(&self, seeds: &Seeds) -> HashedId {
                seeds.hashed(self)
            }
        })*
    };
}

hashed! {
    () str;
    () String;
    () u128;
    () i128;
    () IpAddr;
    () Ipv6Addr;
    () SocketAddr;
    (A) [A];
    (A) Vec<A>;
    (A, B) (A, B);
    (A, B, C) (A, B, C);
    (A, B, C, D) (A, B, C, D);
}

impl<A: Hash, const N: usize> Key for [A; N] {
    type Id = HashedId;

    #[inline]
    fn id(&self, seeds: &Seeds) -> HashedId {
        seeds.hashed(self)
    }
}

/// An id that is known already.
impl Key for HashedId {
    type Id = Self;

    #[inline]
    fn id(&self, _seeds: &Seeds) -> Self {
        *self
    }
}

impl Key for NumberId {
    type Id = Self;

    #[inline]
    fn id(&self, _seeds: &Seeds) -> Self {
        *self
    }
}
