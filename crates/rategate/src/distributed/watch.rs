//! Status of the store as seen from this node: admission of requests, and evaluation of
//! replies.

use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rategate_core::node::{Breaker, BreakerConfig, Pass};

use super::health::Health;
use crate::store::{Reply, StoreError, StoreReply, StoreStatus, Unavailable};

/// The circuit breaker of each part of the store, and the quarantine, for one limiter.
#[derive(Debug)]
pub(super) struct Watch {
    backends: Box<[Mutex<BackendWatch>]>,
    quarantine_ns: u64,
}

#[derive(Debug)]
struct BackendWatch {
    breaker: Breaker,
    /// The store's count of revivals at the last check.
    revivals: u64,
    /// The instant of the latest failure that counts.
    failed_ns: u64,
    /// The instant until which the store's grants are ignored.
    quarantined_until_ns: u64,
    store_status: StoreStatus,
    since_ns: u64,
    last_unavailable: Option<Unavailable>,
}

/// The value of a reply to this node.
#[derive(Debug)]
pub(super) enum CheckedReply {
    /// The reply can be used; with its instant on the store's clock.
    Usable(Reply, Option<u64>),
    /// The reply counts as none, and the next request is sent after a pause.
    None {
        /// The pause, in ns.
        for_ns: Option<NonZeroU64>,
    },
    /// The reply is an error that goes to the caller.
    StoreError(StoreError),
}

/// A change of status, to be reported once no lock is held.
pub(super) type Change = Option<(StoreStatus, Option<Unavailable>)>;

impl Watch {
    pub(super) fn new(backends: usize, quarantine_ns: u64, now_ns: u64) -> Self {
        let backend = || {
            Mutex::new(BackendWatch {
                breaker: Breaker::new(BreakerConfig::default()),
                revivals: 0,
                failed_ns: 0,
                quarantined_until_ns: 0,
                store_status: StoreStatus::Healthy,
                since_ns: now_ns,
                last_unavailable: None,
            })
        };
        Self { backends: (0..backends.max(1)).map(|_| backend()).collect(), quarantine_ns }
    }

    /// Checks whether the store may get a request now, given its current count of revivals.
    ///
    /// # Errors
    ///
    /// The time for which no request may be sent, if known.
    pub(super) fn pass(
        &self,
        backend: usize,
        now_ns: u64,
        revivals: u64,
    ) -> Result<(), Option<NonZeroU64>> {
        let Some(mut backend) = self.backend(backend) else { return Ok(()) };
        if backend.revivals != revivals {
            backend.revivals = revivals;
            backend.breaker.probe_now();
        }
        if let Some(left) = NonZeroU64::new(backend.quarantined_until_ns.saturating_sub(now_ns)) {
            return Err(Some(left));
        }
        match backend.breaker.pass(now_ns) {
            Pass::Go | Pass::Probe => Ok(()),
            Pass::Reject { for_ns } => Err(Some(for_ns)),
        }
    }

    /// Returns the time for which the store gets no requests; `None` if it gets them now.
    pub(super) fn closed_for_ns(&self, backend: usize, now_ns: u64) -> Option<NonZeroU64> {
        let backend = self.backend(backend)?;
        let quarantined_for_ns = backend.quarantined_until_ns.saturating_sub(now_ns);
        NonZeroU64::new(quarantined_for_ns).or_else(|| backend.breaker.closed_for_ns(now_ns))
    }

    /// Returns the time for which no grant may be used of a store that has lost nothing for
    /// `intact_for_ns`.
    pub(super) fn quarantine_left(&self, intact_for_ns: Option<u64>) -> Option<NonZeroU64> {
        NonZeroU64::new(self.quarantine_ns.saturating_sub(intact_for_ns.unwrap_or(0)))
    }

    /// Returns `true` if the part of the store is healthy.
    pub(super) fn is_healthy(&self, backend: usize) -> bool {
        self.backend(backend).is_none_or(|backend| backend.store_status == StoreStatus::Healthy)
    }

    /// Records the reply, or its absence, to a request that was submitted at `requested_ns`.
    ///
    /// A failure counts if its request was submitted after the previous failure. What goes wrong
    /// for many requests at once is thus one failure, so a momentary pause of the store does not
    /// open the breaker.
    pub(super) fn received(
        &self,
        backend: usize,
        requested_ns: u64,
        now_ns: u64,
        answer: Result<StoreReply, StoreError>,
    ) -> (CheckedReply, Change) {
        let Some(mut backend) = self.backend(backend) else {
            return (CheckedReply::StoreError(StoreError::Closed), None);
        };
        match answer {
            Ok(answer) => {
                backend.breaker.answered();
                match self.quarantine_left(answer.intact_for_ns) {
                    None => (
                        CheckedReply::Usable(answer.reply, answer.now_ns),
                        backend.set_status(StoreStatus::Healthy, now_ns),
                    ),
                    Some(left) => {
                        backend.quarantined_until_ns = now_ns.saturating_add(left.get());
                        let change = backend.set_status(StoreStatus::Quarantined, now_ns);
                        (CheckedReply::None { for_ns: Some(left) }, change)
                    }
                }
            }
            // The store replies, and serves other keys.
            Err(StoreError::Unavailable(
                unavailable @ (Unavailable::Full(_) | Unavailable::Key(_)),
            )) => {
                backend.breaker.answered();
                backend.last_unavailable = Some(unavailable);
                (
                    CheckedReply::None { for_ns: None },
                    backend.set_status(StoreStatus::Healthy, now_ns),
                )
            }
            Err(StoreError::Unavailable(unavailable)) => {
                if requested_ns >= backend.failed_ns {
                    backend.breaker.failed(now_ns);
                    backend.failed_ns = now_ns;
                }
                backend.last_unavailable = Some(unavailable);
                let is_open = backend.breaker.is_open();
                let change = if is_open {
                    backend.set_status(StoreStatus::Unavailable, now_ns)
                } else {
                    None
                };
                let for_ns = backend.breaker.closed_for_ns(now_ns);
                (CheckedReply::None { for_ns }, change)
            }
            Err(StoreError::Closed) => (CheckedReply::StoreError(StoreError::Closed), None),
            Err(fault) => {
                backend.breaker.answered();
                (CheckedReply::StoreError(fault), backend.set_status(StoreStatus::Healthy, now_ns))
            }
        }
    }

    /// Returns the status of the worst part.
    pub(super) fn health(&self) -> Health {
        let mut health = Health::default();
        for backend in &self.backends {
            let backend = backend.lock().unwrap_or_else(PoisonError::into_inner);
            health.add(
                backend.store_status,
                Duration::from_nanos(backend.since_ns),
                backend.last_unavailable.as_ref(),
            );
        }
        health
    }

    fn backend(&self, backend: usize) -> Option<MutexGuard<'_, BackendWatch>> {
        let backend = self.backends.get(backend).or_else(|| self.backends.first())?;
        Some(backend.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BackendWatch {
    fn set_status(&mut self, store_status: StoreStatus, now_ns: u64) -> Change {
        if self.store_status == store_status {
            return None;
        }
        self.store_status = store_status;
        self.since_ns = now_ns;
        Some((store_status, self.last_unavailable.clone()))
    }
}
