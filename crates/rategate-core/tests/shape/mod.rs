//! Tests of the `shape` contract, against shapes written out in rational numbers of any size.

mod exact;
mod operations;
mod oracle;
mod text;
mod window;

use fastrand::Rng;
use num_bigint::BigInt;
use rategate_core::rate::Rate;
use rategate_core::shape::{Factor, MAX_DEPTH, MAX_PARTS, Shape, ShapeError};

use self::oracle::{Rational, Tree};
use crate::common::{MS, S, rate};

/// Asserts that operation `n` is due at the first nanosecond by which the integral has reached it:
/// exactly on lines, and within 10^-25 of an operation on a sine.
fn assert_due(tree: &Tree, shape: &Shape, n: u64, what: &str) {
    let slack = if tree.is_made_of_lines() {
        Rational::whole(0)
    } else {
        Rational::new(1, BigInt::from(10).pow(25))
    };
    let wanted = Rational::whole(n);
    let Some(due_ns) = shape.due(n) else {
        let reached = tree.reached(&Rational::whole(u64::MAX)).minus(&slack);
        assert!(!reached.at_least(&wanted), "{what}: operation {n} is never due on {tree:?}");
        return;
    };
    let reached = tree.reached(&Rational::whole(due_ns)).plus(&slack);
    assert!(reached.at_least(&wanted), "{what}: {n} is early at {due_ns} on {tree:?}");
    if let Some(before_ns) = due_ns.checked_sub(1) {
        let before = tree.reached(&Rational::whole(before_ns)).minus(&slack);
        assert!(!before.at_least(&wanted), "{what}: {n} is late at {due_ns} on {tree:?}");
    }
}

fn dues(shape: &Shape, count: u64) -> Vec<Option<u64>> {
    (0..count).map(|n| shape.due(n)).collect()
}

fn factor(numerator: u64, denominator: u64) -> Factor {
    Factor::new(numerator, denominator).unwrap()
}

/// The stages of k6's documentation of the ramping arrival rate carry fractions over.
#[test]
fn stages_carry_fractions_of_an_operation() {
    let stages = [(rate("1/s"), 5 * S), (rate("1/s"), S), (Rate::NEVER, 5 * S)];
    let shape = Shape::stages(Rate::NEVER, stages).unwrap();
    let expected = [
        0,
        3_162_277_661,
        4_472_135_955,
        5_500_000_000,
        6_527_864_046,
        7_837_722_340,
        11_000_000_000,
    ];
    assert_eq!(dues(&shape, 7), expected.map(Some));
    assert_eq!(shape.due(7), None);
}

/// Each form at operations 1, 10^3 and 10^9, and around them.
#[test]
fn each_form_agrees_with_the_integral_written_out() {
    let constant = |text: &str| Tree::Constant(rate(text));
    let ramp = |from: &str, to: &str, ns| Box::new(Tree::Ramp(rate(from), rate(to), ns));
    let sine = |phase| Tree::Sine(rate("100/s"), rate("50/s"), 60 * S, phase);
    let touching = Tree::Sine(rate("1000/s"), rate("1000/s"), 3_600 * S, (3, 4));
    let climb = ramp("never", "100/s", 10 * S);
    let trees = [
        constant("3/s"),
        constant("1000000000/s"),
        Tree::Then(ramp("never", "7/s", 3 * S), Box::new(constant("999983/s"))),
        Tree::Then(ramp("1000/s", "999/s", 86_400 * S), Box::new(constant("1/3ns"))),
        Tree::Then(ramp("1000/s", "never", S), Box::new(constant("13/7us"))),
        Tree::Times(climb.clone(), u64::MAX),
        Tree::Times(Box::new(Tree::Then(climb.clone(), ramp("1/s", "1/7min", MS + 1))), 1 << 40),
        Tree::Plus(Box::new(Tree::Times(climb, u64::MAX)), Box::new(sine((1, 3)))),
        sine((1, 1)),
        sine((5, 7)),
        touching.clone(),
        Tree::Sine(rate("1000000/s"), rate("999983/s"), 86_400 * S, (1, 1)),
        Tree::Time(Box::new(touching), (7, 11)),
        Tree::Rate(Box::new(sine((1, 4))), (11, 13)),
    ];
    for tree in trees {
        let shape = tree.shape().unwrap();
        for n in [0, 1, 2, 999, 1_000, 1_001, 123_456_789, 999_999_999, 1_000_000_000] {
            assert_due(&tree, &shape, n, "each form");
        }
    }
}

