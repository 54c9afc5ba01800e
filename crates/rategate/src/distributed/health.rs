//! The status of the store as a node sees it, with each change reported once.

use std::time::Duration;

use crate::store::{StoreStatus, Unavailable};

/// The status of a limiter's store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The worst status of any part of the store.
    ///
    /// Other than at [`StoreStatus::Healthy`], calls are decided by [the
    /// fallback](super::OnUnavailable), once borrowed permits are used up.
    pub store_status: StoreStatus,
    /// The instant of the last change of that status: the time since the clock's origin.
    pub since: Duration,
    /// The number of parts of the store that are not healthy.
    pub unwell_backends: usize,
    /// The number of parts of the store.
    pub backends: usize,
    /// The latest failure, even if the store is healthy again.
    pub last_unavailable: Option<Unavailable>,
}

impl Health {
    pub(super) fn add(
        &mut self,
        store_status: StoreStatus,
        since: Duration,
        last_unavailable: Option<&Unavailable>,
    ) {
        let is_first = self.backends == 0;
        self.backends = self.backends.saturating_add(1);
        if store_status != StoreStatus::Healthy {
            self.unwell_backends = self.unwell_backends.saturating_add(1);
        }
        if is_first
            || store_status > self.store_status
            || (store_status == self.store_status && since > self.since)
        {
            self.store_status = store_status;
            self.since = since;
        }
        if let Some(unavailable) = last_unavailable {
            self.last_unavailable = Some(unavailable.clone());
        }
    }
}
