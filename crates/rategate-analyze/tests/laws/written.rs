//! The law of lines that servers write: each is read as its parts.

use std::net::IpAddr;

use rategate_analyze::{CallerKey, Dialect, SkipReason};

use super::laws::{MAX_NAME, Reading};

/// A line as servers write it, by its parts. Texts are written with escapes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) seconds: u64,
    pub(crate) offset_minutes: i64,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    /// The host, the user, the request and the agent.
    pub(crate) texts: [&'a [u8]; 4],
}

impl Parts<'_> {
    fn line(&self) -> Vec<u8> {
        let [host, user, request, agent] = self.texts.map(escaped);
        let date = date(self.seconds, self.offset_minutes);
        let numbers = format!("{:03} {}", self.status % 1_000, self.bytes);
        let parts: [&[u8]; 11] = [
            &host,
            b" - ",
            &user,
            b" [",
            date.as_bytes(),
            b"] \"",
            &request,
            b"\" ",
            numbers.as_bytes(),
            b" \"-\" \"",
            &agent,
        ];
        [&parts.concat()[..], b"\""].concat()
    }

    /// Returns the caller's name in the line.
    fn caller(&self, key: &CallerKey) -> Vec<u8> {
        let [host, user, request, agent] = self.texts.map(escaped);
        match key {
            CallerKey::Addr => host,
            CallerKey::User => user.trim_ascii().to_vec(),
            CallerKey::Agent => agent,
            CallerKey::Path(_) => {
                let path = request.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
                let end = path.iter().position(|byte| matches!(byte, b'?' | b'#'));
                let cut = &path[..end.unwrap_or(path.len())];
                if cut.is_empty() { path.to_vec() } else { cut.to_vec() }
            }
            CallerKey::Json(_) => Vec::new(),
        }
    }
}

fn escaped(text: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    escaped
}

/// Formats an instant in the common format, by counting days.
fn date(seconds: u64, offset_minutes: i64) -> String {
    const NAMES: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let local = seconds.checked_add_signed(offset_minutes * 60).unwrap();
    let (mut days, second) = (local / 86_400, local % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    for length in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (sign, offset) = (if offset_minutes < 0 { '-' } else { '+' }, offset_minutes.abs());
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!(
        "{:02}/{}/{year}:{hour:02}:{minute:02}:{:02} {sign}{:02}{:02}",
        days + 1,
        NAMES[month],
        second % 60,
        offset / 60,
        offset % 60
    )
}

/// Checks that a written line is read as its parts.
pub(crate) fn hold_written(key: &CallerKey, parts: &Parts<'_>) {
    let key = match key {
        CallerKey::Path(_) => CallerKey::Path(usize::MAX),
        other => other.clone(),
    };
    let host = parts.texts[0];
    let is_word = !host.is_empty() && !host.iter().any(u8::is_ascii_whitespace);
    let is_address = std::str::from_utf8(host)
        .is_ok_and(|text| text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok());
    if !is_word || parts.texts.iter().any(|text| text.contains(&b'\n')) {
        return;
    }
    let line = parts.line();
    let text = String::from_utf8_lossy(&line);
    let caller = parts.caller(&key);
    let reading = Reading { key, dialect: Dialect::Common };
    let record = reading.record(&line);
    if caller.is_empty() {
        assert_eq!(record, Err(SkipReason::NoKey), "{text}");
        return;
    }
    let record = record.unwrap_or_else(|why| panic!("{why}: {text}"));
    assert_eq!(
        (record.at_ns / 1_000_000_000, record.bytes),
        (parts.seconds, parts.bytes),
        "{text}"
    );
    if !(is_address && reading.key == CallerKey::Addr) {
        assert_eq!(*record.caller, caller[..caller.len().min(MAX_NAME)], "{text}");
    }
    let status = parts.status % 1_000;
    for (statuses, calls) in [(status, 1), ((status + 1) % 1_000, 0)] {
        let report = reading.filtered(&*line, &format!("{statuses:03}"));
        assert_eq!((report.counts.calls, report.counts.filtered), (calls, 1 - calls), "{text}");
    }
}
