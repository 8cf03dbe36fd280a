//! Opens sessions, and ends those of others.
//!
//! A client that knows a session's number and password may use it. The servers do not draw that
//! password: each of them computes it from the number, so that it need not be stored. So do we.

use crate::Failure;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What the servers mix into the number.
const SECRET: u64 = 0xB341_5C00;
const PASSWORD: usize = 16;
const CLOSE_SESSION: i32 = -11;
/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The password of a session: the bytes of Java's generator of random numbers, begun with the
/// number.
fn password(session: u64) -> [u8; PASSWORD] {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = (session ^ SECRET ^ MULTIPLIER) & MASK;
    let mut password = [0; PASSWORD];
    for part in password.chunks_exact_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        // The upper 32 of the 48 bits, the lowest byte first.
        part.copy_from_slice(&u32::try_from(state >> 16).unwrap_or_default().to_le_bytes());
    }
    password
}

/// Opens a session that lasts as long as one can; returns its number.
pub(super) fn open(server: SocketAddr) -> Result<u64, Failure> {
    let opened = connect(server, 0, [0; PASSWORD]);
    let (_, session) = opened.map_err(|why| Failure::because("no session is available", why))?;
    Ok(session)
}

/// Takes a session over by a connection of its own, and closes it; returns whether there was one.
pub(super) fn end(server: SocketAddr, session: u64) -> Result<bool, Failure> {
    let goodbye = [1_i32.to_be_bytes(), CLOSE_SESSION.to_be_bytes()].concat();
    let exchange = || -> std::io::Result<u64> {
        let (mut stream, taken) = connect(server, session, password(session))?;
        if taken == session {
            stream.write_all(&framed(&goodbye))?;
            // The rest of the first answer, that to the farewell, and the end.
            stream.read_to_end(&mut Vec::new())?;
        }
        Ok(taken)
    };
    let taken = exchange();
    let taken = taken
        .map_err(|why| Failure::because(format!("session {session:#x} cannot be ended"), why))?;
    Ok(taken == session)
}

/// Says what a client says first; returns the number of the session that is given.
fn connect(
    server: SocketAddr,
    session: u64,
    password: [u8; PASSWORD],
) -> std::io::Result<(TcpStream, u64)> {
    let mut hello = Vec::new();
    hello.extend(0_i32.to_be_bytes());
    hello.extend(0_i64.to_be_bytes());
    hello.extend(i32::MAX.to_be_bytes());
    hello.extend(session.to_be_bytes());
    hello.extend(16_i32.to_be_bytes());
    hello.extend(password);
    hello.push(0);
    let mut stream = TcpStream::connect_timeout(&server, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(&framed(&hello))?;
    // How long it is, the version, how long the session lasts; then its number.
    let mut answer = [0; 4 + 4 + 4 + 8];
    stream.read_exact(&mut answer)?;
    let [.., a, b, c, d, e, f, g, h] = answer;
    Ok((stream, u64::from_be_bytes([a, b, c, d, e, f, g, h])))
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = i32::try_from(message.len()).unwrap_or_default();
    [&length.to_be_bytes()[..], message].concat()
}

/// The numbers of the sessions with nodes below a path, as the command `dump` reports them.
pub(super) fn with_nodes_below(dump: &str, path: &str) -> Vec<u64> {
    let (_, nodes) = dump.split_once("Sessions with Ephemerals").unwrap_or_default();
    let mut found = Vec::new();
    let mut session = None;
    for line in nodes.lines().map(str::trim) {
        if let Some(number) = line.strip_prefix("0x").and_then(|rest| rest.strip_suffix(':')) {
            session = u64::from_str_radix(number, 16).ok();
        } else if line.starts_with(path)
            && let Some(number) = session.take()
        {
            found.push(number);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_names_the_sessions_of_nodes() {
        let dump = "SessionTracker dump:\nSession Sets (1)/(2):\n1 expire at x:\n\t0x9\n\
                    ephemeral nodes dump:\nSessions with Ephemerals (2):\n0x1a:\n\t/a/b\n\t/a/c\n\
                    0x2b:\n\t/other\nConnections dump:\n";
        assert_eq!(with_nodes_below(dump, "/a"), [0x1a]);
        assert_eq!(with_nodes_below(dump, "/"), [0x1a, 0x2b]);
        assert!(with_nodes_below("", "/").is_empty());
    }
}
