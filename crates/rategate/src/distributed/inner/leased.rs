//! The leased mode: keys whose permits this node has borrowed, and callers that wait for a
//! debit.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rategate_core::node::{LeaseAction, LeaseActionId, LeaseConfig, Leased, LocalDecision};

use super::decision::deadline::PendingCall;
use super::decision::{DecidedBy, Decision, DecisionFuture, DecisionSender};
use super::{BackgroundWork, Inner};
use crate::clock::Clock;
use crate::distributed::held::{Estimate, HeldHere, IdCapacity};
use crate::distributed::watch::CheckedReply;
use crate::store::{
    EndReply, Key, Receipt, Reply, ReservationEnd, ReservationId, ReserveReply, Store, StoreError,
    StoreReply, StoreRequest, Verdict,
};

/// The most replies that a call waits for. The second is to a debit that covers the call.
const MAX_ANSWERS: u8 = 2;

/// A key on this node: its leases, and the calls that wait for one.
#[derive(Debug)]
pub(in crate::distributed) struct Entry {
    key: Key,
    /// The part of the store that has the key.
    backend: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    machine: Leased<Receipt>,
    waiting: VecDeque<Waiting>,
    held: HeldHere,
    /// The earliest instant scheduled in the rounds; `u64::MAX` for none.
    round_ns: u64,
}

#[derive(Debug)]
struct Waiting {
    caller: DecisionSender,
    permits: NonZeroU64,
    until_ns: u64,
    received: u8,
}

/// Work to be done once the lock is free.
#[derive(Debug, Default)]
struct DeferredWork {
    lease_actions: Vec<LeaseAction<Receipt>>,
    answers: Vec<(DecisionSender, Result<Decision, StoreError>)>,
    round_ns: Option<u64>,
}

impl Entry {
    fn new(key: Key, backend: usize, config: LeaseConfig, ids: &Arc<IdCapacity>) -> Self {
        let (machine, held) = (Leased::new(config), HeldHere::new(Arc::clone(ids)));
        let state = State { machine, waiting: VecDeque::new(), held, round_ns: u64::MAX };
        Self { key, backend, state: Mutex::new(state) }
    }

    /// Returns `true` if dropping the entry loses nothing.
    pub(in crate::distributed) fn may_be_evicted(&self, now_ns: u64) -> bool {
        let state = self.state();
        state.waiting.is_empty() && state.held.is_empty() && state.machine.may_be_evicted(now_ns)
    }

