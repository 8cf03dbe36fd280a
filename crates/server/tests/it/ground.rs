//! A running server and a client that speaks HTTP/1.1 by hand, so that a test can break off at any
//! byte.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdline::Client;
use holdline_server::{Reloader, Server, ServerConfig};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Long enough for any machine; reached only by a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A running server.
pub(crate) struct Ground {
    pub(crate) client: Client,
    pub(crate) address: SocketAddr,
    health_address: Option<SocketAddr>,
    pub(crate) reloader: Reloader,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
}

/// What the server has answered.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Response {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A text of the body.
    /// Returns the fencing token of a lease.
    pub(crate) fn token(&self) -> u64 {
        let token = self.json()["fencing_token"].as_u64();
        token.unwrap_or_else(|| panic!("no number: {self:?}"))
    }

    pub(crate) fn text(&self, field: &str) -> String {
        self.json()[field].as_str().unwrap_or_else(|| panic!("no {field}: {self:?}")).to_owned()
    }
}

/// A store that no other test has.
pub(crate) async fn store() -> Client {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Client::connect(&format!("memory:ground-{number}")).await.expect("connects")
}

impl Ground {
    pub(crate) async fn start() -> Ground {
        Ground::with("").await
    }

    /// A server with these settings.
    pub(crate) async fn with(config: &str) -> Ground {
        Ground::on(store().await, config).await
    }

    /// One more server of the same store.
    pub(crate) async fn on(client: Client, config: &str) -> Ground {
        Ground::of(client, Vec::new(), config).await
    }

    /// A server of several stores.
    pub(crate) async fn of(client: Client, others: Vec<(&str, Client)>, config: &str) -> Ground {
        let config = ServerConfig::from_toml(config).expect("a good configuration");
        let config = config.with_listen(SocketAddr::from(([127, 0, 0, 1], 0)));
        let named =
            |(name, client): (&str, Client)| (name.to_owned(), client.admin().engine().clone());
        let others = others.into_iter().map(named).collect();
        let server = Server::bind_stores(client.admin().engine().clone(), others, &config).await;
        let server = server.expect("listens");
        let address = server.address().expect("an address");
        let (health_address, reloader) = (server.health_address(), server.reloader());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async {
            // A ground that was dropped stops too.
            let _ = stopped.await;
        }));
        let (stop, running) = (Some(stop), Some(running));
        Ground { client, address, health_address, reloader, stop, running }
    }

    /// Stops the server as SIGTERM does, and waits for its end.
    pub(crate) async fn stop(&mut self) {
        drop(self.stop.take());
        let running = self.running.take().expect("it runs");
        timeout(DEADLINE, running).await.expect("it ends").expect("without a panic");
    }

    /// Sends the server the signal to stop, and waits for nothing.
    pub(crate) fn signal_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops the server as SIGKILL does: nothing more is sent or answered.
    pub(crate) fn cut(&mut self) {
        self.running.take().expect("it runs").abort();
    }

    pub(crate) async fn open(&self) -> Connection {
        Ground::connect(self.address).await
    }

    /// Connects to this server, or to what stands before it.
    pub(crate) async fn connect(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).await.expect("connects");
        Connection(BufReader::new(stream))
    }

    /// Connects with little room for what is not read yet.
    pub(crate) async fn open_with_small_buffer(&self) -> Connection {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(32 * 1024).expect("set");
        let stream = socket.connect(self.address).await.expect("connects");
        Connection(BufReader::new(stream))
    }

    /// Connects from another address of this machine.
    pub(crate) async fn open_from(&self, from: [u8; 4]) -> Connection {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from((from, 0))).expect("ours");
        let stream = socket.connect(self.address).await.expect("connects");
        Connection(BufReader::new(stream))
    }

    /// Connects to the port of the probes.
    pub(crate) async fn open_probe(&self) -> Connection {
        let address = self.health_address.expect("it has a port for probes");
        Connection(BufReader::new(TcpStream::connect(address).await.expect("connects")))
    }

    /// Sends one request on a connection of its own.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> Response {
        self.ask_with(method, path, "", body).await
    }

    /// The same with more headers, each of them ended by a line break.
    pub(crate) async fn ask_with(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> Response {
        let mut connection = self.open().await;
        connection.send(&request(method, path, headers, body)).await;
        connection.response().await
    }

    /// Acquires, and returns the lease.
    pub(crate) async fn acquire(&self, name: &str, body: &str) -> Value {
        let response = self.ask("POST", &format!("/v1/locks/{name}"), body).await;
        assert_eq!(response.status, 200, "{response:?}");
        response.json()
    }

    /// Asks again until the store has come back.
    pub(crate) async fn ask_through_outage(&self, method: &str, path: &str) -> Response {
        self.ask_with_through_outage(method, path, "").await
    }

    /// Asks until the server has noticed how its store stands.
    pub(crate) async fn until_ready_is(&self, path: &str, status: u16) -> Response {
        let noticed = async {
            loop {
                let response = self.ask("GET", path, "").await;
                if response.status == status {
                    return response;
                }
                tokio::time::sleep(Duration::from_millis(50)).await; // event: can only be asked
            }
        };
        timeout(DEADLINE, noticed).await.expect("it is noticed")
    }

    /// The same with a body.
    pub(crate) async fn ask_with_through_outage(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Response {
        let answered = async {
            loop {
                let response = self.ask(method, path, body).await;
                if response.status != 503 {
                    return response;
                }
                tokio::time::sleep(Duration::from_millis(50)).await; // event: can only be asked
            }
        };
        timeout(DEADLINE, answered).await.expect("the store comes back")
    }

    /// Waits until this many wait for a name.
    pub(crate) async fn until_waiting(&self, name: &str, count: usize) {
        let name = holdline::LockName::new(name).expect("a good name");
        let waits = async {
            while self.client.admin().inspect(&name).await.expect("a store").queue_length != count {
                tokio::time::sleep(Duration::from_millis(5)).await; // event: can only be looked at
            }
        };
        timeout(DEADLINE, waits).await.unwrap_or_else(|_| panic!("never {count} waiting"));
    }
}

/// The bytes of a request.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}{headers}Content-Length: \
         {length}\r\n\r\n{body}"
    )
}

