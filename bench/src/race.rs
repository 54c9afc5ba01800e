//! Criterion times contenders in turns, so that other work of the machine affects all alike.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, SamplingMode};
use serde_json::Value;

use crate::report::Report;
use crate::{Made, median};

const QUICK_ROUNDS: usize = 3;

/// One of the alternatives of a path.
pub struct Contender<'a> {
    name: String,
    /// The number of decisions in one call.
    serves: u32,
    lap: Box<dyn Fn(usize, u64) -> Duration + 'a>,
}

impl<'a> Contender<'a> {
    /// Creates a contender whose threads share all state. Each call has to return `true`.
    pub fn new(name: &str, call: impl Fn() -> bool + Sync + 'a) -> Self {
        Self::with_state(name, 1, || (), move |()| call())
    }

    /// Creates a contender with a state for each thread, made before the clock starts.
    pub fn with_state<S>(
        name: &str,
        serves: u32,
        make: impl Fn() -> S + Sync + 'a,
        call: impl Fn(&mut S) -> bool + Sync + 'a,
    ) -> Self {
        let named = name.to_owned();
        let lap = move |threads: usize, calls: u64| {
            let start = Barrier::new(threads);
            let one = || {
                let mut own = make();
                start.wait();
                let begun = Instant::now();
                let answered = (0..calls).filter(|_| black_box(call(&mut own))).count();
                let took = begun.elapsed();
                assert_eq!(answered as u64, calls, "{named} gave another answer");
                took
            };
            if threads == 1 {
                return one();
            }
            let all: Vec<Duration> = thread::scope(|scope| {
                let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
                running.into_iter().filter_map(|thread| thread.join().ok()).collect()
            });
            assert_eq!(all.len(), threads, "a thread of {named} failed");
            all.iter().sum::<Duration>() / threads as u32
        };
        Self { name: name.to_owned(), serves, lap: Box::new(lap) }
    }
}

/// The figures of a contender.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// The median time of a decision, as one thread sees it, in nanoseconds.
    pub ns: f64,
    /// The median of the ratios of its time to the first contender's, each within a round.
    pub ratio: f64,
}

/// Criterion, and the number of rounds.
pub struct Races {
    criterion: Criterion,
    folder: PathBuf,
    rounds: usize,
}

impl Races {
    /// Sets criterion up. It keeps its samples in a folder beside this program.
    pub fn new(quick: bool) -> Made<Self> {
        let program = std::env::current_exe()?;
        let folder = program.parent().unwrap_or(Path::new(".")).join("criterion");
        let _ = fs::remove_dir_all(&folder);
        let lap = Duration::from_millis(if quick { 60 } else { 300 });
        let criterion = Criterion::default()
            .without_plots()
            .output_directory(&folder)
            .sample_size(10)
            .nresamples(1_000)
            .warm_up_time(lap / 4)
            .measurement_time(lap);
        Ok(Self { criterion, folder, rounds: if quick { QUICK_ROUNDS } else { 9 } })
    }

    /// Says whether it measures shortly.
    pub fn is_quick(&self) -> bool {
        self.rounds == QUICK_ROUNDS
    }

    /// Times each contender in each round.
    pub fn race(
        &mut self,
        path: &str,
        threads: usize,
        contenders: &[Contender<'_>],
    ) -> Made<Vec<Figure>> {
        let id = format!("{path}, {threads}");
        let mut group = self.criterion.benchmark_group(&id);
        group.sampling_mode(SamplingMode::Flat);
        for round in 0..self.rounds {
            for contender in contenders {
                group.bench_function(BenchmarkId::new(&contender.name, round), |bencher| {
                    bencher.iter_custom(|calls| (contender.lap)(threads, calls));
                });
            }
        }
        group.finish();
        let mut first = Vec::new();
        let mut figures = Vec::new();
        for Contender { name, serves, .. } in contenders {
            let ns = (0..self.rounds).map(|round| {
                let folder = self.folder.join(file_name(&id)).join(file_name(name));
                let path = folder.join(round.to_string()).join("new/estimates.json");
                let text = fs::read_to_string(&path)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                let estimates: Value = serde_json::from_str(&text)?;
                let ns = estimates["median"]["point_estimate"].as_f64().ok_or("no estimate")?;
                Ok(ns / f64::from(*serves))
            });
            let ns: Vec<f64> = ns.collect::<Made<_>>()?;
            if first.is_empty() {
                first.clone_from(&ns);
            }
            let ratio = median(ns.iter().zip(&first).map(|(ns, first)| ns / first).collect());
            figures.push(Figure { name: name.clone(), ns: median(ns), ratio });
        }
        Ok(figures)
    }

    /// Races ours with others, the first of which the ratios refer to, and adds the row.
    pub fn row(
        &mut self,
        report: &mut Report,
        path: &str,
        threads: usize,
        others: Vec<Contender<'_>>,
        ours: Vec<Contender<'_>>,
    ) -> Made<()> {
        let count = others.len();
        let all: Vec<Contender<'_>> = others.into_iter().chain(ours).collect();
        let figures = self.race(path, threads, &all)?;
        let (others, ours) = figures.split_at(count);
        let others: Vec<String> =
            others.iter().map(|figure| format!("{} {:.1}", figure.name, figure.ns)).collect();
        let ours: Vec<String> = ours
            .iter()
            .map(|Figure { name, ns, ratio }| format!("{name} {ns:.1} ({ratio:.2})"))
            .collect();
        report.row(&[path, &threads.to_string(), &ours.join("; "), &others.join("; ")]);
        Ok(())
    }
}

/// Returns a name as criterion writes it.
fn file_name(name: &str) -> String {
    name.replace(['?', '"', '/', '\\', '*', '<', '>', ':', '|', '^'], "_")
}
