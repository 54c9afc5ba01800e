//! The command-line arguments; the modules that use them check their values.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::analyze::AnalyzeArgs;
use crate::failure::Failure;
use crate::pace;

/// Pace real input, simulate limits, replay access logs, benchmark limiters, or query a service
#[derive(Debug, Parser)]
#[command(name = "rategate", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Pace(PaceArgs),
    Simulate(SimulateArgs),
    Analyze(AnalyzeArgs),
    Bench(BenchArgs),
    #[cfg(feature = "serve")]
    #[command(flatten)]
    Service(crate::service::Command),
    /// Print a completion script for a shell
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
    /// Print the manual page, or write one page for each subcommand
    Man {
        /// Write `rategate.1`, `rategate-pace.1` and so on into this folder
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// Copy stdin to stdout, or run a command for each line, at a rate or by a shape
///
/// Without a command, stdin is copied to stdout: a permit for each line, or for each byte if RATE
/// counts bytes. The first permit comes at once, and each later one at its exact instant after
/// the first, so delays do not add up.
///
/// With a command, it runs once for each input line, an empty one included: the line replaces {}
/// in any argument, though not in the command's name, and comes as the last argument if {} is
/// missing.
///
/// stdout carries data only. If stderr is a terminal and stdout is not, a meter there shows how
/// many permits have passed, the rate since the first, how far the last one was behind its
/// schedule, and the last seconds.
#[derive(Debug, Args)]
#[command(after_help = PACE_EXAMPLES)]
pub(crate) struct PaceArgs {
    /// Rate: lines as in 5/s, 0.5/s, 100/min, 1000/10s, or bytes as in 500kB/s, 1.5MiB/s
    ///
    /// A period is a unit (ns us ms s min h d) or a duration (10s). Bytes come in B kB MB GB TB
    /// (thousands) and KiB MiB GiB TiB (times 1024). Decimals are taken exactly. "unlimited" sets
    /// no limit, for use with --at-most, which may count bytes then.
    #[arg(value_name = "RATE", required_unless_present = "shape")]
    pub(crate) rate: Option<String>,

    /// Rate over time, in place of RATE: a ramp, a wave, a recorded trace and more
    ///
    /// constant:100/s                one rate
    /// ramp:0/s>100/s@10s            an even change, over 10 s
    /// stages:0/s>9/s@5s,9/s@1min    ramps to each rate, one after the other
    /// sawtooth:0/s>100/s@10s        a ramp, again and again
    /// sine:100/s,50/s,60s           mean, amplitude, cycle; ",1/4" after it is the phase in turns
    /// A@10s, A x3                   the first 10 s of A; A three times
    /// A then B, A + B, (A)          one after the other; both at once; a group
    /// poisson(A),seed=7             at random around A, the same for each seed
    /// trace:FILE                    the instants of FILE; ",speed=2" after it is twice as fast
    ///
    /// The load begins with the first line, and ends pacing where it has an end. Each line has its
    /// instant, to the nanosecond. What is late passes at once, in order; its wait counts from its
    /// instant. FILE is an access log of any format that `rategate analyze` reads, or has a number
    /// of seconds or a date on each line, in order; it may be gzip. Its first instant is the start.
    #[arg(long, value_name = "SHAPE", verbatim_doc_comment)]
    pub(crate) shape: Option<String>,

    /// Keep part J of M of the instants of --shape, as in 0/5; J counts from 0
    ///
    /// Of the shape's instants it keeps J, J+M, J+2M and so on. Start one shape on M machines at
    /// the same time, with 0/M on the first, 1/M on the second and so on: together they have each
    /// instant once. Each reads an input of its own.
    #[arg(long, value_name = "J/M", allow_hyphen_values = true)]
    pub(crate) split: Option<String>,

    /// Let up to N through at once after a silence (a token bucket, --policy gcra)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) burst: Option<String>,

    /// Additional limit: at most N in any window of PERIOD, as in 5/1s; repeatable
    #[arg(long, value_name = "N/PERIOD", allow_hyphen_values = true)]
    pub(crate) at_most: Vec<String>,

    /// Maximum lost time made up for at full speed, as in 250ms, or "unbounded" [default: 1s]
    ///
    /// Bytes go in chunks worth 10 ms, so for them it is at least that long.
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub(crate) catch_up: Option<String>,

    /// Delay policy: average, strict, burst=1.5, damped=0.25, gcra, pacer, warm-up=30s [default:
    /// average]
    ///
    /// average: make up for lost time at once, up to --catch-up. strict: drop it; no two permits
    /// come closer than the rate says. burst=R: make up for it at R times the rate. damped=D: as
    /// average, but each late permit drops the part D of the gap it finds (rounded down to 1/2,
    /// 1/4, 1/8 ...). gcra: a token bucket of --burst permits (1 if not given, or 10 ms worth of
    /// bytes). pacer: as average, in batches with sleeps of at least 10 ms. warm-up=DUR: from a
    /// third of the rate to all of it in DUR, at the start and after a pause as long; lost time is
    /// dropped.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, verbatim_doc_comment)]
    pub(crate) policy: Option<String>,

    /// Begin at a tenth of the rate, and reach it in DUR, as in 30s
    ///
    /// The factor on the rate rises in a straight line from the first permit on. Windows of
    /// --at-most hold from the start. With --policy gcra another ramp begins after a pause of DUR,
    /// once the burst has come back; the other policies are schedules, and have one ramp.
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub(crate) slow_start: Option<String>,

    /// Run up to N commands at a time, or FLOOR..CEILING as their times allow [default: 1]
    ///
    /// With 1..50, up to 20 run at first: then more while each takes as long as ever, and fewer
    /// once they only wait for each other. A command that exits with 75 (a temporary failure) or
    /// 124 (from timeout) was too much, and one that fails in another way says nothing.
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) jobs: Option<String>,

    /// Write one JSON record for each permit granted to FILE
    ///
    /// Each line holds scheduled_ns, start_ns, wait_ns and permits: the scheduled time, the
    /// promised start, the wait, and the number of permits. Instants count from the first permit,
    /// those of a shape from the first line. With --jobs FLOOR..CEILING, max_jobs is how many
    /// commands might run. FILE must not be what stdin or stdout is, nor the trace of --shape.
    #[arg(long, value_name = "FILE")]
    pub(crate) log_json: Option<PathBuf>,

    /// Run this for each line, which replaces {} in any argument, or else comes last
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Run a scenario file on a virtual clock
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// The scenario, in TOML
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    /// Write the output to FILE instead of stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// Measure the longest calls of limiters on this machine, or test real starts
///
/// Takes a second, and with --truth some two minutes. On a busy machine the figures move. With
/// --json nothing is printed before the end.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Test with a stopwatch if any window of real starts holds more than its limit: callers that
    /// wait in a loop, threads and tasks, from 1 to 256
    #[arg(long)]
    pub(crate) truth: bool,
    /// Minimum time for each line of the stopwatch test, of which there are some 80. Lines whose
    /// limit has windows of a second take two seconds in any case, so the test takes at least
    /// half a minute
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1s",
        requires = "truth",
        value_parser = lap
    )]
    pub(crate) lap: Duration,
    /// Print an array with an object for each line of the table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses the time for each line of the stopwatch test: from a millisecond to a minute.
