//! A store in this process's own memory.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::entry::reservations::{Ending, Estimate};
use self::entry::{Entry, Judged, PermitRequest, ReadReceipt};
use self::once::Charge;
use self::reserve::IdCapacity;
use self::shard::Shard;
use super::{
    Callback, Denial, Grant, Key, LeaseId, PlanError, Receipt, Reply, Rule, Store, StoreError,
    StoreReply, StoreRequest, Verdict,
};
use crate::clock::{Clock, MonotonicClock};

mod entry;
mod leases;
mod once;
mod plan;
mod reserve;
mod shard;
mod state;

pub use entry::reservations::InFlight;
pub use plan::{MAX_LIMITS, MemoryPlan};

/// The default capacity of a store, in keys.
pub const DEFAULT_CAPACITY: usize = 1_000_000;
/// The most shards of a store, each behind a lock of its own.
const SHARDS: usize = 16;
/// The smallest capacity of a shard in a store of several shards.
const SHARD_CAPACITY: usize = 4_096;

/// A store in this process's own memory, which replies at once.
///
/// It is for programs of one process that may be several one day, for tests of code that uses a
/// store, and for servers that keep limits for others. It decides with the algorithms of
/// [`rategate_core`], to the nanosecond of its clock. On a clock of whole microseconds its
/// decisions are those of the functions of `rategate-redis`, which take a smaller range of
/// numbers: whole microseconds, and values that fit in 53 bits. The two handle changed limits
/// and a clock that goes back each in its own way; neither grants more than it may.
///
/// # Contract
///
/// * **Clock.** Any [`Clock`], read once for a request. A reading that goes back counts as the
///   newest. Windows lie on the grid of that clock, which is not the time of day:
///   [`MonotonicClock`] begins at some instant of its own, so two processes with a store each
///   have two grids. A calendar quota needs a clock since 1970.
/// * **Decisions.** All limits of a set or none; a wait is exact to the nanosecond. A changed
///   limit under a known label continues from its state, as in
///   [`Ledger::reconfigure`](crate::policy::Ledger::reconfigure).
/// * **Refunds.** Exact: after a refund, no limit has more free permits than if the refunded
///   ones had never been taken. Nothing comes back of a grant made before a reset or a
///   [`rewind`](Self::rewind), nor to a bucket whose limit has changed since.
/// * **Leases.** A lease is an id and a number of permits; the same id with another number is
///   another lease.
/// * **Once.** A charge or credit with an id counts once. Its id is remembered for ten minutes, and
///   is of no reservation.
/// * **Reservations.** Exact: after an end, the limits are as if what was used had been taken in
///   the first place, as far as [a hold](rategate_core::holds) can tell. They end at their instant,
///   looked at or not. An id is remembered for ten minutes after the end,
///   or for the time of its reservation if that is longer. A reset drops what is held, so a later
///   end is late. Permits in flight come back whole at any end, and nothing is charged to them.
/// * **Capacity.** Only keys that are distinguishable from unused ones, or have ids to remember,
///   take capacity. As many ids are remembered as keys, or as
///   [`with_max_ids`](Self::with_max_ids) says. A key or an id beyond it is refused with
///   [`Unavailable::Full`](super::Unavailable::Full), and nothing is
///   taken; the other keys go on.
/// * **Loss.** All data is lost when the process ends. [`StoreReply::intact_for_ns`] is the store's
///   age.
/// * **Cost.** One lock, of [some](Self::with_capacity), and no thread. About half a
///   kilobyte for each limit of a key in use, and 16 bytes for each entry of a log.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::store::{StoreExt as _, MemoryStore, Store, Verdict};
/// use rategate::SlidingLog;
/// use std::num::NonZeroU64;
/// use std::sync::Arc;
///
/// let store = Arc::new(MemoryStore::new());
/// let window = SlidingLog::new(2, Duration::from_secs(60));
/// let plan = Arc::new(store.plan(&[("api", window.into())])?);
/// let (key, one) = (b"tenant 1"[..].into(), NonZeroU64::MIN);
/// for _ in 0..2 {
///     assert!(matches!(store.decide(&plan, &key, one).wait()?, Verdict::Granted(_)));
/// }
/// let Verdict::Denied(denial) = store.decide(&plan, &key, one).wait()? else { unreachable!() };
/// assert!(denial.retry_after_ns.is_some_and(|ns| ns.get() <= 60_000_000_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MemoryStore<C = MonotonicClock> {
    clock: C,
    shards: Box<[Mutex<Shard>]>,
    ids: IdCapacity,
    hasher: RandomState,
    born_ns: Mutex<u64>,
}

/// A copy of a store's data, from [`MemoryStore::image`].
#[derive(Clone, Debug)]
pub struct MemoryImage {
    shards: Box<[Shard]>,
}

