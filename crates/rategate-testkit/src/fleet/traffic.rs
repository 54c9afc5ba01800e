//! The calls of a fleet: they come at random instants, to one node or another.

use rategate_core::random::Random;

use super::network::below;

const SECOND_NS: u128 = 1_000_000_000;

/// The calls to all nodes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The mean number of calls each second, at independent instants.
    pub calls_per_s: u64,
    /// The instant at which they begin, in true time.
    pub from_ns: u64,
    /// The maximum number of permits of a call; each takes from 1 to that many.
    pub heaviest: u64,
    /// The distribution of the calls over the nodes.
    pub shape: Shape,
}

/// A distribution of calls over nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An even distribution.
    Even,
    /// Zipf's law: the second node gets half as many calls as the first, the third a third, and
    /// so on.
    Zipf,
    /// Bursts: a number of calls at once to one node, then as many to another.
    Bursts {
        /// The calls of a burst.
        calls: u32,
    },
    /// A moving hot spot: nine of ten calls to one node, after some time to the next.
    Moving {
        /// The time after which it moves.
        every_ns: u64,
    },
    /// A fixed script of `(instant, node, calls at once)`, in the order of the instants.
    Script(Vec<(u64, u32, u32)>),
}

/// The calls in the order in which they come.
#[derive(Debug)]
pub(super) struct Calls<'p> {
    traffic: &'p Traffic,
    nodes: u32,
    random: Random,
    /// The running sums of the nodes' weights, if they differ.
    weights: Vec<u64>,
    script: std::slice::Iter<'p, (u64, u32, u32)>,
    at_ns: u64,
}

/// Calls at one instant, to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at_ns: u64,
    pub(super) node: u32,
    pub(super) calls: u32,
}

impl<'p> Calls<'p> {
    pub(super) fn new(traffic: &'p Traffic, nodes: u32, random: Random) -> Self {
        let (mut weights, mut sum) = (Vec::new(), 0_u64);
        if traffic.shape == Shape::Zipf {
            for position in 1..=u64::from(nodes) {
                sum = sum.saturating_add((1_u64 << 40).checked_div(position).unwrap_or(0));
                weights.push(sum);
            }
        }
        let script = match &traffic.shape {
            Shape::Script(script) => script.iter(),
            _ => [].iter(),
        };
        Self { traffic, nodes, random, weights, script, at_ns: traffic.from_ns }
    }

    /// Returns the number of permits that the next call requests.
    pub(super) fn permits(&mut self) -> u64 {
        match self.traffic.heaviest {
            0 | 1 => 1,
            heaviest => below(&mut self.random, heaviest).saturating_add(1),
        }
    }

    /// Returns the next arrival, no sooner than the one before, or `None` if there is none.
    pub(super) fn next(&mut self) -> Option<Arrival> {
        if let Shape::Script(_) = self.traffic.shape {
            return self.script.next().map(|&(at_ns, node, calls)| Arrival { at_ns, node, calls });
        }
        let calls = match self.traffic.shape {
            Shape::Bursts { calls } => calls.max(1),
            _ => 1,
        };
        self.at_ns = self.at_ns.saturating_add(self.gap_ns(calls)?);
        Some(Arrival { at_ns: self.at_ns, node: self.node(), calls })
    }

    fn gap_ns(&mut self, calls: u32) -> Option<u64> {
        let mean_ns = SECOND_NS.saturating_mul(calls.into());
        let gap = mean_ns.saturating_mul(self.random.exponential().into());
        let gap_ns = gap.checked_div(self.traffic.calls_per_s.into())? >> 32;
        Some(u64::try_from(gap_ns).unwrap_or(u64::MAX))
    }

    fn node(&mut self) -> u32 {
        let any = |random: &mut Random, nodes: u32| {
            u32::try_from(below(random, nodes.into())).unwrap_or(0)
        };
        match self.traffic.shape {
            Shape::Zipf => {
                let total = self.weights.last().copied().unwrap_or(0);
                let point = below(&mut self.random, total);
                let node = self.weights.partition_point(|&sum| sum <= point);
                u32::try_from(node).unwrap_or(0)
            }
            Shape::Moving { every_ns } if below(&mut self.random, 10) < 9 => {
                let step = self.at_ns.checked_div(every_ns).unwrap_or(0);
                let node = step.checked_rem(self.nodes.into()).unwrap_or(0);
                u32::try_from(node).unwrap_or(0)
            }
            _ => any(&mut self.random, self.nodes),
        }
    }
}