/// Random shapes, combined in all ways: each instant is the first nanosecond that will do.
#[test]
fn random_shapes_agree_with_the_integral_written_out() {
    let mut tried = 0;
    for seed in 0..400 {
        let mut random = Rng::with_seed(seed);
        let tree = Tree::random(&mut random, u32::try_from(seed % 5).unwrap());
        let Ok(shape) = tree.shape() else { continue };
        tried += 1;
        let what = format!("seed {seed}");
        let some = [0, 1, 2, 1_000, 1_000_000_000, random.u64(3..1_000), random.u64(..1 << 36)];
        for n in some {
            assert_due(&tree, &shape, n, &what);
        }
        // The last one, if there is one.
        if let Some(length) = tree.length() {
            let all = tree.reached(&length).floor();
            if let Ok(last) = u64::try_from(all) {
                assert_due(&tree, &shape, last, &what);
                assert_due(&tree, &shape, last.saturating_add(1), &what);
            }
        }
    }
    assert!(tried > 330, "only {tried} shapes could be built");
}

/// Operations are due in order, and the number due by an instant is the inverse of their instants.
#[test]
fn operations_are_due_in_order_and_counted_so() {
    for seed in 0..500 {
        let mut random = Rng::with_seed(seed);
        let Ok(shape) = Tree::random(&mut random, 3).shape() else { continue };
        let first = random.u64(..100_000);
        let mut last_ns = 0;
        for n in first..first + 50 {
            let Some(due_ns) = shape.due(n) else { break };
            assert!(due_ns >= last_ns, "seed {seed}: {n}");
            assert!(shape.due_by(due_ns) > n, "seed {seed}: {n}");
            assert!(due_ns == 0 || shape.due_by(due_ns - 1) <= n, "seed {seed}: {n}");
            last_ns = due_ns;
        }
    }
}

/// Shapes that are equal, but built in two ways, have the same instants.
#[test]
fn combining_obeys_the_laws_of_sums_and_sequences() {
    for seed in 0..400 {
        let mut random = Rng::with_seed(seed);
        let mut ending = || {
            let tree = Tree::random(&mut random, 1).shape().ok()?;
            tree.lasting(random.u64(1..=3 * S)).ok()
        };
        let (Some(a), Some(b), Some(c)) = (ending(), ending(), ending()) else { continue };
        let same =
            |what: &str, one: Result<Shape, ShapeError>, other: Result<Shape, ShapeError>| {
                let (Ok(one), Ok(other)) = (one, other) else { return };
                for n in [1, 2, 3, 10, 1_000, 1_000_000, 999_999_999] {
                    assert_eq!(one.due(n), other.due(n), "seed {seed}, {what}: {n}");
                }
            };
        let then = |one: &Shape, other: &Shape| one.clone().then(other.clone());
        let plus = |one: &Shape, other: &Shape| one.clone().plus(other.clone());
        same("a+b = b+a", plus(&a, &b), plus(&b, &a));
        same(
            "(a+b)+c = a+(b+c)",
            plus(&a, &b).and_then(|ab| ab.plus(c.clone())),
            plus(&b, &c).and_then(|bc| a.clone().plus(bc)),
        );
        same(
            "(a;b);c = a;(b;c)",
            then(&a, &b).and_then(|ab| ab.then(c.clone())),
            then(&b, &c).and_then(|bc| a.clone().then(bc)),
        );
        same(
            "a x 3 = a;a;a",
            a.clone().repeated(3),
            then(&a, &a).and_then(|aa| aa.then(a.clone())),
        );
        same("2a = a+a", a.clone().with_rate_times(factor(2, 1)), plus(&a, &a));
        same(
            "there and back",
            a.clone().with_time_times(factor(3, 7)).and_then(|a| a.with_time_times(factor(7, 3))),
            Ok(a.clone()),
        );
        same(
            "rates back",
            b.clone().with_rate_times(factor(3, 7)).and_then(|b| b.with_rate_times(factor(7, 3))),
            Ok(b.clone()),
        );
        same(
            "3/7 (a;b)",
            then(&a, &b).and_then(|ab| ab.with_time_times(factor(3, 7))),
            a.clone()
                .with_time_times(factor(3, 7))
                .and_then(|a| a.then(b.clone().with_time_times(factor(3, 7))?)),
        );
        same(
            "split by time",
            then(&a, &b).and_then(|ab| ab.with_rate_times(factor(3, 7))),
            a.clone()
                .with_rate_times(factor(3, 7))
                .and_then(|a| a.then(b.clone().with_rate_times(factor(3, 7))?)),
        );
    }
}

