//! A deny list in a store, which publishes new entries and republishes those that the store lost.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::time::{Duration, Instant};

use rategate::store::{StoreError, Unavailable};
use rategate_redis::client::denied::{LIST_WITHIN, PendingReply};
use rategate_redis::client::{Config, RedisStore};
use rategate_redis::denied::{Fetched, Listed, MAX_LISTED, Published, Version};

use super::location::Address;
use super::{Ends, Notice};
use crate::{AnalyzeError, SECOND_NS};

/// The interval between checks that the store still has the list.
const FETCH_INTERVAL: Duration = Duration::from_secs(1);
/// The time the analysis waits for a reply before it continues without.
const PATIENCE: Duration = Duration::from_millis(50);
/// The environment variable for a password that the address does not have, as `redis-cli` uses
/// it.
const PASSWORD: &str = "REDISCLI_AUTH";

/// The entries of this run on a list in a store. Others may publish to the same list.
///
/// There is one pending request at a time, and the analysis continues meanwhile.
#[derive(Debug)]
pub(super) struct RedisList {
    store: RedisStore,
    address: Address,
    notice: Notice,
    max_entries: usize,
    /// The callers whose end was not sent to the store, or may have been lost there.
    unsent: BTreeSet<Box<[u8]>>,
    under_way: Option<ListOperation>,
    /// The version of the list in which all expected callers were found.
    known: Version,
    fetch_at: Instant,
    is_unavailable: bool,
    /// The number of entries the store left out.
    left_out: u64,
}

#[derive(Debug)]
enum ListOperation {
    Publish(PendingReply<Published>, Vec<Box<[u8]>>),
    Fetch(PendingReply<Option<Fetched>>),
}

impl RedisList {
    /// Opens the store. An unreachable store is reported, and may come back; one that refuses
    /// this client is an error.
    pub(super) fn open(
        address: Address,
        max_entries: usize,
        notice: Notice,
    ) -> Result<Self, AnalyzeError> {
        let mut config = Config::server(address.server.clone()).prefix(&address.prefix).queue(16);
        if let Some(user) = &address.user {
            config = config.user(user);
        }
        let from_outside = || std::env::var(PASSWORD).ok().filter(|password| !password.is_empty());
        if let Some(password) = address.password.clone().or_else(from_outside) {
            config = config.password(&password);
        }
        let store =
            RedisStore::open(config).map_err(|error| failure(&address, error.to_string()))?;
        let mut redis_list = Self {
            store,
            address,
            notice,
            max_entries: max_entries.min(MAX_LISTED),
            unsent: BTreeSet::new(),
            under_way: None,
            known: Version::NONE,
            fetch_at: Instant::now(),
            is_unavailable: false,
            left_out: 0,
        };
        let fetched =
            redis_list.store.fetch_denied(redis_list.address.list.as_bytes(), Version::NONE).wait();
        match fetched {
            Err(StoreError::Unavailable(Unavailable::Broken(why))) => {
                return Err(failure(&redis_list.address, why));
            }
            Err(fault) => redis_list.mark_unavailable(&fault),
            Ok(_) => {}
        }
        Ok(redis_list)
    }

    /// Returns the maximum number of callers on the list.
    pub(super) const fn max_entries(&self) -> usize {
        self.max_entries
    }

    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Marks a caller's end as unpublished.
    pub(super) fn news(&mut self, name: &[u8]) {
        self.unsent.insert(name.into());
    }

    /// Updates the store, without waiting for long. Returns `true` if it is up to date.
    pub(super) fn publish(&mut self, ends: &Ends, now_ns: u64) -> bool {
        self.publish_within(
            if self.is_unavailable { Duration::ZERO } else { PATIENCE },
            ends,
            now_ns,
        );
        self.is_up_to_date()
    }

    /// Updates the store at the end of the run: waits as long as a request may take, and reports
    /// missing entries.
    pub(super) fn finish(&mut self, ends: &Ends, now_ns: u64) -> bool {
        // Twice, for entries that a fetch has found missing.
        for _ in 0..2 {
            self.publish_within(LIST_WITHIN.saturating_mul(2), ends, now_ns);
            if self.is_unavailable || self.is_up_to_date() {
                break;
            }
        }
        let missing = self.unsent.len();
        if !self.is_up_to_date() {
            (self.notice)(&format!("{}: {missing} callers were not published", self.address));
        }
        self.is_up_to_date()
    }

