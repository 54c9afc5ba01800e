//! The demo of the packages for other languages: a line for each promise, beside what was seen.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{cargo, node, python, servers};

const FOLDER: &str = "xtask/demo";

/// Installs the optimized packages, and runs the demo with them.
pub(crate) fn run(root: &Path, target: &Path) -> Result<()> {
    servers::redis()?;
    let (python, interpreters) = python::installed(root, target)?;
    let (modules, runtimes) = node::installed(root, target)?;
    let folder = root.join(FOLDER);
    std::fs::copy(folder.join("demo.mjs"), modules.join("demo.mjs"))?;
    let mut demo = Command::new(python);
    demo.arg("-B").arg(folder.join("demo.py"));
    demo.arg("--pythons").args(interpreters);
    demo.arg("--nodes").args(runtimes);
    demo.arg("--modules").arg(modules);
    cargo::run(&mut demo, "a promise is not kept")
}
