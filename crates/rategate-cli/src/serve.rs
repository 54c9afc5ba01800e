//! `rategate serve`: the service, from arguments to the end of the last connection.

use std::io::{self, IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rategate_server::config::Settings;
use rategate_server::config::settings::{Address, Listener, Secret};
use rategate_server::rule::RuleSet;
use rategate_server::serve::{Running, Start, StartError, start};

use crate::failure::Failure;

/// Answer rate limit questions over the network
///
/// Redis' protocol (CL.THROTTLE, THROTTLE, RATEGATE.*) on 127.0.0.1:6380, HTTP on 127.0.0.1:8080 and Envoy's gRPC on
/// 127.0.0.1:8081, all over the same limits. It prints where it listens, and ends in order on SIGTERM or SIGINT: no new
/// connections, all answers, then no connections. A second signal ends it at once.
///
/// Without a token, only this machine may reach it. The token is taken from the environment, RATEGATE_TOKEN, so that it is in
/// no list of processes.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to speak Redis' protocol: ADDR:PORT, unix:PATH, or "off"; repeatable [default: 127.0.0.1:6380]
    #[arg(long, value_name = "ADDR")]
    pub(crate) resp: Vec<String>,

    /// Where to speak HTTP; repeatable [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Vec<String>,

    /// Where to speak Envoy's gRPC; repeatable [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub(crate) grpc: Vec<String>,

    /// How many threads work [default: one for each core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,

    /// How long connections may take to end when the service is told to, in seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) drain: Option<u64>,

    /// Let other machines ask, though nothing says who they are
    #[arg(long)]
    pub(crate) insecure: bool,

    /// How to write the log, on stderr [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log: Option<LogFormat>,
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// A JSON object a line
    Json,
}

/// Where the token is.
const TOKEN: &str = "RATEGATE_TOKEN";

/// Runs the service until it is told to end.
pub(crate) fn run(args: &ServeArgs) -> Result<u8, Failure> {
    let settings = settings(args)?;
    log(args.log.unwrap_or(LogFormat::Text));
    let rules = RuleSet::default();
    let running = start(Start { settings, rules, signals: true, reload: None }).map_err(failure)?;
    greet(&running).map_err(Failure::of_output)?;
    running.wait();
    Ok(0)
}

fn settings(args: &ServeArgs) -> Result<Settings, Failure> {
    let mut settings = Settings::default();
    let server = &mut settings.server;
    let named = [("--resp", &args.resp), ("--http", &args.http), ("--grpc", &args.grpc)];
    let places = [&mut server.resp, &mut server.http, &mut server.grpc];
    for ((name, texts), place) in named.into_iter().zip(places) {
        if !texts.is_empty() {
            *place = listeners(name, texts)?;
        }
    }
    if args.threads.is_some() {
        server.threads = args.threads;
    }
    if let Some(seconds) = args.drain {
        server.drain = Duration::from_secs(seconds);
    }
    server.insecure |= args.insecure;
    if let Some(token) = std::env::var_os(TOKEN) {
        let token = token.into_string().ok().filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| Failure::Usage(format!("{TOKEN} is empty, or no text")))?;
        server.token = Some(Secret::new(token));
        // Whoever is not on this machine has to show it for everything.
        for listener in server.resp.iter_mut().chain(&mut server.http).chain(&mut server.grpc) {
            listener.auth |= listener.address.is_public();
        }
    }
    Ok(settings)
}

fn listeners(name: &str, texts: &[String]) -> Result<Vec<Listener>, Failure> {
    if texts.iter().any(|text| text == "off") {
        return match texts {
            [_] => Ok(Vec::new()),
            _ => Err(Failure::argument(name, "off", "stands alone")),
        };
    }
    let address = |text: &String| match text.strip_prefix("unix:") {
        Some(path) if !path.is_empty() => Ok(Address::Unix(PathBuf::from(path))),
        _ => text.parse().map(Address::Tcp).map_err(|_| {
            Failure::argument(
                name,
                text,
                "no address: 127.0.0.1:6380, [::1]:6380, unix:/run/rategate.sock, off",
            )
        }),
    };
    texts.iter().map(|text| address(text).map(Listener::plain)).collect()
}

/// What stands in the way of a start is either asked for wrongly, or the world's.
fn failure(error: StartError) -> Failure {
    match error {
        StartError::Threads(error) => Failure::Io("cannot start its threads".to_owned(), error),
        other => Failure::Usage(other.to_string()),
    }
}

fn log(format: LogFormat) {
    let is_terminal = io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(is_terminal);
    // Set already: then somebody else wants the log.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// Where it listens and what it does, for whoever started it.
fn greet(running: &Running) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "rategate {} is ready", env!("CARGO_PKG_VERSION"))?;
    for place in running.listening() {
        let tls = if place.tls { " (TLS)" } else { "" };
        writeln!(out, "  {:<5} {}{tls}", place.protocol, place.address)?;
    }
    let rules = running.engine().rules().map_or(0, |rules| rules.rules.len());
    writeln!(out, "  rules {rules}")?;
    out.flush()
}
