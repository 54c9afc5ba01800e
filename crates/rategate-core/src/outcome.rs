//! How an operation ended, and what that says of its server.

/// An operation that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The instant at which it started, in nanoseconds.
    pub start_ns: u64,
    /// The instant at which it ended.
    pub end_ns: u64,
    /// The number of operations in flight when it ended, itself included: of permits, where an
    /// operation takes several.
    pub in_flight: u32,
    /// The way in which it ended.
    pub outcome: Outcome,
}

/// The way in which an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was served, be it with an error: its latency says how busy the server is.
    Served,
    /// It was refused, or took too long: the server has too much to do.
    Dropped,
    /// It says nothing about the server, such as one that was cancelled.
    Ignored,
}
