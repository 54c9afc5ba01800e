//! Servers under load: the default controller meets every goal of every file.

use std::fs;
use std::path::PathBuf;

use rategate_core::adaptive::{Bounds, Knee};
use rategate_sim::server::{Measured, ServerFile};

fn files() -> Vec<(String, ServerFile)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/servers");
    let read = |path: PathBuf| {
        let file = ServerFile::parse(&fs::read_to_string(&path).unwrap());
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, file.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    let mut all: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| read(entry.unwrap().path())).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

/// Returns the measures of each of some seeds.
fn measured(file: &ServerFile, seeds: u64) -> Vec<Vec<Measured>> {
    let run = |seed| {
        let mut file = file.clone();
        file.setup.seed = seed;
        file.run().measured
    };
    (1..=seeds).map(run).collect()
}

fn median(numbers: impl Iterator<Item = u64>) -> u64 {
    let mut all: Vec<u64> = numbers.collect();
    all.sort_unstable();
    all[all.len() / 2]
}

/// Of each goal the median of five seeds.
#[test]
fn one_configuration_meets_the_goals_of_all_servers() {
    let mut missed = Vec::new();
    let files = files();
    assert_eq!(files.len(), 13, "the files are missing");
    for (name, file) in files {
        assert_eq!((file.bounds.floor(), file.bounds.ceiling()), (1, 1_000), "{name}");
        let runs = measured(&file, 5);
        for (at, goal) in file.goals.iter().enumerate() {
            let all = || runs.iter().map(|run| &run[at]);
            let goodput = median(all().map(Measured::goodput_per_mille));
            let p99_ns = median(all().map(Measured::p99_ns));
            let jain = median(all().map(Measured::jain_per_mille));
            let refused = median(all().map(Measured::refused_per_mille));
            let got =
                format!("goodput {goodput} ‰, p99 {p99_ns} ns, Jain {jain} ‰, refused {refused} ‰");
            let is_met = goal.goodput_per_mille.is_none_or(|least| goodput >= least)
                && goal.p99_ns.is_none_or(|most| p99_ns <= most)
                && goal.jain_per_mille.is_none_or(|least| jain >= least)
                && goal.refused_per_mille.is_none_or(|most| refused <= most);
            if !is_met {
                missed.push(format!("{name} {at}: {goal:?}, and got {got}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn the_same_file_gives_the_same_run() {
    for (name, file) in files() {
        let (one, other) = (file.run().seen, file.run().seen);
        assert!(one == other && one.len() > 1_000, "{name}");
    }
}

/// The limit stays within its bounds, and a limit of one sends one call at a time.
#[test]
fn a_limit_of_one_sends_one_call_at_a_time() {
    let (_, file) = files().swap_remove(4);
    let run = file.setup.run(|client| Knee::new(Bounds::new(1, 1, 1), client));
    assert!(run.seen.iter().all(|seen| seen.limit == 1 && seen.sample.in_flight == 1));
}
