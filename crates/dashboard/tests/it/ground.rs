//! A running server with the dashboard, and a client that speaks HTTP/1.1 by hand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdline::{Client, redlock};
use holdline_server::{Server, ServerConfig};
use holdline_services::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Long enough for any machine; reached only by a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// `echo -n s3cret | sha256sum`, and of `other`.
pub(crate) const S3CRET: &str = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";
pub(crate) const OTHER: &str = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";

/// A token of the server's configuration.
pub(crate) fn token(name: &str, digest: &str, rights: &str, more: &str) -> String {
    format!(
        "[[server.tokens]]\nname = \"{name}\"\nsha256 = \"{digest}\"\nrights = {rights}\n{more}\n"
    )
}

/// A URL of these servers, which are one set that needs no wait.
pub(crate) async fn a_set(servers: &[RedisServer]) -> String {
    let addresses: Vec<_> = servers.iter().map(|one| one.address().to_string()).collect();
    let url = format!("redlock://{}", addresses.join(","));
    let admin = redlock::admin(&url).expect("a good URL");
    admin.init().await.expect("a set");
    let confirmed = admin.plan_vouch().await.expect("they answer");
    assert!(admin.vouch(&confirmed).await.expect("it takes effect").works());
    url
}

/// A running server.
pub(crate) struct Ground {
    pub(crate) client: Client,
    pub(crate) address: SocketAddr,
    running: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

/// What the server has answered.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Response {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The token of the page's forms.
    pub(crate) fn form_token(&self) -> String {
        let (_, rest) = self.body.split_once("name=\"form_token\" value=\"").expect("a form");
        rest.split('"').next().expect("a value").to_owned()
    }
}

/// A store that no other test has.
pub(crate) async fn store() -> Client {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Client::connect(&format!("memory:dashboard-{number}")).await.expect("connects")
}

impl Ground {
    pub(crate) async fn start() -> Ground {
        Ground::of(store().await, Vec::new(), "").await
    }

    /// A server with these settings.
    pub(crate) async fn with(config: &str) -> Ground {
        Ground::of(store().await, Vec::new(), config).await
    }

    /// A server of several stores.
    pub(crate) async fn of(client: Client, others: Vec<(&str, Client)>, config: &str) -> Ground {
        Ground::serve(client, others, &BTreeMap::new(), config).await
    }

    /// A server of the stores with these names and URLs, the default one first.
    pub(crate) async fn of_urls(stores: &[(&str, &str)], config: &str) -> Ground {
        let mut clients = Vec::new();
        for (name, url) in stores {
            clients.push((*name, Client::connect(url).await.expect("connects")));
        }
        let (_, first) = clients.remove(0);
        let urls = stores.iter().map(|(name, url)| ((*name).to_owned(), (*url).to_owned()));
        Ground::serve(first, clients, &urls.collect(), config).await
    }

    async fn serve(
        client: Client,
        others: Vec<(&str, Client)>,
        urls: &BTreeMap<String, String>,
        config: &str,
    ) -> Ground {
        let config = ServerConfig::from_toml(config).expect("a good configuration");
        let config = config.with_listen(SocketAddr::from(([127, 0, 0, 1], 0)));
        let named =
            |(name, client): (&str, Client)| (name.to_owned(), client.admin().engine().clone());
        let others = others.into_iter().map(named).collect();
        let server = Server::bind_stores(client.admin().engine().clone(), others, &config).await;
        let server = holdline_dashboard::mount(server.expect("listens"), urls);
        let address = server.address().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Ground { client, address, running, stop: Some(stop) }
    }

    /// Stops the server, and waits for its end.
    pub(crate) async fn stop(&mut self) {
        self.stop.take();
        timeout(DEADLINE, &mut self.running).await.expect("it ends").expect("no panic");
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.get_with(path, "").await
    }

    /// The same with more headers, each of them ended by a line break.
    pub(crate) async fn get_with(&self, path: &str, headers: &str) -> Response {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}"), "").await
    }

    /// Sends a form.
    pub(crate) async fn post(&self, path: &str, headers: &str, form: &str) -> Response {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Type: \
             application/x-www-form-urlencoded\r\nContent-Length: {}\r\n",
            form.len()
        );
        self.ask(&head, form).await
    }

    async fn ask(&self, head: &str, body: &str) -> Response {
        let mut stream = TcpStream::connect(self.address).await.expect("connects");
        let request = format!("{head}Connection: close\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("in time").expect("whole");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let (status, headers) = (status.expect("a status"), headers.to_owned());
        Response { status, headers, body: body.to_owned() }
    }

    /// Reads the beginning of a stream until it contains a text.
    pub(crate) async fn follow(&self, path: &str, until: &str) -> String {
        self.open(path, until).await.0
    }

    /// The same; the stream stays open.
    pub(crate) async fn open(&self, path: &str, until: &str) -> (String, TcpStream) {
        let mut stream = TcpStream::connect(self.address).await.expect("connects");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut text = String::new();
        let reads = async {
            let mut buffer = [0; 1024];
            while !text.contains(until) {
                let count = stream.read(&mut buffer).await.expect("reads");
                assert!(count > 0, "the stream ended: {text}");
                text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        };
        timeout(DEADLINE, reads).await.expect("in time");
        (text, stream)
    }

    /// Loads a page until it shows a text: the next look at the store shows it.
    pub(crate) async fn until(&self, path: &str, shows: &str) -> Response {
        let loads = async {
            loop {
                let response = self.get(path).await;
                assert_eq!(response.status, 200, "{response:?}");
                if response.body.contains(shows) {
                    return response;
                }
                tokio::time::sleep(Duration::from_millis(50)).await; // event: can only be asked
            }
        };
        let loaded = timeout(DEADLINE, loads).await;
        loaded.unwrap_or_else(|_| panic!("{path} never shows {shows:?}"))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.running.abort();
    }
}