fn lap(text: &str) -> Result<Duration, String> {
    let lap_ns = rategate_core::span::parse(text).map_err(|error| error.to_string())?;
    let lap = Duration::from_nanos(lap_ns);
    if (Duration::from_millis(1)..=Duration::from_secs(60)).contains(&lap) {
        Ok(lap)
    } else {
        Err("it must be from 1ms to 1min".to_owned())
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Svg,
}

/// Returns the error of a rate below zero, which looks like an option to clap.
pub(crate) fn negative_rate(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let looks_negative = |text: &String| {
        text.starts_with(unknown.as_str())
            && text.contains('/')
            && text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_numeric()))
    };
    // Arguments after "--" belong to the command.
    let ours = std::env::args_os().take_while(|arg| arg != "--");
    let given = ours.filter_map(|arg| arg.into_string().ok()).find(looks_negative)?;
    pace::rate(&given).err()
}

const EXAMPLES: &str = "\
Examples:
  seq 20 | rategate pace 5/s                         five lines a second
  rategate pace 2MiB/s < disk.img > copy.img         two mebibytes a second
  rategate pace 10/s -j 4 -- curl -sO {} < urls      ten starts a second, four at a time
  rategate analyze 100/min access.log                what a limit would have done
  rategate bench                                     how fast decisions are here
  rategate check per-user alice && ./job             only if a service allows it
  rategate top                                       what a service lets through
  rategate config check rategate.toml                errors in a configuration
  rategate completions bash > rategate.bash          for bash to complete arguments
  rategate man | man -l -                            the manual page

`rategate pace --help` explains rates, policies and exit statuses.";

const PACE_EXAMPLES: &str = "\
Examples:
  seq 20 | rategate pace 5/s                         one at once, then one each 200 ms
  rategate pace 100/min --burst 10 < requests        ten at once after a silence
  rategate pace 2/s --burst 5 --at-most 5/1s -- echo {} < words
                                                     and never more than 5 in any second
  rategate pace unlimited --at-most 1000/1h < urls   as fast as a window allows
  tail -f log | rategate pace 10/s --catch-up 0s     unused time is not made up for
  rategate pace 1.5MiB/s --log-json grants.json < in > out
  rategate pace 10/s -j 4 -- curl -so {}.html https://example.org/{} < names
  rategate pace unlimited -j 1..50 -- convert {} {}.png < pictures
                                                     as many at once as the machine bears
  rategate pace --shape \"ramp:0/s>50/s@1min then constant:50/s\" -j 9 -- curl -s {} < urls
                                                     up to 50 a second, then steady
  rategate pace --shape trace:access.log.gz,speed=10 -j 9 -- curl -s {} < urls
                                                     as the log has it, ten times as fast
  rategate pace --shape \"constant:1000/s@1h\" --split 0/5 -j 99 -- curl -s {} < urls
                                                     the first of five machines

Exit status:
  0    all input has passed, the shape has ended, or the reader of the output has left
  1    an error of input or output
  2    an argument is wrong, or a line of its trace
  123  a command exited with 1 to 254
  124  a command exited with 255: no more were started
  125  a command was killed by a signal: no more were started
  126  a command cannot be run, or a line is too long for it: no more were started
  127  a command was not found: no more were started
  129  hung up (SIGHUP); what was running has ended. A second signal ends at once
  130  interrupted (SIGINT), likewise
  143  terminated (SIGTERM), likewise";
