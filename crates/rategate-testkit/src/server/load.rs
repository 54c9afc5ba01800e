//! The calls: when they come, and the work that they take.

use rategate_core::random::Random;
use rategate_core::rate::Rate;
use rategate_core::shape::{DueInstants, Factor, Load, Operations, Shape, ShapeError};
use rategate_core::share::Share;

use super::Steps;

/// A caller: when its calls come, and the limit that they have.
#[derive(Clone, Debug)]
pub struct Client {
    calls: Calls,
    pub(super) share: Share,
    /// The index of another caller, if its limit is the limit of these calls.
    pub(super) limit_of: Option<usize>,
}

#[derive(Clone, Debug)]
enum Calls {
    /// A Poisson process, whose rate changes at some instants. None comes where it is not finite.
    Random(Steps<Rate>),
    Load(Box<Operations>, Millionths),
}

/// The shape of a rate, in millionths of a call.
#[derive(Clone, Debug)]
struct Millionths(Box<Shape>);

/// The work that a call takes: one of several kinds, by their shares.
#[derive(Clone, Debug)]
pub struct Service {
    /// Shares of 100, and the kinds.
    kinds: Vec<(u64, Kind)>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Exponential { mean_ns: u64 },
    Uniform { from_ns: u64, to_ns: u64 },
}

impl Client {
    /// Creates a caller whose calls are a Poisson process of a rate that never changes.
    #[must_use]
    pub const fn constant(rate: Rate) -> Self {
        Self::changing(Steps::constant(rate))
    }

    /// Creates a caller whose calls are a Poisson process of a rate that changes at some instants.
    #[must_use]
    pub const fn changing(rate: Steps<Rate>) -> Self {
        Self::making(Calls::Random(rate))
    }

    /// Creates a caller whose calls are a load, with the seed of the load if it is random.
    ///
    /// # Errors
    ///
    /// [`ShapeError::TooFine`] where a millionth of its rate exceeds 128 bits.
    pub fn of(load: Load) -> Result<Self, ShapeError> {
        let operations = load.into_operations();
        // A load is no trace, and so has a shape.
        let shape = operations.shape().cloned().ok_or(ShapeError::TooFine)?;
        let millionths = shape.with_rate_times(Factor::new(1_000_000, 1)?)?;
        Ok(Self::making(Calls::Load(Box::new(operations), Millionths(Box::new(millionths)))))
    }

    const fn making(calls: Calls) -> Self {
        Self { calls, share: Share::WHOLE, limit_of: None }
    }

    /// Limits the calls to a share of their limit.
    #[must_use]
    pub fn in_share(self, share: Share) -> Self {
        Self { share, ..self }
    }

    /// Puts the calls under the limit of another caller, given by its index. Without that caller,
    /// they have a limit of their own.
    #[must_use]
    pub fn under_limit_of(self, client: usize) -> Self {
        Self { limit_of: Some(client), ..self }
    }

    /// Returns the mean of the calls in the time from an instant on, in thousandths a second.
    pub(super) fn per_1000_s(&self, at_ns: u64, for_ns: u64) -> u64 {
        let (calls, in_ns) = match &self.calls {
            Calls::Random(rate) => rate.at(at_ns).fraction().unwrap_or((0, 1)),
            Calls::Load(_, Millionths(millionths)) => {
                let until_ns = at_ns.saturating_add(for_ns);
                let calls = millionths.due_by(until_ns).saturating_sub(millionths.due_by(at_ns));
                (calls, for_ns.saturating_mul(1_000_000))
            }
        };
        let calls = u128::from(calls).saturating_mul(1_000_000_000_000);
        u64::try_from(calls.checked_div(in_ns.into()).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// Returns the maximum of the calls in a thousand seconds of a run: of a rate that changes its
    /// largest one, of a load that of its fullest second.
    pub(super) fn max_per_1000_s(&self, run_ns: u64) -> u64 {
        const SECOND_NS: u64 = 1_000_000_000;
        let of = |at_ns| self.per_1000_s(at_ns, SECOND_NS);
        match &self.calls {
            Calls::Random(rate) => rate.changes().map(of).fold(of(0), u64::max),
            Calls::Load(..) => {
                let seconds = run_ns.div_ceil(SECOND_NS);
                (0..seconds).map(|second| of(second.saturating_mul(SECOND_NS))).fold(0, u64::max)
            }
        }
    }

    /// Returns the instants of the calls.
    pub(super) fn instants(&self) -> Instants<'_> {
        match &self.calls {
            Calls::Random(rate) => Instants::Random(rate),
            Calls::Load(operations, _) => {
                Instants::Load(Box::new(operations.as_ref().clone().into_iter()))
            }
        }
    }
}

/// The instants of a caller's calls that are still to come.
#[derive(Debug)]
pub(super) enum Instants<'s> {
    Random(&'s Steps<Rate>),
    Load(Box<DueInstants>),
}

impl Instants<'_> {
    /// Returns the instant of the next call.
    pub(super) fn next_ns(&mut self, after_ns: u64, random: &mut Random) -> Option<u64> {
        match self {
            Self::Random(rate) => next_of_process(rate, after_ns, random),
            Self::Load(instants) => instants.next(),
        }
    }
}

