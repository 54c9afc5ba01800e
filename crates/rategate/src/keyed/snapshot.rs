//! Saves and restores a table of keys: a stream of records, one for each key not fully
//! recovered.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::saved::{RestoreContext, RestoreTarget, Saved, restore as restored, save_state};

use super::Keyed;
use super::capacity::Capacity;
use super::entries::EntryForm;
use super::key::{Hashing, Id, Key, Seeds};
use super::policy_versions::PolicyVersions;
use super::table::Table;
use super::table::section::KeySection;
use crate::clock::{Clock, MonotonicClock};
use crate::limiter::Limiter;
use crate::snapshot::{
    Downtime, Header, Record, SavedAt, SnapshotError, SnapshotReader, SnapshotWriter, encoded,
};

/// A table's own record: whether its hash function is the fast one, two seeds, and the words of a
/// key.
type Own = (bool, [u64; 2], usize);

impl<K: Key + ?Sized, C: Clock + Clone> Keyed<K, C> {
    /// Writes all keys that have not fully recovered, while calls go on. Returns their number.
    ///
    /// A key takes some 20 bytes plus its id, and is written as it is at some instant during the
    /// call.
    ///
    /// The seeds of the hashes are written too: a reader of the file can make keys that collide.
    ///
    /// ```
    /// use rategate::snapshot::Downtime;
    /// use rategate::keyed::Capacity;
    /// use rategate::{Gcra, Keyed};
    ///
    /// let hourly = Gcra::per_hour(2).burst(2);
    /// let per_caller: Keyed<str> = Keyed::new(hourly);
    /// assert!(per_caller.try_acquire("10.0.0.7", 2)?.is_granted());
    /// let mut file = Vec::new();
    /// assert_eq!(per_caller.save(&mut file)?, 1);
    ///
    /// let restored: Keyed<str> =
    ///     Keyed::restore(hourly, Capacity::default(), file.as_slice(), Downtime::Wall)?;
    /// assert!(!restored.try_acquire("10.0.0.7", 1)?.is_granted(), "a restart earns nothing");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Io`], after which the output has no end mark and cannot be restored.
    pub fn save(&self, output: impl Write) -> Result<u64, SnapshotError> {
        self.table.save(output)
    }

    /// Restores a table with tiers on a clock of the caller's own.
    ///
    /// The clock should show [as much as the old one would](SavedAt::going_on). `policies` are
    /// those of the tiers, as many as there were; changed limits come into force now. `tier_of` is
    /// that of [`with_tiers`](Self::with_tiers).
    ///
    /// # Errors
    ///
    /// [`SnapshotError`]: nothing is restored of an incomplete file. [`SnapshotError::OtherCount`]
    /// for another number of tiers, [`SnapshotError::OtherKeys`] for keys of another kind,
    /// [`SnapshotError::TableFull`] for a table that is too small for all.
    pub fn restore_with_tiers(
        policies: impl IntoIterator<Item = impl Into<AnyPolicy>>,
        tier_of: impl Fn(&K) -> usize + Send + Sync + 'static,
        capacity: Capacity,
        clock: C,
        input: impl Read,
        downtime: Downtime,
    ) -> Result<Self, SnapshotError> {
        let on_clock = move |saved_at: &SavedAt| (saved_at.on_clock(&clock, downtime), clock);
        let table =
            restore(policies.into_iter().map(Into::into).collect(), capacity, input, on_clock)?;
        Ok(Self { table: Arc::new(table), tier: Some(Arc::new(tier_of)), name: None })
    }

    /// Restores a table at an instant of the new clock that the caller chooses.
    ///
    /// `since` returns which instant continues from the instant of saving. This is for clocks that
    /// outlive the process, such as one that shows the time since 1970. Windows stay where they
    /// were on it.
    ///
    /// # Errors
    ///
    /// As [`restore_with_tiers`](Self::restore_with_tiers).
    pub fn restore_since(
        policies: impl IntoIterator<Item = impl Into<AnyPolicy>>,
        tier_of: Option<impl Fn(&K) -> usize + Send + Sync + 'static>,
        capacity: Capacity,
        clock: C,
        input: impl Read,
        since: impl FnOnce(&SavedAt) -> RestoreContext,
    ) -> Result<Self, SnapshotError> {
        let on_clock = move |saved_at: &SavedAt| (since(saved_at), clock);
        let table =
            restore(policies.into_iter().map(Into::into).collect(), capacity, input, on_clock)?;
        let tier = tier_of.map(|tier_of| -> Arc<super::TierOf<K>> { Arc::new(tier_of) });
        Ok(Self { table: Arc::new(table), tier, name: None })
    }