/// Times of operations are scaled as such: exactly `p / q` of the exact instants.
#[test]
fn a_factor_of_time_moves_the_instants() {
    let shape = Shape::constant(rate("1000/s")).unwrap();
    let slower = shape.clone().with_time_times(factor(5, 2)).unwrap();
    let more = shape.with_rate_times(factor(5, 2)).unwrap();
    assert_eq!((slower.due(1_000), more.due(1_000)), (Some(2_500 * MS), Some(400 * MS)));
}

/// Spikes, steps and saws are what they are made of.
#[test]
fn spikes_steps_and_saws() {
    let (low, high) = (rate("10/s"), rate("1000/s"));
    let spike = Shape::spike(low, high, 2 * S, S).unwrap();
    // 20 before, 1000 within, 10 a second afterwards.
    let instants = [19, 20, 21, 1_020, 1_021].map(|n| spike.due(n).unwrap());
    assert_eq!(instants, [1_900 * MS, 2 * S, 2_001 * MS, 3 * S, 3_100 * MS]);
    let steps = Shape::steps([(low, 2 * S), (high, S)]).unwrap();
    assert_eq!((steps.due(1_020), steps.due(1_021)), (Some(3 * S), None));
    let saw = Shape::sawtooth(Rate::NEVER, high, S).unwrap();
    assert_eq!(
        [125, 500, 625, 500_000_000].map(|n| saw.due(n).unwrap()),
        [500 * MS, S, 1_500 * MS, 1_000_000 * S]
    );
}

/// After each cycle a sine has brought exactly the mean, and goes on as at first.
#[test]
fn a_sine_repeats_itself_exactly() {
    for phase in [(1, 1), (1, 3), (3, 4), (5, 7)] {
        let mean = rate("100/s");
        for amplitude in ["never", "50/s", "99/s", "100/s"] {
            let shape =
                Shape::sine(mean, rate(amplitude), 60 * S, factor(phase.0, phase.1)).unwrap();
            for n in [0, 1, 17, 2_999, 3_000, 5_999] {
                for cycles in [1, 2, 1_000, 1_000_000] {
                    let later = shape.due(n).unwrap() + cycles * 60 * S;
                    assert_eq!(shape.due(n + cycles * 6_000), Some(later), "{phase:?} {amplitude}");
                }
            }
        }
    }
}

