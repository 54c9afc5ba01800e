//! The results of the calls of some time.

use serde::Serialize;

/// A time in which is measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measure {
    /// Its begin.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// The index of the client whose calls alone it measures. `None` for those of all.
    #[serde(skip)]
    pub client: Option<usize>,
}

impl Measure {
    /// Creates a measure of the calls of all clients.
    #[must_use]
    pub const fn of_all(from_ns: u64, to_ns: u64) -> Self {
        Self { from_ns, to_ns, client: None }
    }

    /// Returns `true` if it measures the calls of a client.
    pub(super) fn is_of(&self, client: usize) -> bool {
        self.client.is_none_or(|only| only == client)
    }
}

/// The calls that ended in a [`Measure`].
#[derive(Clone, Debug, Default, Serialize)]
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
    #[serde(skip)]
    pub(super) possible: u64,
    /// The latencies of the served and the late.
    #[serde(skip)]
    pub(super) latencies_ns: Vec<u64>,
}

impl Measured {
    /// Returns the results as numbers that can be compared.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let served = self.served.iter().copied().fold(0, u64::saturating_add);
        Numbers {
            goodput_per_mille: per_mille(served, self.possible).unwrap_or(1_000),
            p99_ns: self.p99_ns(),
            jain_per_mille: self.jain_per_mille(),
            refused_per_mille: per_mille(self.refused, self.sent).unwrap_or(0),
            shed_per_mille: per_mille(self.made.saturating_sub(self.sent), self.made).unwrap_or(0),
        }
    }

    fn p99_ns(&self) -> u64 {
        let mut all = self.latencies_ns.clone();
        all.sort_unstable();
        let at = all.len().saturating_mul(99) / 100;
        all.get(at).or(all.last()).copied().unwrap_or(0)
    }

    fn jain_per_mille(&self) -> u64 {
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

/// The results of a [`Measure`] as numbers that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// The served calls, in thousandths of those that could have been served.
    pub goodput_per_mille: u64,
    /// The latency that 99 of 100 calls did not exceed.
    pub p99_ns: u64,
    /// Jain's index of the served calls of the clients, in thousandths: 1000 if all have the same.
    pub jain_per_mille: u64,
    /// The refused calls, in thousandths of those that were sent.
    pub refused_per_mille: u64,
    /// The calls for which there was no room, in thousandths of those that were made.
    pub shed_per_mille: u64,
}

fn per_mille(part: u64, whole: u64) -> Option<u64> {
    part.saturating_mul(1_000).checked_div(whole)
}
