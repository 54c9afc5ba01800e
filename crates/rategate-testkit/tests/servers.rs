//! Servers under load: the default controller meets every goal of every file.

use std::fs;
use std::path::PathBuf;

use rategate_core::adaptive::{Bounds, Knee};
use rategate_testkit::server::{Measured, Numbers, ServerFile};

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

/// Returns the numbers of each measure, by seed.
fn numbers(file: &ServerFile, seeds: u64) -> Vec<Vec<Numbers>> {
    let run = |seed| {
        let mut file = file.clone();
        file.setup.seed = seed;
        file.run().measured.iter().map(Measured::numbers).collect()
    };
    (1..=seeds).map(run).collect()
}

fn median(numbers: &[Numbers], of: impl Fn(&Numbers) -> u64) -> u64 {
    let mut all: Vec<u64> = numbers.iter().map(of).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

/// Each number is the median of nine seeds.
#[test]
fn one_configuration_meets_the_goals_of_all_servers() {
    let mut missed = Vec::new();
    let files = files();
    assert_eq!(files.len(), 22, "the files are missing");
    for (name, file) in files {
        assert_eq!((file.bounds.floor(), file.bounds.ceiling()), (1, 1_000), "{name}");
        let runs = numbers(&file, 9);
        for (at, goal) in file.goals.iter().enumerate() {
            let all: Vec<Numbers> = runs.iter().map(|run| run[at]).collect();
            let got = Numbers {
                goodput_per_mille: median(&all, |one| one.goodput_per_mille),
                p99_ns: median(&all, |one| one.p99_ns),
                jain_per_mille: median(&all, |one| one.jain_per_mille),
                refused_per_mille: median(&all, |one| one.refused_per_mille),
                shed_per_mille: median(&all, |one| one.shed_per_mille),
            };
            let why = goal.missed_by(&got);
            if !why.is_empty() {
                missed.push(format!("{name}, measure {at}: {why:?} {all:?}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// No run of any seed serves less than nine tenths, where the server changes nothing.
#[test]
fn no_seed_is_unlucky() {
    for (name, file) in files() {
        if ["light", "overload", "bimodal", "reject", "mm1"].contains(&&*name) {
            for (seed, run) in (1..).zip(numbers(&file, 12)) {
                assert!(run[0].goodput_per_mille >= 900, "{name}, seed {seed}: {:?}", run[0]);
            }
        }
    }
}

#[test]
fn the_same_file_gives_the_same_run() {
    for (name, file) in files() {
        let (one, other) = (file.run().seen, file.run().seen);
        assert!(one == other && one.len() > 1_000, "{name}");
    }
}

#[test]
fn a_limit_of_one_sends_one_call_at_a_time() {
    let overload = files().into_iter().find(|(name, _)| name == "overload");
    let (_, file) = overload.unwrap();
    let run = file.setup.run(|client| Knee::new(Bounds::new(1, 1, 1), client));
    assert!(run.seen.len() > 1_000);
    assert!(run.seen.iter().all(|seen| seen.limit == 1 && seen.sample.in_flight == 1));
}
