//! Limits in numbers that a store holds exactly: whole microseconds, parts of one, and all below
//! 2^53.
//!
//! The products are made here, in 128 bits, so that the store only adds and compares. At a rate
//! of `N` permits per `P` ns a permit takes `P / 1000 N` us, reduced to `p / d`: whole
//! microseconds, and parts of `1/d` us. A limit that does not fit is refused when it is made,
//! never rounded.

mod calendar;

use rategate::store::Rule;
use rategate_core::calendar::Calendar;
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::Debt;
use rategate_core::error::ExceedsCapacity;
use rategate_core::fixed_window::{Anchor, FixedWindow, Windows};
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;

use crate::error::LimitError;

/// The maximum length of time, in microseconds: 71 years.
pub const MAX_LENGTH_US: u64 = 1 << 51;
/// The last valid instant of the store's clock, in the year 2112.
pub const MAX_INSTANT_US: u64 = 1 << 52;
/// The maximum number of permits of a fixed window and of a burst.
pub const MAX_WINDOW_PERMITS: u64 = 1 << 52;
/// The maximum number of permits of a log, and in flight.
pub const MAX_PERMITS: u64 = 4_294_967_295;
/// The maximum number of entries of a log. Each takes at most 10 bytes of the state.
pub const MAX_ENTRIES: u64 = 65_536;
/// The maximum time, in microseconds, that a debt lasts: 35 years.
pub const MAX_DEBT_US: u64 = 1 << 50;
/// The maximum number of parts of a microsecond.
const MAX_DENOMINATOR: u128 = 1 << 52;

/// A limit that a store can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    kind: Kind,
    maximum: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A token bucket in which a permit takes `numerator / denominator` us.
    Gcra {
        numerator: u64,
        denominator: u64,
    },
    FixedWindow {
        period_us: u64,
    },
    Calendar(Calendar),
    SlidingLog {
        held_us: u64,
        grid_us: u64,
    },
    Concurrency {
        lease_us: u64,
    },
}

/// The bounds of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bounds {
    One(u64),
    /// Those in the window before, in the one around the caller's time, and in the one after.
    OfWindows([u64; 3]),
}

/// A limit and a number of permits, as arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) letter: u8,
    numbers: [u64; 8],
    count: usize,
    /// The calendar whose borders precede these numbers.
    calendar: Option<Calendar>,
}

impl Row {
    fn of(letter: u8, from: &[u64]) -> Self {
        let mut numbers = [0; 8];
        for (to, from) in numbers.iter_mut().zip(from) {
            *to = *from;
        }
        Self { letter, numbers, count: from.len(), calendar: None }
    }

    /// Returns the arguments after the letter. Those of a calendar begin with its borders around
    /// `around_us`.
    pub(crate) fn numbers(&self, around_us: u64) -> impl Iterator<Item = u64> + '_ {
        let borders = self.calendar.map(|calendar| calendar::borders(&calendar, around_us));
        let numbers = self.numbers.iter().copied().take(self.count);
        borders.into_iter().flatten().chain(numbers)
    }
}

impl Limit {
    /// Converts a token bucket.
    ///
    /// # Errors
    ///
    /// [`LimitError::NoRate`], [`LimitError::RateTooFine`], [`LimitError::TooManyPermits`],
    /// [`LimitError::BurstTooLong`].
    pub fn gcra(bucket: &Gcra) -> Result<Self, LimitError> {
        let (permits, period_ns) = bucket.rate().fraction().ok_or(LimitError::NoRate)?;
        let denominator = u128::from(permits).saturating_mul(1_000);
        let common = gcd(denominator, period_ns.into());
        let denominator =
            denominator.checked_div(common).filter(|&denominator| denominator <= MAX_DENOMINATOR);
        let denominator = denominator.and_then(|denominator| u64::try_from(denominator).ok());
        let denominator = denominator.ok_or(LimitError::RateTooFine)?;
        let numerator = u128::from(period_ns).checked_div(common);
        let numerator = numerator.and_then(|numerator| u64::try_from(numerator).ok());
        let numerator = numerator.ok_or(LimitError::RateTooFine)?;
        let maximum = at_most(bucket.burst_size().get(), MAX_WINDOW_PERMITS)?;
        let limit = Self { kind: Kind::Gcra { numerator, denominator }, maximum };
        let burst_us =
            u128::from(numerator).saturating_mul(maximum.into()).checked_div(denominator.into());
        match burst_us {
            Some(burst_us) if burst_us < MAX_LENGTH_US.into() => Ok(limit),
            _ => Err(LimitError::BurstTooLong),
        }
    }

