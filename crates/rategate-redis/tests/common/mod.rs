//! Shared helpers of the store tests.

#[cfg(feature = "client")]
pub(crate) mod cluster;
#[cfg(feature = "client")]
pub(crate) mod fake;
#[cfg(feature = "client")]
pub(crate) mod load;
#[cfg(feature = "client")]
pub(crate) mod proxy;
pub(crate) mod store;

use rategate_redis::reply::Value;
use rategate_testkit::redis::Reply;

/// Converts a reply to the crate's type.
pub(crate) fn value(reply: &Reply) -> Value {
    match reply {
        Reply::Int(number) => Value::Int(*number),
        Reply::Bulk(bytes) => Value::Bytes(bytes.clone()),
        Reply::List(items) => Value::List(items.iter().map(value).collect()),
        _ => Value::Null,
    }
}