/// A connection.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("sent");
    }

    /// The end of the connection will be a reset.
    pub(crate) fn reset_on_drop(&self) {
        let linger = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(self.0.get_ref(), linger).expect("set");
    }

    /// The client's end.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.get_ref().local_addr().expect("an address")
    }

    /// Reads one line; an empty one at the end of the connection.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = timeout(DEADLINE, self.0.read_line(&mut line)).await.expect("a line in time");
        // A reset is an end too.
        let _ = read;
        line
    }

    /// Reads the status and the headers.
    pub(crate) async fn head(&mut self) -> (u16, String) {
        let first = self.line().await;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {first:?}"));
        let mut headers = String::new();
        loop {
            let line = self.line().await;
            if line.trim().is_empty() {
                return (status, headers.to_ascii_lowercase());
            }
            headers.push_str(&line);
        }
    }

    /// Reads a response that has a length.
    pub(crate) async fn response(&mut self) -> Response {
        let (status, headers) = self.head().await;
        let length = headers.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.trim().parse().expect("a number"));
        let mut body = vec![0; length];
        timeout(DEADLINE, self.0.read_exact(&mut body)).await.expect("in time").expect("whole");
        Response { status, headers, body: String::from_utf8(body).expect("text") }
    }

    /// Reads exactly so many bytes.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        timeout(DEADLINE, self.0.read_exact(&mut bytes)).await.expect("in time").expect("sent");
        bytes
    }

    /// Waits until the server closes the connection; returns what it has said until then.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset is an end too.
        let _ = timeout(DEADLINE, self.0.read_to_end(&mut rest)).await.expect("an end in time");
        String::from_utf8_lossy(&rest).into_owned()
    }
}
