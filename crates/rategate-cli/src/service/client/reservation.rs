//! `rategate reserve`, `commit` and `cancel`: an estimate under an id, until its cost is known.

use std::fmt::Write as _;

use super::args::{CancelArgs, CommitArgs, ReserveArgs, ServiceArgs, UsageArgs};
use super::query::{DENIED, wait, write_left};
use super::wire::{CheckRequest, Checked, Item, Verb, check};
use crate::failure::Failure;
use crate::output::print;

/// Holds an estimate, and prints its id.
pub(crate) fn reserve(args: &ReserveArgs) -> Result<u8, Failure> {
    let request = CheckRequest::new(Verb::Reserve, &args.rule, &args.keys, Some(args.permits));
    let request = CheckRequest {
        id: args.id.as_deref(),
        ttl: args.ttl.as_deref(),
        ..request.with_usage(&args.usage)
    };
    ask(&args.service, args.json, &request, |item, checked| {
        if checked.allowed {
            return checked.reservation.id.clone();
        }
        let mut text = match item.verdict.as_str() {
            "denied" => format!("denied: {}", wait(item)),
            "store_unavailable" => {
                String::from("denied: the store did not reply; run the same again, with --id")
            }
            // The id has been used, and its reservation has ended.
            ended => format!("denied: the reservation has ended before: {ended}"),
        };
        write_left(&mut text, item);
        text
    })
}

/// Ends a reservation with what was used.
pub(crate) fn commit(args: &CommitArgs) -> Result<u8, Failure> {
    end(Verb::Commit, &args.reservation, args.permits, Some(&args.usage))
}

/// Ends a reservation of which nothing was used.
pub(crate) fn cancel(args: &CancelArgs) -> Result<u8, Failure> {
    end(Verb::Cancel, args, None, None)
}

fn end(
    verb: Verb,
    args: &CancelArgs,
    permits: Option<u64>,
    usage: Option<&UsageArgs>,
) -> Result<u8, Failure> {
    let request = CheckRequest {
        id: Some(&args.id),
        ..CheckRequest::new(verb, &args.rule, &args.keys, permits)
    };
    let request = match usage {
        Some(usage) => request.with_usage(usage),
        None => request,
    };
    ask(&args.service, args.json, &request, settled)
}

/// Sends the request, prints a line, and returns the exit status.
fn ask(
    service: &ServiceArgs,
    as_json: bool,
    request: &CheckRequest<'_>,
    line: impl FnOnce(&Item, &Checked) -> String,
) -> Result<u8, Failure> {
    let (answer, checked) = check(&mut service.client()?, request)?;
    let default = Item::default();
    let item = checked.items.first().unwrap_or(&default);
    print(if as_json {
        format!("{}\n", String::from_utf8_lossy(&answer.body).trim_end())
    } else {
        line(item, &checked) + "\n"
    })?;
    Ok(if checked.allowed { 0 } else { DENIED })
}

fn settled(item: &Item, checked: &Checked) -> String {
    let mut text = match item.verdict.as_str() {
        "unknown" => "unknown: no reservation has this id".to_owned(),
        "late" => "late: it had ended before".to_owned(),
        verdict => verdict.to_owned(),
    };
    if let Some(refunded) = item.refunded.filter(|&permits| permits > 0) {
        let _ = write!(text, ", {refunded} came back");
    }
    if let Some(charged) = item.charged.filter(|&permits| permits > 0) {
        let _ = write!(text, ", {charged} charged");
    }
    if checked.repeated {
        text.push_str(" before, and nothing now");
    }
    write_left(&mut text, item);
    if item.debt > 0 {
        let _ = write!(text, ", the limit is exceeded by {}", item.debt);
    }
    text
}
