//! TLS by rustls with ring: the provider is passed in by us, since a process may hold several.
//!
//! The server's name is always checked, and its certificate against `ca`, or against the
//! machine's list. Each way to fail has a message of its own that says what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdline_core::{Certainty, ErrorKind, LockError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, RootCertStore, crypto,
};

use crate::error::{ENGINE, unavailable};
use crate::files::read_pem;
use crate::options::{RedisOptions, TlsFiles};

/// Where machines keep the list of authorities that they trust; `SSL_CERT_FILE` comes first.
const MACHINES_LISTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Does the handshake on a stream.
pub(super) async fn wrap<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    host: &str,
    options: &RedisOptions,
) -> Result<TlsStream<S>, LockError> {
    // Files are read at each dial, so that a renewed certificate is taken up.
    let config = config(options.tls())?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| refused(format!("'{host}' cannot stand in a certificate")))?;
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    handshake.await.map_err(|error| failure(&error, host, options.tls()))
}

fn config(files: &TlsFiles) -> Result<ClientConfig, LockError> {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots(files)?);
    let (Some(cert), Some(key)) = (&files.cert, &files.key) else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(cert)?;
    let key_bytes =
        read_pem(key).map_err(|error| refused(format!("{}: {error}", key.display())))?;
    let key_bytes = PrivateKeyDer::from_pem_slice(&key_bytes)
        .map_err(|error| refused(format!("{}: no private key: {error}", key.display())))?;
    builder.with_client_auth_cert(chain, key_bytes).map_err(|error| {
        let (cert, key) = (cert.display(), key.display());
        refused(format!("{cert} and {key} do not go together: {error}"))
    })
}

fn roots(files: &TlsFiles) -> Result<RootCertStore, LockError> {
    let file = match &files.ca {
        Some(ca) => ca.clone(),
        None => machines_list()?,
    };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(&file)?);
    if added == 0 {
        return Err(refused(format!("{}: holds no certificate", file.display())));
    }
    Ok(roots)
}

fn machines_list() -> Result<PathBuf, LockError> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let mut places = named.into_iter().chain(MACHINES_LISTS.map(PathBuf::from));
    places.find(|place| place.is_file()).ok_or_else(|| {
        refused("this machine has no list of authorities: name the server's by `ca`".to_owned())
    })
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, LockError> {
    let bytes = read_pem(file).map_err(|error| refused(format!("{}: {error}", file.display())))?;
    match CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
        Ok(found) if found.is_empty() => {
            Err(refused(format!("{}: holds no certificate", file.display())))
        }
        other => other.map_err(|error| refused(format!("{}: {error}", file.display()))),
    }
}

fn refused(message: String) -> LockError {
    LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
}

/// What a failed handshake, or a stream that broke right after it, tells the user.
pub(super) fn failure(error: &io::Error, host: &str, files: &TlsFiles) -> LockError {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return unavailable(broke_off(error, files), Certainty::NotApplied);
    };
    refused(format!("{} ({tls})", meaning(tls, host, files)))
}

fn meaning(error: &Error, host: &str, files: &TlsFiles) -> String {
    use AlertDescription as Alert;
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => match files.ca {
            Some(_) => "the server's certificate is not from the authority in `ca`".to_owned(),
            None => "this machine does not know who signed the server's certificate: name the \
                     authority by `ca`"
                .to_owned(),
        },
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("the server's certificate is not for '{host}'"),
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "the server's certificate has expired".to_owned(),
        Error::InvalidCertificate(_) => "the server's certificate is not good".to_owned(),
        Error::InvalidMessage(_) => {
            "the server does not speak TLS on this port: write `redis://`".to_owned()
        }
        Error::AlertReceived(Alert::CertificateRequired | Alert::HandshakeFailure)
            if files.cert.is_none() =>
        {
            "the server wants a client certificate: set `cert` and `key`".to_owned()
        }
        Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::DecryptError,
        ) => "the server does not accept our certificate in `cert`".to_owned(),
        _ => "the TLS handshake failed".to_owned(),
    }
}

fn broke_off(error: &io::Error, files: &TlsFiles) -> String {
    let hint = match files.cert {
        None => ": it may want a client certificate (`cert` and `key`)",
        Some(_) => ": it may not accept the certificate in `cert`",
    };
    format!("the server broke the TLS handshake off{hint} ({error})")
}
