//! Keys that distinguish the clients of a server.
//!
//! A [`KeySource`] reads the head of a request and names its client by a [`Key`]. Each key has a
//! limit of its own in a [`Keyed`](rategate::Keyed) table.
//!
//! | requests are distinguished by | source |
//! |---|---|
//! | the address of the peer | [`peer`] |
//! | the client's address, behind trusted proxies | [`client`], with a [`Trust`] |
//! | a header, such as an API key | [`header`] |
//! | an extension, such as the route's template or the authenticated user | [`extension`] |
//! | the method, the path as sent | [`method`], [`path`] |
//! | several of these together | a tuple or a `Vec` of sources |
//! | anything else | [`by`] |
//! | nothing: one limit for all | [`constant`], or [`RateLimitLayer::new`] |
//!
//! A limit that several processes share needs a [`NameSource`], which most of these sources are.
//!
//! [`RateLimitLayer::new`]: crate::RateLimitLayer::new
//!
//! ```
//! use rategate_tower::key::{self, Key, KeySource};
//!
//! let source = (key::header("x-api-key".parse()?), key::method());
//! let (head, ()) = http::Request::get("/").header("x-api-key", "k1").body(())?.into_parts();
//! assert_eq!(source.key(&head), Some(Key::joined([Key::of("k1".as_bytes()), Key::of("GET")])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod client;
mod forwarded;
mod name;
mod named;
mod network;
mod sources;

use std::fmt;
use std::hash::Hash;
use std::sync::OnceLock;

use http::request::Parts;
use rategate::keyed::{HashedId, Hashing, Seeds};

pub use self::address::{Peer, peer};
pub use self::client::{Client, Field, Trust, client};
pub use self::forwarded::MAX_HOPS;
pub(crate) use self::name::LimitSource;
pub use self::name::{MAX_CLIENT_NAME_BYTES, NameSource};
pub use self::named::named_address;
pub use self::network::{Network, NetworkError};
pub use self::sources::{
    By, Constant, Extension, Header, Method, Path, by, constant, extension, header, method, path,
};

/// A client's key: 128 bits of a keyed hash of its name.
///
/// Each process draws random seeds for the hash, so an outsider cannot aim at another client's
/// key. A name of 8 KB takes as much memory as one of a byte. In a full table of 65 536 keys, two
/// of them collide with a probability of 2^-97.
///
/// It is a key of a [table](rategate::Keyed), which can be queried with it, and can assign tiers
/// by it:
///
/// ```
/// use std::collections::HashSet;
///
/// use rategate::keyed::{Capacity, Hashing};
/// use rategate::{Gcra, Keyed, MonotonicClock};
/// use rategate_tower::key::{self, Key};
/// use rategate_tower::RateLimitLayer;
///
/// let paid = HashSet::from([Key::of(b"k1".as_slice())]);
/// let tiers = [Gcra::per_second(1).burst(5), Gcra::per_second(100).burst(50)];
/// let tier_of = move |key: &Key| usize::from(paid.contains(key));
/// let (capacity, clock) = (Capacity::for_keys(1_000_000), MonotonicClock::new());
/// let keyed = Keyed::with_tiers(tiers, tier_of, capacity, Hashing::FloodSafe, clock)?;
///
/// let layer = RateLimitLayer::keyed(keyed.clone(), key::header("x-api-key".parse()?));
/// assert_eq!(keyed.remaining(&Key::of(b"k1".as_slice()))?, 50);
/// # drop(layer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(HashedId);

impl Key {
    /// Returns the key of a value. Equal values have equal keys within this process.
    #[must_use]
    pub fn of<T: Hash + ?Sized>(value: &T) -> Self {
        // Not a table's seeds: a source knows no table, and its keys may be in several.
        static SEEDS: OnceLock<Seeds> = OnceLock::new();
        Self(SEEDS.get_or_init(|| Seeds::random(Hashing::FloodSafe)).hashed(value))
    }

    /// Returns the key of several keys, in this order. `ab` and `c` joined differ from `a` and
    /// `bc` joined.
    #[must_use]
    pub fn joined<const N: usize>(keys: [Self; N]) -> Self {
        Self::of(keys.as_slice())
    }

