//! TCP with the options that keep it from hanging.
//!
//! Small writes leave at once. A peer that vanished is noticed by keepalive when idle and by the
//! user timeout when something is unacknowledged. A frozen server acknowledges all the same: that
//! is for deadlines to notice.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// How long a connection may be idle before the kernel asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// How often it asks, and how many times in vain.
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMES: u32 = 3;
/// How long sent bytes may be unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Connects to a host, trying its addresses in turn.
///
/// # Errors
/// The name cannot be looked up, or none of its addresses can be reached: then why the last.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| io::Error::other(format!("the name cannot be looked up: {error}")))?;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                set_options(&stream)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_AGAIN)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_TIMES)?;
    let millis = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, millis)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_has_the_options_that_keep_it_from_hanging() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let stream = connect("localhost", port).await.expect("a connection");
        assert!(stream.nodelay().expect("told"));
        assert!(sockopt::socket_keepalive(&stream).expect("told"));
        assert_eq!(sockopt::tcp_keepidle(&stream).expect("told"), KEEPALIVE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).expect("told"), KEEPALIVE_AGAIN);
        assert_eq!(sockopt::tcp_keepcnt(&stream).expect("told"), KEEPALIVE_TIMES);
        let limit = sockopt::tcp_user_timeout(&stream).expect("told");
        assert_eq!(u128::from(limit), UNACKNOWLEDGED.as_millis());
    }
}
