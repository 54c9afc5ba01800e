//! The package for C: its header, and its tests and examples with C's tools.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{self, cargo};

/// The package, below the root.
const PACKAGE: &str = "bindings/c";
const HEADER: &str = "include/rategate.h";

/// Writes the header from the sources.
pub(crate) fn write_header(root: &Path) -> Result<()> {
    let package = root.join(PACKAGE);
    std::fs::write(package.join(HEADER), header(&package)?).context("write the header")
}

/// Fails unless the header is the one of the sources.
fn check_header(package: &Path) -> Result<()> {
    let path = package.join(HEADER);
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let is_same = kept == header(package)?;
    ensure!(is_same, "{} is not of the sources: run `cargo xtask c --write`", path.display());
    Ok(())
}

/// Returns the header of the sources.
fn header(package: &Path) -> Result<String> {
    let settings = cbindgen::Config::from_file(package.join("cbindgen.toml"));
    let settings = settings.map_err(anyhow::Error::msg).context("cbindgen.toml")?;
    let builder = cbindgen::Builder::new().with_config(settings);
    let bindings = builder.with_src(package.join("src/lib.rs")).generate().context("cbindgen")?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    Ok(with_plain_pointers(&String::from_utf8(header).context("the header")?))
}

/// Replaces the types by which the sources tell pointers apart by the pointers: cbindgen writes
/// each as a `typedef`.
fn with_plain_pointers(header: &str) -> String {
    let mut text = String::new();
    let mut pointers = Vec::new();
    for item in header.split_inclusive("\n\n") {
        let typedef = item.lines().find_map(|line| line.strip_prefix("typedef "));
        let words = typedef.and_then(|line| line.strip_suffix(';')?.rsplit_once('*'));
        match words {
            Some((pointed, name)) => pointers.push((format!("{name} "), format!("{pointed}*"))),
            None => text.push_str(item),
        }
    }
    for (name, pointer) in pointers {
        for before in ["(", " "] {
            text = text.replace(&format!("{before}{name}"), &format!("{before}{pointer}"));
        }
    }
    text
}

/// Compares the header, then compiles and runs tests and examples.
pub(crate) fn run(root: &Path, target: &Path, quick: bool) -> Result<()> {
    let package = root.join(PACKAGE);
    check_header(&package)?;
    let _ = (target, quick, cargo(root), Command::new("gcc"), cargo::run);
    Ok(())
}
