//! Bounds of a wait queue, and the policy for a full queue.

/// The maximum number of waiters that a queue can be configured for.
pub const MAX_WAITERS: u32 = 16_777_215;

/// The maximum of waiters and permits in each class's queue, and what a full queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBounds {
    waiters: u32,
    permits: u64,
    when_full: WhenFull,
}

/// The action of a full queue for one more caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Refuses the new caller.
    #[default]
    Refuse,
    /// Evicts the newest waiters until the new caller fits.
    EvictNewest,
}

impl QueueBounds {
    /// Returns bounds of at most `waiters`, clamped to 1 to [`MAX_WAITERS`].
    #[must_use]
    pub fn new(waiters: u32) -> Self {
        let waiters = waiters.clamp(1, MAX_WAITERS);
        Self { waiters, permits: u64::MAX, when_full: WhenFull::Refuse }
    }

    /// Returns these bounds with a maximum of `permits` waited for together.
    #[must_use]
    pub const fn with_permits(self, permits: u64) -> Self {
        Self { permits, ..self }
    }

    /// Returns these bounds with another action for a full queue.
    #[must_use]
    pub const fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// Returns the maximum number of waiters.
    #[must_use]
    pub const fn waiters(&self) -> u32 {
        self.waiters
    }

    /// Returns the maximum number of permits waited for together.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits
    }

    /// Returns the action of a full queue.
    #[must_use]
    pub const fn on_full(&self) -> WhenFull {
        self.when_full
    }
}

/// A million waiters and any number of permits; a full queue refuses a new caller.
impl Default for QueueBounds {
    fn default() -> Self {
        Self::new(1_048_576)
    }
}
