//! TLS of the server by rustls with ring.
//!
//! - L1: files that changed are read again within seconds, without a signal: an image without a
//!   shell has nobody who sends one. Each new connection has the newest files that fit together.
//! - L2: files that are wrong, or half written, change nothing. The log says so once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection, crypto};

use crate::certificate::Certificate;
use crate::config::{ConfigError, TlsConfig};

/// How often the files are compared with what is in use.
const LOOK: Duration = Duration::from_secs(2);

/// The certificates in use. Clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct Tls(Arc<RwLock<Option<InUse>>>);

#[derive(Clone)]
struct InUse {
    files: TlsConfig,
    /// Of the files when they were read last, whether they were good or not.
    digest: Option<[u8; 32]>,
    config: Arc<ServerConfig>,
}

/// What the files hold.
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl Tls {
    /// Reads the files; without any, connections are not encrypted.
    pub(crate) fn read(files: Option<&TlsConfig>) -> Result<Tls, ConfigError> {
        let in_use = files.map(InUse::read).transpose()?;
        Ok(Tls(Arc::new(RwLock::new(in_use))))
    }

    /// Takes over what another one has read.
    pub(crate) fn replace(&self, other: &Tls) {
        let in_use = other.0.read().clone();
        *self.0.write() = in_use;
    }

    /// Returns the newest certificates; `None` without TLS.
    pub(crate) fn current(&self) -> Option<Arc<ServerConfig>> {
        self.0.read().as_ref().map(|in_use| in_use.config.clone())
    }

    /// Reads files that change. Runs as long as the server.
    pub(crate) async fn follow(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let tls = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || tls.look()).await {
                tracing::error!(%error, "the files of TLS were not looked at");
            }
        }
    }

    fn look(&self) {
        let Some(known) = self.0.read().clone() else { return };
        let contents = Contents::read(&known.files);
        let digest = contents.as_ref().ok().map(Contents::digest);
        if digest == known.digest {
            return;
        }
        let mut next = known.clone();
        next.digest = digest;
        match contents.and_then(|contents| contents.config(&known.files)) {
            Ok(config) => {
                tracing::info!("the files of TLS have changed, and are in use");
                next.config = config;
            }
            Err(error) => {
                tracing::warn!(%error, "the files of TLS have changed, and are not used");
            }
        }
        let mut in_use = self.0.write();
        // New settings may name other files meanwhile: then these do not count.
        if in_use.as_ref().is_some_and(|now| Arc::ptr_eq(&now.config, &known.config)) {
            *in_use = Some(next);
        }
    }
}

impl InUse {
    fn read(files: &TlsConfig) -> Result<InUse, ConfigError> {
        let contents = Contents::read(files)?;
        let digest = Some(contents.digest());
        Ok(InUse { files: files.clone(), digest, config: contents.config(files)? })
    }
}

impl Contents {
    fn read(files: &TlsConfig) -> Result<Contents, ConfigError> {
        let read = |file: &Path| std::fs::read(file).map_err(|error| at(file, error));
        Ok(Contents {
            cert: read(&files.cert)?,
            key: read(&files.key)?,
            client_ca: files.client_ca.as_deref().map(read).transpose()?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for content in [&self.cert, &self.key, self.client_ca.as_ref().unwrap_or(&Vec::new())] {
            digest.update(Sha256::digest(content));
        }
        digest.finalize().into()
    }

    fn config(&self, files: &TlsConfig) -> Result<Arc<ServerConfig>, ConfigError> {
        let provider = Arc::new(crypto::ring::default_provider());
        let chain = certificates(&files.cert, &self.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| at(&files.key, format_args!("no private key: {error}")))?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| ConfigError::new(format_args!("tls: {error}")))?;
        let builder = match (&files.client_ca, &self.client_ca) {
            (Some(file), Some(authority)) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(file, authority)? {
                    roots.add(certificate).map_err(|error| at(file, error))?;
                }
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = verifier.build().map_err(|error| at(file, error))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| at(&files.cert, format_args!("does not fit its key: {error}")))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Returns the names of the client's certificate. The handshake has checked its signature.
pub(crate) fn certificate_of(connection: &ServerConnection) -> Option<Certificate> {
    let shown = connection.peer_certificates()?.first()?;
    let certificate = Certificate::read(shown);
    if certificate.is_none() {
        tracing::warn!("a client certificate has a form that cannot be read: it identifies nobody");
    }
    certificate
}

fn certificates(file: &Path, content: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(content)
        .collect::<Result<_, _>>()
        .map_err(|error| at(file, error))?;
    if certificates.is_empty() {
        return Err(at(file, "holds no certificate"));
    }
    Ok(certificates)
}

fn at(file: &Path, error: impl std::fmt::Display) -> ConfigError {
    ConfigError::new(format_args!("{}: {error}", file.display()))
}
