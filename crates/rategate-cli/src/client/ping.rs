//! `rategate ping`: checks that a service is alive. It needs no token.

use hyper::Method;

use super::wire::send;
use super::{PingArgs, print};
use crate::failure::Failure;

/// Sends the request, and prints that the service is alive.
pub(crate) fn run(args: &PingArgs) -> Result<u8, Failure> {
    let mut client = args.service.client()?;
    send(&mut client, &Method::GET, "/healthz", &[])?;
    print("alive\n")?;
    Ok(0)
}
