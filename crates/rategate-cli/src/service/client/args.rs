//! The arguments of the commands that query a service.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use rategate_core::span;

use super::endpoint::{DEFAULT, Endpoint};
use super::http::Client;
use crate::failure::Failure;

/// The maximum length of a token file, in bytes.
const MAX_TOKEN_BYTES: u64 = 4096;

/// The address of a service, and the token for it.
#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    /// HTTP address of the service: http://HOST:PORT or unix:PATH [default: RATEGATE_SERVER, or
    /// http://127.0.0.1:8080]
    #[arg(long, value_name = "PLACE")]
    server: Option<String>,

    /// The service's token, if it has one. It is visible to other users of this machine: prefer
    /// --token-file, or RATEGATE_TOKEN
    #[arg(long, value_name = "TOKEN")]
    token: Option<Token>,

    /// Read the token from the first line of FILE
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// Maximum time for a reply, as in 500ms
    #[arg(long, value_name = "DUR", default_value = "2s")]
    timeout: String,
}

/// A secret, which `Debug` does not show.
#[derive(Clone)]
struct Token(String);

/// The usage of a call, in place of permits
#[derive(Debug, Args)]
pub(super) struct UsageArgs {
    /// Number of one kind of units in place of permits, for a rule with weights or prices;
    /// repeatable
    #[arg(long, value_name = "UNIT=N", value_parser = unit, conflicts_with = "permits")]
    pub(super) usage: Vec<(String, u64)>,

    /// Model that was used, for prices by model
    #[arg(long, value_name = "NAME", requires = "usage")]
    pub(super) model: Option<String>,
}

/// Reads a number of permits. Negative ones are read as values, to be refused with what is right.
fn permits(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a whole number from 0 to {}", u64::MAX))
}

fn unit(text: &str) -> Result<(String, u64), String> {
    let read = text.split_once('=').and_then(|(unit, count)| {
        Some((unit.to_owned(), count.parse().ok()?)).filter(|(unit, _)| !unit.is_empty())
    });
    read.ok_or_else(|| "a unit and a whole number, as in output=45".to_owned())
}

/// Request permits from a service
///
/// Takes the permits if all of them are available, and none otherwise. KEY is the value of the
/// rule's entry: one for each entry that has no value of its own, in their order.
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct CheckArgs {
    /// The rule's name
    #[arg(value_name = "RULE")]
    pub(super) rule: String,

    /// The values of its entries, in their order
    #[arg(value_name = "KEY")]
    pub(super) keys: Vec<String>,

    /// Number of permits
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = permits,
          allow_negative_numbers = true)]
    pub(super) permits: u64,

    #[command(flatten)]
    pub(super) usage: UsageArgs,

    /// Read only: take nothing
    #[arg(long)]
    pub(super) peek: bool,

    /// Print the service's reply unchanged
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

/// Show why a key is denied, by which rule, and when it is free again
///
/// Reads the key's status and takes nothing. Without --rule, all rules are queried that have as
/// many values; without a key, those that have one counter for all.
#[derive(Debug, Args)]
#[command(after_help = WHY_EXAMPLES)]
pub(crate) struct WhyArgs {
    /// The key: a value for each entry of the rule that has none of its own
    #[arg(value_name = "KEY")]
    pub(super) keys: Vec<String>,

    /// Query this rule only, or those with this name in Envoy's format
    #[arg(long, value_name = "RULE")]
    pub(super) rule: Option<String>,

    /// Print the service's replies unchanged, one per line
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

/// Charge permits that have been used already
///
/// They count whether they fit or not. While the limit is exceeded, every call is denied.
#[derive(Debug, Args)]
#[command(after_help = CHARGE_EXAMPLES)]
pub(crate) struct ChargeArgs {
    /// The rule's name
    #[arg(value_name = "RULE")]
    pub(super) rule: String,

    /// The values of its entries, in their order
    #[arg(value_name = "KEY")]
    pub(super) keys: Vec<String>,

    /// Number of permits
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = permits,
          allow_negative_numbers = true)]
    pub(super) permits: u64,

    #[command(flatten)]
    pub(super) usage: UsageArgs,

    /// Id of 32 hexadecimal digits, under which the command counts once however often it runs
    #[arg(long, value_name = "ID")]
    pub(super) once: Option<String>,

    /// Print the service's reply unchanged
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

/// Hold an estimate until the true cost is known
///
/// Prints the reservation's id, for `rategate commit` and `rategate cancel`. It ends by itself
/// after its time, and what is committed later is charged whole.
#[derive(Debug, Args)]
#[command(after_help = RESERVE_EXAMPLES)]
pub(crate) struct ReserveArgs {
    /// The rule's name
    #[arg(value_name = "RULE")]
    pub(super) rule: String,

    /// The values of its entries, in their order
    #[arg(value_name = "KEY")]
    pub(super) keys: Vec<String>,

    /// Number of permits: more than the operation can use
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = permits,
          allow_negative_numbers = true)]
    pub(super) permits: u64,

    #[command(flatten)]
    pub(super) usage: UsageArgs,

    /// Time after which it ends by itself: longer than the operation can last [default: the rule's]
    #[arg(long, value_name = "TIME")]
    pub(super) ttl: Option<String>,

    /// Id of 32 hexadecimal digits, to repeat the command safely [default: a new one]
    #[arg(long, value_name = "ID")]
    pub(super) id: Option<String>,

    /// Print the service's reply unchanged
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

/// End a reservation with what was used
///
/// An excess comes back, and a shortfall is charged. The same command again changes nothing.
#[derive(Debug, Args)]
#[command(after_help = COMMIT_EXAMPLES)]
pub(crate) struct CommitArgs {
    #[command(flatten)]
    pub(super) reservation: CancelArgs,

