//! The program as `/bin/ratelimit`, in the environments of Envoy Gateway and Envoy AI Gateway,
//! before a control plane by other hands: grpcio.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::common::folder;
use crate::common::serving::{Serving, installed, succeeds};

const PYTHON: &str = "grpc-python/bin/python3";

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// A control plane, until it is dropped.
struct Plane {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    port: u64,
}

impl Plane {
    fn start(python: &Path, files: &[&Path]) -> Self {
        let mut command = Command::new(python);
        command.arg(script("ads.py")).arg("0").args(files);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start Python");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut plane = Self { child, lines, port: 0 };
        plane.port = plane.next()["port"].as_u64().unwrap();
        plane
    }

    /// Returns the next request that it has received.
    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().expect("it ends early").unwrap()).unwrap()
    }

    fn send(&mut self, configuration: &Value) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{configuration}").unwrap();
        stdin.flush().unwrap();
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the program by a link with that name.
fn ratelimit(name: &str, variables: &[(&str, &str)]) -> Serving {
    let link = folder(name).join("ratelimit");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rategate"), &link).unwrap();
    let mut command = Command::new(link);
    // The test's own: free ports of the loopback.
    let ports =
        [("HOST", "127.0.0.1"), ("GRPC_HOST", "127.0.0.1"), ("PORT", "0"), ("GRPC_PORT", "0")];
    command.env_clear().envs(ports).envs(variables.iter().copied());
    Serving::of(command)
}

fn call(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: &str, path: &str) -> String {
    call(address, &format!("GET {path} HTTP/1.1\r\nhost: 10.0.0.7\r\nconnection: close\r\n\r\n"))
}

/// Returns the reply to a request of domain `d` about a key.
fn ask(address: &str, key: &str) -> String {
    let body = format!(
        r#"{{"domain":"d","descriptors":[{{"entries":[{{"key":"{key}","value":"x"}}]}}]}}"#
    );
    let length = body.len();
    call(
        address,
        &format!(
            "POST /json HTTP/1.1\r\nhost: 10.0.0.7\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{body}"
        ),
    )
}

fn configuration(version: u32, requests: u64) -> Value {
    let counted = json!({ "key": "counted", "unit": 6, "requests": 1000 });
    // A day: no border of a window is near.
    let changing = json!({ "key": "changing", "unit": 4, "requests": requests });
    json!({
        "version": version.to_string(),
        "domains": [{ "domain": "d", "descriptors": [counted, changing] }],
    })
}

