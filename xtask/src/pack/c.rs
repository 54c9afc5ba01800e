//! Archives with the header, the shared and the static library and a file for pkg-config.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Platform, Release};
use crate::c::{Installed, PACKAGE};
use crate::cargo;
use crate::node::copy;

/// Writes the archive of a platform, whose libraries are in the folder `built`.
pub(super) fn pack(at: &Release, platform: &Platform, built: &Path) -> Result<()> {
    let name = name(at, platform);
    let above = at.scratch("c-archive")?;
    let folder = above.join(&name);
    let mut make = Command::new("make");
    make.current_dir(at.root.join(PACKAGE)).args(["--silent", "install", "PREFIX="]);
    make.arg(format!("DESTDIR={}", folder.display())).arg(format!("BUILT={}", built.display()));
    // It works wherever the archive is unpacked.
    make.arg("FOUND=$${pcfiledir}/../..");
    cargo::run(&mut make, "`make install` of the package for C failed")?;
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&at.root.join(PACKAGE).join(file), &folder.join(file))?;
    }
    let packages = at.packages.join("c");
    std::fs::create_dir_all(&packages)?;
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--file"]);
    tar.arg(packages.join(format!("{name}.tar.gz"))).arg("--directory").arg(above).arg(&name);
    cargo::run(&mut tar, "tar failed")
}

/// Unpacks the archive, and compiles examples with what pkg-config says of it.
pub(super) fn try_archive(at: &Release, platform: &Platform) -> Result<()> {
    let name = name(at, platform);
    let folder = at.scratch("c")?;
    let usr = folder.join("usr");
    std::fs::create_dir_all(&usr)?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--directory"]).arg(&usr);
    tar.arg("--file").arg(at.packages.join("c").join(format!("{name}.tar.gz")));
    cargo::run(&mut tar, "tar failed")?;
    let package = at.root.join(PACKAGE);
    let installed = Installed::at(&package, folder);
    for example in ["try", "keyed"] {
        installed.start(&installed.compile_example(example)?)?;
    }
    installed.compile_test("limiter", "static", &[])?;
    installed.start("static")
}

fn name(at: &Release, platform: &Platform) -> String {
    format!("rategate-c-{}-{}", at.version, platform.target)
}
