//! `rategate reset`: resets the counters of a key.

use super::wire::{CheckRequest, Verb, check};
use super::{ResetArgs, print};
use crate::failure::Failure;

/// Sends the request, and prints that it was done.
pub(crate) fn run(args: &ResetArgs) -> Result<u8, Failure> {
    let mut client = args.service.client()?;
    let request = CheckRequest { verb: Verb::Reset, rule: &args.rule, key: &args.keys, permits: 1 };
    check(&mut client, &request)?;
    print("reset\n")?;
    Ok(0)
}
