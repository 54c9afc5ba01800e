//! The samples of some time, summed up.

use super::{ONE, Outcome, Sample, ratio};

/// The maximum latency that is counted, more than an hour.
const MAX_LATENCY_NS: u64 = 1 << 42;

/// The sums of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    begun_ns: u64,
    last_ns: u64,
    pub(super) samples: u32,
    /// Those that were served. Their latencies alone say how long work takes.
    served: u32,
    latency_ns: u128,
    squares: u128,
    in_flight: u64,
    most: u32,
    /// The maximum in flight with a start that filled its share; 0 for none.
    most_in_share: u32,
    filled_ns: u64,
}

/// The averages of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Averages {
    pub(super) throughput: Throughput,
    /// The mean latency of what was served, its standard deviation and its standard error, in
    /// 256ths of a nanosecond.
    pub(super) mean: u64,
    pub(super) deviation: u64,
    pub(super) error: u64,
    /// The mean number of operations in flight, in 256ths, and the maximum.
    pub(super) in_flight: u64,
    pub(super) most: u32,
    /// The maximum in flight with which a share of the limit was reached; 0 for none.
    pub(super) most_in_share: u32,
    /// `true` if more than a tenth was dropped.
    pub(super) is_dropping: bool,
}

/// A number of served operations in some time, which is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Throughput {
    served: u32,
    in_ns: u64,
}

impl Window {
    pub(super) fn new(begun_ns: u64) -> Self {
        Self { begun_ns, last_ns: begun_ns, ..Self::default() }
    }

    /// Adds a sample, which comes to the knowledge of the controller at `now_ns`.
    pub(super) fn add(&mut self, sample: &Sample, now_ns: u64) {
        self.samples = self.samples.saturating_add(1);
        self.last_ns = now_ns;
        self.most = self.most.max(sample.in_flight);
        if sample.outcome != Outcome::Served {
            return;
        }
        let latency_ns = u128::from(sample.latency_ns().min(MAX_LATENCY_NS));
        self.served = self.served.saturating_add(1);
        self.latency_ns = self.latency_ns.saturating_add(latency_ns);
        self.squares = self.squares.saturating_add(latency_ns.saturating_mul(latency_ns));
        self.in_flight = self.in_flight.saturating_add(sample.in_flight.into());
    }

    /// Returns a window without samples from `begun_ns` on. Of shares that were filled it knows
    /// since then.
    pub(super) fn renewed(&self, begun_ns: u64) -> Self {
        let Self { most_in_share, filled_ns, .. } = *self;
        let most_in_share = if filled_ns >= begun_ns { most_in_share } else { 0 };
        Self { most_in_share, filled_ns, ..Self::new(begun_ns) }
    }

    /// Records a start that filled its share.
    pub(super) fn fill_share(&mut self, in_flight: u32, now_ns: u64) {
        (self.most_in_share, self.filled_ns) = (self.most_in_share.max(in_flight), now_ns);
    }

    pub(super) const fn begun_ns(&self) -> u64 {
        self.begun_ns
    }

    /// Returns how long it lasts.
    pub(super) const fn lasted_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.begun_ns)
    }

    pub(super) fn mean_ns(&self) -> u64 {
        if self.served == 0 { 0 } else { ratio(self.latency_ns, self.served.into()) }
    }

    pub(super) fn averages(&self) -> Averages {
        let (served, one) = (u128::from(self.served.max(1)), u128::from(ONE));
        let mean = ratio(self.latency_ns.saturating_mul(one), served);
        let squares = self.squares.saturating_mul(one.saturating_mul(one));
        let squares = squares.checked_div(served).unwrap_or(u128::MAX);
        let variance = squares.saturating_sub(u128::from(mean).saturating_mul(mean.into()));
        let dropped = self.samples.saturating_sub(self.served);
        Averages {
            throughput: Throughput { served: self.served, in_ns: self.lasted_ns().max(1) },
            mean,
            deviation: ratio(variance.isqrt(), 1),
            error: ratio(variance.checked_div(served).unwrap_or(0).isqrt(), 1),
            in_flight: ratio(u128::from(self.in_flight).saturating_mul(one), served),
            most: self.most,
            most_in_share: self.most_in_share,
            is_dropping: u64::from(dropped).saturating_mul(10) > self.samples.into(),
        }
    }
}

impl Throughput {
    /// Returns the operations that are worked on at once at this throughput where each takes
    /// `latency` 256ths of a nanosecond, in 256ths.
    pub(super) fn worked_on(self, latency: u64) -> u64 {
        ratio(u128::from(self.served).saturating_mul(latency.into()), self.in_ns.into())
    }
}
