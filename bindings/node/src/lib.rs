//! The package of rategate for Node.
//!
//! JavaScript has the classes that users see: `src` here has what they are made of, over
//! `rategate-ffi`.
//!
//! * `raw`: functions for the verbs that are called often, and all of the unsafe code;
//! * `limiter`, `keyed`, `grant`, `hold`, `clock`: a class for each; their methods cost 400 ns;
//! * `hub`: the waits of one environment, which is the main thread or a worker;
//! * `http`: names of clients and paced requests, over `rategate_ffi::http`;
//! * `shared`: limiters that all workers of the process find by a name;
//! * `load`: loads whose operations are released at their due instants;
//! * `store`: limits that several processes keep in a store;
//! * `failure`: errors, as codes that JavaScript makes its own errors of;
//! * `number`: numbers of JavaScript and back.

#![cfg_attr(test, allow(dead_code, reason = "`#[napi]` exports nothing in tests"))]
#![allow(clippy::needless_pass_by_value, reason = "Node-API hands over owned values")]

mod clock;
mod failure;
mod grant;
mod hold;
mod http;
mod hub;
mod keyed;
mod limiter;
mod load;
mod number;
mod policies;
mod raw;
mod shared;
mod store;