    /// Converts a fixed window, on the grid of the store's clock. The store picks the window of a
    /// calendar by its own clock.
    ///
    /// # Errors
    ///
    /// [`LimitError::Anchor`], [`LimitError::NotMicroseconds`], [`LimitError::TooLong`],
    /// [`LimitError::NoZone`] for a calendar that was read from words alone,
    /// [`LimitError::TooManyPermits`].
    pub fn fixed_window(window: &FixedWindow) -> Result<Self, LimitError> {
        let kind = match window.windows() {
            Windows::Even { period_ns, anchor: Anchor::Epoch } => {
                Kind::FixedWindow { period_us: whole_us(period_ns.get())? }
            }
            Windows::Even { .. } => return Err(LimitError::Anchor),
            Windows::Of(calendar) if calendar.text().is_empty() => return Err(LimitError::NoZone),
            Windows::Of(calendar) => Kind::Calendar(calendar),
        };
        Ok(Self { kind, maximum: at_most(window.permits(), MAX_WINDOW_PERMITS)? })
    }

    /// Converts a sliding log. A grid of less than a microsecond that divides one becomes that of
    /// the clock itself.
    ///
    /// # Errors
    ///
    /// [`LimitError::NotMicroseconds`] for another resolution, [`LimitError::TooLong`],
    /// [`LimitError::TooManyPermits`], [`LimitError::TooManyEntries`].
    pub fn sliding_log(log: &SlidingLog) -> Result<Self, LimitError> {
        Self::log(log.permits(), log.held_for_ns(), log.resolution_ns())
    }

    /// Converts a concurrency limit, whose operations last at most `lease_us` unless renewed.
    ///
    /// # Errors
    ///
    /// [`LimitError::NotMicroseconds`] for a lease of no length, [`LimitError::TooLong`],
    /// [`LimitError::TooManyPermits`].
    pub fn concurrency(in_flight: &Concurrency, lease_us: u64) -> Result<Self, LimitError> {
        let maximum = at_most(in_flight.permits(), MAX_PERMITS)?;
        if lease_us == 0 {
            return Err(LimitError::NotMicroseconds);
        }
        if lease_us > MAX_LENGTH_US {
            return Err(LimitError::TooLong);
        }
        Ok(Self { kind: Kind::Concurrency { lease_us }, maximum })
    }

    /// Returns the maximum number of permits of one request.
    #[must_use]
    pub const fn maximum(&self) -> u64 {
        self.maximum
    }

    /// Returns `true` if its permits are held under the name of a lease.
    #[must_use]
    pub const fn holds(&self) -> bool {
        matches!(self.kind, Kind::Concurrency { .. })
    }

    /// Returns the end of the window of a grant, from the numbers of its receipt; `None` for
    /// other kinds.
    pub(crate) const fn window_ends_us(&self, fields: [u64; 3]) -> Option<u64> {
        match (self.kind, fields) {
            (Kind::FixedWindow { period_us }, [start_us, ..]) => {
                Some(start_us.saturating_add(period_us))
            }
            (Kind::Calendar(_), fields) => Some(calendar::end_us(fields)),
            _ => None,
        }
    }

    /// Returns the instant at which a denied call passes, where the store knows only the window
    /// before; `None` where what it replied is all there is to know.
    pub(crate) fn passes_us(&self, fields: [u64; 3]) -> Option<u64> {
        match self.kind {
            Kind::Calendar(quota) => calendar::passes_us(&quota, fields),
            _ => None,
        }
    }

    fn log(permits: u64, held_for_ns: u64, resolution_ns: u64) -> Result<Self, LimitError> {
        let maximum = at_most(permits, MAX_PERMITS)?;
        // Grants lie on whole microseconds, so rounding the length up to them changes no
        // decision.
        let held_us = at_most_long(held_for_ns.div_ceil(1_000))?;
        let grid_us = match 1_000_u64.checked_rem(resolution_ns) {
            Some(0) => 1,
            _ => whole_us(resolution_ns)?,
        };
        let limit = Self { kind: Kind::SlidingLog { held_us, grid_us }, maximum };
        let entries = limit.entries(held_us, grid_us);
        if entries > MAX_ENTRIES {
            return Err(LimitError::TooManyEntries { entries, maximum: MAX_ENTRIES });
        }
        Ok(limit)
    }

    /// Returns the maximum number of entries: the number of permits or of different points of the
    /// grid, whichever is smaller.
    fn entries(&self, held_us: u64, grid_us: u64) -> u64 {
        held_us.div_ceil(grid_us.max(1)).saturating_add(2).min(self.maximum)
    }

    /// Returns the letter that ends its keys, which keeps states of different kinds apart.
    pub(crate) const fn letter(&self) -> u8 {
        match self.kind {
            Kind::Gcra { .. } => b'g',
            Kind::FixedWindow { .. } => b'w',
            Kind::Calendar(_) => b'k',
            Kind::SlidingLog { .. } => b'l',
            Kind::Concurrency { .. } => b'c',
        }
    }