    /// Restores a table without tiers on a clock of the caller's own.
    ///
    /// # Errors
    ///
    /// As [`restore_with_tiers`](Self::restore_with_tiers).
    pub fn restore_with_clock(
        policy: impl Into<AnyPolicy>,
        capacity: Capacity,
        clock: C,
        input: impl Read,
        downtime: Downtime,
    ) -> Result<Self, SnapshotError> {
        let on_clock = move |saved_at: &SavedAt| (saved_at.on_clock(&clock, downtime), clock);
        let table = restore(vec![policy.into()], capacity, input, on_clock)?;
        Ok(Self { table: Arc::new(table), tier: None, name: None })
    }
}

impl<K: Key + ?Sized> Keyed<K> {
    /// Restores a table in real time. Its clock continues where the old one was left, after
    /// `downtime`.
    ///
    /// # Errors
    ///
    /// As [`restore_with_tiers`](Self::restore_with_tiers).
    pub fn restore(
        policy: impl Into<AnyPolicy>,
        capacity: Capacity,
        input: impl Read,
        downtime: Downtime,
    ) -> Result<Self, SnapshotError> {
        let going_on = |saved_at: &SavedAt| {
            let since = saved_at.going_on(downtime);
            (since, MonotonicClock::starting_at(Duration::from_nanos(since.now_ns)))
        };
        let table = restore(vec![policy.into()], capacity, input, going_on)?;
        Ok(Self { table: Arc::new(table), tier: None, name: None })
    }
}

impl<I: Id, C: Clock + Clone> Table<I, C> {
    fn save(&self, output: impl Write) -> Result<u64, SnapshotError> {
        // The output may be slow, so no lock is held during a write.
        let header = TableHeader::of(&self.policy_versions());
        let saved_at = SavedAt::now(self.clock.now_ns());
        let policies = header.policies.iter().copied();
        let mut writer = SnapshotWriter::new(output, Header::new(saved_at, policies))?;
        let is_fast = self.seeds.hashing() == Hashing::Fast;
        let own: Own = (is_fast, self.seeds.words(), I::WORDS);
        let state = encoded(&own, Vec::new())?;
        writer.write(&Record { key: Vec::new(), policy: 0, state })?;
        let (mut keys, mut records, mut limiters) = (0_u64, Vec::new(), Vec::new());
        for shard in 0..self.shards() {
            self.copy_shard(shard, &header, saved_at.clock_ns(), &mut records, &mut limiters);
            for (mut record, limiter) in limiters.drain(..) {
                for saved in save_limiter(&limiter, saved_at.clock_ns()) {
                    record.state = saved.state;
                    records.push((record.clone(), Some(saved.policy)));
                }
            }
            for (mut record, policy) in records.drain(..) {
                if let Some(policy) = policy {
                    header.translate(&mut record, policy, saved_at.clock_ns())?;
                }
                writer.write(&record)?;
                keys = keys.saturating_add(1);
            }
        }
        writer.finish()?;
        Ok(keys)
    }

    /// Copies the states of a shard, with their limits where these differ from those of the
    /// header.
    ///
    /// Limiters are read later, when the lock is free.
    fn copy_shard(
        &self,
        shard: usize,
        header: &TableHeader,
        saved_ns: u64,
        records: &mut Vec<(Record, Option<AnyPolicy>)>,
        limiters: &mut Vec<(Record, Limiter<C>)>,
    ) {
        // Holding the policies' lock excludes a change halfway through.
        let policy_versions = self.policy_versions();
        let changed = |policy: AnyPolicy| (policy_versions.made() != header.made).then_some(policy);
        let mut entries = self.lock(shard);
        let now_ns = self.fresh_slots(shard, entries.latest_ns.max(self.clock.now_ns()));
        let (before, after) = entries.end_holds(now_ns);
        self.account(before, after);
        let record = |id: I, tier: usize| Record {
            key: key_bytes(id),
            policy: u32::try_from(tier).unwrap_or(u32::MAX),
            state: Vec::new(),
        };
        for entry in entries.all() {
            let Some(version) = entries.policy_versions.get(entry.version) else { continue };
            let mut record = record(entry.id, version.tier);
            match &entry.form {
                EntryForm::State(limit) => save_state(limit, saved_ns, &mut record.state),
                EntryForm::Ledger(ledger) => {
                    for saved in ledger.save(saved_ns) {
                        let record = Record { state: saved.state, ..record.clone() };
                        records.push((record, Some(saved.policy)));
                    }
                    continue;
                }
                EntryForm::Limiter(limiter) => {
                    limiters.push((record, limiter.clone()));
                    continue;
                }
                EntryForm::Taken => continue,
            }
            records.push((record, changed(version.policy)));
        }
        let Some(slots) = &self.slots else { return };
        slots.each(shard, |id: I, version, value| {
            let Some(version) = entries.policy_versions.get(version) else { return };
            let Some(limit) = Member::unpack(version.policy, value, now_ns) else { return };
            if !limit.is_as_fresh(now_ns) {
                let mut record = record(id, version.tier);
                save_state(&limit, saved_ns, &mut record.state);
                records.push((record, changed(version.policy)));
            }
        });
    }
}

