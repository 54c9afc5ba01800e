//! The commands that query a service: `check`, `why`, `charge`, `reserve`, `commit`, `cancel`,
//! `reset`, `ping`, and the data of `top`.

mod args;
mod endpoint;
pub(crate) mod fetch;
mod http;
mod query;
mod reservation;
mod wire;

pub(crate) use args::{
    CancelArgs, ChargeArgs, CheckArgs, CommitArgs, PingArgs, ReserveArgs, ResetArgs, ServiceArgs,
    WhyArgs,
};
pub(crate) use http::{Client, NoReplyReason};
pub(crate) use query::{charge, check, ping, reset, why};
pub(crate) use reservation::{cancel, commit, reserve};
