//! Writes the tapes of the scenario files of a folder, and of random scenarios, into another one,
//! and which files have none, which it also prints. `cargo xtask tapes` runs it.

#![allow(clippy::print_stdout, reason = "its output is for the terminal")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use rategate_testkit::player::{random, tape};
use rategate_testkit::scenario::Scenario;
use rategate_testkit::suite;

/// The number of random scenarios.
const SEEDS: u64 = 1_500;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut folders = env::args().skip(1);
    let (Some(from), Some(to)) = (folders.next(), folders.next().map(PathBuf::from)) else {
        return Err("needs the folder of the scenarios, and that of the tapes".into());
    };
    let mut tapes = Vec::new();
    let mut of_files = suite::each(&from, |name, scenario| {
        tape(name, &scenario).map(|tape| tapes.push((name.to_owned(), tape)))
    })?;
    for seed in 0..SEEDS {
        let name = format!("seed-{seed}");
        let tape = tape(&name, &Scenario::parse(&random(seed))?);
        tapes.extend(tape.ok().map(|tape| (name, tape)));
    }
    for (name, tape) in &tapes {
        fs::write(to.join(format!("{name}.tape")), tape)?;
    }
    println!("{} tapes, {} of them of files", tapes.len(), of_files.played.len());
    println!("{} files have none:", of_files.skipped.len());
    of_files.skipped.sort_by_key(|(_, reason)| *reason);
    let mut left_out = String::new();
    for (name, reason) in of_files.skipped {
        println!("  {name}: {reason}");
        writeln!(left_out, "{name}\t{reason}")?;
    }
    // Players record these lines beside what they played.
    fs::write(to.join("left-out.txt"), left_out)?;
    Ok(())
}
