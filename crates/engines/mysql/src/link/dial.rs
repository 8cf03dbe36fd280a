//! Opening a stream to the server, and signing in on it.
//!
//! The server speaks first, in the clear; TLS comes before the user's name. The greeting is spoken
//! here and not by the client crate, which has TLS settings and roots of its own: so each way to
//! fail has the words that it has in all engines.
//!
//! Invariant D1: a password leaves us only as the answer to a challenge, or, as it is, inside TLS
//! or a unix socket.

use std::io;

use holdline_core::{Certainty, LockError};
use holdline_net::socket;
use holdline_net::tls::{Speaker, TlsFiles};
use holdline_net::url::Server;
use mysql_common::constants::CapabilityFlags as Can;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{
    AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse, SslRequest,
};
use mysql_common::proto::MySerialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use super::wire::{complaint, read_one, write_one};
use crate::error::{ENGINE, Failed, of_greeting, refused, unavailable};
use crate::options::{Address, MysqlOptions};

const SPEAKER: Speaker = Speaker { engine: ENGINE, without: "sslmode=disable" };
/// What we tell the server that we take: more than any answer of ours has.
const LARGEST: u32 = 16 << 20;
const UTF8MB4: u8 = 45;
/// The form of a server's version that our packets need; all since 2010 have it.
const MODERN: (u16, u16, u16) = (5, 5, 3);

/// A stream of bytes in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// A connection that is signed in.
pub(super) struct Opened {
    pub(super) stream: Box<dyn Stream>,
    /// The number of the connection, as whoever greeted us has told it.
    pub(super) number: u32,
}

/// What the server said first.
struct Greeting {
    number: u32,
    nonce: Vec<u8>,
    can: Can,
    plugin: AuthPlugin<'static>,
}

/// Opens a stream and signs in.
pub(super) async fn open(options: &MysqlOptions) -> Result<Opened, LockError> {
    let address = options.address();
    let failed = |error: io::Error| not_reached(address, &error);
    match (address, options.tls()) {
        (Address::Unix(path), _) => {
            let mut stream = UnixStream::connect(path).await.map_err(failed)?;
            let (number, greeting) = greeting(&mut stream).await?;
            sign_in(Box::new(stream), number, greeting, true, options).await
        }
        (Address::Tcp(Server { host, port }), None) => {
            let mut stream = socket::connect(host, *port).await.map_err(failed)?;
            let (number, greeting) = greeting(&mut stream).await?;
            sign_in(Box::new(stream), number, greeting, false, options).await
        }
        (Address::Tcp(Server { host, port }), Some(files)) => {
            let mut stream = socket::connect(host, *port).await.map_err(failed)?;
            let (number, greeting) = greeting(&mut stream).await?;
            if !greeting.can.contains(Can::CLIENT_SSL) {
                return Err(refused("the server does not speak TLS: write `sslmode=disable`"));
            }
            let wish = SslRequest::new(flags(true), LARGEST, UTF8MB4);
            let mut body = Vec::new();
            wish.serialize(&mut body);
            write_one(&mut stream, number.wrapping_add(1), &body).await.map_err(|e| broke(&e))?;
            let stream = SPEAKER.wrap(stream, host, files).await?;
            let number = number.wrapping_add(1);
            sign_in(Box::new(stream), number, greeting, true, options).await
        }
    }
}

/// Reads the server's first words.
async fn greeting(stream: &mut (impl AsyncRead + Unpin)) -> Result<(u8, Greeting), LockError> {
    let (number, body) = read_one(stream).await.map_err(|error| broke(&error))?;
    if body.first() == Some(&0xff) {
        return Err(of_greeting(&Failed::Server(complaint(&body))));
    }
    let odd = || unavailable("what listens there is no MariaDB server", Certainty::NotApplied);
    // Who reads it takes the length of the nonce for a small number.
    let end_of_version = body.iter().skip(1).position(|byte| *byte == 0);
    if end_of_version.and_then(|at| body.get(at + 22)).is_some_and(|length| *length >= 0x80) {
        return Err(odd());
    }
    let packet = ParseBuf(&body).parse::<HandshakePacket<'_>>(()).map_err(|_| odd())?;
    let mut nonce = packet.scramble_1_ref().to_vec();
    nonce.extend_from_slice(packet.scramble_2_ref().unwrap_or_default());
    nonce.resize(20, 0);
    let plugin = match packet.auth_plugin() {
        Some(AuthPlugin::CachingSha2Password) => AuthPlugin::CachingSha2Password,
        // Whatever the server prefers, it asks for what the account needs in a moment.
        _ => AuthPlugin::MysqlNativePassword,
    };
    let greeting =
        Greeting { number: packet.connection_id(), nonce, can: packet.capabilities(), plugin };
    Ok((number, greeting))
}

fn flags(tls: bool) -> Can {
    let mut flags = Can::CLIENT_PROTOCOL_41
        | Can::CLIENT_LONG_PASSWORD
        | Can::CLIENT_TRANSACTIONS
        | Can::CLIENT_SECURE_CONNECTION
        | Can::CLIENT_PLUGIN_AUTH
        | Can::CLIENT_CONNECT_WITH_DB
        | Can::CLIENT_MULTI_RESULTS;
    flags.set(Can::CLIENT_SSL, tls);
    flags
}

