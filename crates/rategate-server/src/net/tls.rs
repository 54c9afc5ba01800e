//! TLS for a listener: a certificate, and if clients need one too, who signs theirs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

/// Certificates as files in PEM, read when the listener starts and again at each [`Tls::reload`]. Clones are the same.
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
    /// Protocols that are offered to choose from (ALPN), the favourite first.
    offers: Vec<Vec<u8>>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is no PEM.
    #[error("{}: {}", path.display(), of_pem(error))]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: pem::Error,
    },
    /// A file has no certificate in it.
    #[error("{}: there is no certificate in it", .0.display())]
    Empty(PathBuf),
    /// What is in the files does not fit together.
    #[error("{}: {error}", path.display())]
    Unfit {
        /// The certificate's file.
        path: PathBuf,
        /// Why.
        error: rustls::Error,
    },
    /// Nobody's certificates could be checked with it.
    #[error("{}: {error}", path.display())]
    Verifier {
        /// The file of those who sign.
        path: PathBuf,
        /// Why.
        error: rustls::server::VerifierBuilderError,
    },
}

/// What is wrong with a file in PEM, without the bytes of it.
fn of_pem(error: &pem::Error) -> String {
    let text = |bytes: &[u8]| {
        let text: String = String::from_utf8_lossy(bytes).chars().take(MAX_MARKER).collect();
        text.escape_debug().to_string()
    };
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("it is cut off: there is no line \"-----END {}-----\"", text(end_marker))
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("it is no PEM from this line on: \"{}\"", text(line))
        }
        pem::Error::Base64Decode(_) => "what is between its BEGIN and END is no base64".to_owned(),
        pem::Error::NoItemsFound => {
            "there is nothing in it that is wanted: a private key, or a certificate".to_owned()
        }
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        other => other.to_string(),
    }
}

/// More of a line is not told.
const MAX_MARKER: usize = 64;

impl Tls {
    /// Reads a chain of certificates, its key, and who signs the certificates of clients: given, each client has to have
    /// one. `offers` are the protocols to choose from, as HTTP has them.
    ///
    /// # Errors
    ///
    /// [`TlsError`], with the file's name.
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

    /// Reads the files of all these again. Connections from now on see the new ones; those that are open go on as they are.
    ///
    /// # Errors
    ///
    /// [`TlsError`] of the first that is wrong; all have the old ones then.
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
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| TlsError::File { path: self.key.clone(), error })?;
        let unfit = |error| TlsError::Unfit { path: self.cert.clone(), error };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unfit)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots
                        .add(certificate)
                        .map_err(|error| TlsError::Unfit { path: path.clone(), error })?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
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

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error| TlsError::File { path: path.to_owned(), error };
    let all = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(unreadable)?;
    if all.is_empty() {
        return Err(TlsError::Empty(path.to_owned()));
    }
    Ok(all)
}

/// By what name a certificate knows its owner: the first of its DNS names.
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

    /// Each is told in words: a file that is cut, one of something else, and one without what is wanted.
    #[test]
    fn what_is_wrong_with_a_file_is_told_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pem");
        let told = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Tls::read(&path, &path, None, &[]).unwrap_err().to_string()
        };
        let cut = told("-----BEGIN CERTIFICATE-----\nMIIB\n");
        assert!(
            cut.ends_with("x.pem: it is cut off: there is no line \"-----END CERTIFICATE-----\""),
            "{cut}"
        );
        let other = told("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n");
        assert!(other.ends_with("is no base64"), "{other}");
        let start = told("-----BEGIN CERT\n");
        assert!(start.contains("it is no PEM from this line on: \"-----BEGIN CERT"), "{start}");
        assert!([cut, other, start].iter().all(|told| !told.contains('[')));
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
