//! Decisions by a table with one limit per key.

use std::sync::Arc;
use std::time::Duration;

use rategate::error::KeyedError;
use rategate::{Clock, Decision, Keyed, Limiter};

use super::limiter::{RequestLimiter, held_for};
use super::taken::Known;
use super::{Answer, Gate, Limit, LimitRequest, Pass, PendingOutcome, decide, refused};
use crate::headers::Numbers;
use crate::key::Key;
use crate::refusal::Reason;

impl<C> Gate for Keyed<Key, C>
where
    C: Clock + Clone + 'static,
{
    fn pass(&self, limit_request: LimitRequest, _name: Vec<u8>) -> Pass {
        let tier = self.tier_of(&limit_request.key);
        let of_key = KeyLimit { keyed: self, key: limit_request.key, tier };
        if !self.needs_ends(tier) {
            if !limit_request.share.is_whole() {
                return Pass::Now(refused(Reason::NoShares));
            }
            return decide(&of_key, limit_request);
        }
        // Permits in flight have to end at the limiter that counted them. In a full table, that
        // limiter may be shared with other keys. The request therefore keeps the limiter
        // meanwhile.
        let known = of_key.known();
        match self.limiter(&limit_request.key) {
            Ok(limiter) => {
                decide(&RequestLimiter { limiter: &limiter, known: &known }, limit_request)
            }
            Err(error) => Pass::Now(refused(reason(error))),
        }
    }

    fn wait(&self, limit_request: LimitRequest) -> Option<Duration> {
        Self::peek(self, &limit_request.key, limit_request.cost).ok().flatten()
    }

    fn changes(&self) -> u64 {
        Self::changes(self)
    }

    fn tier(&self, key: &Key) -> usize {
        self.tier_of(key)
    }

    fn numbers(&self, tier: usize) -> Option<Numbers> {
        Numbers::of([self.policy(tier).ok()?])
    }
}

/// The limit of one key in a table, which takes a few bytes while no request waits for it.
struct KeyLimit<'a, C: Clock> {
    keyed: &'a Keyed<Key, C>,
    key: Key,
    tier: usize,
}

impl<C> KeyLimit<'_, C>
where
    C: Clock + Clone,
{
    fn known(&self) -> Arc<KeyTouchedOnDrop<C>> {
        Arc::new(KeyTouchedOnDrop { keyed: self.keyed.clone(), key: self.key })
    }
}

impl<C> Limit for KeyLimit<'_, C>
where
    C: Clock + Clone + 'static,
{
    fn try_take(&self, limit_request: LimitRequest) -> Answer {
        let LimitRequest { cost, may_return, .. } = limit_request;
        if may_return {
            match self.keyed.try_hold(&self.key, cost, Duration::MAX) {
                // There is no memory for a hold, so this request cannot be refunded.
                Err(KeyedError::TableFull) => {}
                held => {
                    return Ok(held.map_err(reason)?.map(|hold| Some(held_for(hold, ()))));
                }
            }
        }
        let grant = match self.keyed.try_acquire(&self.key, cost).map_err(reason)? {
            Decision::Granted(grant) => grant,
            Decision::Denied(denial) => return Ok(Err(denial)),
        };
        if self.keyed.needs_ends(self.tier) {
            // The policy became one of operations in flight just now, and nothing would end this.
            let _ = self.keyed.release(&self.key, grant.permits());
        }
        Ok(Ok(None))
    }

    fn peek(&self, permits: u64) -> Option<Duration> {
        self.keyed.peek(&self.key, permits).ok().flatten()
    }

    fn remaining(&self) -> u64 {
        self.keyed.remaining(&self.key).unwrap_or(0)
    }

    fn wait(
        &self,
        limit_request: LimitRequest,
        max_wait: Duration,
    ) -> Result<PendingOutcome, Reason> {
        // A waiting request holds the key's limiter, and so keeps the key in the table, from
        // before its first poll.
        let known = self.known();
        let limiter: Limiter<C> = match self.keyed.limiter(&self.key) {
            Ok(limiter) => limiter,
            Err(KeyedError::TableFull) => return Err(Reason::TooManyWaiting),
            Err(error) => return Err(reason(error)),
        };
        RequestLimiter { limiter: &limiter, known: &known }.wait(limit_request, max_wait)
    }
}

/// A key whose limiter was in use. The table notices the end of the use only at the next access to
/// that key, or by chance. Dropping this therefore accesses the key.
struct KeyTouchedOnDrop<C: Clock + Clone> {
    keyed: Keyed<Key, C>,
    key: Key,
}

impl<C> Known for Arc<KeyTouchedOnDrop<C>> where C: Clock + Clone + 'static {}

impl<C: Clock + Clone> Drop for KeyTouchedOnDrop<C> {
    fn drop(&mut self) {
        let _ = self.keyed.remaining(&self.key);
    }
}

/// Returns the reason for which a table has no decision.
const fn reason(error: KeyedError) -> Reason {
    match error {
        KeyedError::ExceedsCapacity(_) => Reason::TooCostly,
        KeyedError::TableFull => Reason::TooManyKeys,
        KeyedError::NoSuchTier { .. } => Reason::NoSuchTier,
        _ => Reason::Closed,
    }
}
