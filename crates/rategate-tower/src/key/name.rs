//! Names of clients as bytes, equal in every process, for limits that are kept in a store.

use std::hash::Hash;
use std::sync::Arc;

use http::request::Parts;

use super::{By, Client, Extension, Header, Key, KeySource, Method, Path, Peer};

/// The maximum length of a name, in bytes. A request with a longer one has no key.
pub const MAX_CLIENT_NAME_BYTES: usize = 1_024;

/// A source that names the client of a request by bytes, for a limit that several processes share.
///
/// A [`Key`](super::Key) is a hash with seeds of its process, so it has no meaning to another
/// process. A name goes to the store unchanged. Secret names, such as API keys, have to be hashed
/// before, in [`by`](super::by).
///
/// The name is missing where the key is. A name that is empty, or longer than
/// [`MAX_CLIENT_NAME_BYTES`], counts as missing:
/// [`RateLimitLayer::missing`](crate::RateLimitLayer::missing) defines what happens to the
/// request. Sources [`by`](super::by) and [`extension`](super::extension) have names if their
/// values are bytes or text.
///
/// ```
/// use rategate_tower::key::{self, NameSource};
///
/// let source = (key::header("x-user".parse()?), key::method());
/// let (head, ()) = http::Request::get("/").header("x-user", "u1").body(())?.into_parts();
/// assert_eq!(source.name(&head).as_deref(), Some(&b"2:u1,3:GET,"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait NameSource: KeySource {
    /// Returns the name, or `None` if the request lacks the data for it.
    fn name(&self, head: &Parts) -> Option<Vec<u8>>;
}

impl NameSource for Peer {
    fn name(&self, head: &Parts) -> Option<Vec<u8>> {
        Some(self.groups().name(self.address(head)?).into_bytes())
    }
}

impl NameSource for Client {
    fn name(&self, head: &Parts) -> Option<Vec<u8>> {
        Some(Self::name(self, self.peer_of(head), &head.headers)?.into_bytes())
    }
}

impl NameSource for Header {
    fn name(&self, head: &Parts) -> Option<Vec<u8>> {
        Some(self.value(head)?.to_vec())
    }
}

impl NameSource for Method {
    fn name(&self, head: &Parts) -> Option<Vec<u8>> {
        Some(head.method.as_str().into())
    }
}

impl NameSource for Path {
    fn name(&self, head: &Parts) -> Option<Vec<u8>> {
        Some(head.uri.path().into())
    }
}

impl<T, K, F> NameSource for Extension<T, F>
where
    T: Send + Sync + 'static,
    K: Hash + AsRef<[u8]>,
    F: Fn(&T) -> K + Send + Sync,
{
    fn name(&self, head: &Parts) -> Option<Vec<u8>> {
        Some(self.value(head)?.as_ref().to_vec())
    }
}

impl<K, F> NameSource for By<F>
where
    K: Hash + AsRef<[u8]>,
    F: Fn(&Parts) -> Option<K> + Send + Sync,
{
    fn name(&self, head: &Parts) -> Option<Vec<u8>> {
        Some(self.value(head)?.as_ref().to_vec())
    }
}

impl<T: NameSource + ?Sized> NameSource for Box<T> {
    fn name(&self, head: &Parts) -> Option<Vec<u8>> {
        (**self).name(head)
    }
}

impl<T: NameSource> NameSource for Vec<T> {
    fn name(&self, head: &Parts) -> Option<Vec<u8>> {
        joined(self.iter().map(|source| source.name(head)))
    }
}

impl<A: NameSource, B: NameSource> NameSource for (A, B) {
    fn name(&self, head: &Parts) -> Option<Vec<u8>> {
        joined([self.0.name(head), self.1.name(head)])
    }
}

impl<A: NameSource, B: NameSource, C: NameSource> NameSource for (A, B, C) {
    fn name(&self, head: &Parts) -> Option<Vec<u8>> {
        joined([self.0.name(head), self.1.name(head), self.2.name(head)])
    }
}

/// The source of a limit's keys, or of their names in a store.
#[derive(Clone)]
pub(crate) enum LimitSource {
    Keys(Arc<dyn KeySource>),
    Names(Arc<dyn NameSource>),
}

impl LimitSource {
    /// Returns the key of a request, and its name if the limit is in a store. Calls the source
    /// once.
    pub(crate) fn client(&self, head: &Parts) -> Option<(Key, Vec<u8>)> {
        match self {
            Self::Keys(source) => Some((source.key(head)?, Vec::new())),
            Self::Names(source) => {
                // The empty name is that of all requests without a name.
                let is_name = |name: &Vec<u8>| (1..=MAX_CLIENT_NAME_BYTES).contains(&name.len());
                let name = source.name(head).filter(is_name)?;
                Some((Key::of(&name), name))
            }
        }
    }

    /// Returns the source as one of keys, which states why a request has none.
    pub(crate) fn keys(&self) -> &dyn KeySource {
        match self {
            Self::Keys(source) => &**source,
            Self::Names(source) => &**source,
        }
    }
}

/// Joins names, each preceded by its length, so that different lists differ.
fn joined(names: impl IntoIterator<Item = Option<Vec<u8>>>) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for name in names {
        let name = name?;
        all.extend_from_slice(name.len().to_string().as_bytes());
        all.push(b':');
        all.extend_from_slice(&name);
        all.push(b',');
    }
    Some(all)
}