    /// Returns the key that all requests without a key share.
    pub(crate) fn shared_key() -> Self {
        Self::of(&())
    }
}

/// The key is a hash already, with secret seeds.
impl rategate::keyed::Key for Key {
    type Id = HashedId;

    fn id(&self, _seeds: &Seeds) -> HashedId {
        self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.0.words();
        write!(f, "Key({first:016x}{second:016x})")
    }
}

/// A source of keys, which names the client of a request.
///
/// Implementations are user code: no lock is held while they run, and if one panics, nothing has
/// been taken. They read input of the client. Each should document which part of it a client can
/// choose freely, since a client that chooses its key can choose a new one for each request.
pub trait KeySource: Send + Sync {
    /// Returns the key, or `None` if the request lacks the data for it.
    /// [`OnMissingKey`](crate::OnMissingKey) defines what happens then.
    fn key(&self, head: &Parts) -> Option<Key>;

    /// Returns the type of the extension that the server should have added, if its absence is the
    /// reason for the missing key. Called only without a key.
    ///
    /// Such a request receives a 500 unless [`missing`](crate::RateLimitLayer::missing) is
    /// configured otherwise: a mistake in the server's set-up must not put all its clients under
    /// one limit.
    fn lacks(&self, head: &Parts) -> Option<&'static str> {
        let _ = head;
        None
    }

    /// Returns `true` if there is no key because the request names its client more than once.
    /// Called only without a key.
    ///
    /// Such a request receives a 400 unless [`missing`](crate::RateLimitLayer::missing) is
    /// configured otherwise. A client must not evade a deny list, or use the limit of others, by
    /// stating its name twice.
    fn is_ambiguous(&self, head: &Parts) -> bool {
        let _ = head;
        false
    }
}

impl<T: KeySource + ?Sized> KeySource for Box<T> {
    fn key(&self, head: &Parts) -> Option<Key> {
        (**self).key(head)
    }

    fn lacks(&self, head: &Parts) -> Option<&'static str> {
        (**self).lacks(head)
    }

    fn is_ambiguous(&self, head: &Parts) -> bool {
        (**self).is_ambiguous(head)
    }
}

/// Joins the keys of all sources. There is no key if any of them is missing.
impl<T: KeySource> KeySource for Vec<T> {
    fn key(&self, head: &Parts) -> Option<Key> {
        let keys: Option<Vec<Key>> = self.iter().map(|source| source.key(head)).collect();
        Some(Key::of(keys?.as_slice()))
    }

    fn lacks(&self, head: &Parts) -> Option<&'static str> {
        self.iter().find_map(|source| source.lacks(head))
    }

    fn is_ambiguous(&self, head: &Parts) -> bool {
        self.iter().any(|source| source.is_ambiguous(head))
    }
}

/// Joins the keys of both sources. There is no key if either is missing.
impl<A: KeySource, B: KeySource> KeySource for (A, B) {
    fn key(&self, head: &Parts) -> Option<Key> {
        Some(Key::joined([self.0.key(head)?, self.1.key(head)?]))
    }

    fn lacks(&self, head: &Parts) -> Option<&'static str> {
        self.0.lacks(head).or_else(|| self.1.lacks(head))
    }

    fn is_ambiguous(&self, head: &Parts) -> bool {
        self.0.is_ambiguous(head) || self.1.is_ambiguous(head)
    }
}

/// Joins the keys of all three sources. There is no key if any of them is missing.
impl<A: KeySource, B: KeySource, C: KeySource> KeySource for (A, B, C) {
    fn key(&self, head: &Parts) -> Option<Key> {
        Some(Key::joined([self.0.key(head)?, self.1.key(head)?, self.2.key(head)?]))
    }

    fn lacks(&self, head: &Parts) -> Option<&'static str> {
        self.0.lacks(head).or_else(|| self.1.lacks(head)).or_else(|| self.2.lacks(head))
    }

    fn is_ambiguous(&self, head: &Parts) -> bool {
        self.0.is_ambiguous(head) || self.1.is_ambiguous(head) || self.2.is_ambiguous(head)
    }
}
