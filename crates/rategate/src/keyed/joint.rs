//! Decisions about several limits at once: a call passes all of them, or takes from none.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use rategate_core::holds::{Hold, HoldVerdict};
use rategate_core::ledger::Ledger;
use rategate_core::verdict::{Refusal, Verdict};

use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::{KeyedError, TryAllError};
use crate::limiter::Limiter;
use crate::shared::LimiterGuard;
use crate::status::Status;

/// Permits of one limit, as one part of a call that has to pass several limits.
///
/// Returned by [`Limiter::attempt`] and [`Keyed::attempt`](crate::Keyed::attempt).
#[derive(Debug)]
pub struct Acquisition<'a> {
    limit: Box<dyn JointLimit + 'a>,
}

/// The decision about a call that has to pass several limits.
#[must_use = "an unused grant is a permit lost"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JointDecision<T = Grant> {
    /// All permits are the caller's: a grant, or a hold, for each part, in the order of the parts.
    Granted(Vec<T>),
    /// Nothing was taken.
    Denied {
        /// The time until the same call passes, if no other call comes first.
        ///
        /// It is exact where all limits are on clocks that run alike and no hold ends sooner. Where
        /// one does, each limit counts as open from its first end on, as the call may pass then.
        /// `None` where time alone cannot help.
        retry_after: Option<Duration>,
        /// The index of the part that the call has to wait longest for.
        by: usize,
    },
}

impl<T> JointDecision<T> {
    /// Returns `true` if all limits have granted.
    #[must_use]
    pub const fn is_granted(&self) -> bool {
        matches!(self, Self::Granted(_))
    }

    /// Returns how long until the same call passes, or may pass as a hold has ended; `None` if it
    /// has passed, or time cannot help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Denied { retry_after, .. } => *retry_after,
            Self::Granted(_) => None,
        }
    }
}

