//! `rategate check`: requests permits, and returns the decision as an exit status.

use std::fmt::Write as _;

use super::wire::{CheckRequest, Checked, Item, Verb, check};
use super::{CheckArgs, print, shown_ns};
use crate::failure::Failure;

/// The exit status of a denial.
const DENIED: u8 = 1;

/// Sends the request, prints one line, and returns the exit status.
pub(crate) fn run(args: &CheckArgs) -> Result<u8, Failure> {
    let mut client = args.service.client()?;
    let verb = if args.peek { Verb::Peek } else { Verb::Take };
    let request = CheckRequest { verb, rule: &args.rule, key: &args.keys, permits: args.permits };
    let (answer, checked) = check(&mut client, &request)?;
    let status = if checked.allowed { 0 } else { DENIED };
    let text = if args.json {
        format!("{}\n", String::from_utf8_lossy(&answer.body).trim_end())
    } else {
        sentence(&checked)
    };
    print(&text)?;
    Ok(status)
}

fn sentence(checked: &Checked) -> String {
    let mut text = String::from(if checked.allowed { "allowed" } else { "denied" });
    let default = Item::default();
    let item = checked.items.first().unwrap_or(&default);
    if item.shadow {
        let wait = super::why::wait(item);
        let _ = write!(text, ", because the rule is not enforced; else denied: {wait}");
    } else if !checked.allowed {
        let _ = write!(text, ": {}", super::why::wait(item));
    }
    if let (Some(remaining), Some(limit)) = (item.remaining, item.limit) {
        let _ = write!(text, ", {remaining} of {limit} left");
    }
    if let Some(reset_after_ns) = item.reset_after_ns.filter(|&ns| ns > 0) {
        let _ = write!(text, ", all back in {}", shown_ns(reset_after_ns));
    }
    text.push('\n');
    text
}
