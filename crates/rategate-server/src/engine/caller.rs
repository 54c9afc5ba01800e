//! The span of a trace in which a caller sent its request, from W3C's `traceparent`.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::pin;

/// The name of the header field, and of the key in gRPC's metadata.
pub const TRACEPARENT: &str = "traceparent";

/// The span in which a caller sent its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerSpan {
    /// The id of the trace: not all zeros.
    pub trace_id: [u8; 16],
    /// The id of the caller's own span: not all zeros.
    pub span_id: [u8; 8],
    /// `true` if the caller records its span. A service that it calls must do the same, so that
    /// traces are complete.
    pub is_sampled: bool,
}

/// A guard that sets its thread's caller span until it is dropped.
#[derive(Debug)]
pub struct CallerSpanGuard {
    before: Option<CallerSpan>,
    _of_this_thread: PhantomData<*const ()>,
}

thread_local! {
    static CALLER: Cell<Option<CallerSpan>> = const { Cell::new(None) };
}

impl CallerSpan {
    /// Parses the value of a field: `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits, all
    /// lower-case hexadecimal. A later version may append more. Returns `None` for anything else,
    /// which counts as absent.
    #[must_use]
    pub fn read(field: &[u8]) -> Option<Self> {
        let mut fields = field.split(|byte| *byte == b'-');
        let [version] = bytes(fields.next()?)?;
        let (trace_id, span_id) = (bytes(fields.next()?)?, bytes(fields.next()?)?);
        let [flags] = bytes(fields.next()?)?;
        let is_known = version == 0 && fields.next().is_none();
        let is_later = (1..u8::MAX).contains(&version);
        let is_named = trace_id != [0; 16] && span_id != [0; 8];
        let is_sampled = flags & 1 == 1;
        (is_named && (is_known || is_later)).then_some(Self { trace_id, span_id, is_sampled })
    }

    /// Reads the span from a request's headers. Several values count as none.
    #[must_use]
    pub fn of(headers: &http::HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).into_iter();
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        Self::read(value.as_bytes())
    }

    /// Makes this thread decide in this span until the returned guard is dropped.
    #[must_use]
    pub fn enter(self) -> CallerSpanGuard {
        CallerSpanGuard { before: CALLER.replace(Some(self)), _of_this_thread: PhantomData }
    }

    /// Returns the span in which this thread decides.
    pub(super) fn current() -> Option<Self> {
        CALLER.get()
    }
}

impl Drop for CallerSpanGuard {
    fn drop(&mut self) {
        CALLER.set(self.before);
    }
}

/// Runs a future in a caller's span on whichever thread polls it.
pub async fn within<F: Future>(caller: Option<CallerSpan>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _within = caller.map(CallerSpan::enter);
        future.as_mut().poll(context)
    })
    .await
}

/// Parses `N` bytes in lower-case hexadecimal.
fn bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let mut bytes = [0; N];
    if pairs.len() != N {
        return None;
    }
    for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => digit.checked_sub(b'0'),
        b'a'..=b'f' => digit.checked_sub(b'a')?.checked_add(10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_headers_valid_by_the_standard_are_read() {
        let read = CallerSpan::read(RIGHT.as_bytes()).unwrap();
        assert_eq!(read.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
        assert_eq!(read.span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
        assert!(read.is_sampled);
        let of = |text: &str| CallerSpan::read(text.as_bytes());
        assert!(!of(&RIGHT.replace("-01", "-02")).unwrap().is_sampled);
        assert!(of(&RIGHT.replace("-01", "-03")).unwrap().is_sampled);
        // A later version may append more, this one may not.
        assert_eq!(of(&format!("01{}-more-of-it", &RIGHT[2..])), Some(read));
        assert_eq!(of(&format!("cc{}", &RIGHT[2..])), Some(read));
        let invalid = [
            String::new(),
            format!("{RIGHT}-more"),
            format!("{RIGHT}-"),
            format!("ff{}", &RIGHT[2..]),
            RIGHT.to_ascii_uppercase(),
            RIGHT.replace("4bf9", "4bg9"),
            RIGHT.replace("-01", "-1"),
            RIGHT.replace("-01", ""),
            RIGHT.replace("4bf9", "4bf"),
            RIGHT.replace("4bf9", "4bf90"),
            RIGHT.replace('-', "_"),
            format!(" {RIGHT}"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16)),
        ];
        for invalid in invalid {
            assert_eq!(of(&invalid), None, "{invalid}");
        }
    }

    #[test]
    fn of_two_fields_none_is_right() {
        let mut headers = http::HeaderMap::new();
        assert_eq!(CallerSpan::of(&headers), None);
        headers.append(TRACEPARENT, http::HeaderValue::from_static(RIGHT));
        assert_eq!(CallerSpan::of(&headers), CallerSpan::read(RIGHT.as_bytes()));
        headers.append(TRACEPARENT, http::HeaderValue::from_static(RIGHT));
        assert_eq!(CallerSpan::of(&headers), None);
    }

    #[test]
    fn a_thread_is_in_a_span_until_the_guard_is_dropped() {
        let one = CallerSpan::read(RIGHT.as_bytes()).unwrap();
        let two = CallerSpan { is_sampled: false, ..one };
        {
            let _one = one.enter();
            {
                let _two = two.enter();
                assert_eq!(CallerSpan::current(), Some(two));
            }
            assert_eq!(CallerSpan::current(), Some(one));
            assert_eq!(std::thread::spawn(CallerSpan::current).join().unwrap(), None);
        }
        assert_eq!(CallerSpan::current(), None);
    }
}
