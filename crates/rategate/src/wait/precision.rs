//! How exactly a wait ends, and what that costs.

/// How exactly a waiting thread starts, against how much processor time its waits take.
///
/// None of them starts an operation early. Each wait is for an absolute instant. On a schedule, one that
/// ends late moves that operation alone. On a limit that counts real starts, what lateness the burst does
/// not make up for is lost to the rate; so a precise wait for such a limit sleeps as much shorter as
/// wakes have been late on average, and looks at the clock for the rest, at most 60 us.
///
/// | precision | a thread wakes | late by | processor time |
/// |---|---|---|---|
/// | [`Auto`](Self::Auto) | as coalesced if it would wake more than 2500 times a second, else as precise | as these | little |
/// | [`Coalesced`](Self::Coalesced) | at most once a millisecond | up to 1 ms, and the system's timer and scheduler | least |
/// | [`Precise`](Self::Precise) | for each start that it has to wait for | the scheduler alone, usually some 10 us | a wake for each start |
/// | [`Spin`](Self::Spin) | 60 us before each start | the resolution of the clock, while the thread runs | up to 60 us for each start |
///
/// "Late" has no hard bound: a scheduler may leave any thread aside, a spinning one too.
///
/// A [`Clock`](crate::Clock) on which waiting costs nothing, as
/// [`ManualClock`](crate::ManualClock), waits the same way for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// Coalesced where a thread would wake more than 2500 times a second, that is, less than
    /// 400 us after the last wake was due; else precise. Steady loops of up to about 2000 operations a
    /// second are precise, and so are limits that let nobody catch up by 400 us: a bucket of a few
    /// permits, a strict schedule, a log.
    #[default]
    Auto,
    /// At most one wake in a millisecond: a wait ends at its start, or 1 ms after the last wake was
    /// due if that is later. What became due in the meantime starts then, without a wait of its own. At a
    /// million operations a second that is a thousand wakes, and a thousand operations after each.
    ///
    /// For limits that let a caller catch up by a millisecond. One that forgets what was not used
    /// at once, as a bucket of a single permit does, passes one operation for each wake.
    Coalesced,
    /// One wake for each start. On Linux the thread's timer slack, by which the kernel may delay a
    /// wake to join it with others, is 1 ns during the wait (as a rule it is 50 us) and what it
    /// was afterwards.
    Precise,
    /// As precise until 60 us before the start. From there on the thread looks at the clock, and at
    /// the alarm, without a pause. For a processor that has nothing better to do: at 2000 starts a
    /// second it costs an eighth of one, and above 15 000 a second all of it.
    Spin,
}

/// One wait, as a [`Clock`](crate::Clock) is asked for it: for which start, and how exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    until_ns: u64,
    wake_ns: u64,
    precision: Precision,
    /// Where what it is late by is lost to the limit: how long after its start it ends.
    early_ns: Option<u64>,
}

impl Wait {
    /// A wait that ends at its start, without further care.
    pub(crate) const fn plainly(until_ns: u64) -> Self {
        Self::exactly(until_ns, Precision::Coalesced)
    }

    /// A wait that ends at its start, and as exactly as `precision` says.
    pub(crate) const fn exactly(until_ns: u64, precision: Precision) -> Self {
        Self { until_ns, wake_ns: until_ns, precision, early_ns: None }
    }

    /// The same wait, for a caller that loses by lateness: a precise one sleeps as much shorter as wakes have
    /// been late on average, and spins the rest. It ends by so much after its start.
    pub(crate) const fn early(self, early_ns: Option<u64>) -> Self {
        Self { early_ns, ..self }
    }

    /// How long after its start it ends, if the last of it is spent looking at the clock.
    pub(crate) const fn early_ns(&self) -> Option<u64> {
        self.early_ns
    }

    /// A wait for `until_ns` that ends together with others at `wake_ns`, if that is later.
    pub(crate) fn together(until_ns: u64, wake_ns: u64) -> Self {
        Self { wake_ns: wake_ns.max(until_ns), ..Self::plainly(until_ns) }
    }

    /// The instant for which to wait. Before it, no wait ends unless it is called off.
    #[must_use]
    pub const fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// When to wake: the same instant, or up to a millisecond later where wakes are coalesced.
    #[must_use]
    pub const fn wake_ns(&self) -> u64 {
        self.wake_ns
    }

    /// With how much care: [`Coalesced`](Precision::Coalesced) for none,
    /// [`Precise`](Precision::Precise) or [`Spin`](Precision::Spin). Never
    /// [`Auto`](Precision::Auto): that has been decided.
    #[must_use]
    pub const fn precision(&self) -> Precision {
        self.precision
    }
}
