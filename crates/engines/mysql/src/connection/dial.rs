//! Opens a stream to the server and signs in on it.
//!
//! The server speaks first, in plaintext; TLS comes before the user's name. The initial handshake
//! is handled here and not by the client crate, which has TLS settings and roots of its own. So
//! errors have the same text as in all engines.
//!
//! Invariant D1: a password is sent only as the reply to a challenge, or in plaintext inside TLS or
//! a unix socket.

use std::io;

use holdline_core::{Certainty, LockError};
use holdline_net::socket::{self, ByteStream};
use holdline_net::tls::{TlsContext, TlsFiles};
use holdline_net::url::Server;
use mysql_common::constants::CapabilityFlags as Can;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{
    AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse, SslRequest,
};
use mysql_common::proto::MySerialize;
use tokio::io::AsyncRead;

use super::wire::{complaint, read_one, write_one};
use crate::error::{ENGINE, Failed, of_handshake, refused, unavailable};
use crate::options::{Address, MysqlOptions};

const TLS: TlsContext = TlsContext { engine: ENGINE, without: "sslmode=disable" };
/// The packet size that we announce: larger than any reply.
const LARGEST: u32 = 16 << 20;
const UTF8MB4: u8 = 45;
/// The length of the challenge that the plugin `client_ed25519` signs.
const ED25519_NONCE: usize = 32;
/// The form of a server's version that our packets need; all since 2010 have it.
const MODERN: (u16, u16, u16) = (5, 5, 3);

/// A connection that is signed in.
pub(crate) struct Opened {
    pub(crate) stream: Box<dyn ByteStream>,
    /// The connection id from the initial handshake.
    pub(crate) number: u32,
}

/// The server's initial handshake.
struct InitialHandshake {
    number: u32,
    nonce: Vec<u8>,
    can: Can,
    plugin: AuthPlugin<'static>,
}

/// Opens a stream and signs in.
pub(crate) async fn open(options: &MysqlOptions) -> Result<Opened, LockError> {
    let address = options.address();
    let failed = |error: io::Error| not_reached(address, &error);
    match (address, options.tls()) {
        (Address::Unix(path), _) => {
            let mut stream = socket::connect_unix(path).await.map_err(failed)?;
            let (number, initial) = initial(&mut stream).await?;
            sign_in(Box::new(stream), number, initial, true, options).await
        }
        (Address::Tcp(Server { host, port }), None) => {
            let mut stream = socket::connect(host, *port).await.map_err(failed)?;
            let (number, initial) = initial(&mut stream).await?;
            sign_in(Box::new(stream), number, initial, false, options).await
        }
        (Address::Tcp(Server { host, port }), Some(files)) => {
            let mut stream = socket::connect(host, *port).await.map_err(failed)?;
            let (number, initial) = initial(&mut stream).await?;
            if !initial.can.contains(Can::CLIENT_SSL) {
                return Err(refused("the server does not speak TLS: write `sslmode=disable`"));
            }
            let request = SslRequest::new(flags(true), LARGEST, UTF8MB4);
            let mut body = Vec::new();
            request.serialize(&mut body);
            write_one(&mut stream, number.wrapping_add(1), &body).await.map_err(|e| broke(&e))?;
            let stream = TLS.wrap(stream, host, files).await?;
            let number = number.wrapping_add(1);
            sign_in(Box::new(stream), number, initial, true, options).await
        }
    }
}

