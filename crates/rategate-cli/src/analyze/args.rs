//! The command-line arguments of `rategate analyze`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use rategate_analyze::Dialect;

use crate::args::Format;

/// Replay access logs through a limit, and keep a deny list
///
/// Reads access logs, requests a permit for each caller at each line, and reports what the limit
/// would have allowed and denied, to which callers, and which limit would have denied almost none
/// of the well-behaved. Logs are in the common or combined format, or JSON objects, one per line.
/// They may be plain or gzip, which is detected from the content.
///
/// Time is the log's: a line that is older than the newest before it counts as at the newest, and
/// lines of one second are all at that second. The wall clock decides nothing.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AnalyzeArgs {
    /// Limit of each caller: 100/min, 1000/1h, or bytes of responses as in 10MB/min
    ///
    /// A whole number, and a unit (s min h d) or a duration (10s) after the slash.
    #[arg(value_name = "LIMIT")]
    pub(super) limit: String,

    /// Logs in the order of time; "-" or none is stdin; with --follow they are read side by side
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,

    /// Meaning of LIMIT
    #[arg(long, value_enum, default_value_t = PolicyKind::Log)]
    pub(super) policy: PolicyKind,

    /// Up to N at once after a silence, for --policy gcra [default: the number of LIMIT]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) burst: Option<String>,

    /// Additional limit: at most N in any window of PERIOD, as in 5/1s; repeatable
    #[arg(long, value_name = "N/PERIOD", allow_hyphen_values = true)]
    pub(super) at_most: Vec<String>,

    /// Part of a line that identifies the caller: addr, user, agent, path, path=2, json=FIELD
    ///
    /// path=2 is the first two segments of the path; path is all of it, without the query. FIELD
    /// is a field at the top of a JSON object, or, as in user.id, one within others.
    #[arg(long, value_name = "KEY", default_value = "addr")]
    pub(super) key: String,

    /// Number of leading bits by which IPv4 addresses are grouped into one caller
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 32,
        value_parser = clap::value_parser!(u8).range(..=32)
    )]
    pub(super) group_v4: u8,

    /// Number of leading bits by which IPv6 addresses are grouped into one caller
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 64,
        value_parser = clap::value_parser!(u8).range(..=128)
    )]
    pub(super) group_v6: u8,

    /// Count only lines with one of these statuses, as in 200,404,5xx
    #[arg(long, value_name = "LIST")]
    pub(super) status: Option<String>,

    /// Format of the lines; auto detects it for each
    #[arg(long, value_enum, default_value_t = LogFormat::Auto)]
    pub(super) log: LogFormat,

    /// Maximum number of callers tracked by name
    #[arg(
        long,
        value_name = "N",
        default_value_t = 262_144,
        value_parser = clap::value_parser!(u32).range(1..=16_777_216)
    )]
    pub(super) keys: u32,

    /// Number of callers to list
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(..=4_096)
    )]
    pub(super) top: u32,

    /// Share of callers not counted as well-behaved, for the suggestion: those with the fullest
    /// windows
    #[arg(long, value_name = "SHARE", default_value = "1%")]
    pub(super) set_aside: String,

    /// Maximum share of the others that the suggested limit may deny, exclusive
    #[arg(long, value_name = "SHARE", default_value = "0.1%")]
    pub(super) spare: String,

    /// Format of the report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,

    /// Write the report to FILE instead of stdout
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,

    /// Continue as the FILEs grow, over their rotation, until interrupted
    #[arg(long)]
    pub(super) follow: bool,

    /// Keep a deny list of callers over the limit in a file
    ///
    /// The file has a line for each caller: the second of Unix time at which the denial ends, a
    /// tab, and the caller. All but printable ASCII, and the backslash, are written as \xHH. The
    /// first line names the format. The file is replaced as a whole, never written in place, and
    /// read at the start, so that a list survives a restart. Ended entries are left out: by the
    /// wall clock with --follow, else by the end of the log.
    #[arg(long, value_name = "FILE")]
    pub(super) gate: Option<PathBuf>,

    /// Time a denial keeps a caller on the deny list [default: the period of LIMIT]
    #[arg(long, value_name = "DUR")]
    pub(super) hold: Option<String>,

    /// List a caller this long before it would be over LIMIT by its recent rate: DUR, or auto
    ///
    /// A caller is listed once it has no more permits left than it is expected to take within
    /// DUR. That is as much as it took in the last DUR, plus the increase over the DUR before. So
    /// the listing comes too late for callers that take all of LIMIT within twice DUR. auto is
    /// the delay measured with --follow. Callers that come close to LIMIT without ever being over
    /// it are listed too; the report says how many.
    #[arg(long, value_name = "DUR")]
    pub(super) ahead: Option<String>,

    /// Report the effect of a deny list that lists a caller this long after a denial
    ///
    /// Only without --follow, which measures the delay itself. [default with --gate: 200ms]
    #[arg(long, value_name = "DUR")]
    pub(super) delay: Option<String>,
}

/// The meaning of a LIMIT of N in M.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PolicyKind {
    /// At most N in any window of M
    Log,
    /// At most N in each window of a grid of M from 1970 on
    Fixed,
    /// A token bucket that N flow into in M
    Gcra,
}

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// JSON if it begins with a brace, else the common format
    Auto,
    /// The common or the combined format
    Common,
    /// A JSON object
    Json,
}

impl From<LogFormat> for Dialect {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Auto => Self::Auto,
            LogFormat::Common => Self::Common,
            LogFormat::Json => Self::Json,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  rategate analyze 100/min access.log                what it would have done
  rategate analyze 1000/1h --at-most 50/1s access.log.2.gz access.log.1 access.log
  rategate analyze 10MB/min --status 2xx --format json < access.log
  rategate analyze 100/min --format svg --out night.svg access.log
  rategate analyze 600/min --key user --follow --gate deny.list --hold 10min access.log
  rategate analyze 600/min --hold 10min --ahead 2s --delay 2s access.log
                                                     what a list would have done

Time in JSON:
  A string in RFC 3339 or as in the common format, or a number: seconds of Unix time, with decimals
  if need be, or from 10^11 on whole milliseconds, from 10^14 on microseconds, from 10^17 on
  nanoseconds. It is the first of these fields that is there: time, timestamp, @timestamp, ts,
  time_iso8601, time_local, msec, date.

Exit status:
  0    the report is complete, whatever it says; or its reader closed the pipe
  1    an error of input or output
  2    an argument is wrong
  129  hung up while following (SIGHUP), after the report
  130  interrupted while following (SIGINT), likewise
  143  terminated while following (SIGTERM), likewise";
