//! Export of batches of spans over HTTP: OTLP with protocol buffers.
//!
//! Each batch uses a new connection, which needs no state of the last one. Nothing is sent twice:
//! a batch that fails is lost and counted, and the next one is tried.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use opentelemetry::KeyValue;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::settings::Receiver;

/// The maximum time of a batch, from the lookup of the receiver's name to its answer.
const WITHIN: Duration = Duration::from_secs(5);
/// The maximum length of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Creates the exporter for a receiver. It sends the header fields of
/// `OTEL_EXPORTER_OTLP_HEADERS`, and the attributes of `OTEL_RESOURCE_ATTRIBUTES`.
pub(super) fn exporter(receiver: &Receiver, service: &str) -> Result<SpanExporter, String> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Client { receiver: receiver.clone() })
        .with_endpoint(receiver.to_string())
        .with_timeout(WITHIN)
        .with_retry_policy(RetryPolicy::disabled())
        .build();
    let mut exporter = exporter.map_err(|error| error.to_string())?;
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_service_name(service.to_owned());
    exporter.set_resource(&resource.with_attribute(version).build());
    Ok(exporter)
}

/// A client of HTTP/1.1 without TLS.
struct Client {
    receiver: Receiver,
}

impl HttpClient for Client {
    fn send_bytes<'life, 'future>(
        &'life self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'future>>
    where
        'life: 'future,
        Self: 'future,
    {
        Box::pin(async move { timeout(WITHIN, self.call(request)).await? })
    }
}

impl Client {
    async fn call(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let stream = TcpStream::connect((self.receiver.host(), self.receiver.port())).await?;
        let (mut calls, connection) = handshake(TokioIo::new(stream)).await?;
        let answer = async move {
            let (mut head, body) = request.into_parts();
            let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
            let authority = head.uri.authority().map_or("", http::uri::Authority::as_str);
            head.headers.insert(HOST, HeaderValue::from_str(authority)?);
            head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
            head.uri = path.parse()?;
            let answer = calls.send_request(Request::from_parts(head, Full::new(body))).await?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?.to_bytes();
            Ok(Response::from_parts(head, body))
        };
        // The connection is driven only until the answer is there.
        tokio::pin!(answer, connection);
        tokio::select! {
            answer = &mut answer => answer,
            ended = &mut connection => {
                ended?;
                answer.await
            }
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.receiver.fmt(f)
    }
}
