//! The precision of waits, and its cost.

/// The precision of a waiting thread's start, against the processor time that its waits take.
///
/// No precision starts an operation early. Each wait is for an absolute instant. On a schedule, a
/// wait that ends late moves that operation alone. On a limit that counts real starts, lateness
/// that the burst does not make up for is lost to the rate. So a precise wait for such a limit
/// sleeps as much shorter as wakes have been late on average, and reads the clock for the rest,
/// at most 60 us.
///
/// | precision | a thread wakes | late by | processor time |
/// |---|---|---|---|
/// | [`Auto`] | as coalesced above 2500 wakes a second, else as precise | as these | little |
/// | [`Coalesced`] | at most once a millisecond | up to 1 ms, and timer and scheduler | least |
/// | [`Precise`] | for each awaited start | the scheduler, usually some 10 us | a wake a start |
/// | [`Spin`] | 60 us before a start | clock resolution, while it runs | up to 60 us a start |
///
/// "Late" has no hard bound: a scheduler may suspend any thread, a spinning one too.
///
/// A [`Clock`](crate::Clock) on which waiting costs nothing, such as
/// [`ManualClock`](crate::ManualClock), waits alike with all of them.
///
/// [`Auto`]: Self::Auto
/// [`Coalesced`]: Self::Coalesced
/// [`Precise`]: Self::Precise
/// [`Spin`]: Self::Spin
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// Coalesced above 2500 wakes a second, else precise.
    ///
    /// A wake is coalesced if it would come less than 400 us after the last wake was due. Steady
    /// loops of up to about 2000 operations a second are precise. So are limits on which no
    /// caller can catch up by 400 us: a bucket of a few permits, a strict schedule, a log.
    #[default]
    Auto,
    /// At most one wake in a millisecond: at the start, or 1 ms after the last wake was due.
    ///
    /// The later of the two counts. Operations that became due in the meantime start then,
    /// without a wait of their own. At a million operations a second that is a thousand wakes,
    /// and a thousand operations after each.
    ///
    /// Use it for limits on which a caller can catch up by a millisecond. A limit that drops what
    /// was not used at once, such as a bucket of a single permit, passes one operation for each
    /// wake.
    Coalesced,
    /// One wake for each start.
    ///
    /// The kernel may delay a wake by the thread's timer slack to join it with others. On Linux
    /// that slack is 1 ns during the wait (as a rule it is 50 us), and its old value afterwards.
    Precise,
    /// As precise until 60 us before the start; from there on the thread spins on the clock.
    ///
    /// It also checks the cancellation token. Use it for a processor without other work: at 2000
    /// starts a second it costs an eighth of one, and above 15 000 a second all of it.
    Spin,
}

/// One wait on a [`Clock`](crate::Clock): its start and its precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    until_ns: u64,
    wake_ns: u64,
    precision: Precision,
    /// The time after its start at which it ends, where lateness is lost to the limit.
    early_ns: Option<u64>,
}

impl Wait {
    /// Creates a wait that ends at its start, without further care.
    pub(crate) const fn plainly(until_ns: u64) -> Self {
        Self::exactly(until_ns, Precision::Coalesced)
    }

    /// Creates a wait that ends at its start, with this precision.
    pub(crate) const fn exactly(until_ns: u64, precision: Precision) -> Self {
        Self { until_ns, wake_ns: until_ns, precision, early_ns: None }
    }

    /// Returns this wait for a caller that loses by lateness, to end `early_ns` after its start.
    ///
    /// A precise one sleeps as much shorter as wakes have been late on average, and spins the
    /// rest.
    pub(crate) const fn early(self, early_ns: Option<u64>) -> Self {
        Self { early_ns, ..self }
    }

    /// Returns how long after its start it ends, if its last part is a spin on the clock.
    pub(crate) const fn early_ns(&self) -> Option<u64> {
        self.early_ns
    }

    /// Creates a wait for `until_ns` that ends together with others at `wake_ns`, if that is
    /// later.
    pub(crate) fn together(until_ns: u64, wake_ns: u64) -> Self {
        Self { wake_ns: wake_ns.max(until_ns), ..Self::plainly(until_ns) }
    }

    /// Returns the instant to wait for. Before it, no wait ends unless it is cancelled.
    #[must_use]
    pub const fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// Returns when to wake: at that instant, or up to a millisecond later where wakes are
    /// coalesced.
    #[must_use]
    pub const fn wake_ns(&self) -> u64 {
        self.wake_ns
    }

    /// Returns the precision: [`Coalesced`](Precision::Coalesced) for no care,
    /// [`Precise`](Precision::Precise) or [`Spin`](Precision::Spin).
    ///
    /// Never [`Auto`](Precision::Auto): that has been decided.
    #[must_use]
    pub const fn precision(&self) -> Precision {
        self.precision
    }
}
