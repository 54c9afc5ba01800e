//! What a request has taken, and how it comes back: by the head of its response, or when its body has ended.

use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rategate::{
    BackfillPool, Clock, CompactLog, Concurrent, FixedWindow, Gcra, Grant, Ledger, Limiter, Pacer,
    Permit, SlidingLog, TwoTimeline,
};

/// What a request has taken.
pub(crate) enum Taken {
    /// Permits that the head of the response may give back.
    Spent(GiveBack),
    /// Permits in flight, until the response has ended.
    InFlight(Box<dyn InFlight>),
}

/// Gives back what a request has taken.
type GiveBack = Box<dyn FnOnce() + Send>;

impl Taken {
    /// Takes note of the head of the response, which says whether the request counts. Returns what is in flight until
    /// the body has ended.
    pub(crate) fn answered(self, comes_back: bool) -> Option<Box<dyn InFlight>> {
        match self {
            Self::Spent(give_back) => {
                if comes_back {
                    give_back();
                }
                None
            }
            Self::InFlight(mut permits) => {
                if comes_back {
                    permits.had_no_effect();
                }
                Some(permits)
            }
        }
    }
}

/// Permits in flight. Dropped, they have ended.
pub(crate) trait InFlight: Send + Sync {
    /// From now on they never were: they come back without an effect when this is dropped.
    fn had_no_effect(&mut self);
}

/// Permits of a limiter in flight. `K` is dropped after them.
struct Flight<L: Concurrent, C: Clock, K> {
    permit: Option<Permit<L, C>>,
    had_no_effect: bool,
    _known: K,
}

impl<L, C, K> InFlight for Flight<L, C, K>
where
    L: Concurrent + Send,
    C: Clock,
    K: Send + Sync,
{
    fn had_no_effect(&mut self) {
        self.had_no_effect = true;
    }
}

impl<L: Concurrent, C: Clock, K> Drop for Flight<L, C, K> {
    fn drop(&mut self) {
        match self.permit.take() {
            Some(permit) if self.had_no_effect => permit.forgo(),
            permit => drop(permit),
        }
    }
}

/// Whether limits of this type may count what is in flight: all but those of which it is known that they do not.
pub(super) fn may_count_in_flight<L: 'static>() -> bool {
    let never = [
        TypeId::of::<Ledger<Gcra>>(),
        TypeId::of::<Ledger<SlidingLog>>(),
        TypeId::of::<Ledger<CompactLog>>(),
        TypeId::of::<Ledger<FixedWindow>>(),
        TypeId::of::<Ledger<Pacer>>(),
        TypeId::of::<Ledger<TwoTimeline>>(),
        TypeId::of::<Ledger<BackfillPool>>(),
    ];
    !never.contains(&TypeId::of::<L>())
}

/// What is known of a limiter. A request that has permits of it in flight keeps this, and drops it after them.
pub(super) trait Known: Clone + Send + Sync + 'static {
    /// Whether the limiter counts what is in flight. Which policy a limit has may be known at run time only, and
    /// change. Asked after a permit was taken: a change that comes later does not make it one in flight.
    fn counts_in_flight<L: Concurrent, C: Clock>(&self, limiter: &Limiter<L, C>) -> bool {
        // Nothing is released here.
        limiter.release(0).unwrap_or(false)
    }
}

/// The answer of a limiter, asked once and after each change of its limit: it takes the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered(Arc<AtomicU64>);

impl Known for Remembered {
    fn counts_in_flight<L: Concurrent, C: Clock>(&self, limiter: &Limiter<L, C>) -> bool {
        // From 1 on, so that it is not what is remembered at first.
        let number = || limiter.changes().saturating_add(1).saturating_mul(2);
        let changes = number();
        let remembered = self.0.load(Ordering::Relaxed);
        if remembered & !1 == changes {
            return remembered & 1 == 1;
        }
        let counts = limiter.release(0).unwrap_or(false);
        if number() == changes {
            self.0.store(changes | u64::from(counts), Ordering::Relaxed);
        }
        counts
    }
}

/// A permit in flight as what a request has taken.
pub(super) fn in_flight<L, C, K>(permit: Permit<L, C>, known: K) -> Taken
where
    L: Concurrent + Send + 'static,
    C: Clock + 'static,
    K: Send + Sync + 'static,
{
    Taken::InFlight(Box::new(Flight { permit: Some(permit), had_no_effect: false, _known: known }))
}

/// What gives back a grant of a limiter.
pub(super) fn give_back<L, C>(limiter: &Limiter<L, C>, grant: Grant) -> GiveBack
where
    L: Concurrent + Send + 'static,
    C: Clock + 'static,
{
    let limiter = limiter.clone();
    Box::new(move || {
        // To a limiter that is closed nothing has to go back.
        let _ = limiter.refund(&grant, grant.permits());
    })
}
