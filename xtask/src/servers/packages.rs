//! Installs packages of other languages, each into its own folder below the target folder. A file
//! named after the packages marks a folder as complete, so that the check takes no time and a new
//! version is installed anew.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Installs packages of PyPI, in a virtual environment.
pub(crate) fn python(folder: &Path, packages: &[&str]) -> Result<()> {
    once(folder, packages, |folder| {
        let status = Command::new("python3").args(["-m", "venv"]).arg(folder).status();
        ensure!(status.context("start python3")?.success(), "`python3 -m venv` failed");
        let mut pip = Command::new(folder.join("bin").join("pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages);
        ensure!(pip.status().context("start pip")?.success(), "`pip install` failed");
        Ok(())
    })
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
        ensure!(npm.status().context("start npm")?.success(), "`npm install` failed");
        Ok(())
    })
}

fn once(folder: &Path, packages: &[&str], install: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let marker = folder.join(packages.join(" "));
    if marker.exists() {
        return Ok(());
    }
    println!("{}, for tests, is missing: installing it", packages.join(" and "));
    install(folder).with_context(|| packages.join(" and "))?;
    std::fs::write(&marker, "").context("mark it as installed")
}
