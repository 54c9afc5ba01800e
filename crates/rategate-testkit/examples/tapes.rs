//! Writes the tapes of the scenario files of a folder, and of random scenarios, into another one,
//! and prints which files have none. `cargo xtask tapes` runs it.

use std::path::PathBuf;
use std::{env, fs};

use rategate_testkit::scenario::{Scenario, random, tape};

/// The number of random scenarios.
const SEEDS: u64 = 1_500;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut folders = env::args().skip(1);
    let (Some(from), Some(to)) = (folders.next(), folders.next().map(PathBuf::from)) else {
        return Err("needs the folder of the scenarios, and that of the tapes".into());
    };
    let mut files = fs::read_dir(&from)?
        .map(|file| Ok(file?.path()))
        .collect::<Result<Vec<_>, std::io::Error>>()?;
    files.sort();
    let write = |name: &str, tape: &str| fs::write(to.join(format!("{name}.tape")), tape);
    let (mut written, mut left_out) = (0, Vec::new());
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let scenario = Scenario::parse(&fs::read_to_string(file)?)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        match tape(&name, &scenario) {
            Ok(text) => {
                write(&name, &text)?;
                written += 1;
            }
            Err(reason) => left_out.push((reason, name)),
        }
    }
    let mut of_seeds = 0;
    for seed in 0..SEEDS {
        let name = format!("seed-{seed}");
        if let Ok(text) = tape(&name, &Scenario::parse(&random(seed))?) {
            write(&name, &text)?;
            of_seeds += 1;
        }
    }
    println!("{written} tapes of files, {of_seeds} of {SEEDS} random scenarios");
    println!("{} files have none:", left_out.len());
    left_out.sort();
    for (reason, name) in left_out {
        println!("  {name}: {reason}");
    }
    Ok(())
}
