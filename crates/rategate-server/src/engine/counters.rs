//! The counters of a rule: a table of keys, which outlives the configuration that it came with.

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use rategate::portable::Since;
use rategate::snapshot::SavedAt;
use rategate::{
    AnyPolicy, Clock, FixedWindow, Hashing, Keyed, KeyedError, Look, Overflow, Policy, Room,
};

use super::answer::{Part, Verdict};
use super::counted::{self, OwnLimit};
use super::fault::Fault;
use super::observer::Watch;
use super::one_key::decide;
use super::request::Verb;
use super::snapshot::NotRestored;
use super::spent::Spent;
use super::stores::Remote;
use crate::rule::{CountedWindow, Enforcement, Entry, Limit, Place, Rule, Shown, Value};

/// A rule at work.
#[derive(Debug)]
pub(super) struct Ruled<C: Clock> {
    pub(super) rule: Arc<Rule>,
    /// Its counters; those of the rule of the same name before, if they are of the same kind.
    pub(super) counters: Arc<Counters<C>>,
    pub(super) watch: Option<Arc<dyn Watch>>,
    /// Who decides instead of the counters, if they are not here.
    pub(super) remote: Option<Remoted>,
    /// The digest of its name, for what depends on rule and key but on no chance.
    seed: u64,
}

/// A limit that is kept elsewhere.
#[derive(Clone)]
pub(super) struct Remoted(pub(super) Arc<dyn Remote>);

impl std::fmt::Debug for Remoted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Remoted").finish_non_exhaustive()
    }
}

/// Counters by key, under the limit that is in force.
#[derive(Debug)]
pub(super) struct Counters<C: Clock> {
    /// Made when somebody comes: thousands of rules may never be asked.
    table: OnceLock<Table<C>>,
    most_keys: AtomicUsize,
    /// What is in force, and what was before: while keys go over from that, one after the other, it still decides.
    numbers: ArcSwap<[InForce; 2]>,
    /// The latest policy: what is counted is of its kind. Held while a table is made, and while its limit changes: none
    /// is made of a limit of before.
    latest: Mutex<Option<AnyPolicy>>,
    spent: Spent,
}

pub(super) type Table<C> = Keyed<[u8], AnyPolicy, C>;

/// What is allowed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InForce {
    pub(super) limit: Limit,
    pub(super) shown: Shown,
    /// The most permits at once.
    pub(super) capacity: u64,
}

impl InForce {
    pub(super) fn new(limit: Limit, shown: Shown) -> Self {
        let capacity = match limit {
            Limit::Policy(policy) => policy.remaining(&policy.fresh(0), 0),
            Limit::Counted(window) => window.permits(),
            Limit::Unlimited | Limit::Exempt => u64::MAX,
            Limit::Nothing => 0,
        };
        Self { limit, shown, capacity }
    }

    fn policy(&self) -> Option<AnyPolicy> {
        self.limit.policy()
    }
}

impl<C: Clock + Clone> Ruled<C> {
    pub(super) fn new(
        rule: Arc<Rule>,
        counters: Arc<Counters<C>>,
        watch: Option<Arc<dyn Watch>>,
        remote: Option<Remoted>,
    ) -> Self {
        let seed = digest(FNV_START, rule.name.as_bytes());
        Self { rule, counters, watch, remote, seed }
    }

