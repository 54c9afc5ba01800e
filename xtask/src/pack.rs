//! The packages of a release: wheels and sources for Python, and packages of npm: one with the
//! sources for all platforms, and one with the compiled module for each.
//!
//! Each is written into `target/packages`, and tried as its users install it. What builds for
//! another system needs a compiler of Rust for it. zig links for every Linux, so that one machine
//! builds for all of them, against old versions of the C library.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xshell::{Cmd, cmd};

use crate::tools::Workspace;
use crate::{node, python};

/// The interpreter without a lock. The stable interface is not for it before 3.15, so that it has
/// wheels of its own.
const FREE_THREADED: &str = "python3.14t";

const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// A system that packages are built for: the name by which Rust knows it, the end of the name of
/// its package of npm, by which `native.cjs` finds it, and the compatibility of its wheel, unless
/// another platform's wheel is for it too.
struct Platform(&'static str, &'static str, Option<&'static str>);

/// Every platform. The recipe in `.github/workflows` builds for each.
const PLATFORMS: [Platform; 7] = [
    Platform("x86_64-unknown-linux-gnu", "linux-x64-gnu", Some("manylinux2014")),
    Platform("aarch64-unknown-linux-gnu", "linux-arm64-gnu", Some("manylinux2014")),
    Platform("x86_64-unknown-linux-musl", "linux-x64-musl", Some("musllinux_1_2")),
    Platform("aarch64-unknown-linux-musl", "linux-arm64-musl", Some("musllinux_1_2")),
    Platform("x86_64-apple-darwin", "darwin-x64", None),
    Platform("aarch64-apple-darwin", "darwin-arm64", Some("universal2")),
    Platform("x86_64-pc-windows-msvc", "win32-x64-msvc", Some("win_amd64")),
];

/// Writes the packages of a platform, by default of this one, and tries them; or tries those that
/// are there.
pub(crate) fn run(at: &Workspace, target: Option<&str>, try_only: bool) -> Result<()> {
    let here = cmd!(at, "rustc --print host-tuple").quiet().read()?;
    let wanted = target.unwrap_or(&here);
    let platform = PLATFORMS.iter().find(|platform| platform.0 == wanted);
    let platform = platform.with_context(|| {
        format!("no packages are for {wanted:?}, only for {}", PLATFORMS.map(|it| it.0).join(", "))
    })?;
    // What a tag publishes has its version.
    let tag = std::env::var("GITHUB_REF_NAME").ok();
    let tag = tag.filter(|_| std::env::var("GITHUB_REF_TYPE").is_ok_and(|kind| kind == "tag"));
    let version = version(at);
    ensure!(tag.is_none_or(|tag| tag == format!("v{version}")), "the tag is not v{version}");
    let packages = at.create_dir(at.target.join("packages"))?;
    if !try_only {
        wheels(at, platform, &packages)?;
        module(at, platform, &packages)?;
        sources(at, &packages)?;
    }
    if target.is_none() {
        try_python(at, &packages)?;
        try_node(at, platform, &packages)?;
    }
    Ok(())
}

/// Writes the wheel for all versions of Python from 3.10 on, and that of the free-threaded 3.14.
fn wheels(at: &Workspace, Platform(target, _, tag): &Platform, packages: &Path) -> Result<()> {
    let Some(tag) = *tag else { return Ok(()) };
    let maturin = at.pip("python3", &at.target.join("zig"), &["linkers"])?.join("maturin");
    let target = if tag == "universal2" { "universal2-apple-darwin" } else { target };
    let linux: &[&str] = if is_linux(target) { &["--zig", "--compatibility", tag] } else { &[] };
    let (manifest, build) = (format!("{}/Cargo.toml", python::FOLDER), &at.target);
    let out = packages.join("python");
    for interpreter in [&[][..], &["--interpreter", FREE_THREADED]] {
        let flags = ["--release", "--locked", "--target", target];
        let wheel = cmd!(at, "{maturin} build -m {manifest} --out {out} --target-dir {build}");
        with_zig(at, wheel.args(flags).args(linux).args(interpreter), target).run()?;
    }
    Ok(())
}

/// Writes what every platform has the same of.
fn sources(at: &Workspace, packages: &Path) -> Result<()> {
    let maturin = at.pip("python3", &at.target.join("zig"), &["linkers"])?.join("maturin");
    let (manifest, out) = (format!("{}/Cargo.toml", python::FOLDER), packages.join("python"));
    cmd!(at, "{maturin} sdist -m {manifest} --out {out}").run()?;
    let folder = at.emptied("packages-tried/npm-main")?;
    stage(at, &folder)?;
    npm_pack(at, &folder, packages)
}

/// Writes the package of npm with the compiled module of a platform.
fn module(at: &Workspace, Platform(target, npm, _): &Platform, packages: &Path) -> Result<()> {
    at.pip("python3", &at.target.join("zig"), &["linkers"])?;
    let build = if is_linux(target) { "zigbuild" } else { "build" };
    let exact = if target.ends_with("-gnu") { format!("{target}.2.17") } else { (*target).into() };
    let build =
        at.cargo(&format!("{build} --release --locked --package rategate-node --target {exact}"));
    with_zig(at, build, target).run()?;
    let library = match *target {
        target if target.contains("windows") => "rategate_node.dll",
        target if target.contains("apple") => "librategate_node.dylib",
        _ => "librategate_node.so",
    };
    let folder = at.emptied("packages-tried/npm-module")?;
    at.copy_file(
        at.target.join(target).join("release").join(library),
        folder.join("rategate.node"),
    )?;
    LICENCES.iter().try_for_each(|name| at.copy_file(name, folder.join(name)))?;
    let main: Value = serde_json::from_str(&at.read_file(manifest())?)?;
    let mut words = npm.split('-');
    let mut manifest = json!({
        "name": format!("@rategate/{npm}"),
        "version": version(at),
        "description": format!("The compiled module of rategate for {target}"),
        "license": main["license"],
        "repository": main["repository"],
        "engines": main["engines"],
        "os": [words.next()],
        "cpu": [words.next()],
        "main": "rategate.node",
        "files": ["rategate.node", LICENCES[0], LICENCES[1]],
    });
    if is_linux(target) {
        let library = if target.ends_with("-musl") { "musl" } else { "glibc" };
        manifest["libc"] = json!([library]);
    }
    at.write_file(folder.join("package.json"), format!("{manifest:#}\n"))?;
    npm_pack(at, &folder, packages)
}

/// Puts the files of the main package of npm into a folder, with the manifest that it is published
/// with. npm installs the module that fits as an optional dependency.
pub(crate) fn stage(at: &Workspace, folder: &Path) -> Result<()> {
    let source = at.root.join(node::FOLDER);
    let mut manifest: Value = serde_json::from_str(&at.read_file(manifest())?)?;
    let version = version(at);
    let modules =
        PLATFORMS.iter().map(|platform| (format!("@rategate/{}", platform.1), json!(version)));
    manifest["optionalDependencies"] = Value::Object(modules.collect());
    manifest["version"] = json!(version);
    let files = manifest["files"].as_array().context("`files` of package.json")?;
    for file in files.iter().filter_map(Value::as_str).chain(["README.md"]) {
        // The licences are those of the repository.
        let from = if LICENCES.contains(&file) { at.root.join(file) } else { source.join(file) };
        copy(at, &from, &folder.join(file))?;
    }
    Ok(at.write_file(folder.join("package.json"), format!("{manifest:#}\n"))?)
}

/// Installs the wheel that fits this machine, and runs tests with it.
fn try_python(at: &Workspace, packages: &Path) -> Result<()> {
    let folder = packages.join("python");
    let python = at.pip("python3", &at.emptied("packages-tried/python")?, &["pytest"])?;
    let python = python.join("python");
    let exact = format!("pyrategate=={}", version(at));
    let flags = ["--no-index", "--only-binary", ":all:", "--find-links"];
    cmd!(at, "{python} -m pip install --quiet {flags...} {folder} {exact}").run()?;
    let pytest = python::pytest(at, at.cmd(python));
    let examples = ["--doctest-glob=*.md", "../README.md", python::GUIDE];
    python::in_tests(at, &pytest.args(examples).arg("test_limiter.py"))
}

/// Installs both packages of npm from their files, and runs tests with them. Without the second,
/// the error names it.
fn try_node(at: &Workspace, Platform(_, npm, _): &Platform, packages: &Path) -> Result<()> {
    let folder = at.emptied("packages-tried/npm")?;
    let file = |name: &str| packages.join("npm").join(format!("{name}-{}.tgz", version(at)));
    let _folder = at.push_dir(&folder);
    at.write_file("package.json", "{ \"type\": \"module\" }")?;
    let install = |package: PathBuf| {
        let flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--offline", "--omit=optional"];
        cmd!(at, "npm install --silent {flags...} {package}").run()
    };
    install(file("rategate"))?;
    let load = "require('rategate')";
    let failed = cmd!(at, "node --eval {load}").ignore_status().read_stderr()?;
    let names = failed.contains(&format!("@rategate/{npm}"));
    ensure!(names, "without its module, rategate does not name it:\n{failed}");
    install(file(&format!("rategate-{npm}")))?;
    copy(at, &at.root.join(node::FOLDER).join("test"), Path::new("test"))?;
    Ok(cmd!(at, "node --expose-gc --test test/limiter.test.js").run()?)
}

fn npm_pack(at: &Workspace, folder: &Path, packages: &Path) -> Result<()> {
    let packages = at.create_dir(packages.join("npm"))?;
    let _folder = at.push_dir(folder);
    Ok(cmd!(at, "npm pack --silent --pack-destination {packages}").run()?)
}

/// Lets a command find zig.
fn with_zig<'a>(at: &Workspace, command: Cmd<'a>, target: &str) -> Cmd<'a> {
    if !is_linux(target) {
        return command;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let command = command.env("PATH", format!("{}:{path}", at.target.join("zig/bin").display()));
    // A module that a program loads uses the C library of that program.
    let is_musl = target.ends_with("-musl");
    if is_musl { command.env("RUSTFLAGS", "-C target-feature=-crt-static") } else { command }
}

fn is_linux(target: &str) -> bool {
    target.contains("-linux-")
}

fn manifest() -> PathBuf {
    Path::new(node::FOLDER).join("package.json")
}

/// Returns the version of all packages: that of the workspace.
fn version(at: &Workspace) -> String {
    let packages = at.metadata.workspace_packages();
    let library = packages.iter().find(|package| package.name.as_str() == "rategate");
    library.map(|package| package.version.to_string()).unwrap_or_default()
}

/// Copies a file, or a folder with all in it.
pub(crate) fn copy(at: &Workspace, from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        at.create_dir(to)?;
        for entry in at.read_dir(from)? {
            let name = entry.file_name().context("a file without a name")?;
            copy(at, &entry, &to.join(name))?;
        }
        return Ok(());
    }
    at.create_dir(to.parent().unwrap_or(to))?;
    Ok(at.copy_file(from, to)?)
}
