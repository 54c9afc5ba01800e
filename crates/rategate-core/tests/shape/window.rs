//! Tests of the bound: no window has more operations, and some window has as many.

use fastrand::Rng;
use rategate_core::rate::Rate;
use rategate_core::shape::{Factor, Shape};

use super::oracle::Tree;
use crate::common::{MS, S, rate};

/// Returns the largest number of `dues` in any closed window of a length.
pub(super) fn fullest(dues: &[u64], window_ns: u64) -> u64 {
    let (mut first, mut most) = (0, 0);
    for (last, &due_ns) in dues.iter().enumerate() {
        while dues[first] < due_ns.saturating_sub(window_ns) {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    u64::try_from(most).unwrap()
}

fn dues(shape: &Shape, count: u64) -> Vec<u64> {
    (0..count).map_while(|n| shape.due(n)).collect()
}

/// Asserts that the fullest window of the first 20 000 operations is the bound.
#[track_caller]
fn assert_reached(shape: &Shape, window_ns: u64) {
    let fullest = fullest(&dues(shape, 20_000), window_ns);
    assert_eq!(shape.max_within(window_ns), Some(fullest), "{window_ns}");
}

#[test]
fn the_bound_is_reached() {
    let (low, high) = (rate("10/s"), rate("1000/s"));
    let constant = Shape::constant(rate("3/s")).unwrap();
    let spike = Shape::spike(low, high, 2 * S, S).unwrap();
    let rise = Shape::ramp(Rate::NEVER, high, 4 * S).unwrap();
    let fall = Shape::ramp(high, Rate::NEVER, 10 * S).unwrap();
    // The fullest window begins at no bend: it is where as much comes as goes.
    let peak = rise.clone().then(fall).unwrap();
    let saw = Shape::sawtooth(low, high, S).unwrap();
    // The fullest window is from the end of one repetition to the start of the next.
    let valley = Shape::stages(high, [(low, S), (high, S)]).unwrap().repeated(1_000).unwrap();
    for window_ns in [0, 1, MS, 333_333_332, 333_333_333, S - 1, S, 3 * S] {
        assert_reached(&constant, window_ns);
    }
    for shape in [&spike, &rise, &peak, &saw, &valley] {
        for window_ns in [9 * MS, S / 2, S - 1, 3 * S - 1] {
            assert_reached(shape, window_ns);
        }
    }
    // Which window is the fullest depends on where operations lie within it: of 8 phases, one.
    let sine = |eighth| {
        let phase = Factor::new(eighth, 8).unwrap();
        Shape::sine(rate("100/s"), rate("60/s"), 60 * S, phase).unwrap()
    };
    let phases: Vec<Vec<u64>> = (1..=8).map(|eighth| dues(&sine(eighth), 14_000)).collect();
    for window_ns in [10 * S - 1, 30 * S - 1, 60 * S - 1, 75 * S - 1] {
        let fullest = phases.iter().map(|dues| fullest(dues, window_ns)).max();
        assert_eq!(sine(8).max_within(window_ns), fullest, "{window_ns}");
    }
    // All operations of a shape that ends, the first included.
    assert_eq!(peak.max_within(100 * S), Some(7_001));
    assert_eq!(Shape::constant(Rate::NEVER).unwrap().max_within(S), Some(1));
}

#[test]
fn no_window_passes_the_bound() {
    let mut tried = 0;
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let tree = Tree::random(&mut random, u32::try_from(seed % 4).unwrap());
        let Ok(shape) = tree.shape() else { continue };
        let dues = dues(&shape, 500);
        let span_ns = dues.last().unwrap() + 2;
        for _ in 0..10 {
            let window_ns = random.u64(..span_ns);
            if let Some(bound) = shape.max_within(window_ns) {
                let fullest = fullest(&dues, window_ns);
                assert!(fullest <= bound, "seed {seed}: {fullest} over {bound}, {tree:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 1_000, "only {tried} windows");
}

#[test]
fn a_sum_with_a_sine_has_no_bound_of_its_own() {
    let constant = Shape::constant(rate("1/s")).unwrap();
    let sine = Shape::sine(rate("2/s"), rate("1/s"), S, Factor::ONE).unwrap();
    assert_eq!(constant.plus(sine).unwrap().max_within(S), None);
}
