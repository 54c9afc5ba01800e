//! How the service itself does: set by the parts that know, read by metrics and the page.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::refusals::{ListenerCalls, Refusals};
use crate::engine::KeeperStats;

/// Protocols by which connections come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP.
    Resp,
    /// HTTP/1.1 and HTTP/2, gRPC aside.
    Http,
    /// gRPC.
    Grpc,
}

/// How the store does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// There is none: all counters are in this process.
    #[default]
    None,
    /// It answers.
    Well,
    /// It answers again, after it may have lost counters: it is not relied on yet.
    Quarantined,
    /// It does not answer, and what each rule says for that case is in force.
    Gone,
}

/// How the service does. Each part writes its own, and nobody waits.
#[derive(Debug, Default)]
pub struct Status {
    connections: [Connections; 3],
    refusals: Refusals,
    other_sites: AtomicU64,
    other_hosts: AtomicU64,
    config_failed: AtomicBool,
    reloads: AtomicU64,
    failed_reloads: AtomicU64,
    loaded_at_s: AtomicU64,
    #[cfg(feature = "otlp")]
    spans: super::spans::Counts,
    certificate_loads: AtomicU64,
    certificate_failures: AtomicU64,
    /// Why the last configuration or certificate was refused, and the store's state.
    words: Mutex<Words>,
}

#[derive(Debug, Default)]
struct Connections {
    open: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct Words {
    reload_error: Option<Box<str>>,
    certificate_error: Option<Box<str>>,
    store: Store,
    snapshot: Option<KeeperStats>,
}

/// The most bytes of an error that are kept.
const MOST_ERROR_BYTES: usize = 2_048;

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Resp, Self::Http, Self::Grpc];

    /// What metrics call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }
}

impl Store {
    /// What metrics and the page call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Well => "well",
            Self::Quarantined => "quarantined",
            Self::Gone => "gone",
        }
    }
}

impl Status {
    /// A connection has been accepted.
    pub fn opened(&self, protocol: Protocol) {
        let connections = self.of(protocol);
        connections.accepted.fetch_add(1, Ordering::Relaxed);
        connections.open.fetch_add(1, Ordering::Relaxed);
    }

    /// It has ended.
    pub fn closed(&self, protocol: Protocol) {
        self.of(protocol).open.fetch_sub(1, Ordering::Relaxed);
    }

    /// One was turned away: too many, not allowed, or not understood.
    pub fn refused(&self, protocol: Protocol) {
        self.of(protocol).refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the refused calls of one more listener, of which every call needs the token or not.
    #[must_use]
    pub fn listener(
        &self,
        protocol: Protocol,
        address: &str,
        token_required: bool,
    ) -> Arc<ListenerCalls> {
        self.refusals.listener(protocol, address, token_required)
    }

    pub(super) const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// A browser was refused that a page of another site made ask.
    pub fn other_site(&self) {
        self.other_sites.fetch_add(1, Ordering::Relaxed);
    }

    /// A request was refused for a name that is not the service's.
    pub fn other_host(&self) {
        self.other_hosts.fetch_add(1, Ordering::Relaxed);
    }

    /// A configuration is in force, since `now_s` in Unix time.
    pub fn loaded(&self, now_s: u64) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        self.loaded_at_s.store(now_s, Ordering::Relaxed);
        self.config_failed.store(false, Ordering::Relaxed);
        self.words(|words| words.reload_error = None);
    }

    /// A configuration was refused, and the one before stays.
    pub fn load_failed(&self, error: &str) {
        self.failed_reloads.fetch_add(1, Ordering::Relaxed);
        self.config_failed.store(true, Ordering::Relaxed);
        self.words(|words| words.reload_error = Some(cut(error)));
    }

    /// What was refused is gone: the files say again what is in force.
    pub fn load_restored(&self) {
        self.config_failed.store(false, Ordering::Relaxed);
        self.words(|words| words.reload_error = None);
    }

    /// Certificates are in use that were read again.
    pub fn certificates_loaded(&self) {
        self.certificate_loads.fetch_add(1, Ordering::Relaxed);
        self.words(|words| words.certificate_error = None);
    }

    /// New certificates were refused, and those of before stay.
    pub fn certificates_failed(&self, error: &str) {
        self.certificate_failures.fetch_add(1, Ordering::Relaxed);
        self.words(|words| words.certificate_error = Some(cut(error)));
    }

    /// The store does so now.
    pub fn store_is(&self, store: Store) {
        self.words(|words| words.store = store);
    }

    /// What became of the file of counters so far.
    pub fn snapshot_is(&self, stats: KeeperStats) {
        self.words(|words| words.snapshot = Some(stats));
    }

    pub(super) fn snapshot(&self) -> Option<KeeperStats> {
        self.words(|words| words.snapshot)
    }

    /// What has become of spans.
    #[cfg(feature = "otlp")]
    pub(super) const fn spans(&self) -> &super::spans::Counts {
        &self.spans
    }

    pub(super) fn store(&self) -> Store {
        self.words(|words| words.store)
    }

    pub(super) fn reload_error(&self) -> Option<Box<str>> {
        self.words(|words| words.reload_error.clone())
    }

    /// Why the newest certificates are not in use.
    pub(super) fn certificate_error(&self) -> Option<Box<str>> {
        self.words(|words| words.certificate_error.clone())
    }

    /// Certificates read again, and refused.
    pub(super) fn certificate_loads(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.certificate_loads), of(&self.certificate_failures))
    }

    pub(super) fn config_failed(&self) -> bool {
        self.config_failed.load(Ordering::Relaxed)
    }

    pub(super) fn loaded_at_s(&self) -> u64 {
        self.loaded_at_s.load(Ordering::Relaxed)
    }

    /// Requests refused for the page that asked, and for the name that they were for.
    pub(super) fn strangers(&self) -> (u64, u64) {
        (self.other_sites.load(Ordering::Relaxed), self.other_hosts.load(Ordering::Relaxed))
    }

    /// Configurations loaded, and refused.
    pub(super) fn loads(&self) -> (u64, u64) {
        (self.reloads.load(Ordering::Relaxed), self.failed_reloads.load(Ordering::Relaxed))
    }

    /// Connections open, accepted and refused.
    pub(super) fn connections(&self, protocol: Protocol) -> (u64, u64, u64) {
        let Connections { open, accepted, refused } = self.of(protocol);
        // Who closes may be read before who opened.
        let open = open.load(Ordering::Relaxed).min(u64::MAX >> 1);
        (open, accepted.load(Ordering::Relaxed), refused.load(Ordering::Relaxed))
    }

    fn of(&self, protocol: Protocol) -> &Connections {
        let [resp, http, grpc] = &self.connections;
        match protocol {
            Protocol::Resp => resp,
            Protocol::Http => http,
            Protocol::Grpc => grpc,
        }
    }

    fn words<T>(&self, read: impl FnOnce(&mut Words) -> T) -> T {
        read(&mut self.words.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// As much of an error as is kept.
fn cut(error: &str) -> Box<str> {
    let fits =
        (0..=MOST_ERROR_BYTES.min(error.len())).rev().find(|&end| error.is_char_boundary(end));
    fits.and_then(|end| error.get(..end)).unwrap_or_default().into()
}
