//! Limits that come with the call, such as `100/min`.

use std::str::FromStr;

use rategate::Rate;
use rategate::error::RateError;

use super::invalid::{Invalid, quoted};
use crate::engine::{EngineError, Inline};
use crate::units::meant;

/// Parses a limit. Without a burst, the burst is the number of permits of one period, and at least
/// 1.
///
/// # Errors
///
/// The fault of the text or of the burst, at the pointer of that member.
pub(super) fn inline(
    text: &str,
    burst: Option<u64>,
    pointer: impl Fn(&str) -> String,
) -> Result<Inline, Invalid> {
    let invalid_limit = |why: &dyn std::fmt::Display| {
        let (text, like) = (quoted(text), "\"100/min\", \"0.5/s\" or \"1000/10s\"");
        let detail = format!("{text}: {why}; write a limit like {like}");
        Invalid::at(pointer("limit"), detail)
    };
    let rate = Rate::from_str(text).map_err(|fault| match meant(text) {
        Some(meant) => invalid_limit(&format_args!("{fault}; did you mean {meant:?}?")),
        // What a rule may say instead, `never` and `unlimited`, is no limit of a call.
        None => match fault {
            RateError::Zero | RateError::Negative => {
                invalid_limit(&"a limit that comes with the call admits more than 0 permits")
            }
            RateError::ZeroPeriod => invalid_limit(&"the period is longer than 0"),
            RateError::Malformed => invalid_limit(&"not a number of permits, a slash and a period"),
            fault => invalid_limit(&fault),
        },
    })?;
    let Some((permits, period_ns)) = rate.fraction() else {
        return Err(invalid_limit(&"only the limit of a rule may be `never` or `unlimited`"));
    };
    // Keeps whole numbers as written, so that the limit equals one from another protocol.
    let number = text.split_once('/').map_or(text, |(number, _)| number);
    let written = number.parse::<u64>().ok();
    let times = written.and_then(|written| written.checked_div(permits)).unwrap_or(1);
    let (count, period_ns) = (permits.saturating_mul(times), period_ns.saturating_mul(times));
    let whole = number.split_once('.').map_or(number, |(whole, _)| whole);
    let in_a_period = whole.parse::<u64>().unwrap_or(1).max(1);
    let limit = Inline { capacity: burst.unwrap_or(in_a_period), count, period_ns };
    match limit.bucket() {
        Ok(_) => Ok(limit),
        Err(fault @ EngineError::Limit(_)) => {
            Err(Invalid::at(pointer("burst"), format!("{}: {fault}", limit.capacity)))
        }
        Err(fault) => Err(invalid_limit(&fault)),
    }
}

#[cfg(test)]
mod tests {
    use super::inline;

    fn of(text: &str, burst: Option<u64>) -> (u64, u64, u64) {
        let limit = inline(text, burst, str::to_owned).unwrap();
        (limit.capacity, limit.count, limit.period_ns)
    }

    #[test]
    fn limits_are_as_they_are_written() {
        assert_eq!(of("100/min", Some(20)), (20, 100, 60_000_000_000));
        assert_eq!(of("100/min", None), (100, 100, 60_000_000_000));
        assert_eq!(of("60/min", None), (60, 60, 60_000_000_000));
        assert_eq!(of("1000/10s", None), (1000, 1000, 10_000_000_000));
        assert_eq!(of("0.5/s", None), (1, 1, 2_000_000_000));
        assert_eq!(of("2.5/s", None), (2, 1, 400_000_000));
    }

    #[test]
    fn limits_that_are_none_say_what_would_be_right() {
        for text in ["", "100", "/min", "100/", "-1/s", "0/s", "1/0s", "x/s", "1/fortnight"] {
            let invalid = inline(text, None, |member| format!("/items/3/{member}")).unwrap_err();
            assert_eq!(invalid.pointer, "/items/3/limit", "{text}");
            assert!(invalid.detail.contains("100/min"), "{text}: {}", invalid.detail);
        }
        for text in ["unlimited", "never", "NaN/s", "inf/s", "1e3/s", "0/h", "-1/h", "1/0s", "x"] {
            let detail = inline(text, None, str::to_owned).unwrap_err().detail;
            assert!(detail.starts_with(&format!("{text:?}: ")), "{detail}");
            // Nothing that would be refused is advised.
            assert!(!detail.contains("\"never\"") || text == "never", "{detail}");
            assert!(!detail.contains("\"unlimited\"") || text == "unlimited", "{detail}");
        }
        assert_eq!(inline("1/s", Some(0), str::to_owned).unwrap_err().pointer, "burst");
    }
}