fn next_of_process(rate: &Steps<Rate>, mut after_ns: u64, random: &mut Random) -> Option<u64> {
    loop {
        let change_ns = rate.next_ns(after_ns);
        if let Some((calls, in_ns)) = rate.at(after_ns).fraction() {
            let gap_ns = u128::from(random.exponential()).saturating_mul(in_ns.into()) >> 32;
            let gap_ns = gap_ns.checked_div(calls.into()).unwrap_or(0);
            let gap_ns = u64::try_from(gap_ns).unwrap_or(u64::MAX);
            let at_ns = after_ns.saturating_add(gap_ns);
            if change_ns.is_none_or(|change_ns| at_ns < change_ns) {
                return Some(at_ns);
            }
        }
        // A Poisson process has no memory, so the gap begins anew with the other rate.
        after_ns = change_ns?;
    }
}

impl Service {
    /// Creates work of an exponentially distributed time.
    #[must_use]
    pub fn exponential(mean_ns: u64) -> Self {
        Self { kinds: vec![(100, Kind::Exponential { mean_ns })] }
    }

    /// Creates work of an evenly distributed time.
    #[must_use]
    pub fn uniform(from_ns: u64, to_ns: u64) -> Self {
        Self { kinds: vec![(100, Kind::Uniform { from_ns, to_ns })] }
    }

    /// Makes so many of a hundred calls take an exponentially distributed time of another mean.
    #[must_use]
    pub fn except(mut self, of_hundred: u64, mean_ns: u64) -> Self {
        if let Some((share, _)) = self.kinds.first_mut() {
            *share = share.saturating_sub(of_hundred);
        }
        self.kinds.push((of_hundred, Kind::Exponential { mean_ns }));
        self
    }

    pub(super) fn draw_ns(&self, random: &mut Random) -> u64 {
        let mut at = random.bits() % 100;
        let mut chosen = None;
        for (share, kind) in &self.kinds {
            chosen = Some(kind);
            match at.checked_sub(*share) {
                None => break,
                Some(left) => at = left,
            }
        }
        match chosen {
            Some(Kind::Exponential { mean_ns }) => {
                let drawn = u128::from(*mean_ns).saturating_mul(random.exponential().into()) >> 32;
                u64::try_from(drawn).unwrap_or(u64::MAX)
            }
            Some(Kind::Uniform { from_ns, to_ns }) => {
                let width = to_ns.saturating_sub(*from_ns).saturating_add(1);
                from_ns.saturating_add(random.bits().checked_rem(width).unwrap_or(0))
            }
            None => 0,
        }
    }

    pub(super) fn mean_ns(&self) -> u64 {
        let mean = |(share, kind): &(u64, Kind)| {
            let mean_ns = match kind {
                Kind::Exponential { mean_ns } => *mean_ns,
                Kind::Uniform { from_ns, to_ns } => from_ns.midpoint(*to_ns),
            };
            share.saturating_mul(mean_ns)
        };
        self.kinds.iter().map(mean).fold(0, u64::saturating_add) / 100
    }
}