impl MemoryStore {
    /// Creates an empty store on real time.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(MonotonicClock::new())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Creates an empty store on a clock of the caller's own.
    #[must_use]
    pub fn with_clock(clock: C) -> Self {
        Self::with_capacity(clock, DEFAULT_CAPACITY)
    }

    /// Creates an empty store with a capacity of `keys` keys, at least 1.
    ///
    /// From 8 192 keys on there are several shards, up to 16, each with its own lock. A shard may
    /// be full a little before the whole store is.
    #[must_use]
    pub fn with_capacity(clock: C, keys: usize) -> Self {
        let shards = keys.checked_div(SHARD_CAPACITY).unwrap_or(0).clamp(1, SHARDS);
        let each = keys.div_ceil(shards).max(1);
        let shards = (0..shards).map(|_| Mutex::new(Shard::new(each))).collect();
        let born_ns = Mutex::new(clock.now_ns());
        let hasher = RandomState::new();
        let ids = IdCapacity::new(keys.max(1));
        Self { clock, shards, ids, hasher, born_ns }
    }

    /// Sets the number of ids that are remembered, at least 1; as many as keys by default.
    #[must_use]
    pub fn with_max_ids(self, ids: usize) -> Self {
        Self { ids: IdCapacity::new(ids.max(1)), ..self }
    }

