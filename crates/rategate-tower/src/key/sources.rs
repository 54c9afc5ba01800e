//! Keys by other parts of a request's head: headers, method, path, extensions, or a closure.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use http::HeaderName;
use http::request::Parts;

use super::{Key, KeySource};

/// A source of keys by the value of a header. See [`header`].
#[derive(Clone, Debug)]
pub struct Header(HeaderName);

/// Returns a source of keys by the value of a header, byte for byte.
///
/// A repeated header gives no key: the service may use one value, while the other is new in each
/// request. Such a request is [ambiguous](KeySource::is_ambiguous), and refused with a 400 unless
/// [`missing`](crate::RateLimitLayer::missing) is configured otherwise.
///
/// A client chooses its headers. If authentication has not checked the value, a client can choose
/// a new limit for each request. The table stays bounded, but the limit has no effect.
#[must_use]
pub const fn header(name: HeaderName) -> Header {
    Header(name)
}

impl Header {
    /// Returns the value, if there is exactly one.
    pub(super) fn value<'h>(&self, head: &'h Parts) -> Option<&'h [u8]> {
        let mut values = head.headers.get_all(&self.0).into_iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Some(value.as_bytes()),
            _ => None,
        }
    }
}

impl KeySource for Header {
    fn key(&self, head: &Parts) -> Option<Key> {
        Some(Key::of(self.value(head)?))
    }

    fn is_ambiguous(&self, head: &Parts) -> bool {
        head.headers.get_all(&self.0).into_iter().nth(1).is_some()
    }
}

/// A source of keys by the method. See [`method`].
#[derive(Clone, Copy, Debug)]
pub struct Method;

/// Returns a source of keys by the method: `GET`, `POST` and so on, including unknown methods.
#[must_use]
pub const fn method() -> Method {
    Method
}

impl KeySource for Method {
    fn key(&self, head: &Parts) -> Option<Key> {
        Some(Key::of(head.method.as_str()))
    }
}

/// A source of keys by the path. See [`path`].
#[derive(Clone, Copy, Debug)]
pub struct Path;

/// Returns a source of keys by the path as sent, without the query. `/a` and `//a` differ. For a
/// limit per route, the router's template is better; see [`extension`].
#[must_use]
pub const fn path() -> Path {
    Path
}

impl KeySource for Path {
    fn key(&self, head: &Parts) -> Option<Key> {
        Some(Key::of(head.uri.path()))
    }
}

/// A source with one key for all requests. See [`constant`].
#[derive(Clone, Copy, Debug)]
pub struct Constant(Key);

/// Returns a source with one key for all requests, such as for several routes that share one limit
/// in a table.
#[must_use]
pub fn constant<T: Hash + ?Sized>(value: &T) -> Constant {
    Constant(Key::of(value))
}

impl KeySource for Constant {
    fn key(&self, _head: &Parts) -> Option<Key> {
        Some(self.0)
    }
}

/// A source of keys by a value of an extension. See [`extension`].
pub struct Extension<T, F> {
    value: F,
    of: PhantomData<fn(&T)>,
}

/// Returns a source of keys by a value of the extension `T`, which was added to the request before
/// this layer: the route's template, or the authenticated user.
///
/// A request without the extension receives a 500, and the log reports that once, unless
/// [`missing`](crate::RateLimitLayer::missing) is configured otherwise. Where some requests have
/// none, such as those of users who have not logged in, configure it there, or make `T` an
/// `Option`.
///
/// axum has the template in `MatchedPath`, for a layer added with `route_layer` to a router that
/// has the routes already. With `layer` it would also apply to unknown paths, which have no
/// template:
///
/// ```
/// use axum::extract::MatchedPath;
/// use rategate_tower::key;
///
/// let source = key::extension(|path: &MatchedPath| path.as_str().to_owned());
/// ```
pub const fn extension<T, K, F>(value: F) -> Extension<T, F>
where
    T: Send + Sync + 'static,
    K: Hash,
    F: Fn(&T) -> K + Send + Sync,
{
    Extension { value, of: PhantomData }
}

impl<T, F> Extension<T, F> {
    pub(super) fn value<K>(&self, head: &Parts) -> Option<K>
    where
        T: Send + Sync + 'static,
        F: Fn(&T) -> K,
    {
        Some((self.value)(head.extensions.get::<T>()?))
    }
}

