//! `rategate serve`: runs the service, from arguments to the end of the last connection.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::Args;
use rategate_server::config::settings::{self, LogFormat};
use rategate_server::config::{ConfigError, Layers, load_with, report};
use rategate_server::net;
use rategate_server::serve::{Listening, Running, Start, StartError, start};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Serve rate limits over the network
///
/// Redis' protocol (CL.THROTTLE, THROTTLE, RATEGATE.*) on 127.0.0.1:6380, HTTP on 127.0.0.1:8080
/// and Envoy's gRPC on 127.0.0.1:8081, all over the same limits. It prints its addresses, and
/// shuts down in order on SIGTERM or SIGINT: no new connections, all replies, then no
/// connections. A second signal ends it at once. SIGHUP makes it read its configuration again.
///
/// Each setting of the configuration is a variable of the environment too (server.token is
/// RATEGATE_SERVER_TOKEN), which takes precedence over the files; flags take precedence over
/// both. Without a token, only this machine may reach it. Where RUNTIME_ROOT or
/// RUNTIME_SUBDIRECTORY is set, it reads the rules of envoyproxy/ratelimit from there, and that
/// project's other variables. With CONFIG_TYPE=GRPC_XDS_SOTW, a control plane sends the rules.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Configuration: a file, or a folder of them (*.toml, or *.yaml in Envoy's format)
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,

    /// Addresses for Redis' protocol: ADDR:PORT, unix:PATH, several with commas, or "off"
    /// [default: 127.0.0.1:6380]
    #[arg(long, value_name = "ADDR")]
    pub(crate) resp: Option<String>,

    /// Addresses for HTTP [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,

    /// Addresses for Envoy's gRPC [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub(crate) grpc: Option<String>,

    /// Number of worker threads [default: one for each core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<String>,

    /// Maximum time for connections to end at a shutdown, as in 10s
    #[arg(long, value_name = "DUR")]
    pub(crate) drain: Option<String>,

    /// Accept requests from other machines without any authentication
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Format of the log, on stderr: text or json
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log: Option<String>,
}

/// Runs the service with its arguments until it is stopped.
pub(crate) fn run(args: &ServeArgs) -> Result<u8, Failure> {
    let (layers, theirs) = layers(args).map_err(Failure::Usage)?;
    serve(args.config.clone().or(theirs), layers)
}

/// Runs the service with these settings until it is stopped.
pub(crate) fn serve(path: Option<PathBuf>, layers: Layers) -> Result<u8, Failure> {
    let loaded = load_with(path.as_deref(), &layers).map_err(|error| refused(&error))?;
    let filter = filter(&loaded.settings.log).map_err(Failure::Usage)?;
    log(&loaded.settings.log, filter);
    if !loaded.warnings.is_empty() {
        tracing::warn!("the configuration has warnings:\n{}", report(&loaded.warnings));
    }
    let files = path.map(|path| (path, layers));
    let control_plane = loaded.settings.xds.as_ref().map(|xds| xds.server.to_string());
    let running = start(Start { loaded, files, signals: true }).map_err(failure)?;
    if let Err(error) = greet(&running, control_plane.as_deref()) {
        // The starter may have closed the pipe; clients are not affected.
        tracing::info!(%error, "cannot print the addresses to stdout");
    }
    running.wait();
    Ok(0)
}

/// Returns the settings of the environment, and the path of the rules in an environment of
/// envoyproxy/ratelimit.
pub(crate) fn environment() -> (Layers, Option<PathBuf>) {
    let mut layers = Layers::of_environment();
    let path = layers.add_envoy_env(|name| std::env::var(name).ok());
    (layers, path)
}

/// Returns the settings of the environment and the flags.
fn layers(args: &ServeArgs) -> Result<(Layers, Option<PathBuf>), String> {
    let (mut layers, path) = environment();
    let insecure = args.insecure.then(|| "true".to_owned());
    let flags = [
        ("server.resp", "--resp", &args.resp),
        ("server.http", "--http", &args.http),
        ("server.grpc", "--grpc", &args.grpc),
        ("server.threads", "--threads", &args.threads),
        ("server.drain", "--drain", &args.drain),
        ("server.insecure", "--insecure", &insecure),
        ("log.format", "--log", &args.log),
    ];
    for (key, flag, text) in flags {
        if let Some(text) = text {
            layers.flag(key, flag, text)?;
        }
    }
    Ok((layers, path))
}

fn refused(error: &ConfigError) -> Failure {
    Failure::Usage(format!("the configuration cannot be used:\n{}", error.report()))
}

/// Converts a failed start to a usage error, or to an error of the system.
fn failure(error: StartError) -> Failure {
    match error {
        StartError::Threads(error) => Failure::Io("cannot start its threads".to_owned(), error),
        other => Failure::Usage(other.to_string()),
    }
}

/// Returns the filter of the log.
pub(crate) fn filter(log: &settings::Log) -> Result<EnvFilter, String> {
    let invalid = |error| format!("log.filter {:?}: {error}", log.filter);
    EnvFilter::try_new(&log.filter).map_err(invalid)
}

fn log(log: &settings::Log, filter: EnvFilter) {
    let is_terminal = io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    let builder = builder.with_writer(io::stderr).with_ansi(is_terminal);
    // An error means that a subscriber is set already, which then receives the log.
    let _ = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// Prints the addresses and the rules for the operator.
fn greet(running: &Running, control_plane: Option<&str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let is = if running.is_ready() { "is ready" } else { "waits for its rules" };
    writeln!(out, "rategate {} {is}", env!("CARGO_PKG_VERSION"))?;
    for listener in running.listening() {
        let tls = if listener.tls { " (TLS)" } else { "" };
        writeln!(out, "  {:<5} {}{tls}", listener.protocol, listener.address)?;
    }
    let has_page =
        |listener: &&Listening| cfg!(feature = "dashboard") && listener.protocol == "http";
    if let Some(page) = running.listening().iter().find(has_page) {
        let scheme = if page.tls { "https" } else { "http" };
        if let net::Address::Tcp(address) = &page.address {
            writeln!(out, "  page  {scheme}://{address}/")?;
        }
    }
    if let Some(control_plane) = control_plane {
        writeln!(out, "  rules from the control plane at {control_plane}")?;
        return out.flush();
    }
    let rules = running.engine().rules();
    let rules = rules.iter().flat_map(|rules| &rules.rules);
    let names: Vec<&str> = rules.take(SHOWN.saturating_add(1)).map(|rule| &*rule.name).collect();
    match names.get(..SHOWN) {
        _ if names.is_empty() => {
            writeln!(out, "  rules none: limits come with the calls (--config names rules)")?;
        }
        None => writeln!(out, "  rules {}", names.join(", "))?,
        Some(first) => writeln!(out, "  rules {}, ...", first.join(", "))?,
    }
    out.flush()
}

/// The maximum number of rules named at the start.
const SHOWN: usize = 10;
