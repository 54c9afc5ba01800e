//! Status of the store as seen from this node: admission of requests, and evaluation of
//! replies.

use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rategate_core::node::{Breaker, BreakerTerms, Pass};

use super::health::{Health, Sight};
use crate::store::{Answer, Fault, Gone, Reply};

/// The circuit breaker of each part of the store, and the quarantine, for one limiter.
#[derive(Debug)]
pub(super) struct Watch {
    parts: Box<[Mutex<Part>]>,
    quarantine_ns: u64,
}

#[derive(Debug)]
struct Part {
    breaker: Breaker,
    /// The store's count of revivals at the last check.
    revivals: u64,
    /// The instant of the latest failure that counts.
    failed_ns: u64,
    /// The instant until which the store's grants are ignored.
    quarantined_until_ns: u64,
    sight: Sight,
    since_ns: u64,
    last_gone: Option<Gone>,
}

/// The value of a reply to this node.
#[derive(Debug)]
pub(super) enum Worth {
    /// The reply can be used.
    Good(Reply),
    /// The reply counts as none, and the next request is sent after a pause.
    None {
        /// The pause, in ns.
        for_ns: Option<NonZeroU64>,
    },
    /// The caller's own error.
    Fault(Fault),
}

/// A change of status, to be reported once no lock is held.
pub(super) type Change = Option<(Sight, Option<Gone>)>;

impl Watch {
    pub(super) fn new(parts: usize, terms: BreakerTerms, quarantine_ns: u64, now_ns: u64) -> Self {
        let part = || {
            Mutex::new(Part {
                breaker: Breaker::new(terms),
                revivals: 0,
                failed_ns: 0,
                quarantined_until_ns: 0,
                sight: Sight::Well,
                since_ns: now_ns,
                last_gone: None,
            })
        };
        Self { parts: (0..parts.max(1)).map(|_| part()).collect(), quarantine_ns }
    }

    /// Checks whether the store may get a request now; `revivals` is its current count of those.
    ///
    /// # Errors
    ///
    /// The time for which no request may be sent, if known.
    pub(super) fn pass(
        &self,
        part: usize,
        now_ns: u64,
        revivals: u64,
    ) -> Result<(), Option<NonZeroU64>> {
        let Some(mut part) = self.part(part) else { return Ok(()) };
        if part.revivals != revivals {
            part.revivals = revivals;
            part.breaker.look_again();
        }
        if let Some(left) = NonZeroU64::new(part.quarantined_until_ns.saturating_sub(now_ns)) {
            return Err(Some(left));
        }
        match part.breaker.pass(now_ns) {
            Pass::Go | Pass::Probe => Ok(()),
            Pass::Stay { for_ns } => Err(Some(for_ns)),
        }
    }

    /// Returns the time for which the store gets no requests; `None` if it gets them now.
    pub(super) fn closed_for_ns(&self, part: usize, now_ns: u64) -> Option<NonZeroU64> {
        let part = self.part(part)?;
        let quarantined_for_ns = part.quarantined_until_ns.saturating_sub(now_ns);
        NonZeroU64::new(quarantined_for_ns).or_else(|| part.breaker.closed_for_ns(now_ns))
    }

    /// Returns `true` if the part of the store is well.
    pub(super) fn is_well(&self, part: usize) -> bool {
        self.part(part).is_none_or(|part| part.sight == Sight::Well)
    }

    /// Records the reply, or its absence, to a request that was submitted at `asked_ns`.
    ///
    /// A failure counts if its request was submitted after the previous failure. What goes wrong
    /// for many requests at once is thus one failure, so a momentary pause of the store does not
    /// open the breaker.
    pub(super) fn heard(
        &self,
        part: usize,
        asked_ns: u64,
        now_ns: u64,
        answer: Result<Answer, Fault>,
    ) -> (Worth, Change) {
        let Some(mut part) = self.part(part) else { return (Worth::Fault(Fault::Closed), None) };
        match answer {
            Ok(answer) => {
                part.breaker.answered();
                let intact_ns = answer.intact_for_ns.unwrap_or(0);
                let left = self.quarantine_ns.saturating_sub(intact_ns);
                match NonZeroU64::new(left) {
                    None => (Worth::Good(answer.reply), part.turn(Sight::Well, now_ns)),
                    Some(left) => {
                        part.quarantined_until_ns = now_ns.saturating_add(left.get());
                        let change = part.turn(Sight::Quarantined, now_ns);
                        (Worth::None { for_ns: Some(left) }, change)
                    }
                }
            }
            // It replies, and its known keys go on.
            Err(Fault::Gone(Gone::Full(_) | Gone::Key(_))) => {
                part.breaker.answered();
                (Worth::None { for_ns: None }, part.turn(Sight::Well, now_ns))
            }
            Err(Fault::Gone(gone)) => {
                if asked_ns >= part.failed_ns {
                    part.breaker.failed(now_ns);
                    part.failed_ns = now_ns;
                }
                part.last_gone = Some(gone);
                let is_open = part.breaker.is_open();
                let change = if is_open { part.turn(Sight::Gone, now_ns) } else { None };
                let for_ns = part.breaker.closed_for_ns(now_ns);
                (Worth::None { for_ns }, change)
            }
            Err(Fault::Closed) => (Worth::Fault(Fault::Closed), None),
            Err(fault) => {
                part.breaker.answered();
                (Worth::Fault(fault), part.turn(Sight::Well, now_ns))
            }
        }
    }

    /// Returns the status of the worst part.
    pub(super) fn health(&self) -> Health {
        let mut health = Health::default();
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            health.add(part.sight, part.since_ns, part.last_gone.as_ref());
        }
        health
    }

    fn part(&self, part: usize) -> Option<MutexGuard<'_, Part>> {
        let part = self.parts.get(part).or_else(|| self.parts.first())?;
        Some(part.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Part {
    fn turn(&mut self, sight: Sight, now_ns: u64) -> Change {
        if self.sight == sight {
            return None;
        }
        self.sight = sight;
        self.since_ns = now_ns;
        Some((sight, self.last_gone.clone()))
    }
}
