//! The laws of any bytes as an access log, checked through reports.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::net::IpAddr;

use rategate_analyze::{
    Analysis, CallerKey, Dialect, Limit, Report, Settings, SkipReason, Statuses,
};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The maximum length of a caller's name in a report.
const MAX_NAME: usize = 256;
/// The maximum number of lines that are also read alone.
const ALONE: usize = 16;

/// The settings that decide how a line is read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) key: CallerKey,
    pub(crate) dialect: Dialect,
}

impl Reading {
    /// Returns one of all settings.
    pub(crate) fn of(number: u8) -> Self {
        let field = |name: &str| CallerKey::Json(name.to_owned());
        let key = match number >> 2 & 7 {
            0 | 1 => CallerKey::Addr,
            2 => CallerKey::User,
            3 => CallerKey::Agent,
            4 => CallerKey::Path(usize::from(number >> 5)),
            5 => CallerKey::Path(usize::MAX),
            6 => field("id"),
            _ => field("user.id"),
        };
        let dialect = match number & 3 {
            0 => Dialect::Common,
            1 => Dialect::Json,
            _ => Dialect::Auto,
        };
        Self { key, dialect }
    }

    fn report(&self, log: impl Read) -> Report {
        self.filtered(log, "")
    }

    /// Reads a log, of which the lines with these statuses count.
    fn filtered(&self, log: impl Read, statuses: &str) -> Report {
        let limit = Limit::any_window("10MB/min").unwrap();
        let statuses =
            if statuses.is_empty() { Statuses::default() } else { statuses.parse().unwrap() };
        let (key, dialect) = (self.key.clone(), self.dialect);
        let settings = Settings {
            key,
            dialect,
            statuses,
            group_v6: 128,
            max_callers: 64,
            ..Settings::new(limit)
        };
        let mut analysis = Analysis::new(settings);
        analysis.read("log", log).unwrap();
        assert!(analysis.finish().unwrap());
        analysis.report()
    }

    /// Reads one line.
    fn record(&self, line: &[u8]) -> Result<Record, SkipReason> {
        Record::of(&self.report(line))
    }
}

/// The content of a line, as far as it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    at_ns: u64,
    caller: Box<[u8]>,
    bytes: u64,
}

impl Record {
    fn of(report: &Report) -> Result<Self, SkipReason> {
        if let Some(skipped) = report.first_skipped.first() {
            return Err(skipped.why);
        }
        let counts = &report.counts;
        assert_eq!((counts.lines, counts.calls, report.by_calls.len()), (1, 1, 1));
        let caller = report.by_calls[0].caller.clone();
        assert!(!caller.is_empty());
        let bytes = counts.allowed_amount + counts.denied_amount;
        Ok(Self { at_ns: report.from.unwrap().0, caller, bytes })
    }

    /// Returns a JSON line with this content, if the name needs no escapes and is all of it.
    fn line(&self, key: &CallerKey) -> Option<Vec<u8>> {
        let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | b'\n');
        if self.caller.len() >= MAX_NAME || !self.caller.iter().all(is_plain) {
            return None;
        }
        let (seconds, ns) = (self.at_ns / 1_000_000_000, self.at_ns % 1_000_000_000);
        let name = match key {
            CallerKey::Addr => "ip",
            CallerKey::User => "user",
            CallerKey::Agent => "agent",
            CallerKey::Path(_) => "path",
            CallerKey::Json(name) => name,
        };
        let start = format!("{{\"bytes\": {}, \"ts\":{seconds}.{ns:09},\"{name}\":\"", self.bytes);
        Some([start.as_bytes(), &self.caller, b"\"}"].concat())
    }
}

