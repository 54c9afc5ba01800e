//! Tests against `testdata/shapes/instants.txt`, whose numbers have 50 digits.
//!
//! `instants.py` beside that file writes it, and has the same shapes.

use rategate_core::rate::Rate;
use rategate_core::shape::{Operations, Shape};

use super::factor;
use super::window::fullest;
use crate::common::{S, rate};

const TABLE: &str = include_str!("../../../../testdata/shapes/instants.txt");

/// The unit in which numbers of the table are compared: 10^-18.
const ONE: i128 = 1_000_000_000_000_000_000;
/// The rounding of whole numbers in the table, in that unit.
const HAIR: i128 = 10;

const MIN: u64 = 60 * S;
const HOUR: u64 = 60 * MIN;

fn shape(name: &str) -> Shape {
    let steady = |text| Shape::constant(rate(text));
    let ramp = |from, to, ns| Shape::ramp(rate(from), rate(to), ns);
    let saw = |from, to, ns| Shape::sawtooth(rate(from), rate(to), ns);
    let sine =
        |mean, amplitude, ns, (p, q)| Shape::sine(rate(mean), rate(amplitude), ns, factor(p, q));
    let sine_from = |phase| sine("100/s", "50/s", MIN, phase);
    let stages = |stages: &[(&str, u64)]| {
        Shape::stages(Rate::NEVER, stages.iter().map(|&(to, ns)| (rate(to), ns)))
    };
    let climb = || ramp("never", "100/s", 10 * S);
    let touching = || sine("1000/s", "1000/s", HOUR, (3, 4));
    let (million, prime) = ("1000000/s", "999983/s");
    let built = match name {
        "constant" => steady("3/s"),
        "constant-of-a-prime" => steady("1/7ns"),
        "constant-at-its-fastest" => steady("1000000000/s"),
        "steps" => Shape::steps([(rate("3/s"), 7 * S), (rate(prime), 1_100 * S), (rate("5/s"), S)]),
        "spike" => Shape::spike(rate("10/s"), rate("1000/s"), 2 * S, S),
        "ramp-up" => ramp("7/s", prime, HOUR),
        "ramp-down" => ramp(prime, "7/s", HOUR),
        "ramp-from-zero" => ramp("never", prime, HOUR),
        "ramp-nearly-flat" => ramp(million, "999999/s", 2_000 * S),
        "stages-of-k6" => stages(&[("1/s", 5 * S), ("1/s", S), ("never", 5 * S)]),
        "stages" => {
            stages(&[(million, 10 * MIN), (million, 10 * MIN), ("7/s", 20 * MIN), ("9/s", MIN)])
        }
        "sawtooth" => saw("never", "100/s", 10 * S),
        "sawtooth-down" => saw("100/s", "3/s", 7 * S),
        "sine" => sine_from((1, 1)),
        "sine-of-a-quarter" => sine_from((1, 4)),
        "sine-of-five-sevenths" => sine("100/s", "60/s", MIN, (5, 7)),
        "sine-that-touches-zero" => touching(),
        "sine-of-a-day" => sine(million, prime, 24 * HOUR, (1, 3)),
        "sum" => climb().and_then(|climb| climb.plus(steady("3/s")?)),
        "sum-of-sines" => {
            sine_from((1, 1)).and_then(|one| one.plus(sine("7/s", "7/s", 17 * S, (2, 3))?))
        }
        "sum-of-all" => saw("never", "100/s", 10 * S)
            .and_then(|saw| saw.plus(sine_from((1, 1))?))
            .and_then(|both| both.plus(steady("1/7s")?)),
        "rate-of-a-ramp" => {
            ramp("7/s", prime, HOUR).and_then(|ramp| ramp.with_rate_times(factor(7, 3)))
        }
        "rate-of-a-sine" => sine_from((1, 4)).and_then(|sine| sine.with_rate_times(factor(11, 13))),
        "time-of-a-saw" => {
            saw("100/s", "3/s", 7 * S).and_then(|saw| saw.with_time_times(factor(7, 11)))
        }
        "time-of-a-sine" => touching().and_then(|sine| sine.with_time_times(factor(7, 11))),
        "rate-and-time" => climb()
            .and_then(|climb| climb.then(steady(prime)?))
            .and_then(|shape| shape.with_rate_times(factor(3, 7)))
            .and_then(|shape| shape.with_time_times(factor(13, 9))),
        "then" => ramp("never", "7/s", 3 * S)
            .and_then(|ramp| ramp.then(sine_from((1, 1))?.lasting(50 * S)?))
            .and_then(|shape| shape.then(steady(prime)?)),
        "repeated" => climb()
            .and_then(|climb| climb.then(sine_from((1, 1))?.lasting(25 * S)?))
            .and_then(|each| each.repeated(1 << 40)),
        "peak" => ramp("never", "1000/s", 4 * S)
            .and_then(|rise| rise.then(ramp("1000/s", "never", 10 * S)?)),
        _ => panic!("no shape has the name {name}"),
    };
    built.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Reads a decimal of the table, cut after 18 digits.
fn decimal(text: &str) -> i128 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part: String = part.chars().chain("0".repeat(18).chars()).take(18).collect();
    whole.parse::<i128>().unwrap() * ONE + part.parse::<i128>().unwrap()
}

