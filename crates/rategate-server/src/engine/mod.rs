//! The engine: one request type over tables of keys and a store, whatever protocol a request came
//! by.
//!
//! The engine does no IO of its own: a decision that needs a store waits for the store. It reads no
//! clock but the one that it was given.

mod answer;
#[cfg(feature = "otlp")]
mod caller;
mod counted;
mod counter;
mod counters;
mod decide;
mod error;
mod hold_change;
mod inline;
mod item_cost;
mod key;
mod layered;
mod lease;
mod live;
mod matcher;
mod one_key;
mod remote;
mod request;
mod reservation;
mod snapshot;
mod stores;
mod tasks;
#[cfg(feature = "otlp")]
mod traced;
mod unique_id;
mod unmatched;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use arc_swap::ArcSwapOption;
use rategate::{Clock, MonotonicClock};

pub use self::answer::{Answer, Decided, Detail, ItemResult, Later, Observer, Verdict, Watch};
#[cfg(feature = "otlp")]
pub(crate) use self::caller::caller;
use self::decide::Seen;
pub use self::error::EngineError;
pub use self::hold_change::{HoldChange, HoldOutcome};
use self::inline::{InlineLimits, UnitWindow};
use self::layered::Layers;
pub use self::lease::{Lease, LeaseVerb};
use self::live::Live;
pub use self::live::{Compiled, Loaded, Restarted};
pub use self::matcher::{LoadError, Matcher};
pub(crate) use self::matcher::{MAX_RULES_PER_ITEM, MAX_RULES_PER_MATCH};
pub use self::request::{Inline, Item, MAX_ITEMS, Override, Request, Target, Verb};
use self::reservation::Reservations;
pub use self::reservation::{Cost, DEFAULT_TTL, MAX_TTL, MEMORY, ReservationCounts, Reserved};
pub use self::snapshot::{
    Keeper, KeeperSettings, KeeperStats, NotRestored, Restored, Saved, Saver, StateError,
    Unreadable,
};
use self::stores::Remotes;
pub(crate) use self::stores::{LOGS_FORGET, check_storable};
pub use self::stores::{Remote, Shared, Stores};
#[cfg(feature = "otlp")]
pub use self::traced::{Outcome, Span, Tracer};
pub use self::unique_id::{NotAnId, UniqueId};
use crate::rule::{Counting, RuleSet};

/// The settings of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// The maximum number of keys of all rules together, for rules without a setting of their
    /// own.
    pub max_keys: usize,
    /// The maximum number of keys of each table for inline limits; a table holds a fixed number
    /// of limits.
    pub inline_keys: usize,
    /// The maximum number of distinct inline limits.
    pub inline_limits: usize,
    /// The maximum number of reservations that are known by their id, open or ended.
    pub max_reservations: usize,
    /// `true` if denied requests in Envoy's protocol still count where they fit. Other requests
    /// are all or nothing. Windows that [count every hit](crate::rule::CountedWindow) do so in
    /// either case.
    pub count_denied: bool,
    /// The windows that count a request which is over any of them.
    pub counting: Counting,
}

/// An engine that decides requests. Clones share one engine. It never blocks, and reads only its
/// own clock. A decision that needs a store is returned as a future.
pub struct Engine<C: Clock = MonotonicClock> {
    inner: Arc<Inner<C>>,
    #[cfg(feature = "otlp")]
    tracer: Option<Arc<dyn Tracer>>,
    /// The counter of items that come under no rule, if this handle counts them.
    unmatched: Option<Arc<AtomicU64>>,
}

struct Inner<C: Clock> {
    clock: C,
    settings: EngineSettings,
    live: ArcSwapOption<Live<C>>,
    buckets: InlineLimits<Inline, C>,
    windows: InlineLimits<UnitWindow, C>,
    observer: Option<Arc<dyn Observer>>,
    inline_watch: Option<Arc<dyn Watch>>,
    /// The limits of rules whose counters are not in tables.
    remotes: Remotes<C>,
    reservations: Reservations<C>,
    /// The wall clock minus the engine's clock at the last tick, in nanoseconds, wrapping.
    wall_ahead_ns: AtomicU64,
    /// Locked during a change of the rules. Holds the previous rules while a request may still
    /// use them: dropping ten thousand takes milliseconds, which no request should pay for.
    loading: Mutex<Option<Arc<Live<C>>>>,
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Creates an engine without rules. Its clock must show the time since 1970 in nanoseconds,
    /// so that windows begin with the seconds, hours and days of UTC.
    #[must_use]
    pub fn new(clock: C, settings: EngineSettings) -> Self {
        Self::with_observer(clock, settings, None)
    }

    /// Creates an engine with an observer.
    #[must_use]
    pub fn with_observer(
        clock: C,
        settings: EngineSettings,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        Self::with_store(clock, settings, observer, None)
    }

