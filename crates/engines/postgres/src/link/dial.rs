//! Opens a stream to the server, with TLS.
//!
//! TLS is negotiated here, not by the client crate, so that errors have the same text as in all
//! engines.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use holdline_core::{Certainty, LockError};
use holdline_net::socket;
use holdline_net::tls::{TlsContext, TlsFiles};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::binding::BoundStream;
use crate::error::{ENGINE, of_handshake, plain, refused, unavailable};
use crate::options::{Address, PostgresOptions};

/// The SSLRequest message: its length, and its code.
const TLS_WANTED: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
const TLS: TlsContext = TlsContext { engine: ENGINE, without: "sslmode=disable" };

/// Opens a stream.
pub(super) async fn dial(options: &PostgresOptions) -> Result<BoundStream, LockError> {
    let address = options.address();
    let failed = |error: io::Error| not_reached(address, &error);
    let (host, port) = match address {
        Address::Unix(directory, port) => {
            let path: PathBuf = Address::socket(directory, *port);
            let stream = socket::connect_unix(path).await.map_err(failed)?;
            return Ok(BoundStream::unbound(stream));
        }
        Address::Tcp { host, port } => (host, *port),
    };
    let dialled = options.host_to_dial(host);
    let stream = socket::connect(&dialled, port).await.map_err(failed)?;
    match options.tls() {
        None => Ok(BoundStream::unbound(stream)),
        Some(files) => with_tls(stream, host, files).await,
    }
}

async fn with_tls(
    mut stream: TcpStream,
    host: &str,
    files: &TlsFiles,
) -> Result<BoundStream, LockError> {
    let broke = |error: io::Error| {
        let message = format!("the server broke off when it was asked for TLS: {error}");
        unavailable(message, Certainty::NotApplied)
    };
    stream.write_all(&TLS_WANTED).await.map_err(broke)?;
    // One byte, and no more: what follows belongs to the handshake.
    match stream.read_u8().await.map_err(broke)? {
        b'S' => {
            let stream = TLS.wrap(stream, host, files).await?;
            let certificates = stream.get_ref().1.peer_certificates();
            let certificate =
                certificates.and_then(|chain| chain.first()).map(|first| first.to_vec());
            Ok(BoundStream::of_certificate(stream, certificate.as_deref()))
        }
        _ => Err(refused("the server does not speak TLS: write `sslmode=disable`")),
    }
}

/// Converts a failed sign-in. The server rejects a client certificate only after the TLS handshake.
pub(super) fn refusal(error: &tokio_postgres::Error, options: &PostgresOptions) -> LockError {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    match (cause, options.tls(), options.address()) {
        (Some(cause), Some(files), Address::Tcp { host, .. }) => TLS.failure(cause, host, files),
        // The stream did not break, and the server reported no error: the client crate refused.
        (None, ..) if options.requires_binding() && error.as_db_error().is_none() => {
            refused(format!("`channel_binding=require` is not met: {}", plain(error)))
        }
        _ => of_handshake(error),
    }
}

fn not_reached(address: &Address, error: &io::Error) -> LockError {
    let what = match (address, error.kind()) {
        (_, io::ErrorKind::ConnectionRefused) => "nobody listens there",
        (Address::Unix(..), io::ErrorKind::NotFound) => "there is no such socket",
        (_, io::ErrorKind::PermissionDenied) => "we may not open it",
        _ => "cannot connect",
    };
    unavailable(format!("{address}: {what}: {error}"), Certainty::NotApplied)
}
