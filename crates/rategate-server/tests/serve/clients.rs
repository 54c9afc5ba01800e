//! A service on free ports for tests, and minimal clients of its protocols.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName};
use rategate_server::config::{Layers, load};
use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor::Entry;
use rategate_server::messages::rls::rate_limit_service_client::RateLimitServiceClient;
use rategate_server::messages::rls::{RateLimitRequest, RateLimitResponse};
use rategate_server::serve::{Running, Start, start};
use serde_json::Value as Json;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// The maximum time of any step on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a configuration, and the service that watches it.
pub(crate) struct Service {
    pub(crate) folder: PathBuf,
    /// Fields of requests for metrics, each with its line break.
    pub(crate) fields: &'static str,
    running: Option<Running>,
    // Removed at the end of the test.
    _folder: Option<tempfile::TempDir>,
}

impl Service {
    /// Starts a service on three free ports, with these rules and settings.
    pub(crate) fn of(rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        write(&path, rules);
        Self { running: Some(run(&path)), folder: path, fields: "", _folder: Some(folder) }
    }

    /// Stops the service in order, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.restart_after(|| {});
    }

    /// Stops the service in order, does something, and starts it again.
    pub(crate) fn restart_after(&mut self, meanwhile: impl FnOnce()) {
        self.running.take().unwrap().stop();
        meanwhile();
        self.running = Some(run(&self.folder));
    }

    /// Stops the service in order.
    #[cfg(feature = "otlp")]
    pub(crate) fn end(mut self) {
        self.running.take().unwrap().stop();
    }

    pub(crate) fn rewrite(&self, rules: &str) {
        write(&self.folder, rules);
    }

    /// Returns the address of a protocol's listener.
    pub(crate) fn at(&self, protocol: &str) -> String {
        let listening = self.running.as_ref().unwrap().listening();
        listening.iter().find(|target| target.protocol == protocol).unwrap().address.to_string()
    }

    /// Returns the protocol of each listener.
    pub(crate) fn protocols(&self) -> Vec<&str> {
        let listening = self.running.as_ref().unwrap().listening();
        let mut all: Vec<_> = listening.iter().map(|target| target.protocol).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn resp(&self) -> Resp {
        Resp(BufReader::new(connect(&self.at("resp"))))
    }

    pub(crate) fn http(&self) -> Http {
        Http(BufReader::new(connect(&self.at("http"))))
    }

    /// Returns a metric, by the start of its line.
    pub(crate) fn metric(&self, name: &str) -> Option<String> {
        let (_, text) = self.http().get_with("/metrics", self.fields);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(str::to_owned)
    }
}

impl Service {
    /// Returns the status codes of several calls on a connection, with or without a token. Negative
    /// hits are refunds.
    pub(crate) fn envoy_codes(&self, token: Option<&str>, hits: i64, calls: usize) -> Vec<Code> {
        let mut rls = self.rls();
        rls.token = token.map(str::to_owned);
        let bob = RateLimitDescriptor {
            hits_addend: Some(hits.unsigned_abs()),
            is_negative_hits: hits < 0,
            ..descriptor(&[("user", "bob")])
        };
        let code = |_| {
            rls.ask("default", std::slice::from_ref(&bob), 0)
                .map_or_else(|it| it.code(), |_| Code::Ok)
        };
        (0..calls).map(code).collect()
    }

    pub(crate) fn rls(&self) -> Rls {
        Rls::at(&self.at("grpc"))
    }
}

/// A client of Envoy's service, with the runtime that drives its connection.
pub(crate) struct Rls {
    pub(crate) runtime: Runtime,
    pub(crate) channel: Channel,
    pub(crate) token: Option<String>,
}

impl Rls {
    pub(crate) fn at(address: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = runtime.block_on(endpoint.timeout(PATIENCE).connect()).unwrap();
        Self { runtime, channel, token: None }
    }

    pub(crate) fn ask(
        &self,
        domain: &str,
        descriptors: &[RateLimitDescriptor],
        hits_addend: u32,
    ) -> Result<RateLimitResponse, Status> {
        let (domain, descriptors) = (domain.to_owned(), descriptors.to_vec());
        let request = RateLimitRequest { domain, descriptors, hits_addend };
        self.runtime.block_on(self.call(request, self.token.as_deref()))
    }

    /// Makes a call that needs no more of this client.
    pub(crate) fn call(
        &self,
        request: RateLimitRequest,
        token: Option<&str>,
    ) -> impl Future<Output = Result<RateLimitResponse, Status>> + use<> {
        let mut request = tonic::Request::new(request);
        if let Some(token) = token {
            let field = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", field);
        }
        let mut client = RateLimitServiceClient::new(self.channel.clone());
        async move { client.should_rate_limit(request).await.map(tonic::Response::into_inner) }
    }

    /// Takes permits of a descriptor of the domain `edge`. Returns the code of the reply.
    pub(crate) fn take(&self, entries: &[(&str, &str)], hits: u32) -> Result<i32, Status> {
        Ok(self.ask("edge", &[descriptor(entries)], hits)?.overall_code)
    }

    /// Returns the limit that decides calls of `ann`, and what is left after one of that many hits.
    pub(crate) fn left(&self, domain: &str, key: &str, hits: u32) -> Option<(u32, u32)> {
        let response = self.ask(domain, &[descriptor(&[(key, "ann")])], hits).unwrap();
        let status = &response.statuses[0];
        let limit = status.current_limit.as_ref()?.requests_per_unit;
        assert_eq!(response.overall_code, 1);
        Some((limit, status.limit_remaining))
    }

