//! TLS by rustls with ring. The provider is passed in explicitly, since a process may have several.
//!
//! Unless [`Verification`] says otherwise, the server's name is checked, and its certificate
//! against `ca`, or against the machine's list. Each kind of failure has a message of its own that
//! says what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdline_core::{Certainty, ErrorKind, LockError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError,
    RootCertStore, SignatureScheme,
};

use crate::der::{SEQUENCE, element};
use crate::files::read_pem;
use crate::url::Reader;

/// The paths of the list of trusted authorities; `SSL_CERT_FILE` comes first.
const SYSTEM_CA_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// How much of the server's certificate is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// The authority that signed it, and the server's name.
    #[default]
    Full,
    /// The authority only: any server with a certificate of this authority is accepted.
    Authority,
    /// Nothing. A certificate that would not pass is accepted with a warning.
    Off,
}

/// The files that TLS needs: the trusted authority, and the client's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority that signed the server's certificate; otherwise the machine's list.
    pub ca: Option<PathBuf>,
    /// The client's certificate, if any.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// How much of the server's certificate is checked.
    pub verification: Verification,
}

impl TlsFiles {
    /// Sets the file that a parameter of a URL names: `ca`, `cert` or `key`.
    pub fn set(&mut self, key: &str, file: impl Into<PathBuf>) {
        let field = match key {
            "ca" => &mut self.ca,
            "cert" => &mut self.cert,
            _ => &mut self.key,
        };
        *field = Some(file.into());
    }

    /// Checks that a certificate and its key are set together.
    ///
    /// # Errors
    /// `Invalid`: one of them is missing.
    pub fn validate(&self, url: Reader) -> Result<(), LockError> {
        if self.cert.is_some() != self.key.is_some() {
            return Err(url.bad("a client certificate needs both `cert` and `key`"));
        }
        Ok(())
    }
}

/// The engine that uses TLS, for error messages.
#[derive(Clone, Copy, Debug)]
pub struct TlsContext {
    /// The engine's short name.
    pub engine: &'static str,
    /// The scheme without TLS, such as `redis://`.
    pub without: &'static str,
}

impl TlsContext {
    /// Does the handshake on a stream.
    ///
    /// # Errors
    /// `Refused`: a file is wrong, or one side does not accept the other's certificate.
    /// `Unavailable`: the stream broke. Nothing was sent but the handshake.
    pub async fn wrap<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        stream: S,
        host: &str,
        files: &TlsFiles,
    ) -> Result<TlsStream<S>, LockError> {
        // Files are read at each connection, so that a renewed certificate is used.
        let config = config(files).map_err(|message| self.refused(message))?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| self.refused(format!("'{host}' cannot stand in a certificate")))?;
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
        handshake.await.map_err(|error| self.failure(&error, host, files))
    }

    /// Makes the error for a failed handshake, or for a stream that broke right after it.
    pub fn failure(self, error: &io::Error, host: &str, files: &TlsFiles) -> LockError {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(tls) => {
                let explain = explain(tls, host, files, self.without);
                self.refused(format!("{explain} ({tls})"))
            }
            None => {
                let kind = ErrorKind::Unavailable { message: handshake_broken(error, files) };
                LockError::new(self.engine, kind, Certainty::NotApplied)
            }
        }
    }

    /// Returns whether a server speaks TLS on this stream. Its certificate is not checked, and
    /// nothing but a handshake is sent.
    pub async fn speaks_tls<S: AsyncRead + AsyncWrite + Unpin>(stream: S, host: &str) -> bool {
        let files = TlsFiles { verification: Verification::Off, ..TlsFiles::default() };
        let Ok(config) = config(&files) else { return false };
        let Ok(name) = ServerName::try_from(host.to_owned()) else { return false };
        match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
            Ok(_) => true,
            Err(error) => {
                let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
                // A server that wants another version, or a certificate, says so in TLS.
                matches!(tls, Some(Error::AlertReceived(_) | Error::PeerIncompatible(_)))
            }
        }
    }

    /// Makes the error for a server that answers in clear text on a port where TLS is expected.
    pub fn no_tls(self) -> LockError {
        self.refused(no_tls(self.without))
    }

    fn refused(self, message: String) -> LockError {
        LockError::new(self.engine, ErrorKind::Refused { message }, Certainty::NotApplied)
    }
}

