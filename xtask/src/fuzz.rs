//! Fuzzing: runs the targets of `fuzz/`, each for a time. libFuzzer prints how far it came.

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use crate::tools::{Workspace, succeeds};

/// The folders of the repository whose files a target starts from, besides its own seeds.
const FOLDERS: [(&str, &str); 2] =
    [("scenarios", "testdata/scenarios"), ("config_toml", "packaging")];

/// The longest input in bytes, the most memory in MiB, and the longest time for one input in
/// seconds.
const BOUNDS: [&str; 3] = ["-max_len=8192", "-rss_limit_mb=2048", "-timeout=20"];

/// Runs one target or all of them for this time each.
///
/// Inputs that reach something new are kept in the target folder, for the next run. Our code has
/// no `unsafe`, so no sanitizer watches its memory.
pub(crate) fn run(at: &Workspace, only: Option<&str>, seconds: u32) -> Result<()> {
    let manifest: toml::Table = at.read_file("fuzz/Cargo.toml")?.parse()?;
    let bins = manifest["bin"].as_array().context("fuzz/Cargo.toml has no [[bin]]")?;
    let names = bins.iter().filter_map(|bin| bin["name"].as_str());
    let chosen: Vec<_> =
        names.clone().filter(|name| only.is_none_or(|only| only == *name)).collect();
    ensure!(
        !chosen.is_empty(),
        "no such target; there are {}",
        names.collect::<Vec<_>>().join(", ")
    );
    if !succeeds(cmd!(at, "rustup run nightly rustc --version")) {
        cmd!(at, "rustup toolchain install nightly --profile minimal").run()?;
    }
    let tool = at.crates("cargo-fuzz", "0.13.2", &[])?;
    let scratch = at.target.join("fuzz");
    for name in chosen {
        println!("\n== {name}, {seconds} s");
        let corpus = at.create_dir(scratch.join("corpus").join(name))?;
        let found = at.create_dir(scratch.join("found").join(name))?;
        let folders =
            FOLDERS.iter().filter(|(target, _)| *target == name).map(|(_, folder)| *folder);
        let seeds = format!("fuzz/seeds/{name}");
        let seeds = std::iter::once(seeds.as_str())
            .chain(folders)
            .filter(|at_root| at.root.join(at_root).is_dir());
        let build = scratch.join("build");
        let found = found.display();
        let run = cmd!(
            at,
            "rustup run nightly {tool} run --fuzz-dir fuzz --sanitizer none --all-features"
        );
        let run = run.arg("--target-dir").arg(build).arg(name).arg(corpus).args(seeds).arg("--");
        // Cargo sets these for the program that it runs, which is of another compiler.
        let set_by_cargo = ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"];
        let run = set_by_cargo.into_iter().fold(run, xshell::Cmd::env_remove);
        run.args(BOUNDS)
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={found}/"))
            .args(["-print_final_stats=1", "-verbosity=1"])
            .run()?;
    }
    Ok(())
}