    /// Returns the status of `grpc.health.v1.Health/Check`, of the server as a whole.
    pub(crate) fn health(&self) -> i32 {
        let mut client = HealthClient::new(self.channel.clone());
        let check = client.check(HealthCheckRequest::default());
        self.runtime.block_on(check).unwrap().into_inner().status
    }
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    let entries = entries.iter().map(entry).collect();
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

/// Sends all bytes, and returns what arrives until the connection ends.
pub(crate) fn closing_response(target: &str, bytes: &[u8]) -> String {
    let mut stream = connect(target);
    // A server that has read enough may have closed already.
    let _ = stream.write_all(bytes);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

fn run(folder: &Path) -> Running {
    let path = folder.join("rategate.toml");
    let loaded = load(&path).unwrap_or_else(|error| panic!("{}", error.report()));
    start(Start { loaded, files: Some((path, Layers::default())), signals: false }).unwrap()
}

/// Writes the file atomically, as the guide says.
fn write(folder: &Path, rules: &str) {
    let own = "[server]\nresp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\n\
               threads = 2\n";
    std::fs::write(folder.join("new"), format!("{own}\n{rules}")).unwrap();
    std::fs::rename(folder.join("new"), folder.join("rategate.toml")).unwrap();
}

fn connect(target: &str) -> TcpStream {
    let stream = TcpStream::connect(target).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Waits until the condition is true.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A client of Redis' protocol.
pub(crate) struct Resp(BufReader<TcpStream>);

impl Resp {
    /// Sends a command. Returns the lines of the reply, without lengths.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Vec<String> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(command.as_bytes()).unwrap();
        let mut response = Vec::new();
        self.reply(&mut response);
        response
    }

    fn reply(&mut self, response: &mut Vec<String>) {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end();
        let number = || line[1..].parse::<i64>().unwrap();
        match &line[..1] {
            "*" => (0..number()).for_each(|_| self.reply(response)),
            "$" if number() >= 0 => {
                let mut bytes = vec![0; usize::try_from(number()).unwrap() + 2];
                self.0.read_exact(&mut bytes).unwrap();
                response.push(String::from_utf8(bytes).unwrap().trim_end().to_owned());
            }
            _ => response.push(line[1..].to_owned()),
        }
    }

    /// Returns the value of a name in a map.
    pub(crate) fn field(response: &[String], name: &str) -> String {
        let at =
            response.iter().position(|word| word == name).unwrap_or_else(|| panic!("{response:?}"));
        response[at + 1].clone()
    }
}

/// A response of HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Returns a problem's status, code, pointer and detail.
    pub(crate) fn problem(&self) -> (u16, String, String, String) {
        assert_eq!(self.field("content-type"), "application/problem+json", "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status);
        let text = |json: &Json| json.as_str().unwrap_or_default().to_owned();
        let location = text(&json["errors"][0]["pointer"]);
        (self.status, text(&json["code"]), location, text(&json["detail"]))
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A client of HTTP/1.1 that sends one request after the other.
pub(crate) struct Http(BufReader<TcpStream>);

impl Http {
    pub(crate) fn get(&mut self, path: &str) -> (u16, String) {
        self.get_with(path, "")
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> (u16, String) {
        self.post_with(path, "", body)
    }

    /// Sends a GET with additional header fields, each with its line break.
    pub(crate) fn get_with(&mut self, path: &str, fields: &str) -> (u16, String) {
        self.call(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n"))
    }

    pub(crate) fn post_with(&mut self, path: &str, fields: &str, body: &str) -> (u16, String) {
        let length = body.len();
        self.call(&format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             {fields}content-length: {length}\r\n\r\n{body}"
        ))
    }

    pub(crate) fn call(&mut self, request: &str) -> (u16, String) {
        let answer = self.answer(request);
        (answer.status, answer.text().to_owned())
    }

    pub(crate) fn answer(&mut self, request: &str) -> Answer {
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut status, mut headers) = (0, HeaderMap::new());
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the connection ended");
            let line = line.trim_end();
            if status == 0 {
                status = line.split(' ').nth(1).unwrap().parse().unwrap();
            } else if let Some((name, value)) = line.split_once(": ") {
                headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
            } else {
                break;
            }
        }
        let length = headers.get("content-length").map_or(Ok(0), |it| it.to_str().unwrap().parse());
        let mut body = vec![0; length.unwrap()];
        self.0.read_exact(&mut body).unwrap();
        Answer { status, headers, body }
    }
}

/// Makes that many calls to Envoy's service on a connection, and returns how many were allowed.
pub(crate) async fn envoy(target: String, key: &str, value: &str, calls: usize) -> usize {
    envoy_in(None, target, key, value, calls).await
}

/// Makes such calls in a span of the caller's.
pub(crate) async fn envoy_in(
    traceparent: Option<&str>,
    target: String,
    key: &str,
    value: &str,
    calls: usize,
) -> usize {
    let endpoint = Endpoint::from_shared(format!("http://{target}")).unwrap();
    let channel = endpoint.timeout(PATIENCE).connect().await.unwrap();
    let mut client = RateLimitServiceClient::new(channel);
    let request = RateLimitRequest {
        domain: "default".to_owned(),
        descriptors: vec![descriptor(&[(key, value)])],
        ..RateLimitRequest::default()
    };
    let mut allowed = 0;
    for _ in 0..calls {
        let mut request = tonic::Request::new(request.clone());
        if let Some(traceparent) = traceparent {
            request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
        }
        let answer = client.should_rate_limit(request).await.unwrap().into_inner();
        allowed += usize::from(answer.overall_code == 1);
    }
    allowed
}