    /// Creates an engine with an observer, and with a store for rules whose counters are to be
    /// there.
    #[must_use]
    pub fn with_store(
        clock: C,
        settings: EngineSettings,
        observer: Option<Arc<dyn Observer>>,
        store: Option<Arc<dyn Stores<C>>>,
    ) -> Self {
        let (keys, limits) = (settings.inline_keys, settings.inline_limits);
        let inner = Inner {
            settings,
            live: ArcSwapOption::empty(),
            buckets: InlineLimits::new(clock.clone(), keys, limits),
            windows: InlineLimits::new(clock.clone(), keys, limits),
            inline_watch: observer.as_ref().map(|observer| observer.of_rule(None)),
            observer,
            remotes: Remotes::new(store, settings.max_reservations),
            reservations: Reservations::new(settings.max_reservations),
            wall_ahead_ns: AtomicU64::new(0),
            loading: Mutex::new(None),
            clock,
        };
        Self {
            inner: Arc::new(inner),
            #[cfg(feature = "otlp")]
            tracer: None,
            unmatched: None,
        }
    }

    /// Puts rules into force, all at once or none. Counters of rules with the same name are
    /// carried over where they remain valid. Just before, the rules with a changed limit switch
    /// to it one after the other, each of them as a whole.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError`]; the previous rules stay in force.
    pub fn load(&self, rules: RuleSet) -> Result<Loaded, LoadError> {
        let loaded = self.load_compiled(&Compiled::new(rules)?)?;
        self.drop_unused_rules();
        Ok(loaded)
    }

    /// Puts compiled rules into force. The previous rules stay in memory until
    /// [`Self::drop_unused_rules`].
    ///
    /// # Errors
    ///
    /// Returns [`LoadError`]; the previous rules stay in force.
    pub fn load_compiled(&self, rules: &Compiled) -> Result<Loaded, LoadError> {
        let inner = &*self.inner;
        let mut before = inner.loading.lock().unwrap_or_else(PoisonError::into_inner);
        *before = inner.live.load_full();
        let (live, loaded) = Live::new(
            rules,
            before.as_deref(),
            inner.observer.as_deref(),
            inner.settings.max_keys,
            |rule, max_keys| inner.remotes.limit_of(rule, max_keys, &inner.clock),
        )?;
        let ahead_ns = inner.wall_ahead_ns.load(Ordering::Relaxed);
        live.activate(inner.clock.now_ns().wrapping_add(ahead_ns));
        inner.live.store(Some(Arc::new(live)));
        Ok(loaded)
    }

    /// Drops the previous rule set once no request references it. Otherwise a later call does, or
    /// the next change of the rules. Called by each [`Self::tick`].
    pub fn drop_unused_rules(&self) {
        if let Some(mut before) = self.loading()
            && before.as_ref().is_some_and(|live| Arc::strong_count(live) == 1)
        {
            *before = None;
        }
    }

