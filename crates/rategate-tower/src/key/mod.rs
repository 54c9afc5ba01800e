//! What tells one client of a server from another.
//!
//! A [`KeySource`] looks at the head of a request and names its client by a [`Key`]. Each key has a
//! limit of its own in a [`Keyed`](rategate::Keyed) table.
//!
//! | requests are told apart by | source |
//! |---|---|
//! | the address of the peer | [`peer`] |
//! | the client's address, behind proxies of one's own | [`client`], with a [`Trust`] |
//! | a header, such as an API key | [`header`] |
//! | the template of the route, a user put there by authentication | [`extension`] |
//! | the method, the path as it was sent | [`method`], [`path`] |
//! | all of several | a tuple or a `Vec` of sources |
//! | anything else | [`by`] |
//! | nothing: one limit for all | [`constant`], or [`RateLimitLayer::new`](crate::RateLimitLayer::new) |
//!
//! A limit that several processes keep together needs a [`NameSource`], which most of these are.
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
use rategate::{HashedId, Hashing, Seeds};

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

/// A client's name: 128 bits of a keyed hash of whatever names it.
///
/// The hash has seeds that each process draws by chance, so nobody outside can aim at somebody else's
/// key, and a name of 8 KB takes as much memory as one of a byte. Two names out of a full table of
/// 65 536 meet with a probability of 2^-97.
///
/// It is a key of a [table](rategate::Keyed), which can be asked by it, and can tell tiers of clients
/// apart by it:
///
/// ```
/// use std::collections::HashSet;
///
/// use rategate::{Gcra, Hashing, Keyed, MonotonicClock, Room};
/// use rategate_tower::key::{self, Key};
/// use rategate_tower::RateLimitLayer;
///
/// let paid = HashSet::from([Key::of(b"k1".as_slice())]);
/// let tiers = [Gcra::new("1/s".parse()?, 5)?, Gcra::new("100/s".parse()?, 50)?];
/// let tier_of = move |key: &Key| usize::from(paid.contains(key));
/// let (room, clock) = (Room::for_keys(1_000_000), MonotonicClock::new());
/// let keyed = Keyed::with_tiers(tiers, tier_of, room, Hashing::FloodSafe, clock)?;
///
/// let layer = RateLimitLayer::keyed(keyed.clone(), key::header("x-api-key".parse()?));
/// assert_eq!(keyed.remaining(&Key::of(b"k1".as_slice()))?, 50);
/// # drop(layer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(HashedId);

impl Key {
    /// The key of a value. Equal values have equal keys, within this process.
    #[must_use]
    pub fn of<T: Hash + ?Sized>(value: &T) -> Self {
        // Not a table's seeds: a source knows of no table, and what it names may be in several.
        static SEEDS: OnceLock<Seeds> = OnceLock::new();
        Self(SEEDS.get_or_init(|| Seeds::random(Hashing::FloodSafe)).hashed(value))
    }

    /// The key of several keys, in this order. `ab` and `c` joined are not `a` and `bc` joined.
    #[must_use]
    pub fn joined<const N: usize>(keys: [Self; N]) -> Self {
        Self::of(keys.as_slice())
    }

    /// The key that all requests share which have none of their own.
    pub(crate) fn nobody() -> Self {
        Self::of(&())
    }
}

/// Hashed already, and by seeds that nobody knows.
impl rategate::Key for Key {
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

/// Names the client of a request.
///
/// Implementations are user code: no lock is held while they run, and if one panics, nothing has
/// been taken. They see what the client sent, so each should say which part of it a client can
/// choose at will: whoever may choose his key may also choose a fresh one for each request.
pub trait KeySource: Send + Sync {
    /// The key, or `None` if the request lacks what it would be made of.
    /// [`Missing`](crate::Missing) says what happens then.
    fn key(&self, head: &Parts) -> Option<Key>;

    /// Names what the server itself should have put into the request, where that is why there is no key: the type of
    /// an extension. It is asked only then.
    ///
    /// Such a request is answered with a 500 unless [`missing`](crate::RateLimitLayer::missing) says
    /// otherwise: a mistake in the server's set-up must not put all its clients under one limit.
    fn lacks(&self, head: &Parts) -> Option<&'static str> {
        let _ = head;
        None
    }

    /// Says that there is no key because the request names its client more than once. It is asked only where there is
    /// no key.
    ///
    /// Such a request is answered with a 400 unless [`missing`](crate::RateLimitLayer::missing) says otherwise: a
    /// client must not get round a deny list, or into the limit of others, by saying its name twice.
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

/// All of them together; missing if one of them is.
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

/// Both together; missing if one of them is.
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

/// All three together; missing if one of them is.
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