/// Asserts that an instant is never early, and less than 1 ns late.
fn assert_exact(due_ns: Option<u64>, wanted: &str, line: &str) {
    let Some(due_ns) = due_ns else {
        assert_eq!(wanted, "never", "{line}");
        return;
    };
    let late = i128::from(due_ns) * ONE - decimal(wanted);
    assert!((-HAIR..ONE).contains(&late), "{line}: due at {due_ns}");
}

/// Returns the lines of the table that begin with a word, split into fields.
fn lines(word: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    TABLE.lines().filter_map(move |line| {
        let fields = line.strip_prefix(word)?.split_whitespace().collect();
        Some((line, fields))
    })
}

#[test]
fn each_shape_is_exact_to_the_nanosecond() {
    let mut count = 0;
    for (line, fields) in lines("due ") {
        let [name, n, ns] = fields[..] else { panic!("{line}") };
        assert_exact(shape(name).due(n.parse().unwrap()), ns, line);
        count += 1;
    }
    assert!(count >= 29 * 3, "only {count} lines");
}

/// The exponential numbers are the generator's, and their sums are whole in 2^-32.
#[test]
fn poisson_processes_are_exact_to_the_nanosecond() {
    let mut count = 0;
    for (line, fields) in lines("poisson ") {
        let [name, seed, n, ns] = fields[..] else { panic!("{line}") };
        let operations = Operations::poisson(shape(name), seed.parse().unwrap());
        assert_exact(operations.due(n.parse().unwrap()), ns, line);
        count += 1;
    }
    assert!(count >= 24, "only {count} lines");
}

/// The bound is the gain of 50 digits, rounded up, or what the start has with operation 0.
#[test]
fn the_bound_of_each_shape_is_exact_and_reached() {
    let mut count = 0;
    for (line, fields) in lines("window ") {
        let [name, window_ns, gain] = fields[..] else { panic!("{line}") };
        let (shape, window_ns) = (shape(name), window_ns.parse().unwrap());
        let gain = u64::try_from((decimal(gain) + ONE - 1 - HAIR) / ONE).unwrap();
        let bound = gain.max(shape.due_by(window_ns));
        assert_eq!(shape.max_within(window_ns), Some(bound), "{line}");
        let dues: Vec<u64> = (0..20_000).map_while(|n| shape.due(n)).collect();
        let fullest = fullest(&dues, window_ns);
        assert_eq!(fullest, bound, "{line}: the fullest window");
        count += 1;
    }
    assert!(count >= 50, "only {count} lines");
}