    /// Locks changes of the rules; `None` if one is under way.
    fn loading(&self) -> Option<MutexGuard<'_, Option<Arc<Live<C>>>>> {
        match self.inner.loading.try_lock() {
            Ok(before) => Some(before),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the rules in force.
    #[must_use]
    pub fn rules(&self) -> Option<Arc<RuleSet>> {
        self.inner.live.load().as_ref().map(|live| Arc::clone(&live.set))
    }

    /// Returns a rule by its name; of a rule with several limits the first of them.
    #[must_use]
    pub fn rule_named(&self, name: &str) -> Option<Arc<crate::rule::Rule>> {
        let live = self.inner.live.load();
        let matcher = &live.as_ref()?.matcher;
        let of_group = || matcher.rules().get(*matcher.group(name).first()?);
        matcher.named(name).map(|(_, rule)| rule).or_else(of_group).cloned()
    }

    /// Returns the fault for a name that no rule has: [`EngineError::NoSuchRule`], or
    /// [`EngineError::NotLoaded`].
    pub(crate) fn no_such_rule(&self, name: &str) -> EngineError {
        let live = self.inner.live.load();
        live.as_ref().map_or(EngineError::NotLoaded, |live| live.no_such_rule(name))
    }

    /// Returns the rule that a descriptor comes under.
    #[must_use]
    pub fn rule_of(
        &self,
        domain: &str,
        entries: &[(&[u8], &[u8])],
    ) -> Option<Arc<crate::rule::Rule>> {
        let live = self.inner.live.load();
        let (_, rule) = live.as_ref()?.matcher.find(domain.as_bytes(), entries)?;
        Some(Arc::clone(rule))
    }

    /// Decides a request.
    #[must_use]
    pub fn decide(&self, request: &Request<'_>) -> Decided {
        self.noting_unmatched(self.decide_traced(request), |answer| answer)
    }

    fn decide_traced(&self, request: &Request<'_>) -> Decided {
        #[cfg(feature = "otlp")]
        if let Some(span) = self.span(request.verb) {
            return span.of(|engine| engine.decide_traced(request));
        }
        let given = request.items.len();
        if given > MAX_ITEMS {
            return Decided::Now(Err(EngineError::TooManyItems { given, max: MAX_ITEMS }));
        }
        let live = self.inner.live.load();
        match Layers::of(live.as_deref(), request) {
            Err(error) => Decided::Now(Err(error)),
            Ok(None) => self.decide_items(live.as_ref(), request),
            Ok(Some(layers)) => {
                let items = layers.items();
                layers.folded(
                    self.decide_items(live.as_ref(), &Request { items: &items, ..*request }),
                )
            }
        }
    }

    /// Decides items that come under one rule each.
    fn decide_items(&self, live: Option<&Arc<Live<C>>>, request: &Request<'_>) -> Decided {
        if let Some(live) = live.filter(|live| live.has_remotes)
            && let Some(decided) = self.decide_remote(live, request)
        {
            return decided;
        }
        Decided::Now(self.inner.decide(live.map(Arc::as_ref), request, Seen::default()))
    }

    /// Decides about one key under an inline limit: the fast path for protocols that use nothing
    /// else.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Limit`] or [`EngineError::Rate`] for an invalid limit,
    /// [`EngineError::TooManyLimits`], [`EngineError::NoCapacity`].
    pub fn inline(
        &self,
        limit: Inline,
        key: &[u8],
        verb: Verb,
        permits: u64,
    ) -> Result<ItemResult, EngineError> {
        #[cfg(feature = "otlp")]
        if let Some(span) = self.span(verb) {
            return span.of_one(|engine| engine.inline(limit, key, verb, permits));
        }
        let inner = &*self.inner;
        let is_look = permits == 0 && verb == Verb::Take;
        let done = if is_look { Verb::Peek } else { verb };
        let (result, now_ns) = inner.buckets.decide(limit, key, done, permits)?;
        if verb != Verb::Peek
            && (!is_look || result.verdict.is_refusal())
            && let Some(watch) = &inner.inline_watch
        {
            watch.decided(now_ns, key, permits, &result);
        }
        Ok(result)
    }

    /// Ends reservations whose time is over, and puts scheduled limits into force, by the wall
    /// clock in nanoseconds since 1970. To be
    /// called about once a second. Never waits: while rules are loaded, it skips the limits until
    /// the next call.
    pub fn tick(&self, wall_ns: u64) {
        let inner = &*self.inner;
        let ahead_ns = wall_ns.wrapping_sub(inner.clock.now_ns());
        inner.wall_ahead_ns.store(ahead_ns, Ordering::Relaxed);
        self.drop_unused_rules();
        inner.reservations.tick(inner.clock.now_ns(), |held| inner.report_expired(held));
        let Some(_loading) = self.loading() else { return };
        if let Some(live) = &*inner.live.load() {
            live.tick(wall_ns);
        }
    }

    /// Returns the number of keys in memory: of rules, of inline limits, and with permits in
    /// flight.
    #[must_use]
    pub fn keys(&self) -> usize {
        let own = self.inner.buckets.keys().saturating_add(self.inner.windows.keys());
        let own = own.saturating_add(self.inner.remotes.keys());
        self.inner.live.load().as_ref().map_or(own, |live| own.saturating_add(live.keys()))
    }

    /// Returns a rule's number of keys in memory, and of unknown keys that found its table full.
    /// `None` if there is no such rule.
    #[must_use]
    pub fn table_usage(&self, rule: &str) -> Option<(usize, u64)> {
        self.inner.live.load().as_ref()?.table_usage(rule)
    }

    /// Returns the settings that the engine was created with.
    #[must_use]
    pub fn settings(&self) -> EngineSettings {
        self.inner.settings
    }

    /// Returns the engine's clock.
    #[must_use]
    pub fn clock(&self) -> &C {
        &self.inner.clock
    }
}

impl Default for EngineSettings {
    /// Returns a maximum of a million keys each, as many reservations, and 248 distinct inline
    /// limits.
    fn default() -> Self {
        Self {
            max_keys: 1_000_000,
            inline_keys: 1_000_000,
            inline_limits: 248,
            max_reservations: 1_000_000,
            count_denied: false,
            counting: Counting::All,
        }
    }
}

impl<C: Clock> Clone for Engine<C> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            #[cfg(feature = "otlp")]
            tracer: self.tracer.clone(),
            unmatched: self.unmatched.clone(),
        }
    }
}

impl<C: Clock> fmt::Debug for Engine<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rategate::ManualClock;

    use super::*;

    #[test]
    fn previous_rules_live_while_a_call_references_them() {
        let engine = Engine::new(ManualClock::new(), EngineSettings::default());
        let load = || engine.load(RuleSet { rules: Vec::new(), hash: "".into() }).unwrap();
        load();
        let decides = engine.inner.live.load_full();
        let before = Arc::downgrade(decides.as_ref().unwrap());
        load();
        drop(decides);
        assert!(before.upgrade().is_some(), "a request still references them");
        engine.tick(0);
        assert!(before.upgrade().is_none());
        // Without a reference they are dropped at once.
        let before = engine.inner.live.load().as_ref().map(Arc::downgrade);
        load();
        assert!(before.unwrap().upgrade().is_none());
    }
}
