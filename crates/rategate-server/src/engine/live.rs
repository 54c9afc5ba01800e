//! What is in force: rules found, and their counters, swapped as a whole.

use std::sync::Arc;

use rategate::{AnyPolicy, Clock};

use super::compiled::Compiled;
use super::counters::{Counters, InForce, Remoted, Ruled};
use super::fault::Fault;
use super::key::{self, Key};
use super::matcher::{LoadError, Matcher};
use super::observer::Observer;
use super::request::Target;
use super::stores::Remote;
use crate::rule::{Limit, Place, Rule, RuleSet};

/// All rules in force.
#[derive(Debug)]
pub(super) struct Live<C: Clock> {
    pub(super) set: Arc<RuleSet>,
    pub(super) matcher: Arc<Matcher>,
    /// By the index of the rule.
    pub(super) ruled: Vec<Ruled<C>>,
    /// Whether counters of any rule are elsewhere.
    pub(super) has_remotes: bool,
}

/// What has become of each rule when others came into force. Names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Not there before.
    pub added: Vec<Arc<str>>,
    /// There before; what was counted is carried over.
    pub kept: Vec<Arc<str>>,
    /// There before with other numbers; what was counted is carried over.
    pub changed: Vec<Arc<str>>,
    /// There before, and of another kind, or told apart by other entries: all begins anew.
    pub restarted: Vec<Arc<str>>,
    /// Not there any more.
    pub removed: Vec<Arc<str>>,
    /// With room for another number of keys, which comes with the next start: their keys are in memory.
    pub room_later: Vec<Arc<str>>,
}

impl<C: Clock + Clone> Live<C> {
    /// The rules of a set, with the counters of those of before. Nothing of these has changed yet: see [`Self::come_into_force`].
    pub(super) fn new(
        compiled: &Compiled,
        before: Option<&Self>,
        observer: Option<&dyn Observer>,
        most_keys: usize,
        remote_of: impl Fn(&Rule, usize) -> Result<Option<Arc<dyn Remote>>, String>,
    ) -> Result<(Self, Loaded), LoadError> {
        let (set, matcher) = (Arc::clone(compiled.set()), Arc::clone(compiled.matcher()));
        let rules = matcher.rules();
        let share = share_of(rules, most_keys);
        if let Some(rule) = rules.iter().filter(|rule| rule.borrows()).nth(MOST_LEASED) {
            let why = format!("at most {MOST_LEASED} rules borrow from a store");
            return Err(LoadError::Store { rule: Arc::clone(&rule.name), why });
        }
        let mut loaded = Loaded::default();
        let found = rules.iter().map(|rule| {
            let old = before.and_then(|before| before.ruled_by(&rule.name));
            let room = if rule.values_needed() == 0 { 1 } else { share };
            let room = rule.most_keys.unwrap_or(room);
            let handed_on = old.filter(|old| old.can_hand_on(rule));
            let list = match (handed_on, old) {
                (Some(old), _) if old.goes_on_as(rule) => &mut loaded.kept,
                (Some(_), _) => &mut loaded.changed,
                (None, Some(_)) => &mut loaded.restarted,
                (None, None) => &mut loaded.added,
            };
            list.push(Arc::clone(&rule.name));
            let remote = if let Some(old) = handed_on.filter(|old| old.is_kept_as(rule)) {
                old.remote.clone()
            } else {
                let failed = |why| LoadError::Store { rule: Arc::clone(&rule.name), why };
                remote_of(rule, room).map_err(failed)?.map(Remoted)
            };
            Ok((rule, room, handed_on, remote))
        });
        let found = found.collect::<Result<Vec<_>, LoadError>>()?;
        // From here on nothing is refused any more.
        let at_work = found.into_iter().map(|(rule, room, handed_on, remote)| {
            let counters = if let Some(old) = handed_on {
                if old.rule.most_keys != rule.most_keys && old.is_in_memory() {
                    loaded.room_later.push(Arc::clone(&rule.name));
                }
                old.counters.set_room(room);
                Arc::clone(&old.counters)
            } else {
                Counters::new(InForce::new(rule.limit, rule.shown), room)
            };
            let watch = observer.map(|observer| observer.of_rule(Some(rule)));
            Ruled::new(Arc::clone(rule), counters, watch, remote)
        });
        let at_work = at_work.collect::<Vec<_>>();
        if let Some(before) = before {
            let gone = before.set.rules.iter().filter(|rule| matcher.named(&rule.name).is_none());
            loaded.removed = gone.map(|rule| Arc::clone(&rule.name)).collect();
        }
        let has_remotes = at_work.iter().any(|ruled| ruled.remote.is_some());
        Ok((Self { set, matcher, ruled: at_work, has_remotes }, loaded))
    }

