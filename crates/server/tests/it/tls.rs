//! TLS and client certificates, as an engine sees them.

use std::net::SocketAddr;
use std::path::Path;

use holdline_http::{HttpEngine, HttpOptions};
use holdline_server::{Server, ServerConfig};
use holdline_services::Certificates;

use crate::ground::store;

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
    let address = server.address();
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
    let address = serve(&tls(&files.1, true)).await;
    let url = format!("https://localhost:{}?ca={}", address.port(), files.1.ca().display());
    connect(with_pair(&url, files.1.client())).await.expect("a good certificate");
    connect(url.clone()).await.expect_err("no certificate");
    connect(with_pair(&url, files.1.stranger())).await.expect_err("a stranger's");
}
