//! The messages of Envoy's rate limit quota service, version 3: reports of usage, read without
//! copies, and assignments, written.
//!
//! # Contract
//!
//! * A report is read as other implementations read it: of a key that a bucket repeats, the last
//!   value counts. Keys and values may be any bytes, as in [`rls`](crate::rls).
//! * A bucket has its entries in the order of their keys, whatever order the peer sent. A bucket
//!   without entries is malformed.
//! * The list of usages and each bucket are bounded before anything is kept of them.

use bytes::BytesMut;
use smallvec::SmallVec;

use crate::protobuf::{
    Malformed, Reader, bytes_length, integer_length, put_bytes, put_head, put_integer,
};
use crate::rls::MAX_ITEMS;

/// The maximum number of buckets in a report.
pub const MAX_USAGES: usize = 4096;

/// A parsed `RateLimitQuotaUsageReports`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageReport<'a> {
    /// The domain of the rules, which only the first report of a stream has to name.
    pub domain: &'a str,
    /// The usage of each bucket.
    pub usages: Vec<Usage<'a>>,
}

/// The usage of a bucket since the report before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage<'a> {
    /// The keys and values of the bucket, in the order of the keys.
    pub bucket: Bucket<'a>,
    /// The number of requests that the client allowed.
    pub allowed: u64,
    /// The number of requests that the client denied.
    pub denied: u64,
}

/// The keys and values that name a bucket, in the order of the keys.
pub type Bucket<'a> = SmallVec<[(&'a [u8], &'a [u8]); 4]>;

/// The reason why a report is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedReport {
    /// The bytes are not a message.
    #[error("the report is malformed: {0}")]
    Malformed(&'static str),
    /// The report has more items than allowed.
    #[error("there are more than {max} {what} in the report")]
    TooMany {
        /// The kind of item.
        what: &'static str,
        /// The maximum number of items.
        max: usize,
    },
    /// A bucket has no entries.
    #[error("the bucket of usage {usage} has no entries: it needs one at least")]
    NoBucket {
        /// The index of the usage, from 0.
        usage: usize,
    },
}

/// An order to a client about a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Decide by this strategy for as long as the assignment lives.
    Assign {
        /// The strategy.
        strategy: Strategy,
        /// The time for which the assignment lives, in milliseconds.
        ttl_ms: u64,
    },
    /// Forget the bucket, and subscribe again with its next request.
    Abandon,
}

/// The way in which a client decides requests of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All requests pass.
    AllowAll,
    /// No request passes.
    DenyAll,
    /// As many pass as a token bucket has tokens for. It is full at first.
    TokenBucket {
        /// The maximum number of tokens, 1 at least.
        max: u32,
        /// The number of tokens that are added in each interval, 1 at least.
        per_fill: u32,
        /// The interval in whole seconds, 1 at least: Envoy ignores fractions.
        interval_s: u64,
    },
}

impl From<Malformed> for MalformedReport {
    fn from(Malformed(why): Malformed) -> Self {
        Self::Malformed(why)
    }
}

impl<'a> UsageReport<'a> {
    /// Parses the message.
    ///
    /// # Errors
    ///
    /// [`MalformedReport`].
    pub fn read(message: &'a [u8]) -> Result<Self, MalformedReport> {
        let mut report = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => report.domain = value.text()?,
                2 => {
                    few(report.usages.len(), MAX_USAGES, "usages")?;
                    let usage = Usage::read(value.bytes()?, report.usages.len())?;
                    report.usages.push(usage);
                }
                _ => {}
            }
        }
        Ok(report)
    }
}

impl<'a> Usage<'a> {
    fn read(message: &'a [u8], index: usize) -> Result<Self, MalformedReport> {
        let mut usage = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            match number {
                // Repeated messages are merged.
                1 => add_entries(&mut usage.bucket, value.bytes()?)?,
                // The time elapsed is checked, and otherwise ignored: the server's own clock
                // measures it.
                2 => check_duration(value.bytes()?)?,
                3 => usage.allowed = value.integer()?,
                4 => usage.denied = value.integer()?,
                _ => {}
            }
        }
        if usage.bucket.is_empty() {
            return Err(MalformedReport::NoBucket { usage: index });
        }
        Ok(usage)
    }
}

