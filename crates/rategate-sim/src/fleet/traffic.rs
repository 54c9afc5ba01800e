//! Who is asked, and when: calls come at random instants, to one node or another.

use crate::random::Random;

use super::network::below;

const SECOND_NS: u128 = 1_000_000_000;

/// The calls that all nodes get together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// How many on average, at independent instants.
    pub calls_per_s: u64,
    /// When they begin, in true time.
    pub from_ns: u64,
    /// From 1 to so many permits each.
    pub heaviest: u64,
    /// Which node each goes to.
    pub shape: Shape,
}

/// Which nodes get the calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All alike.
    Even,
    /// The second half as many as the first, the third a third, and so on.
    Zipf,
    /// So many at once to one node, and then as many to another.
    Bursts {
        /// How many.
        calls: u32,
    },
    /// Nine of ten to one node, and after some time to the next.
    Moving {
        /// After how long.
        every_ns: u64,
    },
    /// No chance: `(instant, node, calls at once)`, in the order of the instants.
    Script(Vec<(u64, u32, u32)>),
}

/// The calls as they come.
#[derive(Debug)]
pub(super) struct Calls<'p> {
    traffic: &'p Traffic,
    nodes: u32,
    random: Random,
    /// Running sums of the nodes' weights, where they are not alike.
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
            for place in 1..=u64::from(nodes) {
                sum = sum.saturating_add((1_u64 << 40).checked_div(place).unwrap_or(0));
                weights.push(sum);
            }
        }
        let script = match &traffic.shape {
            Shape::Script(script) => script.iter(),
            _ => [].iter(),
        };
        Self { traffic, nodes, random, weights, script, at_ns: traffic.from_ns }
    }

    /// How many permits the next call wants.
    pub(super) fn permits(&mut self) -> u64 {
        match self.traffic.heaviest {
            0 | 1 => 1,
            heaviest => below(&mut self.random, heaviest).saturating_add(1),
        }
    }

    /// The next arrival, no sooner than the one before. `None` if there is none.
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
                let turn = self.at_ns.checked_div(every_ns).unwrap_or(0);
                let node = turn.checked_rem(self.nodes.into()).unwrap_or(0);
                u32::try_from(node).unwrap_or(0)
            }
            _ => any(&mut self.random, self.nodes),
        }
    }
}