    /// Puts the limits of the rules into force, for `wall_ns` of the wall clock.
    pub(super) fn come_into_force(&self, wall_ns: u64) {
        for ruled in &self.ruled {
            let (limit, shown) = ruled.rule.at(wall_ns);
            ruled.counters.change(InForce::new(limit, shown));
        }
    }

    /// The same for rules whose limit depends on the time.
    pub(super) fn tick(&self, wall_ns: u64) {
        for ruled in self.ruled.iter().filter(|ruled| !ruled.rule.schedule.is_empty()) {
            let (limit, shown) = ruled.rule.at(wall_ns);
            ruled.counters.change(InForce::new(limit, shown));
        }
    }

    /// How many keys there are in all tables.
    pub(super) fn keys(&self) -> usize {
        self.ruled.iter().filter_map(|ruled| ruled.counters.made()).map(rategate::Keyed::len).sum()
    }

    /// Keys of a rule, and newcomers that found no room.
    pub(super) fn room_of(&self, name: &str) -> Option<(usize, u64)> {
        let table = self.ruled_by(name)?.counters.made();
        Some(table.map_or((0, 0), |table| (table.len(), table.overflows())))
    }

    fn ruled_by(&self, name: &str) -> Option<&Ruled<C>> {
        let (index, _) = self.matcher.named(name)?;
        self.ruled.get(index)
    }

    /// A rule by its index, and the key of the values that vary.
    pub(super) fn of_descriptor(
        &self,
        domain: &str,
        entries: &[(&[u8], &[u8])],
    ) -> Option<(&Ruled<C>, Key)> {
        let (index, rule) = self.matcher.find(domain.as_bytes(), entries)?;
        let key = key::of_values(rule.varying(entries), rule.values_needed());
        Some((self.ruled.get(index)?, key))
    }

    /// Where the rule of a target is, and the key; `None` where there is none.
    pub(super) fn found(&self, target: &Target<'_>) -> Option<(usize, Key)> {
        match *target {
            Target::Rule { name, values } => self.index_of_name(name, values).ok(),
            Target::Descriptor { domain, entries, limit: None } => {
                let (index, rule) = self.matcher.find(domain.as_bytes(), entries)?;
                Some((index, key::of_values(rule.varying(entries), rule.values_needed())))
            }
            Target::Descriptor { .. } | Target::Inline { .. } => None,
        }
    }

    /// A rule whose counters are elsewhere, and who has them.
    pub(super) fn remote(&self, index: usize) -> Option<(&Ruled<C>, &Arc<dyn Remote>)> {
        let ruled = self.ruled.get(index)?;
        Some((ruled, &ruled.remote.as_ref()?.0))
    }

    /// A rule by its name, or the tier of it that is for the values.
    pub(super) fn of_name(&self, name: &str, values: &[&[u8]]) -> Result<(&Ruled<C>, Key), Fault> {
        let (index, key) = self.index_of_name(name, values)?;
        Ok((self.ruled.get(index).ok_or_else(|| Fault::no_such_rule(name))?, key))
    }

