//! The arguments of `rategate analyze` as people type them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::args::Format;

/// Ask access logs what a limit would have done, and keep a deny list
///
/// Reads access logs, asks a limit for each caller at each line, and reports what it would have
/// allowed and denied, to whom, and which limit would have spared the well-behaved. Logs are in the
/// common or combined format, or JSON objects, a line each; plain or gzip, which the content tells.
///
/// Time is the log's: a line that is older than the newest before it counts as at the newest, and
/// lines of one second are all at that second. The wall clock decides nothing.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AnalyzeArgs {
    /// How much each caller may: 100/min, 1000/1h, or bytes of responses as in 10MB/min
    ///
    /// A whole number, and a unit (s min h d) or a duration (10s) after the slash.
    #[arg(value_name = "LIMIT")]
    pub(super) limit: String,

    /// The logs, in the order of time; "-" or none is stdin; with --follow they are read side by side
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,

    /// How LIMIT is meant
    #[arg(long, value_enum, default_value_t = Manner::Log)]
    pub(super) policy: Manner,

    /// Up to N at once after a silence, for --policy gcra [default: the number of LIMIT]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) burst: Option<String>,

    /// In addition, never more than N in any window of PERIOD, as in 5/1s; repeatable
    #[arg(long, value_name = "N/PERIOD", allow_hyphen_values = true)]
    pub(super) at_most: Vec<String>,

    /// Who counts as one caller: addr, user, agent, path, path=2, json=FIELD
    ///
    /// path=2 is the first two segments of the path; path is all of it, without the query. FIELD is a
    /// field at the top of a JSON object, or, as in user.id, one within others.
    #[arg(long, value_name = "KEY", default_value = "addr")]
    pub(super) key: String,

    /// Take IPv4 addresses that agree in so many bits for one caller
    #[arg(long, value_name = "BITS", default_value_t = 32, value_parser = clap::value_parser!(u8).range(..=32))]
    pub(super) group_v4: u8,

    /// Take IPv6 addresses that agree in so many bits for one caller
    #[arg(long, value_name = "BITS", default_value_t = 64, value_parser = clap::value_parser!(u8).range(..=128))]
    pub(super) group_v6: u8,

    /// Count only lines with one of these statuses, as in 200,404,5xx
    #[arg(long, value_name = "LIST")]
    pub(super) status: Option<String>,

    /// How the lines are written; auto looks at each
    #[arg(long, value_enum, default_value_t = Dialect::Auto)]
    pub(super) log: Dialect,

    /// Remember at most N callers by name
    #[arg(long, value_name = "N", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(super) keys: u32,

    /// How many callers to list
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=4_096))]
    pub(super) top: u32,

    /// Callers who are not well-behaved, for the suggestion: those with the fullest windows
    #[arg(long, value_name = "SHARE", default_value = "1%")]
    pub(super) set_aside: String,

    /// The suggested limit denies fewer than this share of the others
    #[arg(long, value_name = "SHARE", default_value = "0.1%")]
    pub(super) spare: String,

    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,

    /// Write it there instead of to stdout
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,

    /// Go on as the FILEs grow, over their rotation, until interrupted
    #[arg(long)]
    pub(super) follow: bool,

    /// Keep a deny list of callers over the limit in a file or a store
    ///
    /// A line for each: the second of Unix time from which the caller is welcome again, a tab, and
    /// the caller, with all but printable ASCII, and the backslash, as \xHH. The first line names the
    /// format. The file is replaced as a whole, never written in place, and read at the start, so that a
    /// list survives a restart. Whose time has come is left out: by the wall clock with --follow, else
    /// by the end of the log.
    ///
    /// redis://[[USER]:PASSWORD@]HOST[:PORT][/PREFIX[/LIST]], or unix:PATH of a socket, is a list in a store, Redis 7 or
    /// Valkey: PREFIX is how its keys begin (rategate), LIST its name (denied). Up to 65536 callers; several
    /// can publish to one list, and each entry ends by itself, by the store's clock. A store that is gone stops
    /// nothing: that is said once, and all is published again once it is back; but a run without --follow
    /// whose list did not get there exits with 1. Arguments can be seen by others on the machine: a password
    /// that the address does not have is taken from REDISCLI_AUTH. A file of such a name is ./unix:PATH.
    #[arg(long, value_name = "FILE|URL")]
    pub(super) gate: Option<PathBuf>,

    /// How long a denial keeps a caller on the deny list [default: the period of LIMIT]
    #[arg(long, value_name = "DUR")]
    pub(super) hold: Option<String>,

    /// List a caller so long before it would be over LIMIT by its recent rate: DUR, or auto
    ///
    /// A caller is listed once no more is left to it than it is expected to take within DUR: as much as it
    /// took in the last DUR, and as much more as that was more than in the DUR before. So it comes too late for
    /// who takes all of LIMIT within twice DUR. auto is the delay measured with --follow. Callers who come close to LIMIT without ever being over it are listed too; the report
    /// says how many.
    #[arg(long, value_name = "DUR")]
    pub(super) ahead: Option<String>,

    /// Report what a deny list would have done that has a caller so long after a denial
    ///
    /// Without --follow, which measures the delay itself. [default with --gate: 200ms]
    #[arg(long, value_name = "DUR")]
    pub(super) delay: Option<String>,
}

/// What a LIMIT of N in M means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Manner {
    /// At most N in any window of M
    Log,
    /// At most N in each window of a grid of M from 1970 on
    Fixed,
    /// A token bucket that N flow into in M
    Gcra,
}

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Dialect {
    /// JSON if it begins with a brace, else the common format
    Auto,
    /// The common or the combined format
    Common,
    /// A JSON object
    Json,
}

const EXAMPLES: &str = "\
Examples:
  rategate analyze 100/min access.log                what would it have done?
  rategate analyze 1000/1h --at-most 50/1s access.log.2.gz access.log.1 access.log
  rategate analyze 10MB/min --status 2xx --format json < access.log
  rategate analyze 100/min --format svg --out night.svg access.log
  rategate analyze 600/min --key user --follow --gate deny.list --hold 10min access.log
  rategate analyze 600/min --follow --gate redis://db:6379/shop access.log     for machines that share no file
  rategate analyze 600/min --hold 10min --ahead 2s --delay 2s access.log      what would a list have done?

Time in JSON:
  A string in RFC 3339 or as in the common format, or a number: seconds of Unix time, with decimals
  if need be, or from 10^11 on whole milliseconds, from 10^14 on microseconds, from 10^17 on
  nanoseconds. It is the first of these fields that is there: time, timestamp, @timestamp, ts,
  time_iso8601, time_local, msec, date.

Exit status:
  0    the report is complete, whatever it says; or whoever read it has left
  1    an error of input or output, or a store that did not get its list
  2    an argument is wrong
  129  hung up while following (SIGHUP), after the report
  130  interrupted while following (SIGINT), likewise
  143  terminated while following (SIGTERM), likewise";
