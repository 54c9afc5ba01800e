//! Certificates that are replaced while a service runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rategate_server::config::load_text;
use rategate_server::net::Address;
use rategate_server::serve::{Running, Start, start};
use rcgen::{CertificateParams, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use crate::serve::clients::{PATIENCE, until};

/// Creates a self-signed certificate and its key, in PEM.
fn certificate() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// Replaces a file atomically, as certificate renewals do.
fn replace(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join("new"), text).unwrap();
    std::fs::rename(folder.join("new"), folder.join(name)).unwrap();
}

struct Service {
    folder: tempfile::TempDir,
    running: Running,
}

impl Service {
    /// Starts a service with TLS and two listeners that have the same files.
    fn new() -> Self {
        Self::with(None)
    }

    /// Starts a service whose clients need a certificate that this one signed.
    fn with(client_ca: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = certificate();
        replace(folder.path(), "cert.pem", &cert);
        replace(folder.path(), "key.pem", &key);
        let path = |name: &str| folder.path().join(name).display().to_string();
        let client_ca = client_ca.map_or_else(String::new, |ca| {
            replace(folder.path(), "ca.pem", ca);
            format!("client_ca = {:?}\n", path("ca.pem"))
        });
        let text = format!(
            "[server]\ngrpc = []\nresp = \"127.0.0.1:0\"\n\
             http = [\"127.0.0.1:0\", {{ address = \"127.0.0.1:0\", tls = false }}]\n\
             [server.tls]\ncert = {:?}\nkey = {:?}\n{client_ca}",
            path("cert.pem"),
            path("key.pem")
        );
        let loaded = load_text("rategate.toml", &text).unwrap();
        let running = start(Start { loaded, files: None, signals: false }).unwrap();
        Self { folder, running }
    }

    fn at(&self, protocol: &str, tls: bool) -> SocketAddr {
        let mut listeners = self.running.listening().iter();
        let listener = listeners
            .find(|listener| listener.protocol == protocol && listener.tls == tls)
            .unwrap();
        let Address::Tcp(at) = listener.address else { panic!("no port") };
        at
    }

    fn put(&self, name: &str, text: &str) {
        replace(self.folder.path(), name, text);
    }

    /// Returns a metric, read without TLS.
    fn metric(&self, name: &str) -> String {
        let mut stream = TcpStream::connect(self.at("http", false)).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let value = response.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name}")).to_owned()
    }
}

/// A verifier that accepts any certificate and records it.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

type Stream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

fn connect(at: SocketAddr) -> Stream {
    let provider = Arc::new(ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let verifier = Arc::new(Anyone(provider));
    let config = builder.dangerous().with_custom_certificate_verifier(verifier);
    let config = Arc::new(config.with_no_client_auth());
    let connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(StreamOwned::new(connection, stream))
}

fn ping(stream: &mut Stream) {
    stream.get_mut().write_all(b"PING\r\n").unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert_eq!(line, "+PONG\r\n");
}

/// Returns the certificate that a new connection receives, in PEM without its frame.
fn shown(at: SocketAddr) -> Vec<u8> {
    let mut stream = connect(at);
    let owned = stream.get_mut();
    owned.conn.complete_io(&mut owned.sock).unwrap();
    owned.conn.peer_certificates().unwrap()[0].to_vec()
}

fn der(pem: &str) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

#[test]
fn a_new_certificate_is_shown_to_new_connections_and_old_ones_go_on() {
    let service = Service::new();
    let mut old = connect(service.at("resp", true));
    ping(&mut old);
    let (cert, key) = certificate();
    service.put("cert.pem", &cert);
    service.put("key.pem", &key);
    service.running.reload();
    until("the new certificate", || shown(service.at("resp", true)) == der(&cert));
    assert_eq!(shown(service.at("http", true)), der(&cert), "of all listeners at once");
    ping(&mut old);
    ping(&mut connect(service.at("resp", true)));
    assert_eq!(service.metric("rategate_tls_loads_total{outcome=\"loaded\"}"), "1");
}

#[test]
fn what_does_not_fit_together_is_refused_aloud_and_the_old_one_stays() {
    let service = Service::new();
    let cert_path: PathBuf = service.folder.path().join("cert.pem");
    let first = der(&std::fs::read_to_string(cert_path).unwrap());
    let (cert, key) = certificate();
    let torn = &key[..key.len() / 2];
    // A torn key, a key of another certificate, and none at all.
    for (cert, key, refusals) in [(None, torn, "1"), (None, &*key, "2"), (Some(&*cert), "", "3")] {
        if let Some(cert) = cert {
            service.put("cert.pem", cert);
        }
        service.put("key.pem", key);
        service.running.reload();
        let failed = "rategate_tls_loads_total{outcome=\"refused\"}";
        until("the refusal", || service.metric(failed) == refusals);
        assert_eq!(service.metric("rategate_tls_reload_failed"), "1");
        assert_eq!(shown(service.at("resp", true)), first);
        assert_eq!(shown(service.at("http", true)), first);
        ping(&mut connect(service.at("resp", true)));
    }
    service.put("key.pem", &key);
    service.running.reload();
    until("the new certificate", || shown(service.at("resp", true)) == der(&cert));
    assert_eq!(service.metric("rategate_tls_reload_failed"), "0");
}

#[test]
fn a_reload_reads_them_though_nothing_has_changed() {
    let service = Service::new();
    let loaded = "rategate_tls_loads_total{outcome=\"loaded\"}";
    for times in ["1", "2"] {
        service.running.reload();
        until("another reading", || service.metric(loaded) == times);
    }
}

#[test]
fn changed_files_are_noticed_without_a_reload() {
    let service = Service::new();
    let (cert, key) = certificate();
    service.put("cert.pem", &cert);
    service.put("key.pem", &key);
    until("the new certificate", || shown(service.at("resp", true)) == der(&cert));
    assert_eq!(service.metric("rategate_tls_loads_total{outcome=\"refused\"}"), "0");
    assert_eq!(service.metric("rategate_tls_loads_total{outcome=\"loaded\"}"), "1");
}

/// A client that fails the handshake or does not speak TLS is counted; one that connects and
/// leaves silently is a probe.
#[test]
fn a_connection_that_comes_to_no_tls_is_counted() {
    let service = Service::with(Some(&certificate().0));
    let at = service.at("resp", true);
    let counted = |service: &Service| {
        service.metric("rategate_calls_refused_total{protocol=\"resp\",reason=\"handshake\"}")
    };
    drop(TcpStream::connect(at).unwrap());
    let mut stream = connect(at);
    // The answer may come before everything is written, or after.
    let _ = stream.get_mut().write_all(b"PING\r\n");
    let mut line = String::new();
    assert!(stream.read_line(&mut line).is_err(), "{line}");
    until("it is counted", || counted(&service) == "1");
    TcpStream::connect(at).unwrap().write_all(b"PING\r\n").unwrap();
    until("it is counted", || counted(&service) == "2");
}