fn config(files: &TlsFiles) -> Result<ClientConfig, String> {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    let verifier = Arc::new(Verifier::new(files, provider)?);
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let (Some(cert), Some(key)) = (&files.cert, &files.key) else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(cert)?;
    let key_bytes = read_pem(key).map_err(|error| format!("{}: {error}", key.display()))?;
    let key_bytes = PrivateKeyDer::from_pem_slice(&key_bytes)
        .map_err(|error| format!("{}: no private key: {error}", key.display()))?;
    builder.with_client_auth_cert(chain, key_bytes).map_err(|error| {
        let cert = cert.display();
        let key = key.display();
        format!("{cert} and {key} do not go together: {error}")
    })
}

/// A certificate of version 1, which has no names that could be checked.
#[derive(Debug)]
struct VersionOne;

impl fmt::Display for VersionOne {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a certificate of version 1")
    }
}

impl std::error::Error for VersionOne {}

/// Checks a certificate as far as [`Verification`] says.
#[derive(Debug)]
struct Verifier {
    /// `None` if there is no authority to check against, and nothing is checked.
    strict: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    verification: Verification,
}

impl Verifier {
    fn new(files: &TlsFiles, provider: Arc<CryptoProvider>) -> Result<Verifier, String> {
        let verification = files.verification;
        let roots = match roots(files) {
            Ok(roots) => Some(roots),
            // Without a list of authorities there is nothing to warn about.
            Err(_) if verification == Verification::Off && files.ca.is_none() => None,
            Err(message) => return Err(message),
        };
        let strict = roots.map(|roots| {
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()
        });
        let strict = strict.transpose().map_err(|error| format!("`ca` is not usable: {error}"))?;
        Ok(Verifier { strict, provider, verification })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(strict) = &self.strict else { return Ok(ServerCertVerified::assertion()) };
        let checked =
            strict.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let Err(error) = checked else { return checked };
        let is_other_name = matches!(
            error,
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            )
        );
        match self.verification {
            Verification::Authority if is_other_name => Ok(ServerCertVerified::assertion()),
            Verification::Off => {
                tracing::warn!(
                    %error,
                    "anybody on the way can be this server: its certificate was not checked"
                );
                Ok(ServerCertVerified::assertion())
            }
            _ if is_version_one(end_entity) => {
                let version = OtherError(Arc::new(VersionOne));
                Err(Error::InvalidCertificate(CertificateError::Other(version)))
            }
            _ => Err(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns whether a certificate is of version 1: later ones begin with their version.
fn is_version_one(certificate: &[u8]) -> bool {
    let version_tag = 0xa0;
    let whole = element(certificate, SEQUENCE);
    let contents = whole.and_then(|whole| element(whole.value, SEQUENCE));
    contents.is_some_and(|contents| element(contents.value, version_tag).is_none())
}

fn roots(files: &TlsFiles) -> Result<RootCertStore, String> {
    let file = match &files.ca {
        Some(ca) => ca.clone(),
        None => system_ca_file()?,
    };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(&file)?);
    if added == 0 {
        return Err(format!("{}: holds no certificate", file.display()));
    }
    Ok(roots)
}

fn system_ca_file() -> Result<PathBuf, String> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let mut places = named.into_iter().chain(SYSTEM_CA_FILES.map(PathBuf::from));
    places.find(|place| place.is_file()).ok_or_else(|| {
        "this machine has no list of authorities: name the server's by `ca`".to_owned()
    })
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read_pem(file).map_err(|error| format!("{}: {error}", file.display()))?;
    match CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
        Ok(found) if found.is_empty() => Err(format!("{}: holds no certificate", file.display())),
        other => other.map_err(|error| format!("{}: {error}", file.display())),
    }
}

