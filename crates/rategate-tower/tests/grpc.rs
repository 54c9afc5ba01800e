//! A tonic server behind the layer, and a tonic client that receives its refusals.

use std::time::Duration;

use http::uri::PathAndQuery;
use rategate::{Keyed, SlidingLog};
use rategate_tower::{Form, OnMissingKey, RateLimitLayer, key};
use tokio::net::TcpListener;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::service::Routes;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status};

/// An empty message.
#[derive(Clone, Copy)]
struct Empty;

impl Codec for Empty {
    type Encode = ();
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Empty {
    type Item = ();
    type Error = Status;

    fn encode(&mut self, (): (), _bytes: &mut EncodeBuf<'_>) -> Result<(), Status> {
        Ok(())
    }
}

impl Decoder for Empty {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _bytes: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(Some(()))
    }
}

#[tokio::test]
async fn a_grpc_client_gets_status_and_pushback() {
    let keyed = Keyed::new(SlidingLog::new(2, Duration::from_secs(60)));
    let peer = key::peer(|info: &TcpConnectInfo| info.remote_addr().map(|address| address.ip()));
    let layer = RateLimitLayer::keyed(keyed.clone(), peer)
        .missing(OnMissingKey::Refuse)
        .form(Form::ByContentType);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::builder().layer(layer).add_routes(Routes::default());
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let mut client = Grpc::new(Channel::from_shared(url).unwrap().connect().await.unwrap());
    let mut codes = Vec::new();
    for _ in 0..3 {
        client.ready().await.unwrap();
        let path = PathAndQuery::from_static("/test.Test/Nothing");
        codes.push(client.unary(Request::new(()), path, Empty).await.unwrap_err());
    }
    // Requests that pass reach a server without that method.
    assert_eq!(codes[0].code(), Code::Unimplemented);
    assert_eq!(codes[1].code(), Code::Unimplemented);
    assert_eq!(codes[2].code(), Code::ResourceExhausted);
    assert_eq!(codes[2].message(), "The limit is reached.");
    let pushback = codes[2].metadata().get("grpc-retry-pushback-ms").unwrap();
    let pushback_ms: u64 = pushback.to_str().unwrap().parse().unwrap();
    assert!((50_000..=60_000).contains(&pushback_ms), "{pushback_ms}");
    assert!(codes[2].metadata().contains_key("retry-after"));
    assert_eq!(keyed.len(), 1, "the peer's address is the key");
}
