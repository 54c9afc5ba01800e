//! Tests of rates, durations and ratios: accepted text, refused text, and no rounding.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::{fraction, rate};
use fastrand::Rng;
use proptest::prelude::*;
use rategate_core::error::{RateError, RatioError, SpanError};
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::span;

const SECOND_TICKS: i64 = 10_000_000;

/// S0.9, S0.10, S0.11, S0.12, S0.16, S0.17, S0.18, S0.19: the interval of an ordinary rate, in
/// ticks of 100 ns.
#[test]
fn intervals_of_ordinary_rates() {
    for (per_second, ticks) in
        [(0.5, 2 * SECOND_TICKS), (1.0, SECOND_TICKS), (2.0, SECOND_TICKS / 2), (100.0, 100_000)]
    {
        assert_eq!(Rate::per_second_f64(per_second).unwrap().time_ticks(), ticks, "{per_second}/s");
    }
    for (per_minute, seconds_in_tenths) in [(0.5, 1_200), (1.0, 600), (2.0, 300), (120.0, 5)] {
        let ticks = seconds_in_tenths * SECOND_TICKS / 10;
        assert_eq!(
            Rate::per_minute_f64(per_minute).unwrap().time_ticks(),
            ticks,
            "{per_minute}/min"
        );
    }
}

/// S0.13, S0.14, S0.20, S0.21, X0.3: to the operation throttle zero, negative numbers and
/// not-a-number are never, however negative, and infinity is unlimited. Elsewhere they are errors.
#[test]
fn the_ends_of_the_float_range() {
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    for period in [second, minute] {
        let per = |operations| {
            let is_second = period == second;
            if is_second {
                Rate::per_second_f64(operations)
            } else {
                Rate::per_minute_f64(operations)
            }
        };
        let throttle = |operations| Rate::operation_throttle(operations, period);
        for (nothing, error) in [
            (-1.0, RateError::Negative),
            (0.0, RateError::Zero),
            (-0.0, RateError::Zero),
            (-1e300, RateError::Negative),
            (f64::MIN, RateError::Negative),
            (-1e-310, RateError::Negative),
            (f64::NEG_INFINITY, RateError::NotFinite),
            (f64::NAN, RateError::NotFinite),
        ] {
            assert_eq!(per(nothing), Err(error), "{nothing}");
            let rate = throttle(nothing).unwrap();
            assert_eq!((rate, rate.time_ticks()), (Rate::NEVER, i64::MAX), "{nothing}");
        }
        assert_eq!(per(f64::INFINITY), Err(RateError::NotFinite));
        let unlimited = throttle(f64::INFINITY).unwrap();
        assert_eq!((unlimited, unlimited.time_ticks()), (Rate::UNLIMITED, 0));
        // Neither end, and no 64-bit fraction: an error, not a silent end.
        for beyond in [1e-310, f64::MIN_POSITIVE, 1e300, f64::MAX] {
            assert_eq!(per(beyond), Err(RateError::NotRepresentable), "{beyond}");
            assert_eq!(throttle(beyond), per(beyond), "{beyond}");
        }
        assert_eq!(throttle(2.5), per(2.5));
    }
    assert_eq!(Rate::operation_throttle(1.0, Duration::ZERO), Err(RateError::ZeroPeriod));
}

/// What 64 bits cannot hold as a decimal is the simplest fraction that is the same number.
#[test]
fn a_third_is_a_third() {
    assert_eq!(Rate::per_second_f64(1.0 / 3.0), Ok(rate("1/3s")));
    assert_eq!(Rate::per_minute_f64(2.0 / 7.0), Ok(rate("2/7min")));
    let mut random = Rng::with_seed(3);
    for _ in 0..10_000 {
        let (permits, period_s) = (random.u32(1..=100_000), random.u32(1..=100_000));
        let read = Rate::per_second_f64(f64::from(permits) / f64::from(period_s));
        assert_eq!(read, Rate::new(permits.into(), Duration::from_secs(period_s.into())));
    }
}

/// S0.15, S0.22, X0.4: the tick view truncates, down to zero; the rate itself stays exact.
#[test]
fn ticks_cut_off_and_rates_do_not() {
    assert_eq!(Rate::per_second_f64(1e9).unwrap().time_ticks(), 0);
    assert_eq!(Rate::per_minute_f64(1e9).unwrap().time_ticks(), 0);
    let three_million = Rate::per_second_f64(3e6).unwrap();
    assert_eq!(three_million.time_ticks(), 3);
    assert_eq!(three_million.fraction(), Some((3, 1_000)));
    assert_eq!(Rate::per_second_f64(1e10).unwrap().fraction(), Some((10, 1)));
}

/// S0.23: per minute is per second with a sixtieth, and ticks are the integer part of
/// `10_000_000 / operations`.
#[test]
fn per_minute_is_a_sixtieth_per_second() {
    let mut random = Rng::with_seed(23);
    for _ in 0..500 {
        let operations = u32::try_from(random.u64(1..=1_000_000)).unwrap();
        let per_second = Rate::per_second_f64(operations.into()).unwrap();
        assert_eq!(per_second.time_ticks(), SECOND_TICKS / i64::from(operations));
        let per_minute = Rate::per_minute_f64(f64::from(operations) * 60.0).unwrap();
        assert_eq!(per_minute, per_second);
    }
}

