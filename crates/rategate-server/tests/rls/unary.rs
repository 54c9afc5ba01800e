//! A client of any gRPC method: bytes of a message, and bytes of its reply.

use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes};
use prost::Message as _;
use rategate_server::engine::{Decided, Engine, Item, Request, Target, Verb, Verdict};
use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor::Entry;
use rategate_server::messages::rls::{RateLimitRequest, RateLimitResponse};
use tonic::Status;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};

use crate::rls::common::{Clock, runtime};

/// The method that decides.
pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A codec that leaves messages as they are.
#[derive(Clone, Copy, Debug, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}

/// A connection to a server, with the runtime that drives it.
pub(crate) struct Client {
    runtime: tokio::runtime::Runtime,
    grpc: Grpc<Channel>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let runtime = runtime();
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Self { runtime, grpc: Grpc::new(channel) }
    }

    /// Calls a method of one message.
    pub(crate) fn call(&mut self, path: &'static str, message: Vec<u8>) -> Result<Bytes, Status> {
        let request = tonic::Request::new(Bytes::from(message));
        let path = http::uri::PathAndQuery::from_static(path);
        self.runtime.block_on(async {
            self.grpc.ready().await.unwrap();
            Ok(self.grpc.unary(request, path, Plain).await?.into_inner())
        })
    }
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    let entries = entries.iter().map(entry).collect();
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

/// Calls the service about a descriptor of the domain `edge`.
pub(crate) struct Gateway {
    client: Client,
    descriptors: Vec<RateLimitDescriptor>,
}

impl Gateway {
    pub(crate) fn at(address: SocketAddr, entries: &[(&str, &str)]) -> Self {
        Self { client: Client::new(address), descriptors: vec![descriptor(entries)] }
    }

    /// Takes that many permits, and returns the code.
    pub(crate) fn take(&mut self, hits_addend: u32) -> Result<i32, Status> {
        let (domain, descriptors) = ("edge".to_owned(), self.descriptors.clone());
        let message = RateLimitRequest { domain, descriptors, hits_addend }.encode_to_vec();
        let reply = self.client.call(PATH, message)?;
        Ok(RateLimitResponse::decode(reply).unwrap().overall_code)
    }
}

/// Returns how much of its limit a rule of one value has left, and by how much it is exceeded.
pub(crate) fn left(engine: &Engine<Clock>, name: &str, value: &str) -> (u64, u64) {
    let values: &[&[u8]] = &[value.as_bytes()];
    let items = [Item::of(Target::Rule { name, values }, 0)];
    let request = Request { verb: Verb::Peek, items: &items, counts_denied: false };
    let Decided::Now(Ok(answer)) = engine.decide(&request) else { panic!("{name}") };
    let result = &answer.results[0];
    assert!(matches!(result.verdict, Verdict::Granted | Verdict::Denied { .. }), "{result:?}");
    (result.remaining.unwrap(), result.debt)
}
