//! The packages of a release: wheels and sources for Python, and packages of npm.
//!
//! Each is written into `target/packages`, and tried as its users install it. What builds for
//! another system needs a compiler of Rust for it. zig links for every Linux, so that one machine
//! builds for all of them, against old versions of the C library.

mod complete;
pub(crate) mod node;
mod python;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo;
use crate::servers::packages;

/// The tools that link for Linux. maturin, too, finds zig in this environment.
const LINKERS: &[&str] = &["cargo-zigbuild==0.24.0", "ziglang==0.17.0"];

/// A system that packages are built for.
#[derive(Debug)]
pub(crate) struct Platform {
    /// The name by which Rust knows it.
    pub(crate) target: &'static str,
    /// The end of the name of its package of npm, by which `native.cjs` finds it.
    npm: &'static str,
    /// The tag of its wheel, unless another platform's wheel is for it too.
    wheel: Option<&'static str>,
}

/// Every platform. The recipe in `.github/workflows` builds for each.
pub(crate) const PLATFORMS: [Platform; 7] = [
    Platform::new("x86_64-unknown-linux-gnu", "linux-x64-gnu", Some("manylinux2014_x86_64")),
    Platform::new("aarch64-unknown-linux-gnu", "linux-arm64-gnu", Some("manylinux2014_aarch64")),
    Platform::new("x86_64-unknown-linux-musl", "linux-x64-musl", Some("musllinux_1_2_x86_64")),
    Platform::new("aarch64-unknown-linux-musl", "linux-arm64-musl", Some("musllinux_1_2_aarch64")),
    Platform::new("x86_64-apple-darwin", "darwin-x64", None),
    Platform::new("aarch64-apple-darwin", "darwin-arm64", Some("universal2")),
    Platform::new("x86_64-pc-windows-msvc", "win32-x64-msvc", Some("win_amd64")),
];

impl Platform {
    const fn new(target: &'static str, npm: &'static str, wheel: Option<&'static str>) -> Self {
        Self { target, npm, wheel }
    }

    fn find(target: &str) -> Result<&'static Self> {
        let known = || PLATFORMS.each_ref().map(|platform| platform.target).join(", ");
        let found = PLATFORMS.iter().find(|platform| platform.target == target);
        found.with_context(|| format!("no packages are for {target:?}, only for {}", known()))
    }

    fn is_linux(&self) -> bool {
        self.target.contains("-linux-")
    }
}

/// Writes packages, or tries those that are there.
///
/// Without a word, it writes those of this machine and those for all machines, and tries them.
pub(crate) fn run(root: &Path, target: &Path, word: Option<&str>) -> Result<()> {
    let at = Release::new(root, target)?;
    match word {
        Some("--sources") => at.sources(),
        Some("--try") => at.try_installed(),
        Some("--complete") => complete::check(&at),
        Some(target) => at.build(Platform::find(target)?),
        None => {
            at.build(Platform::find(&host()?)?)?;
            at.sources()?;
            at.try_installed()
        }
    }
}

/// The folders of a release, and its version.
#[derive(Debug)]
struct Release {
    root: PathBuf,
    target: PathBuf,
    /// The finished packages: those of each language in a folder.
    packages: PathBuf,
    version: String,
}

impl Release {
    fn new(root: &Path, target: &Path) -> Result<Self> {
        let version = version(root)?;
        let packages = target.join("packages");
        Ok(Self { root: root.to_owned(), target: target.to_owned(), packages, version })
    }

    /// Writes the packages of one platform.
    fn build(&self, platform: &Platform) -> Result<()> {
        python::wheels(self, platform)?;
        let built = self.library(platform)?;
        node::pack_module(self, platform, &built)
    }

    /// Writes what every platform has the same of, and installs from the sources.
    fn sources(&self) -> Result<()> {
        node::pack_main(self)?;
        python::sources(self)
    }

    /// Installs what is there for this machine, and uses it.
    fn try_installed(&self) -> Result<()> {
        let platform = Platform::find(&host()?)?;
        python::try_wheel(self)?;
        node::try_packages(self, platform)
    }

    /// Builds the library for Node. Returns the folder that has it.
    fn library(&self, platform: &Platform) -> Result<PathBuf> {
        let mut build = cargo::cargo(&self.root);
        build.arg(if platform.is_linux() { "zigbuild" } else { "build" });
        build.args(["--release", "--locked", "--package", "rategate-node"]);
        let mut target = platform.target.to_owned();
        if platform.is_linux() {
            self.with_zig(&mut build, platform)?;
            if target.ends_with("-gnu") {
                target.push_str(".2.17");
            }
        }
        build.arg("--target-dir").arg(&self.target).args(["--target", &target]);
        cargo::run(&mut build, &format!("the library for {target} does not build"))?;
        Ok(self.target.join(platform.target).join("release"))
    }

    /// Lets a command of cargo or maturin find zig.
    fn with_zig(&self, command: &mut Command, platform: &Platform) -> Result<()> {
        let linkers = self.target.join("zig");
        packages::python(&linkers, LINKERS)?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders =
            std::iter::once(packages::programs(&linkers)).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(folders).context("the variable PATH")?);
        if platform.target.ends_with("-musl") {
            // A module that a program loads uses the C library of that program.
            command.env("RUSTFLAGS", "-C target-feature=-crt-static");
        }
        Ok(())
    }

    /// Returns an empty folder for what is tried.
    fn scratch(&self, name: &str) -> Result<PathBuf> {
        let folder = self.target.join("packages-tried").join(name);
        emptied(&folder)?;
        Ok(folder)
    }
}

/// Makes a folder, and removes what an earlier run left in it.
fn emptied(folder: &Path) -> Result<()> {
    let make = || {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)
    };
    make().with_context(|| format!("make the folder {}", folder.display()))
}

/// Returns the version of all packages: that of the workspace.
pub(crate) fn version(root: &Path) -> Result<String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
    let manifest: toml::Table = manifest.parse().context("Cargo.toml")?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    Ok(version.context("Cargo.toml has no version of the workspace")?.to_owned())
}

/// Returns the name by which Rust knows this machine.
fn host() -> Result<String> {
    let mut rustc = Command::new("rustc");
    let printed = rustc.args(["--print", "host-tuple"]).output().context("start rustc")?;
    Ok(String::from_utf8(printed.stdout).context("the output of rustc")?.trim().to_owned())
}

/// Returns the paths of a folder, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = || std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
    let listed: std::io::Result<Vec<PathBuf>> = list();
    let mut paths = listed.with_context(|| format!("list {}", folder.display()))?;
    paths.sort();
    Ok(paths)
}
