//! What came of the calls in some time.

/// A time in which is measured.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Its begin.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
}

/// The calls that ended in a [`Measure`].
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The calls that were made, whether there was room for them or not.
    pub made: u64,
    /// The calls that were sent.
    pub sent: u64,
    /// The calls that were served before their deadline, of each client.
    pub served: Vec<u64>,
    /// The calls that the server refused.
    pub refused: u64,
    /// The calls whose deadline passed.
    pub late: u64,
    /// The calls that could have been served: the lesser of those made and of the capacity.
    pub(super) possible: u64,
    /// The latencies of the served and the late.
    pub(super) latencies_ns: Vec<u64>,
}

impl Measured {
    /// Returns the served calls, in thousandths of those that could have been served.
    #[must_use]
    pub fn goodput_per_mille(&self) -> u64 {
        per_mille(self.served.iter().copied().fold(0, u64::saturating_add), self.possible)
    }

    /// Returns the refused calls, in thousandths of those that were sent.
    #[must_use]
    pub fn refused_per_mille(&self) -> u64 {
        per_mille(self.refused, self.sent)
    }

    /// Returns the calls that were made and not sent, in thousandths.
    #[must_use]
    pub fn shed_per_mille(&self) -> u64 {
        per_mille(self.made.saturating_sub(self.sent), self.made)
    }

    /// Returns the latency below which 99 of 100 calls were.
    #[must_use]
    pub fn p99_ns(&self) -> u64 {
        let mut all = self.latencies_ns.clone();
        all.sort_unstable();
        let at = all.len().saturating_mul(99) / 100;
        all.get(at).or(all.last()).copied().unwrap_or(0)
    }

    /// Returns Jain's index of the served calls of the clients, in thousandths: 1000 if all have
    /// the same.
    #[must_use]
    pub fn jain_per_mille(&self) -> u64 {
        let sum =
            self.served.iter().map(|&served| u128::from(served)).fold(0, u128::saturating_add);
        let square = |&served: &u64| u128::from(served).saturating_mul(served.into());
        let squares = self.served.iter().map(square).fold(0, u128::saturating_add);
        let clients = u128::try_from(self.served.len()).unwrap_or(u128::MAX);
        let index = sum.saturating_mul(sum).saturating_mul(1_000);
        let index = index.checked_div(squares.saturating_mul(clients)).unwrap_or(1_000);
        u64::try_from(index).unwrap_or(u64::MAX)
    }
}

fn per_mille(part: u64, whole: u64) -> u64 {
    part.saturating_mul(1_000).checked_div(whole).unwrap_or(1_000)
}
