//! Wheels for Python, and the sources that pip builds where there is no wheel.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Platform, Release};
use crate::cargo;
use crate::python::{BUILDER, FOLDER, GUIDE};
use crate::servers::packages;

/// The interpreter without a lock. The stable interface is not for it before 3.15, so that it has
/// wheels of its own.
const FREE_THREADED: &str = "python3.14t";

/// Writes the wheel for all versions of Python from 3.10 on, and that of the free-threaded 3.14.
pub(super) fn wheels(at: &Release, platform: &Platform) -> Result<()> {
    let Some(tag) = platform.wheel else { return Ok(()) };
    let target = if tag == "universal2" { "universal2-apple-darwin" } else { platform.target };
    for interpreter in [&[][..], &["--interpreter", FREE_THREADED]] {
        let mut maturin = maturin(at, "build")?;
        maturin.args(["--release", "--locked", "--target", target]);
        maturin.arg("--target-dir").arg(&at.target).args(interpreter);
        if platform.is_linux() {
            at.with_zig(&mut maturin, platform)?;
            let oldest = tag.rsplit_once("_x86_64").or_else(|| tag.rsplit_once("_aarch64"));
            maturin.args(["--zig", "--compatibility", oldest.context("a tag of Linux")?.0]);
        }
        cargo::run(&mut maturin, &format!("maturin builds no wheel for {target}"))?;
    }
    Ok(())
}

/// Writes the sources, and installs from them as pip does: cargo builds them, in a folder of its
/// own.
pub(super) fn sources(at: &Release) -> Result<()> {
    cargo::run(&mut maturin(at, "sdist")?, "maturin writes no sources")?;
    let sources = at.packages.join("python").join(format!("pyrategate-{}.tar.gz", at.version));
    let python = environment(&at.scratch("python-sources")?)?;
    let mut pip = pip(&python);
    // pip names the library's folder by chance: what was built before is found in a fixed one.
    pip.env("CARGO_TARGET_DIR", at.target.join("sdist")).arg(&sources);
    cargo::run(&mut pip, "pip installs nothing from the sources")?;
    examples(at, &python)
}

/// Installs the wheel that fits this machine, and runs tests with it.
pub(super) fn try_wheel(at: &Release) -> Result<()> {
    let folder = at.packages.join("python");
    let python = environment(&at.scratch("python")?)?;
    let mut pip = pip(&python);
    pip.args(["--no-index", "--only-binary", ":all:", "--find-links"]).arg(&folder);
    cargo::run(pip.arg(format!("pyrategate=={}", at.version)), "no wheel fits this machine")?;
    examples(at, &python)
}

/// Runs the tests of limiters, and the examples of the README and the guide, of what is
/// installed.
fn examples(at: &Release, python: &Path) -> Result<()> {
    let mut pytest = Command::new(python);
    // Not in the folder of the sources, which would be imported.
    pytest.current_dir(at.root.join(FOLDER).join("tests"));
    pytest.args(["-B", "-m", "pytest", "--quiet", "-p", "no:cacheprovider"]);
    pytest.args(["--doctest-glob=*.md", "../README.md", GUIDE, "test_limiter.py"]);
    cargo::run(&mut pytest, "the installed package for Python fails")?;
    let mut version = Command::new(python);
    version.args(["-c", "import pyrategate; print(pyrategate.__version__)"]);
    let printed = version.output().context("start Python")?.stdout;
    let printed = String::from_utf8_lossy(&printed).trim().to_owned();
    ensure!(printed == at.version, "pyrategate says {printed}, not {}", at.version);
    Ok(())
}

/// Returns a command of maturin that writes into the folder of finished packages.
fn maturin(at: &Release, command: &str) -> Result<Command> {
    let builder = at.target.join("python").join("builder");
    packages::python(&builder, BUILDER)?;
    let mut maturin = Command::new(packages::program(&builder, "maturin"));
    maturin.current_dir(at.root.join(FOLDER)).args([command, "--out"]);
    maturin.arg(at.packages.join("python"));
    Ok(maturin)
}

/// Makes an environment that has pytest alone. Returns its Python.
fn environment(folder: &Path) -> Result<PathBuf> {
    packages::python(folder, &["pytest==9.2.0"])?;
    Ok(packages::program(folder, "python"))
}

fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip
}
