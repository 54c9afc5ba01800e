//! A store behind TLS: certificates of the server, and of the client where the server requires
//! one.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::load::{decide, eventually, open, plan, recovers};
use rategate::store::{StoreError, Unavailable};
use rategate_redis::client::{self, Config, OpenError, RedisStore};
use rategate_testkit::redis::{Brand, Server};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, IsCa, KeyPair,
};

const SOON: Duration = Duration::from_secs(8);

/// An authority, and the certificates that it has signed for a server and for a client.
struct Certificates {
    folder: PathBuf,
    authority: String,
    client: (String, String),
}

impl Certificates {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("rategate-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let signed = |names: &[&str]| {
            let key = KeyPair::generate().unwrap();
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let mut params = CertificateParams::new(names).unwrap();
            // The names differ from the authority's; equal names would look like a self-signed
            // certificate.
            params.distinguished_name = DistinguishedName::new();
            (params.signed_by(&key, &authority).unwrap().pem(), key.serialize_pem())
        };
        let (server, client) = (signed(&["localhost", "127.0.0.1"]), signed(&["node"]));
        let authority = authority.pem();
        for (name, text) in
            [("ca.pem", &authority), ("cert.pem", &server.0), ("key.pem", &server.1)]
        {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Self { folder, authority, client }
    }

    fn path(&self, name: &str) -> String {
        Path::new(&self.folder).join(name).display().to_string()
    }

    /// Starts a server with a plain port for the test and a TLS port, which it returns.
    fn serve(&self, asks_clients: &str) -> (Server, client::Server) {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (ca, cert, key) = (self.path("ca.pem"), self.path("cert.pem"), self.path("key.pem"));
        let text = port.to_string();
        let options = [
            "--tls-port",
            &text,
            "--tls-auth-clients",
            asks_clients,
            "--tls-ca-cert-file",
            &ca,
            "--tls-cert-file",
            &cert,
            "--tls-key-file",
            &key,
        ];
        (Server::with(Brand::Redis, &options), client::Server::Tls("localhost".to_owned(), port))
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_store_behind_tls_decides_and_is_dialled_again() {
    let certificates = Certificates::new("plain");
    let (mut server, address) = certificates.serve("no");
    let store =
        open(Config::server(address).prefix("t").tls_roots(certificates.authority.as_bytes()));
    let plan = plan(&store, 10);
    assert!(recovers(&store, &plan, "k", SOON));
    server.restart_empty();
    assert!(recovers(&store, &plan, "k", SOON));
    assert!(store.stats().connections >= 2 && store.stats().panics == 0, "{:?}", store.stats());
}

#[test]
fn a_server_that_asks_for_a_certificate_lets_only_those_in_that_have_one() {
    let certificates = Certificates::new("mutual");
    let (_server, address) = certificates.serve("yes");
    let config = Config::server(address).prefix("t").tls_roots(certificates.authority.as_bytes());
    let (cert, key) = &certificates.client;
    let known = open(config.clone().tls_identity(cert.as_bytes(), key.as_bytes()));
    let limits = plan(&known, 10);
    assert!(recovers(&known, &limits, "k", SOON));
    let unknown = open(config);
    let limits = plan(&unknown, 10);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        let result = decide(&unknown, &limits, "k");
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The machine's own roots do not include the test's authority.
#[test]
fn a_certificate_of_an_unknown_authority_is_refused_and_tried_again() {
    let certificates = Certificates::new("unknown");
    let (_server, address) = certificates.serve("no");
    let other = Certificates::new("other");
    let store = open(Config::server(address).tls_roots(other.authority.as_bytes()));
    let plan = plan(&store, 10);
    let mut result = None;
    eventually(SOON, "an attempt fails", || {
        result = decide(&store, &plan, "k").err();
        matches!(result, Some(StoreError::Unavailable(Unavailable::Unreachable(_))))
    });
    assert!(format!("{result:?}").contains("certificate"), "{result:?}");
    // The driver continues to try.
    let before = store.stats().dials;
    eventually(SOON, "further attempts", || store.stats().dials > before + 1);
}

#[test]
fn what_is_no_certificate_is_refused_when_the_store_is_opened() {
    let address = client::Server::Tls("localhost".to_owned(), 1);
    let config = Config::server(address);
    let error = RedisStore::open(config.clone().tls_roots(b"no PEM")).unwrap_err();
    assert!(matches!(error, OpenError::Tls(_)), "{error}");
    let error = RedisStore::open(config.tls_identity(b"-----BEGIN", b"")).unwrap_err();
    assert!(error.to_string().contains("client certificate"), "{error}");
}
