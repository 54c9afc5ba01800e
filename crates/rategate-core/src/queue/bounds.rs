//! How much may wait, and what happens when that much does.

/// The most waiters that a queue can be told to hold.
pub const MAX_WAITERS: u32 = 16_777_215;

/// How much may wait in each class's line, and what happens when that much does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    waiters: u32,
    permits: u64,
    when_full: WhenFull,
}

/// What a full queue does with one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It turns the newcomer away.
    #[default]
    Refuse,
    /// It sends the newest away who wait, until there is room for the newcomer.
    EvictNewest,
}

impl Bounds {
    /// At most `waiters`, and at least 1 and at most [`MAX_WAITERS`], whatever is asked for.
    #[must_use]
    pub fn new(waiters: u32) -> Self {
        let waiters = waiters.clamp(1, MAX_WAITERS);
        Self { waiters, permits: u64::MAX, when_full: WhenFull::Refuse }
    }

    /// The same, and at most so many permits waited for together.
    #[must_use]
    pub const fn with_permits(self, permits: u64) -> Self {
        Self { permits, ..self }
    }

    /// The same, with another way to be full.
    #[must_use]
    pub const fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// The most waiters.
    #[must_use]
    pub const fn waiters(&self) -> u32 {
        self.waiters
    }

    /// The most permits waited for together.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits
    }

    pub(super) const fn on_full(&self) -> WhenFull {
        self.when_full
    }
}

/// A million waiters, and any number of permits; the newcomer is refused.
impl Default for Bounds {
    fn default() -> Self {
        Self::new(1_048_576)
    }
}
