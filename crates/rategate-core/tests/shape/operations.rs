//! Tests of sequences of operations: splits, Poisson processes and traces.

use fastrand::Rng;
use rategate_core::random::Random;
use rategate_core::rate::Rate;
use rategate_core::shape::{Factor, Operations, Shape, ShapeError};

use super::oracle::{Rational, Tree};
use crate::common::{MS, S, rate};

fn constant(text: &str) -> Shape {
    Shape::constant(rate(text)).unwrap()
}

/// All parts together are the whole, each operation once, also of parts of parts.
#[test]
fn splits_together_are_the_whole() {
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let Ok(shape) = Tree::random(&mut random, 2).shape() else { continue };
        let whole = match seed % 3 {
            0 => Operations::evenly(shape),
            1 => Operations::poisson(shape, seed),
            _ => {
                let mut instants: Vec<u64> = (0..99).map(|_| random.u64(..S)).collect();
                instants.sort_unstable();
                Operations::trace(instants, Factor::new(3, 2).unwrap()).unwrap()
            }
        };
        let (of, of_second) = (random.u64(1..6), random.u64(1..4));
        for n in 0..60 {
            let part = whole.clone().split(n % of, of).unwrap();
            assert_eq!(part.due(n / of), whole.due(n), "seed {seed}: {n} of {of}");
            let second = part.split(n / of % of_second, of_second).unwrap();
            assert_eq!(second.due(n / of / of_second), whole.due(n), "seed {seed}: {n}");
            assert_eq!(
                second.clone().into_iter().nth(usize::try_from(n / of / of_second).unwrap()),
                whole.due(n)
            );
        }
    }
}

/// A Poisson process is the shape's inverse at the sums of exponential numbers.
#[test]
fn a_poisson_process_follows_the_shape() {
    let climb = Tree::Ramp(Rate::NEVER, rate("100/s"), 10 * S);
    let tree = Tree::Then(Box::new(climb), Box::new(Tree::Constant(rate("7/s"))));
    let operations = Operations::poisson(tree.shape().unwrap(), 7);
    let (mut random, mut sum) = (Random::new(7), 0_u64);
    for (n, due_ns) in operations.clone().into_iter().take(1_000).enumerate() {
        sum += random.exponential();
        let wanted = Rational::new(sum, 1_u64 << 32);
        assert!(tree.reached(&Rational::whole(due_ns)).at_least(&wanted), "{n} is early");
        assert!(!tree.reached(&Rational::whole(due_ns - 1)).at_least(&wanted), "{n} is late");
        assert_eq!(operations.due(u64::try_from(n).unwrap()), Some(due_ns));
    }
}

/// The counts of equal spans have the mean and the variance of a Poisson process.
#[test]
fn a_poisson_process_has_its_mean_and_its_variance() {
    let operations = Operations::poisson(constant("1000/s"), 11);
    let mut counts = vec![0_u64; 10_000];
    for due_ns in operations {
        let Some(count) = counts.get_mut(usize::try_from(due_ns / (10 * MS)).unwrap()) else {
            break;
        };
        *count += 1;
    }
    let sum: u64 = counts.iter().sum();
    let squares: u64 = counts.iter().map(|count| count.abs_diff(10).pow(2)).sum();
    // Of 10 expected in each: the sum within four deviations, and the variance within 6 %.
    assert!(sum.abs_diff(100_000) < 4 * 316, "{sum}");
    assert!(squares.abs_diff(100_000) < 6_000, "{squares}");
}

#[test]
fn equal_seeds_are_equal_operations() {
    let take = |seed| -> Vec<u64> {
        Operations::poisson(constant("1/s"), seed).into_iter().take(3).collect()
    };
    assert_eq!(take(7), take(7));
    assert_ne!(take(7), take(8));
}

/// Instants divided by the speed and rounded up; equal ones stay in order.
#[test]
fn a_trace_keeps_its_order_at_any_speed() {
    let instants = vec![0, 1, 1, 10, 11, 1_000_000_007];
    let trace = |p, q| {
        let speed = Factor::new(p, q).unwrap();
        Operations::trace(instants.clone(), speed).unwrap().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(trace(1, 1), [0, 1, 1, 10, 11, 1_000_000_007]);
    assert_eq!(trace(3, 2), [0, 1, 1, 7, 8, 666_666_672]);
    assert_eq!(trace(1, 2), [0, 2, 2, 20, 22, 2_000_000_014]);
    let far = Operations::trace(vec![u64::MAX], Factor::new(1, u64::MAX).unwrap()).unwrap();
    assert_eq!(far.due(0), None);
}

#[test]
fn misuse_is_an_error() {
    let all = Operations::evenly(constant("1/s"));
    assert_eq!(all.clone().split(2, 2), Err(ShapeError::Part { part: 2, of: 2 }));
    assert_eq!(all.clone().split(0, 0), Err(ShapeError::Part { part: 0, of: 0 }));
    let half = all.split(1, 2).unwrap();
    assert_eq!(half.clone().split(1, u64::MAX), Err(ShapeError::Part { part: 1, of: u64::MAX }));
    assert_eq!(half.split(0, 1 << 62).unwrap().due(1), None);
    let backwards = Operations::trace(vec![1, 3, 2], Factor::ONE);
    assert_eq!(backwards, Err(ShapeError::Backwards { index: 2 }));
}
