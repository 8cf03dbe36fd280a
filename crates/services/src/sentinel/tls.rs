//! TLS among servers and Sentinels of a group.

use crate::scratch::Scratch;
use crate::{Certificates, Failure};

/// The certificates that all of a group share.
#[derive(Debug)]
pub(super) struct Tls {
    pub(super) certificates: Certificates,
    _directory: Scratch,
}

impl Tls {
    pub(super) fn new() -> Result<Self, Failure> {
        let directory = Scratch::new("group")?;
        Ok(Self { certificates: Certificates::write(directory.path())?, _directory: directory })
    }

    pub(super) fn lines(&self) -> [String; 5] {
        let (certificate, key) = self.certificates.server();
        [
            "tls-replication yes".to_owned(),
            "tls-auth-clients no".to_owned(),
            format!("tls-cert-file {}", certificate.display()),
            format!("tls-key-file {}", key.display()),
            format!("tls-ca-cert-file {}", self.certificates.ca().display()),
        ]
    }
}