/// The policy of each tier when the save began, as the header states it.
struct TableHeader {
    policies: Vec<AnyPolicy>,
    made: u32,
}

impl TableHeader {
    fn of(policy_versions: &PolicyVersions) -> Self {
        let policies = policy_versions.in_force().map(|(_, version)| version.policy);
        Self { policies: policies.collect(), made: policy_versions.made() }
    }

    /// Restates a limit that changed during the save under the limits of the header.
    ///
    /// It counts as one more change: the key may have less afterwards, never more.
    fn translate(
        &self,
        record: &mut Record,
        own: AnyPolicy,
        saved_ns: u64,
    ) -> Result<(), SnapshotError> {
        let tier = usize::try_from(record.policy).unwrap_or(usize::MAX);
        match self.policies.get(tier) {
            Some(policy) if *policy != own => {
                let saved = Saved { policy: own, state: std::mem::take(&mut record.state) };
                let since = RestoreContext { now_ns: saved_ns, elapsed_ns: 0 };
                let restored = restored(*policy, &[saved], since)?.save(saved_ns);
                record.state = restored.into_iter().flat_map(|saved| saved.state).collect();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn save_limiter<C: Clock>(limiter: &Limiter<C>, saved_ns: u64) -> Vec<Saved> {
    let shared = limiter.shared();
    shared.section_even_if_closed(|section| section.change(|limit, _| limit.save(saved_ns)))
}

/// Reads a whole table before any caller sees it.
fn restore<I: Id, C: Clock + Clone>(
    policies: Vec<AnyPolicy>,
    capacity: Capacity,
    input: impl Read,
    clock_of: impl FnOnce(&SavedAt) -> (RestoreContext, C),
) -> Result<Table<I, C>, SnapshotError> {
    let mut reader = SnapshotReader::new(input)?;
    let saved = reader.header().policies().to_vec();
    if saved.len() != policies.len() {
        return Err(SnapshotError::OtherCount { found: saved.len(), policies: policies.len() });
    }
    let targets =
        policies.iter().zip(saved).map(|(policy, saved)| RestoreTarget::new(*policy, saved));
    let targets: Vec<RestoreTarget> = targets.collect::<Result<_, _>>()?;
    let seeds = match reader.next().transpose()? {
        Some(record) if record.key.is_empty() => seeds_of::<I>(&record.state)?,
        _ => return Err(SnapshotError::OtherKeys),
    };
    let (since, clock) = clock_of(reader.header().saved_at());
    let table = Table::new(policies, capacity, seeds, clock);
    table.clock.note(since.now_ns);
    for record in reader {
        let record = record?;
        let tier = usize::try_from(record.policy).unwrap_or(usize::MAX);
        let (Some(id), Some(target)) = (id_of(&record.key), targets.get(tier)) else {
            return Err(SnapshotError::OtherKeys);
        };
        let ledger = target.limit(&record.state, since)?;
        let location = table.location(id, tier);
        let mut entries = table.lock(location.shard);
        let mut late = Vec::new();
        let mut section = KeySection::at(&table, &mut entries, location, &mut late);
        section.begin(since.now_ns);
        if !section.restore(ledger) {
            return Err(SnapshotError::TableFull { keys: capacity.max_keys });
        }
    }
    Ok(table)
}

fn seeds_of<I: Id>(own: &[u8]) -> Result<Seeds, SnapshotError> {
    match postcard::take_from_bytes::<Own>(own) {
        Ok(((is_fast, seeds, key_words), [])) if key_words == I::WORDS => {
            let hashing = if is_fast { Hashing::Fast } else { Hashing::FloodSafe };
            Ok(Seeds::from_words(hashing, seeds))
        }
        _ => Err(SnapshotError::OtherKeys),
    }
}

fn key_bytes<I: Id>(id: I) -> Vec<u8> {
    (0..I::WORDS).flat_map(|index| id.word(index).to_le_bytes()).collect()
}

fn id_of<I: Id>(key: &[u8]) -> Option<I> {
    let (words, rest) = key.as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    let id = [words.next(), words.next()];
    let has = id.iter().flatten().count();
    if has != I::WORDS || !rest.is_empty() || words.next().is_some() {
        return None;
    }
    Some(I::of(id.map(|word| word.unwrap_or(0))))
}
