//! Saves holds of keys beside their table, and adopts them in the table that was restored.

use rategate_core::concurrent::HasLockFree;
use rategate_core::holds;
use rategate_core::ledger::Ledger;
use rategate_core::portable::{Portable, RestoreContext};
use rategate_core::saved;

use super::Keyed;
use super::entries::EntryForm;
use super::key::{Id, Key};
use super::section::{KeySection, SectionResult};
use super::table::Table;
use crate::clock::Clock;
use crate::hold::{Hold, KeyName};
use crate::snapshot::SavedHold;

impl<K: Key + ?Sized, P, C> Keyed<K, P, C>
where
    P: HasLockFree<State: Send> + Portable + Send + Sync + 'static,
    C: Clock + Clone + 'static,
{
    /// Returns a hold of a key in plain data, with instants relative to `saved_ns` of the table's
    /// clock. Returns `None` if it is of another table, or of the limit that keys share which find
    /// no capacity.
    ///
    /// A [saved](Self::save) table counts as taken what was held meanwhile. It can
    /// [adopt](Self::adopt_holds) the holds that began before it was saved, and still last after
    /// that. One that has ended is adopted as one that has ended.
    #[must_use]
    pub fn save_hold(&self, hold: &Hold<P, C>, saved_ns: u64) -> Option<SavedHold> {
        let (name, own) = hold.of_table(&self.table)?;
        let saved = self.table.save_hold(name, own, saved_ns)?;
        Some(SavedHold::new((name.id, name.tier), own.permits, saved))
    }

    /// Holds again what was saved beside this table, before the first call. Returns the holds in
    /// the order of `saved`, or `None` for those that are not of this table's policy, or find no
    /// capacity.
    ///
    /// Their permits are taken in this table already. Each ends as it would have in the one that
    /// was saved. What is not adopted stays taken. `since` says which instant continues from that
    /// of [`save_hold`](Self::save_hold).
    #[must_use]
    pub fn adopt_holds(
        &self,
        saved: &[SavedHold],
        since: RestoreContext,
    ) -> Vec<Option<Hold<P, C>>> {
        let mut order: Vec<usize> = (0..saved.len()).collect();
        order.sort_by_cached_key(|&at| saved.get(at).map(SavedHold::place));
        let key = |at: &usize| saved.get(*at).map(|saved| (saved.key, saved.tier));
        let mut adopted: Vec<Option<Hold<P, C>>> = saved.iter().map(|_| None).collect();
        for of_key in order.chunk_by(|one, other| key(one) == key(other)) {
            let all: Vec<&SavedHold> = of_key.iter().filter_map(|&at| saved.get(at)).collect();
            let Some(first) = all.first() else { continue };
            let name = KeyName { id: first.key, tier: first.tier };
            let held = self.table.adopt_holds(name, &all, since);
            for (&at, held) in of_key.iter().zip(held) {
                if let (Some(slot), Some(held)) = (adopted.get_mut(at), held) {
                    *slot = Some(Hold::of_key(self.table.clone(), name, held));
                }
            }
        }
        adopted
    }
}

impl<I: Id, P: HasLockFree + Portable, C: Clock + Clone> Table<I, P, C> {
    /// Returns what is held of a key, or `Some(None)` if that has ended.
    #[expect(
        clippy::option_option,
        reason = "a key that cannot be asked, or a hold that has ended"
    )]
    fn save_hold(
        &self,
        name: KeyName,
        hold: holds::Hold,
        saved_ns: u64,
    ) -> Option<Option<saved::SavedHold>> {
        let location = self.named(name);
        match self.section(&location, |section| section.save_hold(hold, saved_ns)).ok()? {
            None => Some(None),
            Some(SectionResult::Here(saved)) => Some(saved),
            Some(SectionResult::Delegate(limiter)) => {
                let shared = limiter.shared();
                Some(shared.section_even_if_closed(|section| {
                    section.change(|limit, _| limit.save_hold(saved_ns, hold))
                }))
            }
            Some(SectionResult::TableFull | SectionResult::NoBytes) => None,
        }
    }

    /// Adopts holds of one key, in the order in which they were made.
    fn adopt_holds(
        &self,
        name: KeyName,
        saved: &[&SavedHold],
        since: RestoreContext,
    ) -> Vec<Option<holds::Hold>> {
        let location = self.named(name);
        let adopted = self.section(&location, |section| section.adopt_holds(saved, since));
        match adopted {
            Ok(Some(SectionResult::Here(adopted))) => adopted,
            _ => Vec::new(),
        }
    }
}

impl<I: Id, P: HasLockFree + Portable, C: Clock + Clone> KeySection<'_, I, P, C> {
    /// Returns `None` if the key is unknown, and with it the hold.
    fn save_hold(
        &mut self,
        hold: holds::Hold,
        saved_ns: u64,
    ) -> Option<SectionResult<Option<saved::SavedHold>, P, C>> {
        let Some(at) = self.load_entry() else {
            // No permits are held without a trace.
            let (_, version) = self.entries.policy_versions.of_tier(self.location.tier)?;
            let fresh = Ledger::new(version.policy.clone(), self.now_ns);
            return fresh.save_hold(saved_ns, hold).map(Some).map(SectionResult::Here);
        };
        let (version, form) = self.version_and_form(at)?;
        Some(match form {
            EntryForm::Ledger(ledger) => SectionResult::Here(ledger.save_hold(saved_ns, hold)),
            EntryForm::Limiter(limiter) => SectionResult::Delegate(limiter.clone()),
            EntryForm::State(_) => {
                let fresh = Ledger::new(version.policy.clone(), 0);
                SectionResult::Here(fresh.save_hold(saved_ns, hold))
            }
            EntryForm::Taken => SectionResult::TableFull,
        })
    }

    fn adopt_holds(
        &mut self,
        saved: &[&SavedHold],
        since: RestoreContext,
    ) -> Option<SectionResult<Vec<Option<holds::Hold>>, P, C>> {
        // A key that has recovered was not saved, or not restored.
        if self.load_entry().is_none() && !self.admit_fresh() {
            return None;
        }
        self.on_ledger(|ledger, now_ns| {
            // All of them before any other operation, which could end the first.
            let adopted = saved.iter().map(|saved| match saved.held() {
                Some(held) => ledger.adopt_hold(since, &held).ok(),
                None => Some(holds::Hold::ended(saved.permits(), now_ns)),
            });
            adopted.collect()
        })
    }
}