    /// Returns the arguments for a request of `permits`.
    pub(crate) fn row(&self, permits: u64) -> Result<Row, ExceedsCapacity> {
        if permits > self.maximum {
            return Err(ExceedsCapacity::new(permits, self.maximum));
        }
        Ok(match self.kind {
            Kind::Gcra { numerator, denominator } => {
                let [burst, cost, unit] = [self.maximum, permits, 1]
                    .map(|permits| time_of(permits, numerator, denominator));
                let numbers =
                    [denominator, burst.0, burst.1, permits, cost.0, cost.1, unit.0, unit.1];
                Row::of(b'g', &numbers)
            }
            Kind::FixedWindow { period_us } => Row::of(b'w', &[period_us, self.maximum, permits]),
            Kind::Calendar(quota) => {
                let numbers = [quota.digest(), self.maximum, permits];
                Row { calendar: Some(quota), ..Row::of(b'k', &numbers) }
            }
            Kind::SlidingLog { held_us, grid_us } => {
                let gap_bytes = bytes_of(held_us.div_ceil(grid_us.max(1)).saturating_add(1));
                let (count_bytes, capacity) =
                    (bytes_of(self.maximum), self.entries(held_us, grid_us));
                let numbers =
                    [held_us, grid_us, self.maximum, permits, gap_bytes, count_bytes, capacity];
                Row::of(b'l', &numbers)
            }
            Kind::Concurrency { lease_us } => Row::of(b'c', &[self.maximum, permits, lease_us]),
        })
    }

    /// Returns how many permits another request could take at `now_us`, from the numbers of a
    /// reply.
    pub(crate) fn remaining(&self, now_us: u64, fields: [u64; 3]) -> u64 {
        match (self.kind, fields) {
            (Kind::Gcra { numerator, denominator }, [us, remainder, _]) => {
                let denominator = u128::from(denominator);
                // The numbers are below 2^53 and 2^52, so the products fit.
                let tat =
                    u128::from(us).saturating_mul(denominator).saturating_add(remainder.into());
                let now = u128::from(now_us).saturating_mul(denominator);
                let burst = u128::from(self.maximum).saturating_mul(numerator.into());
                let free = now.saturating_add(burst).saturating_sub(tat);
                u64::try_from(free.checked_div(numerator.into()).unwrap_or(0)).unwrap_or(u64::MAX)
            }
            (_, [_, used, _]) => self.maximum.saturating_sub(used),
        }
    }

    /// Returns by how many permits the limit is exceeded at `now_us`, from the numbers of a reply.
    pub(crate) fn debt(&self, now_us: u64, fields: [u64; 3]) -> u64 {
        match (self.kind, fields) {
            (Kind::Gcra { numerator, denominator }, [us, remainder, _]) => {
                let denominator = u128::from(denominator);
                let tat =
                    u128::from(us).saturating_mul(denominator).saturating_add(remainder.into());
                let now = u128::from(now_us).saturating_mul(denominator);
                let burst = u128::from(self.maximum).saturating_mul(numerator.into());
                let over = tat.saturating_sub(now.saturating_add(burst));
                let debt = over.div_ceil(u128::from(numerator).max(1));
                u64::try_from(debt).unwrap_or(u64::MAX)
            }
            (_, [_, used, _]) => used.saturating_sub(self.maximum),
        }
    }

    /// Returns the bounds that a charge has: for a bucket the microseconds that a debt lasts, and
    /// otherwise the permits in use. `None` if the limit cannot carry a debt.
    ///
    /// The windows of a calendar have several lengths: there is a bound for each of those around
    /// `around_us`, of which the store picks one.
    pub(crate) fn charge_bounds(&self, debt: Debt, around_us: u64) -> Option<Bounds> {
        let max_us = (debt.max_ns() / 1_000).min(MAX_DEBT_US);
        let carried = |period_us: u64| {
            let max_debt = u128::from(max_us).saturating_mul(self.maximum.into());
            let max_debt = max_debt.checked_div(period_us.into()).unwrap_or(0);
            let max_debt = u64::try_from(max_debt).unwrap_or(u64::MAX);
            self.maximum.saturating_add(max_debt).min(MAX_WINDOW_PERMITS)
        };
        Some(Bounds::One(match self.kind {
            Kind::Gcra { .. } => max_us,
            Kind::FixedWindow { period_us } if debt.is_carried() => carried(period_us),
            Kind::Calendar(quota) if debt.is_carried() => {
                let lengths_us = calendar::lengths_us(&quota, around_us);
                return Some(Bounds::OfWindows(lengths_us.map(carried)));
            }
            Kind::FixedWindow { .. } | Kind::Calendar(_) => MAX_WINDOW_PERMITS,
            Kind::SlidingLog { .. } if debt.is_carried() => return None,
            Kind::SlidingLog { .. } => MAX_PERMITS,
            Kind::Concurrency { .. } => 0,
        }))
    }
}

