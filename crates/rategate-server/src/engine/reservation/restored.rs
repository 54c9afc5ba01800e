//! Reservations that were saved, under their ids again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rategate::Clock;
use rategate::policy::portable::RestoreContext;
use rategate::snapshot::SavedHold;
use smallvec::SmallVec;

use super::held_item::{EndedHold, HeldItem, HeldPermits, Holds};
use super::settlements::Outcome;
use super::table::{Entry, PartVerdict, State};
use crate::engine::Inner;
use crate::engine::hold_change::{HoldChange, HoldOutcome};
use crate::engine::inline::{InlineLimit, InlineLimits, Numbers};
use crate::engine::live::Live;
use crate::engine::snapshot::rows::{HeldRow, HoldOwner, SavedVerdict, SettledRow, UnsettledRow};
use crate::engine::unique_id::UniqueId;
use crate::rule::CounterLocation;

/// The instant from which each limit that was restored continues.
pub(in crate::engine) type Contexts = HashMap<HoldOwner, RestoreContext>;

/// Holds of one limit, with the index of each one's row and its index there.
type PlacedHolds = (Vec<(usize, usize)>, Vec<SavedHold>);

/// The number of reservations that are known again, and of those that are not by the rule of the
/// first item that is lost.
#[derive(Debug, Default)]
pub(in crate::engine) struct Found {
    pub(in crate::engine) known: u64,
    pub(in crate::engine) lost: HashMap<Arc<str>, u64>,
}

impl<C: Clock + Clone + 'static> Inner<C> {
    /// Takes over the key of the digests in rows. Returns `false` if another is in use.
    pub(in crate::engine) fn restore_digests(&self, key: [u64; 2]) -> bool {
        self.reservations.digests.restore(key)
    }

    /// Remembers what had been settled.
    pub(in crate::engine) fn remember(
        &self,
        rows: Vec<SettledRow>,
        since: RestoreContext,
        found: &mut Found,
    ) {
        let RestoreContext { now_ns, elapsed_ns } = since;
        let reservations = &self.reservations;
        for row in rows.into_iter().filter(|row| row.left_ns > elapsed_ns) {
            if reservations.check_capacity().is_err() {
                found.lose("".into());
                continue;
            }
            let due_ns = now_ns.saturating_add(row.left_ns.saturating_sub(elapsed_ns));
            let (id, names, outcome) = (row.id, row.names, row.outcome());
            let mut shard = reservations.lock_digest(id);
            if shard.settlements.add(id, names, due_ns, outcome) {
                reservations.known.fetch_add(1, Ordering::Relaxed);
            }
            found.known = found.known.saturating_add(1);
        }
    }

    /// Holds again what was held by reservations, of limits that have been restored. Unless the
    /// file `is_last`, they may have been committed since, so their ends by time bring nothing
    /// back.
    pub(in crate::engine) fn reopen(
        &self,
        live: Option<&Live<C>>,
        mut rows: Vec<UnsettledRow>,
        (since, contexts): (RestoreContext, &Contexts),
        is_last: bool,
        found: &mut Found,
    ) {
        for held in rows.iter_mut().flat_map(|row| &mut row.holds).filter(|_| !is_last) {
            held.keeps = true;
            held.held = held.held.take().map(SavedHold::without_end);
        }
        // What is dropped later would be cancelled.
        let known = self.reservations.known.load(Ordering::Relaxed);
        for row in rows.split_off(self.reservations.left(known).min(rows.len())) {
            found.lose(row.rule());
        }
        let mut all: HashMap<HoldOwner, PlacedHolds> = HashMap::new();
        for (nth, row) in rows.iter().enumerate() {
            for (of, held) in row.holds.iter().enumerate() {
                if let Some(saved) = &held.held {
                    let (places, holds) = all.entry(held.of.clone()).or_default();
                    places.push((nth, of));
                    holds.push(saved.clone());
                }
            }
        }
        let mut adopted: HashMap<(usize, usize), HeldPermits<C>> = HashMap::new();
        for (owner, (places, holds)) in all {
            let Some(&since) = contexts.get(&owner) else { continue };
            let held = self.adopt(live, &owner, &holds, since);
            adopted.extend(
                places.into_iter().zip(held).filter_map(|(place, held)| Some((place, held?))),
            );
        }
        for (nth, row) in rows.into_iter().enumerate() {
            let due_ns = row.due_ns(since);
            let holds = row.holds.iter().enumerate().filter_map(|(of, held)| {
                let own = adopted.remove(&(nth, of)).or_else(|| in_flight(live, held, due_ns))?;
                Some(HeldItem::new(held.at, held.alone, own).keeping(held.keeps))
            });
            let holds: Holds<C> = holds.collect();
            let (id, rule) = (row.id.parse::<UniqueId>(), row.rule());
            let lacks_all = !row.is_over && holds.is_empty() && !row.holds.is_empty();
            // Permits in flight that are not held again are reported with their own list.
            let is_listed = |held: &&HeldRow| !matches!(held.of, HoldOwner::InFlight(_));
            let listed = row.holds.iter().filter(is_listed).count();
            let held = holds.iter().filter(|held| !held.is_in_flight()).count();
            let lacks_some = !row.is_over && held < listed;
            match id {
                Ok(id) if !lacks_all => self.add_again(live, (id, row), holds, since),
                _ => {}
            }
            if lacks_some {
                found.lose(rule);
            } else if !lacks_all {
                found.known = found.known.saturating_add(1);
            }
        }
    }

    /// Holds again what was held in one limit.
    fn adopt(
        &self,
        live: Option<&Live<C>>,
        owner: &HoldOwner,
        holds: &[SavedHold],
        since: RestoreContext,
    ) -> Vec<Option<HeldPermits<C>>> {
        match owner {
            HoldOwner::Rule(name) => {
                let found = || {
                    let (index, rule) = live?.matcher.named(name)?;
                    Some((rule, live?.ruled.get(index)?.counters.made()?))
                };
                let Some((rule, table)) = found() else { return Vec::new() };
                let adopted = table.adopt_holds(holds, since).into_iter();
                adopted.map(|hold| Some(HeldPermits::Rule(Arc::clone(rule), hold?))).collect()
            }
            HoldOwner::Bucket(words) => {
                let Some(numbers) = found(&self.buckets, *words) else { return Vec::new() };
                let adopted = numbers.adopt_holds(holds, since).into_iter();
                adopted.map(|hold| Some(HeldPermits::Bucket(hold?, Arc::clone(&numbers)))).collect()
            }
            HoldOwner::Window(words) => {
                let Some(numbers) = found(&self.windows, *words) else { return Vec::new() };
                let adopted = numbers.adopt_holds(holds, since).into_iter();
                adopted.map(|hold| Some(HeldPermits::Window(hold?, Arc::clone(&numbers)))).collect()
            }
            HoldOwner::Call | HoldOwner::InFlight(_) => Vec::new(),
        }
    }

    /// Adds a reservation with what it holds.
    fn add_again(
        &self,
        live: Option<&Live<C>>,
        (id, row): (UniqueId, UnsettledRow),
        holds: Holds<C>,
        since: RestoreContext,
    ) {
        let due_ns = row.due_ns(since);
        for held in &holds {
            // Permits in flight are no row of what is held.
            let taken = if held.is_in_flight() { 0 } else { held.permits() };
            self.report(held.rule(), &HoldChange { taken, ..HoldChange::of(HoldOutcome::Held) });
        }
        // The process that noticed its end has counted it.
        let state = if row.is_over {
            State::Ended { held: ended(live, &row.holds) }
        } else {
            self.reservations.counts.opened();
            State::Open { holds }
        };
        let UnsettledRow { names, permits, usages, ttl_ns, .. } = row;
        let (permits, parts) = (permits.into(), Vec::new());
        let entry = Entry { names, permits, usages, parts, state, due_ns, ttl_ns };
        self.reservations.add(&mut self.reservations.lock(id), entry);
    }
}

