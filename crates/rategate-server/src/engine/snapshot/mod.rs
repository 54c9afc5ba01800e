//! Counters that survive a restart: all tables of an engine in one file.
//!
//! # Contract
//!
//! * **Permits that were granted before a file was written are not granted again** by an engine
//!   that was restored from it, under the same rules. Those granted while it is written may be in
//!   it or not.
//! * **A file is complete or refused**: if foreign, of another version, incomplete, or changed in
//!   any bit. The old file or the new one exists at any moment, also after a kill in the middle of
//!   writing.
//! * **Rules are identified by their names.** One with a changed limit continues as after a
//!   reload. One with another kind of policy or other entries starts afresh, and is reported.
//! * **Time.** The engine's clock shows the time since 1970, so downtime counts as time passed,
//!   as far as [`Downtime`] permits. A clock that was set back earns nothing. Windows keep their
//!   position on the clock, unless less time is to count than has passed.
//! * **Reservations** that are open are not saved: the counters in a file count what they hold as
//!   used, and after a restart their ids are unknown. What had been settled before the first
//!   counter was written is remembered again.
//! * **Permits in flight** that a reservation holds are held again for the rest of its time. A lease
//!   ends with the process.
//! * **Losses are reported.**

mod error;
mod file;
mod in_flight;
mod keeper;
pub(super) mod rows;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rategate::Clock;
use rategate::policy::saved::RestoreContext;
use rategate::snapshot::{Downtime, SavedAt, SnapshotError};
use rategate_core::span::whole_ns;

pub(super) use self::error::TableError;
pub use self::error::{NotRestored, StateError, Unreadable};
use self::file::{Contents, Entry, Input, Output, TableOwner};
pub use self::keeper::{Keeper, KeeperSettings, KeeperStats, Saver};
use super::Engine;
use super::counters::ActiveRule;
use super::live::Live;
use crate::rule::Rule;

/// The size of a save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The number of keys that have not fully recovered.
    pub keys: u64,
    /// The number of bytes in the file.
    pub bytes: u64,
}

/// The result of a restore.
#[derive(Debug, Default)]
pub struct Restored {
    /// The number of keys that had been saved.
    pub keys: u64,
    /// The number of settled operations whose ids are known again.
    pub settled: u64,
    /// `true` if the process that wrote the file ended in order after that.
    pub is_of_orderly_end: bool,
    /// The rules that continue from saved counters.
    pub rules: Vec<Arc<str>>,
    /// The other rules, and the reasons. An inline limit has no name.
    pub others: Vec<(Arc<str>, NotRestored)>,
    /// `true` if the rules are those under which the file was saved.
    pub is_same_config: bool,
    /// The instant at which the save began, by the engine's clock.
    pub saved_at_ns: u64,
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Writes all counters that have not fully recovered, while requests continue.
    ///
    /// # Errors
    ///
    /// Returns [`SnapshotError`], after which the output is incomplete.
    pub fn save(&self, to: impl Write) -> Result<Saved, SnapshotError> {
        self.save_whole(to, false)
    }

    /// Writes all counters. `is_last` if no request comes after that.
    fn save_whole(&self, to: impl Write, is_last: bool) -> Result<Saved, SnapshotError> {
        let inner = &*self.inner;
        let live = inner.live.load_full();
        let config = live.as_ref().map(|live| live.set.hash.to_string()).unwrap_or_default();
        let clock_ns = inner.clock.now_ns();
        let in_flight = self.reserved_in_flight(live.as_deref());
        let reservations = &inner.reservations;
        let key = reservations.digest_key();
        let contents =
            Contents { config, clock_ns, in_flight, key, is_last, ..Contents::default() };
        let mut output = Output::new(to, contents)?;
        let (settled, ()) = output.section(|output| {
            reservations.each_settled(clock_ns, |some| rows::write(&mut *output, some))
        })?;
        output.contents.settled = settled;
        for ruled in live.iter().flat_map(|live| &live.ruled) {
            if let Some(table) = ruled.counters.made() {
                let of = of_rule(&ruled.rule);
                output.table(of, |output| table.save(output))?;
            }
        }
        for (table, limits) in inner.buckets.in_use() {
            output.table(TableOwner::Buckets(limits), |output| table.save(output))?;
        }
        for (table, limits) in inner.windows.in_use() {
            output.table(TableOwner::Windows(limits), |output| table.save(output))?;
        }
        Ok(output.finish()?)
    }