/// Takes the permits of all parts at once, or of none: of limiters, or of keys in tables.
///
/// Put limits that always go together into one limiter instead, by [`AllOf`](crate::AllOf), which
/// needs no lock for buckets and fixed windows. This function is for all others: a limit of this
/// tenant, one of this address and a global one.
///
/// ```
/// use rategate::keyed::{try_all, JointDecision};
/// use rategate::{Gcra, Keyed, Limiter};
///
/// let bucket = |rate: &str, burst| Gcra::new(rate.parse().unwrap(), burst).unwrap();
/// let global = Limiter::new(bucket("1000/s", 1000));
/// let per_tenant: Keyed<u64> = Keyed::new(bucket("10/s", 10));
/// let per_address: Keyed<str> = Keyed::new(bucket("1/s", 1));
///
/// let attempt = |cost| {
///     try_all(&[
///         global.attempt(1),
///         per_tenant.attempt(&7, cost),
///         per_address.attempt("10.0.0.7", 1),
///     ])
/// };
/// assert!(attempt(4)?.is_granted());
/// let JointDecision::Denied { by, .. } = attempt(4)? else { unreachable!() };
/// assert_eq!(by, 2, "the address has to wait");
/// assert_eq!(per_tenant.remaining(&7)?, 6, "and the tenant has lost nothing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
///
/// One lock for each limiter and for the shard of each key, and a copy of the state of each key.
/// All locks are held for the decision. They are taken limiters first, then shards, each in the
/// order of their addresses, so that no two calls deadlock.
///
/// # Errors
///
/// [`TryAllError`], with [`KeyedError::Duplicate`] where two parts are of one key or one
/// limiter.
pub fn try_all(attempts: &[Acquisition<'_>]) -> Result<JointDecision, TryAllError> {
    decide_together(
        attempts.len(),
        |at, guarded_by| match attempts.get(at) {
            Some(attempt) => attempt.limit.lock(guarded_by),
            None => Err(KeyedError::Closed),
        },
        |guards| {
            let mut grants = Vec::with_capacity(attempts.len());
            for (_, guard) in guards {
                guard.take(&mut grants);
            }
            grants
        },
    )
}

/// Decides about `parts` limits together, of which `lock` returns the locks, and takes everything
/// by `take`, or nothing. The result has the parts in their order.
pub(super) fn decide_together<'a, T>(
    parts: usize,
    lock: impl Fn(usize, GuardedBy) -> Result<Box<dyn Lock + 'a>, KeyedError>,
    mut take: impl FnMut(&mut [(Order, Box<dyn Held + '_>)]) -> Vec<(usize, T)>,
) -> Result<JointDecision<T>, TryAllError> {
    // The lock that guards a key's limit can change until it is taken: then the call starts over.
    let mut guarded_by = vec![GuardedBy::Shard; parts];
    loop {
        let mut locks = Vec::with_capacity(parts);
        for (at, &guarded_by) in guarded_by.iter().enumerate() {
            let lock = lock(at, guarded_by).map_err(|error| TryAllError { at, error })?;
            locks.push((lock.order(), at, lock));
        }
        locks.sort_by_key(|&(order, at, _)| (order, at));
        if let Some(decided) = decide_behind(&locks, &mut guarded_by, &mut take)? {
            return Ok(decided);
        }
    }
}

/// Takes the locks in their order and decides behind them. Returns `None` if a limit is behind
/// another lock.
fn decide_behind<T>(
    locks: &[(Order, usize, Box<dyn Lock + '_>)],
    guarded_by: &mut [GuardedBy],
    take: impl FnOnce(&mut [(Order, Box<dyn Held + '_>)]) -> Vec<(usize, T)>,
) -> Result<Option<JointDecision<T>>, TryAllError> {
    let mut guards: Vec<(Order, Box<dyn Held + '_>)> = Vec::with_capacity(locks.len());
    let mut entered = Ok(());
    for (order, at, lock) in locks {
        if guards.last().is_none_or(|(locked_order, _)| locked_order != order) {
            match lock.guard() {
                Ok(guard) => guards.push((*order, guard)),
                Err(error) => entered = Err((*at, EnterError::Failed(error))),
            }
        }
        if entered.is_ok()
            && let Some((_, guard)) = guards.last_mut()
        {
            entered = guard.add(*at, lock.request()).map_err(|why| (*at, why));
        }
        if entered.is_err() {
            break;
        }
    }
    let mut moved = |at: usize, to: GuardedBy| {
        if let Some(guarded_by) = guarded_by.get_mut(at) {
            *guarded_by = to;
        }
        Ok(None)
    };
    let outcome = match entered {
        Ok(()) => agree(&mut guards).map(|agreed| {
            Some(agreed.decision(|| {
                let mut taken = take(&mut guards);
                taken.sort_by_key(|&(at, _)| at);
                taken.into_iter().map(|(_, taken)| taken).collect()
            }))
        }),
        Err((at, EnterError::Failed(error))) => Err(TryAllError { at, error }),
        Err((at, EnterError::Spilled)) => moved(at, GuardedBy::Spill),
        Err((at, EnterError::Moved)) => moved(at, GuardedBy::Limiter),
    };
    // Release all locks first: the actions wake waiters, and reconfigure limiters of keys.
    let after: Vec<AfterUnlock<'_>> =
        guards.into_iter().map(|(_, guard)| guard.release()).collect();
    for act in after {
        act();
    }
    outcome
}

/// The first instant at which all limits open.
enum Agreed {
    Now,
    Later { retry_after: Option<Duration>, by: usize },
}

impl Agreed {
    /// Returns the decision, for which `take` takes everything.
    fn decision<T>(self, take: impl FnOnce() -> Vec<T>) -> JointDecision<T> {
        match self {
            Self::Now => JointDecision::Granted(take()),
            Self::Later { retry_after, by } => JointDecision::Denied { retry_after, by },
        }
    }
}

/// Finds the first instant at which all limits open, or may open as holds have ended.
fn agree(guards: &mut [(Order, Box<dyn Held + '_>)]) -> Result<Agreed, TryAllError> {
    let first = Last::to_open(guards, 0)?;
    let (wait_ns, by) = match first.told {
        (Some(0), _) => return Ok(Agreed::Now),
        told if told.0 != first.exact.0 || told.0.is_none() => told,
        _ => {
            // No hold matters. Each limit may close again until the last one opens.
            let mut last = first;
            while let (Some(wait_ns), false) = (last.exact.0, last.is_beyond_clock) {
                let next = Last::to_open(guards, wait_ns)?;
                if next.exact.0 == last.exact.0 {
                    break;
                }
                last = next;
            }
            last.exact
        }
    };
    Ok(Agreed::Later { retry_after: wait_ns.map(Duration::from_nanos), by })
}

/// The limit that opens last, and how long until then, where time alone can help.
struct Last {
    exact: (Option<u64>, usize),
    is_beyond_clock: bool,
    /// The same where each limit counts as open from the first end of a hold on.
    told: (Option<u64>, usize),
}

impl Last {
    fn to_open(
        guards: &mut [(Order, Box<dyn Held + '_>)],
        after_ns: u64,
    ) -> Result<Self, TryAllError> {
        let now = (Some(after_ns), 0);
        let mut last = Self { exact: now, is_beyond_clock: false, told: now };
        let mut excess = None;
        // Never is last of all.
        let is_later = |wait_ns: Option<u64>, than: Option<u64>| {
            than.is_some_and(|than_ns| wait_ns.is_none_or(|wait_ns| wait_ns > than_ns))
        };
        for (_, guard) in guards {
            guard.opens(after_ns, &mut |Opens { at, wait_ns, hold_ends_ns }| {
                let (wait_ns, is_beyond_clock) = match wait_ns {
                    Ok(wait_ns) => (Some(wait_ns), false),
                    Err(Refusal::BeyondClock { wait_ns }) => {
                        (Some(after_ns.saturating_add(wait_ns)), true)
                    }
                    Err(Refusal::TimeCannotHelp | Refusal::Held) => (None, false),
                    Err(Refusal::Exceeds(error)) => {
                        let error = KeyedError::ExceedsCapacity(error);
                        excess.get_or_insert(TryAllError { at, error });
                        return;
                    }
                };
                let is_open = wait_ns == Some(after_ns);
                let ends_ns = hold_ends_ns.filter(|_| !is_open);
                let told_ns = [wait_ns, ends_ns].into_iter().flatten().min();
                if is_later(wait_ns, last.exact.0) {
                    (last.exact, last.is_beyond_clock) = ((wait_ns, at), is_beyond_clock);
                }
                if is_later(told_ns, last.told.0) {
                    last.told = (told_ns, at);
                }
            });
        }
        excess.map_or(Ok(last), Err)
    }
}

/// When one limit opens for its part.
pub(crate) struct Opens {
    at: usize,
    /// How long until then, but at least for as long as was asked.
    wait_ns: Result<u64, Refusal>,
    /// How long until the first hold ends.
    hold_ends_ns: Option<u64>,
}

/// A lock's rank and its address in memory: locks are taken in this order, limiters before
/// shards.
pub(crate) type Order = (u8, usize);
/// The rank of a limiter's lock.
pub(crate) const LIMITER: u8 = 0;
/// The rank of a shard's lock.
pub(crate) const SHARD: u8 = 1;

/// An action to run once all locks are free.
pub(crate) type AfterUnlock<'a> = Box<dyn FnOnce() + 'a>;

/// A request to a locked limit: permits of a limiter, or of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockedRequest {
    pub(crate) permits: u64,
    /// The permits that have to be left beside those of the request.
    pub(crate) spared: u64,
    pub(crate) key: [u64; 2],
    pub(crate) tier: usize,
}

/// The lock behind which a key's limit was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardedBy {
    /// That of the key's shard.
    Shard,
    /// That of the key's own limiter.
    Limiter,
    /// That of the limit that keys share for which the table has no capacity.
    Spill,
}

/// A limiter that guards a key's limit, and the error for two parts of a call that share it.
pub(crate) type Guarding<C> = (Limiter<C>, KeyedError);

/// A hold of a limit, and the status of the limit after that.
pub(crate) type HeldStatus = (Hold, Option<Status>);

/// The reason why a limit is not behind the lock that was taken for it.
#[derive(Debug)]
pub(crate) enum EnterError {
    Failed(KeyedError),
    /// The limit has moved behind another lock.
    Moved,
    /// The table has no free slot for it, and so it shares a limit.
    Spilled,
}

/// One limit of several.
pub(crate) trait JointLimit: fmt::Debug {
    /// Returns the lock that guards it, of a key the one behind which it was found last.
    fn lock(&self, guarded_by: GuardedBy) -> Result<Box<dyn Lock + '_>, KeyedError>;
}

/// A lock to be taken.
pub(crate) trait Lock {
    fn order(&self) -> Order;
    fn request(&self) -> LockedRequest;
    fn guard(&self) -> Result<Box<dyn Held + '_>, KeyedError>;
}

/// A lock that is held, and the limits behind it that take part in the call.
pub(crate) trait Held {
    /// Adds a limit behind this lock.
    fn add(&mut self, at: usize, wanted: LockedRequest) -> Result<(), EnterError>;

    /// Reports when each limit here opens, not before `after_ns` from now.
    fn opens(&mut self, after_ns: u64, each: &mut dyn FnMut(Opens));

    /// Takes everything.
    fn take(&mut self, grants: &mut Vec<(usize, Grant)>);

    /// Takes everything, and holds it for `ttl_ns`. `with_status` also reads the status of each
    /// limit after that, of limits that have one here.
    fn hold(&mut self, ttl_ns: u64, with_status: bool, holds: &mut Vec<(usize, HeldStatus)>);

    /// Releases the lock.
    fn release<'a>(self: Box<Self>) -> AfterUnlock<'a>
    where
        Self: 'a;
}

impl<C: Clock> Limiter<C> {
    /// Returns permits of this limiter, as one part of a call to [`try_all`].
    #[must_use]
    pub fn attempt(&self, permits: u64) -> Acquisition<'_> {
        let twice = KeyedError::Duplicate;
        Acquisition::of(JointLimiter { limiter: self.clone(), permits, spared: 0, twice })
    }
}

impl<'a> Acquisition<'a> {
    pub(crate) fn of(limit: impl JointLimit + 'a) -> Self {
        Self { limit: Box::new(limit) }
    }
}

/// A limiter as one of several.
pub(crate) struct JointLimiter<C> {
    pub(crate) limiter: Limiter<C>,
    pub(crate) permits: u64,
    /// The permits that have to be left beside those.
    pub(crate) spared: u64,
    /// The error if another part is of this limiter too.
    pub(crate) twice: KeyedError,
}

impl<C> fmt::Debug for JointLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointLimiter").field("permits", &self.permits).finish_non_exhaustive()
    }
}

impl<C: Clock> JointLimit for JointLimiter<C> {
    fn lock(&self, _guarded_by: GuardedBy) -> Result<Box<dyn Lock + '_>, KeyedError> {
        Ok(Box::new(Self { limiter: self.limiter.clone(), ..*self }))
    }
}

impl<C: Clock> Lock for JointLimiter<C> {
    fn order(&self) -> Order {
        (LIMITER, self.limiter.address())
    }

    fn request(&self) -> LockedRequest {
        let Self { permits, spared, .. } = *self;
        LockedRequest { permits, spared, key: [0; 2], tier: 0 }
    }

    fn guard(&self) -> Result<Box<dyn Held + '_>, KeyedError> {
        let guard = self.limiter.guard()?;
        Ok(Box::new(LimiterLockGuard { guard, wanted: None, spared: 0, twice: self.twice }))
    }
}

/// The lock of a limiter that is held, and the part of the call that it decides.
struct LimiterLockGuard<'a, C: Clock> {
    guard: LimiterGuard<'a, C>,
    wanted: Option<(usize, u64)>,
    /// The permits that have to be left beside those of the part.
    spared: u64,
    twice: KeyedError,
}

impl<C: Clock> Held for LimiterLockGuard<'_, C> {
    fn add(&mut self, at: usize, wanted: LockedRequest) -> Result<(), EnterError> {
        if self.wanted.is_some() {
            return Err(EnterError::Failed(self.twice));
        }
        (self.wanted, self.spared) = (Some((at, wanted.permits)), wanted.spared);
        Ok(())
    }

    fn opens(&mut self, after_ns: u64, each: &mut dyn FnMut(Opens)) {
        let Some((at, permits)) = self.wanted else { return };
        let Some(permits) = NonZeroU64::new(permits) else { return };
        let permits = permits.saturating_add(self.spared);
        let mut section = self.guard.section();
        let hold_ends_ns = section.limit().hold_ends_in_ns(section.now_ns);
        let opens =
            section.behind_all(|limit, now_ns| Opens::of(at, (limit, now_ns), after_ns, permits));
        each(opens.unwrap_or(Opens { at, wait_ns: Err(Refusal::Held), hold_ends_ns }));
    }

    fn take(&mut self, grants: &mut Vec<(usize, Grant)>) {
        let Some((at, permits)) = self.wanted else { return };
        let taken =
            self.guard.section().behind_all(|limit, now_ns| limit.try_acquire(now_ns, permits));
        if let Some(Ok(Verdict::Granted(grant))) = taken {
            grants.push((at, Grant::as_promised(&grant)));
        }
    }

    fn hold(&mut self, ttl_ns: u64, _with_status: bool, holds: &mut Vec<(usize, HeldStatus)>) {
        let Some((at, permits)) = self.wanted else { return };
        let hold = |limit: &mut Ledger, now_ns| limit.try_hold(now_ns, permits, ttl_ns);
        if let Ok(Some(HoldVerdict::Held(hold))) =
            self.guard.section().decide_behind_all(permits, hold)
        {
            holds.push((at, (hold, None)));
        }
    }

    fn release<'a>(self: Box<Self>) -> AfterUnlock<'a>
    where
        Self: 'a,
    {
        Box::new(self.guard.release())
    }
}

impl Opens {
    /// Returns when a limit opens for a try.
    pub(crate) fn of(
        at: usize,
        (limit, now_ns): (&Ledger, u64),
        after_ns: u64,
        permits: NonZeroU64,
    ) -> Self {
        let opening = limit.opening(now_ns.saturating_add(after_ns), permits);
        let wait_ns = opening.map(|opening| opening.opens_ns.saturating_sub(now_ns).max(after_ns));
        Self { at, wait_ns, hold_ends_ns: limit.hold_ends_in_ns(now_ns) }
    }
}
