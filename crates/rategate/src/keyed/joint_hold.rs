//! Holds of several limits at once: all or none.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::holds;
use rategate_core::span::whole_ns;

use super::joint::{
    GuardedBy, Guarding, HeldStatus, JointDecision, JointLimiter, Lock, decide_together,
};
use super::joint_key::JointKey;
use super::key::Id;
use super::table::Table;
use super::table::section::KeyLocation;
use crate::charge::Hold;
use crate::clock::Clock;
use crate::decision::Denial;
use crate::error::{KeyedError, TryAllError};
use crate::hold::KeyName;
use crate::limiter::Limiter;
use crate::status::Status;

/// An estimate of one limit, as one part of a call to [`try_hold_all`].
///
/// Returned by [`Limiter::estimate`] and [`Keyed::estimate`](crate::Keyed::estimate).
#[must_use = "an estimate holds nothing until `try_hold_all` is called"]
pub struct Estimate<'a, C: Clock> {
    limit: Limit<'a, C>,
    permits: u64,
    spared: u64,
}

enum Limit<'a, C: Clock> {
    Limiter(&'a Limiter<C>),
    Key(&'a dyn TableOfHolds<C>, KeyName),
}

/// A table of keys whose permits can be held.
trait TableOfHolds<C: Clock>: Send + Sync {
    fn try_hold(
        &self,
        name: KeyName,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<Result<Hold<C>, Denial>, KeyedError>;

    /// Returns the limiter that guards a key's limit, unless its shard does, and the error for two
    /// parts that share it.
    fn guarding_limiter(
        &self,
        name: KeyName,
        guarded_by: GuardedBy,
    ) -> Result<Option<Guarding<C>>, KeyedError>;

    fn lock(&self, name: KeyName, permits: u64, spared: u64) -> Box<dyn Lock + '_>;

    /// Returns `true` if there is no memory for more.
    fn is_full_of_bytes(&self) -> bool;

    fn held(&self, name: KeyName, hold: holds::Hold) -> Hold<C>;
}

impl<I: Id, C: Clock + Clone> TableOfHolds<C> for Arc<Table<I, C>>
where
    Table<I, C>: Send + Sync + 'static,
{
    fn try_hold(
        &self,
        name: KeyName,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<Result<Hold<C>, Denial>, KeyedError> {
        Table::try_hold(self, &self.named(name), permits, ttl_ns)
    }

    fn guarding_limiter(
        &self,
        name: KeyName,
        guarded_by: GuardedBy,
    ) -> Result<Option<Guarding<C>>, KeyedError> {
        Table::guarding_limiter(self, &self.named(name), guarded_by)
    }

    fn lock(&self, name: KeyName, permits: u64, spared: u64) -> Box<dyn Lock + '_> {
        Box::new(JointKey { table: &**self, location: self.named(name), permits, spared })
    }

    fn is_full_of_bytes(&self) -> bool {
        Table::is_full_of_bytes(self)
    }

    fn held(&self, name: KeyName, hold: holds::Hold) -> Hold<C> {
        Hold::of_key(Self::clone(self), name, hold)
    }
}

impl<'a, C: Clock> Estimate<'a, C> {
    pub(super) fn of_key<I: Id>(
        table: &'a Arc<Table<I, C>>,
        location: KeyLocation<I>,
        permits: u64,
    ) -> Self
    where
        C: Clone,
        Table<I, C>: Send + Sync + 'static,
    {
        Self { limit: Limit::Key(table, location.name()), permits, spared: 0 }
    }

    /// Holds the permits only if at least `permits` more are left.
    ///
    /// So callers with a smaller limit of their own can share a counter: with `max - n` permits
    /// spared of a window of `max`, no more than `n` are ever used. An estimate of no permits
    /// spares none.
    pub const fn sparing(self, permits: u64) -> Self {
        Self { spared: permits, ..self }
    }

    fn held(&self, hold: holds::Hold) -> Hold<C> {
        match self.limit {
            Limit::Limiter(limiter) => limiter.held(hold),
            Limit::Key(table, name) => table.held(name, hold),
        }
    }

    /// Returns the lock that guards the limit, and the limiter if that is one.
    #[expect(clippy::type_complexity, reason = "a lock and its owner")]
    fn lock(
        &self,
        guarded_by: GuardedBy,
    ) -> Result<(Box<dyn Lock + '_>, Option<Limiter<C>>), KeyedError> {
        let Self { permits, spared, .. } = *self;
        let (limiter, twice) = match self.limit {
            Limit::Limiter(limiter) => (limiter.clone(), KeyedError::Duplicate),
            Limit::Key(table, name) => match table.guarding_limiter(name, guarded_by)? {
                Some(guarding) => guarding,
                None if permits > 0 && table.is_full_of_bytes() => {
                    return Err(KeyedError::TableFull);
                }
                None => return Ok((table.lock(name, permits, spared), None)),
            },
        };
        let lock = JointLimiter { limiter: limiter.clone(), permits, spared, twice };
        Ok((Box::new(lock), Some(limiter)))
    }
}

impl<C: Clock> Limiter<C> {
    /// Returns an estimate of this limiter, as one part of a call to [`try_hold_all`].
    pub const fn estimate(&self, permits: u64) -> Estimate<'_, C> {
        Estimate { limit: Limit::Limiter(self), permits, spared: 0 }
    }
}

impl<C: Clock> Clone for Estimate<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Clock> Copy for Estimate<'_, C> {}

impl<C: Clock> Clone for Limit<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Clock> Copy for Limit<'_, C> {}

impl<C: Clock> fmt::Debug for Estimate<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Estimate")
            .field("permits", &self.permits)
            .field("spared", &self.spared)
            .finish_non_exhaustive()
    }
}