    /// Records that the store holds nothing under an id.
    pub(in crate::distributed) fn not_at_store(&self, id: ReservationId) {
        self.state().held.forget_at_store(id);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Collects the work that is due after an event.
    fn deferred_work(&mut self, now_ns: u64, deferred_work: &mut DeferredWork) {
        while let Some(lease_action) = self.machine.lease_action(now_ns) {
            deferred_work.lease_actions.push(lease_action);
        }
        let wakes_ns = self.machine.wakes_at_ns().into_iter().chain(self.held.next_ns()).min();
        let wakes_ns = wakes_ns.unwrap_or(u64::MAX);
        let due_ns = self.waiting.front().map_or(wakes_ns, |first| wakes_ns.min(first.until_ns));
        if due_ns < self.round_ns {
            self.round_ns = due_ns;
            deferred_work.round_ns = Some(due_ns);
        }
    }

    /// Decides waiting calls in order, as far as possible.
    ///
    /// If the store is unavailable, only with permits that are already borrowed.
    fn serve(&mut self, now_ns: u64, is_unavailable: bool, deferred_work: &mut DeferredWork) {
        while let Some(first) = self.waiting.front() {
            let decision = if first.caller.is_closed() {
                None
            } else if is_unavailable && self.machine.units(now_ns) < first.permits.get() {
                return;
            } else {
                match self.machine.try_acquire(now_ns, first.permits) {
                    LocalDecision::Granted => {
                        let left = self.machine.units(now_ns);
                        let until_ns = self.machine.granted_until_ns();
                        Some(Decision::borrowed(until_ns).leaving(left))
                    }
                    LocalDecision::Denied { retry_after_ns } => {
                        Some(Decision::denied(DecidedBy::Lease, retry_after_ns))
                    }
                    LocalDecision::NeedsLease if first.received < MAX_ANSWERS => {
                        return self.report_waiting();
                    }
                    LocalDecision::NeedsLease => Some(Decision::denied(DecidedBy::Lease, None)),
                }
            };
            let Some(first) = self.waiting.pop_front() else { return };
            if let Some(decision) = decision {
                deferred_work.answers.push((first.caller, Ok(decision)));
            }
        }
    }

    /// Ends the reservations whose time is over.
    fn end_holds(&mut self, now_ns: u64) {
        self.held.pass_to(now_ns, &mut self.machine);
    }

    /// Adds the demand of all calls behind the first to the next debit.
    fn report_waiting(&mut self) {
        for waiting in self.waiting.iter().skip(1) {
            self.machine.note_waiting(waiting.permits.get());
        }
    }
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    /// Decides a call in this mode.
    pub(in crate::distributed) fn leased(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: NonZeroU64,
    ) -> DecisionFuture {
        let now_ns = self.clock.now_ns();
        let mut deferred_work = DeferredWork::default();
        let mut state = entry.state();
        state.end_holds(now_ns);
        // No call passes before those that wait.
        let local = if state.waiting.is_empty() {
            state.machine.try_acquire(now_ns, permits)
        } else {
            state.machine.note_waiting(permits.get());
            LocalDecision::NeedsLease
        };
        let deciding = match local {
            LocalDecision::Granted => {
                let left = state.machine.units(now_ns);
                let until_ns = state.machine.granted_until_ns();
                self.now(Ok(Decision::borrowed(until_ns).leaving(left)))
            }
            LocalDecision::Denied { retry_after_ns } => {
                return self.now(Ok(Decision::denied(DecidedBy::Lease, retry_after_ns)));
            }
            LocalDecision::NeedsLease => {
                let key = Arc::clone(&entry.key);
                let call = PendingCall::new(self, key, permits, true, now_ns);
                let (caller, deciding) = DecisionFuture::later(call);
                let until_ns = now_ns.saturating_add(self.budget_ns);
                state.waiting.push_back(Waiting { caller, permits, until_ns, received: 0 });
                deciding
            }
        };
        state.deferred_work(now_ns, &mut deferred_work);
        drop(state);
        self.run_deferred_work(entry, deferred_work);
        deciding
    }

    /// Returns permits of a grant to the lease, where waiting calls may take them.
    pub(in crate::distributed) fn return_borrowed(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: NonZeroU64,
        until_ns: u64,
    ) {
        let now_ns = self.clock.now_ns();
        let mut deferred_work = DeferredWork::default();
        let mut state = entry.state();
        state.machine.credit(now_ns, permits, until_ns);
        state.serve(now_ns, true, &mut deferred_work);
        state.deferred_work(now_ns, &mut deferred_work);
        drop(state);
        self.run_deferred_work(entry, deferred_work);
    }

    /// Holds an estimate in borrowed permits, or returns `None`: the store decides.
    pub(in crate::distributed) fn reserve_borrowed(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        estimate: Estimate,
    ) -> Option<ReserveReply> {
        self.with_held(entry, |state, now_ns| {
            let State { machine, waiting, held, .. } = state;
            // No reservation passes before calls that wait.
            if !waiting.is_empty() {
                return None;
            }
            let (verdict, is_repeated) = held.reserve(now_ns, machine, estimate)?;
            let remaining = machine.units(now_ns);
            Some(ReserveReply { verdict, is_repeated, remaining, debt: 0 })
        })
    }

    /// Ends a reservation in borrowed permits, or returns `None`: the store is asked.
    pub(in crate::distributed) fn end_borrowed(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        id: ReservationId,
        end: ReservationEnd,
    ) -> Option<EndReply> {
        let (reply, charge) = self.with_held(entry, |state, now_ns| {
            let ended = state.held.end(now_ns, &mut state.machine, id, end)?;
            let (outcome, is_repeated) = (ended.outcome, ended.is_repeated);
            let remaining = state.machine.units(now_ns);
            Some((EndReply { outcome, is_repeated, remaining, debt: 0 }, ended.charge))
        })?;
        self.charge_later(Arc::clone(&entry.key), charge);
        Some(reply)
    }

    /// Changes what this node holds of a key, and does what follows.
    fn with_held<T>(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        change: impl FnOnce(&mut State, u64) -> T,
    ) -> T {
        let now_ns = self.clock.now_ns();
        let mut deferred_work = DeferredWork::default();
        let mut state = entry.state();
        state.end_holds(now_ns);
        let changed = change(&mut state, now_ns);
        // What has come back may serve calls that wait.
        state.serve(now_ns, true, &mut deferred_work);
        state.deferred_work(now_ns, &mut deferred_work);
        drop(state);
        self.run_deferred_work(entry, deferred_work);
        changed
    }

    /// Runs the work of a key that is due now.
    pub(in crate::distributed) fn leased_round(self: &Arc<Self>, entry: &Arc<Entry>) {
        let now_ns = self.clock.now_ns();
        let mut deferred_work = DeferredWork::default();
        let mut state = entry.state();
        state.round_ns = u64::MAX;
        state.end_holds(now_ns);
        let mut late = Vec::new();
        while state.waiting.front().is_some_and(|first| first.until_ns <= now_ns) {
            late.extend(state.waiting.pop_front());
        }
        state.deferred_work(now_ns, &mut deferred_work);
        drop(state);
        for waiting in late {
            let decision = self.without_store(&entry.key, waiting.permits, None, true);
            deferred_work.answers.push((waiting.caller, Ok(decision)));
        }
        self.run_deferred_work(entry, deferred_work);
    }

    fn run_deferred_work(self: &Arc<Self>, entry: &Arc<Entry>, deferred_work: DeferredWork) {
        for (caller, decision) in deferred_work.answers {
            self.reply_to(caller, decision);
        }
        if let Some(at_ns) = deferred_work.round_ns {
            self.rounds.add(at_ns, BackgroundWork::Key(Arc::downgrade(entry)));
        }
        for lease_action in deferred_work.lease_actions {
            self.send(entry, lease_action);
        }
    }

    fn send(self: &Arc<Self>, entry: &Arc<Entry>, lease_action: LeaseAction<Receipt>) {
        let (plan, key) = (Arc::clone(&self.store_plan), Arc::clone(&entry.key));
        match lease_action {
            LeaseAction::Debit { id, units } => {
                let requested_ns = self.clock.now_ns();
                if let Err(for_ns) =
                    self.watch.pass(entry.backend, requested_ns, self.store.revivals(entry.backend))
                {
                    return self.receive_debit_reply(entry, id, CheckedReply::None { for_ns });
                }
                let request = StoreRequest::Debit { plan, key, permits: units };
                let (inner, entry) = (Arc::clone(self), Arc::clone(entry));
                self.store.submit(
                    request,
                    Box::new(move |answer: Result<StoreReply, StoreError>| {
                        let now_ns = inner.clock.now_ns();
                        let (checked_reply, change) =
                            inner.watch.received(entry.backend, requested_ns, now_ns, answer);
                        inner.report_change(change);
                        inner.receive_debit_reply(&entry, id, checked_reply);
                    }),
                );
            }
            LeaseAction::Return { receipt, units } => {
                // If the request is lost, the units age out.
                if self.watch.is_healthy(entry.backend) {
                    let request = StoreRequest::Refund { plan, key, receipt, permits: units };
                    self.store.submit(request, Box::new(|_| ()));
                }
            }
        }
    }

    fn receive_debit_reply(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        id: LeaseActionId,
        checked_reply: CheckedReply,
    ) {
        let now_ns = self.clock.now_ns();
        let mut deferred_work = DeferredWork::default();
        let mut state = entry.state();
        // Only the first call counts the reply: the others behind it are not served yet.
        if let Some(first) = state.waiting.front_mut() {
            first.received = first.received.saturating_add(1);
        }
        let unavailable = match checked_reply {
            CheckedReply::Usable(Reply::Verdict(Verdict::Granted(grant)), _) => {
                match NonZeroU64::new(grant.permits) {
                    Some(units) => {
                        let ends_ns = grant.window_ends_in_ns;
                        state.machine.debited(id, now_ns, units, ends_ns, grant.receipt);
                    }
                    None => state.machine.lost(id, now_ns),
                }
                None
            }
            CheckedReply::Usable(Reply::Verdict(Verdict::Denied(denial)), _) => {
                state.machine.denied(id, now_ns, denial.retry_after_ns);
                None
            }
            CheckedReply::Usable(..) => {
                state.machine.lost(id, now_ns);
                Some(Ok(None))
            }
            CheckedReply::None { for_ns } => {
                state.machine.lost(id, now_ns);
                Some(Ok(for_ns))
            }
            CheckedReply::StoreError(fault) => {
                state.machine.lost(id, now_ns);
                Some(Err(fault))
            }
        };
        state.serve(now_ns, unavailable.is_some(), &mut deferred_work);
        let stranded = if unavailable.is_some() {
            std::mem::take(&mut state.waiting)
        } else {
            VecDeque::new()
        };
        state.deferred_work(now_ns, &mut deferred_work);
        drop(state);
        for waiting in stranded {
            let decision = match &unavailable {
                Some(Err(fault)) => Err(fault.clone()),
                Some(Ok(for_ns)) => {
                    Ok(self.without_store(&entry.key, waiting.permits, *for_ns, true))
                }
                None => continue,
            };
            deferred_work.answers.push((waiting.caller, decision));
        }
        self.run_deferred_work(entry, deferred_work);
    }
}

/// The keys of this node, in shards.
pub(in crate::distributed) struct Leasing {
    config: LeaseConfig,
    shards: Box<[Mutex<Shard>]>,
    max_keys: usize,
    ids: Arc<IdCapacity>,
    hasher: RandomState,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Key, Arc<Entry>>,
    /// The number of keys after the last eviction pass.
    retained: usize,
}

/// The number of shards, each with a lock.
const SHARDS: usize = 64;

impl Leasing {
    pub(in crate::distributed) fn new(config: LeaseConfig, max_keys: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (ids, hasher) = (Arc::new(IdCapacity::new(max_keys)), RandomState::new());
        Self { config, shards, max_keys: max_keys.div_ceil(SHARDS), ids, hasher }
    }