/// Says who we are. `private` is whether nobody else reads the stream.
async fn sign_in(
    mut stream: Box<dyn Stream>,
    number: u8,
    greeting: Greeting,
    private: bool,
    options: &MysqlOptions,
) -> Result<Opened, LockError> {
    let password = options.password().expose();
    let proof = greeting.plugin.gen_data(password, &greeting.nonce);
    let tls = options.tls().is_some();
    let response = HandshakeResponse::new(
        proof.as_deref().map(<[u8]>::to_vec),
        MODERN,
        Some(options.user().as_bytes()),
        Some(options.database().as_bytes()),
        Some(greeting.plugin.borrow()),
        flags(tls) & (greeting.can | Can::CLIENT_CONNECT_WITH_DB | Can::CLIENT_LONG_PASSWORD),
        None,
        LARGEST,
    );
    let mut body = Vec::new();
    response.serialize(&mut body);
    let lost = |error: io::Error| match (options.tls(), options.address()) {
        (Some(files), Address::Tcp(Server { host, .. })) => rejected(&error, host, files),
        _ => broke(&error),
    };
    write_one(&mut stream, number.wrapping_add(1), &body).await.map_err(lost)?;
    let mut talk = Talk { stream: &mut stream, plugin: greeting.plugin.clone(), private };
    talk.until_let_in(password, &lost).await?;
    Ok(Opened { stream, number: greeting.number })
}

/// What is said between our name and the door.
struct Talk<'a> {
    stream: &'a mut Box<dyn Stream>,
    plugin: AuthPlugin<'static>,
    private: bool,
}

impl Talk<'_> {
    async fn until_let_in(
        &mut self,
        password: Option<&str>,
        lost: &impl Fn(io::Error) -> LockError,
    ) -> Result<(), LockError> {
        // A server that asks on and on is none.
        for _ in 0..8 {
            let (number, body) = read_one(self.stream).await.map_err(lost)?;
            let answer = match body.as_slice() {
                [0, ..] => return Ok(()),
                [0xff, ..] => return Err(of_greeting(&Failed::Server(complaint(&body)))),
                [0xfe, _, ..] => self.switched(&body, password)?,
                // The server remembers the password: it lets us in by the proof.
                [1, 3] => continue,
                [1, 4] if self.private => {
                    let mut plain = password.unwrap_or_default().as_bytes().to_vec();
                    plain.push(0);
                    plain
                }
                [1, 4] => {
                    return Err(refused(
                        "the account's password may not travel in the clear: write \
                         `sslmode=verify-full`",
                    ));
                }
                _ => return Err(unheard("asks for something unknown")),
            };
            write_one(self.stream, number.wrapping_add(1), &answer).await.map_err(lost)?;
        }
        Err(unheard("asks for ever"))
    }

    /// The account is kept by another plugin than the server thought.
    fn switched(&mut self, body: &[u8], password: Option<&str>) -> Result<Vec<u8>, LockError> {
        let odd = |_| unheard("asks for something unknown");
        let wish = ParseBuf(body).parse::<AuthSwitchRequest<'_>>(()).map_err(odd)?;
        let plugin = wish.auth_plugin().clone().into_owned();
        match plugin {
            AuthPlugin::MysqlNativePassword | AuthPlugin::CachingSha2Password => {}
            other => {
                let name = String::from_utf8_lossy(other.as_bytes()).into_owned();
                return Err(refused(format!(
                    "the account is kept by `{name}`, which we do not speak: let it be \
                     `mysql_native_password`"
                )));
            }
        }
        self.plugin = plugin;
        let nonce = wish.plugin_data();
        let nonce = nonce.strip_suffix(&[0]).unwrap_or(nonce);
        let proof = self.plugin.gen_data(password, nonce);
        Ok(proof.as_deref().map(<[u8]>::to_vec).unwrap_or_default())
    }
}

fn unheard(what: &str) -> LockError {
    let message = format!("the server {what} while we sign in");
    unavailable(message, Certainty::NotApplied)
}

fn broke(error: &io::Error) -> LockError {
    let message = format!("the server broke the connection off: {error}");
    unavailable(message, Certainty::NotApplied)
}

/// Whether the server accepts our certificate it tells only after the handshake.
fn rejected(error: &io::Error, host: &str, files: &TlsFiles) -> LockError {
    SPEAKER.failure(error, host, files)
}

fn not_reached(address: &Address, error: &io::Error) -> LockError {
    let what = match (address, error.kind()) {
        (_, io::ErrorKind::ConnectionRefused) => "nobody listens there",
        (Address::Unix(_), io::ErrorKind::NotFound) => "there is no such socket",
        (_, io::ErrorKind::PermissionDenied) => "we may not open it",
        _ => "cannot connect",
    };
    unavailable(format!("{address}: {what}: {error}"), Certainty::NotApplied)
}
