//! `rategate ping`: whether a service lives. It needs no token.

use hyper::Method;

use super::wire::ask;
use super::{PingArgs, print};
use crate::failure::Failure;

/// Asks, and says that somebody is there.
pub(crate) fn run(args: &PingArgs) -> Result<u8, Failure> {
    let mut client = args.service.client()?;
    ask(&mut client, &Method::GET, "/healthz", &[])?;
    print("alive\n")?;
    Ok(0)
}