impl<T, K, F> KeySource for Extension<T, F>
where
    T: Send + Sync + 'static,
    K: Hash,
    F: Fn(&T) -> K + Send + Sync,
{
    fn key(&self, head: &Parts) -> Option<Key> {
        Some(Key::of(&self.value(head)?))
    }

    fn lacks(&self, head: &Parts) -> Option<&'static str> {
        head.extensions.get::<T>().is_none().then(std::any::type_name::<T>)
    }
}

impl<T, F> fmt::Debug for Extension<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extension").finish_non_exhaustive()
    }
}

/// A source of keys by a closure. See [`by`].
#[derive(Clone, Copy)]
pub struct By<F>(F);

/// Returns a source of keys by a closure over the head of a request. The closure returns `None` if
/// there is no key.
///
/// ```
/// use rategate_tower::key::{self, KeySource};
///
/// // One for each tenant of `tenant.example.com`.
/// let source = key::by(|head| Some(head.uri.host()?.split('.').next()?.to_owned()));
/// let (head, ()) = http::Request::get("http://blue.example.com/").body(())?.into_parts();
/// assert_eq!(source.key(&head), Some(key::Key::of("blue")));
/// # Ok::<(), http::Error>(())
/// ```
pub const fn by<K, F>(value: F) -> By<F>
where
    K: Hash,
    F: Fn(&Parts) -> Option<K> + Send + Sync,
{
    By(value)
}

impl<F> By<F> {
    pub(super) fn value<K>(&self, head: &Parts) -> Option<K>
    where
        F: Fn(&Parts) -> Option<K>,
    {
        (self.0)(head)
    }
}

impl<K, F> KeySource for By<F>
where
    K: Hash,
    F: Fn(&Parts) -> Option<K> + Send + Sync,
{
    fn key(&self, head: &Parts) -> Option<Key> {
        Some(Key::of(&self.value(head)?))
    }
}

impl<F> fmt::Debug for By<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("By").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::request::Parts;
    use http::{HeaderName, Request};

    use super::{constant, extension, header, method, path};
    use crate::key::{Key, KeySource};

    const NAME: HeaderName = HeaderName::from_static("x-api-key");

    fn head(uri: &str, keys: &[&[u8]]) -> Parts {
        let mut request = Request::get(uri).extension(7_u32);
        for key in keys {
            request = request.header(NAME, *key);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_header_is_a_key_if_it_comes_once() {
        let source = header(NAME);
        assert_eq!(source.key(&head("/", &[])), None);
        assert_eq!(source.key(&head("/", &[b"a", b"b"])), None);
        assert_eq!(source.key(&head("/", &[b"a"])), Some(Key::of(b"a".as_slice())));
        assert_eq!(source.key(&head("/", &[b"\xff"])), Some(Key::of(b"\xff".as_slice())));
        let long = [b'x'; 8192];
        assert_eq!(source.key(&head("/", &[&long])), Some(Key::of(long.as_slice())));
    }

    #[test]
    fn paths_and_methods_and_extensions() {
        let head = head("http://h/a/b?c=d", &[]);
        assert_eq!(path().key(&head), Some(Key::of("/a/b")));
        assert_eq!(method().key(&head), Some(Key::of("GET")));
        assert_eq!(constant("c").key(&head), Some(Key::of("c")));
        assert_eq!(extension(|it: &u32| *it).key(&head), Some(Key::of(&7_u32)));
        assert_eq!(extension(|it: &u64| *it).key(&head), None);
    }

    #[test]
    fn several_make_one_and_one_missing_makes_none() {
        let (with, without) = (head("/", &[b"a"]), head("/", &[]));
        assert!((header(NAME), method()).key(&with).is_some());
        assert!((method(), header(NAME)).key(&without).is_none());
        assert!((method(), path(), header(NAME)).key(&without).is_none());
        let listed: Vec<Box<dyn KeySource>> = vec![Box::new(header(NAME)), Box::new(method())];
        assert_eq!(listed.key(&with), (header(NAME), method()).key(&with));
        assert!(listed.key(&without).is_none());
    }

    /// Different orders or borders of the parts give different keys.
    #[test]
    fn a_composite_is_unambiguous() {
        let joined = |a: &str, b: &str| Key::joined([Key::of(a), Key::of(b)]);
        assert_ne!(joined("ab", "c"), joined("a", "bc"));
        assert_ne!(joined("a", "b"), joined("b", "a"));
        assert_eq!(joined("a", "b"), joined("a", "b"));
        assert_ne!(Key::joined([Key::of("a")]), Key::of("a"));
    }
}
