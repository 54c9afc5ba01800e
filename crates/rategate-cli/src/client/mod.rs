//! The commands that query a service: `check`, `why`, `charge`, `reset`, `ping`, and the data of
//! `top`.

mod args;
mod endpoint;
pub(crate) mod fetch;
mod http;
mod query;
mod wire;

pub(crate) use args::{ChargeArgs, CheckArgs, PingArgs, ResetArgs, ServiceArgs, WhyArgs};
pub(crate) use http::{Client, NoReplyReason};
pub(crate) use query::{charge, check, ping, reset, why};
