//! The connection to a control plane: its loss, its return, and TLS.

use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use super::stub::{Stub, free_port, limits, put, table};
use crate::serve::clients::{Service, until};

fn connected(service: &Service) -> String {
    service.metric("rategate_xds_connected").unwrap()
}

#[test]
fn a_control_plane_that_is_killed_and_started_again_is_followed_again() {
    let stub = Stub::start();
    let port = stub.port;
    let service = Service::of(&table(port));
    stub.request();
    stub.accepts("7", &[limits("edge", &[("user", 10)])]);
    let rls = service.rls();
    assert_eq!(rls.left("edge", "user", 1), Some((10, 9)));
    assert_eq!(connected(&service), "1");
    drop(stub);
    until("the loss", || connected(&service) == "0");
    assert_eq!(rls.left("edge", "user", 1), Some((10, 8)), "its rules stay");
    let stub = Stub::at(port, None);
    let first = stub.request();
    // It may count its versions from the beginning.
    assert_eq!((&*first.version_info, &*first.response_nonce), ("", ""));
    until("the return", || connected(&service) == "1");
    stub.accepts("1", &[limits("edge", &[("user", 20)])]);
    assert_eq!(rls.left("edge", "user", 1), Some((20, 17)), "its counters as well");
}

#[test]
fn a_stream_that_ends_is_opened_again_and_so_is_one_that_comes_late() {
    let port = free_port();
    let service = Service::of(&table(port));
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(connected(&service), "0");
    let stub = Stub::at(port, None);
    stub.request();
    stub.accepts("1", &[limits("edge", &[("user", 10)])]);
    for status in ["0", "14"] {
        stub.end(status);
        assert_eq!(stub.request().version_info, "");
    }
    assert_eq!(stub.streams(), 3);
    stub.accepts("1", &[limits("edge", &[("user", 10)])]);
    let loads = service.metric("rategate_config_loads_total{outcome=\"loaded\"}").unwrap();
    assert_eq!(loads, "1", "what is in force is not loaded again");
}

/// Waits double only as long as nothing is accepted between them.
#[test]
fn an_accepted_configuration_ends_the_backoff() {
    let stub = Stub::start();
    let waits = table(stub.port).replace("200ms", "10min").replace("50ms", "10ms");
    let _service = Service::of(&waits);
    let begun = std::time::Instant::now();
    for nth in 0..12 {
        stub.request();
        stub.accepts("1", &[limits("edge", &[("user", 10 + nth)])]);
        stub.end("0");
    }
    // Doubled eleven times, the last wait alone would be twenty seconds.
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// A peer that is no control plane is asked again, with waits, and the service ends all the same.
#[test]
fn another_server_is_none() {
    let other = Service::of("");
    let port = other.at("http").rsplit(':').next().unwrap().parse().unwrap();
    let service = Service::of(&table(port));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(service.http().get("/readyz").0, 503);
    drop(service);
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns a certificate for a name and its key, in PEM.
fn signed(authority: &Authority, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

/// Returns the TLS of a control plane with this name, whose clients need a certificate.
fn server(authority: &Authority, name: &str) -> rustls::ServerConfig {
    let (cert, key) = signed(authority, name);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let mut config = config
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Writes the files of a service. Returns the table of its TLS.
fn tls_table(folder: &Path, theirs: &Authority, own: &Authority, name: &str) -> String {
    let (cert, key) = signed(own, "ratelimit");
    let files = [("ca", theirs.pem()), ("cert", cert), ("key", key)];
    let mut table = format!("[xds.tls]\nname = {name:?}\n");
    for (file, text) in files {
        table.push_str(&format!("{file} = {:?}\n", put(folder, file, &text)));
    }
    table
}

#[test]
fn both_ends_show_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let authority = authority();
    let stub = Stub::at(0, Some(server(&authority, "envoy-gateway")));
    let tls = tls_table(folder.path(), &authority, &authority, "envoy-gateway");
    let service = Service::of(&format!("{}{tls}", table(stub.port)));
    stub.request();
    stub.accepts("1", &[limits("edge", &[("user", 10)])]);
    assert_eq!(service.rls().left("edge", "user", 1), Some((10, 9)));
}

#[test]
fn an_unknown_control_plane_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (known, other) = (authority(), authority());
    let stub = Stub::at(0, Some(server(&known, "envoy-gateway")));
    for (nth, (theirs, own, name)) in [
        (&other, &known, "envoy-gateway"),
        (&known, &known, "another"),
        (&known, &other, "envoy-gateway"),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = folder.path().join(nth.to_string());
        std::fs::create_dir(&folder).unwrap();
        let tls = tls_table(&folder, theirs, own, name);
        let service = Service::of(&format!("{}{tls}", table(stub.port)));
        assert_eq!(stub.requests_within(std::time::Duration::from_millis(300)), []);
        assert_eq!((stub.streams(), service.http().get("/readyz").0), (0, 503));
    }
}

/// Certificates are renewed while a service runs, and a service may start before they are there.
#[test]
fn certificates_are_read_at_each_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (authority(), authority());
    let stub = Stub::at(0, Some(server(&old, "envoy-gateway")));
    let port = stub.port;
    let tls = tls_table(folder.path(), &old, &old, "envoy-gateway");
    let cert = std::fs::read_to_string(folder.path().join("cert")).unwrap();
    std::fs::remove_file(folder.path().join("cert")).unwrap();
    let service = Service::of(&format!("{}{tls}", table(port)));
    assert_eq!(stub.requests_within(std::time::Duration::from_millis(200)), []);
    put(folder.path(), "cert", &cert);
    stub.request();
    stub.accepts("1", &[limits("edge", &[("user", 10)])]);
    drop(stub);
    until("the loss", || connected(&service) == "0");
    tls_table(folder.path(), &new, &new, "envoy-gateway");
    let stub = Stub::at(port, Some(server(&new, "envoy-gateway")));
    stub.request();
    stub.accepts("2", &[limits("edge", &[("user", 20)])]);
}