    /// Number of permits that were used [default: as many as were held]
    #[arg(short = 'n', long, value_name = "N", value_parser = permits, allow_negative_numbers = true)]
    pub(super) permits: Option<u64>,

    #[command(flatten)]
    pub(super) usage: UsageArgs,
}

/// End a reservation of which nothing was used
#[derive(Debug, Args)]
#[command(after_help = COMMIT_EXAMPLES)]
pub(crate) struct CancelArgs {
    /// The reservation's id
    #[arg(value_name = "ID")]
    pub(super) id: String,

    /// The rule's name
    #[arg(value_name = "RULE")]
    pub(super) rule: String,

    /// The values of its entries, in their order
    #[arg(value_name = "KEY")]
    pub(super) keys: Vec<String>,

    /// Print the service's reply unchanged
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

/// Reset the counters of a key
#[derive(Debug, Args)]
#[command(after_help = RESET_EXAMPLES)]
pub(crate) struct ResetArgs {
    /// The key: a value for each entry of the rule that has none of its own
    #[arg(value_name = "KEY")]
    pub(super) keys: Vec<String>,

    /// The rule
    #[arg(long, value_name = "RULE")]
    pub(super) rule: String,

    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

/// Check that a service is alive
///
/// No token is needed, and nothing is counted: for tools that start and stop services.
#[derive(Debug, Args)]
#[command(after_help = PING_EXAMPLES)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

impl ServiceArgs {
    /// Creates a client of the service. It connects at the first request.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let invalid =
            |name, text: &str, why: &dyn fmt::Display| Err(Failure::argument(name, text, why));
        let (name, text) = match (&self.server, std::env::var("RATEGATE_SERVER")) {
            (Some(text), _) => ("--server", text.clone()),
            (None, Ok(text)) if !text.is_empty() => ("RATEGATE_SERVER", text),
            _ => ("--server", DEFAULT.to_owned()),
        };
        let endpoint: Endpoint = match text.parse() {
            Ok(endpoint) => endpoint,
            Err(why) => return invalid(name, &text, &why),
        };
        let timeout = match span::parse(&self.timeout) {
            Ok(0) => return invalid("--timeout", &self.timeout, &"it must be above zero"),
            Ok(ns) => Duration::from_nanos(ns),
            Err(why) => return invalid("--timeout", &self.timeout, &why),
        };
        let token = self.shown()?;
        Client::new(endpoint, token, timeout)
            .map_err(|error| Failure::Unanswered(format!("cannot start: {error}")))
    }

    fn shown(&self) -> Result<Option<String>, Failure> {
        if let Some(Token(token)) = &self.token {
            return Ok(Some(token.clone()));
        }
        let Some(path) = &self.token_file else {
            return Ok(std::env::var("RATEGATE_TOKEN").ok().filter(|token| !token.is_empty()));
        };
        let refuse = |why: &dyn fmt::Display| {
            Failure::Usage(format!("--token-file {}: {why}", path.display()))
        };
        let file = std::fs::File::open(path).map_err(|error| refuse(&error))?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::io::Read::take(file, MAX_TOKEN_BYTES), &mut text)
            .map_err(|error| refuse(&error))?;
        match text.lines().next().map(str::trim).filter(|token| !token.is_empty()) {
            Some(token) => Ok(Some(token.to_owned())),
            None => Err(refuse(&"its first line is empty")),
        }
    }
}

impl FromStr for Token {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

const RESERVE_EXAMPLES: &str = "\
Examples:
  id=$(rategate reserve tokens alice -n 800 --ttl 30s) || exit
  tokens=$(./ask-the-model)
  rategate commit $id tokens alice -n $tokens

Exit status:
  0    held; the id is printed
  1    denied; how long to wait is printed
  2    an argument is wrong, or no reply came";

const COMMIT_EXAMPLES: &str = "\
Examples:
  rategate commit $id tokens alice -n 650
  rategate cancel $id tokens alice

Exit status:
  0    committed or cancelled, late or before too
  1    no reservation has this id, or it was ended the other way
  2    an argument is wrong, or no reply came";

const CHECK_EXAMPLES: &str = "\
Examples:
  rategate check per-user alice                      take one permit
  rategate check per-user alice -n 5 --peek          test if five would pass
  rategate check jobs && ./job                       only if the limit allows it

Exit status:
  0    allowed
  1    denied; how long to wait is printed
  2    an argument is wrong, or no reply came";

const CHARGE_EXAMPLES: &str = "\
Examples:
  rategate charge tokens alice -n 1700               what a reply has cost
  rategate charge tokens alice -n 1700 --once $ID    the same, safe to repeat

Exit status:
  0    charged
  2    an argument is wrong, the limit takes no charges, or no reply came";

const WHY_EXAMPLES: &str = "\
Examples:
  rategate why alice                                 each rule for one value
  rategate why alice --rule per-user
  rategate why free alice --rule plan-and-user       a rule with two values

Exit status:
  0    the key is free in all rules queried
  1    at least one of them denies it
  2    an argument is wrong, or no reply came";

const PING_EXAMPLES: &str = "\
Examples:
  rategate ping --timeout 1s
  rategate ping --server unix:/run/rategate/http.sock

Exit status:
  0    it replies
  2    an argument is wrong, or no reply came";

const RESET_EXAMPLES: &str = "\
Examples:
  rategate reset alice --rule per-user --token-file token

Exit status:
  0    the counters are reset
  2    an argument is wrong, the token is missing or wrong, or no reply came";
