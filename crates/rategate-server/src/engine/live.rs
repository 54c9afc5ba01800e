//! Rules that are compiled, and the rules in force with their counters, swapped as a whole.

use std::ops::Deref;
use std::sync::Arc;

use rategate::Clock;
use rategate::calendar::{Calendar, Window};

use super::answer::{ItemResult, Observer};
use super::counters::{ActiveRule, Counters, InForce};
use super::error::EngineError;
use super::key::{self, Key};
use super::matcher::{LoadError, Matcher};
use super::request::Target;
use super::stores::Remote;
use crate::rule::{CounterLocation, Limit, Rule, RuleSet};

/// A compiled set of rules that can be in force together. Compiling is the slow half of a change;
/// it needs no engine and can run on another thread. Clones share the same rules.
#[derive(Clone, Debug)]
pub struct Compiled {
    set: Arc<RuleSet>,
    matcher: Arc<Matcher>,
}

impl Compiled {
    /// Compiles rules, which takes some microseconds for each.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError`] if the rules cannot be in force together.
    pub fn new(rules: RuleSet) -> Result<Self, LoadError> {
        let all: Vec<_> = rules.rules.iter().cloned().map(Arc::new).collect();
        let matcher = Arc::new(Matcher::new(&all)?);
        Ok(Self { set: Arc::new(rules), matcher })
    }

    /// Returns the matcher of the rules.
    pub(crate) fn matcher(&self) -> &Arc<Matcher> {
        &self.matcher
    }

    /// Returns the rules.
    #[must_use]
    pub fn set(&self) -> &Arc<RuleSet> {
        &self.set
    }
}

impl Deref for Compiled {
    type Target = RuleSet;

    fn deref(&self) -> &RuleSet {
        &self.set
    }
}

impl PartialEq for Compiled {
    fn eq(&self, other: &Self) -> bool {
        self.set == other.set
    }
}

/// The rules in force, with their counters.
#[derive(Debug)]
pub(super) struct Live<C: Clock> {
    pub(super) set: Arc<RuleSet>,
    pub(super) matcher: Arc<Matcher>,
    /// The rules with their counters, by the index of the rule.
    pub(super) ruled: Vec<ActiveRule<C>>,
    /// `true` if the counters of any rule are elsewhere.
    pub(super) has_remotes: bool,
    /// `true` if any rule has a time of reservations of its own.
    pub(super) bounds_holds: bool,
}

/// A counter that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Located {
    /// The index of the rule.
    pub(super) rule: usize,
    pub(super) key: Key,
}

/// The names of rules by what a change of the rules did to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Rules that are new.
    pub added: Vec<Arc<str>>,
    /// Rules that are unchanged; their counters are carried over.
    pub kept: Vec<Arc<str>>,
    /// Rules with a changed limit; their counters are carried over.
    pub changed: Vec<Arc<str>>,
    /// Rules with a limit of another kind or with other entries; their counters start afresh.
    pub restarted: Vec<Restarted>,
    /// Rules that have been removed.
    pub removed: Vec<Arc<str>>,
    /// Rules with another capacity, which takes effect at the next start because their keys are
    /// in memory.
    pub pending_capacity: Vec<Arc<str>>,
}

/// A rule whose counters start afresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restarted {
    /// The name of the rule.
    pub rule: Arc<str>,
    /// The change, with the kinds of limit before and after.
    pub why: String,
}

