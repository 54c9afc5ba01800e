//! What decides: one request type over tables of keys and a store, whatever protocol a request came by.

mod answer;
mod apart;
#[cfg(feature = "otlp")]
mod caller;
mod compiled;
mod counted;
mod counter;
mod counters;
mod decide;
mod fault;
mod inline;
mod key;
mod layered;
mod lease;
mod live;
mod matcher;
mod observer;
mod one_key;
mod owned;
mod request;
mod snapshot;
mod spent;
mod stores;
#[cfg(feature = "otlp")]
mod traced;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use arc_swap::ArcSwapOption;
use rategate::{Clock, MonotonicClock};

pub use self::answer::{Answer, Decided, Part, Verdict};
#[cfg(feature = "otlp")]
pub use self::caller::{CallerSpan, TRACEPARENT, Within, within};
pub use self::compiled::Compiled;
use self::decide::Seen;
pub use self::fault::Fault;
use self::inline::{Inlines, UnitWindow};
use self::layered::Layers;
pub use self::lease::{Lease, LeaseName, LeaseVerb, NoLeaseName};
use self::live::Live;
pub use self::live::Loaded;
pub(crate) use self::matcher::MOST_ON_ONE;
pub use self::matcher::{LoadError, Matcher, is_like};
pub use self::observer::{Observer, Watch};
pub use self::request::{Inline, Item, MOST_ITEMS, Override, Request, Target, Verb};
pub use self::snapshot::{
    Keeper, KeeperSettings, KeeperStats, NotRestored, Restored, Saved, Saver, Started, StateError,
    Unreadable, WhenUnreadable,
};
use self::spent::Spent;
use self::stores::Remotes;
pub(crate) use self::stores::can_be_kept;
pub use self::stores::{Remote, Shared, Stores};
#[cfg(feature = "otlp")]
pub use self::traced::{Outcome, Span, Tracer};
use crate::rule::RuleSet;

/// What an engine is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// The most keys of all rules together, for rules that say nothing of their own.
    pub most_keys: usize,
    /// The most keys of the first so many limits that come with calls; and of the next.
    pub inline_keys: usize,
    /// How many different limits that come with calls are kept apart.
    pub inline_limits: usize,
    /// Whether requests in Envoy's protocol count where they fit although they are denied. Others are all or nothing. Windows that
    /// [count every hit](crate::rule::CountedWindow) do so in either case.
    pub count_denied: bool,
    /// Whether of a request that is over such windows these alone count it.
    pub count_over_only: bool,
}

/// Decides requests. Clones are of the same engine. Never waits, reads no clock but its own.
pub struct Engine<C: Clock = MonotonicClock> {
    inner: Arc<Inner<C>>,
    #[cfg(feature = "otlp")]
    tracer: Option<Arc<dyn Tracer>>,
}

struct Inner<C: Clock> {
    clock: C,
    settings: EngineSettings,
    live: ArcSwapOption<Live<C>>,
    buckets: Inlines<Inline, C>,
    windows: Inlines<UnitWindow, C>,
    observer: Option<Arc<dyn Observer>>,
    inline_watch: Option<Arc<dyn Watch>>,
    /// Since when the keys of all tables count as spent: for the file.
    spent: Spent,
    /// For rules whose counters are not in tables.
    remotes: Remotes<C>,
    /// By how much the wall clock was ahead of the engine's at the last tick, in ns, wrapping.
    wall_ahead_ns: AtomicU64,
    /// One change at a time. In it are the rules of before, while somebody still decides by them: ten thousand take milliseconds to
    /// forget, and that should be nobody's call.
    loading: Mutex<Option<Arc<Live<C>>>>,
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// An engine without rules. Its clock shows the time since 1970 in ns, so that windows begin with the seconds, hours and
    /// days of UTC.
    #[must_use]
    pub fn new(clock: C, settings: EngineSettings) -> Self {
        Self::with_observer(clock, settings, None)
    }

    /// The same, with somebody who looks on.
    #[must_use]
    pub fn with_observer(
        clock: C,
        settings: EngineSettings,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        Self::with_store(clock, settings, observer, None)
    }

