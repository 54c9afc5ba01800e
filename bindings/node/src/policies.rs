//! Policies, as text or as the body of a table.

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use rategate::AnyPolicy;
use rategate_ffi::Policies;

use crate::failure::{Result, invalid};

/// The body of a table of TOML, such as `policy = "fixed-window"` and further lines.
#[napi(object)]
#[derive(Debug)]
pub struct Table {
    pub body: String,
}

/// Reads all policies of a limiter.
pub(crate) fn read(limits: Vec<Either<String, Table>>) -> Result<Policies> {
    let mut all: Vec<AnyPolicy> = Vec::new();
    for limit in limits {
        match limit {
            Either::A(text) => {
                let policies: Policies = text
                    .parse()
                    .map_err(|error| invalid(format_args!("limit {text:?}: {error}")))?;
                all.extend(policies.policies());
            }
            Either::B(Table { body }) => {
                let policies = Policies::from_table(&body).map_err(|error| {
                    // An object has no lines.
                    let limit = body.trim().replace('\n', ", ");
                    invalid(format_args!("limit {{ {limit} }}: {}", error.message))
                })?;
                all.extend(policies.policies());
            }
        }
    }
    Policies::new(all).ok_or_else(|| invalid("there is no limit; at least one is needed"))
}

/// Reads the one policy of a table of keys.
pub(crate) fn read_one(limits: Vec<Either<String, Table>>) -> Result<AnyPolicy> {
    let policies = read(limits)?;
    let [policy] = policies.policies() else {
        return Err(invalid(format_args!(
            "there are several limits, {policies}; a table of keys has one"
        )));
    };
    Ok(*policy)
}