    /// Returns the entry of a known key.
    pub(in crate::distributed) fn known(&self, key: &[u8]) -> Option<Arc<Entry>> {
        self.shard(key)?.entries.get(key).map(Arc::clone)
    }

    fn shard(&self, key: &[u8]) -> Option<MutexGuard<'_, Shard>> {
        let index = usize::try_from(self.hasher.hash_one(key)).unwrap_or(0) % SHARDS;
        Some(self.shards.get(index)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the entry of a key, or `None` if there is no capacity for a new one.
    pub(in crate::distributed) fn entry<S: Store, C: Clock + 'static>(
        &self,
        key: &[u8],
        inner: &Inner<S, C>,
    ) -> Option<Arc<Entry>> {
        let mut shard = self.shard(key)?;
        if let Some(entry) = shard.entries.get(key) {
            return Some(Arc::clone(entry));
        }
        shard.evict_idle(self.max_keys, inner.clock.now_ns());
        if shard.entries.len() >= self.max_keys {
            return None;
        }
        let key = Key::from(key);
        let backend = inner.store.backend_of(&key);
        let entry = Arc::new(Entry::new(Arc::clone(&key), backend, self.config, &self.ids));
        shard.entries.insert(key, Arc::clone(&entry));
        Some(entry)
    }
}

impl Shard {
    /// Evicts keys whenever their number has doubled since the last pass.
    ///
    /// A new key thus pays for the examination of at most two.
    fn evict_idle(&mut self, capacity: usize, now_ns: u64) {
        let len = self.entries.len();
        if len < self.retained.saturating_mul(2).max(16).min(capacity) {
            return;
        }
        // An entry that a caller still references is kept.
        self.entries
            .retain(|_, entry| Arc::strong_count(entry) > 1 || !entry.may_be_evicted(now_ns));
        self.retained = self.entries.len();
    }
}