    fn is_up_to_date(&self) -> bool {
        !self.is_unavailable
            && self.unsent.is_empty()
            && !matches!(self.under_way, Some(ListOperation::Publish(..)))
    }

    fn publish_within(&mut self, patience: Duration, ends: &Ends, now_ns: u64) {
        // First a fetch, if one is due, and then the new and the missing entries.
        for _ in 0..2 {
            if !self.receive(patience, ends, now_ns) {
                return;
            }
            self.send(ends, now_ns);
        }
        self.receive(patience, ends, now_ns);
    }

    /// Sends the next request. While the store is unavailable that is a fetch.
    fn send(&mut self, ends: &Ends, now_ns: u64) {
        let (now, list) = (Instant::now(), self.address.list.as_bytes());
        if self.is_unavailable || self.fetch_at <= now {
            self.fetch_at = now.checked_add(FETCH_INTERVAL).unwrap_or(now);
            self.under_way = Some(ListOperation::Fetch(self.store.fetch_denied(list, self.known)));
            return;
        }
        let names: Vec<_> = std::mem::take(&mut self.unsent).into_iter().collect();
        let entries = names.iter().filter_map(|name| {
            let left_ns = ends.get(name)?.saturating_mul(SECOND_NS).saturating_sub(now_ns);
            (left_ns > 0).then(|| Listed { name: name.to_vec(), left_ns })
        });
        let entries: Vec<Listed> = entries.collect();
        if !entries.is_empty() {
            let reply = self.store.extend_denied(list, &entries, self.max_entries);
            self.under_way = Some(ListOperation::Publish(reply, names));
        }
    }

    /// Processes a pending reply, if it comes within `patience`. Returns `true` if no request is
    /// pending any more.
    fn receive(&mut self, patience: Duration, ends: &Ends, now_ns: u64) -> bool {
        let result = match &self.under_way {
            None => return true,
            Some(ListOperation::Publish(reply, _)) => reply.wait_for(patience).map(|result| {
                result.map(|published| {
                    self.left_out = self.left_out.saturating_add(published.left_out);
                    None
                })
            }),
            // An unchanged list comes without entries, as `None`. Version `NONE` is also that of
            // an empty list, so a `None` for it means that the list is empty.
            Some(ListOperation::Fetch(reply)) => reply.wait_for(patience).map(|result| {
                let is_empty = self.known == Version::NONE;
                let nothing = Fetched { version: Version::NONE, entries: Vec::new() };
                result.map(|found| found.or_else(|| is_empty.then_some(nothing)))
            }),
        };
        let Some(result) = result else { return false };
        let operation = self.under_way.take();
        match result {
            Ok(found) => {
                self.mark_available(ends);
                if let Some(found) = found {
                    self.compare(&found, ends, now_ns);
                }
            }
            Err(fault) => {
                if let Some(ListOperation::Publish(_, names)) = operation {
                    self.unsent.extend(names);
                }
                self.mark_unavailable(&fault);
            }
        }
        true
    }

    /// Marks callers that are missing on the list as unpublished: the store, or another client,
    /// has dropped them. A full list has dropped them for others.
    fn compare(&mut self, found: &Fetched, ends: &Ends, now_ns: u64) {
        self.known = found.version;
        if found.entries.len() >= self.max_entries {
            return;
        }
        let there: HashSet<&[u8]> = found.entries.iter().map(|entry| &*entry.name).collect();
        let lost = ends.iter().filter(|(name, until_s)| {
            until_s.saturating_mul(SECOND_NS) > now_ns && !there.contains(&***name)
        });
        self.unsent.extend(lost.map(|(name, _)| name.clone()));
    }

    fn mark_unavailable(&mut self, fault: &StoreError) {
        if !self.is_unavailable {
            (self.notice)(&format!(
                "{}: {fault}; the analysis goes on, and all is published once the store is back",
                self.address
            ));
        }
        self.is_unavailable = true;
    }

    fn mark_available(&mut self, ends: &Ends) {
        if self.is_unavailable {
            (self.notice)(&format!("{}: the store is back", self.address));
            self.unsent.extend(ends.keys().cloned());
        }
        self.is_unavailable = false;
    }
}

fn failure(address: &Address, why: impl Into<String>) -> AnalyzeError {
    AnalyzeError::Io(address.to_string(), io::Error::other(why.into()))
}