/// Follows a control plane through several configurations and a broken one.
fn follow(plane: &mut Plane, serving: &Serving, node: &str) {
    let address = serving.address("http");
    let first = plane.next();
    assert_eq!((&first["node"], &first["version"]), (&json!(node), &json!("")));
    assert_eq!(first["type"], "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig");
    let mut fastest = Duration::MAX;
    for version in 1..=5 {
        let sent = Instant::now();
        plane.send(&configuration(version, 10 + u64::from(version)));
        let limit = format!(r#""requestsPerUnit":{}"#, 10 + version);
        while !ask(address, "changing").contains(&limit) {
            assert!(sent.elapsed() < Duration::from_secs(30), "{}", ask(address, "changing"));
        }
        fastest = fastest.min(sent.elapsed());
        let accepted = plane.next();
        assert_eq!(accepted["version"], version.to_string());
        assert_eq!(accepted["error"], "");
    }
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
    assert!(ask(address, "counted").contains(r#""limitRemaining":999"#));

    // No unit: refused as a whole, with its path.
    let mut broken = configuration(6, 99);
    broken["domains"][0]["descriptors"][0].as_object_mut().unwrap().remove("unit");
    plane.send(&broken);
    let refused = plane.next();
    assert_eq!((&refused["version"], &refused["nonce"]), (&json!("5"), &json!("nonce-6")));
    let error = refused["error"].as_str().unwrap();
    assert!(error.contains("d: descriptors[0].rate_limit: no unit"), "{error}");
    let counted = ask(address, "counted");
    assert!(counted.contains(r#""limitRemaining":998"#), "counters go on: {counted}");

    plane.send(&configuration(7, 99));
    assert_eq!(plane.next()["version"], "7");
    let counted = ask(address, "counted");
    assert!(counted.contains(r#""limitRemaining":997"#), "counters go on: {counted}");
}

/// Returns the names of the files of an authority, a certificate by it, and its key.
fn certificates(folder: &Path) -> [PathBuf; 3] {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // A certificate with its issuer's name would count as signed by itself.
    authority.distinguished_name.push(DnType::CommonName, "authority");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = ["localhost", "envoy-gateway", "envoy-ratelimit"].map(str::to_owned);
    let own = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    let files =
        [("ca.crt", authority.pem()), ("tls.crt", own.pem()), ("tls.key", key.serialize_pem())];
    files.map(|(name, text)| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    })
}

/// The variables that Envoy Gateway gives its rate limit service, with the files and the address
/// of the test.
#[test]
fn envoy_gateway_starts_it_and_sends_it_rules() {
    let Some(python) = installed(PYTHON) else { return };
    let [authority, cert, key] = certificates(&folder("ratelimit_certificates"));
    let mut plane = Plane::start(&python, &[&cert, &key, &authority]);
    let server = format!("localhost:{}", plane.port);
    let [authority, cert, key] = [&authority, &cert, &key].map(|path| path.to_str().unwrap());
    let serving = ratelimit(
        "ratelimit_gateway",
        &[
            ("RUNTIME_ROOT", "/data"),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_IGNOREDOTFILES", "true"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("LOG_LEVEL", "info"),
            ("USE_STATSD", "false"),
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("CONFIG_GRPC_XDS_SERVER_URL", &server),
            ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
            ("GRPC_SERVER_USE_TLS", "true"),
            ("GRPC_SERVER_TLS_CERT", cert),
            ("GRPC_SERVER_TLS_KEY", key),
            ("GRPC_SERVER_TLS_CA_CERT", authority),
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", cert),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", key),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", authority),
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", "redis.redis.svc:6379"),
            ("USE_PROMETHEUS", "true"),
            ("PROMETHEUS_ADDR", ":0"),
            ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
        ],
    );
    let health = get(serving.address("http"), "/healthcheck");
    assert!(health.starts_with("HTTP/1.1 200"), "it is forced to start: {health}");
    follow(&mut plane, &serving, "envoy-ratelimit");
    let metrics = get(serving.address("http"), "/metrics");
    assert!(metrics.contains("rategate_xds_connected 1"), "{metrics}");
    // Permits come back by a token alone, and there is none.
    let body = r#"{"verb":"refund","rule":"d.counted","key":"x","permits":1}"#;
    let length = body.len();
    let refund = format!(
        "POST /v1/check HTTP/1.1\r\nhost: 10.0.0.7\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let answer = call(serving.address("http"), &refund);
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");

    let health = |own: &[&str]| {
        let mut command = Command::new(&python);
        command.arg(script("health.py")).args([serving.address("grpc"), authority]).args(own);
        succeeds(&mut command)
    };
    assert_eq!(health(&[cert, key]).trim(), "[8, 1]", "it is serving");
    assert_eq!(health(&[]).trim(), "UNAVAILABLE", "Envoy shows a certificate");
}

/// The port of Prometheus is one more HTTP port, of this program alone.
#[test]
fn the_port_of_prometheus_is_one_more_of_http() {
    let root = folder("ratelimit_prometheus_rules");
    std::fs::create_dir_all(root.join("config")).unwrap();
    let rules = "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: { unit: hour, \
                 requests_per_unit: 9 }\n";
    std::fs::write(root.join("config/edge.yaml"), rules).unwrap();
    let metrics = crate::common::serving::free_address();
    let start = |name: &str, is_on: &str| {
        let root = root.to_str().unwrap();
        let variables =
            [("RUNTIME_ROOT", root), ("USE_PROMETHEUS", is_on), ("PROMETHEUS_ADDR", &metrics)];
        ratelimit(name, &variables)
    };
    let serving = start("ratelimit_prometheus", "true");
    for address in [serving.address("http"), &metrics] {
        for path in ["/metrics", "/healthcheck"] {
            let answer = get(address, path);
            assert!(answer.starts_with("HTTP/1.1 200"), "{address}{path}: {answer}");
        }
    }
    drop(serving);
    let serving = start("ratelimit_no_prometheus", "false");
    assert!(get(serving.address("http"), "/metrics").starts_with("HTTP/1.1 200"));
    assert!(TcpStream::connect(&metrics).is_err(), "{metrics} is open");

    let check = Command::new(env!("CARGO_BIN_EXE_rategate"))
        .args(["config", "check", root.join("config").to_str().unwrap()])
        .env_clear()
        .envs([("RUNTIME_ROOT", root.to_str().unwrap()), ("PROMETHEUS_ADDR", &metrics)])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(said.contains("PROMETHEUS_ADDR: has no effect here"), "{said}");
}

/// Variables as for Envoy AI Gateway's own rate limit service: a plain stream, and its node.
#[test]
fn envoy_ai_gateway_starts_it_and_sends_it_rules() {
    let Some(python) = installed(PYTHON) else { return };
    let mut plane = Plane::start(&python, &[]);
    let server = format!("localhost:{}", plane.port);
    let serving = ratelimit(
        "ratelimit_ai_gateway",
        &[
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("CONFIG_GRPC_XDS_SERVER_URL", &server),
            ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ai-gateway-ratelimit"),
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
            ("LOG_LEVEL", "debug"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", "redis.redis.svc:6379"),
            ("RUNTIME_ROOT", "/data"),
            ("USE_STATSD", "false"),
        ],
    );
    follow(&mut plane, &serving, "envoy-ai-gateway-ratelimit");
}