impl<C: Clock + Clone> Live<C> {
    /// Creates the rules of a set, with the previous counters. These do not change until
    /// [`Self::activate`].
    pub(super) fn new(
        compiled: &Compiled,
        before: Option<&Self>,
        observer: Option<&dyn Observer>,
        max_keys: usize,
        remote_of: impl Fn(&Rule, usize) -> Result<Option<Arc<dyn Remote>>, String>,
    ) -> Result<(Self, Loaded), LoadError> {
        let (set, matcher) = (Arc::clone(compiled.set()), Arc::clone(compiled.matcher()));
        let rules = matcher.rules();
        let share = share_of(rules, max_keys);
        if let Some(rule) = rules.iter().filter(|rule| rule.borrows()).nth(MAX_LEASED) {
            let why = format!("at most {MAX_LEASED} rules can lease from a store");
            return Err(LoadError::Store { rule: Arc::clone(&rule.name), why });
        }
        let mut loaded = Loaded::default();
        let found = rules.iter().map(|rule| {
            let old = before.and_then(|before| before.ruled_by(&rule.name));
            let capacity = if rule.values_counted() == 0 { 1 } else { share };
            let capacity = rule.max_keys.unwrap_or(capacity);
            let why = old.and_then(|old| old.why_restarted(rule));
            let transferred = old.filter(|_| why.is_none());
            let name = Arc::clone(&rule.name);
            match (transferred, why) {
                (_, Some(why)) => loaded.restarted.push(Restarted { rule: name, why }),
                (Some(old), None) if old.is_unchanged_by(rule) => loaded.kept.push(name),
                (Some(_), None) => loaded.changed.push(name),
                (None, None) => loaded.added.push(name),
            }
            let remote = if let Some(old) = transferred.filter(|old| old.has_same_storage(rule)) {
                old.remote.clone()
            } else {
                let failed = |why| LoadError::Store { rule: Arc::clone(&rule.name), why };
                remote_of(rule, capacity).map_err(failed)?
            };
            Ok((rule, capacity, transferred, remote))
        });
        let found = found.collect::<Result<Vec<_>, LoadError>>()?;
        // Nothing fails from here on.
        let at_work = found.into_iter().map(|(rule, capacity, transferred, remote)| {
            let counters = if let Some(old) = transferred {
                if old.rule.max_keys != rule.max_keys && old.is_in_memory() {
                    loaded.pending_capacity.push(Arc::clone(&rule.name));
                }
                old.counters.set_capacity(capacity);
                Arc::clone(&old.counters)
            } else {
                Counters::new(InForce::new(rule.limit, rule.display_limit), capacity, rule.debt)
            };
            let watch = observer.map(|observer| observer.of_rule(Some(rule)));
            ActiveRule::new(Arc::clone(rule), counters, watch, remote)
        });
        let at_work = at_work.collect::<Vec<_>>();
        if let Some(before) = before {
            let removed =
                before.set.rules.iter().filter(|rule| matcher.named(&rule.name).is_none());
            loaded.removed = removed.map(|rule| Arc::clone(&rule.name)).collect();
        }
        let has_remotes = at_work.iter().any(|ruled| ruled.remote.is_some());
        let bounds_holds = Self::has_hold_times(matcher.rules());
        Ok((Self { set, matcher, ruled: at_work, has_remotes, bounds_holds }, loaded))
    }

    /// Puts the limits of the rules into force, for `wall_ns` of the wall clock.
    pub(super) fn activate(&self, wall_ns: u64) {
        for ruled in &self.ruled {
            let (limit, display_limit) = ruled.rule.at(wall_ns);
            ruled.counters.set_debt(ruled.rule.debt);
            ruled.counters.change(InForce::new(limit, display_limit));
        }
    }

    /// Puts the current limits of rules with a schedule into force.
    pub(super) fn tick(&self, wall_ns: u64) {
        for ruled in self.ruled.iter().filter(|ruled| !ruled.rule.schedule.is_empty()) {
            let (limit, display_limit) = ruled.rule.at(wall_ns);
            ruled.counters.change(InForce::new(limit, display_limit));
        }
    }

    /// Returns the number of keys in all tables.
    pub(super) fn keys(&self) -> usize {
        self.ruled.iter().filter_map(|ruled| ruled.counters.made()).map(rategate::Keyed::len).sum()
    }

    /// Returns the number of keys of a rule, and of unknown keys that found its table full.
    pub(super) fn table_usage(&self, name: &str) -> Option<(usize, u64)> {
        let table = self.ruled_by(name)?.counters.made();
        Some(table.map_or((0, 0), |table| (table.len(), table.overflows())))
    }

    pub(super) fn ruled_by(&self, name: &str) -> Option<&ActiveRule<C>> {
        let (index, _) = self.matcher.named(name)?;
        self.ruled.get(index)
    }

    /// Returns the rule of a descriptor, and the key of the values that vary.
    pub(super) fn of_descriptor(
        &self,
        domain: &str,
        entries: &[(&[u8], &[u8])],
    ) -> Option<(&ActiveRule<C>, Key)> {
        let (index, rule) = self.matcher.find(domain.as_bytes(), entries)?;
        let key = key::of_values(rule.varying(entries), rule.values_counted());
        Some((self.ruled.get(index)?, key))
    }

    /// Returns the counter of a target; `None` if no rule matches.
    pub(super) fn found(&self, target: &Target<'_>) -> Option<Located> {
        match *target {
            Target::Rule { name, values } => self.located(name, values).ok(),
            Target::Descriptor { domain, entries, limit: None } => {
                let (index, rule) = self.matcher.find(domain.as_bytes(), entries)?;
                let key = key::of_values(rule.varying(entries), rule.values_counted());
                Some(Located { rule: index, key })
            }
            Target::Descriptor { .. } | Target::Inline { .. } => None,
        }
    }

    /// Returns a rule whose counters are elsewhere, with its limit in the store.
    pub(super) fn remote(&self, counter: &Located) -> Option<(&ActiveRule<C>, &Arc<dyn Remote>)> {
        let ruled = self.ruled.get(counter.rule)?;
        Some((ruled, ruled.remote.as_ref()?))
    }

    /// Returns the fault for a name that no rule has.
    pub(super) fn no_such_rule(&self, name: &str) -> EngineError {
        EngineError::no_such_rule(name, self.matcher.rules())
    }

    /// Returns a rule by its name, or its tier for these values.
    pub(super) fn of_name(
        &self,
        name: &str,
        values: &[&[u8]],
    ) -> Result<(&ActiveRule<C>, Key), EngineError> {
        let Located { rule, key } = self.located(name, values)?;
        Ok((self.ruled.get(rule).ok_or_else(|| self.no_such_rule(name))?, key))
    }

