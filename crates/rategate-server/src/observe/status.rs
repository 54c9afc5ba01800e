//! The status of the service: set by its parts, read by metrics and the page.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::lock;
use super::refusals::{ListenerCalls, Refusals};
use crate::engine::KeeperStats;

/// A protocol of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP.
    Resp,
    /// HTTP/1.1 and HTTP/2, except gRPC.
    Http,
    /// gRPC.
    Grpc,
}

/// The status of the store, from the best to the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Store {
    /// There is no store: all counters are in this process.
    #[default]
    None,
    /// The store replies.
    Healthy,
    /// The store replies again but may have lost counters, so it is not relied on yet.
    Quarantined,
    /// The store does not reply, and the fallback of each rule is in force.
    Unavailable,
}

/// The status of the service. Each part writes its own fields, without waiting.
#[derive(Debug, Default)]
pub struct ServerStatus {
    connections: [Arc<Connections>; 3],
    refusals: Refusals,
    /// The numbers of items that came under no rule, by protocol.
    unmatched: [Arc<AtomicU64>; 3],
    /// The numbers of calls whose stated operation was ignored, by protocol.
    ignored_verbs: [Arc<AtomicU64>; 3],
    other_sites: AtomicU64,
    other_hosts: AtomicU64,
    loaded_at_s: AtomicU64,
    config: Loads,
    certificates: Loads,
    /// The configurations of a control plane.
    updates: Loads,
    details: Mutex<Details>,
}

/// What was read again, and accepted or refused.
#[derive(Debug, Default)]
struct Loads {
    accepted: AtomicU64,
    refused: AtomicU64,
    /// The error of the newest, if it was refused.
    error: Mutex<Option<Box<str>>>,
}

/// The connections of a protocol, which all its listeners count.
#[derive(Debug, Default)]
pub(super) struct Connections {
    pub(super) open: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct Details {
    store: Store,
    snapshot: Option<KeeperStats>,
    /// `true` if the stream of a control plane is open; `None` if there is no control plane.
    control_plane: Option<bool>,
}

/// The maximum length of an error that is kept, in bytes.
const MAX_ERROR_BYTES: usize = 2_048;

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 3] = [Self::Resp, Self::Http, Self::Grpc];

    /// Returns the name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }

    /// Returns the protocol's value of one for each.
    const fn of<T>(self, all: &[T; 3]) -> &T {
        let [resp, http, grpc] = all;
        match self {
            Self::Resp => resp,
            Self::Http => http,
            Self::Grpc => grpc,
        }
    }
}

impl Store {
    /// Returns the name in metrics and on the page.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Healthy => "healthy",
            Self::Quarantined => "quarantined",
            Self::Unavailable => "unavailable",
        }
    }
}

impl ServerStatus {
    /// Adds a listener, which counts its connections and refused calls. `token_required` is `true`
    /// if every call needs the token.
    #[must_use]
    pub fn listener(
        &self,
        protocol: Protocol,
        address: &str,
        token_required: bool,
    ) -> Arc<ListenerCalls> {
        let connections = Arc::clone(self.of(protocol));
        self.refusals.listener(protocol, address, token_required, connections)
    }

    /// Returns the counter of a protocol's items that come under no rule.
    #[must_use]
    pub const fn unmatched(&self, protocol: Protocol) -> &Arc<AtomicU64> {
        protocol.of(&self.unmatched)
    }

    /// Returns the counter of a protocol's calls whose entries state an operation while
    /// `[grpc] verbs` is off.
    #[must_use]
    pub const fn ignored_verbs(&self, protocol: Protocol) -> &Arc<AtomicU64> {
        protocol.of(&self.ignored_verbs)
    }

