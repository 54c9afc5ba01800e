//! `RateLimitResponse`, written without copies.

use bytes::BytesMut;

use super::metadata::Metadata;
use super::unit::Unit;
use crate::protobuf::{bytes_length, integer_length, put_bytes, put_head, put_integer};

/// The code of a reply or of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The call may proceed.
    Ok,
    /// The call is over a limit.
    OverLimit,
}

/// The status of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorStatus<'a> {
    /// `OverLimit` if the descriptor is over its limit.
    pub code: Code,
    /// The limit: its name, its permits per unit, and the unit. The name is empty for a limit that
    /// the caller supplies, and for a limit without a name.
    pub limit: Option<(&'a str, u32, Unit)>,
    /// The number of permits left.
    pub remaining: u32,
    /// The seconds until none of the limit is in use, or `None` if that never happens by itself.
    ///
    /// Rounded up: Envoy passes whole seconds on to clients, and none should return too early.
    pub reset_s: Option<u64>,
}

impl Code {
    /// Returns the code's number in the protocol.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Ok => 1,
            Self::OverLimit => 2,
        }
    }

    /// Returns the code's name in the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::OverLimit => "OVER_LIMIT",
        }
    }
}

impl DescriptorStatus<'_> {
    fn length(&self) -> usize {
        let mut length = integer_length(u64::from(self.code.number()))
            .saturating_add(integer_length(u64::from(self.remaining)));
        if self.limit.is_some() {
            length = length.saturating_add(bytes_length(self.limit_length()));
        }
        if let Some(reset_s) = self.reset_s {
            length = length.saturating_add(bytes_length(integer_length(reset_s)));
        }
        length
    }

    fn limit_length(&self) -> usize {
        let Some((name, permits, _)) = self.limit else { return 0 };
        let name = if name.is_empty() { 0 } else { bytes_length(name.len()) };
        // The number of each unit takes one byte.
        name.saturating_add(integer_length(u64::from(permits))).saturating_add(2)
    }

    fn write(&self, out: &mut BytesMut) {
        put_integer(out, 1, u64::from(self.code.number()));
        if let Some((name, permits, unit)) = self.limit {
            put_head(out, 2, self.limit_length());
            put_integer(out, 1, u64::from(permits));
            put_integer(out, 2, u64::from(unit.number()));
            if !name.is_empty() {
                put_bytes(out, 3, name.as_bytes());
            }
        }
        put_integer(out, 3, u64::from(self.remaining));
        if let Some(reset_s) = self.reset_s {
            put_head(out, 4, integer_length(reset_s));
            put_integer(out, 1, reset_s);
        }
    }
}

/// Writes the message: the code of the whole reply, the statuses of the descriptors in their
/// order, the names and values of headers for the client, and the dynamic metadata.
pub fn write<'a, 'h>(
    out: &mut BytesMut,
    code: Code,
    statuses: impl Iterator<Item = DescriptorStatus<'a>>,
    headers: impl Iterator<Item = (&'h str, u64)>,
    metadata: Option<&Metadata>,
) {
    put_integer(out, 1, u64::from(code.number()));
    for status in statuses {
        put_head(out, 2, status.length());
        status.write(out);
    }
    for (name, value) in headers {
        let value = value.to_string();
        put_head(out, 3, bytes_length(name.len()).saturating_add(bytes_length(value.len())));
        put_bytes(out, 1, name.as_bytes());
        put_bytes(out, 2, value.as_bytes());
    }
    if let Some(metadata) = metadata {
        put_head(out, 6, metadata.length());
        metadata.write(out);
    }
}
