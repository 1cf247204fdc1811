//! TLS on both sides, with rustls: our certificate for clients, the system's roots for upstreams.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::{TlsAcceptor, TlsConnector};

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
    let bad = |file: &Path, why: String| TlsError::File { file: file.display().to_string(), why };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|e| bad(certificate, format!("no certificate could be read: {e}")))?;
    if chain.is_empty() {
        return Err(bad(certificate, "it holds no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|e| bad(key, format!("no private key could be read: {e}")))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|e| TlsError::Setup(e.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Connects with TLS: the system's roots, and those of a file where one is given.
pub fn connector(more_roots: Option<&Path>) -> Result<TlsConnector, TlsError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(file) = more_roots {
        let bad = |why: String| TlsError::File { file: file.display().to_string(), why };
        let more: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(file)
            .and_then(Iterator::collect)
            .map_err(|e| bad(format!("no certificate could be read: {e}")))?;
        for root in more {
            roots.add(root).map_err(|e| bad(e.to_string()))?;
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
