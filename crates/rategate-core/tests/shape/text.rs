//! Tests of the text form of loads.

use fastrand::Rng;
use rategate_core::error::{RateError, SpanError};
use rategate_core::shape::{Load, LoadError, LoadFault, ShapeError};

use crate::common::{MS, S};

fn load(text: &str) -> Load {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn due(text: &str, n: u64) -> Option<u64> {
    load(text).operations().due(n)
}

#[test]
fn each_form_is_read() {
    assert_eq!(due("constant:100/s", 250), Some(2_500 * MS));
    assert_eq!(due("constant:100/s@1s", 101), None);
    assert_eq!(due("ramp:0/s>100/s@10s", 500), Some(10 * S));
    assert_eq!(due("ramp:never>100/s@10s", 125), Some(5 * S));
    assert_eq!(due("sawtooth:0/s>100/s@10s", 625), Some(15 * S));
    assert_eq!(due("stages:0/s>1/s@5s,1/s@1s,0/s@5s", 6), Some(11 * S));
    assert_eq!(due("sine:100/s,50/s,60s", 6_000), Some(60 * S));
    assert_ne!(due("sine:100/s,50/s,60s,1/4", 100), due("sine:100/s,50/s,60s", 100));
}

/// A length ends any shape, so that another can follow it.
#[test]
fn a_length_ends_any_shape() {
    // In half a cycle 3000 and 3000/pi, and 6045.070341448628 s of the constant.
    let half = "sine:100/s,50/s,60s@30s then constant:1/s";
    assert_eq!(due(half, 10_000), Some(6_075 * S + 70_341_449));
    assert_eq!(due("sine:100/s,50/s,60s @60s x2", 12_000), Some(120 * S));
    assert_eq!(due("sine:100/s,50/s,60s @60s x2", 12_001), None);
    assert_eq!(due("(constant:1/s + constant:2/s)@2s", 6), Some(2 * S));
    assert_eq!(due("(constant:1/s + constant:2/s)@2s", 7), None);
    assert_eq!(due("ramp:0/s>1/s@10s@2s", 1), None);
    assert_eq!(due("constant:1/s@1s x5@3s", 3), Some(3 * S));
    assert_eq!(due("constant:1/s@1s x5@3s", 4), None);
    // Of several lengths, nested as deep as one likes, the shortest holds.
    let nested = load(&format!("constant:1/s@5s@2s{}", "@9s".repeat(100_000)));
    assert_eq!(nested.to_string(), "constant:1/s@2s");
    assert_eq!(nested.operations().due(3), None);
}

/// `x3` binds most tightly, then `+`, then `then`.
#[test]
fn words_join_in_their_order() {
    assert_eq!(due("constant:1/s@2s x3", 7), None);
    assert_eq!(due("constant:1/s@2s x3", 6), Some(6 * S));
    assert_eq!(due("constant:1/s@2s + constant:3/s@2s", 8), Some(2 * S));
    assert_eq!(due("constant:1/s@2s then constant:3/s", 5), Some(3 * S));
    // 4/s for 2 s, then 1/s: not 1/s after 1 and 3 and 1 at once.
    assert_eq!(due("constant:1/s@2s+constant:3/s@2s then constant:1/s", 9), Some(3 * S));
    assert_eq!(due("constant:1/s@1s + (constant:3/s@1s then constant:1/s)", 5), Some(2 * S));
    assert_eq!(due("(constant:1/s@1s then constant:3/s@1s) x2 x2", 16), Some(8 * S));
    let process = load("poisson(constant:1/s@9s then constant:5/s),seed=7");
    let all: Vec<u64> = process.operations().clone().into_iter().take(9).collect();
    assert!(all.windows(2).all(|pair| pair[0] <= pair[1]));
    assert_ne!(process, load("poisson(constant:1/s@9s then constant:5/s),seed=8"));
}

#[test]
fn an_error_says_where_and_what() {
    let at = |text: &str| text.parse::<Load>().map(|_| ()).unwrap_err();
    let wrong = |text: &str, at_byte: usize, fault: LoadFault| {
        let LoadError { at, fault: found, .. } = at(text);
        assert_eq!((at, found), (at_byte, fault), "{text}");
    };
    let shape = LoadFault::Shape;
    wrong("constant:5", 9, LoadFault::Rate(RateError::Malformed));
    wrong("constant:unlimited", 0, shape(ShapeError::Unlimited));
    wrong("ramp:0/s>1/s@10", 13, LoadFault::Length(SpanError::NoUnit));
    wrong("constant:1/s then constant:2/s", 18, shape(ShapeError::Unending));
    wrong("constant:1/s x2", 0, shape(ShapeError::Unending));
    wrong("constant:1/s@1s x0", 0, shape(ShapeError::NoRepetition));
    wrong("constant:1/s@1s + sine:1/s,2/s,1s", 18, shape(ShapeError::Amplitude));
    wrong(&format!("{}constant:1/s", "(".repeat(99)), 32, shape(ShapeError::TooDeep));
    let texts = [
        "",
        "steady:1/s",
        "constant:1/s@1s than",
        "(constant:1/s",
        "ramp:1/s",
        "ramp:1/s>2/s",
        "sine:1/s,1/s",
        "sine:2/s,1/s,1s,2",
        "constant:1/s@1s x",
        "constant:1/s@1s x+2",
        "poisson(constant:1/s)",
        "poisson(constant:1/s),seed=-1",
        "constant:1/s)",
    ];
    for (text, byte) in texts.into_iter().zip([0, 0, 16, 13, 8, 12, 12, 16, 17, 17, 20, 27, 12]) {
        let error = at(text);
        assert!(matches!(error.fault, LoadFault::Expected(_)), "{text}: {error}");
        assert_eq!(error.at, byte, "{text}: {error}");
    }
    // A process stands around a whole load, and a rate of a shape is never unlimited.
    let says = |text: &str, part: &str| at(text).to_string().contains(part);
    for start in ["", " ", "steady:1/s"] {
        assert!(says(start, "\"sine:\", \"poisson(\" or a parenthesis"), "{start}");
    }
    for within in ["constant:1/s@1s then poisson(", "(steady:1/s)", "poisson(steady:1/s),seed=7"] {
        assert!(says(within, "\"sine:\" or a parenthesis"), "{within}: {}", at(within));
    }
    for rate in ["constant:5", "constant:5/0s", "constant:-5/s", "sine:1/s,5O/s,1s"] {
        assert!(
            says(rate, "write ") && !says(rate, "unlimited") && !says(rate, "never\""),
            "{rate}"
        );
    }
    let message = "at byte 13: a duration needs a unit: one of ns us ms s min h d, as in \"10ms\"";
    assert_eq!(at("ramp:0/s>1/s@10").to_string(), message);
}

/// Returns a random text, in the form in which it is printed.
fn text(random: &mut Rng, depth: u32) -> (String, u8) {
    let rate =
        |random: &mut Rng| random.choice(["0/s", "1/s", "100/s", "30/min", "5/7ms"]).unwrap();
    let length = |random: &mut Rng| random.choice(["1ns", "1.5ms", "10s", "3600s"]).unwrap();
    let (one, other, span) = (rate(random), rate(random), length(random));
    if depth == 0 {
        let form = match random.u8(..6) {
            0 => format!("constant:{one}@{span}"),
            1 => format!("ramp:{one}>{other}@{span}"),
            2 => format!("stages:{one}>{other}@{span},{one}@10s"),
            3 => format!("sine:100/s,{one},{span},1/4"),
            4 => format!("sine:100/s,{one},{span}@{span}"),
            _ => format!("sawtooth:{one}>{other}@{span}"),
        };
        return (form, 3);
    }
    let mut part = |above: u8| {
        let (part, binds) = text(random, depth - 1);
        if binds < above { format!("({part})") } else { part }
    };
    match depth % 4 {
        0 => (format!("{} then {}", part(1), part(1)), 0),
        3 => (format!("({} + {})@{span}", part(2), part(2)), 2),
        1 => (format!("{} + {}", part(2), part(2)), 1),
        _ => (format!("{} x3", part(2)), 2),
    }
}

/// Texts in the form in which loads are printed come back as they were.
#[test]
fn what_is_printed_is_read_back() {
    let mut read = 0;
    for seed in 0..2_000 {
        let mut random = Rng::with_seed(seed);
        let (mut written, _) = text(&mut random, u32::try_from(seed % 5).unwrap());
        if seed % 2 == 0 {
            written = format!("poisson({written}),seed={seed}");
        }
        let Ok(load) = written.parse::<Load>() else { continue };
        assert_eq!(load.to_string(), written);
        assert_eq!(load.to_string().parse(), Ok(load), "{written}");
        read += 1;
    }
    assert!(read > 700, "only {read} texts could be built");
}

/// No text panics, and an error lies within it.
#[test]
fn any_text_is_read_or_refused() {
    let pieces = [
        "constant:",
        "ramp:",
        "sine:",
        "poisson(",
        "(",
        ")",
        "1/s",
        "0/s",
        ">",
        "@",
        ",",
        "10s",
        " then ",
        "+",
        " x",
        "3",
        "18446744073709551615",
        ",seed=",
        "é",
        "stages:",
        "1/4",
        " ",
    ];
    for seed in 0..20_000 {
        let mut random = Rng::with_seed(seed);
        let count = random.usize(..12);
        let text: String = (0..count).map(|_| random.choice(pieces).unwrap()).collect();
        if let Err(error) = text.parse::<Load>() {
            assert!(error.at <= text.len() && text.is_char_boundary(error.at), "{text}: {error}");
        }
    }
}
