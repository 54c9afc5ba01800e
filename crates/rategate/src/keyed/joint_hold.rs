//! Holds of several limits at once: all or none.

use std::fmt;
use std::time::Duration;

use rategate_core::concurrent::LimiterPolicy;
use rategate_core::span::whole_ns;

use super::joint::{
    AfterUnlock, EnterError, Held as _, JointDecision, JointLimiter, LimiterLockGuard, Lock as _,
    Order, TryAllError, agree,
};
use crate::charge::Hold;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::{KeyedError, TryAcquireError};
use crate::limiter::Limiter;

/// An estimate of one limiter, as one part of a call to [`try_hold_all`].
///
/// Returned by [`Limiter::estimate`].
#[must_use = "an estimate holds nothing until `try_hold_all` is called"]
pub struct Estimate<'a, P: LimiterPolicy, C: Clock> {
    limiter: &'a Limiter<P, C>,
    permits: u64,
    spared: u64,
}

impl<P: LimiterPolicy, C: Clock> Estimate<'_, P, C> {
    /// Holds the permits only if at least `permits` more are left.
    ///
    /// So callers with a smaller limit of their own can share a counter: with `max - n` permits
    /// spared of a window of `max`, no more than `n` are ever used. An estimate of no permits
    /// spares none.
    pub const fn sparing(self, permits: u64) -> Self {
        Self { spared: permits, ..self }
    }
}

impl<P: LimiterPolicy, C: Clock> Limiter<P, C> {
    /// Returns an estimate of this limiter, as one part of a call to [`try_hold_all`].
    pub const fn estimate(&self, permits: u64) -> Estimate<'_, P, C> {
        Estimate { limiter: self, permits, spared: 0 }
    }
}

impl<P: LimiterPolicy, C: Clock> Clone for Estimate<'_, P, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: LimiterPolicy, C: Clock> Copy for Estimate<'_, P, C> {}

impl<P: LimiterPolicy, C: Clock> fmt::Debug for Estimate<'_, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Estimate")
            .field("permits", &self.permits)
            .field("spared", &self.spared)
            .finish_non_exhaustive()
    }
}

/// Holds estimates of several limiters at once, or of none, until the true costs are known.
///
/// Each is ended by itself: see [`Limiter::try_hold`]. For limits of different kinds, make them
/// limiters of [`AnyPolicy`](crate::AnyPolicy); for a key of a table, take its
/// [limiter](crate::Keyed::limiter).
///
/// ```
/// use std::time::Duration;
///
/// use rategate::keyed::{JointDecision, try_hold_all};
/// use rategate::{AnyPolicy, Gcra, Limiter, SlidingLog};
///
/// let minute = Duration::from_secs(60);
/// let tokens = Limiter::new(AnyPolicy::from(Gcra::per_hour(1000).burst(1000)));
/// let requests = Limiter::new(AnyPolicy::from(SlidingLog::new(2, minute)));
/// let hold = || try_hold_all(&[tokens.estimate(400), requests.estimate(1)], minute);
/// let JointDecision::Granted(first) = hold()? else { unreachable!() };
/// let JointDecision::Granted(second) = hold()? else { unreachable!() };
/// assert!(!hold()?.is_granted());
/// for (hold, used) in first.into_iter().zip([150, 1]) {
///     hold.commit(used)?;
/// }
/// drop(second);
/// assert_eq!((tokens.remaining()?, requests.remaining()?), (850, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
///
/// One lock for each limiter, taken in the order of their addresses and held for the decision.
///
/// # Errors
///
/// [`TryAllError`], with [`KeyedError::Duplicate`] where two parts are of one limiter. Nothing is
/// held then.
pub fn try_hold_all<P: LimiterPolicy, C: Clock>(
    parts: &[Estimate<'_, P, C>],
    ttl: Duration,
) -> Result<JointDecision<Hold<P, C>>, TryAllError> {
    let ttl_ns = whole_ns(ttl);
    if let [part] = parts
        && part.spared == 0
        && part.permits > 0
    {
        return hold_one(part, ttl_ns).map_err(|error| TryAllError { at: 0, error });
    }
    let mut joints = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        let twice = KeyedError::Duplicate;
        let (limiter, permits) = (part.limiter.clone(), part.permits);
        let joint = JointLimiter { limiter, permits, twice };
        joints.push((joint.order(), at, joint, part.spared));
    }
    joints.sort_by_key(|&(order, at, ..)| (order, at));
    let mut guards = Vec::with_capacity(parts.len());
    let locked = joints.iter().try_for_each(|(order, at, joint, spared)| {
        lock(&mut guards, *order, (*at, *spared), joint)
            .map_err(|error| TryAllError { at: *at, error })
    });
    let decided = locked.and_then(|()| agree(&mut guards)).map(|agreed| {
        let hold_all = || guards.iter_mut().filter_map(|(_, guard)| guard.hold(ttl_ns)).collect();
        agreed.decision(hold_all)
    });
    // All locks are released before waiters are woken.
    let after: Vec<AfterUnlock<'_>> =
        guards.into_iter().map(|(_, guard)| guard.release()).collect();
    for act in after {
        act();
    }
    Ok(match decided? {
        JointDecision::Granted(mut held) => {
            held.sort_by_key(|&(at, _): &(usize, _)| at);
            let held = held.into_iter();
            let held = held.filter_map(|(at, hold)| Some(parts.get(at)?.limiter.held(hold)));
            JointDecision::Granted(held.collect())
        }
        JointDecision::Denied { retry_after, by } => JointDecision::Denied { retry_after, by },
    })
}

/// Holds the estimate of one limiter, without what several need.
fn hold_one<P: LimiterPolicy, C: Clock>(
    part: &Estimate<'_, P, C>,
    ttl_ns: u64,
) -> Result<JointDecision<Hold<P, C>>, KeyedError> {
    Ok(match part.limiter.shared().try_hold(part.permits, ttl_ns)? {
        (_, Some(hold)) => JointDecision::Granted(vec![part.limiter.held(hold)]),
        (Decision::Denied(denial), None) => {
            JointDecision::Denied { retry_after: denial.retry_after(), by: 0 }
        }
        // No grant is without a hold.
        (Decision::Granted(_), None) => return Err(TryAcquireError::Closed.into()),
    })
}

/// The locks that are held, each with its place in their order.
type Guards<'a, L, C> = Vec<(Order, Box<LimiterLockGuard<'a, L, C>>)>;

/// Takes the lock of one more limiter. A second lock of the same would wait for ever.
fn lock<'a, P: LimiterPolicy, C: Clock>(
    guards: &mut Guards<'a, P::Limit, C>,
    order: Order,
    (at, spared): (usize, u64),
    joint: &'a JointLimiter<P, C>,
) -> Result<(), KeyedError> {
    if guards.last().is_some_and(|(locked, _)| *locked == order) {
        return Err(joint.twice);
    }
    let mut guard = Box::new(joint.locked()?.sparing(spared));
    match guard.add(at, joint.request()) {
        Err(EnterError::Failed(error)) => return Err(error),
        // A limiter is nowhere else.
        Ok(()) | Err(EnterError::Moved | EnterError::Spilled) => {}
    }
    guards.push((order, guard));
    Ok(())
}
