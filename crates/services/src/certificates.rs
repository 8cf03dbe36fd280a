//! Certificates of a test's own.

use crate::Failure;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::path::{Path, PathBuf};

/// A certificate authority with a server's and a client's certificate, as PEM files.
///
/// The server's is good for `localhost` and `127.0.0.1`, and for no other name. The stranger's
/// client certificate is signed by an authority that the server does not know.
#[derive(Debug)]
pub struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// Makes them and writes them into `directory`, which must exist.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn write(directory: &Path) -> Result<Self, Failure> {
        let certificates = Self { directory: directory.to_owned() };
        let ours = Authority::new("Test authority")?;
        let theirs = Authority::new("Another authority")?;
        certificates.file("ca.crt", &ours.certificate)?;
        certificates.file("other-ca.crt", &theirs.certificate)?;
        let names = ["localhost", "127.0.0.1"];
        certificates.signed("server", &ours, &names)?;
        certificates.signed("client", &ours, &["client"])?;
        certificates.signed("stranger", &theirs, &["client"])?;
        Ok(certificates)
    }

    /// The authority that signed the server's and the client's certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// An authority that signed neither.
    #[must_use]
    pub fn other_ca(&self) -> PathBuf {
        self.directory.join("other-ca.crt")
    }

    /// The server's certificate and its key.
    #[must_use]
    pub fn server(&self) -> (PathBuf, PathBuf) {
        self.pair("server")
    }

    /// The client's certificate and its key.
    #[must_use]
    pub fn client(&self) -> (PathBuf, PathBuf) {
        self.pair("client")
    }

    /// A certificate and a key that the server must refuse.
    #[must_use]
    pub fn stranger(&self) -> (PathBuf, PathBuf) {
        self.pair("stranger")
    }

    fn pair(&self, who: &str) -> (PathBuf, PathBuf) {
        let file = |end| self.directory.join(format!("{who}.{end}"));
        (file("crt"), file("key"))
    }

    fn signed(&self, who: &str, by: &Authority, names: &[&str]) -> Result<(), Failure> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().map_err(no_certificate)?;
        let mut asked = CertificateParams::new(names).map_err(no_certificate)?;
        asked.distinguished_name.push(DnType::CommonName, who);
        let certificate = asked.signed_by(&key, &by.issuer).map_err(no_certificate)?;
        self.file(&format!("{who}.crt"), &certificate.pem())?;
        self.file(&format!("{who}.key"), &key.serialize_pem())
    }

    fn file(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.directory.join(name);
        let wrote = std::fs::write(&path, text);
        wrote.map_err(|why| Failure::because(format!("cannot write {}", path.display()), why))
    }
}

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Result<Self, Failure> {
        let mut asked = CertificateParams::default();
        asked.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        asked.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        asked.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().map_err(no_certificate)?;
        let certificate = asked.self_signed(&key).map_err(no_certificate)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(asked, key) })
    }
}

fn no_certificate(why: rcgen::Error) -> Failure {
    Failure::because("no certificate could be made", why)
}
