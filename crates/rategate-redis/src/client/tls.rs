//! TLS to a server (feature `tls`): trusted authorities and the client's certificates.
//!
//! The cryptography is named here, so that no provider of the process is needed.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Certificates and a key, as PEM. `Debug` does not show the key.
#[derive(Clone, Default)]
pub(crate) struct Pem {
    /// The trusted authorities; the machine's own if `None`.
    pub(crate) roots: Option<Vec<u8>>,
    /// The client's certificates, its own first, and their key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem")
            .field("has_roots", &self.roots.is_some())
            .field("has_identity", &self.identity.is_some())
            .finish()
    }
}

impl Pem {
    /// Reads the certificates. The error says which of them is wrong, and what is accepted.
    pub(crate) fn client(&self) -> Result<ClientConfig, String> {
        let roots = match &self.roots {
            Some(pem) => roots(pem)?,
            None => machine_roots()?,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let Some((chain, key)) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let chain = certificates(chain, "the client certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("the client key: {error}; expected a private key in PEM"))?;
        builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| format!("the client certificate and its key: {error}"))
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for root in certificates(pem, "the root certificates")? {
        roots.add(root).map_err(|error| format!("the root certificates: {error}"))?;
    }
    Ok(roots)
}

fn machine_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(format!("the machine has no root certificates{why}; name some by `tls_roots`"));
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        Ok(_) => Err(format!("{what}: no certificate; expected one or more in PEM")),
        Err(error) => Err(format!("{what}: {error}; expected one or more certificates in PEM")),
    }
}

/// Connects, and checks the server's certificate against `host`.
pub(crate) async fn connect(
    client: Arc<ClientConfig>,
    host: &str,
    port: u16,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(client).connect(name, stream).await
}
