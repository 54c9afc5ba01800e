//! Tests of class shares, against literal deficit round robin and against the laws of fairness.

use std::num::NonZeroU64;

use fastrand::Rng;
use rategate_core::fair::{ClassId, Rounds};

fn n(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

/// Picks the next class and charges it.
fn next(rounds: &mut Rounds, head_cost: impl Fn(ClassId) -> Option<NonZeroU64>) -> Option<ClassId> {
    let id = rounds.pick(&head_cost)?;
    rounds.charge(id, head_cost(id).unwrap());
    Some(id)
}

/// Literal deficit round robin: visit after visit, one quantum each.
#[derive(Debug, Default)]
struct Literal {
    quanta: Vec<i128>,
    deficits: Vec<i128>,
    current: usize,
    served: bool,
}

impl Literal {
    fn next(&mut self, heads: &[Option<u64>]) -> Option<usize> {
        if heads.iter().all(Option::is_none) {
            // A whole round without an item finds all classes idle.
            for deficit in &mut self.deficits {
                *deficit = (*deficit).min(0);
            }
            self.served = false;
            return None;
        }
        loop {
            let current = self.current;
            match heads[current] {
                None => self.deficits[current] = self.deficits[current].min(0),
                Some(cost) => {
                    if !self.served {
                        self.served = true;
                        self.deficits[current] += self.quanta[current];
                    }
                    if self.deficits[current] >= i128::from(cost) {
                        self.deficits[current] -= i128::from(cost);
                        return Some(current);
                    }
                }
            }
            self.current = (current + 1) % self.quanta.len();
            self.served = false;
        }
    }
}

/// S4.17: every choice is that of the rounds taken one by one, with items that come and go, costs
/// that are settled later, quanta from tiny to large.
#[test]
fn choices_are_those_of_rounds_taken_one_by_one() {
    for seed in 1..400 {
        let mut random = Rng::with_seed(seed);
        let mut rounds = Rounds::new();
        let mut literal = Literal::default();
        for _ in 0..random.u64(1..=5) {
            let quantum = random.choice([1, 2, 7, 40]).unwrap();
            rounds.add_class(n(quantum)).unwrap();
            literal.quanta.push(quantum.into());
            literal.deficits.push(0);
        }
        let mut heads: Vec<Option<u64>> = vec![None; rounds.classes()];
        for step in 0..300 {
            for head in &mut heads {
                if random.u64(..3) == 0 {
                    *head = random.choice([None, Some(1), Some(3), Some(50), Some(900)]).unwrap();
                }
            }
            let chosen = next(&mut rounds, |id| heads[id.index()].map(n));
            let wanted = literal.next(&heads);
            assert_eq!(chosen.map(ClassId::index), wanted, "seed {seed}, step {step}");
            if let Some(id) = chosen {
                let charged = heads[id.index()].unwrap();
                if random.u64(..4) == 0 {
                    let actual = random.u64(0..=2 * charged);
                    rounds.settle(id, charged, actual);
                    literal.deficits[id.index()] += i128::from(charged) - i128::from(actual);
                }
                heads[id.index()] =
                    random.choice([None, Some(1), Some(3), Some(50), Some(900)]).unwrap();
            }
        }
    }
}

/// S4.17: while two classes both have items, their service for each unit of quantum differs by
/// less than a quantum and a largest item of each, at every moment.
#[test]
fn backlogged_classes_have_their_shares_at_all_times() {
    for seed in 1..200 {
        let mut random = Rng::with_seed(seed);
        let (quanta, largest) = ([random.u64(1..=60), random.u64(1..=60)], 50);
        let mut rounds = Rounds::new();
        let ids = quanta.map(|quantum| rounds.add_class(n(quantum)).unwrap());
        let mut heads = [random.u64(1..=largest), random.u64(1..=largest)];
        let mut served: Vec<[u64; 2]> = vec![[0, 0]];
        for _ in 0..400 {
            let id = next(&mut rounds, |id| Some(n(heads[id.index()]))).unwrap();
            assert!(ids.contains(&id));
            let mut sums = *served.last().unwrap();
            sums[id.index()] += heads[id.index()];
            served.push(sums);
            heads[id.index()] = random.u64(1..=largest);
        }
        let bound = quanta[0] * quanta[1] + largest * (quanta[0] + quanta[1]);
        for (first, from) in served.iter().enumerate().step_by(7) {
            for to in &served[first..] {
                let normed = [0, 1].map(|class| (to[class] - from[class]) * quanta[1 - class]);
                let apart = normed[0].abs_diff(normed[1]);
                assert!(apart <= bound, "seed {seed}: {apart} > {bound}, quanta {quanta:?}");
            }
        }
    }
}

/// An idle class accumulates no credit, and a class that is alone gets everything.
#[test]
fn an_idle_class_saves_nothing() {
    let mut rounds = Rounds::new();
    let (busy, idle) = (rounds.add_class(n(10)).unwrap(), rounds.add_class(n(10)).unwrap());
    for _ in 0..1_000 {
        assert_eq!(next(&mut rounds, |id| (id == busy).then(|| n(10))), Some(busy));
    }
    let picks: Vec<ClassId> =
        (0..20).map(|_| next(&mut rounds, |_| Some(n(10))).unwrap()).collect();
    assert_eq!(picks.iter().filter(|&&id| id == idle).count(), 10);
    assert_eq!(next(&mut rounds, |_| None), None);
}

/// A huge item with tiny quanta is computed in one step.
#[test]
fn tiny_quanta_and_huge_items_take_one_step() {
    let mut rounds = Rounds::new();
    let ids = [rounds.add_class(n(1)).unwrap(), rounds.add_class(n(2)).unwrap()];
    let picks: Vec<ClassId> =
        (0..6).map(|_| next(&mut rounds, |_| Some(NonZeroU64::MAX)).unwrap()).collect();
    assert_eq!(picks.iter().filter(|&&id| id == ids[1]).count(), 4);
}

/// S4.17: costs that were estimated too low are paid for in later rounds; in the long run shares
/// are those of the true costs.
#[test]
fn estimates_are_settled_in_later_turns() {
    let mut rounds = Rounds::new();
    let (honest, sly) = (rounds.add_class(n(100)).unwrap(), rounds.add_class(n(100)).unwrap());
    let mut bytes = [0_u64; 2];
    for _ in 0..10_000 {
        let id = next(&mut rounds, |_| Some(n(50))).unwrap();
        let actual = if id == sly { 500 } else { 50 };
        rounds.settle(id, 50, actual);
        bytes[id.index()] += actual;
    }
    assert!(bytes[honest.index()].abs_diff(bytes[sly.index()]) <= 1_100, "{bytes:?}");
}

/// A class stays next until it is charged, whatever comes meanwhile; one that leaves loses that
/// position.
#[test]
fn a_class_stays_next_until_it_is_charged() {
    let mut rounds = Rounds::new();
    let (first, other) = (rounds.add_class(n(3)).unwrap(), rounds.add_class(n(3)).unwrap());
    for costs in [[None, None], [Some(3), None], [Some(3), Some(1)], [Some(3), Some(1)]] {
        let picked = rounds.pick(|id| costs[id.index()].map(n));
        assert_eq!(picked, costs[0].map(|_| first));
    }
    rounds.charge(first, n(3));
    assert_eq!(rounds.pick(|_| Some(n(3))), Some(other));
    assert_eq!(rounds.pick(|id| (id == first).then(|| n(3))), Some(first));
}
