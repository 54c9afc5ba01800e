//! Permits in flight, each under the id of its lease or reservation, until they expire.

use std::collections::{BTreeMap, BTreeSet};

/// The id of a holder: a lease and a reservation of one name are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HolderId {
    Lease([u8; 16]),
    Reservation([u8; 16]),
}

/// A holder's id and its number of permits: another number is another holder.
type Holder = (HolderId, u64);

/// The leases of one limit, with their expiry. A reservation is one with a time of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    until_ns: BTreeMap<Holder, u64>,
    by_end: BTreeSet<(u64, Holder)>,
    /// The permits of all leases listed, expired or not.
    listed: u64,
}

impl Leases {
    /// Returns the permits of leases that have not expired.
    pub(super) fn held(&self, now_ns: u64) -> u64 {
        let over = self.by_end.iter().take_while(|(until_ns, _)| *until_ns <= now_ns);
        let over = over.fold(0, |sum: u64, (_, (_, permits))| sum.saturating_add(*permits));
        self.listed.saturating_sub(over)
    }

    /// Returns the wait until `permits` fit under `capacity`, if no lease is renewed.
    ///
    /// It is 0 if they fit now, and `None` if they never will.
    pub(super) fn wait_ns(&self, now_ns: u64, permits: u64, capacity: u64) -> Option<u64> {
        let mut excess = self.held(now_ns).saturating_add(permits).saturating_sub(capacity);
        if excess == 0 {
            return Some(0);
        }
        for (until_ns, (_, permits)) in self.by_end.iter().filter(|(until, _)| *until > now_ns) {
            excess = excess.saturating_sub(*permits);
            if excess == 0 {
                return Some(until_ns.saturating_sub(now_ns));
            }
        }
        None
    }

    /// Returns `true` if this lease is held.
    pub(super) fn has(&self, now_ns: u64, id: HolderId, permits: u64) -> bool {
        self.until_ns.get(&(id, permits)).is_some_and(|&until_ns| until_ns > now_ns)
    }

    /// Adds or renews a lease until `until_ns`.
    pub(super) fn hold(&mut self, now_ns: u64, id: HolderId, permits: u64, until_ns: u64) {
        self.expire_before(now_ns);
        self.end(id, permits);
        self.until_ns.insert((id, permits), until_ns);
        self.by_end.insert((until_ns, (id, permits)));
        self.listed = self.listed.saturating_add(permits);
    }

    /// Ends a lease. Returns `true` if it had not expired.
    pub(super) fn release(&mut self, now_ns: u64, id: HolderId, permits: u64) -> bool {
        self.expire_before(now_ns);
        self.end(id, permits)
    }

    /// Removes expired leases. Returns `true` if none is left.
    pub(super) fn expire_before(&mut self, now_ns: u64) -> bool {
        while let Some((until_ns, (id, permits))) = self.by_end.first().copied() {
            if until_ns > now_ns {
                return false;
            }
            self.end(id, permits);
        }
        true
    }

    fn end(&mut self, id: HolderId, permits: u64) -> bool {
        let holder = (id, permits);
        let Some(until_ns) = self.until_ns.remove(&holder) else { return false };
        self.by_end.remove(&(until_ns, holder));
        self.listed = self.listed.saturating_sub(permits);
        true
    }
}
