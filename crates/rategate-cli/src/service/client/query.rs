//! `rategate check`, `why`, `charge`, `reset` and `ping`: requests about counters, with the
//! decision as an exit status.

use std::fmt::Write as _;

use hyper::Method;

use super::args::{ChargeArgs, CheckArgs, PingArgs, ResetArgs, WhyArgs};
use super::fetch;
use super::http::Client;
use super::wire::{CheckRequest, Checked, Item, Verb, check as send_check, send};
use crate::failure::Failure;
use crate::output::print;
use crate::service::top::{Row, printable};

/// The exit status of a denial.
pub(super) const DENIED: u8 = 1;

/// The minimum wait that is shown in days, too.
const DAY_NS: u64 = 86_400_000_000_000;

/// Checks that a service is alive. It needs no token.
pub(crate) fn ping(args: &PingArgs) -> Result<u8, Failure> {
    send(&mut args.service.client()?, &Method::GET, "/healthz", &[])?;
    print("alive\n")?;
    Ok(0)
}

/// Resets the counters of a key.
pub(crate) fn reset(args: &ResetArgs) -> Result<u8, Failure> {
    let request = CheckRequest::new(Verb::Reset, &args.rule, &args.keys, Some(1));
    send_check(&mut args.service.client()?, &request)?;
    print("reset\n")?;
    Ok(0)
}

/// Charges permits that have been used already.
pub(crate) fn charge(args: &ChargeArgs) -> Result<u8, Failure> {
    let (verb, permits) = (Verb::Charge, args.permits);
    let once = args.once.as_deref();
    let request = CheckRequest::new(verb, &args.rule, &args.keys, Some(permits));
    let request = CheckRequest { once, ..request.with_usage(&args.usage) };
    let (answer, checked) = send_check(&mut args.service.client()?, &request)?;
    if args.json {
        print(format!("{}\n", String::from_utf8_lossy(&answer.body).trim_end()))?;
        return Ok(0);
    }
    let default = Item::default();
    let item = checked.items.first().unwrap_or(&default);
    let charged = item.charged.unwrap_or(0);
    let mut text = format!("charged {charged}");
    // A limit of a rule with several may count something other than permits.
    let permits = if args.usage.usage.is_empty() { Some(permits) } else { item.cost };
    if let Some(permits) = permits.filter(|&it| item.dimension.is_none() && charged < it) {
        let _ = write!(text, " of {permits}");
    }
    write_left(&mut text, item);
    if item.debt > 0 {
        let _ = write!(text, ", the limit is exceeded by {}", item.debt);
    }
    if checked.repeated {
        text.push_str(", as before: the same command has counted already");
    }
    text.push('\n');
    print(&text)?;
    Ok(0)
}

/// Requests permits, prints one line, and returns the exit status.
pub(crate) fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let verb = if args.peek { Verb::Peek } else { Verb::Take };
    let request = CheckRequest::new(verb, &args.rule, &args.keys, Some(args.permits));
    let request = request.with_usage(&args.usage);
    let (answer, checked) = send_check(&mut args.service.client()?, &request)?;
    print(if args.json {
        format!("{}\n", String::from_utf8_lossy(&answer.body).trim_end())
    } else {
        sentence(&checked)
    })?;
    Ok(if checked.allowed { 0 } else { DENIED })
}

fn sentence(checked: &Checked) -> String {
    let mut text = String::from(if checked.allowed { "allowed" } else { "denied" });
    let default = Item::default();
    let item = checked.items.first().unwrap_or(&default);
    if item.shadow {
        let wait = wait(item);
        let _ = write!(text, ", because the rule is not enforced; else denied: {wait}");
    } else if !checked.allowed {
        let by = item.dimension.as_ref().map(|name| format!(" by {}", printable(name)));
        let _ = write!(text, "{}: {}", by.unwrap_or_default(), wait(item));
    }
    write_left(&mut text, item);
    if let Some(reset_after_ns) = item.reset_after_ns.filter(|&ns| ns > 0) {
        let _ = write!(text, ", fully recovered in {}", shown_ns(reset_after_ns));
    }
    text.push('\n');
    text
}

/// Queries the key in one rule, or in all that it fits, and prints a line for each.
pub(crate) fn why(args: &WhyArgs) -> Result<u8, Failure> {
    let mut client = args.service.client()?;
    let (mut text, mut status, mut consulted) = (String::new(), 0, 0_usize);
    let rules = rules(&mut client, args)?;
    let is_the_one = args.rule.is_some() && rules.len() == 1;
    for Row { name, given, .. } in rules {
        let answer = match peek(&mut client, &name, args) {
            // The rule is for other keys, and was not named.
            Err(Failure::RuleMismatch(_)) if !is_the_one => continue,
            answer => answer,
        };
        let (body, item) = answer?;
        consulted = consulted.saturating_add(1);
        if is_denied(&item) {
            status = DENIED;
        }
        if args.json {
            let _ = writeln!(text, "{}", body.trim_end());
        } else {
            let given = given.map(|given| format!(" ({})", printable(&given)));
            line(&mut text, &format!("{name}{}", given.unwrap_or_default()), &item);
        }
    }
    if consulted == 0 {
        let complaint = match args.keys.len() {
            0 => "every rule has a counter for each key: say which KEY".to_owned(),
            1 => "no rule is for one value like this; name one with --rule".to_owned(),
            many => format!("no rule is for {many} values like these; name one with --rule"),
        };
        return Err(Failure::Usage(complaint));
    }
    print(&text)?;
    Ok(status)
}

