//! TLS of the server by rustls with ring.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection, crypto};

use crate::certificate::Certificate;
use crate::config::{ConfigError, TlsConfig};

/// Reads the files of TLS.
pub(crate) fn server(files: &TlsConfig) -> Result<Arc<ServerConfig>, ConfigError> {
    let provider = Arc::new(crypto::ring::default_provider());
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| at(&files.key, format_args!("no private key: {error}")))?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::new(format_args!("tls: {error}")))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(authority)? {
                roots.add(certificate).map_err(|error| at(authority, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.build().map_err(|error| at(authority, error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| at(&files.cert, format_args!("does not fit its key: {error}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the names of the client's certificate. The handshake has checked its signature.
pub(crate) fn certificate(connection: &ServerConnection) -> Option<Certificate> {
    let shown = connection.peer_certificates()?.first()?;
    let certificate = Certificate::read(shown);
    if certificate.is_none() {
        tracing::warn!("a client certificate has a form that cannot be read: it identifies nobody");
    }
    certificate
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| at(file, error))?;
    let certificates: Vec<_> =
        certificates.collect::<Result<_, _>>().map_err(|error| at(file, error))?;
    match certificates.is_empty() {
        true => Err(at(file, "holds no certificate")),
        false => Ok(certificates),
    }
}

fn at(file: &Path, error: impl std::fmt::Display) -> ConfigError {
    ConfigError::new(format_args!("{}: {error}", file.display()))
}
