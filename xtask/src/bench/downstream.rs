//! The library as a program that depends on it builds it: its speed beside other limiters' by two
//! profiles, its memory, and the crates and the time that a first build takes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo;
use crate::page::table;

/// The package, which is no member of the workspace.
const PACKAGE: &str = "bench-downstream";

/// The profiles of the measurements: cargo's own, and with link-time optimization of all crates.
const PROFILES: [&str; 2] = ["release", "fat"];

/// The name of a dependency, its manifest line, and a program with a direct limiter.
struct Direct {
    name: &'static str,
    dependency: String,
    program: &'static str,
}

/// Measures and prints the tables.
pub(crate) fn run(root: &Path, target: &Path, quick: bool) -> Result<()> {
    let (package, target) = (root.join(PACKAGE), target.join("downstream"));
    for profile in PROFILES {
        println!("profile {profile}:\n");
        let mut speed = program(&package, &target, profile, "speed");
        speed.args(quick.then_some("--quick"));
        cargo::run(&mut speed, "the benches failed")?;
        println!();
    }
    let mut memory = program(&package, &target, PROFILES[0], "memory");
    cargo::run(&mut memory, "the benches failed")?;
    let mut rows = Vec::new();
    for direct in direct(root) {
        rows.push(first_build(&package, &target, &direct)?);
    }
    println!("\n{}", table(["a direct limiter", "crates compiled", "first build"], &rows));
    Ok(())
}

fn program(package: &Path, target: &Path, profile: &str, name: &str) -> Command {
    let mut command = cargo(package, target);
    command.args(["run", "--quiet", "--profile", profile, "--bin", name, "--"]);
    command
}

fn cargo(package: &Path, target: &Path) -> Command {
    let mut command = cargo::cargo(package);
    command.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0");
    command
}

fn direct(root: &Path) -> [Direct; 2] {
    let path = root.join("crates").join("rategate");
    [
        Direct {
            name: "rategate",
            dependency: format!("rategate = {{ path = \"{}\" }}", path.display()),
            program: "use rategate::{Gcra, Limiter, Rate};\n\
                      fn main() {\n\
                      let limiter = Limiter::new(Gcra::new(Rate::per_second(5), 5).unwrap());\n\
                      assert!(limiter.try_acquire(1).unwrap().is_granted());\n\
                      }\n",
        },
        Direct {
            name: "governor",
            dependency: "governor = \"0.10\"".to_owned(),
            program: "use governor::{Quota, RateLimiter};\n\
                      fn main() {\n\
                      let limiter = RateLimiter::direct(Quota::per_second(5.try_into().unwrap()));\n\
                      assert!(limiter.check().is_ok());\n\
                      }\n",
        },
    ]
}

/// Builds a program with one dependency in an empty folder, and returns its row.
fn first_build(package: &Path, target: &Path, direct: &Direct) -> Result<[String; 3]> {
    let Direct { name, dependency, program } = direct;
    let folder = target.join("direct").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("src")).with_context(|| folder.display().to_string())?;
    let manifest = format!(
        "[workspace]\n\n[package]\nname = \"direct\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\n{dependency}\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::write(folder.join("src").join("main.rs"), program)?;
    // The versions that are measured, already fetched.
    fs::copy(package.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let mut fetch = cargo(&folder, &folder.join("target"));
    cargo::run(fetch.args(["fetch", "--quiet"]), "a limiter cannot be fetched")?;
    let mut build = cargo(&folder, &folder.join("target"));
    build.args(["build", "--release", "--quiet", "--message-format", "json"]);
    let begun = Instant::now();
    let output = build.stderr(Stdio::inherit()).output().context("start cargo")?;
    let took_s = begun.elapsed().as_secs_f64();
    ensure!(output.status.success(), "{name} does not build");
    let crates = crates_in(&String::from_utf8(output.stdout)?);
    Ok([(*name).to_owned(), crates.to_string(), format!("{took_s:.1} s")])
}

/// Returns the number of libraries in cargo's messages about a build, each counted once.
fn crates_in(messages: &str) -> usize {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let libraries = artifacts.filter_map(|artifact| {
        let is_library = artifact["target"]["kind"]
            .as_array()?
            .iter()
            .any(|kind| ["lib", "rlib", "proc-macro"].iter().any(|library| kind == library));
        is_library.then(|| artifact["package_id"].as_str().map(str::to_owned))?
    });
    libraries.collect::<std::collections::BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::crates_in;

    #[test]
    fn libraries_are_counted_once() {
        let messages = r#"{"package_id":"a","target":{"kind":["lib"]}}
{"package_id":"a","target":{"kind":["custom-build"]}}
{"package_id":"a","target":{"kind":["lib"]}}
{"package_id":"b","target":{"kind":["proc-macro"]}}
{"package_id":"c","target":{"kind":["bin"]}}
{"reason":"build-finished"}"#;
        assert_eq!(crates_in(messages), 2);
    }
}
