//! A comparison of contenders in turns, round after round, so that other work of the machine
//! affects them alike.

use std::time::Duration;

use rategate_bench::engines::Made;
use rategate_bench::harness::median;
use rategate_bench::report::Row;
use rategate_bench::usage::{TICK_NS, machine_ticks};
use serde_json::json;

use crate::Bench;
use crate::cores::max_pause_ns;
use crate::load::Load;
use crate::load::key_sequence::KeySequence;
use crate::load::tally::LoadTally;
use crate::service::{Service, cpu_ns};

/// The number of keys of a load.
pub(crate) const KEYS: u64 = 100_000;
/// The limit that grants everything: a burst and a rate per second, for each key.
pub(crate) const WIDE: (u64, u64) = (1_000, 100_000);
/// The number of requests that pass for each key, with no more within an hour.
pub(crate) const TIGHT: u64 = 10;
/// The number of keys with more requests than that; the next is how many each has.
const TIGHT_KEYS: u64 = 1_000;
const TIGHT_TIMES: u64 = 20;

/// The time before the first round, in which tables grow and connections settle.
const WARM: Duration = Duration::from_millis(300);
/// The time of a bare loop before each run.
const WATCH: Duration = Duration::from_millis(50);

/// A server, and its load.
pub(crate) struct Contender<'a> {
    pub(crate) name: String,
    pub(crate) service: &'a Service,
    /// Another process that works for it, on the same core.
    pub(crate) store: Option<&'a Service>,
    pub(crate) keys: u64,
    /// Set if each key names one request, and none may come twice.
    pub(crate) has_ids: bool,
    pub(crate) load: Box<dyn Load>,
    /// A load with limits for which the number of grants is known.
    pub(crate) exact: Option<Box<dyn Load>>,
}

impl Contender<'_> {
    /// Returns the keys of one of the runs.
    fn key_sequence(&self, run: u64) -> KeySequence {
        if self.has_ids {
            KeySequence::shuffled(self.keys, run)
        } else {
            KeySequence::uniform(self.keys, run + 1_000_003)
        }
    }
}

/// The results of all rounds of one contender.
pub(crate) struct Figures {
    pub(crate) name: String,
    pub(crate) tally: LoadTally,
    pub(crate) exact: Option<Exact>,
    /// The longest pause of a bare loop on the same core, between the runs.
    pub(crate) max_pause_ns: u64,
    rounds: Vec<Round>,
}

/// The grants of limits, and the number expected.
pub(crate) struct Exact {
    pub(crate) tally: LoadTally,
    pub(crate) expected: u64,
}

#[derive(Clone, Copy)]
struct Round {
    per_s: f64,
    /// The server's processor time for each decision.
    cpu_ns: f64,
    /// The store's processor time for each decision.
    store_ns: f64,
    /// The used fraction of the server's core.
    used: f64,
    p99_ns: f64,
    /// The number of cores that other processes used during the round.
    others: f64,
}