impl TryFrom<&Rule> for Limit {
    type Error = LimitError;

    fn try_from(rule: &Rule) -> Result<Self, LimitError> {
        match rule {
            Rule::Bucket(bucket) => Self::gcra(bucket),
            Rule::Log(log) => Self::sliding_log(log),
            Rule::Window(window) => Self::fixed_window(window),
            Rule::InFlight(in_flight, lease_ns) => {
                Self::concurrency(in_flight, whole_us(lease_ns.get())?)
            }
        }
    }
}

/// Returns the time that `permits` take: whole microseconds, and parts of another.
fn time_of(permits: u64, numerator: u64, denominator: u64) -> (u64, u64) {
    let length = u128::from(permits).saturating_mul(numerator.into());
    let denominator = u128::from(denominator);
    let us = length.checked_div(denominator).and_then(|us| u64::try_from(us).ok());
    let remainder =
        length.checked_rem(denominator).and_then(|remainder| u64::try_from(remainder).ok());
    (us.unwrap_or(u64::MAX), remainder.unwrap_or(0))
}

fn whole_us(length_ns: u64) -> Result<u64, LimitError> {
    match (length_ns.checked_div(1_000), length_ns.checked_rem(1_000)) {
        (Some(micros), Some(0)) if micros > 0 => at_most_long(micros),
        _ => Err(LimitError::NotMicroseconds),
    }
}

const fn at_most_long(length_us: u64) -> Result<u64, LimitError> {
    if length_us > MAX_LENGTH_US { Err(LimitError::TooLong) } else { Ok(length_us) }
}

const fn at_most(permits: u64, maximum: u64) -> Result<u64, LimitError> {
    if permits > maximum { Err(LimitError::TooManyPermits { maximum }) } else { Ok(permits) }
}

/// Returns the number of bytes that hold all numbers up to `number`.
fn bytes_of(number: u64) -> u64 {
    u64::from(u64::BITS.saturating_sub(number.leading_zeros()).div_ceil(8).max(1))
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while let Some(rest) = a.checked_rem(b) {
        (a, b) = (b, rest);
    }
    a
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn bucket(rate: &str, burst: u64) -> Result<Limit, LimitError> {
        Limit::gcra(&Gcra::new(rate.parse().unwrap(), burst).unwrap())
    }

    #[test]
    fn a_rate_is_split_exactly() {
        let row = bucket("3/s", 5).unwrap().row(2).unwrap();
        // The times are 5/3, 2/3 and 1/3 of a second, in thirds of a microsecond.
        let numbers: Vec<u64> = row.numbers(0).collect();
        assert_eq!(numbers, [3, 1_666_666, 2, 2, 666_666, 2, 333_333, 1]);
        let row = bucket("1000000000/s", 1).unwrap().row(1).unwrap();
        assert_eq!(row.numbers(0).collect::<Vec<_>>(), [1_000, 0, 1, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(bucket("never", 1), Err(LimitError::NoRate));
        assert_eq!(bucket("unlimited", 1), Err(LimitError::NoRate));
        assert_eq!(bucket("1/365d", 72), Err(LimitError::BurstTooLong));
        assert!(bucket("1/365d", 71).is_ok());
        assert_eq!(
            bucket("1000000000/s", (1 << 52) + 1),
            Err(LimitError::TooManyPermits { maximum: 1 << 52 })
        );
        assert!(bucket("1000000000/s", 1 << 52).is_ok());
        assert_eq!(bucket("9007199254740993/s", 1), Err(LimitError::RateTooFine));
        let window =
            |period_ns, anchor| FixedWindow::new(1, Duration::from_nanos(period_ns), anchor);
        let window = |period_ns, anchor| Limit::fixed_window(&window(period_ns, anchor));
        assert_eq!(window(1_500, Anchor::Epoch), Err(LimitError::NotMicroseconds));
        assert_eq!(window(1_000, Anchor::FirstCall), Err(LimitError::Anchor));
        let log = SlidingLog::new(MAX_ENTRIES + 1, Duration::from_secs(1));
        let maximum = MAX_ENTRIES;
        let error = LimitError::TooManyEntries { entries: maximum + 1, maximum };
        assert_eq!(Limit::sliding_log(&log), Err(error));
        assert!(
            Limit::sliding_log(&log.with_resolution(Duration::from_millis(1)).unwrap()).is_ok()
        );
        let log = log.with_resolution(Duration::from_nanos(1_500)).unwrap();
        assert_eq!(Limit::sliding_log(&log), Err(LimitError::NotMicroseconds));
    }
}
