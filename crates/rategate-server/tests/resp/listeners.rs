//! Listeners: sockets in the file system, TLS, and refusals.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use rategate_server::config::Settings;
use rategate_server::config::settings::{Listener, Secret, Tls};
use rategate_server::net::Address;
use rategate_server::rule::RuleSet;
use rategate_server::serve::{Start, StartError, start};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::client::{Client, PATIENCE, Reply, address, loaded, serve};

fn pong() -> Reply {
    Reply::Simple("PONG".into())
}

#[test]
fn a_socket_in_the_file_system_is_this_users_and_goes_with_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rategate.sock");
    // A socket that a terminated service left behind.
    drop(UnixListener::bind(&path).unwrap());
    let running = serve(|settings| {
        settings.server.resp.push(Listener::plain(Address::Unix(path.clone())));
    });
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = Client::over(UnixStream::connect(&path).unwrap());
    assert_eq!(client.ask("PING"), pong());
    assert_eq!(Client::to(&running).ask("PING"), pong());
    // A service is listening there, so no other can.
    assert!(matches!(try_unix(&path), Err(StartError::Bind { .. })));
    assert_eq!(client.ask("PING"), pong());
    drop(client);
    running.stop();
    assert!(!path.exists());
    std::fs::write(&path, "mine").unwrap();
    assert!(matches!(try_unix(&path), Err(StartError::Bind { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

#[test]
fn a_socket_may_be_others_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rategate.sock");
    let address = Address::Unix(path.clone());
    let running = serve(|settings| {
        settings.server.resp = vec![Listener { mode: Some(0o666), ..Listener::plain(address) }];
    });
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    running.stop();
}

fn try_unix(path: &std::path::Path) -> Result<(), StartError> {
    try_start(|settings| settings.server.resp = vec![Listener::plain(Address::Unix(path.into()))])
}

fn try_start(change: impl FnOnce(&mut Settings)) -> Result<(), StartError> {
    let mut settings = Settings::default();
    settings.server.http.clear();
    settings.server.grpc.clear();
    settings.server.resp = vec![Listener::plain(Address::loopback(0))];
    change(&mut settings);
    let loaded = loaded(settings, RuleSet::default());
    start(Start { loaded, files: None, signals: false }).map(drop)
}

#[test]
fn open_listeners_are_refused_unless_allowed() {
    let everywhere = || vec![Listener::plain(Address::Tcp(([0, 0, 0, 0], 0).into()))];
    assert!(matches!(
        try_start(|settings| settings.server.resp = everywhere()),
        Err(StartError::Open { .. })
    ));
    try_start(|settings| {
        settings.server.resp = everywhere();
        settings.server.insecure = true;
    })
    .unwrap();
    try_start(|settings| {
        settings.server.resp = everywhere();
        settings.server.token = Some(Secret::new("t".into()));
    })
    .unwrap();
    assert!(matches!(
        try_start(|settings| settings.server.resp[0].auth = Some(true)),
        Err(StartError::NoToken { .. })
    ));
    assert!(matches!(
        try_start(|settings| settings.server.resp[0].tls = Some(true)),
        Err(StartError::NoCertificate { .. })
    ));
    assert!(matches!(
        try_start(|settings| settings.server.resp.clear()),
        Err(StartError::NoListener)
    ));
    let running = serve(|_| ());
    let taken = Address::Tcp(address(&running));
    let error = try_start(|settings| settings.server.resp = vec![Listener::plain(taken)]);
    assert!(matches!(error, Err(StartError::Bind { .. })));
}

struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.path().join("ca.pem"), ca.pem()).unwrap();
        for name in ["localhost", "client.example"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &ca).unwrap();
            std::fs::write(folder.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(folder.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn tls(&self, client_ca: bool) -> Tls {
        Tls {
            cert: self.path("localhost.pem"),
            key: self.path("localhost.key"),
            client_ca: client_ca.then(|| self.path("ca.pem")),
        }
    }

    /// Connects a client that trusts the service, with or without a certificate.
    fn client(
        &self,
        at: std::net::SocketAddr,
        shows: bool,
    ) -> Client<rustls::StreamOwned<rustls::ClientConnection, TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = if shows {
            let chain =
                vec![CertificateDer::from_pem_file(self.path("client.example.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(self.path("client.example.key")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        let name = "localhost".try_into().unwrap();
        let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client::over(rustls::StreamOwned::new(connection, stream))
    }
}

#[test]
fn tls_carries_the_same() {
    let certificates = Certificates::new();
    let running = serve(|settings| {
        settings.server.tls = Some(certificates.tls(false));
        settings.server.resp[0].tls = Some(true);
    });
    let mut client = certificates.client(address(&running), false);
    assert_eq!(client.ask("PING"), pong());
    client.send(&super::client::line("CL.THROTTLE k 99999 1 1").repeat(2000));
    for left in (98_000..100_000).rev() {
        assert_eq!(client.read().ints()[2], left);
    }
    // Without TLS there is no answer.
    let mut plain = Client::to(&running);
    plain.send(b"PING\r\n");
    assert!(!plain.rest().contains("PONG"));
    assert_eq!(client.ask("PING"), pong());
}

#[test]
fn client_certificates_are_required() {
    let certificates = Certificates::new();
    let running = serve(|settings| {
        settings.server.tls = Some(certificates.tls(true));
        settings.server.resp[0].tls = Some(true);
    });
    assert_eq!(certificates.client(address(&running), true).ask("PING"), pong());
    let mut anonymous = certificates.client(address(&running), false);
    let sent = std::io::Write::write_all(anonymous.stream.get_mut(), b"PING\r\n");
    assert!(sent.is_err() || anonymous.try_read().is_err());
}
