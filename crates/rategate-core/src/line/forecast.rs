//! Forecasts of waiters' starts, worked out on a copy of the limit.
//!
//! Where waiters take, only the head's start is known from the limit itself. All other starts are
//! forecast as if each waiter takes on time. Lateness usually makes starts later, and the
//! forecast stale until it is made anew. While waiters come late, that happens once per so many
//! starts that it costs O(1) for each.

use core::num::NonZeroU64;

use super::{Line, Wakes};
use crate::error::ExceedsCapacity;
use crate::ledger::Ledger;
use crate::verdict::{Denial, Grant, Verdict};

/// The number of waiters up to which a stale forecast is always made anew.
const FEW: u32 = 16;

/// A copy of the limit in which all waiters are booked, as far as they have been.
#[derive(Debug)]
pub(super) struct Forecast {
    pub(super) limit: Ledger,
    /// `true` if a waiter has started later than forecast.
    is_stale: bool,
    /// The number of starts that have come since it was made, and of starts that it reported.
    pub(super) settled: u32,
    reported: u32,
}

impl<W> Line<W> {
    /// Forecasts the starts of all waiters, as far as they can be known.
    pub(super) fn forecast_all(&mut self, wakes: &mut impl Wakes<W>) {
        if self.forecast.as_ref().is_some_and(|forecast| {
            forecast.is_stale
                && (forecast.reported <= FEW || forecast.settled >= forecast.reported.div_ceil(8))
        }) {
            self.drop_forecast();
        }
        let waiting = self.waiter_slab.waiting;
        let mut forecast = self.forecast.take().unwrap_or_else(|| {
            let limit = self.limit.forecast(self.limit.clamp(0));
            Forecast { limit, is_stale: false, settled: 0, reported: 0 }
        });
        if let Some(start_ns) = self.head.and_then(|head| head.start_ns)
            && self.booked.is_empty()
        {
            forecast.limit.not_before(start_ns);
        }
        forecast.reported = forecast.reported.max(waiting);
        self.forecast = Some(forecast);
        while self.book_next(wakes) {}
    }

    /// Returns where starts are booked: in the forecast, as long as there is one. There is none
    /// where waiters do not take.
    pub(super) const fn bookings(&mut self) -> &mut Ledger {
        match &mut self.forecast {
            Some(forecast) => &mut forecast.limit,
            None => &mut self.limit,
        }
    }

    /// Drops the forecast.
    pub(super) fn drop_forecast(&mut self) {
        if self.forecast.take().is_none() {
            return;
        }
        self.booked.clear();
        self.ahead = None;
        self.waiter_slab.unbook_all();
    }

    /// Compares a start that has come with the one reported before.
    pub(super) fn note_start(&mut self, reported_ns: u64, start_ns: u64) {
        if let Some(forecast) = &mut self.forecast {
            forecast.is_stale |= start_ns > reported_ns;
        }
    }

    /// Decides behind all waiters, on the limit or on a forecast of it.
    ///
    /// The decision must neither credit permits nor change a number. Returns `None` if a waiter
    /// waits for an act that no clock foretells.
    pub fn behind_all<T>(
        &mut self,
        now_ns: u64,
        wakes: &mut impl Wakes<W>,
        decide: impl FnOnce(&mut Ledger, u64) -> T,
    ) -> Option<T> {
        if !self.is_empty() {
            self.book_all(wakes);
            if self.has_unbooked() {
                return None;
            }
        }
        if self.is_empty() || !self.takes() {
            return Some(decide(&mut self.limit, now_ns));
        }
        let head_ns = self.head.and_then(|head| head.start_ns);
        let forecast = self.forecast.as_mut()?;
        if let Some(head_ns) = head_ns {
            forecast.limit.not_before(head_ns);
        }
        Some(decide(&mut forecast.limit, now_ns))
    }

    /// Decides about `permits` as [`behind_all`](Self::behind_all) does.
    ///
    /// # Errors
    ///
    /// Those of `decide`. A request for more permits than could ever pass is an error even behind
    /// waiters.
    pub fn decide<T, E: From<ExceedsCapacity>>(
        &mut self,
        now_ns: u64,
        permits: u64,
        wakes: &mut impl Wakes<W>,
        decide: impl FnOnce(&mut Ledger, u64) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        if permits == 0 {
            // Nothing is taken, so no waiter is overtaken.
            return decide(&mut self.limit, now_ns).map(Some);
        }
        if let Some(decided) = self.behind_all(now_ns, wakes, decide) {
            return decided.map(Some);
        }
        self.limit.peek(now_ns, permits)?;
        Ok(None)
    }

    /// Promises `permits` the first start behind all waiters, as [`Ledger::reserve`] does.
    ///
    /// Returns `None` if a waiter waits for an act that no clock foretells.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] for more permits than could ever pass together.
    pub fn reserve(
        &mut self,
        now_ns: u64,
        permits: u64,
        max_wait_ns: Option<u64>,
        wakes: &mut impl Wakes<W>,
    ) -> Result<Option<Verdict>, ExceedsCapacity> {
        let is_apart = self.takes() && !(self.due.is_empty() && self.waiter_slab.waiting == 0);
        // A promise is kept, so it has to come behind all waiters as they are now and allow for
        // their lateness. Those that do not fit before it start behind it.
        if permits > 0 && self.forecast.as_ref().is_some_and(|forecast| forecast.is_stale) {
            self.drop_forecast();
        }
        let margin_ns = if is_apart { self.grace.margin_ns() } else { 0 };
        let reserved = self.decide(now_ns, permits, wakes, |limit, now_ns| {
            if !is_apart {
                return limit.reserve(now_ns, permits, max_wait_ns);
            }
            // The promise made here is booked apart below.
            let at_once = limit.clone().reserve(now_ns, permits, Some(0));
            if !matches!(at_once, Ok(Verdict::Denied(_))) {
                return at_once;
            }
            limit.clone().reserve(now_ns, permits, max_wait_ns)
        })?;
        let Some(Verdict::Granted(grant)) = reserved else { return Ok(reserved) };
        let Some(some) = NonZeroU64::new(permits).filter(|_| is_apart) else {
            return Ok(reserved);
        };
        let is_at_once = grant.start_ns <= self.limit.clamp(now_ns);
        let margin_ns = if is_at_once { 0 } else { margin_ns };
        let from_ns = grant.start_ns.saturating_add(margin_ns);
        let by_ns = now_ns.saturating_add(margin_ns);
        let Ok(opening) = self.limit.opening_before_promises(by_ns, from_ns, some) else {
            return Ok(None);
        };
        let start_ns = opening.start_ns;
        // By the forecast it was in time.
        let late_ns = start_ns
            .saturating_sub(self.limit.clamp(now_ns))
            .checked_sub(max_wait_ns.unwrap_or(u64::MAX));
        if let Some(retry_after_ns) = late_ns.and_then(NonZeroU64::new) {
            let retry_after_ns = Some(retry_after_ns);
            return Ok(Some(Verdict::Denied(Denial { retry_after_ns })));
        }
        let ticket = self.limit.book_before_promises(now_ns, start_ns, some);
        if let Some(forecast) = &mut self.forecast {
            forecast.limit.book_before_promises(now_ns, start_ns, some);
        }
        let promised_ns = start_ns;
        Ok(Some(Verdict::Granted(Grant { start_ns, promised_ns, ticket, ..grant })))
    }
}
