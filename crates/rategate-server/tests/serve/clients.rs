//! A service on free ports for tests, and minimal clients of its protocols.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rategate_server::config::{Layers, load};
use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor::Entry;
use rategate_server::messages::rls::RateLimitRequest;
use rategate_server::messages::rls::rate_limit_response::Code;
use rategate_server::messages::rls::rate_limit_service_client as rls_client;
use rategate_server::serve::{Running, Start, start};
use tonic::transport::{Channel, Endpoint};

/// The maximum time of any step on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a configuration, and the service that watches it.
pub(crate) struct Service {
    pub(crate) folder: PathBuf,
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
        Self { running: Some(run(&path)), folder: path, _folder: Some(folder) }
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
        self.metric_with("", name)
    }

    /// Returns a metric, requested with these header fields.
    pub(crate) fn metric_with(&self, fields: &str, name: &str) -> Option<String> {
        let (_, text) = self.http().get_with("/metrics", fields);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(str::to_owned)
    }
}

impl Service {
    /// Returns the status code of a call to Envoy's service, with or without a token. Negative
    /// hits are refunds.
    pub(crate) fn envoy_code(&self, token: Option<&str>, hits: i64) -> i32 {
        self.envoy_codes(token, hits, 1)[0]
    }

    /// Returns the status codes of several calls on a connection.
    pub(crate) fn envoy_codes(&self, token: Option<&str>, hits: i64, calls: usize) -> Vec<i32> {
        self.envoy_client("grpc", async |client| {
            let mut codes = Vec::new();
            for _ in 0..calls {
                codes.push(ask(client.clone(), token.map(str::to_owned), hits).await);
            }
            codes
        })
    }

    /// Returns the status codes of concurrent calls with these tokens on a connection.
    pub(crate) fn envoy_codes_at_once(&self, protocol: &str, tokens: &[&str]) -> Vec<i32> {
        self.envoy_client(protocol, async |client| {
            let ask =
                |token: &&str| tokio::spawn(ask(client.clone(), Some((*token).to_owned()), 1));
            let calls: Vec<_> = tokens.iter().map(ask).collect();
            let mut codes = Vec::new();
            for call in calls {
                codes.push(call.await.unwrap());
            }
            codes
        })
    }

    fn envoy_client<T>(
        &self,
        protocol: &str,
        talk: impl AsyncFnOnce(&rls_client::RateLimitServiceClient<Channel>) -> T,
    ) -> T {
        let target = self.at(protocol);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let endpoint = Endpoint::from_shared(format!("http://{target}")).unwrap();
            let channel = endpoint.timeout(PATIENCE).connect().await.unwrap();
            talk(&rls_client::RateLimitServiceClient::new(channel)).await
        })
    }
}

/// Makes a call and returns its status code.
async fn ask(
    mut client: rls_client::RateLimitServiceClient<Channel>,
    token: Option<String>,
    hits: i64,
) -> i32 {
    let entry = Entry { key: "user".into(), value: "bob".into() };
    let descriptor = RateLimitDescriptor {
        entries: vec![entry],
        hits_addend: Some(hits.unsigned_abs()),
        is_negative_hits: hits < 0,
        ..RateLimitDescriptor::default()
    };
    let mut request = tonic::Request::new(RateLimitRequest {
        domain: "default".to_owned(),
        descriptors: vec![descriptor],
        ..RateLimitRequest::default()
    });
    if let Some(token) = token {
        let field = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", field);
    }
    let answer = client.should_rate_limit(request).await;
    answer.map_or_else(|status| status.code().into(), |_| 0)
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

/// A client of HTTP/1.1 that sends one request after the other.
pub(crate) struct Http(BufReader<TcpStream>);

impl Http {
    pub(crate) fn get(&mut self, path: &str) -> (u16, String) {
        self.call(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> (u16, String) {
        let length = body.len();
        self.call(&format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        ))
    }

    /// Sends a GET with additional header fields, each with its line break.
    pub(crate) fn get_with(&mut self, path: &str, fields: &str) -> (u16, String) {
        self.call(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n"))
    }

    #[cfg(feature = "otlp")]
    pub(crate) fn post_with(&mut self, path: &str, fields: &str, body: &str) -> (u16, String) {
        let length = body.len();
        self.call(&format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             {fields}content-length: {length}\r\n\r\n{body}"
        ))
    }

    pub(crate) fn call(&mut self, request: &str) -> (u16, String) {
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the connection ended");
            let line = line.trim_end();
            if status == 0 {
                status = line.split(' ').nth(1).unwrap().parse().unwrap();
            } else if let Some((name, value)) = line.split_once(": ") {
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.parse().unwrap();
                }
            } else {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
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
    let mut client = rls_client::RateLimitServiceClient::new(channel);
    let entry = Entry { key: key.into(), value: value.into() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let request = RateLimitRequest {
        domain: "default".to_owned(),
        descriptors: vec![descriptor],
        ..RateLimitRequest::default()
    };
    let mut allowed = 0;
    for _ in 0..calls {
        let mut request = tonic::Request::new(request.clone());
        if let Some(traceparent) = traceparent {
            request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
        }
        let answer = client.should_rate_limit(request).await.unwrap().into_inner();
        allowed += usize::from(answer.overall_code() == Code::Ok);
    }
    allowed
}