fn add_entries<'a>(bucket: &mut Bucket<'a>, message: &'a [u8]) -> Result<(), MalformedReport> {
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.field()? {
        if number != 1 {
            continue;
        }
        let (mut key, mut text): (&[u8], &[u8]) = (b"", b"");
        let mut entry = Reader::new(value.bytes()?);
        while let Some((number, value)) = entry.field()? {
            match number {
                1 => key = value.bytes()?,
                2 => text = value.bytes()?,
                _ => {}
            }
        }
        match bucket.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(index) => {
                if let Some(known) = bucket.get_mut(index) {
                    known.1 = text;
                }
            }
            Err(index) => {
                few(bucket.len(), MAX_ITEMS, "entries in a bucket")?;
                bucket.insert(index, (key, text));
            }
        }
    }
    Ok(())
}

fn check_duration(message: &[u8]) -> Result<(), Malformed> {
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.field()? {
        if matches!(number, 1 | 2) {
            value.integer()?;
        }
    }
    Ok(())
}

/// Checks that there may be one more item.
const fn few(so_far: usize, max: usize, what: &'static str) -> Result<(), MalformedReport> {
    if so_far < max { Ok(()) } else { Err(MalformedReport::TooMany { what, max }) }
}

/// Writes one action of a `RateLimitQuotaResponse`, which is a list of them.
pub fn put_action<'a>(
    out: &mut BytesMut,
    bucket: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    action: Action,
) {
    let id = bucket.clone().map(|(key, value)| bytes_length(entry_length(key, value)));
    let id = id.fold(0, usize::saturating_add);
    let body = action.length();
    put_head(out, 1, bytes_length(id).saturating_add(bytes_length(body)));
    put_head(out, 1, id);
    for (key, value) in bucket {
        put_head(out, 1, entry_length(key, value));
        put_bytes(out, 1, key);
        put_bytes(out, 2, value);
    }
    match action {
        Action::Assign { strategy, ttl_ms } => {
            put_head(out, 2, body);
            put_duration(out, 2, ttl_ms);
            put_head(out, 3, strategy.length());
            strategy.write(out);
        }
        Action::Abandon => put_head(out, 3, 0),
    }
}

/// Returns the length of an entry of a map.
fn entry_length(key: &[u8], value: &[u8]) -> usize {
    bytes_length(key.len()).saturating_add(bytes_length(value.len()))
}

impl Action {
    /// Returns the length of the message that is the action.
    fn length(self) -> usize {
        match self {
            Self::Assign { strategy, ttl_ms } => bytes_length(duration_length(ttl_ms))
                .saturating_add(bytes_length(strategy.length())),
            Self::Abandon => 0,
        }
    }
}

impl Strategy {
    fn length(self) -> usize {
        match self {
            Self::AllowAll | Self::DenyAll => 2,
            Self::TokenBucket { .. } => bytes_length(self.bucket_length()),
        }
    }

    fn bucket_length(self) -> usize {
        let Self::TokenBucket { max, per_fill, interval_s } = self else { return 0 };
        integer_length(max.into())
            .saturating_add(bytes_length(integer_length(per_fill.into())))
            .saturating_add(bytes_length(integer_length(interval_s)))
    }

    fn write(self, out: &mut BytesMut) {
        match self {
            // A member of a choice is written although it is zero.
            Self::AllowAll => out.extend_from_slice(&[1 << 3, 0]),
            Self::DenyAll => out.extend_from_slice(&[1 << 3, 1]),
            Self::TokenBucket { max, per_fill, interval_s } => {
                put_head(out, 3, self.bucket_length());
                put_integer(out, 1, max.into());
                put_head(out, 2, integer_length(per_fill.into()));
                put_integer(out, 1, per_fill.into());
                put_head(out, 3, integer_length(interval_s));
                put_integer(out, 1, interval_s);
            }
        }
    }
}

/// Returns the seconds and the nanoseconds of a `Duration`.
const fn duration(ms: u64) -> (u64, u64) {
    let seconds = ms / 1000;
    (seconds, ms.wrapping_rem(1000).saturating_mul(1_000_000))
}

fn duration_length(ms: u64) -> usize {
    let (seconds, nanos) = duration(ms);
    integer_length(seconds).saturating_add(integer_length(nanos))
}

fn put_duration(out: &mut BytesMut, number: u8, ms: u64) {
    let (seconds, nanos) = duration(ms);
    put_head(out, number, duration_length(ms));
    put_integer(out, 1, seconds);
    put_integer(out, 2, nanos);
}