/// Measures all contenders in turns.
pub(crate) fn contend(bench: &Bench, contenders: &mut [Contender<'_>]) -> Made<Vec<Figures>> {
    let mut all: Vec<Figures> =
        contenders.iter().map(|one| Figures::nothing(&one.name)).collect::<Made<_>>()?;
    for (one, figures) in contenders.iter_mut().zip(&mut all) {
        one.load
            .run(&mut one.key_sequence(0), WARM)
            .map_err(|error| format!("{}: {error}", one.name))?;
        if let Some(exact) = &mut one.exact {
            let tally =
                exact.run(&mut KeySequence::each(TIGHT_KEYS, TIGHT_TIMES), Duration::MAX)?;
            figures.exact = Some(Exact { tally, expected: TIGHT_KEYS * TIGHT });
        }
    }
    for number in 0..bench.lengths.rounds {
        for (one, figures) in contenders.iter_mut().zip(&mut all) {
            let pause_ns = max_pause_ns(bench.cores.server, WATCH)?;
            figures.max_pause_ns = figures.max_pause_ns.max(pause_ns);
            let round = round(one, bench, number, figures);
            figures.rounds.push(round.map_err(|error| format!("{}: {error}", one.name))?);
        }
    }
    Ok(all)
}

fn round(
    one: &mut Contender<'_>,
    bench: &Bench,
    number: u32,
    figures: &mut Figures,
) -> Made<Round> {
    let mut key_sequence = one.key_sequence(u64::from(number) + 1);
    let reading = || -> Made<[u64; 4]> {
        let store_ns = one.store.map_or(Ok(0), Service::cpu_ns)?;
        let [_, busy] = machine_ticks().ok_or("/proc/stat is not as expected")?;
        Ok([one.service.cpu_ns()?, cpu_ns("self")?, busy * TICK_NS, store_ns])
    };
    let before = reading()?;
    let tally = one.load.run(&mut key_sequence, bench.lengths.lasts)?;
    let after = reading()?;
    let [server, load, all, store] =
        [0, 1, 2, 3].map(|index| after[index].saturating_sub(before[index]) as f64);
    figures.tally.add(&tally);
    let lasted = tally.lasted_ns.max(1) as f64;
    Ok(Round {
        per_s: tally.per_s(),
        cpu_ns: server / tally.answers().max(1) as f64,
        store_ns: store / tally.answers().max(1) as f64,
        used: (server + store) / lasted,
        p99_ns: tally.took_ns.value_at_quantile(0.99) as f64,
        others: ((all - server - load - store) / lasted).max(0.0),
    })
}

impl Figures {
    fn nothing(name: &str) -> Made<Self> {
        let (name, tally) = (name.to_owned(), LoadTally::nothing()?);
        Ok(Self { name, tally, exact: None, max_pause_ns: 0, rounds: Vec::new() })
    }

    pub(crate) fn per_s(&self) -> f64 {
        self.median(|round| round.per_s)
    }

    pub(crate) fn cpu_ns(&self) -> f64 {
        self.median(|round| round.cpu_ns)
    }

    /// Returns how many cores others used.
    pub(crate) fn others(&self) -> f64 {
        self.median(|round| round.others)
    }

    /// Returns the row of this contender on a path.
    pub(crate) fn row(&self, path: &str) -> Row {
        let at = |quantile| self.tally.took_ns.value_at_quantile(quantile);
        Row::of_fields(&json!({
            "path": path,
            "who": self.name,
            "per_s": self.per_s(),
            "cpu_ns": self.cpu_ns(),
            "store_ns": self.median(|round| round.store_ns),
            "used": self.median(|round| round.used),
            "p50_ns": at(0.5),
            "p99_ns": at(0.99),
            "p999_ns": at(0.999),
            "others": self.others(),
            "pause_ns": self.max_pause_ns,
            "denied": self.tally.denied,
            "failed": self.tally.failed,
            "failure": self.tally.failure,
            "exact": self.exact.as_ref().map(|exact| json!({
                "passed": exact.tally.allowed, "expected": exact.expected,
                "failed": exact.tally.failed, "failure": exact.tally.failure,
            })),
        }))
    }

    /// Returns the decisions as a multiple of another's.
    pub(crate) fn per_s_over(&self, other: &Self) -> f64 {
        self.over(other, |round| round.per_s)
    }

    pub(crate) fn cpu_over(&self, other: &Self) -> f64 {
        self.over(other, |round| round.cpu_ns)
    }

    pub(crate) fn p99_over(&self, other: &Self) -> f64 {
        self.over(other, |round| round.p99_ns)
    }

    fn over(&self, other: &Self, of: fn(&Round) -> f64) -> f64 {
        median(
            self.rounds
                .iter()
                .zip(&other.rounds)
                .map(|(ours, theirs)| of(ours) / of(theirs))
                .collect(),
        )
    }

    fn median(&self, of: fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }
}
