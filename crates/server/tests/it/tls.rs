//! TLS and client certificates, as an engine sees them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use holdline_http::{HttpEngine, HttpOptions};
use holdline_server::{Server, ServerConfig};
use holdline_services::Certificates;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::ground::{DEADLINE, request, store};
use crate::rights::{S3CRET, config};

struct Files(std::path::PathBuf, Certificates);

impl Files {
    fn new(name: &str) -> Files {
        let directory = std::env::temp_dir().join(format!("hl-tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("made");
        let certificates = Certificates::write(&directory).expect("written");
        Files(directory, certificates)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn serve(config: &str) -> SocketAddr {
    let config = ServerConfig::from_toml(config).expect("good");
    let config = config.with_listen(SocketAddr::from(([127, 0, 0, 1], 0)));
    let server =
        Server::bind(store().await.admin().engine().clone(), &config).await.expect("listens");
    let address = server.address().expect("an address");
    tokio::spawn(server.run(std::future::pending()));
    address
}

fn tls(certificates: &Certificates, client_ca: bool) -> String {
    let (cert, key) = certificates.server();
    let client_ca = match client_ca {
        true => format!("client_ca = \"{}\"\n", certificates.ca().display()),
        false => String::new(),
    };
    let (cert, key) = (cert.display(), key.display());
    format!("[server.tls]\ncert = \"{cert}\"\nkey = \"{key}\"\n{client_ca}")
}

async fn connect(url: String) -> Result<(), String> {
    let options = HttpOptions::from_url(&url).map_err(|error| error.to_string())?;
    HttpEngine::connect(&options).await.map(drop).map_err(|error| error.to_string())
}

fn with_pair(url: &str, (cert, key): (impl AsRef<Path>, impl AsRef<Path>)) -> String {
    format!("{url}&cert={}&key={}", cert.as_ref().display(), key.as_ref().display())
}

#[tokio::test]
async fn the_server_shows_its_certificate() {
    let files = Files::new("one");
    let address = serve(&tls(&files.1, false)).await;
    let at = |scheme: &str| format!("{scheme}://localhost:{}", address.port());
    connect(format!("{}?ca={}", at("https"), files.1.ca().display())).await.expect("connects");
    let other = format!("{}?ca={}", at("https"), files.1.other_ca().display());
    let error = connect(other).await.expect_err("another authority");
    assert!(error.contains("not from the authority"), "{error}");
    connect(at("http")).await.expect_err("no TLS");
}

#[tokio::test]
async fn a_client_without_a_good_certificate_gets_nothing() {
    let files = Files::new("two");
    let address = serve(&(tls(&files.1, true) + &owner("CN=client", r#"["view"]"#, ""))).await;
    let url = format!("https://localhost:{}?ca={}", address.port(), files.1.ca().display());
    connect(with_pair(&url, files.1.client())).await.expect("a good certificate");
    connect(url.clone()).await.expect_err("no certificate");
    connect(with_pair(&url, files.1.stranger())).await.expect_err("a stranger's");
}

/// An entry for the client's certificate.
fn owner(subject: &str, rights: &str, more: &str) -> String {
    format!(
        "[[server.certificates]]\nname = \"build\"\nsubject = \"{subject}\"\n\
         rights = {rights}\n{more}\n"
    )
}

/// Sends one request with the client's certificate; returns the status and the rest.
async fn ask(
    address: SocketAddr,
    files: &Files,
    method: &str,
    path: &str,
    headers: &str,
) -> (u16, String) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(files.1.ca()).expect("a certificate")).expect("good");
    let (cert, key) = files.1.client();
    let chain = vec![CertificateDer::from_pem_file(cert).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    let tls = ClientConfig::builder().with_root_certificates(roots);
    let tls = tls.with_client_auth_cert(chain, key).expect("a pair");
    let stream = TcpStream::connect(address).await.expect("connects");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.expect("TLS");
    let headers = format!("Connection: close\r\n{headers}");
    stream.write_all(request(method, path, &headers, "").as_bytes()).await.expect("sent");
    let mut answer = String::new();
    // An end without a farewell is an end too.
    let _ = stream.read_to_string(&mut answer).await;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status: {answer:?}")), answer)
}

const TOKEN: &str = "Authorization: Bearer s3cret\r\n";

#[tokio::test]
async fn leaving_the_token_out_never_widens_what_a_client_may() {
    let files = Files::new("three");
    let token = config("ci", S3CRET, r#"["view", "lock"]"#, r#"prefixes = ["ci/"]"#);
    let address = serve(&(tls(&files.1, true) + &token)).await;
    assert_eq!(ask(address, &files, "POST", "/v1/locks/prod", TOKEN).await.0, 403);
    assert_eq!(ask(address, &files, "POST", "/v1/locks/ci%2Fa", TOKEN).await.0, 200);
    assert_eq!(ask(address, &files, "POST", "/v1/locks/prod", "").await.0, 401, "no token");
}

#[tokio::test]
async fn a_certificate_is_an_identity_by_its_names() {
    let files = Files::new("four");
    let by_san =
        owner("CN=client", r#"["view", "lock"]"#, "san = \"DNS:CLIENT\"\nprefixes = [\"ci/\"]");
    let address = serve(&(tls(&files.1, true) + &by_san)).await;
    let answer = ask(address, &files, "POST", "/v1/locks/ci%2Fa", "").await;
    assert_eq!(answer.0, 200, "{answer:?}");
    assert_eq!(ask(address, &files, "POST", "/v1/locks/prod", "").await.0, 403);
    let other = tls(&files.1, true) + &owner("CN=other", r#"["admin"]"#, "");
    let address = serve(&other).await;
    assert_eq!(ask(address, &files, "POST", "/v1/locks/a", "").await.0, 401, "no entry names it");
}

#[tokio::test]
async fn a_client_with_a_certificate_and_a_token_may_what_both_may() {
    let files = Files::new("five");
    let token = config("ci", S3CRET, r#"["lock", "operate"]"#, r#"prefixes = ["ci/", "x"]"#);
    let build = owner("CN=client", r#"["view", "lock"]"#, r#"prefixes = ["ci/a"]"#);
    let address = serve(&(tls(&files.1, true) + &token + &build)).await;
    for (method, path, headers, status) in [
        ("POST", "/v1/locks/ci%2Fa", TOKEN, 200),
        ("POST", "/v1/locks/ci%2Fb", TOKEN, 403),
        ("POST", "/v1/locks/x", TOKEN, 403),
        ("GET", "/v1/locks/ci%2Fa", TOKEN, 403),
        ("GET", "/v1/locks/ci%2Fa", "", 200),
        ("DELETE", "/v1/locks/ci%2Fa/freeze", TOKEN, 403),
        ("GET", "/v1/locks/ci%2Fa", "Authorization: Bearer other\r\n", 401),
    ] {
        let answer = ask(address, &files, method, path, headers).await;
        assert_eq!(answer.0, status, "{method} {path} {headers}: {answer:?}");
    }
}

#[tokio::test]
async fn files_that_change_are_in_use_without_a_signal() {
    let files = Files::new("six");
    let address = serve(&(tls(&files.1, true) + &owner("CN=client", r#"["view"]"#, ""))).await;
    let url = format!("https://localhost:{}?ca={}", address.port(), files.1.ca().display());
    connect(with_pair(&url, files.1.client())).await.expect("the first ones");
    // A key without its certificate: what a slow writer leaves for a while.
    std::fs::copy(files.1.client().1, files.1.server().1).expect("written");
    connect(with_pair(&url, files.1.client())).await.expect("still the first ones");
    let old_ca = std::fs::read(files.1.ca()).expect("there");
    Certificates::write(&files.0).expect("all of another authority");
    let renewed = async {
        while connect(with_pair(&url, files.1.client())).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await; // event: can only be asked
        }
    };
    tokio::time::timeout(DEADLINE, renewed).await.expect("the new ones, in time");
    let kept = files.0.join("old-ca.crt");
    std::fs::write(&kept, old_ca).expect("written");
    let url = format!("https://localhost:{}?ca={}", address.port(), kept.display());
    connect(with_pair(&url, files.1.client())).await.expect_err("the old ones are gone");
}
