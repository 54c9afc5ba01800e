//! A stream of discovery responses: one call of gRPC on a connection of its own.

use std::error::Error;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::codegen::tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Response, Status, Streaming};

use crate::config::settings::{Xds, XdsTls};
use crate::messages::discovery::aggregated_discovery_service_client as client;
use crate::messages::discovery::{DiscoveryRequest, DiscoveryResponse};

/// The maximum time of an attempt to connect, from the lookup of the name to the handshake.
const WITHIN: Duration = Duration::from_secs(10);
/// The silence after which TCP asks whether the control plane is still there. Pings of HTTP/2 are
/// no choice: servers of gRPC end connections that send more than one in five minutes.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The maximum number of characters that a log shows of a peer's message.
const MAX_SHOWN: usize = 512;

/// The reason why there is no stream, or no longer one.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("no connection within {} s", WITHIN.as_secs())]
    Late,
    #[error("cannot read {path}: {error}")]
    File { path: String, error: std::io::Error },
    #[error("the stream ends with the status {code:?}: {message:?}")]
    Ended { code: tonic::Code, message: String },
}

impl From<tonic::transport::Error> for StreamError {
    fn from(error: tonic::transport::Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        Self::Connect(text)
    }
}

impl From<Status> for StreamError {
    fn from(status: Status) -> Self {
        let message = status.message().chars().take(MAX_SHOWN).collect();
        Self::Ended { code: status.code(), message }
    }
}

/// An open stream. Dropping it closes the connection.
pub(super) struct Stream {
    requests: mpsc::UnboundedSender<DiscoveryRequest>,
    reply: Reply,
}

type Responses = Streaming<DiscoveryResponse>;
type Awaited = Pin<Box<dyn Future<Output = Result<Response<Responses>, Status>>>>;

/// The reply to the call. Its head arrives with the first response at the earliest.
enum Reply {
    Awaited(Awaited),
    Begun(Box<Responses>),
}

impl Stream {
    /// Connects to the control plane and begins the call, without waiting for its reply.
    pub(super) async fn open(xds: &Xds) -> Result<Self, StreamError> {
        let connected = timeout(WITHIN, connect(xds)).await;
        let channel = connected.map_err(|_| StreamError::Late)??;
        let mut client = client::AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(xds.max_message_bytes);
        let (requests, sent) = mpsc::unbounded_channel();
        let sent = UnboundedReceiverStream::new(sent);
        let reply = Box::pin(async move { client.stream_aggregated_resources(sent).await });
        Ok(Self { requests, reply: Reply::Awaited(reply) })
    }

    /// Sends a request. If the stream has ended, the next response is that error.
    pub(super) fn send(&self, request: DiscoveryRequest) {
        let _ = self.requests.send(request);
    }

    /// Waits for the next response. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<DiscoveryResponse, StreamError> {
        loop {
            match &mut self.reply {
                Reply::Awaited(reply) => {
                    self.reply = Reply::Begun(reply.await?.into_inner().into());
                }
                Reply::Begun(responses) => {
                    let ended = || Status::ok("the control plane has no more to say");
                    return Ok(responses.message().await?.ok_or_else(ended)?);
                }
            }
        }
    }
}

async fn connect(xds: &Xds) -> Result<Channel, StreamError> {
    let scheme = if xds.tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", xds.server))?
        .tcp_keepalive(Some(KEEPALIVE))
        .tcp_keepalive_interval(Some(KEEPALIVE));
    if let Some(tls) = &xds.tls {
        // The files are read at each connection: certificates are renewed while a service runs.
        endpoint = endpoint.tls_config(tls_of(tls, &xds.server.host)?)?;
    }
    Ok(endpoint.connect().await?)
}

fn tls_of(tls: &XdsTls, host: &str) -> Result<ClientTlsConfig, StreamError> {
    let read = |path: &std::path::Path| {
        std::fs::read(path)
            .map_err(|error| StreamError::File { path: path.display().to_string(), error })
    };
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(&tls.ca)?))
        .domain_name(tls.name.as_deref().unwrap_or(host));
    Ok(match tls.cert.as_deref().zip(tls.key.as_deref()) {
        None => config,
        Some((cert, key)) => config.identity(Identity::from_pem(read(cert)?, read(key)?)),
    })
}