/// No number from outside panics: it is an error, or the operation is never due.
#[test]
fn hostile_numbers_are_refused_or_computed() {
    let numbers = [1, 2, 3, 1 << 20, u64::MAX / 3, u64::MAX - 1, u64::MAX];
    let lengths = [1, 7, S, u64::MAX - 1, u64::MAX];
    for seed in 0..400 {
        let mut random = Rng::with_seed(seed);
        let mut number = || random.choice(numbers).unwrap();
        let mut rate = || {
            Rate::new(number(), core::time::Duration::from_nanos(number())).unwrap_or(Rate::NEVER)
        };
        let (a, b, c) = (rate(), rate(), rate());
        let (slower, more) = (factor(number(), number()), factor(number(), number()));
        let mut length = || random.choice(lengths).unwrap();
        let shapes = [
            Shape::constant(a),
            Shape::ramp(a, b, length()),
            Shape::sine(a, b, length(), slower),
            Shape::ramp(a, b, length()).and_then(|ramp| ramp.repeated(length())),
            Shape::ramp(a, b, length()).and_then(|ramp| ramp.then(Shape::constant(c)?)),
            Shape::sine(a, b, length(), more).and_then(|sine| sine.plus(Shape::constant(c)?)),
        ];
        for shape in shapes.into_iter().flatten() {
            let changed = [
                shape.clone().with_time_times(slower),
                shape.clone().with_rate_times(more),
                shape.clone().lasting(length()).and_then(|shape| shape.with_time_times(more)),
                shape.clone().lasting(length()).and_then(|shape| shape.repeated(length())),
                Ok(shape),
            ];
            for shape in changed.into_iter().flatten() {
                for n in numbers {
                    let _ = shape.due(n);
                    let _ = shape.due_by(n);
                    let _ = shape.max_within(n);
                }
            }
        }
    }
}

#[test]
fn misuse_is_an_error() {
    let one = rate("1/s");
    let constant = || Shape::constant(one).unwrap();
    assert_eq!(Shape::constant(Rate::UNLIMITED), Err(ShapeError::Unlimited));
    assert_eq!(Shape::ramp(Rate::UNLIMITED, one, S), Err(ShapeError::Unlimited));
    assert_eq!(Shape::ramp(one, one, 0), Err(ShapeError::NoTime));
    assert_eq!(Shape::steps([]), Err(ShapeError::NoTime));
    assert_eq!(Shape::stages(one, []), Err(ShapeError::NoTime));
    assert_eq!(constant().lasting(0), Err(ShapeError::NoTime));
    assert_eq!(Shape::sine(one, rate("2/s"), S, Factor::ONE), Err(ShapeError::Amplitude));
    assert_eq!(Shape::sine(one, one, 0, Factor::ONE), Err(ShapeError::NoTime));
    assert_eq!(constant().then(constant()), Err(ShapeError::Unending));
    assert_eq!(constant().repeated(2), Err(ShapeError::Unending));
    assert_eq!(Shape::ramp(one, one, S).unwrap().repeated(0), Err(ShapeError::NoRepetition));
    assert_eq!(Factor::new(0, 1), Err(ShapeError::Factor));
    assert_eq!(Factor::new(1, 0), Err(ShapeError::Factor));
    let slowest = Rate::new(1, core::time::Duration::from_nanos(u64::MAX)).unwrap();
    assert_eq!(Shape::ramp(slowest, one, u64::MAX), Err(ShapeError::TooFine));
    let short = constant().lasting(1).unwrap();
    assert_eq!(short.clone().with_time_times(factor(1, 1 << 21)), Err(ShapeError::TooFine));
    let century = constant().lasting(100 * 31_536_000 * S).unwrap();
    assert_eq!(century.with_time_times(factor(1 << 40, 1)), Err(ShapeError::TooLong));
    let mut list = short.clone();
    for _ in 1..MAX_PARTS - 1 {
        list = list.then(short.clone()).unwrap();
    }
    assert_eq!(list.due(0), Some(0));
    assert_eq!(list.then(short.clone()), Err(ShapeError::TooManyParts));
    let mut nested = short;
    for _ in 1..MAX_DEPTH {
        nested = nested.repeated(1).unwrap();
    }
    assert_eq!(nested.repeated(1), Err(ShapeError::TooDeep));
}