    /// Restores saved counters under the rules in force. To be called when they have been loaded,
    /// and before the first request. Returns `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// Returns [`StateError::Io`] or [`StateError::Unreadable`]: nothing has been restored then,
    /// but for tables before one that does not [fit](Unreadable::Table).
    pub fn restore(&self, path: &Path, downtime: Downtime) -> Result<Option<Restored>, StateError> {
        let fail = |doing| move |source| StateError::Io { doing, path: path.to_path_buf(), source };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail("open")(error)),
        };
        let unreadable = |why| StateError::Unreadable { path: path.to_path_buf(), why };
        let mut input = Input::new(file).map_err(unreadable)?;
        let contents = std::mem::take(&mut input.contents);
        let settled = input.section(contents.settled).map_err(Unreadable::Io);
        let settled = settled.and_then(rows::read).map_err(unreadable)?;
        let inner = &*self.inner;
        let live = inner.live.load_full();
        // One instant for all tables, so that none is ahead of another.
        let now_ns = inner.clock.now_ns();
        let config = live.as_ref().map(|live| &*live.set.hash).unwrap_or_default();
        let mut restored = Restored {
            is_same_config: config == contents.config,
            saved_at_ns: contents.clock_ns,
            is_of_orderly_end: contents.is_last,
            ..Restored::default()
        };
        for Entry { of, place, keys } in contents.tables {
            let table = input.section(place).map_err(fail("read"))?;
            let since = |saved_at: &SavedAt| since(now_ns, saved_at.clock_ns(), downtime);
            let (name, outcome) = match of {
                TableOwner::Rule { name, entries } => {
                    let outcome = self.restore_rule(live.as_deref(), &name, &entries, table, since);
                    (name, outcome)
                }
                TableOwner::Buckets(limits) => {
                    (String::new(), inner.buckets.restore(&limits, table, since))
                }
                TableOwner::Windows(limits) => {
                    (String::new(), inner.windows.restore(&limits, table, since))
                }
            };
            match outcome {
                Ok(()) => {
                    restored.keys = restored.keys.saturating_add(keys);
                    restored.rules.extend((!name.is_empty()).then(|| name.into()));
                }
                Err(TableError::Left(why)) => restored.others.push((name.into(), why)),
                Err(TableError::Misfit(source)) => {
                    let of = match &*name {
                        "" => "inline limits".to_owned(),
                        name => format!("the rule `{name}`"),
                    };
                    return Err(unreadable(Unreadable::Table { of, source }));
                }
            }
        }
        let since = since(now_ns, contents.clock_ns, downtime);
        let lost = Self::hold_again(live.as_deref(), contents.in_flight, since.elapsed_ns);
        restored.others.extend(lost);
        if inner.reservations.restore_digests(contents.key) {
            let (known, ids) = inner.reservations.remember(settled, since);
            restored.settled = known;
            restored.others.extend((ids > 0).then(|| ("".into(), NotRestored::Ids { ids })));
        } else {
            restored.others.push(("".into(), NotRestored::InUse));
        }
        Ok(Some(restored))
    }

    /// Takes over the key by which a file knows its ids. To be called before the first request
    /// where requests come before [`restore`](Self::restore): the first of them that has an id
    /// would draw another key, under which no id of the file is known. A file that cannot be read
    /// is left to that call to report.
    pub fn restore_key(&self, path: &Path) {
        let input = File::open(path).ok().and_then(|file| Input::new(file).ok());
        if let Some(input) = input {
            self.inner.reservations.restore_digests(input.contents.key);
        }
    }

    fn restore_rule(
        &self,
        live: Option<&Live<C>>,
        name: &str,
        entries: &[(String, bool)],
        table: impl Read,
        since: impl FnOnce(&SavedAt) -> RestoreContext,
    ) -> Result<(), TableError> {
        let ruled = named(live, name).ok_or(NotRestored::NoSuchRule)?;
        if of_rule(&ruled.rule)
            != (TableOwner::Rule { name: name.to_owned(), entries: entries.to_vec() })
        {
            return Err(NotRestored::OtherEntries.into());
        }
        let counters = &ruled.counters;
        // A rule that is unlimited at this hour counts at others.
        let later = ruled.rule.schedule.iter().find_map(|scheduled| scheduled.limit.policy());
        counters.restore(&self.inner.clock, later, table, since)
    }
}

fn named<'a, C: Clock + Clone>(live: Option<&'a Live<C>>, name: &str) -> Option<&'a ActiveRule<C>> {
    let live = live?;
    live.ruled.get(live.matcher.named(name)?.0)
}

/// Returns the time that counts as passed since the save. The clock is the one that decides
/// limits, in this process and in the previous one.
fn since(now_ns: u64, saved_ns: u64, downtime: Downtime) -> RestoreContext {
    let by_clock_ns = now_ns.saturating_sub(saved_ns);
    let elapsed_ns = match downtime {
        Downtime::Wall => by_clock_ns,
        Downtime::AtMost(max_downtime) => by_clock_ns.min(whole_ns(max_downtime)),
        Downtime::Exactly(passed) => whole_ns(passed),
    };
    RestoreContext { now_ns, elapsed_ns }
}

fn of_rule(rule: &Rule) -> TableOwner {
    let entries = rule.counter_entries();
    let entries = entries.map(|(key, varies)| (key.to_string(), varies)).collect();
    TableOwner::Rule { name: rule.name.to_string(), entries }
}
