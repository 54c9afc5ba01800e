//! Checks `packaging/` and the workflows with linters for such files.

use anyhow::{Result, ensure};
use xshell::cmd;

use crate::tools::{Workspace, succeeds};

/// The upper bound on systemd's own score of a service's exposure, from 0 to 100.
const MAX_EXPOSURE: &str = "20";

/// Checks every file of `packaging/`, and the workflows.
pub(crate) fn run(at: &Workspace) -> Result<()> {
    let linters = at.pip("python3", &at.target.join("linters"), &["linters"])?;
    let hadolint = linters.join("hadolint");
    cmd!(at, "{hadolint} --failure-threshold info packaging/docker/Dockerfile").run()?;
    let mut manifests = at.read_dir("packaging/kubernetes")?;
    // This file lists the others and is not a resource of a cluster.
    manifests.retain(|path| !path.ends_with("kustomization.yaml"));
    let validate = linters.join("kubernetes-validate");
    cmd!(at, "{validate} --strict --quiet {manifests...}").run()?;
    let zizmor = linters.join("zizmor");
    cmd!(at, "{zizmor} --offline --min-severity medium .github").run()?;
    systemd(at)
}

/// Verifies the unit with systemd, with a program that exists everywhere in place of ours.
fn systemd(at: &Workspace) -> Result<()> {
    if !succeeds(cmd!(at, "systemd-analyze --version")) {
        println!("systemd-analyze is missing, so nothing verified the unit");
        return Ok(());
    }
    let unit = at.read_file("packaging/systemd/rategate.service")?;
    let copy = at.emptied("packaging")?.join("rategate.service");
    at.write_file(&copy, unit.replace("/usr/bin/rategate", "/bin/true"))?;
    // It prints what it would ignore, and succeeds.
    let complaints = cmd!(at, "systemd-analyze verify --man=no {copy}").read_stderr()?;
    ensure!(!complaints.contains("rategate.service"), "systemd-analyze verify:\n{complaints}");
    let exposure = cmd!(at, "systemd-analyze security --offline=true --threshold {MAX_EXPOSURE}");
    Ok(exposure.arg(copy).ignore_stdout().run()?)
}
