//! Servers of other versions. A proxy changes statements or answers to what those versions have,
//! since the tests have the server of one version only.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use holdline_core::{ErrorKind, Health, Purpose};
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::checkup::look;
use crate::support::{HOLD, connect, engine, let_go, queue, renew, request, take, url_at};

/// Statements begin with this byte.
const QUERY: u8 = 3;

/// Passes connections on to the server, and replaces texts in statements.
fn with_other_statements(
    server: SocketAddr,
    replaced: &'static [(&'static str, &'static str)],
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client?, TcpStream::connect(server)?);
            let (mut answers, mut answered) = (server.try_clone()?, client.try_clone()?);
            std::thread::spawn(move || {
                io::copy(&mut answers, &mut answered)?;
                answered.shutdown(std::net::Shutdown::Both)
            });
            std::thread::spawn(move || pass_statements(client, server, replaced));
        }
        io::Result::Ok(())
    });
    address
}

fn pass_statements(
    mut client: TcpStream,
    mut server: TcpStream,
    replaced: &[(&str, &str)],
) -> io::Result<()> {
    loop {
        let mut header = [0; 4];
        client.read_exact(&mut header)?;
        let [low, middle, high, number] = header;
        let mut body = vec![0; u32::from_le_bytes([low, middle, high, 0]) as usize];
        client.read_exact(&mut body)?;
        if number == 0 && body.first() == Some(&QUERY) {
            let text = String::from_utf8_lossy(&body).into_owned();
            body = replaced.iter().fold(text, |text, (old, new)| text.replace(old, new)).into();
        }
        let [low, middle, high, _] = u32::try_from(body.len()).unwrap_or(0).to_le_bytes();
        server.write_all(&[low, middle, high, number])?;
        server.write_all(&body)?;
    }
}

/// There `read_only` is a text, and variables that were replaced long ago may be gone.
const OF_TWELVE: [(&str, &str); 4] = [
    ("@@global.read_only", "if(@@global.read_only, 'NO_LOCK', 'OFF')"),
    ("version()", "'12.1.2-MariaDB'"),
    ("tx_read_only", "variable_that_is_gone"),
    ("tx_isolation", "variable_that_is_gone"),
];

#[tokio::test]
async fn a_server_of_version_12_keeps_locks_and_is_refused_while_read_only() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_fsync());
    let url = url_at(with_other_statements(server.address(), &OF_TWELVE));
    let (one, other) = (connect(&url).await.expect("let in"), engine(&server).await);
    let (held, waits) = (request("a"), request("a"));
    take(&one, &held).await;
    queue(&other, &waits).await;
    renew(&one, &held, Purpose::Keep(HOLD)).await.expect("renewed");
    let_go(&one, &held).await;
    take(&other, &waits).await;
    let found = look(&url).await;
    assert_eq!(found.health(), Health::Ok, "{found:?}");
    server.sql("set global read_only = 1");
    let error = connect(&url).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert!(error.to_string().contains("read_only = NO_LOCK"), "{error}");
}