/// Returns the rules to query: all, or the one named, or else those with that name in Envoy's
/// format.
///
/// An unknown name is queried too: the service may not list the rule, and reports if it does not
/// exist.
fn rules(client: &mut Client, args: &WhyArgs) -> Result<Vec<Row>, Failure> {
    let all = fetch::rules(client)?;
    let Some(wanted) = &args.rule else { return Ok(all) };
    let is_called_so = |rule: &Row| rule.given.as_ref() == Some(wanted);
    let has_name = all.iter().any(|rule| rule.name == *wanted);
    if !has_name && all.iter().any(is_called_so) {
        return Ok(all.into_iter().filter(is_called_so).collect());
    }
    // The service lists some hundreds, but knows all.
    let given = all.into_iter().find(|rule| rule.name == *wanted).and_then(|rule| rule.given);
    Ok(vec![Row { name: wanted.clone(), given, ..Row::default() }])
}

/// Returns the decision that a request would receive now.
fn peek(client: &mut Client, rule: &str, args: &WhyArgs) -> Result<(String, Item), Failure> {
    let request = CheckRequest::new(Verb::Peek, rule, &args.keys, Some(1));
    let (answer, checked) = send_check(client, &request)?;
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    Ok((body, checked.items.into_iter().next().unwrap_or_default()))
}

fn is_denied(item: &Item) -> bool {
    matches!(item.verdict.as_str(), "denied" | "store_unavailable") && !item.allowed
}

fn line(text: &mut String, rule: &str, item: &Item) {
    let _ = match item.verdict.as_str() {
        "denied" if item.shadow => {
            write!(
                text,
                "{rule}: allowed, because the rule is not enforced; else denied, {}",
                wait(item)
            )
        }
        "denied" | "store_unavailable" => write!(text, "{rule}: denied; {}", wait(item)),
        "unlimited" => write!(text, "{rule}: allowed, unlimited"),
        _ => write!(text, "{rule}: free"),
    };
    write_left(text, item);
    text.push('\n');
}

pub(super) fn write_left(text: &mut String, item: &Item) {
    if let (Some(remaining), Some(limit)) = (item.remaining, item.limit) {
        let _ = write!(text, ", {remaining} of {limit} left");
    }
}

/// Returns how long a denied caller has to wait.
pub(super) fn wait(item: &Item) -> String {
    match (item.retry_after_ns, item.verdict.as_str()) {
        (_, "store_unavailable") => "the store of its counters is unavailable".to_owned(),
        (Some(ns), _) if ns >= DAY_NS => {
            let days = ns.div_euclid(DAY_NS);
            format!("retry after {} (more than {days} d)", shown_ns(ns))
        }
        (Some(ns), _) => format!("retry after {}", shown_ns(ns)),
        (None, _) if item.limit == Some(0) => {
            "waiting does not help: nothing is allowed".to_owned()
        }
        (None, _) => "waiting does not help: it is more than could ever pass at once".to_owned(),
    }
}

/// Formats a duration in the largest unit that leaves a few digits, rounded up, so that a caller
/// that waits for it waits long enough.
fn shown_ns(ns: u64) -> String {
    let (unit_ns, name) = match ns {
        0..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    // The text has three decimals of the unit.
    let thousandths = ns.saturating_mul(1_000).div_ceil(unit_ns);
    let (whole, part) = (thousandths.div_euclid(1_000), thousandths.rem_euclid(1_000));
    let decimals = format!("{part:03}");
    match decimals.trim_end_matches('0') {
        "" => format!("{whole} {name}"),
        decimals => format!("{whole}.{decimals} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_nothing_is_not_too_little() {
        let denied = |limit| Item { verdict: "denied".to_owned(), limit, ..Item::default() };
        assert_eq!(wait(&denied(Some(0))), "waiting does not help: nothing is allowed");
        assert!(wait(&denied(Some(5))).contains("could ever pass"));
    }

    #[test]
    fn times_are_rounded_up() {
        for (ns, text) in [
            (0, "0 us"),
            (1, "0.001 us"),
            (1_500, "1.5 us"),
            (250_000_000, "250 ms"),
            (999_999_999, "1000 ms"),
            (1_000_000_001, "1.001 s"),
            (86_400_000_000_000, "86400 s"),
        ] {
            assert_eq!(shown_ns(ns), text, "{ns}");
        }
    }
}