    /// Returns the counter of a rule by its name, or of its tier for these values.
    pub(super) fn located(&self, name: &str, values: &[&[u8]]) -> Result<Located, EngineError> {
        let (index, rule) = self.matcher.named(name).ok_or_else(|| self.no_such_rule(name))?;
        let (needed, given) = (rule.values_counted(), values.len());
        let entries = rule.entries_of(values);
        let Some(entries) = entries.filter(|_| given == needed) else {
            let rule = Arc::clone(&rule.name);
            return Err(EngineError::Values { rule, needed, given });
        };
        let other = || {
            let mut all = rule.entries.iter().zip(&entries);
            let entry = all.find(|(entry, (_, value))| !entry.value.fits(value));
            let entry = entry.map(|(entry, _)| Arc::clone(&entry.key)).unwrap_or_default();
            EngineError::OtherValue { rule: Arc::clone(&rule.name), entry }
        };
        let (index, found) = self.matcher.of_values(index, values).ok_or_else(other)?;
        // An entry that varies in a rule may be fixed in its tier.
        let mut varying = smallvec::SmallVec::<[&[u8]; 4]>::new();
        for ((entry, tier), (_, value)) in rule.entries.iter().zip(&found.entries).zip(&entries) {
            if tier.value.varies() && entry.value.varies() {
                varying.push(value);
            }
        }
        let count = varying.len();
        Ok(Located { rule: index, key: key::of_values(varying.into_iter(), count) })
    }
}

/// The maximum number of rules that lease permits: each has a thread that returns unused permits.
const MAX_LEASED: usize = 1024;

/// Returns the capacity of each rule without its own: an equal share of what the others leave.
fn share_of(rules: &[Arc<Rule>], max_keys: usize) -> usize {
    let own = rules.iter().filter_map(|rule| rule.max_keys).fold(0, usize::saturating_add);
    let sharing = rules.iter().filter(|rule| rule.values_counted() > 0 && rule.max_keys.is_none());
    let share = max_keys.saturating_sub(own).checked_div(sharing.count().max(1)).unwrap_or(1);
    share.max(MIN_KEYS).min(max_keys.max(1))
}

/// The minimum capacity of a rule's table in keys, where rules share the total.
const MIN_KEYS: usize = 1024;

impl Rule {
    /// Returns `true` if permits are leased from a store for the rule.
    fn borrows(&self) -> bool {
        matches!(self.location, CounterLocation::StoreLeased { .. })
            && !self.limit.counts_in_flight()
    }

    /// Returns the limit in force at an instant of the wall clock, in nanoseconds since 1970.
    #[must_use]
    pub fn at(&self, wall_ns: u64) -> (Limit, crate::rule::DisplayLimit) {
        let scheduled = self.schedule.iter().find(|scheduled| scheduled.is_at(wall_ns));
        scheduled.map_or((self.limit, self.display_limit), |scheduled| {
            (scheduled.limit, scheduled.display_limit)
        })
    }
}

impl ItemResult {
    /// Returns the calendar that the rule counts by, and its window, at an instant in nanoseconds
    /// since 1970. If a store decided, the window is the one by its clock.
    #[must_use]
    pub fn calendar(&self, now_ns: u64) -> Option<(Calendar, Window)> {
        let calendar = self.rule.as_ref()?.at(now_ns).0.calendar()?;
        Some((calendar, calendar.window(self.store_ns.unwrap_or(now_ns))))
    }
}

impl crate::rule::Scheduled {
    /// Returns `true` if it is in force at an instant of the wall clock, counted from 1970 in
    /// nanoseconds. Always `false` in an unknown time zone.
    #[must_use]
    pub fn is_at(&self, wall_ns: u64) -> bool {
        let instant = i64::try_from(wall_ns / 1_000_000_000).ok();
        let instant = instant.and_then(|s| jiff::Timestamp::from_second(s).ok());
        let Some(local) = instant.and_then(|instant| instant.in_tz(&self.zone).ok()) else {
            return false;
        };
        let (day, time) = (local.weekday().to_monday_zero_offset(), local.time());
        let components = [(time.hour(), 3600), (time.minute(), 60), (time.second(), 1)];
        let second = components.into_iter().fold(0_u32, |sum, (component, length)| {
            sum.saturating_add(u32::try_from(component).unwrap_or(0).saturating_mul(length))
        });
        let day = usize::try_from(day).unwrap_or(0);
        let is_on = |day: usize| self.days.get(day % 7).copied().unwrap_or(false);
        if self.from_s < self.until_s {
            return is_on(day) && (self.from_s..self.until_s).contains(&second);
        }
        // A range over midnight belongs to the day on which it began.
        (is_on(day) && second >= self.from_s)
            || (is_on(day.wrapping_add(6)) && second < self.until_s)
    }
}