    pub(super) const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Records a refused browser request that a page of another site caused.
    pub fn other_site(&self) {
        self.other_sites.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a refused request for another host name.
    pub fn other_host(&self) {
        self.other_hosts.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a configuration is in force, since `now_s` in Unix time.
    pub fn loaded(&self, now_s: u64) {
        self.loaded_at_s.store(now_s, Ordering::Relaxed);
        self.config.accept();
    }

    /// Records that a configuration was refused, and the previous one stays.
    pub fn load_failed(&self, error: &str) {
        self.config.refuse(error);
    }

    /// Records that the files contain the configuration in force again.
    pub fn load_restored(&self) {
        *lock(&self.config.error) = None;
    }

    /// Records that reloaded certificates are in use.
    pub fn certificates_loaded(&self) {
        self.certificates.accept();
    }

    /// Records that new certificates were refused, and the previous ones stay.
    pub fn certificates_failed(&self, error: &str) {
        self.certificates.refuse(error);
    }

    /// Sets whether the stream of the control plane is open.
    pub fn control_plane(&self, is_connected: bool) {
        self.details(|details| details.control_plane = Some(is_connected));
    }

    /// Records that a configuration of the control plane was accepted, or refused.
    pub fn update_judged(&self, is_accepted: bool) {
        if is_accepted { self.updates.accept() } else { self.updates.refuse("") }
    }

    /// Returns `true` if the stream of the control plane is open, and the numbers of its
    /// configurations accepted, and refused. Returns `None` if there is no control plane.
    pub(super) fn updates(&self) -> Option<(bool, (u64, u64))> {
        let is_connected = self.details(|details| details.control_plane)?;
        Some((is_connected, self.updates.counts()))
    }

    /// Sets the status of the store.
    pub fn store_is(&self, store: Store) {
        self.details(|details| details.store = store);
    }

    /// Sets the statistics of the file of counters.
    pub fn snapshot_is(&self, stats: KeeperStats) {
        self.details(|details| details.snapshot = Some(stats));
    }

    pub(super) fn snapshot(&self) -> Option<KeeperStats> {
        self.details(|details| details.snapshot)
    }

    pub(super) fn store(&self) -> Store {
        self.details(|details| details.store)
    }

    /// Returns the reason why the newest configuration is not in force.
    pub(super) fn reload_error(&self) -> Option<Box<str>> {
        lock(&self.config.error).clone()
    }

    /// Returns the reason why the newest certificates are not in use.
    pub(super) fn certificate_error(&self) -> Option<Box<str>> {
        lock(&self.certificates.error).clone()
    }

    /// Returns the numbers of certificates reloaded, and refused.
    pub(super) fn certificate_loads(&self) -> (u64, u64) {
        self.certificates.counts()
    }

    pub(super) fn loaded_at_s(&self) -> u64 {
        self.loaded_at_s.load(Ordering::Relaxed)
    }

    /// Returns the numbers of requests refused because of another site, and because of another
    /// host name.
    pub(super) fn foreign_requests(&self) -> (u64, u64) {
        (self.other_sites.load(Ordering::Relaxed), self.other_hosts.load(Ordering::Relaxed))
    }

    /// Returns the numbers of configurations loaded, and refused.
    pub(super) fn loads(&self) -> (u64, u64) {
        self.config.counts()
    }

    /// Returns the numbers of connections open, accepted and refused.
    pub(super) fn connections(&self, protocol: Protocol) -> (u64, u64, u64) {
        let Connections { open, accepted, refused } = &**self.of(protocol);
        // A close may be read before its open, which would wrap.
        let open = open.load(Ordering::Relaxed).min(u64::MAX >> 1);
        (open, accepted.load(Ordering::Relaxed), refused.load(Ordering::Relaxed))
    }

    const fn of(&self, protocol: Protocol) -> &Arc<Connections> {
        protocol.of(&self.connections)
    }

    fn details<T>(&self, read: impl FnOnce(&mut Details) -> T) -> T {
        read(&mut lock(&self.details))
    }
}

impl Loads {
    fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        *lock(&self.error) = None;
    }

    fn refuse(&self, error: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        *lock(&self.error) = Some(cut(error));
    }

    /// Returns the numbers of those accepted, and refused.
    fn counts(&self) -> (u64, u64) {
        (self.accepted.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

/// Cuts an error to the maximum length.
fn cut(error: &str) -> Box<str> {
    let fits =
        (0..=MAX_ERROR_BYTES.min(error.len())).rev().find(|&end| error.is_char_boundary(end));
    fits.and_then(|end| error.get(..end)).unwrap_or_default().into()
}
