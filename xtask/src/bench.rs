//! Calls the programs of `bench`, a workspace of its own, each by the profiles that it is measured
//! in. They print tables, and with `--write` put them into `docs/performance.md`.

use anyhow::{Result, ensure};
use xshell::Cmd;

use crate::tools::Workspace;

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
pub(crate) fn run(at: &Workspace, words: &[String]) -> Result<()> {
    let (flags, names): (Vec<_>, Vec<_>) = words.iter().partition(|word| word.starts_with("--"));
    let known = |name: &&String| PROGRAMS.iter().any(|(known, ..)| known == name);
    ensure!(names.iter().all(known), "the programs are {:?}", PROGRAMS.map(|(name, ..)| name));
    let is_named = |name: &str| names.is_empty() || names.iter().any(|named| *named == name);
    let chosen: Vec<_> = PROGRAMS.iter().filter(|(name, ..)| is_named(name)).collect();
    if chosen.iter().any(|(.., asks_servers)| *asks_servers) {
        prepare(at)?;
    }
    let built = at.target.join("bench");
    for (name, profiles, asks_servers) in chosen {
        for profile in *profiles {
            let program = of_bench(at, "run").args(["--profile", profile, "--bin", name]);
            let program = program.args(asks_servers.then_some("--features=wires")).arg("--");
            program
                .args(&flags)
                .env("RATEGATE", at.target.join("release/rategate"))
                .env("THROTTLECRAB", built.join("bin/throttlecrab-server"))
                .env("REDIS_CELL", built.join("release/libredis_cell.so"))
                .run()?;
        }
    }
    Ok(())
}

/// Builds our server and those it is compared with. One that does not build is left out.
fn prepare(at: &Workspace) -> Result<()> {
    for (program, package) in
        [("redis-server", "redis-server"), ("wrk", "wrk"), ("protoc", "protobuf-compiler")]
    {
        at.debian(program, package)?;
    }
    at.cargo("build --release --package rategate-cli").run()?;
    let built = at.target.join("bench");
    let cell = of_bench(at, "build").args(["--release", "--features=rivals", "--lib"]);
    let throttlecrab = at.cargo(&format!("install {THROTTLECRAB} --locked --root")).arg(&built);
    for rival in [cell, throttlecrab.env("CARGO_TARGET_DIR", &built)] {
        if let Err(error) = rival.run() {
            println!("ours is not compared with it: {error:#}");
        }
    }
    Ok(())
}

/// Returns a command of cargo for the workspace of the bench.
fn of_bench<'a>(at: &'a Workspace, what: &str) -> Cmd<'a> {
    let command = at.cargo(what).args(["--quiet", "--locked", "--manifest-path=bench/Cargo.toml"]);
    command.env("CARGO_TARGET_DIR", at.target.join("bench"))
}
