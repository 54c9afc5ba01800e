//! Calls that listeners refused before a decision: counted by reason, and logged at a limited
//! rate.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::status::Connections;
use super::{Protocol, lock};
use crate::net::{RefusalReason, Tally};

/// The minimum time between two log lines about a reason of one listener, in nanoseconds.
const PAUSE_NS: u64 = 10_000_000_000;

const REASONS: usize = RefusalReason::ALL.len();

/// The listeners of a service, with their refused calls.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    listeners: Mutex<Vec<Arc<ListenerCalls>>>,
}

/// The connections and refused calls of one listener.
#[derive(Debug)]
pub struct ListenerCalls {
    protocol: Protocol,
    connections: Arc<Connections>,
    address: Box<str>,
    /// `true` if every call needs the token.
    token_required: bool,
    is_admitted: AtomicBool,
    refused: [AtomicU64; REASONS],
    last_peer: Mutex<Option<IpAddr>>,
    /// The last log line about each reason: the number of calls, and the time.
    reported: Mutex<[LastReport; REASONS]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LastReport {
    calls: u64,
    at_ns: Option<u64>,
}

impl Refusals {
    /// Adds a listener.
    pub(super) fn listener(
        &self,
        protocol: Protocol,
        address: &str,
        token_required: bool,
        connections: Arc<Connections>,
    ) -> Arc<ListenerCalls> {
        let calls = Arc::new(ListenerCalls {
            protocol,
            connections,
            address: address.into(),
            token_required,
            is_admitted: AtomicBool::new(false),
            refused: [const { AtomicU64::new(0) }; REASONS],
            last_peer: Mutex::new(None),
            reported: Mutex::default(),
        });
        lock(&self.listeners).push(Arc::clone(&calls));
        calls
    }

    /// Returns the number of calls of a protocol that were refused for a reason.
    pub(super) fn count(&self, protocol: Protocol, reason: RefusalReason) -> u64 {
        let listeners = lock(&self.listeners);
        let of = listeners.iter().filter(|listener| listener.protocol == protocol);
        of.fold(0_u64, |all, listener| all.wrapping_add(listener.count(reason)))
    }

    /// Logs the refused calls, at `now_ns`. Called once a second.
    pub(super) fn tick(&self, now_ns: u64) {
        for listener in lock(&self.listeners).iter() {
            listener.report(now_ns);
        }
    }
}

impl Tally for ListenerCalls {
    fn opened(&self) {
        self.connections.accepted.fetch_add(1, Ordering::Relaxed);
        self.connections.open.fetch_add(1, Ordering::Relaxed);
    }

    fn closed(&self) {
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn refused(&self) {
        self.connections.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn call_refused(&self, reason: RefusalReason, peer: Option<SocketAddr>) {
        let counters = RefusalReason::ALL.iter().zip(&self.refused);
        for (_, counter) in counters.filter(|(known, _)| **known == reason) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        // In a flood of refused calls, none waits to record its peer.
        if let Ok(mut last) = self.last_peer.try_lock() {
            *last = peer.map(|peer| peer.ip());
        }
    }

    fn call_admitted(&self) {
        if !self.is_admitted.load(Ordering::Relaxed) {
            self.is_admitted.store(true, Ordering::Relaxed);
        }
    }
}

impl ListenerCalls {
    fn count(&self, reason: RefusalReason) -> u64 {
        let mut counters = RefusalReason::ALL.iter().zip(&self.refused);
        let counter = counters.find(|(known, _)| **known == reason);
        counter.map_or(0, |(_, counter)| counter.load(Ordering::Relaxed))
    }

    fn report(&self, now_ns: u64) {
        let mut reported = lock(&self.reported);
        for (reason, reported) in RefusalReason::ALL.iter().zip(reported.iter_mut()) {
            let calls = self.count(*reason);
            let is_due =
                reported.at_ns.is_none_or(|at_ns| now_ns >= at_ns.saturating_add(PAUSE_NS));
            if calls != reported.calls && is_due {
                self.warn(*reason, calls.wrapping_sub(reported.calls));
                *reported = LastReport { calls, at_ns: Some(now_ns) };
            }
        }
    }

    fn warn(&self, reason: RefusalReason, calls: u64) {
        let last_peer = *lock(&self.last_peer);
        let last_peer = last_peer.map(tracing::field::display);
        let (listener, protocol) = (&*self.address, self.protocol.name());
        let is_of_token = matches!(reason, RefusalReason::NoToken | RefusalReason::InvalidToken);
        let is_unknown =
            is_of_token && self.token_required && !self.is_admitted.load(Ordering::Relaxed);
        let hint = if is_unknown {
            ", and none has shown the token so far: a proxy that lets errors pass limits nothing. \
             Clients show it by `authorization: Bearer TOKEN` (Envoy: `initial_metadata` of its \
             `grpc_service`) or AUTH"
        } else {
            ""
        };
        let reason = reason.name();
        tracing::warn!(listener, protocol, reason, calls, last_peer, "calls are refused{hint}");
    }
}
