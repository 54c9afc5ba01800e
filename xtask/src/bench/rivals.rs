//! The servers that ours is compared with: built once, from the registry, into cargo's target
//! folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::{cargo, servers};

/// The version of throttlecrab. Its own gRPC service needs `protoc` to build.
const THROTTLECRAB: &str = "0.4.40";
/// The newest version in the registry. It is a library, so it is built as a dependency of a
/// package.
const REDIS_CELL: &str = "0.2.2";
/// The time limit of a build on two cores, in seconds.
const BUILT_WITHIN_S: &str = "2400";

/// Installs what is missing, and reports what cannot be installed: the others are measured
/// without it.
pub(super) fn install(target: &Path) -> Result<PathBuf> {
    let folder = target.join("rivals");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for (name, installed) in
        [("throttlecrab", throttlecrab(&folder)), ("redis-cell", redis_cell(&folder))]
    {
        if let Err(error) = installed {
            eprintln!("{name} is unavailable, so ours is not compared with it: {error:#}");
        }
    }
    Ok(folder)
}

fn throttlecrab(folder: &Path) -> Result<()> {
    if folder.join("bin").join("throttlecrab-server").is_file() {
        return Ok(());
    }
    servers::debian("protoc", "protobuf-compiler")?;
    let mut install = cargo(folder);
    install.args([
        "install",
        "throttlecrab-server",
        "--locked",
        "--version",
        THROTTLECRAB,
        "--root",
    ]);
    built(install.arg(folder))
}

fn redis_cell(folder: &Path) -> Result<()> {
    const LIBRARY: &str = "libredis_cell.so";
    let library = folder.join(LIBRARY);
    if library.is_file() {
        return Ok(());
    }
    let package = folder.join("redis-cell");
    fs::create_dir_all(package.join("src"))?;
    let manifest = format!(
        "[package]\nname = \"holder\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nredis-cell = \"={REDIS_CELL}\"\n\n[workspace]\n"
    );
    fs::write(package.join("Cargo.toml"), manifest)?;
    fs::write(package.join("src").join("lib.rs"), "")?;
    let mut build = cargo(folder);
    build.args(["build", "--release", "--package", "redis-cell", "--manifest-path"]);
    built(build.arg(package.join("Cargo.toml")))?;
    fs::copy(folder.join("build").join("release").join(LIBRARY), library)?;
    Ok(())
}

/// Returns a cargo command at low priority, so that it disturbs no other work on the machine.
fn cargo(folder: &Path) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "15", "timeout", BUILT_WITHIN_S]);
    command.arg(cargo::cargo(folder).get_program());
    command.env("CARGO_TARGET_DIR", folder.join("build")).current_dir(folder).stdout(Stdio::null());
    command
}

fn built(command: &mut Command) -> Result<()> {
    println!("building a server to compare with, once: {command:?}");
    cargo::run(command, "the server does not build")
}
