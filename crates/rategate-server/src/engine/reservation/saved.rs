//! Reservations as rows of a file of counters.

use std::collections::HashSet;
use std::io;
use std::sync::PoisonError;

use rategate::Clock;

use super::held_item::{EndedHold, HeldItem, HeldPermits};
use super::settlements::Outcome;
use super::table::{BATCH, Entry, PartVerdict, Reservations, State};
use crate::engine::inline::InlineLimit as _;
use crate::engine::live::Live;
use crate::engine::snapshot::rows::{HeldRow, HoldOwner, SavedVerdict, SettledRow, UnsettledRow};
use crate::engine::unique_id::UniqueId;

impl<C: Clock + Clone + 'static> Reservations<C> {
    /// Returns the key of the digests in rows.
    pub(in crate::engine) fn digest_key(&self) -> [u64; 2] {
        self.digests.key()
    }

    /// Returns the ids of all that have not been settled.
    pub(in crate::engine) fn unsettled_ids(&self) -> HashSet<UniqueId> {
        let mut ids = HashSet::new();
        for shard in &self.shards {
            let mut from = Some(0_usize);
            while let Some(place) = from {
                let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
                let until = place.saturating_add(BATCH).min(shard.entries.len());
                let some = shard.entries.get(place..until).unwrap_or_default();
                ids.extend(some.iter().flatten().map(|(id, _)| *id));
                from = (until < shard.entries.len()).then_some(until);
            }
        }
        ids
    }

    /// Calls `write` with the rows of all that have been settled, a few at a time, as they are
    /// `saved_ns`.
    pub(in crate::engine) fn each_settled(
        &self,
        saved_ns: u64,
        mut write: impl FnMut(&[SettledRow]) -> io::Result<()>,
    ) -> io::Result<()> {
        for shard in &self.shards {
            let mut from = None;
            loop {
                let mut rows = Vec::new();
                let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
                from = shard.settlements.each_of(from, BATCH, |id, names, due_ns, outcome| {
                    let left_ns = due_ns.saturating_sub(saved_ns);
                    rows.extend((left_ns > 0).then(|| settled_row((id, names), left_ns, &outcome)));
                });
                // The output may be slow.
                drop(shard);
                write(&rows.into_iter().flatten().collect::<Vec<_>>())?;
                if from.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Calls `write` with the rows of those among `ids` that have not been settled by now, a few at
    /// a time. Instants are relative to `saved_ns`.
    pub(in crate::engine) fn each_unsettled(
        &self,
        live: Option<&Live<C>>,
        ids: &HashSet<UniqueId>,
        saved_ns: u64,
        mut write: impl FnMut(&[UnsettledRow]) -> io::Result<()>,
    ) -> io::Result<()> {
        for shard in &self.shards {
            let mut from = Some(0_usize);
            while let Some(place) = from {
                let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
                let until = place.saturating_add(BATCH).min(shard.entries.len());
                let some = shard.entries.get(place..until).unwrap_or_default().iter().flatten();
                let rows: Vec<UnsettledRow> = some
                    .filter(|(id, _)| ids.contains(id))
                    .filter_map(|(id, entry)| entry.row(*id, live, saved_ns))
                    .collect();
                from = (until < shard.entries.len()).then_some(until);
                drop(shard);
                write(&rows)?;
            }
        }
        Ok(())
    }
}

fn settled_row((id, names): (u64, u64), left_ns: u64, outcome: &Outcome) -> Option<SettledRow> {
    let Outcome { permits, usages, verdicts, parts } = outcome;
    let verdicts = verdicts.iter().map(|verdict| SavedVerdict::of(*verdict));
    let parts = parts.iter().map(|PartVerdict { at, rule, verdict, saturated }| {
        Some((*at, rule.to_string(), SavedVerdict::of(*verdict)?, *saturated))
    });
    Some(SettledRow {
        id,
        names,
        left_ns,
        permits: permits.to_vec(),
        usages: usages.clone(),
        verdicts: verdicts.collect::<Option<_>>()?,
        parts: parts.collect::<Option<_>>()?,
    })
}

impl<C: Clock + Clone + 'static> Entry<C> {
    /// Returns its row, unless nothing of what it holds can be saved.
    fn row(&self, id: UniqueId, live: Option<&Live<C>>, saved_ns: u64) -> Option<UnsettledRow> {
        let (holds, all, is_over): (Vec<HeldRow>, usize, bool) = match &self.state {
            State::Open { holds } => {
                let rows = holds.iter().filter_map(|held| held.row(live, saved_ns));
                (rows.collect(), holds.len(), false)
            }
            State::Ended { held } => (held.iter().map(EndedHold::row).collect(), held.len(), true),
            State::Settled(_) => return None,
        };
        if holds.is_empty() && all > 0 {
            return None;
        }
        let left_ns = i128::from(self.due_ns).saturating_sub(saved_ns.into());
        Some(UnsettledRow {
            id: id.to_string(),
            names: self.names,
            permits: self.permits.to_vec(),
            usages: self.usages.clone(),
            left_ns: i64::try_from(left_ns).unwrap_or(i64::MAX),
            ttl_ns: self.ttl_ns,
            is_over,
            holds,
        })
    }
}

impl<C: Clock + Clone + 'static> HeldItem<C> {
    fn row(&self, live: Option<&Live<C>>, saved_ns: u64) -> Option<HeldRow> {
        let (of, held) = match self.held() {
            HeldPermits::Rule(rule, hold) => {
                let live = live?;
                let (index, _) = live.matcher.named(&rule.name)?;
                let table = live.ruled.get(index)?.counters.made()?;
                (HoldOwner::Rule(rule.name.to_string()), Some(table.save_hold(hold, saved_ns)?))
            }
            HeldPermits::Bucket(hold, numbers) => {
                let of = HoldOwner::Bucket(numbers.limit().words());
                (of, Some(numbers.save_hold(hold, saved_ns)?))
            }
            HeldPermits::Window(hold, numbers) => {
                let of = HoldOwner::Window(numbers.limit().words());
                (of, Some(numbers.save_hold(hold, saved_ns)?))
            }
            HeldPermits::InFlight { rule, .. } => {
                (HoldOwner::InFlight(rule.name.to_string()), None)
            }
        };
        let (at, alone, keeps) = (self.at(), self.alone(), self.keeps());
        Some(HeldRow { at, alone, keeps, of, permits: self.permits(), held })
    }
}

impl EndedHold {
    fn row(&self) -> HeldRow {
        let rule = self.rule.as_ref();
        let of = rule.map_or(HoldOwner::Call, |rule| HoldOwner::Rule(rule.name.to_string()));
        let (at, alone, permits) = (self.at(), self.alone(), self.permits);
        HeldRow { at, alone, keeps: false, of, permits, held: None }
    }
}