    /// The same, with a store for rules whose counters are to be there.
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
            buckets: Inlines::new(clock.clone(), keys, limits),
            windows: Inlines::new(clock.clone(), keys, limits),
            inline_watch: observer.as_ref().map(|observer| observer.of_rule(None)),
            observer,
            spent: Spent::default(),
            remotes: Remotes::new(store),
            wall_ahead_ns: AtomicU64::new(0),
            loading: Mutex::new(None),
            clock,
        };
        Self {
            inner: Arc::new(inner),
            #[cfg(feature = "otlp")]
            tracer: None,
        }
    }

    /// Puts rules into force, all at once, or none of them. What rules of the same name have counted is carried over where it means
    /// anything: those of a new limit go over to it one after the other, just before, and each of them as a whole.
    ///
    /// # Errors
    ///
    /// [`LoadError`]; the rules of before stay in force.
    pub fn load(&self, rules: RuleSet) -> Result<Loaded, LoadError> {
        let loaded = self.load_compiled(&Compiled::new(rules)?)?;
        self.forget_unused();
        Ok(loaded)
    }

    /// The same of rules that are compiled already; the rules of before stay in memory until [`Self::forget_unused`].
    ///
    /// # Errors
    ///
    /// [`LoadError`]; the rules of before stay in force.
    pub fn load_compiled(&self, rules: &Compiled) -> Result<Loaded, LoadError> {
        let inner = &*self.inner;
        let mut before = inner.loading.lock().unwrap_or_else(PoisonError::into_inner);
        *before = inner.live.load_full();
        let (live, loaded) = Live::new(
            rules,
            before.as_deref(),
            inner.observer.as_deref(),
            inner.settings.most_keys,
            |rule, most_keys| inner.remotes.limit_of(rule, most_keys, &inner.clock),
        )?;
        let ahead_ns = inner.wall_ahead_ns.load(Ordering::Relaxed);
        live.come_into_force(inner.clock.now_ns().wrapping_add(ahead_ns));
        inner.live.store(Some(Arc::new(live)));
        Ok(loaded)
    }

    /// Lets go of the rules of before, unless a call is still decided by them: then it is a later time that does, or the next
    /// change of rules. Asked for by each [`Self::tick`].
    pub fn forget_unused(&self) {
        if let Some(mut before) = self.loading()
            && before.as_ref().is_some_and(|live| Arc::strong_count(live) == 1)
        {
            *before = None;
        }
    }

    /// What is held while rules change; none if they do so now.
    fn loading(&self) -> Option<MutexGuard<'_, Option<Arc<Live<C>>>>> {
        match self.inner.loading.try_lock() {
            Ok(before) => Some(before),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> Option<Arc<RuleSet>> {
        self.inner.live.load().as_ref().map(|live| Arc::clone(&live.set))
    }

    /// A rule by its name.
    #[must_use]
    pub fn rule_named(&self, name: &str) -> Option<Arc<crate::rule::Rule>> {
        let live = self.inner.live.load();
        Some(Arc::clone(live.as_ref()?.matcher.named(name)?.1))
    }

    /// Returns the fault of a name that no rule has: [`Fault::NoSuchRule`], or [`Fault::NotLoaded`].
    pub(crate) fn no_such_rule(&self, name: &str) -> Fault {
        let is_loaded = self.inner.live.load().is_some();
        if is_loaded { Fault::no_such_rule(name) } else { Fault::NotLoaded }
    }

    /// Which rule a descriptor comes under.
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
        #[cfg(feature = "otlp")]
        if let Some(span) = self.span(request.verb) {
            return span.of(|engine| engine.decide(request));
        }
        let given = request.items.len();
        if given > MOST_ITEMS {
            return Decided::Now(Err(Fault::TooManyItems { given, most: MOST_ITEMS }));
        }
        let live = self.inner.live.load();
        let layered = live.as_ref().filter(|live| live.matcher.is_layered());
        match layered.and_then(|live| Layers::of(live, request)) {
            None => self.decide_items(live.as_ref(), request),
            Some(layers) => {
                let items = layers.items();
                layers.folded(
                    self.decide_items(live.as_ref(), &Request { items: &items, ..*request }),
                )
            }
        }
    }

    /// Decides items that come under a rule each.
    fn decide_items(&self, live: Option<&Arc<Live<C>>>, request: &Request<'_>) -> Decided {
        if let Some(live) = live.filter(|live| live.has_remotes)
            && let Some(decided) = self.decide_apart(live, request)
        {
            return decided;
        }
        Decided::Now(self.inner.decide(live.map(Arc::as_ref), request, Seen::default()))
    }

    /// Decides about one key under a limit that comes with the call: the short way for protocols whose calls all do.
    ///
    /// # Errors
    ///
    /// [`Fault::Limit`] and [`Fault::Rate`] for a limit that is none, [`Fault::TooManyLimits`], [`Fault::NoRoom`].
    pub fn inline(
        &self,
        limit: Inline,
        key: &[u8],
        verb: Verb,
        permits: u64,
    ) -> Result<Part, Fault> {
        #[cfg(feature = "otlp")]
        if let Some(span) = self.span(verb) {
            return span.of_one(|engine| engine.inline(limit, key, verb, permits));
        }
        let inner = &*self.inner;
        let (part, now_ns) = inner.buckets.decide(limit, key, verb, permits)?;
        if verb != Verb::Peek
            && let Some(watch) = &inner.inline_watch
        {
            watch.decided(now_ns, key, permits, &part);
        }
        Ok(part)
    }

    /// Puts limits into force whose time has come, by the wall clock in ns since 1970. Asked each second or so. Waits for nobody:
    /// while rules are loaded, it is the next one that counts.
    pub fn tick(&self, wall_ns: u64) {
        let inner = &*self.inner;
        let ahead_ns = wall_ns.wrapping_sub(inner.clock.now_ns());
        inner.wall_ahead_ns.store(ahead_ns, Ordering::Relaxed);
        self.forget_unused();
        let Some(_loading) = self.loading() else { return };
        if let Some(live) = &*inner.live.load() {
            live.tick(wall_ns);
        }
    }

    /// How many keys are in memory, of all rules, of limits that came with calls, and with permits in flight.
    #[must_use]
    pub fn keys(&self) -> usize {
        let own = self.inner.buckets.keys().saturating_add(self.inner.windows.keys());
        let own = own.saturating_add(self.inner.remotes.keys());
        self.inner.live.load().as_ref().map_or(own, |live| own.saturating_add(live.keys()))
    }

    /// How many keys of a rule are in memory, and how many newcomers have found no room; none if there is no such rule.
    #[must_use]
    pub fn room_of(&self, rule: &str) -> Option<(usize, u64)> {
        self.inner.live.load().as_ref()?.room_of(rule)
    }

    /// What it was made with.
    #[must_use]
    pub fn settings(&self) -> EngineSettings {
        self.inner.settings
    }

    /// The engine's clock.
    #[must_use]
    pub fn clock(&self) -> &C {
        &self.inner.clock
    }
}

impl Default for EngineSettings {
    /// A million keys each, and 248 different limits that come with calls.
    fn default() -> Self {
        Self {
            most_keys: 1_000_000,
            inline_keys: 1_000_000,
            inline_limits: 248,
            count_denied: false,
            count_over_only: false,
        }
    }
}

impl<C: Clock> Clone for Engine<C> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            #[cfg(feature = "otlp")]
            tracer: self.tracer.clone(),
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
    fn rules_of_before_are_forgotten_by_none_that_decides_by_them() {
        let engine = Engine::new(ManualClock::new(), EngineSettings::default());
        let load = || engine.load(RuleSet { rules: Vec::new(), hash: "".into() }).unwrap();
        load();
        let decides = engine.inner.live.load_full();
        let before = Arc::downgrade(decides.as_ref().unwrap());
        load();
        drop(decides);
        assert!(before.upgrade().is_some(), "whoever decided has not forgotten them");
        engine.tick(0);
        assert!(before.upgrade().is_none());
        // With nobody there they are forgotten at once.
        let before = engine.inner.live.load().as_ref().map(Arc::downgrade);
        load();
        assert!(before.unwrap().upgrade().is_none());
    }
}
