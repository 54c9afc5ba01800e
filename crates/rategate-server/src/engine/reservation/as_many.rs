//! Holds as many permits as there are, between the minimum and the maximum of each item.
//!
//! # Contract
//!
//! * An item has one number of permits in all rules that are enforced for it: the largest that each
//!   of them has, and its maximum at most. A rule that counts something else, or of which a
//!   reservation holds a share at most, holds that.
//! * It is denied only where the minimum does not fit, and the denial is that of the minimum.
//! * A rule that is not enforced bounds no number. It holds that of the enforced rules where that
//!   fits. Without any it holds as many as it has, and the caller is told its own maximum.
//! * What other callers take meanwhile leads to another try. The number of tries is bounded: the
//!   last is of the minimum.

use std::time::Duration;

use rategate::Clock;
use smallvec::SmallVec;

use super::Reserved;
use super::part::{Blocker, Part, TaskHolds, hold_all};
use crate::engine::Inner;
use crate::engine::error::EngineError;
use crate::engine::layered::Layers;
use crate::engine::request::{Item, Request, Verb};
use crate::engine::tasks::Task;

/// The maximum number of tries before that of the minimum.
pub(super) const MAX_TRIES: usize = 4;

/// Holds all parts, or returns the one that denies.
pub(super) fn hold<C: Clock + Clone + 'static>(
    parts: &mut [Part<'_, C>],
    ttl: Duration,
    holds: &mut TaskHolds<C>,
) -> Result<Option<Blocker>, EngineError> {
    for _ in 0..MAX_TRIES {
        if !choose(parts) {
            break;
        }
        if hold_all(parts, ttl, holds)?.is_none() {
            return Ok(None);
        }
    }
    for part in parts.iter_mut() {
        part.permits = part.least;
    }
    hold_all(parts, ttl, holds)
}

/// Chooses the number of permits of each item by what is there. Returns `true` if any is more than
/// the minimum, and none is known to have less.
fn choose<C: Clock + Clone + 'static>(parts: &mut [Part<'_, C>]) -> bool {
    let (mut is_more, mut is_less) = (false, false);
    for at in 0..parts.len() {
        let Some(origin) = parts.get(at).map(|part| part.origin) else { break };
        let mut number = u64::MAX;
        for part in parts.iter().filter(|part| part.origin == origin && part.has_choice()) {
            // Where a full table has no number the minimum is tried, and the reason is told.
            let room = part.counts.remaining().unwrap_or(0);
            is_less |= room < part.least;
            if room < part.most {
                number = number.min(room);
            }
        }
        if let Some(part) = parts.get_mut(at) {
            part.permits = part.of(number);
            is_more |= part.permits > part.least;
        }
    }
    is_more && !is_less
}

/// Chooses the numbers of parts that are not enforced: those of their items, where enforced parts
/// have one.
pub(super) fn choose_as<C: Clock>(enforced: &[Part<'_, C>], others: &mut [Part<'_, C>]) {
    for part in others.iter_mut() {
        let of_item = enforced.iter().filter(|other| other.origin == part.origin);
        let number = of_item.filter(|other| other.has_choice()).map(|other| other.permits).max();
        part.permits = part.of(number.unwrap_or(u64::MAX));
        if number.is_some() {
            (part.least, part.most) = (part.permits, part.permits);
        }
    }
}

/// The maximum of each item whose number no enforced rule bounds.
pub(super) type Unbounded = SmallVec<[Option<u64>; 2]>;

impl<C: Clock + Clone + 'static> Inner<C> {
    /// Returns the maximum of each item whose number no enforced rule bounds. None has one as a
    /// rule.
    pub(super) fn unbounded(&self, items: &[Item<'_>]) -> Unbounded {
        let mut all: Unbounded = items.iter().map(|item| item.at_most).collect();
        if all.iter().all(Option::is_none) {
            return Unbounded::new();
        }
        let live = self.live.load();
        let live = live.as_deref();
        let request = Request { verb: Verb::Take, items, counts_denied: false };
        let Ok(layers) = Layers::of(live, &request) else { return Unbounded::new() };
        let layered = layers.as_ref().map_or_else(|| items.to_vec(), Layers::items);
        for (nth, item) in layered.iter().enumerate() {
            let origin = layers.as_ref().map_or(nth, |layers| layers.origin(nth));
            let has_choice = item.at_most.is_some_and(|most| most > item.permits);
            let found = self.find(live, Verb::Take, item);
            if let (true, Ok(Task::Acquisition(found))) = (has_choice, found)
                && found.counter.is_enforced()
                && let Some(own) = all.get_mut(origin)
            {
                *own = None;
            }
        }
        all
    }
}

impl Reserved {
    /// Says of items whose number no enforced rule bounds that their maximum is held.
    pub(super) fn say_unbounded(&mut self, all: &Unbounded) {
        for (result, most) in self.answer.results.iter_mut().zip(all) {
            if let (Some(most), Some(_)) = (most, result.held()) {
                result.set_held(*most);
            }
        }
    }
}

impl<C: Clock> Part<'_, C> {
    const fn has_choice(&self) -> bool {
        self.least < self.most
    }

    /// Returns what it holds of an item of which so many permits are held.
    fn of(&self, number: u64) -> u64 {
        number.clamp(self.least, self.most)
    }
}