    /// Whether it is of permits in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.rule.limit, Limit::Policy(AnyPolicy::Concurrency(_)))
    }

    /// Whether it has a table, or somebody who has one.
    pub(super) fn is_in_memory(&self) -> bool {
        self.remote.is_some() || self.counters.made().is_some()
    }

    /// Whether counters of the rule of before can go on: they are named alike, and told apart alike.
    pub(super) fn can_hand_on(&self, rule: &Rule) -> bool {
        let varies = |rule: &Rule| {
            let entries = rule.entries.iter();
            entries.map(|entry| (Arc::clone(&entry.key), entry.value.varies())).collect::<Vec<_>>()
        };
        self.rule.name == rule.name
            && varies(&self.rule) == varies(rule)
            // What a store has counted is not here, nor the other way round.
            && (self.rule.place == Place::Here) == (rule.place == Place::Here)
            && self.counters.can_become(&InForce::new(rule.limit, rule.shown))
    }

    /// Whether its limits are those of another rule.
    pub(super) fn goes_on_as(&self, rule: &Rule) -> bool {
        self.rule.limit == rule.limit && self.rule.schedule == rule.schedule
    }

    /// Whether whoever keeps its counters elsewhere can keep those of another rule.
    pub(super) fn is_kept_as(&self, rule: &Rule) -> bool {
        let of = |rule: &Rule| (rule.limit, rule.place, rule.held_ns, rule.when_gone);
        of(&self.rule) == of(rule)
    }

    /// Whether the rule is enforced for a key: always the same for the same key.
    pub(super) fn is_enforced(&self, key: &[u8]) -> bool {
        match self.rule.enforcement {
            Enforcement::All => true,
            Enforcement::Shadow => false,
            Enforcement::Share(of_ten_thousand) => {
                finish(digest(self.seed, key)) % 10_000 < u64::from(of_ten_thousand)
            }
        }
    }

    /// An item's part of an answer, as nothing was asked of a table.
    pub(super) fn part(&self, verdict: Verdict) -> Part {
        let in_force = self.counters.in_force();
        Part {
            rule: Some(Arc::clone(&self.rule)),
            shown: Some(in_force.shown),
            verdict,
            limit: in_force.capacity,
            remaining: Some(match in_force.limit {
                Limit::Unlimited | Limit::Exempt => u64::MAX,
                _ => 0,
            }),
            reset_after_ns: 0,
        }
    }

    /// What becomes of a key.
    pub(super) fn decide(
        &self,
        clock: &C,
        key: &[u8],
        verb: Verb,
        permits: u64,
    ) -> Result<Part, Fault> {
        let in_force = self.counters.in_force();
        let Some(table) = self.table(&in_force, clock) else {
            return Ok(match verb {
                Verb::Take | Verb::Peek => self.uncounted(&in_force, key),
                Verb::Refund => self.part(Verdict::Refunded(0)),
                Verb::Reset => self.part(Verdict::Reset),
            });
        };
        if let Limit::Counted(window) = in_force.limit {
            return self.count(table, (window, in_force.shown), clock, key, (verb, permits));
        }
        self.told(&in_force, key, decide(table, key, verb, permits))
    }

    /// What becomes of a key of a window that counts every hit.
    fn count(
        &self,
        table: &Table<C>,
        (window, shown): (CountedWindow, Shown),
        clock: &C,
        key: &[u8],
        asked: (Verb, u64),
    ) -> Result<Part, Fault> {
        let now_ns = clock.now_ns();
        let counted = counted::decide(table, (window, &window.counter()), key, asked, now_ns);
        let (mut verdict, used) = counted.map_err(Fault::of)?;
        if let Verdict::Denied { enforced, .. } = &mut verdict {
            *enforced = self.is_enforced(key);
        }
        let rule = Some(Arc::clone(&self.rule));
        Ok(Part { rule, ..counted::part(window, shown, (verdict, used), now_ns) })
    }

    /// The counter that a caller's own limit for a descriptor of this rule shares with it, in windows of the same unit. None where the
    /// rule counts several descriptors together, or elsewhere.
    pub(super) fn lent_to(&self, window: CountedWindow) -> Option<FixedWindow> {
        let Limit::Counted(own) = self.counters.in_force().limit else { return None };
        let is_shared = |entry: &Entry| matches!(entry.value, Value::Pattern { shared: true, .. });
        let is_apart = self.remote.is_some() || self.rule.entries.iter().any(is_shared);
        Some(own.counter()).filter(|counter| !is_apart && window.fits(counter))
    }

    /// What becomes of a key under a caller's own limit, in the counter that is [lent to it](Self::lent_to).
    pub(super) fn count_lent(
        &self,
        own: &OwnLimit,
        clock: &C,
        key: &[u8],
        asked: (Verb, u64),
    ) -> Result<Part, Fault> {
        let now_ns = clock.now_ns();
        let table = self.counters.table_of(own.counter.into(), clock);
        let decided = counted::decide(table, (own.window, &own.counter), key, asked, now_ns);
        Ok(counted::part(own.window, own.shown, decided.map_err(Fault::of)?, now_ns))
    }

    /// The table, if there is anything to count.
    pub(super) fn table(&self, in_force: &InForce, clock: &C) -> Option<&Table<C>> {
        Some(self.counters.table_of(in_force.policy()?, clock))
    }

    /// The answer of a limit that counts nothing.
    pub(super) fn uncounted(&self, in_force: &InForce, key: &[u8]) -> Part {
        self.part(match in_force.limit {
            Limit::Nothing => {
                Verdict::Denied { retry_after_ns: None, enforced: self.is_enforced(key) }
            }
            Limit::Exempt => Verdict::Unmatched,
            _ => Verdict::Unlimited,
        })
    }

    /// What a table said, with where the key stands now.
    pub(super) fn told(
        &self,
        in_force: &InForce,
        key: &[u8],
        decided: Result<(Verdict, Look), KeyedError>,
    ) -> Result<Part, Fault> {
        let (mut verdict, look) = decided.map_err(Fault::of)?;
        if let Verdict::Denied { enforced, .. } = &mut verdict {
            *enforced = self.is_enforced(key);
        }
        Ok(Part {
            rule: Some(Arc::clone(&self.rule)),
            shown: self.counters.shown_of(&look, in_force),
            verdict,
            limit: look.capacity,
            remaining: Some(look.remaining),
            reset_after_ns: look.fresh_in_ns.unwrap_or(u64::MAX),
        })
    }
}

impl<C: Clock + Clone> Counters<C> {
    pub(super) fn new(in_force: InForce, most_keys: usize) -> Arc<Self> {
        let latest = Mutex::new(in_force.policy());
        let numbers = ArcSwap::from_pointee([in_force; 2]);
        let (spent, most_keys) = (Spent::default(), AtomicUsize::new(most_keys));
        Arc::new(Self { table: OnceLock::new(), most_keys, numbers, latest, spent })
    }