/// Returns what was held by a reservation that is over, of rules that exist.
fn ended<C: Clock + Clone>(live: Option<&Live<C>>, rows: &[HeldRow]) -> SmallVec<[EndedHold; 1]> {
    let of = |row: &HeldRow| {
        let rule = match &row.of {
            HoldOwner::Rule(name) => Some(Arc::clone(live?.matcher.named(name)?.1)),
            HoldOwner::Bucket(_) | HoldOwner::Window(_) | HoldOwner::Call => None,
            // Of permits in flight nothing outlives the end.
            HoldOwner::InFlight(_) => return None,
        };
        Some(EndedHold::new((row.at, row.alone), rule, row.permits))
    };
    rows.iter().filter_map(of).collect()
}

/// Returns permits in flight of a rule that counts them in this process. Their store has held them
/// again, as many as fit.
fn in_flight<C: Clock + Clone>(
    live: Option<&Live<C>>,
    held: &HeldRow,
    due_ns: u64,
) -> Option<HeldPermits<C>> {
    let HoldOwner::InFlight(name) = &held.of else { return None };
    let (index, rule) = live?.matcher.named(name)?;
    let ruled = live?.ruled.get(index)?;
    let is_here = ruled.is_in_flight() && rule.location == CounterLocation::Here;
    let (rule, ends_at) = (Arc::clone(rule), Duration::from_nanos(due_ns));
    is_here.then_some(HeldPermits::InFlight { rule, permits: held.permits, ends_at })
}

/// Returns a limit that was restored.
fn found<N: InlineLimit, C: Clock + Clone>(
    limits: &InlineLimits<N, C>,
    words: [u64; 3],
) -> Option<Arc<Numbers<N, C>>> {
    limits.found(N::of_words(words)?)
}

impl Found {
    fn lose(&mut self, rule: Arc<str>) {
        let lost = self.lost.entry(rule).or_default();
        *lost = lost.saturating_add(1);
    }
}

impl SettledRow {
    fn outcome(self) -> Outcome {
        let Self { permits, usages, verdicts, parts, .. } = self;
        let parts = parts.into_iter();
        Outcome {
            permits: permits.into(),
            usages,
            verdicts: verdicts.into_iter().map(SavedVerdict::verdict).collect(),
            parts: parts
                .map(|(at, rule, verdict, saturated)| {
                    let (rule, verdict) = (rule.into(), verdict.verdict());
                    PartVerdict { at, rule, verdict, saturated }
                })
                .collect(),
        }
    }
}

impl UnsettledRow {
    /// Returns the instant at which it ends by itself, or is forgotten.
    fn due_ns(&self, since: RestoreContext) -> u64 {
        let RestoreContext { now_ns, elapsed_ns } = since;
        let left_ns = i128::from(self.left_ns).saturating_sub(elapsed_ns.into());
        let due_ns = i128::from(now_ns).saturating_add(left_ns).max(0);
        u64::try_from(due_ns).unwrap_or(u64::MAX)
    }

    /// Returns the rule of its first item; an empty name if there is none.
    fn rule(&self) -> Arc<str> {
        let rule = self.holds.iter().find_map(|held| match &held.of {
            HoldOwner::Rule(name) | HoldOwner::InFlight(name) => Some(name.as_str()),
            HoldOwner::Bucket(_) | HoldOwner::Window(_) | HoldOwner::Call => None,
        });
        rule.unwrap_or_default().into()
    }
}
