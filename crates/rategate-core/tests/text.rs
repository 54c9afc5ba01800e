//! Tests of the text grammar of limits.

use std::time::Duration;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::error::{LimitError, PolicyTextError, RateError, SpanError};
use rategate_core::gcra::Gcra;
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn what_is_written_is_read_and_printed() {
    let cases: [(&str, AnyPolicy); 12] = [
        ("10/s", Gcra::per_second(10).burst(10).into()),
        ("10/s burst 1", Gcra::per_second(10).into()),
        ("1/s", Gcra::per_second(1).into()),
        ("0.5/s", Gcra::new("0.5/s".parse().unwrap(), 1).unwrap().into()),
        ("1000/10s", Gcra::new("1000/10s".parse().unwrap(), 1_000).unwrap().into()),
        ("10/s burst 5", Gcra::per_second(10).burst(5).into()),
        ("100/min burst 20", Gcra::per_minute(100).burst(20).into()),
        ("7/h", Gcra::per_hour(7).burst(7).into()),
        ("never", Gcra::spaced(Rate::NEVER).into()),
        ("100 per any 1min", SlidingLog::new(100, 60 * SECOND).into()),
        ("3 per any 1.5s", SlidingLog::new(3, Duration::from_millis(1_500)).into()),
        ("1 per any 7d", SlidingLog::new(1, 7 * 86_400 * SECOND).into()),
    ];
    for (text, limit) in cases {
        assert_eq!(text.parse(), Ok(limit), "{text}");
        assert_eq!(limit.to_string(), text);
    }
}

#[test]
fn other_spellings_are_read() {
    for (text, same) in [
        ("5 per minute", "5/min"),
        (" 1k/s  burst  10 ", "1000/s burst 10"),
        ("100 per any minute", "100 per any 1min"),
        ("100 per any 2 hours", "100 per any 2h"),
    ] {
        assert_eq!(text.parse::<AnyPolicy>(), same.parse(), "{text}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    use PolicyTextError::{Burst, BurstOfNever, Limit, Permits, Window};
    for (text, error) in [
        ("", PolicyTextError::Rate(RateError::Malformed)),
        ("10", PolicyTextError::Rate(RateError::Malformed)),
        ("0/s", PolicyTextError::Rate(RateError::Zero)),
        ("10/s burst", PolicyTextError::Rate(RateError::Period(SpanError::Malformed))),
        ("10/s burst x", Burst),
        ("10/s burst -1", Burst),
        ("10/s burst 0", Limit(LimitError::ZeroPermits)),
        ("never burst 3", BurstOfNever),
        ("x per any 1s", Permits),
        ("1.5 per any 1s", Permits),
        ("1 per any 1", Window(SpanError::NoUnit)),
        ("1 per any 0s", Limit(LimitError::ZeroPeriod)),
        ("0 per any 1s", Limit(LimitError::ZeroPermits)),
    ] {
        assert_eq!(text.parse::<AnyPolicy>(), Err(error), "{text:?}");
        assert!(!error.to_string().is_empty());
    }
    assert_eq!("10/s".parse::<SlidingLog>(), Err(Permits));
}

#[test]
fn constants_are_made_without_a_result() {
    const LOG: SlidingLog = SlidingLog::new(2, SECOND);
    const BUCKET: Gcra = Gcra::per_day(3).burst(2);
    assert_eq!(LOG, SlidingLog::try_new(2, SECOND).unwrap());
    assert_eq!(BUCKET, Gcra::new("3/d".parse().unwrap(), 2).unwrap());
    assert_eq!(SlidingLog::try_new(1, Duration::MAX), Err(LimitError::PeriodTooLong));
    assert!(std::panic::catch_unwind(|| Gcra::per_second(0)).is_err());
    assert!(std::panic::catch_unwind(|| Gcra::per_second(1).burst(0)).is_err());
}