/// A float stands for its shortest decimal, not for its binary expansion.
#[test]
fn floats_are_read_as_written() {
    assert_eq!(Rate::per_second_f64(0.1), Ok(rate("0.1/s")));
    assert_eq!(Rate::per_second_f64(2.000_000_1), Ok(rate("2.0000001/s")));
    assert_eq!(Rate::per_minute_f64(0.3), Ok(rate("0.3/min")));
}

#[test]
fn a_malformed_rate_says_what_is_wrong() {
    use RateError::{Malformed, Negative, NotRepresentable, Period, Zero, ZeroPeriod};
    let long = format!("{}/s", "9".repeat(60));
    for (text, error) in [
        ("", Malformed),
        ("5", Malformed),
        ("/s", Malformed),
        ("five/s", Malformed),
        (" 5/s", Malformed),
        ("+5/s", Malformed),
        ("1e3/s", Malformed),
        (".5/s", Malformed),
        ("5./s", Malformed),
        ("0.5x/s", Malformed),
        ("-x/s", Malformed),
        ("Never", Malformed),
        ("unlimited/s", Malformed),
        ("-5/s", Negative),
        ("-0.5/s", Negative),
        ("0/s", Zero),
        ("0.000/s", Zero),
        ("5/0s", ZeroPeriod),
        ("5/0.0ms", ZeroPeriod),
        ("5/10", Period(SpanError::NoUnit)),
        ("5/10y", Period(SpanError::UnknownUnit)),
        ("5/", Period(SpanError::Malformed)),
        ("5/-1s", Period(SpanError::Malformed)),
        ("5/s/s", Period(SpanError::Malformed)),
        ("5/1.5ns", Period(SpanError::BelowNanosecond)),
        ("5/300000d", Period(SpanError::TooLong)),
        ("99999999999999999999/s", NotRepresentable),
        ("0.00000000000000000001/s", NotRepresentable),
        (long.as_str(), NotRepresentable),
    ] {
        assert_eq!(text.parse::<Rate>(), Err(error), "{text:?}");
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn constructors_agree_with_the_text() {
    for permits in [1, 3, 7, 1_000, 10_000_000_000] {
        for (made, unit) in [
            (Rate::per_second(permits), "s"),
            (Rate::per_minute(permits), "min"),
            (Rate::per_hour(permits), "h"),
            (Rate::per_day(permits), "d"),
        ] {
            assert_eq!(made, rate(&format!("{permits}/{unit}")));
        }
        let made = Rate::new(permits, Duration::from_millis(1_500));
        assert_eq!(made, format!("{permits}/1.5s").parse());
    }
    assert_eq!(Rate::new(0, Duration::from_secs(1)), Err(RateError::Zero));
    assert_eq!(Rate::new(1, Duration::ZERO), Err(RateError::ZeroPeriod));
    assert_eq!(Rate::new(1, Duration::MAX), Err(RateError::NotRepresentable));
    assert_eq!((Rate::NEVER.fraction(), Rate::UNLIMITED.fraction()), (None, None));
    assert_eq!(rate("never"), Rate::NEVER);
    assert_eq!(rate("unlimited"), Rate::UNLIMITED);
    assert_eq!(Rate::NEVER.to_string(), "never");
    assert_eq!(Rate::UNLIMITED.to_string(), "unlimited");
    for text in ["0.5/s", "1000/10s", "100/min", "7/h", "1/min", "30/min", "1/2s", "1.25/250ms"] {
        assert_eq!(rate(text).to_string(), text);
    }
    assert_eq!(Rate::per_minute(30).to_string(), "30/min");
    // Equal rates print as each was written; half of one has the first unit that is whole.
    assert_eq!(rate("30/min"), rate("1/2s"));
    assert_eq!(Rate::per_second(5).part(1, NonZeroU64::new(2).unwrap()).to_string(), "150/min");
    for (written, same) in [
        ("5/minute", "5/min"),
        ("10/sec", "10/s"),
        ("1 per second", "1/s"),
        ("1k/s", "1000/s"),
        ("1.5M/hour", "1500000/h"),
        ("3 per 2 hours", "3/2h"),
        ("7/10 seconds", "7/10s"),
        ("100/day", "100/d"),
    ] {
        assert_eq!(rate(written), rate(same), "{written}");
    }
    for text in [
        "1 k/s",
        "1K/s",
        "k/s",
        "1/secondss",
        "1 persecond",
        "1//s",
        "1 per per s",
        " 1/s",
        "1 /s",
        "1/ s",
        "1/2  s",
    ] {
        assert!(text.parse::<Rate>().is_err(), "{text}");
    }
}

#[test]
fn durations_are_exact_or_refused() {
    for (text, ns) in [
        ("0ns", 0),
        ("250ns", 250),
        ("0.1us", 100),
        ("0.1ms", 100_000),
        ("10.10ms", 10_100_000),
        ("0.000000001s", 1),
        ("1.5min", 90_000_000_000),
        ("0.5h", 1_800_000_000_000),
        ("365d", 31_536_000_000_000_000),
        ("18446744073709551615ns", u64::MAX),
        ("18446744073.709551615s", u64::MAX),
        ("1.0000000000000000000000ns", 1),
    ] {
        assert_eq!(span::parse(text), Ok(ns), "{text}");
    }
    for (text, error) in [
        ("", SpanError::Malformed),
        ("s", SpanError::Malformed),
        ("-1s", SpanError::Malformed),
        ("1e3s", SpanError::UnknownUnit),
        ("1,5s", SpanError::Malformed),
        ("1 s", SpanError::Malformed),
        (".5s", SpanError::Malformed),
        ("5.s", SpanError::Malformed),
        ("10", SpanError::NoUnit),
        ("0", SpanError::NoUnit),
        ("584.5y", SpanError::UnknownUnit),
        ("1S", SpanError::UnknownUnit),
        ("1sek", SpanError::UnknownUnit),
        ("0.5ns", SpanError::BelowNanosecond),
        ("1.0000000001s", SpanError::BelowNanosecond),
        ("18446744073709551616ns", SpanError::TooLong),
        ("18446744073.709551616s", SpanError::TooLong),
        ("213504d", SpanError::TooLong),
    ] {
        assert_eq!(span::parse(text), Err(error), "{text:?}");
        assert!(!error.to_string().is_empty());
    }
    for (ns, text) in [
        (0, "0ns"),
        (999, "999ns"),
        (1_000, "1us"),
        (1_500_000, "1.5ms"),
        (10_000_001, "10.000001ms"),
        (60_000_000_000, "60s"),
        (u64::MAX, "18446744073.709551615s"),
    ] {
        assert_eq!(span::Text(ns).to_string(), text);
    }
}

#[test]
fn ratios_are_exact_or_refused() {
    for (text, numerator, denominator) in [
        ("1", 1, 1),
        ("1.5", 3, 2),
        ("1.10", 11, 10),
        ("1000000", 1_000_000, 1),
        ("1.000000000001", 1_000_000_000_001, 1_000_000_000_000),
    ] {
        let ratio: Ratio = text.parse().unwrap();
        assert_eq!((ratio.numerator().get(), ratio.denominator().get()), (numerator, denominator));
        assert_eq!(ratio.to_string(), format!("{numerator}/{denominator}"));
    }
    assert_eq!(Ratio::from_f64(1.1), "1.1".parse());
    assert_eq!("1".parse(), Ok(Ratio::ONE));
    for (text, error) in [
        ("0.999", RatioError::BelowOne),
        ("0", RatioError::BelowOne),
        ("-1.5", RatioError::Malformed),
        ("x", RatioError::Malformed),
        ("1000000.1", RatioError::OutOfRange),
        ("1.0000000000001", RatioError::OutOfRange),
    ] {
        assert_eq!(text.parse::<Ratio>(), Err(error), "{text}");
        assert!(!error.to_string().is_empty());
    }
    assert_eq!(Ratio::new(1, 0), Err(RatioError::OutOfRange));
    assert_eq!(Ratio::new(0, 0), Err(RatioError::OutOfRange));
    assert_eq!(Ratio::new(6, 4), Ratio::new(3, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Reading a printed rate gives the same rate, and the fraction is the reduced one.
    #[test]
    fn rates_survive_printing(permits in 1_u64.., period_ns in 1_u64..) {
        let made = Rate::new(permits, Duration::from_nanos(period_ns)).unwrap();
        prop_assert_eq!(made.to_string().parse(), Ok(made));
        let (up, down) = fraction(made);
        prop_assert_eq!(up * u128::from(period_ns), down * u128::from(permits));
        prop_assert!((2..1_000).all(|factor| up % factor != 0 || down % factor != 0));
    }

    /// Round rates, whose periods divide a second, print per second.
    #[test]
    fn round_rates_survive_printing(permits in 1_u64..100_000, zeros in 0_u32..10) {
        let made = Rate::new(permits, Duration::from_nanos(10_u64.pow(zeros))).unwrap();
        prop_assert_eq!(made.to_string().parse(), Ok(made));
    }

    /// `a.b` per second is exactly `ab / 10^digits` per second.
    #[test]
    fn decimals_are_exact(whole in 0_u64..1_000_000, part in 1_u64..1_000_000) {
        let made = rate(&format!("{whole}.{part:06}/s"));
        let (up, down) = fraction(made);
        let millionths = u128::from(whole) * 1_000_000 + u128::from(part);
        prop_assert_eq!(up * 1_000_000 * 1_000_000_000, millionths * down);
    }

    #[test]
    fn durations_survive_printing(ns: u64, shift in 0_u32..64) {
        let ns = ns >> shift;
        prop_assert_eq!(span::parse(&span::Text(ns).to_string()), Ok(ns));
    }
}
