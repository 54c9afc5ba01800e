//! The laws of any bytes as an access log, checked through reports.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};

use rategate_analyze::{
    Analysis, CallerKey, Dialect, Limit, Report, Settings, SkipReason, Statuses,
};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The maximum length of a caller's name in a report.
pub(crate) const MAX_NAME: usize = 256;
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
    pub(crate) fn filtered(&self, log: impl Read, statuses: &str) -> Report {
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
        analysis.finish().unwrap();
        analysis.report()
    }

    /// Reads one line.
    pub(crate) fn record(&self, line: &[u8]) -> Result<Record, SkipReason> {
        Record::of(&self.report(line))
    }
}

/// The content of a line, as far as it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) at_ns: u64,
    pub(crate) caller: Box<[u8]>,
    pub(crate) bytes: u64,
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

/// The content of lines that were each read alone.
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