/// Holds estimates of several limits at once, or of none, until the true costs are known.
///
/// Each is ended by itself: see [`Limiter::try_hold`].
///
/// ```
/// use std::time::Duration;
///
/// use rategate::keyed::{JointDecision, try_hold_all};
/// use rategate::{Gcra, Limiter, SlidingLog};
///
/// let minute = Duration::from_secs(60);
/// let tokens = Limiter::new(Gcra::per_hour(1000).burst(1000));
/// let requests = Limiter::new(SlidingLog::new(2, minute));
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
/// One lock for each limiter and for the shard of each key, taken in the order of their addresses
/// and held for the decision.
///
/// # Errors
///
/// [`TryAllError`], with [`KeyedError::Duplicate`] where two parts are of one limiter or one
/// key. Nothing is held then.
pub fn try_hold_all<C: Clock>(
    parts: &[Estimate<'_, C>],
    ttl: Duration,
) -> Result<JointDecision<Hold<C>>, TryAllError> {
    let ttl_ns = whole_ns(ttl);
    if let [part] = parts
        && part.spared == 0
        && part.permits > 0
    {
        return hold_one(part, ttl_ns).map_err(|error| TryAllError { at: 0, error });
    }
    hold_together(parts, ttl_ns, false, |hold, _| hold)
}

/// Holds estimates as [`try_hold_all`] does, and returns the status that each leaves. It is `None`
/// of a limiter, and of a key that has one.
///
/// # Errors
///
/// Those of [`try_hold_all`].
#[expect(clippy::type_complexity, reason = "a hold and its status")]
pub fn try_hold_all_with_status<C: Clock>(
    parts: &[Estimate<'_, C>],
    ttl: Duration,
) -> Result<JointDecision<(Hold<C>, Option<Status>)>, TryAllError> {
    hold_together(parts, whole_ns(ttl), true, |hold, status| (hold, status))
}

fn hold_together<T, C: Clock>(
    parts: &[Estimate<'_, C>],
    ttl_ns: u64,
    with_status: bool,
    result: impl Fn(Hold<C>, Option<Status>) -> T,
) -> Result<JointDecision<T>, TryAllError> {
    // The limiters that keep the parts; shards keep the others.
    let limiters: Vec<RefCell<Option<Limiter<C>>>> =
        parts.iter().map(|_| RefCell::default()).collect();
    let lock = |at: usize, guarded_by| {
        let (Some(part), Some(kept)) = (parts.get(at), limiters.get(at)) else {
            return Err(KeyedError::Closed);
        };
        let (lock, limiter) = part.lock(guarded_by)?;
        kept.replace(limiter);
        Ok(lock)
    };
    decide_together(parts.len(), lock, |guards| {
        let mut holds = Vec::with_capacity(parts.len());
        for (_, guard) in guards {
            guard.hold(ttl_ns, with_status, &mut holds);
        }
        let of = |(at, (hold, status)): (usize, HeldStatus)| {
            let (part, kept) = (parts.get(at)?, limiters.get(at)?);
            let kept = kept.borrow();
            let own = kept.as_ref().map_or_else(|| part.held(hold), |own| own.held(hold));
            Some((at, result(own, status)))
        };
        holds.into_iter().filter_map(of).collect()
    })
}

/// Holds the estimate of one limit, without what several need.
fn hold_one<C: Clock>(
    part: &Estimate<'_, C>,
    ttl_ns: u64,
) -> Result<JointDecision<Hold<C>>, KeyedError> {
    let held = match part.limit {
        Limit::Limiter(limiter) => limiter.try_hold_ns(part.permits, ttl_ns)?,
        Limit::Key(table, name) => table.try_hold(name, part.permits, ttl_ns)?,
    };
    Ok(match held {
        Ok(one) => JointDecision::Granted(vec![one]),
        Err(denial) => JointDecision::Denied { retry_after: denial.retry_after(), by: 0 },
    })
}
