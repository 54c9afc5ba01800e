//! Installs packages, each into its own folder below the target folder. A file
//! named after the packages marks a folder as complete, so that the check takes no time and a new
//! version is installed anew.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::cargo;

/// Installs packages of PyPI, in a virtual environment.
pub(crate) fn python(folder: &Path, packages: &[&str]) -> Result<()> {
    python_of(Path::new("python3"), folder, packages)
}

/// Installs packages of PyPI, in a virtual environment of this interpreter.
pub(crate) fn python_of(python: &Path, folder: &Path, packages: &[&str]) -> Result<()> {
    once(folder, packages, |folder| {
        let mut python = Command::new(python);
        cargo::run(python.args(["-m", "venv"]).arg(folder), "`python3 -m venv` failed")?;
        let mut pip = Command::new(program(folder, "pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages);
        cargo::run(&mut pip, "`pip install` failed")
    })
}

/// Returns the path of a program of a virtual environment.
pub(crate) fn program(environment: &Path, name: &str) -> PathBuf {
    programs(environment).join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// Returns the folder of the programs of a virtual environment.
pub(crate) fn programs(environment: &Path) -> PathBuf {
    environment.join(if cfg!(windows) { "Scripts" } else { "bin" })
}

/// Installs packages of npm. None of them runs a script of its own while it is installed.
pub(crate) fn node(folder: &Path, packages: &[&str]) -> Result<()> {
    once(folder, packages, |folder| {
        std::fs::create_dir_all(folder).context("create the folder")?;
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--silent",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefix",
        ]);
        npm.arg(folder).args(packages).stdout(Stdio::null()).stderr(Stdio::null());
        cargo::run(&mut npm, "`npm install` failed")
    })
}

/// Installs a program that cargo runs, and returns its path.
pub(crate) fn crates(folder: &Path, name: &str, version: &str) -> Result<PathBuf> {
    once(folder, &[&format!("{name}@{version}")], |folder| {
        std::fs::create_dir_all(folder).context("create the folder")?;
        let mut install = cargo::cargo(folder);
        install.args(["install", "--quiet", "--locked", name, "--version", version]);
        cargo::run(install.arg("--root").arg(folder), "`cargo install` failed")
    })?;
    Ok(folder.join("bin").join(name))
}

fn once(folder: &Path, packages: &[&str], install: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    // A folder may have several of these. The names of some have a folder, and a list of many is
    // too long for the name of a file.
    let first = packages.first().copied().unwrap_or("nothing");
    let (marker, all) = (folder.join(first.replace('/', "+")), packages.join(" "));
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == all) {
        return Ok(());
    }
    println!("{}, for tests, is missing: installing it", packages.join(" and "));
    install(folder).with_context(|| packages.join(" and "))?;
    std::fs::write(&marker, all).context("mark it as installed")
}