/// Checks the laws of a log of any bytes: pieces change nothing, each line is counted once, and is
/// read alone as within the log.
pub(crate) fn hold(reading: &Reading, log: &[u8], piece: usize) {
    // A compressed log is read as its content.
    if log.starts_with(b"\x1f\x8b") {
        return;
    }
    let whole = reading.report(log);
    let pieces = reading.report(Pieces(log, piece.max(1)));
    assert_eq!(whole.to_json(), pieces.to_json(), "in pieces of {piece}");

    let lines: Vec<&[u8]> =
        log.strip_suffix(b"\n").unwrap_or(log).split(|byte| *byte == b'\n').collect();
    let lines = if log.is_empty() { Vec::new() } else { lines };
    let is_blank = |line: &&[u8]| line.iter().all(u8::is_ascii_whitespace);
    let counts = &whole.counts;
    assert_eq!(counts.lines, count(lines.len()));
    assert_eq!(counts.blank, count(lines.iter().copied().filter(|line| is_blank(line)).count()));
    assert_eq!(counts.lines, counts.blank + counts.skipped + counts.filtered + counts.calls);
    assert_eq!((counts.filtered, counts.calls), (0, counts.allowed + counts.denied));

    if lines.len() > ALONE {
        return;
    }
    let mut seen = Seen::default();
    for line in lines.into_iter().filter(|line| !is_blank(line)) {
        let record = reading.record(line);
        seen.add(&record);
        if let Ok(record) = &record
            && let Some(again) = record.line(&reading.key)
        {
            let reading = Reading { dialect: Dialect::Json, ..reading.clone() };
            let text = String::from_utf8_lossy(&again);
            assert_eq!(reading.record(&again).as_ref(), Ok(record), "{text}");
        }
        if reading.dialect == Dialect::Json {
            compare(reading, line, &record);
        }
    }
    seen.check(&whole);
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap()
}

/// What lines contain that were each read alone.
#[derive(Debug, Default)]
struct Seen {
    calls: BTreeMap<Box<[u8]>, u64>,
    skipped: u64,
    max_ns: u64,
}

impl Seen {
    fn add(&mut self, record: &Result<Record, SkipReason>) {
        match record {
            Ok(record) => {
                *self.calls.entry(record.caller.clone()).or_default() += 1;
                self.max_ns = self.max_ns.max(record.at_ns);
            }
            Err(_) => self.skipped += 1,
        }
    }

    /// Compares with a report of the same lines, of which those too far ahead were skipped.
    fn check(&self, whole: &Report) {
        let skipped = whole.first_skipped.iter();
        let ahead = skipped.filter(|skipped| skipped.why == SkipReason::Ahead).count();
        let is_shown = count(whole.first_skipped.len()) == whole.counts.skipped;
        assert!(whole.counts.skipped >= self.skipped);
        assert!(!is_shown || whole.counts.skipped == self.skipped + count(ahead));
        for row in &whole.by_calls {
            let alone = self.calls.get(&row.caller).copied();
            assert!(row.calls <= alone, "{:?}: {row:?}", self.calls);
        }
        assert!(whole.to.is_none_or(|to| to.0 <= self.max_ns));
    }
}

/// A reader of so many bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.len().min(self.1).min(buffer.len());
        let (now, later) = self.0.split_at(length);
        buffer[..length].copy_from_slice(now);
        self.0 = later;
        Ok(length)
    }
}

/// The fields of a JSON object in their order, with their values as written.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl<'a> Object<'a> {
    /// Returns the last field of this name.
    fn last(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    fn at(&self, path: &str) -> Option<&'a RawValue> {
        self.last(path).or_else(|| {
            let (first, rest) = path.split_once('.')?;
            serde_json::from_str::<Object<'_>>(self.last(first)?.get()).ok()?.last(rest)
        })
    }
}

fn written(value: &RawValue) -> &str {
    let text = value.get();
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// Compares a JSON line with a third party's reading of it. Escapes are kept here, and not there.
fn compare(reading: &Reading, line: &[u8], record: &Result<Record, SkipReason>) {
    let Ok(object) = serde_json::from_slice::<Object<'_>>(line) else { return };
    if line.contains(&b'\\') {
        return;
    }
    assert_ne!(*record, Err(SkipReason::Malformed));
    let size = ["body_bytes_sent", "bytes_sent", "bytes", "size"]
        .iter()
        .find_map(|name| object.last(name))
        .map(written)
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok());
    let Ok(record) = record else { return };
    assert_eq!(record.bytes, size.unwrap_or(0));
    if let CallerKey::Json(path) = &reading.key {
        let caller = written(object.at(path).unwrap()).as_bytes();
        assert_eq!(*record.caller, caller[..caller.len().min(MAX_NAME)]);
    }
}

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
