//! Numbers of permits and spans of time, from whatever Python objects say them.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyString};
use rategate_core::span;

/// Reads a number of permits: an `int` that is not negative.
#[inline]
pub(crate) fn permits_of(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    within("permits", 0, u64::MAX, given)
}

/// Reads a number that is from `least` to `most`.
#[inline]
pub(crate) fn within(name: &str, least: u64, most: u64, given: &Bound<'_, PyAny>) -> PyResult<u64> {
    match given.extract() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(not_within(name, least, most, given)),
    }
}

fn not_within(name: &str, least: u64, most: u64, given: &Bound<'_, PyAny>) -> PyErr {
    let shown = match given.repr() {
        Ok(shown) => shown,
        Err(error) => return error,
    };
    if given.is_instance_of::<PyInt>() {
        PyValueError::new_err(format!("{name} is from {least} to {most}, not {shown}"))
    } else {
        PyTypeError::new_err(format!("{name} is an int from {least} to {most}, not {shown}"))
    }
}

/// A span of time: seconds as an `int` or a `float`, a `timedelta`, or a text such as `"1.5s"`.
///
/// A float means its shortest decimal, so that `0.1` is a tenth of a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span(pub(crate) Duration);

impl FromPyObject<'_, '_> for Span {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let ns = if let Ok(text) = given.cast::<PyString>() {
            let text = text.to_cow()?;
            span::parse(&text)
                .map_err(|error| PyValueError::new_err(format!("the span {text:?}: {error}")))?
        } else if given.is_instance_of::<PyFloat>() {
            of_seconds(&given, &decimal(given.extract()?))?
        } else if given.is_instance_of::<PyInt>() {
            of_seconds(&given, &given.str()?.to_cow()?)?
        } else if let Ok(days) = given.getattr("days") {
            of_timedelta(&given, days.extract()?)?
        } else {
            return Err(PyTypeError::new_err(format!(
                "a span is a number of seconds, a timedelta or a text such as \"1.5s\", not {}",
                given.repr()?
            )));
        };
        Ok(Self(Duration::from_nanos(ns)))
    }
}

macro_rules! named {
    ($($function:ident: $name:literal),*) => {$(
        /// Reads an option that is a span, or None.
        pub(crate) fn $function(given: &Bound<'_, PyAny>) -> PyResult<Option<Span>> {
            if given.is_none() { Ok(None) } else { of_option($name, given).map(Some) }
        }
    )*};
}

named!(
    timeout_of: "timeout", max_debt_of: "max_debt", max_downtime_of: "max_downtime",
    budget_of: "budget", lease_of: "lease"
);

/// Reads a timeout that is not None.
pub(crate) fn bounded_timeout_of(given: &Bound<'_, PyAny>) -> PyResult<Span> {
    of_option("timeout", given)
}

pub(crate) fn ttl_of(given: &Bound<'_, PyAny>) -> PyResult<Span> {
    of_option("ttl", given)
}

pub(crate) fn optional_ttl_of(given: &Bound<'_, PyAny>) -> PyResult<Option<Span>> {
    (!given.is_none()).then(|| ttl_of(given)).transpose()
}

/// Reads a span. An error names the option.
fn of_option(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Span> {
    given.extract().map_err(|error: PyErr| {
        let py = given.py();
        PyErr::from_type(error.get_type(py), format!("{name}: {}", error.value(py)))
    })
}

/// Returns the shortest decimal of a float, without an exponent, up to whole nanoseconds.
fn decimal(seconds: f64) -> String {
    let text = format!("{seconds}");
    // What is shorter than a nanosecond, such as the last digits of `time.time()`, is cut.
    match text.split_once('.') {
        Some((whole, fraction)) => format!("{whole}.{}", fraction.get(..9).unwrap_or(fraction)),
        None => text,
    }
}

fn of_seconds(given: &Bound<'_, PyAny>, text: &str) -> PyResult<u64> {
    span::parse(&format!("{text}s")).map_err(|_| not_a_span(given))
}

fn of_timedelta(given: &Bound<'_, PyAny>, days: i64) -> PyResult<u64> {
    let seconds: i64 = given.getattr("seconds")?.extract()?;
    let micros: i64 = given.getattr("microseconds")?.extract()?;
    let total = i128::from(days)
        .saturating_mul(86_400)
        .saturating_add(seconds.into())
        .saturating_mul(1_000_000)
        .saturating_add(micros.into())
        .saturating_mul(1_000);
    u64::try_from(total).map_err(|_| not_a_span(given))
}

fn not_a_span(given: &Bound<'_, PyAny>) -> PyErr {
    match given.repr() {
        Ok(shown) => {
            PyValueError::new_err(format!("a span is from 0 to 584 years, and not {shown}"))
        }
        Err(error) => error,
    }
}

/// Returns a duration in nanoseconds.
pub(crate) fn ns(span: Duration) -> u64 {
    span::whole_ns(span)
}