    /// The same, by its index.
    pub(super) fn index_of_name(
        &self,
        name: &str,
        values: &[&[u8]],
    ) -> Result<(usize, Key), Fault> {
        let (index, rule) = self.matcher.named(name).ok_or_else(|| Fault::no_such_rule(name))?;
        let needed = rule.values_needed();
        if needed != values.len() {
            let (rule, given) = (Arc::clone(&rule.name), values.len());
            return Err(Fault::Values { rule, needed, given });
        }
        let other = || {
            let varying = rule.entries.iter().filter(|entry| entry.value.varies()).zip(values);
            let entry = varying.into_iter().find(|(entry, value)| !entry.value.fits(value));
            let entry = entry.map(|(entry, _)| Arc::clone(&entry.key)).unwrap_or_default();
            Fault::OtherValue { rule: Arc::clone(&rule.name), entry }
        };
        let (index, found) = self.matcher.of_values(index, values).ok_or_else(other)?;
        // What varies in a rule may be fixed in its tier.
        let mut given = values.iter();
        let mut varying = smallvec::SmallVec::<[&[u8]; 4]>::new();
        for (entry, tier) in rule.entries.iter().zip(&found.entries) {
            let value = if entry.value.varies() { given.next() } else { None };
            if let (true, Some(value)) = (tier.value.varies(), value) {
                varying.push(value);
            }
        }
        let count = varying.len();
        Ok((index, key::of_values(varying.into_iter(), count)))
    }
}

/// The most rules that borrow permits: each has a thread that gives back what is not used.
const MOST_LEASED: usize = 1024;

/// The room of each rule that does not say its own: its share of what the others leave.
fn share_of(rules: &[Arc<Rule>], most_keys: usize) -> usize {
    let own = rules.iter().filter_map(|rule| rule.most_keys).fold(0, usize::saturating_add);
    let sharing = rules.iter().filter(|rule| rule.values_needed() > 0 && rule.most_keys.is_none());
    let share = most_keys.saturating_sub(own).checked_div(sharing.count().max(1)).unwrap_or(1);
    share.max(FEWEST_KEYS).min(most_keys.max(1))
}

/// A rule's table has room for so many keys at least, where rules share what there is.
const FEWEST_KEYS: usize = 1024;

impl Rule {
    /// Whether permits of a store are borrowed for it.
    fn borrows(&self) -> bool {
        let is_in_flight = matches!(self.limit, Limit::Policy(AnyPolicy::Concurrency(_)));
        matches!(self.place, Place::StoreLeased { .. }) && !is_in_flight
    }

    /// What is allowed at an instant of the wall clock, in ns since 1970.
    #[must_use]
    pub fn at(&self, wall_ns: u64) -> (Limit, crate::rule::Shown) {
        let scheduled = self.schedule.iter().find(|scheduled| scheduled.is_at(wall_ns));
        scheduled.map_or((self.limit, self.shown), |scheduled| (scheduled.limit, scheduled.shown))
    }
}

impl crate::rule::Scheduled {
    /// Whether it is in force at an instant of the wall clock, in ns since 1970. Never in a zone that nobody knows.
    #[must_use]
    pub fn is_at(&self, wall_ns: u64) -> bool {
        let instant = i64::try_from(wall_ns / 1_000_000_000).ok();
        let instant = instant.and_then(|s| jiff::Timestamp::from_second(s).ok());
        let Some(local) = instant.and_then(|instant| instant.in_tz(&self.zone).ok()) else {
            return false;
        };
        let (day, time) = (local.weekday().to_monday_zero_offset(), local.time());
        let parts = [(time.hour(), 3600), (time.minute(), 60), (time.second(), 1)];
        let second = parts.into_iter().fold(0_u32, |sum, (part, length)| {
            sum.saturating_add(u32::try_from(part).unwrap_or(0).saturating_mul(length))
        });
        let day = usize::try_from(day).unwrap_or(0);
        let is_on = |day: usize| self.days.get(day % 7).copied().unwrap_or(false);
        if self.from_s < self.until_s {
            return is_on(day) && (self.from_s..self.until_s).contains(&second);
        }
        // Over midnight: it belongs to the day on which it began.
        (is_on(day) && second >= self.from_s)
            || (is_on(day.wrapping_add(6)) && second < self.until_s)
    }
}
