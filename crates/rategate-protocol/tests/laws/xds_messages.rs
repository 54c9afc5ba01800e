//! The messages of `api/ratelimit/config/ratelimit/v3/rls_conf.proto` of envoyproxy/ratelimit.

use envoy_types::pb::google::protobuf::Struct;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TheirConfig {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) descriptors: Vec<TheirDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TheirDescriptor {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) rate_limit: Option<TheirPolicy>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) descriptors: Vec<TheirDescriptor>,
    #[prost(bool, tag = "5")]
    pub(crate) shadow_mode: bool,
    #[prost(bool, tag = "6")]
    pub(crate) detailed_metric: bool,
    #[prost(bool, tag = "7")]
    pub(crate) quota_mode: bool,
    #[prost(message, optional, tag = "8")]
    pub(crate) metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TheirPolicy {
    #[prost(int32, tag = "1")]
    pub(crate) unit: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) requests_per_unit: u32,
    #[prost(bool, tag = "3")]
    pub(crate) unlimited: bool,
    #[prost(string, tag = "4")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) replaces: Vec<TheirReplace>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TheirReplace {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}