fn explain(error: &Error, host: &str, files: &TlsFiles, without: &str) -> String {
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
        Error::InvalidCertificate(CertificateError::Other(OtherError(other)))
            if other.is::<VersionOne>() =>
        {
            "the server's certificate is of version 1: make one of version 3, with the server's \
             name as a subject alternative name"
                .to_owned()
        }
        Error::InvalidCertificate(_) => "the server's certificate is not good".to_owned(),
        Error::InvalidMessage(_) => no_tls(without),
        // Java's servers call a missing certificate a bad one.
        Error::AlertReceived(
            Alert::CertificateRequired | Alert::HandshakeFailure | Alert::BadCertificate,
        ) if files.cert.is_none() => {
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

fn no_tls(without: &str) -> String {
    format!("the server does not speak TLS on this port: write `{without}`")
}

fn handshake_broken(error: &io::Error, files: &TlsFiles) -> String {
    let hint = match files.cert {
        None => ": it may want a client certificate (`cert` and `key`)",
        Some(_) => ": it may not accept the certificate in `cert`",
    };
    format!("the server broke the TLS handshake off{hint} ({error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An authority, and a certificate of version 1 that it signed for `localhost`, as
    /// `openssl x509 -req` makes one. Both are valid for a hundred years.
    const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBcjCCARegAwIBAgIUMXQ77BmqN/8ip3UgheBLg/ySxgkwCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTI5MTU0MjM1WhgPMjEyNjExMDUxNTQyMzVa
MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEZ1qz0uSN
xINzAPs7gadsBxlnw6vNNH/LrrrZ9bhRfua17dgee/+PpQz2Wcfovl31CbXs1C+Q
Ya88UqlfaAA3CKNTMFEwHQYDVR0OBBYEFBd3Qg3M+iRCpP2VFC4U141c9MvsMB8G
A1UdIwQYMBaAFBd3Qg3M+iRCpP2VFC4U141c9MvsMA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSQAwRgIhAOEoSlch7h3A+FoLj4yVfos4CKcxPQu9i+GmvFLy
xB1cAiEA24RHl4btPcj7oqWYourfV4mYwL8gMal8URMDQk62ELM=
-----END CERTIFICATE-----
";
    const VERSION_ONE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBHDCBxAIUQBBxEWXkmQupgRNom5R0rOuuQn4wCgYIKoZIzj0EAwIwDTELMAkG
A1UEAwwCY2EwIBcNMjYxMTI5MTU0MjM1WhgPMjEyNjExMDUxNTQyMzVaMBQxEjAQ
BgNVBAMMCWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFUxxyZe
qi+waBpioQrxRlbZBwq2zXCQNjeAPTFWVq/JMbZpXNa8CmjXzbnYenzkBwCNd3kv
jpQDkNbEb13shHMwCgYIKoZIzj0EAwIDRwAwRAIgVoKqR4jWcyBB4cxQ+xas1WNX
n5C+LjSUqhYzkdk2HFYCIGvSVnk3Jelqe7SWD7m+w4gYZMQ6A0uRwnMbCbw9FdqB
-----END CERTIFICATE-----
";

    #[test]
    fn a_certificate_of_version_1_is_called_that() {
        let file = std::env::temp_dir().join(format!("holdline-ca-{}", std::process::id()));
        std::fs::write(&file, AUTHORITY).expect("written");
        let provider = Arc::new(crypto::ring::default_provider());
        let end_entity = CertificateDer::from_pem_slice(VERSION_ONE.as_bytes()).expect("good");
        let name = ServerName::try_from("localhost").expect("good");
        for verification in [Verification::Full, Verification::Authority] {
            let files = TlsFiles { ca: Some(file.clone()), verification, ..TlsFiles::default() };
            let verifier = Verifier::new(&files, provider.clone()).expect("good");
            let checked =
                verifier.verify_server_cert(&end_entity, &[], &name, &[], UnixTime::now());
            let error = checked.expect_err("refused");
            let text = explain(&error, "localhost", &files, "x://");
            assert!(text.contains("is of version 1"), "{text} ({error})");
        }
        let authority = CertificateDer::from_pem_slice(AUTHORITY.as_bytes()).expect("good");
        assert!(is_version_one(&end_entity) && !is_version_one(&authority));
        assert!(!is_version_one(b"no certificate"));
        std::fs::remove_file(&file).expect("removed");
    }
}