    /// Goes on from what was saved. `later` is the limit of other hours, where nothing is counted now.
    pub(super) fn restore(
        &self,
        clock: &C,
        later: Option<AnyPolicy>,
        input: impl Read,
        since: impl FnOnce(&SavedAt) -> Since,
    ) -> Result<(), NotRestored> {
        let mut latest = self.latest();
        let policy = latest.or(later).ok_or(NotRestored::CountsNothing)?;
        if self.table.get().is_some() {
            return Err(NotRestored::InUse);
        }
        let (room, tier_of) =
            (room_for(self.most_keys.load(Ordering::Relaxed)), None::<fn(&[u8]) -> usize>);
        let table = Keyed::restore_since([policy], tier_of, room, clock.clone(), input, since)?;
        self.spent.tell(&table);
        *latest = Some(policy);
        self.table.set(table).map_err(|_| NotRestored::InUse)
    }

    /// Since when keys that are not known count as spent.
    pub(super) fn spent_at_ns(&self) -> Option<u64> {
        self.spent.at_ns()
    }

    /// Keys that are not known count as spent at that instant.
    pub(super) fn spend(&self, at_ns: u64) {
        let _latest = self.latest();
        self.spent.spend(at_ns);
        if let Some(table) = self.table.get() {
            self.spent.tell(table);
        }
    }

    pub(super) fn in_force(&self) -> InForce {
        let [in_force, _] = **self.numbers.load();
        in_force
    }

    /// Returns how the limit of a decision is shown. A limit that is changing goes over key by key: `in_force` was read
    /// before the decision, which may have been made by what is in force since, or by what was before.
    fn shown_of(&self, look: &Look, in_force: &InForce) -> Option<Shown> {
        if look.capacity == in_force.capacity {
            return Some(in_force.shown);
        }
        let numbers = self.numbers.load();
        let decided_by = numbers.iter().find(|numbers| numbers.capacity == look.capacity);
        decided_by.map(|numbers| numbers.shown)
    }

    /// Has room for so many keys, if nobody has come yet.
    pub(super) fn set_room(&self, most_keys: usize) {
        let _latest = self.latest();
        if self.table.get().is_none() {
            self.most_keys.store(most_keys, Ordering::Relaxed);
        }
    }

    /// The table, if anybody has come yet.
    pub(super) fn made(&self) -> Option<&Table<C>> {
        self.table.get()
    }

    /// Whether what was counted means anything under another limit.
    fn can_become(&self, to: &InForce) -> bool {
        follows(to, self.latest().as_ref())
    }

    /// Puts a limit into force. What was counted is carried over; a limit of another kind changes nothing.
    pub(super) fn change(&self, to: InForce) {
        let mut latest = self.latest();
        if self.in_force() == to || !follows(&to, latest.as_ref()) {
            return;
        }
        self.numbers.store(Arc::new([to, self.in_force()]));
        if let Some(policy) = to.policy() {
            *latest = Some(policy);
            if let Some(table) = self.table.get() {
                // The only tier is always there.
                let _ = table.reconfigure(policy);
            }
        }
    }

    fn table_of(&self, policy: AnyPolicy, clock: &C) -> &Table<C> {
        self.table.get().unwrap_or_else(|| self.make(policy, clock))
    }

    #[cold]
    fn make(&self, policy: AnyPolicy, clock: &C) -> &Table<C> {
        let latest = self.latest();
        let policy = latest.unwrap_or(policy);
        self.table.get_or_init(|| {
            let table = new_table(policy, self.most_keys.load(Ordering::Relaxed), clock);
            self.spent.tell(&table);
            table
        })
    }

    fn latest(&self) -> MutexGuard<'_, Option<AnyPolicy>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a limit goes on from what another has counted. A window that counts every hit goes on from its like alone: a count of
/// what is left under other numbers would be read as another one while they change.
fn follows(to: &InForce, latest: Option<&AnyPolicy>) -> bool {
    match (to.limit, latest) {
        (Limit::Counted(window), Some(old)) => AnyPolicy::from(window.counter()) == *old,
        (Limit::Policy(new), Some(old)) => {
            !CountedWindow::is_counter(old) && new.can_follow(old).is_ok()
        }
        _ => true,
    }
}

impl Fault {
    pub(super) fn of(error: KeyedError) -> Self {
        match error {
            KeyedError::TableFull => Self::NoRoom,
            other => Self::Table(other),
        }
    }
}

fn new_table<C: Clock + Clone>(policy: AnyPolicy, most_keys: usize, clock: &C) -> Table<C> {
    Keyed::with_hashing(policy, room_for(most_keys), Hashing::FloodSafe, clock.clone())
}

fn room_for(most_keys: usize) -> Room {
    Room::for_keys(most_keys).or_else(Overflow::Share)
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// A digest that is the same in every process: which keys a rule is enforced for must not depend on who is asked.
fn digest(from: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(from, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Its bits well mixed: the low ones of a product know nothing of the high ones.
const fn finish(digest: u64) -> u64 {
    let mixed = (digest ^ (digest >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}
