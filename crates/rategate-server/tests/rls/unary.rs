//! A client of any gRPC method: bytes of a message, and bytes of its reply.

use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};

use crate::rls::common::runtime;

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
