//! TLS on both sides, with rustls: our certificate for clients, the system's roots for upstreams.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::validity::{self, Lapse};

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds no certificate or key.
    #[error("{file}: {why}")]
    File {
        /// Which.
        file: String,
        /// Why.
        why: String,
    },
    /// The certificate and the key do not fit, or no root could be loaded.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// Accepts TLS with this certificate chain and key, both PEM; HTTP/2 and HTTP/1.1.
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, no_key(key, &error)))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                bad(key, format!("this key does not belong to the certificate in {}", certificate.display()))
            }
            error => TlsError::Setup(format!("{} with {}: {error}", certificate.display(), key.display())),
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Why clients will not take the certificate in a file now, if they will not. What cannot be read is told by [`acceptor`].
#[allow(
    clippy::disallowed_methods,
    reason = "a certificate holds by the wall clock; nothing is decided by it"
)]
pub fn lapsed(certificate: &Path) -> Option<Lapse> {
    let leaf = certificates(certificate).ok()?.into_iter().next()?;
    validity::lapse(&leaf, std::time::SystemTime::now())
}

fn bad(file: &Path, why: String) -> TlsError {
    TlsError::File { file: file.display().to_string(), why }
}

/// All certificates of a file; at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found =
        found.map_err(|error| bad(file, format!("no certificate could be read: {}", why_unread(&error))))?;
    if found.is_empty() {
        let why = "it holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)";
        return Err(bad(file, why.to_owned()));
    }
    Ok(found)
}

/// Why no key could be read. One that is locked looks like none at all.
fn no_key(file: &Path, error: &pem::Error) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    match error {
        _ if text.contains("ENCRYPTED") => {
            "the private key is encrypted, and nobody is here to type its passphrase; store it without one, readable by this user \
             only: openssl pkey -in KEY -out PLAIN"
                .to_owned()
        }
        pem::Error::NoItemsFound => {
            "it holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)".to_owned()
        }
        error => format!("no private key could be read: {}", why_unread(error)),
    }
}

fn why_unread(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::MissingSectionEnd { .. } => "it is cut short: a section has no end".to_owned(),
        pem::Error::Base64Decode(_) | pem::Error::IllegalSectionStart { .. } => "it is damaged".to_owned(),
        other => other.to_string(),
    }
}

/// Connects with TLS: the system's roots, and those of a file where one is given.
pub fn connector(more_roots: Option<&Path>) -> Result<TlsConnector, TlsError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(file) = more_roots {
        for root in certificates(file)? {
            roots.add(root).map_err(|error| bad(file, error.to_string()))?;
        }
    }
    if roots.is_empty() {
        let why = system.errors.first().map_or_else(|| "none were found".to_owned(), ToString::to_string);
        return Err(TlsError::Setup(format!("no root certificates of this system could be loaded: {why}")));
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::Setup(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