    /// Returns the number of keys in the store. Some of them may have fully recovered.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).keys()).fold(0, usize::saturating_add)
    }

    /// Returns the reservations of permits in flight that last, shard by shard: what a process
    /// holds again after a restart.
    #[must_use]
    pub fn in_flight(&self) -> Vec<InFlight> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.pass_to(self.clock.now_ns());
            shard.add_in_flight(&mut all);
        }
        all
    }

    /// Returns the store's clock.
    #[must_use]
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// Copies the store's data, shard by shard.
    ///
    /// The copy is of one instant if no request comes meanwhile.
    #[must_use]
    pub fn image(&self) -> MemoryImage {
        let shards = self.shards.iter().map(|shard| lock(shard).clone()).collect();
        MemoryImage { shards }
    }

    /// Returns the store to an earlier image of it, as a replica that takes over does.
    ///
    /// All later data is lost, and the store's [age](StoreReply::intact_for_ns) begins again. The
    /// image has to be of this store.
    pub fn rewind(&self, image: &MemoryImage) {
        *lock(&self.born_ns) = self.clock.now_ns();
        for (index, shard) in self.shards.iter().enumerate() {
            lock(shard).rewind(image.shards.get(index), &self.ids);
        }
    }

    /// Locks the shard of a key, and returns it with the newest reading of the clock.
    fn shard(&self, key: &Key) -> (MutexGuard<'_, Shard>, u64) {
        let hash = usize::try_from(self.hasher.hash_one(key) & u64::from(u32::MAX)).unwrap_or(0);
        let index = hash.checked_rem(self.shards.len()).unwrap_or(0);
        #[expect(clippy::indexing_slicing, reason = "a remainder by their number, which is not 0")]
        let mut shard = lock(&self.shards[index]);
        let now_ns = shard.pass_to(self.clock.now_ns());
        shard.forget_ids(&self.ids);
        (shard, now_ns)
    }

    fn answer(&self, request: StoreRequest<MemoryPlan>) -> Result<Reply, StoreError> {
        match request {
            StoreRequest::Decide { plan, key, permits, lease } => {
                self.decide(&key, PermitRequest { plan: &plan, permits, lease, is_debit: false })
            }
            StoreRequest::Debit { plan, key, permits } => {
                refuse_if(
                    plan.holds(),
                    "permits in flight are taken all or none: use decide, not debit",
                )?;
                self.decide(
                    &key,
                    PermitRequest { plan: &plan, permits, lease: None, is_debit: true },
                )
            }
            StoreRequest::Peek { plan, key, permits } => self.peek(&key, &plan, permits),
            StoreRequest::Refund { plan, key, receipt, permits } => {
                refuse_if(plan.holds(), "permits in flight are released, not refunded")?;
                plan.check(permits.get()).map_err(StoreError::Exceeds)?;
                let receipt = ReadReceipt::of(&receipt, &plan)?;
                let refund = |entry: &mut Entry, now_ns| {
                    entry.refund(&plan, &receipt, permits.get(), now_ns)
                };
                Ok(Reply::Count(self.change(&key, refund)))
            }
            StoreRequest::Credit { plan, key, permits, once } => {
                self.credit(&key, &plan, (permits, once))
            }
            StoreRequest::Charge { plan, key, permits, debt, once } => {
                self.charge(&key, Charge { plan: &plan, permits, debt, once })
            }
            StoreRequest::Reserve { plan, key, permits, id, ttl_ns, spared } => {
                self.reserve(&key, Estimate { plan: &plan, permits, id, ttl_ns, spared })
            }
            StoreRequest::End { plan, key, id, end, debt } => {
                Ok(self.end(&key, Ending { plan: &plan, id, end, debt }))
            }
            StoreRequest::Release { plan, key, permits, lease } => {
                self.end_or_renew(&key, &plan, (lease, permits), false)
            }
            StoreRequest::Renew { plan, key, permits, lease } => {
                self.end_or_renew(&key, &plan, (lease, permits), true)
            }
            StoreRequest::Reset { plan, key } => {
                let (mut shard, now_ns) = self.shard(&key);
                let era = shard.next_era();
                let entry = shard.entry(&key);
                Ok(Reply::Count(entry.map_or(0, |entry| entry.reset(&plan, now_ns, era))))
            }
        }
    }

    fn decide(&self, key: &Key, wanted: PermitRequest<'_>) -> Result<Reply, StoreError> {
        let PermitRequest { plan, permits, lease, .. } = wanted;
        plan.check(permits.get()).map_err(StoreError::Exceeds)?;
        refuse_if(plan.holds() && lease.is_none(), "permits in flight need a lease id")?;
        let (mut shard, now_ns) = self.shard(key);
        if let Some(entry) = shard.entry(key) {
            return Ok(Reply::Verdict(entry.decide(wanted, now_ns)));
        }
        let mut entry = shard.unused();
        let verdict = entry.decide(wanted, now_ns);
        if let Verdict::Granted(_) = verdict {
            shard.remember(Key::clone(key), entry)?;
        }
        Ok(Reply::Verdict(verdict))
    }

    fn peek(&self, key: &Key, plan: &MemoryPlan, permits: NonZeroU64) -> Result<Reply, StoreError> {
        plan.check(permits.get()).map_err(StoreError::Exceeds)?;
        let (mut shard, now_ns) = self.shard(key);
        let unused = shard.unused();
        let entry = shard.entry(key).map_or(&unused, |entry| entry);
        let wanted = PermitRequest { plan, permits, lease: None, is_debit: false };
        Ok(Reply::Verdict(match entry.judge(wanted, now_ns) {
            Judged::Denied(denial) => Verdict::Denied(denial),
            Judged::Passes(permits) => Verdict::Granted(Grant {
                permits: permits.get(),
                remaining: entry.remaining(plan, now_ns),
                window_ends_in_ns: plan.window_ends_in_ns(now_ns),
                is_repeated: false,
                receipt: Receipt::default(),
            }),
            // No lease id was given.
            Judged::Repeated => {
                Verdict::Denied(Denial { retry_after_ns: None, remaining: 0, debt: 0 })
            }
        }))
    }

    fn end_or_renew(
        &self,
        key: &Key,
        plan: &MemoryPlan,
        (lease, permits): (LeaseId, NonZeroU64),
        renews: bool,
    ) -> Result<Reply, StoreError> {
        refuse_if(!plan.holds(), "no limit of the set counts permits in flight")?;
        plan.check(permits.get()).map_err(StoreError::Exceeds)?;
        let held = (lease, permits.get());
        let change = |entry: &mut Entry, now_ns| entry.end_or_renew(plan, held, renews, now_ns);
        Ok(Reply::Count(self.change(key, change)))
    }

    /// Changes the state of a known key. Returns 0 for an unknown one.
    fn change(&self, key: &Key, change: impl FnOnce(&mut Entry, u64) -> u64) -> u64 {
        let (mut shard, now_ns) = self.shard(key);
        shard.entry(key).map_or(0, |entry| change(entry, now_ns))
    }
}

impl<C: Clock + 'static> Store for MemoryStore<C> {
    type Plan = MemoryPlan;

    fn plan(&self, rules: &[(&str, Rule)]) -> Result<MemoryPlan, PlanError> {
        MemoryPlan::new(rules)
    }

    /// Calls `callback` before it returns, with no lock held.
    fn submit(&self, request: StoreRequest<MemoryPlan>, callback: Callback) {
        let answer = self.answer(request).map(|reply| {
            let now_ns = self.clock.now_ns();
            let age_ns = now_ns.saturating_sub(*lock(&self.born_ns));
            StoreReply { reply, intact_for_ns: Some(age_ns), now_ns: Some(now_ns) }
        });
        callback(answer);
    }
}

fn refuse_if(is_invalid: bool, why: &str) -> Result<(), StoreError> {
    if is_invalid { Err(StoreError::InvalidRequest(why.into())) } else { Ok(()) }
}

/// Locks a mutex. No user code runs under it, except a clock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
