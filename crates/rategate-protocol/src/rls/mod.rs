//! The messages of Envoy's rate limit service, version 3, in protocol buffers.

mod metadata;
mod request;
mod response;
mod unit;

pub use self::metadata::{
    FiniteNumber, MAX_METADATA_BYTES, MAX_METADATA_DEPTH, Metadata, MetadataError, MetadataValue,
};
pub use self::request::{Descriptor, MAX_ITEMS, MalformedRequest, Override, RlsRequest};
pub use self::response::{Code, DescriptorStatus, write};
pub use self::unit::Unit;
