//! TLS for a listener: its certificate, and optionally the authority that signs client
//! certificates. TLS for a client: the authority of servers, and optionally its certificate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// Certificates in PEM files, read when the listener starts and again at each [`Tls::reload`].
/// Clones share them.
#[derive(Clone)]
pub struct Tls {
    files: Arc<Files>,
    config: Arc<ArcSwap<ServerConfig>>,
}

#[derive(Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    /// The protocols offered by ALPN, the preferred one first.
    offers: Vec<Vec<u8>>,
}

/// The reason why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{}: {}", path.display(), of_pem(error))]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        error: pem::Error,
    },
    /// A file contains no certificate.
    #[error("{}: no certificate found", .0.display())]
    Empty(PathBuf),
    /// The certificate, the key or the authority is unusable, or they do not match.
    #[error("{}: {error}", path.display())]
    Unfit {
        /// The path of the certificate's file.
        path: PathBuf,
        /// The cause.
        error: rustls::Error,
    },
    /// No client certificate could be verified with the authority.
    #[error("{}: {error}", path.display())]
    Verifier {
        /// The path of the authority's file.
        path: PathBuf,
        /// The cause.
        error: rustls::server::VerifierBuilderError,
    },
}

/// Describes the error of a PEM file, without its bytes.
fn of_pem(error: &pem::Error) -> String {
    let text = |bytes: &[u8]| {
        let text: String = String::from_utf8_lossy(bytes).chars().take(MAX_MARKER).collect();
        text.escape_debug().to_string()
    };
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!(
                "the file is cut off: the line \"-----END {}-----\" is missing",
                text(end_marker)
            )
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("this line is not PEM: \"{}\"", text(line))
        }
        pem::Error::Base64Decode(_) => "the text between BEGIN and END is not base64".to_owned(),
        pem::Error::NoItemsFound => "no private key or certificate found".to_owned(),
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        other => other.to_string(),
    }
}

/// The maximum number of characters of a line that a message shows.
const MAX_MARKER: usize = 64;

impl Tls {
    /// Reads a certificate chain, its key, and optionally the authority for client certificates.
    ///
    /// With an authority, every client needs a certificate. `offers` are the protocols for ALPN.
    ///
    /// # Errors
    ///
    /// [`TlsError`], with the path of the file.
    pub fn read(
        cert: &Path,
        key: &Path,
        client_ca: Option<&Path>,
        offers: &[&[u8]],
    ) -> Result<Self, TlsError> {
        let files = Files {
            cert: cert.to_owned(),
            key: key.to_owned(),
            client_ca: client_ca.map(Path::to_owned),
            offers: offers.iter().map(|offer| offer.to_vec()).collect(),
        };
        let config = Arc::new(ArcSwap::from_pointee(files.config()?));
        Ok(Self { files: Arc::new(files), config })
    }

    /// Reads the files of `all` again. New connections use the new certificates; open connections
    /// keep theirs.
    ///
    /// # Errors
    ///
    /// The first [`TlsError`]. All keep their old certificates then.
    pub fn reload(all: &[Self]) -> Result<(), TlsError> {
        let configs = all.iter().map(|tls| tls.files.config());
        let configs = configs.collect::<Result<Vec<_>, _>>()?;
        for (tls, config) in all.iter().zip(configs) {
            tls.config.store(Arc::new(config));
        }
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }
}

impl Files {
    fn config(&self) -> Result<ServerConfig, TlsError> {
        let chain = certificates(&self.cert)?;
        let key = private_key(&self.key)?;
        let unfit = |error| TlsError::Unfit { path: self.cert.clone(), error };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unfit)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|error| TlsError::Verifier { path: path.clone(), error })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(unfit)?;
        config.alpn_protocols.clone_from(&self.offers);
        Ok(config)
    }
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| TlsError::Unfit { path: path.to_owned(), error })?;
    }
    Ok(roots)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let read = PrivateKeyDer::from_pem_file(path);
    read.map_err(|error| TlsError::File { path: path.to_owned(), error })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error| TlsError::File { path: path.to_owned(), error };
    let all = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(unreadable)?;
    if all.is_empty() {
        return Err(TlsError::Empty(path.to_owned()));
    }
    Ok(all)
}

/// Returns the name of a certificate's owner: its first DNS name.
pub(super) fn identity(certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_dns_names().next().map(Arc::from)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// Each fault has a message: a file that is cut off, one that is not PEM, and one without the
    /// expected item.
    #[test]
    fn unreadable_pem_is_described() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pem");
        let described = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Tls::read(&path, &path, None, &[]).unwrap_err().to_string()
        };
        let cut = described("-----BEGIN CERTIFICATE-----\nMIIB\n");
        assert!(
            cut.ends_with(
                "x.pem: the file is cut off: the line \"-----END CERTIFICATE-----\" is missing"
            ),
            "{cut}"
        );
        let other = described("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n");
        assert!(other.ends_with("is not base64"), "{other}");
        let start = described("-----BEGIN CERT\n");
        assert!(start.contains("this line is not PEM: \"-----BEGIN CERT"), "{start}");
        assert!([cut, other, start].iter().all(|described| !described.contains('[')));
    }

    #[test]
    fn all_have_new_certificates_or_none_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            let cert = params.self_signed(&key).unwrap();
            std::fs::write(path(&format!("{name}.pem")), cert.pem()).unwrap();
            std::fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        };
        ["a", "b"].into_iter().for_each(write);
        let all = ["a", "b"].map(|name| {
            let [cert, key] = ["pem", "key"].map(|end| path(&format!("{name}.{end}")));
            Tls::read(&cert, &key, None, &[]).unwrap()
        });
        let of = || [0, 1].map(|nth: usize| all[nth].config.load_full());
        let same = |one: &[Arc<ServerConfig>; 2], other: &[Arc<ServerConfig>; 2]| {
            [0, 1].map(|nth: usize| Arc::ptr_eq(&one[nth], &other[nth]))
        };
        let before = of();
        write("a");
        std::fs::write(path("b.key"), "no key").unwrap();
        assert!(matches!(Tls::reload(&all), Err(TlsError::File { .. })));
        assert_eq!(same(&before, &of()), [true, true]);
        write("b");
        Tls::reload(&all).unwrap();
        assert_eq!(same(&before, &of()), [false, false]);
    }
}