/// Reads the server's initial handshake.
async fn initial(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<(u8, InitialHandshake), LockError> {
    let (number, body) = read_one(stream).await.map_err(|error| broke(&error))?;
    if body.first() == Some(&0xff) {
        return Err(of_handshake(&Failed::Server(complaint(&body))));
    }
    let odd = || unavailable("what listens there is no MariaDB server", Certainty::NotApplied);
    // The parser expects a small number as the length of the nonce.
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
        // The server may prefer another plugin; it then requests the one of the account.
        _ => AuthPlugin::MysqlNativePassword,
    };
    let initial = InitialHandshake {
        number: packet.connection_id(),
        nonce,
        can: packet.capabilities(),
        plugin,
    };
    Ok((number, initial))
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

/// Sends user and password proof. `private` is whether the stream is encrypted or local.
async fn sign_in(
    mut stream: Box<dyn ByteStream>,
    number: u8,
    initial: InitialHandshake,
    private: bool,
    options: &MysqlOptions,
) -> Result<Opened, LockError> {
    let password = options.password().read().await;
    let password = password.as_deref();
    let proof = initial.plugin.gen_data(password, &initial.nonce);
    let tls = options.tls().is_some();
    let response = HandshakeResponse::new(
        proof.as_deref().map(<[u8]>::to_vec),
        MODERN,
        Some(options.user().as_bytes()),
        Some(options.database().as_bytes()),
        Some(initial.plugin.borrow()),
        flags(tls) & (initial.can | Can::CLIENT_CONNECT_WITH_DB | Can::CLIENT_LONG_PASSWORD),
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
    let mut authentication =
        Authentication { stream: &mut stream, plugin: initial.plugin.clone(), private };
    authentication.until_let_in(password, &lost).await?;
    Ok(Opened { stream, number: initial.number })
}

/// The authentication exchange, from the user's name to the server's OK.
struct Authentication<'a> {
    stream: &'a mut Box<dyn ByteStream>,
    plugin: AuthPlugin<'static>,
    private: bool,
}

impl Authentication<'_> {
    async fn until_let_in(
        &mut self,
        password: Option<&str>,
        lost: &impl Fn(io::Error) -> LockError,
    ) -> Result<(), LockError> {
        // A server that keeps requesting is faulty.
        for _ in 0..8 {
            let (number, body) = read_one(self.stream).await.map_err(lost)?;
            let answer = match body.as_slice() {
                [0, ..] => return Ok(()),
                [0xff, ..] => return Err(of_handshake(&Failed::Server(complaint(&body)))),
                [0xfe, _, ..] => self.switched(&body, password)?,
                // The server has cached the password and accepts the proof.
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
                _ => return Err(unexpected("sent an unknown authentication request")),
            };
            write_one(self.stream, number.wrapping_add(1), &answer).await.map_err(lost)?;
        }
        Err(unexpected("did not end the authentication"))
    }

    /// Switches to the authentication plugin of the account.
    fn switched(&mut self, body: &[u8], password: Option<&str>) -> Result<Vec<u8>, LockError> {
        let odd = |_| unexpected("sent an unknown authentication request");
        let request = ParseBuf(body).parse::<AuthSwitchRequest<'_>>(()).map_err(odd)?;
        let plugin = request.auth_plugin().clone().into_owned();
        match plugin {
            AuthPlugin::MysqlNativePassword
            | AuthPlugin::CachingSha2Password
            | AuthPlugin::Ed25519 => {}
            other => {
                let name = String::from_utf8_lossy(other.as_bytes()).into_owned();
                return Err(refused(format!(
                    "the account is kept by `{name}`, which we do not speak: let it be \
                     `mysql_native_password` or `ed25519`"
                )));
            }
        }
        self.plugin = plugin;
        let nonce = request.plugin_data();
        let nonce = match self.plugin {
            AuthPlugin::Ed25519 => ed25519_nonce(body)?,
            _ => nonce.strip_suffix(&[0]).unwrap_or(nonce),
        };
        let proof = self.plugin.gen_data(password, nonce);
        Ok(proof.as_deref().map(<[u8]>::to_vec).unwrap_or_default())
    }
}

/// Returns the challenge from a request for the plugin `client_ed25519`. The parser of requests
/// removes a zero at the end, which may be a part of this one.
fn ed25519_nonce(body: &[u8]) -> Result<&[u8], LockError> {
    let end_of_name = body.iter().position(|byte| *byte == 0);
    let nonce = end_of_name.and_then(|at| body.get(at + 1..at + 1 + ED25519_NONCE));
    nonce.ok_or_else(|| unexpected("sent a challenge for ed25519 that is too short"))
}

fn unexpected(what: &str) -> LockError {
    let message = format!("the server {what}");
    unavailable(message, Certainty::NotApplied)
}

fn broke(error: &io::Error) -> LockError {
    let message = format!("the server broke the connection off: {error}");
    unavailable(message, Certainty::NotApplied)
}

/// Converts a failed sign-in. The server rejects a client certificate only after the TLS handshake.
fn rejected(error: &io::Error, host: &str, files: &TlsFiles) -> LockError {
    TLS.failure(error, host, files)
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
