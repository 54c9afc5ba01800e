//! Calls the programs of `bench`, a workspace of its own, each by the profiles that it is measured
//! in. They print tables, and with `--write` put them into `docs/performance.md`.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::{cargo, servers};

/// A program: its name, its profiles, and whether it asks servers.
const PROGRAMS: [(&str, &[&str], bool); 6] = [
    ("code", &["release", "fat"], false),
    ("memory", &["release"], false),
    ("wait", &["release"], false),
    ("redis", &["release"], true),
    ("serve", &["release"], true),
    ("tokens", &["release"], true),
];

/// The version of throttlecrab's server, which needs `protoc` to build.
const THROTTLECRAB: &str = "throttlecrab-server@0.4.40";

/// Runs the programs that are named, or all.
pub(crate) fn run(root: &Path, target: &Path, words: &[&str]) -> Result<()> {
    let (flags, names): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with("--"));
    let known = |name: &&str| PROGRAMS.iter().any(|(known, ..)| known == name);
    ensure!(names.iter().all(known), "the programs are {:?}", PROGRAMS.map(|(name, ..)| name));
    let chosen = PROGRAMS.iter().filter(|(name, ..)| names.is_empty() || names.contains(name));
    let (mut is_ready, built) = (false, target.join("bench"));
    for (name, profiles, asks_servers) in chosen {
        if *asks_servers && !is_ready {
            prepare(root, target)?;
            is_ready = true;
        }
        for profile in *profiles {
            let mut program = at(root, "run", &built);
            program.args(["--profile", profile, "--bin", name]);
            program.args(asks_servers.then_some("--features=wires")).arg("--").args(&flags);
            program.env("RATEGATE", target.join("release").join("rategate"));
            program.env("THROTTLECRAB", built.join("bin").join("throttlecrab-server"));
            program.env("REDIS_CELL", built.join("release").join("libredis_cell.so"));
            cargo::run(&mut program, "the measurement failed")?;
        }
    }
    Ok(())
}

/// Builds our server and those it is compared with. One that does not build is left out.
fn prepare(root: &Path, target: &Path) -> Result<()> {
    servers::redis()?;
    if Command::new("wrk").output().is_err() {
        servers::debian("wrk", "wrk")?;
    }
    let mut ours = cargo::cargo(root);
    ours.args(["build", "--release", "--package", "rategate-cli"]);
    cargo::run(&mut ours, "the server does not build")?;
    let built = target.join("bench");
    let mut cell = at(root, "build", &built);
    cell.args(["--release", "--features", "rivals", "--package", "redis-cell"]);
    let mut throttlecrab = cargo::cargo(root);
    throttlecrab.args(["install", THROTTLECRAB, "--locked", "--root"]).arg(&built);
    throttlecrab.env("CARGO_TARGET_DIR", &built);
    servers::debian("protoc", "protobuf-compiler")?;
    for rival in [&mut cell, &mut throttlecrab] {
        if let Err(error) = cargo::run(rival, "another server does not build") {
            println!("ours is not compared with it: {error:#}");
        }
    }
    Ok(())
}

fn at(root: &Path, what: &str, built: &Path) -> Command {
    let mut command = cargo::cargo(&root.join("bench"));
    command.env("CARGO_TARGET_DIR", built).args([what, "--quiet", "--locked"]);
    command
}
